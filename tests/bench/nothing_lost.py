#!/usr/bin/env python3
# Python's standard library, mosquitto and nats-server
"""Durable sinks while brokers and daemon are killed: do all accepted messages arrive, in order?

    nothing_lost.py [--visiond BIN] [--seconds 300] [--broker-kills 10] [--daemon-kills 5] [--only mqtt|nats] [--seed N]

Four cameras with 25 frames/s each go to an MQTT and a NATS sink, both durable. Each broker is killed (SIGKILL) so many times
and started again after 0.2 to 3 s, the daemon is killed so many times and started again at once. The daemon's log tells which
messages it accepted. mosquitto_sub reads the MQTT broker all the while; the stream of the NATS server is read at the end, by
its own protocol. Wants: each accepted message there at least once, a camera's in the order in which they were accepted, and what
is there twice with the same id and the same text.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from brokers import Broker, Mosquitto, Nats

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAMERAS, FPS = 4, 25
CONFIG = """
[device]
name = "bench"
[log]
level = "trace"
target = "stderr"
[engine]
backend = "rten"
threads = 1
[[model]]
name = "tiny"
path = "{root}/tests/vm/tiny.onnx"
"""
CAMERA = """
[[camera]]
name = "c{number}"
[camera.source]
type = "pattern"
width = 160
height = 120
fps = {fps}
"""
SINK = """
[[sink]]
type = "{kind}"
url = {url}
durable = true
spool_directory = "{folder}/spool-{kind}"
{more}
"""
ACCEPTED = re.compile(rb"sink (\S+): accepted (\S+) (\S+) (\d+)\n$")
# If everything runs again and nothing arrives for this long, nothing more will.
PATIENCE_S = 600


class MqttReader:
    """mosquitto_sub with a session that the broker keeps; it connects again by itself."""

    def __init__(self, broker, folder):
        self.path = folder / "mqtt.jsonl"
        self.out = open(self.path, "wb")
        program = shutil.which("mosquitto_sub") or "/usr/bin/mosquitto_sub"
        self.command = [program, "-h", "127.0.0.1", "-p", str(broker.port), "-V", "mqttv311", "-c", "-i", "reader", "-q", "1",
                        "-k", "5", "-t", "visiond/+/cameras/+/detections"]
        self.start()

    def start(self):
        """Continues where it stopped: the broker keeps the session."""
        self.process = subprocess.Popen(self.command, stdout=self.out, stderr=subprocess.DEVNULL)

    def arrived(self):
        """(id, text) of all messages so far."""
        # It ends by itself when a broker that comes up refuses it.
        if self.process.poll() is not None:
            self.start()
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [(json.loads(line)["id"], line) for line in lines]

    def close(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()
        self.out.close()


class NatsReader:
    """Returns the messages in the stream, requested one at a time."""

    def __init__(self, broker, _folder):
        self.broker = broker

    def arrived(self):
        """(id, text) of all messages in the stream."""
        with socket.create_connection(("127.0.0.1", self.broker.port), PATIENCE_S) as connection:
            self.socket, self.buffer = connection, connection.makefile("rwb")
            self.buffer.readline()
            self.buffer.write(b'CONNECT {"verbose":false,"headers":false}\r\nSUB reader 1\r\n')
            [info] = self.ask("$JS.API.STREAM.INFO.visiond", [b""])
            state = info["state"]
            numbers = range(state["first_seq"], state["last_seq"] + 1) if state["messages"] else []
            found = []
            for begin in range(0, len(numbers), 500):
                asked = [json.dumps({"seq": n}).encode() for n in numbers[begin:begin + 500]]
                found += self.ask("$JS.API.STREAM.MSG.GET.visiond", asked)
        arrived = []
        # Answers may overtake one another.
        for message in sorted((answer["message"] for answer in found), key=lambda message: message["seq"]):
            headers, text = base64.b64decode(message["hdrs"]).decode(), base64.b64decode(message["data"])
            header = next(line for line in headers.split("\r\n") if line.startswith("Nats-Msg-Id:"))
            assert header.split(":")[1].strip() == json.loads(text)["id"], headers
            arrived.append((json.loads(text)["id"], text))
        return arrived

    def ask(self, subject, bodies):
        """The answers, as JSON."""
        for body in bodies:
            self.buffer.write(b"PUB %s reader %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        self.buffer.flush()
        answers = []
        while len(answers) < len(bodies):
            line = self.buffer.readline()
            if line.startswith(b"MSG"):
                answers.append(json.loads(self.buffer.read(int(line.split()[-1]) + 2)))
            elif line.startswith(b"PING"):
                self.buffer.write(b"PONG\r\n")
                self.buffer.flush()
            elif not line or line.startswith(b"-ERR"):
                raise SystemExit(f"nats-server: {line!r}")
        return answers

    def close(self):
        """Nothing is open."""


class Daemon:
    """visiond run, again and again; each life's log is a file."""

    def __init__(self, binary, config, folder):
        self.command, self.folder, self.lives = [binary, "run", str(config)], folder, 0

    def start(self):
        """Runs it."""
        self.lives += 1
        with open(self.folder / f"visiond-{self.lives}.log", "wb") as log:
            self.process = subprocess.Popen(self.command, stderr=log)

    def kill(self):
        """SIGKILL, and started again."""
        if self.process.poll() is not None:
            raise SystemExit(f"visiond ended by itself, see {self.folder}/visiond-{self.lives}.log")
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def accepted(self):
        """(id, camera, sequence) by sink, in the order of the log."""
        found = {}
        for life in range(1, self.lives + 1):
            for line in open(self.folder / f"visiond-{life}.log", "rb"):
                match = ACCEPTED.search(line)
                if match:
                    sink, *rest = (part.decode() for part in match.groups())
                    found.setdefault(sink, []).append(tuple(rest))
        return found


def check(kind, accepted, arrived):
    """The faults, as sentences."""
    wrong = []
    first, texts, twice = {}, {}, 0
    for place, (message, text) in enumerate(arrived):
        if message in first:
            twice += 1
            if texts[message] != text:
                wrong.append(f"{message} came with two texts")
        else:
            first[message], texts[message] = place, text
    missing = [entry for entry in accepted if entry[0] not in first]
    if missing:
        wrong.append(f"{len(missing)} accepted messages did not arrive, the first {missing[0]}")
    last = {}
    for message, camera, sequence in accepted:
        place = first.get(message, -1)
        if place >= 0:
            if place < last.get(camera, -1):
                wrong.append(f"frame {sequence} of {camera} ({message}) came too early")
            last[camera] = max(place, last.get(camera, -1))
    print(f"{kind}: {len(accepted)} accepted, {len(first)} arrived, {len(missing)} missing, {twice} twice, "
          f"{sum('too early' in sentence for sentence in wrong)} out of order")
    return [f"{kind}: {sentence}" for sentence in wrong]


def run(args, folder, memory):
    """Runs it all, with the brokers' files in `memory`; returns the faults."""
    rng = random.Random(args.seed)
    # On a busy machine, a process of low priority would never run.
    Broker.gives_way = False
    kinds = [args.only] if args.only else ["mqtt", "nats"]
    brokers, readers = {}, {}
    text = CONFIG.format(root=ROOT) + "".join(CAMERA.format(number=n, fps=FPS) for n in range(CAMERAS))
    for kind in kinds:
        place = memory / kind
        place.mkdir()
        brokers[kind] = (Mosquitto if kind == "mqtt" else Nats)(place)
        brokers[kind].start()
        readers[kind] = (MqttReader if kind == "mqtt" else NatsReader)(brokers[kind], folder)
        url = json.dumps(brokers[kind].url if kind == "mqtt" else [brokers[kind].url])
        more = 'stream = "visiond"\ncreate_stream = true' if kind == "nats" else ""
        text += SINK.format(kind=kind, url=url, folder=folder, more=more)
    (folder / "visiond.toml").write_text(text)
    daemon = Daemon(args.visiond, folder / "visiond.toml", folder)
    daemon.start()
    try:
        began = time.monotonic()
        # Evenly in time, each somewhere in its share of it.
        plan = [(args.seconds * (n + rng.random()) / args.daemon_kills, "daemon") for n in range(args.daemon_kills)]
        for kind in kinds:
            share = args.seconds / args.broker_kills if args.broker_kills else 0
            for n in range(args.broker_kills):
                at = share * (n + 0.1 + 0.3 * rng.random())
                plan += [(at, f"kill {kind}"), (at + min(rng.uniform(0.2, 3), share / 2), f"start {kind}")]
        for at, what in sorted(plan):
            time.sleep(max(0, began + at - time.monotonic()))
            print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)
            if what == "daemon":
                daemon.kill()
            else:
                action, kind = what.split()
                getattr(brokers[kind], action)()
        time.sleep(max(0, began + args.seconds - time.monotonic()))
        wanted = daemon.accepted()
        took = time.monotonic() - began
        missing, until = None, time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            arrived = {kind: {a[0] for a in readers[kind].arrived()} for kind in kinds}
            before, missing = missing, sum(e[0] not in arrived[kind] for kind in kinds for e in wanted.get(kind, []))
            if missing == 0:
                break
            if missing != before:
                until = time.monotonic() + PATIENCE_S
            time.sleep(1)
        daemon.process.terminate()
        daemon.process.wait(PATIENCE_S)
        arrived = {kind: readers[kind].arrived() for kind in kinds}
    finally:
        daemon.process.kill()
        daemon.process.wait()
        for kind in kinds:
            readers[kind].close()
            brokers[kind].kill()
    wrong = []
    for kind in kinds:
        accepted = wanted.get(kind, [])
        print(f"{kind}: {len(accepted) / took:.1f} messages/s accepted over {took:.0f} s, broker killed {args.broker_kills} "
              f"times, daemon {args.daemon_kills} times")
        if not accepted:
            wrong.append(f"{kind}: nothing was accepted")
        wrong += check(kind, accepted, arrived[kind])
    return wrong


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--broker-kills", type=int, default=10)
    parser.add_argument("--daemon-kills", type=int, default=5)
    parser.add_argument("--only", choices=["mqtt", "nats"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for logs and spools, kept")
    args = parser.parse_args()
    # mosquitto acknowledges first, and then writes everything that it holds and waits until it is on the disk: messages that
    # arrive meanwhile are lost with it. In memory this takes no time, on a busy disk seconds.
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=in_memory) as memory:
        if args.keep:
            folder = args.keep
            pathlib.Path(folder).mkdir(parents=True)
        wrong = run(args, pathlib.Path(folder), pathlib.Path(memory))
    for sentence in wrong[:20]:
        print(sentence)
    print("nothing lost" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
