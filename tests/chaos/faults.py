"""The faults: what each does to a daemon and its surroundings, and how it ends."""

import ctypes
import errno
import http.client
import mmap
import os
import pathlib
import signal
import time

from peers import BusyProcesses, StalledReaders


class Control(ctypes.Structure):
    """What `preload.c` reads."""

    _fields_ = [
        ("clock_offset_s", ctypes.c_int64),
        ("write_error", ctypes.c_int32),
        ("sync_error", ctypes.c_int32),
        ("path", ctypes.c_char * 64),
    ]

    @classmethod
    def at(cls, path):
        """In a file, which visiond maps as well."""
        path.write_bytes(bytes(ctypes.sizeof(cls)))
        with open(path, "r+b") as file:
            return cls.from_buffer(mmap.mmap(file.fileno(), 0))


class Fault:
    """A fault, from `begin` to `end`."""

    # How long it lasts, in seconds; None: it is over at once.
    lasts = (2, 20)
    # Faults with the same word never last at the same time.
    excludes = None
    # How often it is drawn, compared to others.
    weight = 1.0

    def __init__(self, world, rng):
        self.world, self.rng = world, rng

    @staticmethod
    def missing(_world):
        """What it lacks on this machine, or None."""
        return None

    def begin(self):
        """Starts it; returns what to print beside its name."""

    def end(self):
        """It is over."""


class BrokerFault(Fault):
    """One of the brokers."""

    excludes = "broker"

    def begin(self):
        self.kind = self.rng.choice(sorted(self.world.brokers))
        self.broker = self.world.brokers[self.kind]
        self.strike()
        return self.kind

    def strike(self):
        """What happens to the broker."""


class BrokerKilled(BrokerFault):
    """Killed, and started again with its data on disk. Meanwhile visiond's status must not call it connected."""

    lasts = (1, 25)

    def strike(self):
        self.broker.kill()
        self.at = time.monotonic()

    def end(self):
        status = self.world.daemon.status()
        if status and status["uptime_s"] > 20 and time.monotonic() - self.at > 15:
            sink = next(sink for sink in status["sinks"] if sink["kind"] == self.kind)
            if sink["connected"]:
                self.world.wrong.append(f"status calls {self.kind} connected 15 s after its broker was killed")
        self.broker.start()


class BrokerPaused(BrokerFault):
    """It accepts connections and does not answer."""

    def strike(self):
        self.broker.process.send_signal(signal.SIGSTOP)

    def end(self):
        self.broker.process.send_signal(signal.SIGCONT)


class ProxyFault(BrokerFault):
    """The way to a broker."""

    excludes = "proxy"
    mode = None

    def strike(self):
        self.world.proxies[self.kind].set(self.mode)

    def end(self):
        self.world.proxies[self.kind].set("pass")


class ConnectionsCut(ProxyFault):
    """Every connection is reset, and none is accepted."""

    mode = "cut"


class ConnectionsStalled(ProxyFault):
    """Connections stay, and nothing passes."""

    mode = "stall"


class ConnectionsSlow(ProxyFault):
    """All is half a second late."""

    mode = "slow"


class NetworkFault(Fault):
    """The network of visiond's own namespace."""

    excludes = "network"

    @staticmethod
    def missing(world):
        return None if world.network else "network namespaces"


class PacketsLost(NetworkFault):
    """Answers to visiond vanish on their way."""

    def begin(self):
        self.world.network.lose_packets(True)

    def end(self):
        self.world.network.lose_packets(False)


class CableUnplugged(NetworkFault):
    """The link is down."""

    def begin(self):
        self.world.network.link(False)

    def end(self):
        self.world.network.link(True)


class DiskFull(Fault):
    """The disk with spools, messages and images is full."""

    excludes = "disk"

    @staticmethod
    def missing(world):
        return None if world.disk_is_small else "a mount namespace"

    def begin(self):
        self.filler = self.world.folder / "disk/filler"
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def end(self):
        self.filler.unlink()


class DiskFault(Fault):
    """Files of one kind fail."""

    excludes = "disk"
    field = None

    @staticmethod
    def missing(world):
        return None if world.control else "a C compiler"

    def begin(self):
        path = self.rng.choice(["/spool-mqtt/", "/spool-nats/", "/detections.jsonl", "/annotated/", "/disk/"])
        self.world.control.path = path.encode()
        setattr(self.world.control, self.field, errno.EIO)
        return path

    def end(self):
        setattr(self.world.control, self.field, 0)


class WritesFail(DiskFault):
    """EIO for each write."""

    field = "write_error"


class SyncsFail(DiskFault):
    """EIO for each sync."""

    field = "sync_error"


class ClockJumps(Fault):
    """The wall clock is off by hours, then right again."""

    @staticmethod
    def missing(world):
        return None if world.control else "a C compiler"

    def begin(self):
        hours = self.rng.choice([-1, 1]) * self.rng.uniform(0.1, 30)
        self.world.control.clock_offset_s = int(hours * 3600)
        return f"by {hours:+.1f} h"

    def end(self):
        self.world.control.clock_offset_s = 0


class ChildKilled(Fault):
    """ffmpeg or a command dies."""

    lasts = None

    def begin(self):
        children = self.world.daemon.children()
        if children:
            kill(self.rng.choice(children), signal.SIGKILL)


class ChildPaused(Fault):
    """ffmpeg or a command hangs."""

    def begin(self):
        children = self.world.daemon.children()
        self.child = self.rng.choice(children) if children else None
        kill(self.child, signal.SIGSTOP)

    def end(self):
        kill(self.child, signal.SIGCONT)


def kill(pid, number):
    """Sends a signal to a process that may be gone."""
    try:
        if pid:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


class DaemonKilled(Fault):
    """visiond itself is killed, as in a power cut."""

    lasts = None
    # Growth shows in lives that last.
    weight = 0.25

    def begin(self):
        self.world.daemon.kill()


class DaemonPaused(Fault):
    """visiond itself hangs, as on a suspended machine."""

    lasts = (1, 12)

    def begin(self):
        self.world.daemon.pause()

    def end(self):
        self.world.daemon.go_on()


class MemoryShort(Fault):
    """visiond may take little more memory than it has."""

    @staticmethod
    def missing(world):
        return None if world.memory else "a memory cgroup"

    def begin(self):
        return f"{self.world.memory.limit() >> 20} MiB"

    def end(self):
        self.world.memory.unlimited()


class ReadersStall(Fault):
    """500 clients that send requests and never read."""

    def begin(self):
        self.readers = StalledReaders(self.world.folder / "http.sock", self.world.folder / "detections.sock", 500)
        return f"{len(self.readers.connections)} of 500 let in"

    def end(self):
        self.readers.close()


class CoresBusy(Fault):
    """Other programs use the processor."""

    lasts = (2, 8)

    def begin(self):
        self.programs = BusyProcesses(2 * (os.cpu_count() or 1))

    def end(self):
        self.programs.close()


class StreamFault(Fault):
    """The network camera."""

    excludes = "stream"

    def begin(self):
        mode = self.rng.choice(["cut", "stall", "garbage"])
        self.world.stream.set(mode)
        return mode

    def end(self):
        self.world.stream.set("pass")


class PicturesBroken(Fault):
    """Files that are not images, in the watched folder."""

    lasts = None

    def begin(self):
        self.world.pictures.broken()


class Reload(Fault):
    """Another threshold: must be accepted."""

    lasts = None
    excludes = "reload"

    def begin(self):
        self.world.daemon.write_config(score=self.rng.choice([0.55, 0.6, 0.65]))
        return self.ask(200)

    def ask(self, wanted):
        """Reloads, and compares the answer's status."""
        if not self.world.daemon.ready:
            return "while it starts"
        try:
            code, body = self.world.daemon.ask("POST", "/api/v1/reload")
        except (OSError, http.client.HTTPException) as error:
            # visiond is paused or killed, or has too many clients.
            return f"no answer: {error}"
        if code == wanted or code == 503:
            return f"{code}"
        self.world.wrong.append(f"a reload was answered with {code}, not {wanted}: {body.decode(errors='replace')}")
        return f"{code}"


class WrongReload(Reload):
    """A file that is not a model: must be rejected, and change nothing."""

    def begin(self):
        model = self.world.folder / "wrong.onnx"
        model.write_bytes(self.rng.randbytes(2000))
        self.world.daemon.write_config(model=model)
        try:
            return self.ask(409)
        finally:
            self.world.daemon.write_config()


FAULTS = [
    BrokerKilled, BrokerPaused, ConnectionsCut, ConnectionsStalled, ConnectionsSlow, PacketsLost, CableUnplugged, DiskFull,
    WritesFail, SyncsFail, ClockJumps, ChildKilled, ChildPaused, DaemonKilled, DaemonPaused, MemoryShort, ReadersStall, CoresBusy,
    StreamFault, PicturesBroken, Reload, WrongReload,
]  # fmt: skip


class MemoryGroup:
    """A cgroup of visiond's own with the memory controller, of either version."""

    ROOM = 96 << 20

    def __init__(self, name):
        v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        base = "/sys/fs/cgroup" if v2 else "/sys/fs/cgroup/memory"
        self.path = pathlib.Path(base, name)
        self.path.mkdir()
        self.key = "memory.max" if v2 else "memory.limit_in_bytes"
        self.none = "max" if v2 else "-1"
        self.used = "memory.current" if v2 else "memory.usage_in_bytes"
        if not (self.path / self.key).exists():
            self.path.rmdir()
            raise OSError("no memory controller")

    def limit(self):
        """Leaves it a little more than it uses; returns the limit in bytes."""
        limit = int((self.path / self.used).read_text()) + self.ROOM
        (self.path / self.key).write_text(str(limit))
        return limit

    def unlimited(self):
        """Ends that."""
        (self.path / self.key).write_text(self.none)

    def close(self):
        """Once nothing runs in it."""
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)
