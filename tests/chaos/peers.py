"""visiond's peers, except brokers: a faulty network in between, a camera's stream, and readers that stall."""

import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Proxy:
    """Forwards connections to a port of this machine, depending on `mode`.

    "pass"; "cut": closes all and accepts none; "stall": accepts connections and forwards nothing; "slow": half a second later.
    """

    SLOW_S = 0.5

    def __init__(self, address, port):
        self.mode, self.to, self.pairs, self.lock = "pass", port, set(), threading.Lock()
        self.listener = socket.create_server((address, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def set(self, mode):
        """Changes the mode."""
        self.mode = mode
        if mode == "cut":
            with self.lock:
                for pair in self.pairs:
                    for end in pair:
                        self.shut(end)

    @staticmethod
    def shut(end):
        """Shuts down both directions, which wakes threads that wait for it."""
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def accept(self):
        """Accepts connections forever."""
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near):
        """One connection."""
        while self.mode == "stall":
            time.sleep(0.1)
        try:
            if self.mode == "cut":
                raise OSError
            far = socket.create_connection(("127.0.0.1", self.to), 5)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        pair = (near, far)
        with self.lock:
            self.pairs.add(pair)
        other = threading.Thread(target=self.copy, args=(far, near), daemon=True)
        other.start()
        self.copy(near, far)
        other.join()
        with self.lock:
            self.pairs.discard(pair)
        near.close()
        far.close()

    def copy(self, source, target):
        """One direction."""
        try:
            while part := source.recv(1 << 16):
                if self.mode == "slow":
                    time.sleep(self.SLOW_S)
                while self.mode == "stall":
                    time.sleep(0.1)
                target.sendall(part)
        except OSError:
            pass
        self.shut(source)
        self.shut(target)


class Stream:
    """A camera that serves motion JPEG over HTTP, ten pictures per second.

    `mode`: "pass"; "cut": ends the connections and takes none; "stall": sends nothing; "garbage": sends bytes of no meaning.
    """

    FPS = 10

    def __init__(self, address, rng):
        self.mode, self.rng = "pass", rng
        self.listener = socket.create_server((address, 0))
        self.url = f"http://{address}:{self.listener.getsockname()[1]}/camera.mjpeg"
        made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=s=160x120:r=10:d=3", "-f", "image2pipe", "-c:v", "mjpeg", "-"]
        film = subprocess.run(made, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout
        self.pictures = [b"\xff\xd8" + part for part in film.split(b"\xff\xd8")[1:]]
        threading.Thread(target=self.accept, daemon=True).start()

    def set(self, mode):
        """Changes the mode."""
        self.mode = mode

    def accept(self):
        """Accepts connections forever."""
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        """One connection."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"
        try:
            with connection:
                connection.settimeout(30)
                connection.recv(4096)
                connection.sendall(head)
                number = 0
                while self.mode != "cut":
                    time.sleep(1 / self.FPS)
                    if self.mode == "stall":
                        continue
                    picture = self.pictures[number % len(self.pictures)]
                    if self.mode == "garbage":
                        picture = self.rng.randbytes(len(picture))
                    number += 1
                    part = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n"
                    connection.sendall(part % (len(picture), picture))
        except OSError:
            pass


class StalledReaders:
    """Clients that request messages and images, and never read an answer."""

    ASKED = (
        b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"GET /cameras/pattern/stream.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )

    def __init__(self, http, sink, count):
        self.connections = []
        for number in range(count):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(5)
            try:
                connection.connect(str(sink if number % 10 == 0 else http))
                if number % 10:
                    connection.sendall(self.ASKED[number % len(self.ASKED)])
            except OSError:
                # Refused: there are more of them than visiond serves, or it is down.
                connection.close()
                continue
            self.connections.append(connection)

    def close(self):
        """They leave."""
        for connection in self.connections:
            connection.close()


class BusyProcesses:
    """Other programs that want every core, and more."""

    def __init__(self, count):
        self.processes = [
            subprocess.Popen(["sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL) for _ in range(count)
        ]

    def close(self):
        """They end."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


class BrokenPictures:
    """Writes images into a watched folder: whole ones, and with `broken` also broken ones."""

    def __init__(self, folder, rng):
        self.folder, self.rng, self.number = folder, rng, 0
        self.whole = (ROOT / "tests/media/astronaut.png").read_bytes()
        threading.Thread(target=self.feed, daemon=True).start()

    def put(self, content):
        """Like many programs, first under another name."""
        self.number += 1
        path = self.folder / f"{self.number:08}.png"
        path.with_suffix(".part").write_bytes(content)
        os.rename(path.with_suffix(".part"), path)
        (self.folder / f"{self.number - 20:08}.png").unlink(missing_ok=True)

    def feed(self):
        """A whole one every two seconds, forever."""
        while True:
            self.put(self.whole)
            time.sleep(2)

    def broken(self):
        """Cut off, changed in the middle, empty, and no image at all."""
        at = self.rng.randrange(100, len(self.whole))
        self.put(self.whole[:at])
        self.put(self.whole[:at] + self.rng.randbytes(200) + self.whole[at + 200:])
        self.put(b"")
        self.put(b"<html>404</html>")
