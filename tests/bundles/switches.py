#!/usr/bin/env python3
"""Switches ten daemons under load between two versions of a bundle, and counts every frame.

    tests/bundles/switches.py [--visiond PROGRAM] [--daemons 10] [--switches 20]

Each daemon has a store of its own and looks with NanoDet at two cameras: `waits` loses nothing, because its program waits while a frame is
in the mailbox, and so keeps the model busy all the time; `steady` has two frames a second, come what may. Version 2 of the bundle has
another file and another threshold in its card. Each switch is `bundle install --again` or `bundle rollback`, and `reload`; the next
one begins once a frame of the version has arrived. Wants: of `waits` every frame from 0 on in the file, once and in order; of
`steady` none missing but those that the daemon counts as dropped for overload; no camera opened twice; and as many changes of the model, in
the file, as there were switches.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Only turns a hang into a failure.
HANG_S = 600
PICTURE = ROOT / "tests/media/astronaut.png"
CONFIG = """
[engine]
backend = "rten"
threads = 1

[status]
log_interval = "0s"

[http]
listen = ["unix:http.sock"]

[bundles]
directory = "store"

[[model]]
name = "objects"
bundle = "street"

[[camera]]
name = "waits"
[camera.source]
type = "command"
pace = "fastest"
container = "raw"
format = "grey"
width = 320
height = 240
command = ["sh", "-c", "while :; do cat frame.raw; done"]

[[camera]]
name = "steady"
source = { type = "pattern", width = 320, height = 240, fps = 2.0 }

[[sink]]
type = "file"
path = "out.jsonl"
queue = 4096
rotate_bytes = 0
"""


class Bundles:
    """Two versions of NanoDet, made once for all daemons."""

    def __init__(self, visiond, folder):
        self.visiond, self.folder, self.models = visiond, folder, {}
        frame = ["ffmpeg", "-v", "error", "-i", PICTURE, "-vf", "scale=320:240", "-pix_fmt", "gray", "-f", "rawvideo", folder / "frame.raw"]
        subprocess.run(frame, check=True)
        self.say("bundle", "keys", folder / "team", "--no-password")
        original = ROOT / "config/models/nanodet-g-416.onnx"
        card = original.with_suffix(".toml").read_text()
        for version, threshold in ((1, "0.4"), (2, "0.3")):
            model = folder / f"v{version}" / "nanodet.onnx"
            model.parent.mkdir()
            # An unknown field at the end makes another file of the same model.
            model.write_bytes(original.read_bytes() + bytes([0x32, 1, version]))
            changed = re.sub("score_threshold = .*", f"score_threshold = {threshold}", card)
            assert version == 1 or changed != card
            model.with_suffix(".toml").write_text(changed)
            expected = folder / f"v{version}" / "expected.json"
            expected.write_text(self.say("detect", "--json", "--model", model, PICTURE))
            words = ["--name", "street", "--version", version, "-o", self.file(version), "--reference", expected, "--pictures", PICTURE]
            self.say("bundle", "make", model, *words)
            self.say("bundle", "sign", self.file(version), "--key", folder / "team.key")

    def file(self, version):
        return self.folder / f"street-{version}.visiond"

    def say(self, *words):
        done = subprocess.run([self.visiond, *map(str, words)], capture_output=True, text=True, timeout=HANG_S)
        if done.returncode:
            raise RuntimeError(f"visiond {' '.join(map(str, words))}: status {done.returncode}: {done.stderr}")
        return done.stdout


class Daemon:
    def __init__(self, bundles, number):
        self.bundles, self.name = bundles, f"daemon {number}"
        self.folder = bundles.folder / str(number)
        self.folder.mkdir()
        shutil.copy(bundles.folder / "frame.raw", self.folder)
        (self.folder / "visiond.toml").write_text(CONFIG)
        self.took, self.wrong, self.seen, self.last = [], [], 0, None
        self.install(1)
        command = [bundles.visiond, "run", "--summary-json", "summary.json", "visiond.toml"]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)

    def install(self, version, *more):
        key = ("--key", self.bundles.folder / "team.pub", "--store", self.folder / "store")
        self.bundles.say("bundle", "install", self.bundles.file(version), *key, *more)

    def model(self):
        """The model of the newest whole message; reads what is new of the file."""
        out = self.folder / "out.jsonl"
        if out.exists():
            with open(out, "rb") as lines:
                lines.seek(self.seen)
                new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            self.seen += len(whole)
            if whole:
                self.last = json.loads(whole.splitlines()[-1])["model"]["sha256"]
        return self.last

    def wait(self, what, is_so):
        begin = time.monotonic()
        while not is_so():
            if self.process.poll() is not None or time.monotonic() - begin > HANG_S:
                raise RuntimeError(f"no {what}: {(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.05)

    def switch(self, times):
        try:
            self.wait("first frame", self.model)
            for number in range(times):
                before = self.model()
                if number % 2 == 0:
                    self.install(2, "--again")
                else:
                    self.bundles.say("bundle", "rollback", "street", "--store", self.folder / "store")
                begin = time.monotonic()
                self.bundles.say("reload", self.folder / "visiond.toml")
                self.took.append(time.monotonic() - begin)
                self.wait("frame of the other version", lambda: self.model() != before)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.wrong.append(str(error))

    def end(self, times):
        """Ends it, and returns the frames of the cameras and what was dropped."""
        self.process.terminate()
        code = self.process.wait(HANG_S)
        if code:
            self.wrong.append(f"it ended with {code}: {(self.folder / 'log').read_text()[-3000:]}")
            return 0, 0, 0, 0, 0
        summary = {camera["name"]: camera for camera in json.loads((self.folder / "summary.json").read_text())["cameras"]}
        messages = [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        frames = {name: [one["sequence"] for one in messages if one["camera"] == name] for name in summary}
        if frames["waits"] != list(range(len(frames["waits"]))):
            self.wrong.append("frames of waits are missing, twice or out of order")
        steady = frames["steady"]
        dropped = {name: dict(camera["dropped"]) for name, camera in summary.items()}
        overload = dropped["steady"].pop("overload")
        # Those after the last message count as well.
        missing = steady[-1] + 1 - len(steady)
        if steady != sorted(set(steady)) or missing > overload:
            self.wrong.append(f"steady lacks {missing} frames, and {overload} were dropped for overload")
        if any(dropped["steady"].values()) or any(dropped["waits"].values()) or any(camera["restarts"] for camera in summary.values()):
            self.wrong.append(f"dropped for another reason, or opened again: {dropped}")
        models = [one["model"]["sha256"] for one in messages if one["camera"] == "waits"]
        changes = sum(before != after for before, after in zip(models, models[1:]))
        if changes not in (times, times - 1) or len(set(models)) != 2:
            self.wrong.append(f"{changes} changes of the model for {times} switches")
        return len(frames["waits"]), len(steady), missing, overload, changes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--daemons", type=int, default=10)
    parser.add_argument("--switches", type=int, default=20, help="of each daemon")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="visiond-switches-") as folder:
        bundles = Bundles(os.path.abspath(args.visiond), Path(folder))
        daemons = []
        try:
            for number in range(args.daemons):
                daemons.append(Daemon(bundles, number))
            begin = time.monotonic()
            threads = [threading.Thread(target=daemon.switch, args=(args.switches,)) for daemon in daemons]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - begin
            rows = [daemon.end(args.switches) for daemon in daemons]
        finally:
            for daemon in daemons:
                daemon.process.kill()
                daemon.process.wait()
    took = sorted(one for daemon in daemons for one in daemon.took)
    print(f"{len(took)} switches of {args.daemons} daemons in {seconds:.0f} s; a reload took {statistics.median(took):.2f} s, at most {took[-1]:.2f} s")
    waits, steady, missing, overload, changes = (sum(column) for column in zip(*rows))
    print(f"waits: {waits} frames; steady: {steady} frames, {missing} missing, {overload} dropped for overload; {changes} changes of the model")
    wrong = [f"{daemon.name}: {sentence}" for daemon in daemons for sentence in daemon.wrong]
    print("\n".join(wrong) or "no frame lost by a switch")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
