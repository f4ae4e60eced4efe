#!/usr/bin/env python3
"""Runs the programs of docs/consume.md against visiond: each prints the detections, also after visiond and the broker restarted.

    VISIOND_BIN=target/debug/visiond python3 tests/web/consume.py [-k WORD]

A program is a fenced block, named by its heading and language; the block of TOML before it is the configuration. Paths and ports
in both are replaced by those of the test. A program whose interpreter or compiler is missing is skipped with the reason; its
libraries must be there (tests/setup --test).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from running import BINARY, ROOT, Daemon, free_port, pattern

DOCUMENT = ROOT / "docs/consume.md"
# A hang, not slowness: nothing else is decided by it.
PATIENCE_S = 600


def blocks():
    """The fenced blocks of the document: (heading, language) to texts."""
    found = {}
    for section in DOCUMENT.read_text().split("\n## ")[1:]:
        heading = section.splitlines()[0]
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.S | re.M):
            found.setdefault((heading, language), []).append(text)
    return found


BLOCKS = blocks()
# How many programs of a language the tests below run, by heading.
TESTED = {
    **{("Unix socket", language): 1 for language in ("sh", "python", "js", "go", "c")},
    **{("File", language): 1 for language in ("sh", "python")},
    **{("Standard output", language): 1 for language in ("sh", "python")},
    **{("MQTT", language): 1 for language in ("sh", "python", "js")},
    **{("NATS", language): 1 for language in ("sh", "python")},
    **{("HTTP", language): 1 for language in ("python", "js")},
    ("HTTP", "sh"): 2,
}


def wait(what, ready, explain=lambda: ""):
    until = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < until, f"waited {PATIENCE_S} s for {what}\n{explain()}"
        time.sleep(0.05)


def node_version():
    text = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(int(number) for number in text.strip().lstrip("v").split(".")[:2])


class Server:
    """A broker on a port of its own, which can be killed and started again."""

    def __init__(self, command):
        self.command = command
        self.start()

    def start(self):
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=quiet, stdout=quiet, stderr=quiet)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Consumer:
    """A running program, and the lines that it printed."""

    def __init__(self, command, folder):
        self.errors = tempfile.TemporaryFile()
        # The group ends with it, the programs of a pipe included.
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "NODE_PATH": "/usr/share/nodejs"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            # One that is killed may leave half a line.
            if line.endswith(b"\n"):
                self.lines.append(line.decode().rstrip("\n").split("\t"))

    def explain(self):
        self.errors.seek(0)
        return f"printed {self.lines[-3:]}, ended with {self.process.poll()}\n{self.errors.read().decode(errors='replace')}"

    def wait_for(self, camera, count=20):
        """Waits for detections of a camera."""
        wait(f"detections of {camera}", lambda: sum(line[0] == camera for line in self.lines) >= count, self.explain)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.errors.close()


class Consume(unittest.TestCase):
    """Each test has a daemon of its own; a second camera stands for a restart, so that a line says from which run it is."""

    def setUp(self):
        self.replaced = {}

    def needs(self, *programs):
        for name in programs:
            if not shutil.which(name):
                self.skipTest(f"{name} is not installed")

    def block(self, heading, language, number=0):
        """A block with this test's paths and ports."""
        text = BLOCKS[heading, language][number]
        for old, new in self.replaced.items():
            text = text.replace(old, str(new))
        return text

    def daemon(self, heading, more=""):
        """visiond, not started, with the document's configuration and a file of all messages."""
        folder = tempfile.mkdtemp(prefix="visiond-consume-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.folder = pathlib.Path(folder)
        daemon = Daemon("")
        self.replaced.update({"/run/visiond/": f"{folder}/", "/var/lib/visiond/": f"{folder}/", "8790": daemon.port})
        daemon.http = self.block("HTTP", "toml") + '[device]\nname = "gate"\n'
        self.sinks = "" if heading == "HTTP" else self.block(heading, "toml")
        self.sinks += more + f'[[sink]]\ntype = "file"\nname = "all"\npath = "{folder}/all.jsonl"\n'
        self.write(daemon, "first")
        return daemon

    def write(self, daemon, camera):
        daemon.write(pattern(camera, fps=20, width=128, height=64) + self.sinks)

    def start(self, daemon):
        running = daemon.__enter__()
        self.addCleanup(daemon.__exit__, None, None, None)
        return running

    @staticmethod
    def stop(daemon):
        daemon.process.terminate()
        daemon.process.wait()

    def restart(self, daemon, camera):
        self.stop(daemon)
        self.write(daemon, camera)
        daemon.start()

    def expected(self):
        """What is to be printed for the messages that visiond sent, in order."""
        lines = []
        for text in (self.folder / "all.jsonl").read_text().splitlines():
            message = json.loads(text)
            for found in message["detections"]:
                box = found["box"]
                centre = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
                lines.append((message["camera"], found["label"], round(found["score"], 4), *(round(value, 4) for value in centre)))
        return lines

    def printed(self, consumer):
        return [(camera, label, *(round(float(number), 4) for number in numbers)) for camera, label, *numbers in consumer.lines]

    def consume(self, heading, language, number=0, options=()):
        """Starts a program of the document."""
        text, folder = self.block(heading, language, number), self.folder
        if language == "sh":
            self.needs("jq")
            command = ["sh", "-c", text]
        elif language == "c":
            self.needs("cc")
            (folder / "consume.c").write_text(text)
            program = [shutil.which("cc"), "-Wall", "-Wextra", "-Werror", "-o", "consume", "consume.c", "-lcjson"]
            subprocess.run(program, cwd=folder, check=True)
            command = ["./consume"]
        else:
            runner = {"python": [sys.executable], "js": ["node", *options], "go": ["go", "run"]}[language]
            self.needs(runner[0])
            file = folder / f"consume.{language}"
            file.write_text(text)
            command = [*runner, str(file)]
        consumer = Consumer(command, folder)
        self.addCleanup(consumer.kill)
        return consumer

    def check(self, consumer):
        """Asserts that all lines are of messages that visiond sent."""
        wrong = set(self.printed(consumer)) - set(self.expected())
        self.assertEqual(wrong, set())

    def reads_and_reconnects(self, heading, language, number=0, server=None, options=()):
        daemon = self.start(self.daemon(heading))
        consumer = self.consume(heading, language, number, options)
        consumer.wait_for("first")
        if server:
            server.kill()
            server.start()
        self.restart(daemon, "second")
        consumer.wait_for("second")
        consumer.kill()
        self.stop(daemon)
        self.check(consumer)

    def test_every_program_has_a_test(self):
        self.assertEqual({key: len(texts) for key, texts in BLOCKS.items() if key[1] != "toml"}, TESTED)

    def test_unix_socket_in_shell(self):
        self.needs("socat")
        self.reads_and_reconnects("Unix socket", "sh")

    def test_unix_socket_in_python(self):
        self.reads_and_reconnects("Unix socket", "python")

    def test_unix_socket_in_node(self):
        self.reads_and_reconnects("Unix socket", "js")

    def test_unix_socket_in_go(self):
        self.reads_and_reconnects("Unix socket", "go")

    def test_unix_socket_in_c(self):
        self.reads_and_reconnects("Unix socket", "c")

    def file(self, language):
        daemon = self.start(self.daemon("File", 'rotate_bytes = "100 KiB"\n'))
        consumer = self.consume("File", language)
        wait("a rotation", lambda: (self.folder / "detections.jsonl.1").exists(), consumer.explain)
        self.restart(daemon, "second")
        consumer.wait_for("second")
        self.stop(daemon)
        return consumer

    def test_file_in_shell(self):
        consumer = self.file("sh")
        wait("the last line", lambda: self.printed(consumer)[-1:] == self.expected()[-1:], consumer.explain)
        # `tail` may miss lines before a rename, but prints the others once and in order.
        sent = iter(self.expected())
        for line in self.printed(consumer):
            self.assertIn(line, sent)

    def test_file_in_python(self):
        consumer = self.file("python")
        wait("all lines", lambda: len(consumer.lines) >= len(self.expected()), consumer.explain)
        self.assertEqual(self.printed(consumer), self.expected())

    def standard_output(self, language):
        daemon = self.daemon("Standard output")
        self.addCleanup(daemon.folder.cleanup)
        folder = self.folder
        (folder / "my.toml").write_text(daemon.config.read_text())
        (folder / "bin").mkdir()
        visiond = folder / "bin/visiond"
        visiond.write_text(f'#!/bin/sh\necho $$ >"{folder}/pid"\nexec "{pathlib.Path(BINARY).absolute()}" "$@"\n')
        visiond.chmod(0o755)
        if language == "sh":
            consumer = self.consume("Standard output", "sh")
        else:
            (folder / "consume.py").write_text(self.block("Standard output", "python"))
            consumer = Consumer(["sh", "-c", f"visiond run my.toml | '{sys.executable}' consume.py"], folder)
            self.addCleanup(consumer.kill)
        consumer.wait_for("first")
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
        wait("the end", lambda: consumer.process.poll() is not None, consumer.explain)
        consumer.reader.join()
        self.assertEqual(consumer.process.returncode, 0, consumer.explain())
        self.assertEqual(self.printed(consumer), self.expected())

    def test_standard_output_in_shell(self):
        self.standard_output("sh")

    def test_standard_output_in_python(self):
        self.standard_output("python")

    def mqtt(self, language):
        self.needs("mosquitto")
        port, folder = free_port(), tempfile.mkdtemp(prefix="visiond-consume-")
        self.addCleanup(shutil.rmtree, folder)
        config = pathlib.Path(folder, "conf")
        config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        broker = Server(["mosquitto", "-c", str(config)])
        self.addCleanup(broker.kill)
        self.replaced = {"localhost": "127.0.0.1", "1883": port}
        self.reads_and_reconnects("MQTT", language, server=broker)

    def test_mqtt_in_shell(self):
        self.needs("mosquitto_sub")
        self.mqtt("sh")

    def test_mqtt_in_python(self):
        self.mqtt("python")

    def test_mqtt_in_node(self):
        self.mqtt("js")

    def nats_server(self):
        self.needs("nats-server")
        port, folder = free_port(), tempfile.mkdtemp(prefix="visiond-consume-")
        self.addCleanup(shutil.rmtree, folder)
        server = Server(["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder])
        self.addCleanup(server.kill)
        self.replaced = {"localhost": "127.0.0.1", "4222": port}
        return server

    def test_nats_in_shell(self):
        self.needs("nats")
        self.reads_and_reconnects("NATS", "sh", server=self.nats_server())

    def test_nats_in_python(self):
        server = self.nats_server()
        daemon = self.start(self.daemon("NATS"))
        connected = lambda: daemon.log().count("sink nats: connected")
        wait("the stream", connected, daemon.log)
        first = self.consume("NATS", "python")
        first.wait_for("first")
        server.kill()
        server.start()
        wait("a connection to the new server", lambda: connected() == 2, daemon.log)
        self.restart(daemon, "second")
        first.wait_for("second")
        first.kill()
        self.restart(daemon, "third")
        # Most of what came while no program ran comes at once, what the first one did not acknowledge after half a minute.
        again = self.consume("NATS", "python")
        again.wait_for("third")
        self.stop(daemon)
        expected = set(self.expected())
        missing = lambda: expected - set(self.printed(first)) - set(self.printed(again))
        wait("every message", lambda: not missing(), lambda: f"{len(missing())} of {len(expected)} are missing\n{again.explain()}")
        self.check(first)
        self.check(again)

    def test_status_in_shell(self):
        self.needs("curl")
        self.start(self.daemon("HTTP"))
        consumer = self.consume("HTTP", "sh")
        wait("the end", lambda: consumer.process.poll() is not None, consumer.explain)
        consumer.reader.join()
        self.assertEqual([line[0] for line in consumer.lines], ["first"], consumer.explain())
        self.assertIn(consumer.lines[0][1], ("opening", "streaming"))

    def test_http_in_shell(self):
        self.needs("curl")
        self.reads_and_reconnects("HTTP", "sh", 1)

    def test_http_in_python(self):
        self.reads_and_reconnects("HTTP", "python")

    def test_http_in_node(self):
        self.needs("node")
        version = node_version()
        if version < (20, 10):
            self.skipTest(f"Node {version[0]}.{version[1]} has no WebSocket")
        self.reads_and_reconnects("HTTP", "js", options=["--experimental-websocket"] if version < (22, 0) else [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
