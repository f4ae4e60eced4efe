"""Brokers for benches: mosquitto and nats-server on free loopback ports, which can be killed and started again on the same port."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time


# Every kind of sink, the brokers' durable. For str.format: a folder, and the brokers' addresses.
ALL_SINKS = """
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
[[sink]]
type = "unix"
path = "{folder}/out.sock"
[[sink]]
type = "mqtt"
url = "{mqtt}"
durable = true
spool_directory = "{folder}/spool-mqtt"
home_assistant = true
[[sink]]
type = "nats"
url = ["{nats}"]
stream = "VISIOND"
create_stream = true
durable = true
spool_directory = "{folder}/spool-nats"
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


def program(name):
    """The path of a broker's program: from PATH, or where tests/setup and Debian put it."""
    cache = os.environ.get("VISIOND_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'}/visiond"
    found = shutil.which(name, path=f"{cache}/bin:{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if not found:
        raise SystemExit(f"cannot find {name}; run tests/setup --test, which fetches it")
    return found


def as_another_machine():
    """For a child process: it runs only while the CPU is idle, as if it were on another machine."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Broker:
    """A program that listens on its own port from `with` on.

    It would normally run on another machine, so it has low priority, unless the bench measures no time.
    """

    gives_way = True

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.process = None

    def command(self):
        """What is run."""
        raise NotImplementedError

    def start(self):
        """Runs it and waits until it accepts connections."""
        log = open(self.folder / f"{type(self).__name__.lower()}.log", "ab")
        self.process = subprocess.Popen(
            self.command(), stdout=log, stderr=log, preexec_fn=as_another_machine if self.gives_way else None
        )
        log.close()
        for _ in range(2400):
            if self.process.poll() is not None:
                raise SystemExit(f"{self.command()[0]} does not start, see {self.folder}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{self.command()[0]} does not accept connections after 120 s")

    def kill(self):
        """SIGKILL, as in a power cut."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()


class Mosquitto(Broker):
    """An MQTT broker without passwords."""

    @property
    def url(self):
        """For visiond's `url`."""
        return f"mqtt://127.0.0.1:{self.port}"

    def command(self):
        config = self.folder / "mosquitto.conf"
        config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {self.folder}/\nautosave_interval 1\nautosave_on_changes true\n"
            f"max_queued_messages 0\n" + ("user root\n" if os.getuid() == 0 else "")
        )
        return [program("mosquitto"), "-c", str(config)]


class Nats(Broker):
    """A NATS server with JetStream, which stores messages that it has acknowledged."""

    @property
    def url(self):
        """For visiond's `url`."""
        return f"nats://127.0.0.1:{self.port}"

    def command(self):
        return [
            program("nats-server"),
            "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "jetstream"),
        ]
