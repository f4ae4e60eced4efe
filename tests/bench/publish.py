#!/usr/bin/env python3
"""How long is it from detections to the broker's socket?

    publish.py [--visiond BIN] [--seconds S] [--cameras N] [--durable]

Stands in for a broker of MQTT 5 that does nothing but read, note the time, and acknowledge; N cameras of the test pattern at
30 frames/s and a network that costs nothing. A message is handed to the sinks at captured_at + timings_us.total; it is here when
its last byte is. Both are the same machine's clock. Wants at most 1 ms at p99.
"""

import argparse
import datetime
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONNECT, PUBLISH, PINGREQ = 1, 3, 12


def packets(connection, length=65536):
    """Packets as they come: type and flags, body, and the time at which it was whole."""
    buffer = b""
    while True:
        received = connection.recv(length)
        now = time.time_ns()
        if not received:
            return
        buffer += received
        while len(buffer) >= 2:
            size, shift, at = 0, 0, 1
            while at < len(buffer):
                size |= (buffer[at] & 127) << shift
                shift += 7
                at += 1
                if not buffer[at - 1] & 128:
                    break
            else:
                break
            if len(buffer) < at + size:
                break
            yield buffer[0], buffer[at : at + size], now
            buffer = buffer[at + size :]


def delay_us(message, now):
    """From publishing until now."""
    text, nanoseconds = message["captured_at"].rstrip("Z").split(".")
    captured = datetime.datetime.fromisoformat(text + "+00:00")
    published = int(captured.timestamp()) * 10**9 + int(nanoseconds) + message["timings_us"]["total"] * 1000
    return (now - published) / 1000


def serve(server, until):
    """Reads until then; the delay of each camera's message."""
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    delays = []
    for first, body, now in packets(connection):
        kind, qos = first >> 4, first >> 1 & 3
        if kind == CONNECT:
            connection.sendall(bytes([0x20, 3, 0, 0, 0]))
        elif kind == PINGREQ:
            connection.sendall(bytes([0xD0, 0]))
        elif kind == PUBLISH:
            end = 2 + int.from_bytes(body[:2])
            topic = body[2:end]
            if qos:
                connection.sendall(bytes([0x40, 2]) + body[end : end + 2])
                end += 2
            # Properties shorter than 128 bytes.
            end += 1 + body[end]
            if topic.endswith(b"/detections"):
                delays.append(delay_us(json.loads(body[end:]), now))
        if time.time() > until:
            return delays
    return delays


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=ROOT / "target/release/visiond")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--durable", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        cameras = "".join(
            f'[[camera]]\nname = "c{i}"\nsource = {{ type = "pattern", width = 128, height = 64, fps = 30 }}\n'
            for i in range(options.cameras)
        )
        config = pathlib.Path(folder, "visiond.toml")
        config.write_text(
            f'[engine]\nbackend = "rten"\nthreads = 1\n[[model]]\nname = "bars"\npath = "{ROOT}/tests/vm/tiny.onnx"\n{cameras}'
            f'[[sink]]\ntype = "mqtt"\nurl = "mqtt://127.0.0.1:{server.getsockname()[1]}"\n'
            + (f'durable = true\nspool_directory = "{folder}/spool"\n' if options.durable else "")
        )
        daemon = subprocess.Popen([options.visiond, "run", config, "-q"], stdout=subprocess.DEVNULL)
        try:
            delays = serve(server, time.time() + options.seconds)
        finally:
            daemon.terminate()
            daemon.wait()
    # The first second is the start.
    delays = sorted(delays[30 * options.cameras :])
    if not delays:
        sys.exit("no message came")
    at = lambda share: delays[min(len(delays) - 1, int(share * len(delays)))]
    ok = at(0.99) <= 1000
    print(
        f"from detections to the broker's socket, {options.cameras} cameras, {len(delays)} messages"
        f"{', durable' if options.durable else ''}: p50 {at(0.5):.0f} us, p99 {at(0.99):.0f} us, most {delays[-1]:.0f} us"
        f"{'' if ok else ': MORE THAN 1 ms'}"
    )
    sys.exit(not ok)


if __name__ == "__main__":
    main()
