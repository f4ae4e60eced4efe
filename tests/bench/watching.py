"""A daemon in its own folder and readers of its streams, for the benchmarks beside it. Standard library only."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD = """
[engine]
backend = "rten"
threads = 1
[http]
listen = ["unix:{dir}/http.sock"]
max_connections = 2000
[[model]]
name = "tiny"
path = "{root}/tests/vm/tiny.onnx"
[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"""
CAMERA = """
[[camera]]
name = "cam{n}"
model = "tiny"
source = {{ type = "pattern", width = {width}, height = {height}, fps = {fps} }}
"""

# The largest share of the CPU time that a virtual machine's host may take during a measurement: it affects the 99th percentile.
MOST_STOLEN = 0.0025
ATTEMPTS = 20


class Daemon:
    """`visiond run` with so many cameras of test pattern, a network that costs next to nothing, and a file of messages."""

    def __init__(self, visiond, cameras=1, fps=30, width=320, height=240, more=""):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        text = HEAD + "".join(CAMERA.format(n=n, width=width, height=height, fps=fps) for n in range(cameras)) + more
        config = self.path / "visiond.toml"
        config.write_text(text.replace("{dir}", str(self.path)).replace("{root}", str(ROOT)))
        self.log = open(self.path / "log", "w+")
        self.process = subprocess.Popen([visiond, "run", config], stdin=subprocess.DEVNULL, stderr=self.log)
        until = time.monotonic() + 30
        while not (self.path / "out.jsonl").exists() or not self.messages():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"visiond does not run:\n{(self.path / 'log').read_text()}")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def messages(self, since=0):
        """The messages written from this offset of the file on."""
        with open(self.path / "out.jsonl", "rb") as file:
            file.seek(since)
            whole, _, _ = file.read().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]

    def offset(self):
        """Where the next message will be written."""
        return (self.path / "out.jsonl").stat().st_size

    def connect(self, receive_bytes=None):
        """A connection to its HTTP socket."""
        connection = socket.socket(socket.AF_UNIX)
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect(str(self.path / "http.sock"))
        return connection

    def ask(self, path, headers=""):
        """A connection on which `path` was requested; the answer's head has been read."""
        connection = self.connect()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                raise SystemExit(f"{path}: no answer")
            head += byte
        if head.split()[1] not in (b"101", b"200"):
            raise SystemExit(f"{path}: {head.decode()}")
        return connection

    def web_socket(self, path="/api/v1/stream"):
        """A WebSocket, of which nothing has been read yet."""
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        return self.ask(path, upgrade + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")

    def processor_seconds(self):
        """The process's CPU time and memory so far."""
        fields = (pathlib.Path("/proc") / str(self.process.pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self):
        """Its memory now."""
        pages = int((pathlib.Path("/proc") / str(self.process.pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def texts(buffer):
    """Takes the texts of whole WebSocket frames out of `buffer`."""
    found = []
    while len(buffer) >= 2:
        length, start = buffer[1], 2
        if length == 126:
            length, start = int.from_bytes(buffer[2:4], "big"), 4
        elif length == 127:
            length, start = int.from_bytes(buffer[2:10], "big"), 10
        if len(buffer) < start + length:
            break
        if buffer[0] == 0x81:
            found.append(bytes(buffer[start : start + length]))
        del buffer[: start + length]
    return found


def quantile(values, share):
    """The value that this share of the samples does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def stolen_seconds():
    """The CPU time that the host took from this virtual machine (steal), see proc_stat(5)."""
    return int(pathlib.Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def undisturbed(seconds, measure):
    """The result of `measure`, which takes `seconds`, from a run that the host did not disturb, and the number of disturbed
    runs before it."""
    for disturbed in range(ATTEMPTS):
        before = stolen_seconds()
        found = measure()
        if stolen_seconds() - before <= MOST_STOLEN * seconds * os.cpu_count():
            return found, disturbed
    raise SystemExit(f"the host of this machine was in the way {ATTEMPTS} times in a row: try again when it is idle")
