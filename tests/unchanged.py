"""Remembers with which inputs a step of tests/steps.py passed, so that ./test --all can skip it while they are the same.

The inputs are the contents of the files that a step names, and of files whose paths these contain; its command; the versions of the
compiler, of Python, of the system's packages; and what tests/setup has fetched. Only a run in which nothing failed or was skipped counts.
"""

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
from pathlib import Path

# A file or folder of the repository, as scripts and tests write it.
NAMED = re.compile(rb"\b(?:config|docs|tests)/[\w./-]*\w")
# Downloads of tests/setup. The steps themselves make the guests and the bare systems.
FETCHED = ("bin", "cross", "fuzz", "lib", "media", "tensorrt", "web")
# Environment variables that affect builds or tests.
VARIABLES = re.compile(r"VISIOND_|CARGO|RUST|ORT_|CC$|CXX$|CFLAGS|CXXFLAGS")


def printed(*command, root=None):
    """A command's output, or nothing if it fails."""
    try:
        return subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""


def surroundings(cache):
    """Everything outside the repository that a result depends on, as text."""
    lines = [printed("rustc", "-vV").decode(), platform.python_version(), platform.release()]
    lines.append(hashlib.sha256(printed("dpkg-query", "--show")).hexdigest())
    for folder in FETCHED:
        for pattern in ("*", "*/*"):
            for path in sorted((cache / folder).glob(pattern)):
                if "__pycache__" not in path.parts:
                    lines.append(f"{path.relative_to(cache)} {path.stat().st_size if path.is_file() else ''}")
    return "\n".join(lines)


class Passes:
    """The steps that have passed, in a folder with a file for each."""

    def __init__(self, root, folder, outside):
        self.root, self.folder, self.outside = root, folder, outside
        self.hashes = {}

    def files(self, *paths):
        """Files that git knows or does not ignore, below these paths."""
        listed = printed("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths, root=self.root)
        return sorted({name for name in listed.decode(errors="surrogateescape").split("\0") if name})

    def hash(self, path):
        """The hash of a file now; cached while its size and modification time are the same."""
        if path.is_symlink():
            return os.readlink(path)
        if not path.is_file():
            return "none"
        state = path.stat()
        key = (path, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if key not in self.hashes:
            self.hashes[key] = hashlib.sha256(path.read_bytes()).hexdigest() + (" x" if state.st_mode & 0o111 else "")
        return self.hashes[key]

    def names(self, step):
        """The files that a step depends on: its inputs, and those whose paths they contain."""
        names = self.files(*step.inputs) if step.inputs else []
        if names and step.named:
            texts = (self.root / name for name in self.files(*step.named))
            found = {path for text in texts if text.is_file() for path in NAMED.findall(text.read_bytes())}
            names = sorted({*names, *self.files(*(f":(literal){path.decode()}" for path in sorted(found)))})
        return names

    def digest(self, step):
        """The hash of all inputs of a step, or None if it always runs."""
        names = self.names(step)
        if not names:
            return None
        variables = sorted(f"{key}={value}" for key, value in {**os.environ, **step.env}.items() if VARIABLES.match(key))
        command = step.title if callable(step.command) else shlex.join(map(str, step.command))
        lines = [self.outside, command, *variables, *(f"{name} {self.hash(self.root / name)}" for name in names)]
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()

    def outputs(self, step):
        """The hashes of a step's outputs, by name."""
        paths = sorted(path for pattern in step.outputs for path in self.root.glob(pattern))
        return {str(path.relative_to(self.root)): self.hash(path) for path in paths}

    def unchanged_since(self, step):
        """The commit at which a step passed with the same inputs, or None if it has to run."""
        try:
            before = json.loads((self.folder / f"{step.name}.json").read_text())
        except (OSError, ValueError):
            return None
        digest = self.digest(step)
        same = digest is not None and before.get("inputs") == digest and before.get("outputs") == self.outputs(step)
        return before.get("commit") if same else None

    def note(self, step, digest):
        """Keeps the result of a step that ran; `digest` is that of its inputs when it began."""
        file = self.folder / f"{step.name}.json"
        failed, skipped = step.counts[1:]
        if step.passed and not failed and not skipped and digest is not None and digest == self.digest(step):
            commit = printed("git", "describe", "--always", "--dirty=, with changes", "--exclude=*", root=self.root).decode().strip()
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"inputs": digest, "outputs": self.outputs(step), "commit": commit}))
        else:
            file.unlink(missing_ok=True)
