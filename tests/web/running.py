"""A visiond that serves HTTP on a free loopback port, in a folder of its own; what is said to it and what it says."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("VISIOND_BIN", str(ROOT / "target/release/visiond"))
NETWORK = ROOT / "tests/vm/tiny.onnx"

START = f"""
[engine]
backend = "rten"
threads = 1

[[model]]
name = "tiny"
path = "{NETWORK}"
"""


# Sockets that hold the ports of `free_port`: the kernel gives these to no other program, and a server may listen beside them.
HELD = []


def free_port():
    """A port that nothing listens on, until this program ends. A server there has to set SO_REUSEADDR, as nearly all do."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    HELD.append(held)
    return held.getsockname()[1]


def pattern(name, fps=30, width=640, height=360):
    """A camera that shows the moving bars, which the tiny network knows."""
    return f"""
[[camera]]
name = "{name}"
[camera.source]
type = "pattern"
width = {width}
height = {height}
fps = {fps}
"""


def absent(name):
    """A camera that is not there."""
    return f"""
[[camera]]
name = "{name}"
[camera.source]
type = "v4l2"
device = "/dev/v4l/by-id/usb-nothing-video-index0"
"""


class Proxy:
    """A reverse proxy that serves the daemon at `port` below `path`, as nginx does by `location PATH { proxy_pass http://DAEMON/; }`.

    Hands the Host header on and rewrites nothing in answers. `elsewhere` has the requests that were outside of the path.
    """

    def __init__(self, path, port):
        self.path, self.upstream, self.elsewhere = path, port, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}{path}"
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        # Wakes the thread that accepts.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        """One request, whose connection ends after it unless it becomes a WebSocket."""
        with client:
            data = b""
            while b"\r\n\r\n" not in data:
                more = client.recv(65536)
                if not more:
                    return
                data += more
            head, body = data.split(b"\r\n\r\n", 1)
            line, *headers = head.decode("latin-1").split("\r\n")
            method, target, version = line.split(" ")
            if not target.startswith(self.path):
                self.elsewhere.append(target)
                client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if not any(header.lower().startswith("upgrade:") for header in headers):
                headers = [header for header in headers if not header.lower().startswith("connection:")] + ["Connection: close"]
            request = "\r\n".join([f"{method} /{target.removeprefix(self.path)} {version}", *headers]) + "\r\n\r\n"
            with socket.create_connection(("127.0.0.1", self.upstream)) as upstream:
                upstream.sendall(request.encode("latin-1") + body)
                threading.Thread(target=self.relay, args=(client, upstream), daemon=True).start()
                self.relay(upstream, client)

    @staticmethod
    def relay(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Daemon:
    """`visiond run` from `with` on. `{{dir}}` in the configuration is its folder."""

    def __init__(self, config, http="", start=START):
        self.folder = tempfile.TemporaryDirectory(prefix="visiond-web-")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = f'[http]\nlisten = ["127.0.0.1:{self.port}"]\n{http}\n'
        self.start_of_config = start
        self.config = self.path("visiond.toml")
        self.write(config)
        self.process = None

    def path(self, name):
        """A path in the folder."""
        return pathlib.Path(self.folder.name) / name

    def write(self, config):
        """Puts a configuration in place."""
        self.config.write_text(self.http + self.start_of_config + config.replace("{dir}", self.folder.name))

    def start(self):
        """Runs it and waits until it answers."""
        with open(self.path("log"), "ab") as log:
            command = [BINARY, "run", str(self.config)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        for _ in range(12_000):
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + "/healthz", timeout=5):
                    return self
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"visiond does not answer:\n{self.log()}")

    def log(self):
        """What it said."""
        return self.path("log").read_text(errors="replace")

    def kill(self):
        """As a loss of power does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        killed = self.process.poll() == -signal.SIGKILL
        self.process.terminate()
        try:
            self.process.wait(600)
        except subprocess.TimeoutExpired:
            self.kill()
        log, status = self.log(), self.process.returncode
        self.folder.cleanup()
        assert killed or status == 0, f"visiond ended with {status} after SIGTERM:\n{log}"
        assert "panicked" not in log, log
