#!/usr/bin/env python3
"""Readers that hang: does the lane notice?

    isolation.py [--visiond BIN] [--cameras N] [--seconds S] [--idle N]

Alternates, in one process, between no clients and: 500 WebSockets that never read, a browser that requested images and never
reads, and a sink whose reader never reads. Compares the lane's time per frame (from the mailbox to publishing) and its
losses, by the messages in a file. Then adds clients that do read: WebSockets and watchers of images,
which take CPU time but must not otherwise affect the lane.
"""

import argparse
import pathlib
import select
import socket
import sys
import threading
import time

from watching import ROOT, Daemon, quantile, undisturbed

SINK = """
[[sink]]
name = "hangs"
type = "unix"
path = "{dir}/sink.sock"
"""


class Crowd:
    """Connections that end together."""

    def __init__(self):
        self.connections = []
        self.reading = None

    def hang(self, daemon, idle):
        """Clients that never read."""
        self.connections += [daemon.web_socket() for _ in range(idle)]
        self.connections.append(daemon.ask("/cameras/cam0/stream.mjpeg?overlay=1"))
        sink = socket.socket(socket.AF_UNIX)
        sink.connect(str(daemon.path / "sink.sock"))
        self.connections.append(sink)

    def read(self, daemon, readers, watchers):
        """Clients that read, on their own thread."""
        reading = [daemon.web_socket() for _ in range(readers)]
        reading += [daemon.ask(f"/cameras/cam{n % 2}/stream.mjpeg") for n in range(watchers)]
        self.connections += reading
        self.reading = threading.Event()
        poll = select.poll()
        by_number = {connection.fileno(): connection for connection in reading}
        for number in by_number:
            poll.register(number, select.POLLIN)

        def run():
            while not self.reading.is_set():
                for number, _ in poll.poll(100):
                    by_number[number].recv(1 << 18)

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self):
        if self.reading:
            self.reading.set()
            self.thread.join()
        for connection in self.connections:
            connection.close()


def measure(daemon, seconds):
    """The lane's times and losses meanwhile."""
    time.sleep(1)
    offset, before, began = daemon.offset(), daemon.processor_seconds(), time.monotonic()
    time.sleep(seconds)
    used = (daemon.processor_seconds() - before) / (time.monotonic() - began)
    messages = daemon.messages(offset)
    stages = ("queue", "preprocess", "infer", "postprocess")
    lane = [sum(message["timings_us"][stage] for stage in stages) / 1e3 for message in messages]
    total = [message["timings_us"]["total"] / 1e3 for message in messages]
    last, lost = {}, 0
    for message in messages:
        camera, number = message["camera"], message["sequence"]
        lost += number - last.get(camera, number - 1) - 1
        last[camera] = number
    return {"lane": lane, "total": total, "lost": lost, "used": used, "mib": daemon.resident_mib()}


def show(name, phase):
    lane, total = phase["lane"], phase["total"]
    print(
        f"{name:42} {len(total):7} {phase['lost']:5} {quantile(lane, 0.5):8.2f} {quantile(lane, 0.99):8.2f}"
        f" {quantile(total, 0.5):8.2f} {quantile(total, 0.99):8.2f} {100 * phase['used']:7.1f} {phase['mib']:7.1f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", type=pathlib.Path, default=ROOT / "target/release/visiond")
    parser.add_argument("--cameras", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--idle", type=int, default=500)
    args = parser.parse_args()

    print(f"{'':42} {'frames':>7} {'lost':>5} {'lane ms':>17} {'captured-published ms':>17} {'core':>7} {'memory':>7}")
    print(f"{'':42} {'':7} {'':5} {'p50':>8} {'p99':>8} {'p50':>8} {'p99':>8} {'%':>7} {'MiB':>7}")
    quiet, hung, disturbed = [], [], 0

    def measured():
        nonlocal disturbed
        found, again = undisturbed(args.seconds, lambda: measure(daemon, args.seconds))
        disturbed += again
        return found

    with Daemon(args.visiond, cameras=args.cameras, more=SINK) as daemon:
        for _ in range(3):
            quiet.append(measured())
            show("nobody", quiet[-1])
            crowd = Crowd()
            crowd.hang(daemon, args.idle)
            hung.append(measured())
            show(f"{args.idle} idle, a hung browser, a hung sink", hung[-1])
            crowd.end()
        crowd = Crowd()
        crowd.hang(daemon, args.idle)
        crowd.read(daemon, 50, 2)
        show("the same, and 50 readers, 2 watchers", measured())
        crowd.end()

    def p99(phases):
        return quantile([value for phase in phases for value in phase["lane"]], 0.99)

    print(f"measured again because the host was in the way: {disturbed} times")
    ratio = p99(hung) / p99(quiet)
    print(f"lane at p99: {p99(quiet):.2f} ms with nobody, {p99(hung):.2f} ms with those that hang: {ratio:.2f} of it")
    sys.exit(ratio > 1.1)


if __name__ == "__main__":
    main()
