"""The guarantees: while nothing is wrong, and at the end."""

import http.client
import json
import subprocess
import time

from daemon import MARKED

# How much more a process may use than when it was first idle and healthy.
MEMORY_GROWTH, THREADS_GROWTH, DESCRIPTORS_GROWTH = 64 << 20, 4, 8
# Frames between their capture and their message.
IN_FLIGHT = 8


def ill(status, before):
    """Why a daemon is not well yet, or None; `before` is an earlier state of the same life."""
    if status is None:
        return "no status"
    if not status["ready"]:
        return f"not ready: {status['not_ready']}"
    if before is None:
        return "just started"
    published = {camera["name"]: camera["published"] for camera in before["cameras"]}
    for camera in status["cameras"]:
        if camera["reason"]:
            return f"camera {camera['name']}: {camera['phase']}: {camera['reason']}"
        if camera["published"] <= published.get(camera["name"], 0):
            return f"camera {camera['name']}: no message since the last look"
    for sink in status["sinks"]:
        if sink["outage"] or sink["connected"] is False:
            return f"sink {sink['name']}: {sink['outage'] or 'not connected'}"
        spool = sink.get("spool")
        if spool and spool["outage"]:
            return f"spool of {sink['name']}: {spool['outage']}"
        if spool and spool["records"] > 100:
            return f"spool of {sink['name']}: {spool['records']} messages wait"
        if sink["readers"]:
            return f"sink {sink['name']}: {sink['readers']} readers are counted, and none is there"
    if status["http"]["connections"] > 1:
        return f"http: {status['http']['connections']} connections are counted, and one is there"
    return None


def shows_marker(image, kind="image2pipe"):
    """Whether an image has a pixel of about the marker's colour. `kind` is ffmpeg's name of the input's format."""
    decode = ["ffmpeg", "-v", "quiet", "-f", kind, "-i", "-" if kind == "image2pipe" else image, "-frames:v", "1", "-f", "rawvideo",
              "-pix_fmt", "rgb24", "-"]
    given = {"input": image} if kind == "image2pipe" else {"stdin": subprocess.DEVNULL}
    pixels = subprocess.run(decode, stdout=subprocess.PIPE, check=False, **given).stdout
    return any(red > 150 and green < 100 and blue > 150 for red, green, blue in zip(*[iter(pixels)] * 3))


def unmasked(daemon, disk):
    """Yields a sentence for each output that shows what the privacy mask of the camera "command" covers."""
    if not shows_marker(MARKED, "lavfi"):
        yield "the marker cannot be found where nothing covers it"
    for path in ("/cameras/command/snapshot.jpg", "/cameras/command/snapshot.jpg?overlay=1"):
        try:
            code, image = daemon.ask("GET", path)
        except (OSError, http.client.HTTPException):
            continue
        if code == 200 and shows_marker(image):
            yield f"{path} shows what a privacy mask covers"
    for path in sorted(disk.glob("masked/*.jpg")):
        try:
            image = path.read_bytes()
        except OSError:
            # Another one took its place.
            continue
        if shows_marker(image):
            yield f"{path} shows what a privacy mask covers"
    for path in sorted(disk.glob("detections.jsonl*")):
        for line in path.read_bytes().splitlines():
            if b'"camera":"command"' in line and b'"label":"magenta"' in line:
                yield f"{path} has a detection below a privacy mask"
                break


class Growth:
    """Compares each state at rest with the first of the same life."""

    def __init__(self, memory=MEMORY_GROWTH, threads=THREADS_GROWTH, descriptors=DESCRIPTORS_GROWTH):
        self.limits = {"resident_bytes": memory, "threads": threads, "descriptors": descriptors}
        self.pid = self.first = None
        self.most = {}

    def check(self, status):
        """Yields a sentence for each resource that grew too much."""
        now = status["process"]
        if now["pid"] != self.pid:
            self.pid, self.first = now["pid"], now
        wrong = []
        for key, most in self.limits.items():
            grown = now[key] - self.first[key]
            self.most[key] = max(self.most.get(key, 0), grown)
            if grown > most:
                wrong.append(f"{key} grew from {self.first[key]} to {now[key]}")
        return wrong


def uncounted(status):
    """Captured frames that are neither published, nor dropped by a cause, nor in flight.

    A source also counts as dropped what it never captured: files that are not images, frames that it was too late for.
    """
    wrong = []
    for camera in status["cameras"]:
        missing = camera["captured"] - camera["published"] - sum(camera["dropped"].values())
        if missing > IN_FLIGHT or camera["published"] > camera["captured"]:
            wrong.append(f"camera {camera['name']}: {missing} frames are neither published nor dropped: {camera['captured']} "
                         f"captured, {camera['published']} published, dropped {camera['dropped']}")
    return wrong


def wait_until_well(daemon, patience_s, wrong):
    """The daemon's state once it is well, or None after `patience_s`, with the reason in `wrong`."""
    until, before, reason = time.monotonic() + patience_s, None, None
    while time.monotonic() < until:
        status = daemon.status()
        if before and status and status["process"]["pid"] != before["process"]["pid"]:
            before = None
        reason = ill(status, before)
        if reason is None:
            return status
        before = before or status
        time.sleep(1)
    wrong.append(f"not well {patience_s} s after the last fault: {reason}")
    return None


def files(folder, cuts):
    """The faults in the file sink's files; `cuts`: how often a line may have been cut off."""
    seen, broken, wrong = set(), 0, []
    paths = sorted(folder.glob("detections.jsonl*"), reverse=True)
    for path in paths:
        for line in path.read_bytes().split(b"\n"):
            if not line:
                continue
            try:
                message = json.loads(line)["id"]
            except ValueError:
                broken += 1
                continue
            if message in seen:
                wrong.append(f"file: {message} is there twice")
            seen.add(message)
    if broken > cuts:
        wrong.append(f"file: {broken} broken lines, and at most {cuts} could have been cut off")
    if not seen:
        wrong.append("file: no message")
    return wrong


def logs(daemon):
    """Panics."""
    wrong = []
    for life in range(1, daemon.lives + 1):
        with open(daemon.log(life), "rb") as log:
            wrong += [f"life {life}: {line.decode(errors='replace').strip()}" for line in log if b"panicked at" in line]
    return wrong
