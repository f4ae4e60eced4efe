#!/usr/bin/env python3
# Python's standard library
"""From the detections to the broker's socket: how long does publishing take, with and without a spool?

    publish.py [--visiond BIN] [--cameras 4] [--fps 25] [--seconds 30] [--limit-ms 1.0]

A server of this bench acts as an MQTT broker on loopback: it acknowledges each message and notes when it was complete.
That instant is compared with the message's own: `monotonic_ns` plus `timings_us.total` is when the lane handed it to the sinks.
So the figure includes the queue, the serialisation, the spool, the protocol, the socket, and this server's own wake-up.
Wants: 99 of 100 within the limit.
"""

import argparse
import json
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
[log]
level = "warn"
[engine]
backend = "rten"
threads = 1
[[model]]
name = "tiny"
path = "{root}/tests/vm/tiny.onnx"
[[sink]]
type = "mqtt"
url = "mqtt://127.0.0.1:{port}"
protocol = "3.1.1"
qos_detections = 1
{more}
"""
CAMERA = """
[[camera]]
name = "c{number}"
source = {{ type = "pattern", width = 160, height = 120, fps = {fps} }}
"""


class Broker(threading.Thread):
    """Serves one client of MQTT 3.1.1; `took_ms` are the messages' times."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.took_ms = []

    def run(self):
        client, _ = self.listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        held = b""
        while chunk := client.recv(1 << 16):
            now = time.monotonic_ns()
            held += chunk
            while (packet := self.packet(held)) is not None:
                kind, body, size = packet
                held = held[size:]
                answer = self.answer(kind, body, now)
                if answer:
                    client.sendall(answer)

    @staticmethod
    def packet(held):
        """The first packet's first byte, its body, and its whole length; None while it is not all there."""
        length, shift = 0, 0
        for at in range(1, min(len(held), 5)):
            length |= (held[at] & 0x7F) << shift
            shift += 7
            if held[at] < 0x80:
                end = at + 1 + length
                return (held[0], held[at + 1 : end], end) if len(held) >= end else None
        return None

    def answer(self, kind, body, now):
        """An MQTT broker's answer to it."""
        if kind >> 4 == 1:
            return b"\x20\x02\x00\x00"
        if kind >> 4 == 8:
            return b"\x90\x03" + body[:2] + b"\x01"
        if kind >> 4 == 12:
            return b"\xd0\x00"
        if kind >> 4 != 3:
            return None
        topic_end = 2 + int.from_bytes(body[:2], "big")
        qos = kind >> 1 & 3
        payload = body[topic_end + (2 if qos else 0) :]
        if body[2:topic_end].endswith(b"/detections"):
            message = json.loads(payload)
            published_ns = message["monotonic_ns"] + message["timings_us"]["total"] * 1000
            self.took_ms.append((now - published_ns) / 1e6)
        return b"\x40\x02" + body[topic_end : topic_end + 2] if qos else None


def measure(arguments, name, more):
    """Runs the daemon for a while; the sorted times."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker()
        broker.start()
        text = CONFIG.format(root=ROOT, port=broker.port, more=more.format(folder=folder))
        for number in range(arguments.cameras):
            text += CAMERA.format(number=number, fps=arguments.fps)
        path = pathlib.Path(folder) / "visiond.toml"
        path.write_text(text)
        daemon = subprocess.Popen([arguments.visiond, "run", path], stdout=subprocess.DEVNULL)
        try:
            time.sleep(3)
            begun = len(broker.took_ms)
            time.sleep(arguments.seconds)
            times = sorted(broker.took_ms[begun:])
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(10)
    if not times:
        raise SystemExit(f"{name}: no message came")
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))]
    print(f"{name:24} {len(times):6} {at(0.5):8.3f} {at(0.9):8.3f} {at(0.99):8.3f} {times[-1]:8.3f}", flush=True)
    return at(0.99)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=ROOT / "target/release/visiond", type=pathlib.Path)
    parser.add_argument("--cameras", default=4, type=int)
    parser.add_argument("--fps", default=25, type=int)
    parser.add_argument("--seconds", default=30, type=float)
    parser.add_argument("--limit-ms", default=1.0, type=float)
    arguments = parser.parse_args()
    print(f"{'ms':24} {'count':>6} {'median':>8} {'p90':>8} {'p99':>8} {'max':>8}")
    durable = 'durable = true\nspool_directory = "{folder}/spool"\n'
    kinds = {
        "in memory": "",
        "spool": durable,
        "spool, each synced": durable + 'spool_sync = "0 s"\n',
    }
    p99 = {name: measure(arguments, name, more) for name, more in kinds.items()}
    # With a sync before each message, the disk decides, so the figure is only printed.
    late = [name for name in ("in memory", "spool") if p99[name] > arguments.limit_ms]
    if late:
        raise SystemExit(f"later than {arguments.limit_ms} ms: {', '.join(late)}")


if __name__ == "__main__":
    main()
