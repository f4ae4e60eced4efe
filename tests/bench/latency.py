#!/usr/bin/env python3
"""Measures how long a message takes from the detections to a WebSocket client, or to a broker's socket.

    latency.py [--visiond BIN] [--readers N] [--cameras N] [--seconds S] [--no-brokers] [--durable]

The message has its time of publishing (the frame's time plus its age), on the same clock that is read when its bytes arrive.
Wants 5 ms at p99 at each of 50 readers of a camera of 30 frames/s, and 1 ms at p99 at the sockets of
Mosquitto and of nats-server: a relay in front of each asks the kernel when the bytes came to its socket, then passes them on. On a
machine that does nothing else; `chrt --fifo 5 latency.py` where others use it.
"""

import argparse
import json
import pathlib
import re
import selectors
import socket
import struct
import sys
import tempfile
import threading
import time

import brokers
from watching import ROOT, Daemon, quantile, texts

# linux/net_tstamp.h; Python names none of them.
SO_TIMESTAMPING, RX_SOFTWARE, SOFTWARE = 37, 1 << 3, 1 << 4
READER_MS, BROKER_MS = 5.0, 1.0
SINK = """
[[sink]]
name = "{kind}"
type = "{kind}"
url = {url}
durable = {durable}
{more}
"""
MESSAGE = re.compile(rb'"monotonic_ns":(\d+),.*?"timings_us":\{[^}]*"total":(\d+)\}', re.DOTALL)


def late_ms(now_ns, monotonic_ns, total_us):
    """How long ago it was published."""
    return (now_ns - monotonic_ns - total_us * 1000) / 1e6


def receive(connection):
    """The received bytes, and when the last of them reached the socket, by CLOCK_MONOTONIC: without the time to wake this
    process."""
    data, told, _, _ = connection.recvmsg(1 << 16, 256)
    real_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
    for level, kind, value in told:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
            # The first of three, by the kernel's software, on CLOCK_REALTIME.
            seconds, nanoseconds = struct.unpack_from("qq", value)
            return data, monotonic_ns - (real_ns - seconds * 10**9 - nanoseconds)
    if data:
        raise SystemExit("the kernel does not say when bytes came to a socket")
    return data, monotonic_ns


class Relay:
    """A relay in front of a broker that notes when a message's last byte arrived."""

    def __init__(self, port):
        self.broker = port
        self.late_ms = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        # Connections have it from the listener, so from their first byte on.
        self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Accepts the broker's clients."""
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.broker))
            for connection in (client, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self.back, args=(server, client), daemon=True).start()

    def forward(self, client, server):
        """Forwards to the broker, and inspects the bytes."""
        waiting = b""
        while (received := receive(client))[0]:
            data, now_ns = received
            server.sendall(data)
            waiting += data
            end = 0
            for found in MESSAGE.finditer(waiting):
                self.late_ms.append(late_ms(now_ns, int(found[1]), int(found[2])))
                end = found.end()
            waiting = waiting[end:][-(1 << 16) :]
        server.close()

    @staticmethod
    def back(server, client):
        """From the broker."""
        try:
            while data := server.recv(1 << 16):
                client.sendall(data)
        except OSError:
            pass


def read(daemon, count, seconds):
    """The results of these WebSockets: how late each message was, and how many were lost."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        reader = daemon.web_socket()
        reader.setblocking(False)
        selector.register(reader, selectors.EVENT_READ, bytearray())
    arrivals = []
    # The first second warms everything up.
    begin_ns = time.monotonic_ns() + 1_000_000_000
    end = time.monotonic() + 1 + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            data = key.fileobj.recv(1 << 16)
            now_ns = time.monotonic_ns()
            if not data:
                sys.exit("a reader was cut off")
            key.data.extend(data)
            found = texts(key.data)
            if now_ns > begin_ns:
                arrivals += [(now_ns, text) for text in found]
    late, lost = [], 0
    for now_ns, text in arrivals:
        message = json.loads(text)
        lost += message.get("lost", 0)
        if "lost" not in message:
            late.append(late_ms(now_ns, message["monotonic_ns"], message["timings_us"]["total"]))
    return late, lost


def show(what, late, limit_ms):
    """Prints one line; returns whether it is within the limit."""
    p50, p99 = quantile(late, 0.5), quantile(late, 0.99)
    print(f"{what:34} {len(late):8} {p50:8.2f} {p99:8.2f} {max(late, default=float('nan')):8.2f} {limit_ms:8.1f}")
    return p99 <= limit_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", type=pathlib.Path, default=ROOT / "target/release/visiond")
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--cameras", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--no-brokers", action="store_true", help="WebSockets alone")
    parser.add_argument("--durable", action="store_true", help="the brokers' messages go through the spool")
    args = parser.parse_args()

    print(f"{args.cameras} cameras of 30 frames/s, {args.readers} readers, {args.seconds:.0f} s; ms from published to there")
    print(f"{'':34} {'messages':>8} {'p50':>8} {'p99':>8} {'most':>8} {'limit':>8}")
    good = True
    with Daemon(args.visiond, cameras=args.cameras) as daemon:
        before = daemon.processor_seconds()
        late, lost = read(daemon, args.readers, args.seconds)
        used = (daemon.processor_seconds() - before) / (args.seconds + 1)
        good &= show("at a WebSocket's reader", late, READER_MS) and lost == 0
    print(f"{'':34} {lost} lost; the daemon used {100 * used:.1f} % of a core")
    if args.no_brokers:
        sys.exit(not good)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("mqtt", "nats"):
            (pathlib.Path(folder) / kind).mkdir()
        with brokers.Mosquitto(f"{folder}/mqtt") as mqtt, brokers.Nats(f"{folder}/nats") as nats:
            relays = {"mqtt": Relay(mqtt.port), "nats": Relay(nats.port)}
            more = {"mqtt": "", "nats": 'stream = "bench"\ncreate_stream = true'}
            sinks = ""
            for kind, relay in relays.items():
                url = json.dumps(f"{kind}://127.0.0.1:{relay.port}")
                sinks += SINK.format(
                    kind=kind,
                    url=f"[{url}]" if kind == "nats" else url,
                    durable=str(args.durable).lower(),
                    more=more[kind] + ('\nspool_directory = "{dir}/spool-' + kind + '"' if args.durable else ""),
                )
            with Daemon(args.visiond, cameras=args.cameras, more=sinks) as daemon:
                # Messages that waited while it connected do not count.
                time.sleep(3)
                for relay in relays.values():
                    relay.late_ms.clear()
                time.sleep(args.seconds)
                found = {kind: list(relay.late_ms) for kind, relay in relays.items()}
    good &= show("at Mosquitto's socket", found["mqtt"], BROKER_MS)
    good &= show("at nats-server's socket", found["nats"], BROKER_MS)
    sys.exit(not good)


if __name__ == "__main__":
    main()
