"""visiond under supervision: its configuration with every kind of source and sink, its lives, its notifications, its state."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# systemd would kill a daemon that is silent for this long.
WATCHDOG_S = 15

# What the camera "command" sees: grey, and a marker that its privacy mask covers. The model finds its colour.
MARKED = "color=c=gray:s=160x120:r=5,drawbox=x=80:y=0:w=20:h=120:color=0xff00ff:t=fill"

CONFIG = """
[device]
name = "chaos"
[log]
level = "trace"
target = "stderr"
[http]
listen = ["unix:{folder}/http.sock"]
[engine]
backend = "rten"
threads = 1
[[model]]
name = "tiny"
path = "{model}"
score_threshold = {score}

[[camera]]
name = "pattern"
[camera.source]
type = "pattern"
width = 160
height = 120
fps = 10
[camera.annotate]
directory = "{folder}/disk/annotated"
every = 20
keep = 20

[[camera]]
name = "film"
[camera.source]
type = "video"
url = "{folder}/film.mkv"
repeat = true
timeout = "5 s"

[[camera]]
name = "stream"
[camera.source]
type = "video"
url = "{stream}"
timeout = "5 s"

[[camera]]
name = "command"
[camera.source]
type = "command"
command = ["ffmpeg", "-v", "error", "-re", "-f", "lavfi", "-i", "{marked}", "-pix_fmt", "yuv420p", "-f", "yuv4mpegpipe", "-"]
timeout = "5 s"
# Over the marker, which no output may show.
[[camera.privacy]]
polygon = [[0.5, 0.0], [0.625, 0.0], [0.625, 1.0], [0.5, 1.0]]
[camera.annotate]
directory = "{folder}/disk/masked"
every = 5
keep = 20

[[camera]]
name = "pictures"
[camera.source]
type = "images"
path = "{folder}/pictures"
watch = true

[[sink]]
type = "file"
path = "{folder}/disk/detections.jsonl"
rotate_bytes = "256 KiB"
rotate_keep = 2
[[sink]]
type = "unix"
path = "{folder}/detections.sock"
max_readers = 128
reader_buffer_bytes = "64 KiB"
[[sink]]
type = "mqtt"
url = "mqtt://{address}:{mqtt}"
keep_alive = "5 s"
durable = true
spool_directory = "{folder}/disk/spool-mqtt"
[[sink]]
type = "nats"
url = ["nats://{address}:{nats}"]
stream = "visiond"
create_stream = true
durable = true
spool_directory = "{folder}/disk/spool-nats"
"""


class Daemon:
    """`visiond run`, started again after each kill, as systemd does."""

    def __init__(self, binary, folder, model, places, prefix=(), preload=None, cgroup=None, template=CONFIG):
        self.binary, self.folder, self.model, self.places = binary, folder, model, places
        self.prefix, self.preload, self.cgroup = list(prefix), preload, cgroup
        self.template = template
        self.config, self.lives, self.process, self.ready = folder / "visiond.toml", 0, None, False
        # Violations of what holds at any time.
        self.wrong = []
        self.lock = threading.RLock()
        self.write_config()
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(folder / "notify.sock"))
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.supervise, daemon=True).start()

    def write_config(self, score=0.6, model=None):
        """Writes a configuration for the next reload."""
        values = {**self.places, "folder": self.folder, "marked": MARKED, "model": model or self.model, "score": score}
        self.config.write_text(re.sub(r"\{(\w+)\}", lambda key: str(values[key[1]]), self.template))

    def start(self):
        """Runs it."""
        with self.lock:
            self.lives += 1
            environment = {
                **os.environ,
                "NOTIFY_SOCKET": str(self.folder / "notify.sock"),
                "WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000),
            }
            if self.preload:
                environment.update(LD_PRELOAD=str(self.preload), CHAOS_CONTROL=str(self.folder / "control"))
            self.ready, self.pinged = False, time.monotonic()
            with open(self.log(self.lives), "wb") as log:
                self.process = subprocess.Popen(
                    [*self.prefix, self.binary, "run", str(self.config)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    preexec_fn=self.enter_cgroup if self.cgroup else None,
                )

    def enter_cgroup(self):
        """For the child, before it is visiond."""
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def log(self, life):
        """Where a life's log is."""
        return self.folder / f"visiond-{life}.log"

    def kill(self):
        """SIGKILL, and started again."""
        with self.lock:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.start()

    def pause(self):
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """SIGCONT; the watchdog's time starts again."""
        self.pinged = time.monotonic()
        self.process.send_signal(signal.SIGCONT)

    def children(self):
        """The programs that it runs."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                # After the name, which may have anything in it: the state, and the parent.
                parent = path.read_text(errors="replace").rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == self.process.pid:
                found.append(int(path.parent.name))
        return sorted(found)

    def listen(self):
        """Takes its notifications, as systemd does."""
        while True:
            for line in self.notified.recv(1 << 16).decode().splitlines():
                if line == "WATCHDOG=1":
                    self.pinged = time.monotonic()
                elif line == "READY=1":
                    self.ready = True

    def paused(self):
        """Whether somebody stopped it."""
        try:
            return " (stopped)" in pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except FileNotFoundError:
            return False

    def supervise(self):
        """Notices that it ended by itself, or that its watchdog would have ended it."""
        while True:
            time.sleep(0.2)
            with self.lock:
                if not self.process:
                    continue
                if self.process.poll() is not None:
                    self.wrong.append(f"visiond ended by itself with {self.process.returncode}, see {self.log(self.lives)}")
                    self.start()
                elif self.paused():
                    self.pinged = time.monotonic()
                elif self.ready and time.monotonic() - self.pinged > WATCHDOG_S:
                    self.wrong.append(f"the watchdog was not fed for {WATCHDOG_S} s, see {self.log(self.lives)}")
                    self.pinged = time.monotonic()

    def stop(self, patience_s=30):
        """SIGTERM; its exit status, and the seconds that it took."""
        with self.lock:
            process, self.process = self.process, None
        began = time.monotonic()
        process.terminate()
        try:
            return process.wait(patience_s), time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(), time.monotonic() - began

    def ask(self, method, path):
        """An answer's status and body, by its Unix socket."""
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(10)
        try:
            connection.sock.connect(str(self.folder / "http.sock"))
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self):
        """Its state, or None where it does not answer."""
        try:
            code, body = self.ask("GET", "/api/v1/status")
            return json.loads(body) if code == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
