#!/usr/bin/env python3
"""Checks that every message in docs/troubleshooting.md is one that the program prints.

    tests/messages.py

In a table whose first column is `message`, each text in backticks is a message, where `…` stands for a value. The text
between two `…` must be in one string of the sources, or at the end of one and the beginning of another. Strings may also be
joined by a
colon, a comma, a semicolon or a bracket. Texts of other programs are listed below with the program. Exit status 1 and a line for each message that no source has.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/troubleshooting.md"
# Messages of other programs, as regular expressions.
FOREIGN = {
    "the system": r"No space left on device|Connection refused|Address already in use|Too many open files|permission denied",
    "the loader": r"version `GLIBC_…' not found",
    "CUDA": r"CUDA_ERROR_\w+ \(\d+\)|cuInit failed",
    "Argus": r"No cameras available|Failed to create CaptureSession|\(Argus\) Error FileOperationFailed: Connecting to nvargus-daemon failed",
    "dpkg": r"package architecture \(…\) does not match system \(…\)",
    "systemd": r"Failed to (set up|determine) [\w ]+|Watchdog timeout|visiond\.service",
    "nats-server": r"subjects overlap with an existing stream|insufficient storage resources available|Permissions Violation for",
    "Prometheus": r"server returned HTTP status 401",
    "TensorRT": r"Serialization assertion",
    "a command": r"systemctl status|v4l2-ctl",
}
# A quote as a character begins no string.
RUST = re.compile(r'\'\\?"\'|r(#*)"(.*?)"\1|"((?:[^"\\]|\\.)*)"', re.S)
SCRIPT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\]|\\.)*)`')
VALUE = "\0"


def spaced(text):
    return re.sub(r"\s+", " ", text)


def pieces():
    """The sources' strings in order, without their values."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = []
    for name in listed:
        file = ROOT / name
        if not file.is_file() or re.search(r"(^|/)tests?(/|\.rs$)", name.removeprefix("tests/licences")):
            continue
        if name.endswith(".rs"):
            # An escaped line break is removed with the indent after it; values are in braces.
            strings = (match[2] if match[3] is None else re.sub(r"\\\n\s*", "", match[3]) for match in RUST.finditer(file.read_text())
                       if match[2] is not None or match[3] is not None)
            values = r"(?<!\{)\{[^{}\"]*\}"
        elif name.endswith((".js", ".html")) or name in ("package", "test", "demo") or name.startswith(("systemd/", "daemon/web/page")):
            strings = [file.read_text()]
            values = r"\$\{[^{}]*\}|\$\w+"
        else:
            continue
        for string in strings:
            text = re.sub(r'\\(["\'\\])', r"\1", re.sub(values, VALUE, string)).replace("\\n", " ").replace("{{", "{").replace("}}", "}")
            found += [spaced(piece) for piece in text.split(VALUE)]
    return [piece for piece in found if len(piece.strip()) > 1]


def messages():
    """The messages of the tables, as (line, text)."""
    table = False
    for number, line in enumerate(DOCUMENT.read_text().splitlines(), 1):
        if not line.startswith("|"):
            table = False
        elif re.match(r"\| *(message|the page)", line):
            table = True
        elif table and not line.startswith("|---"):
            cell = re.split(r"(?<!\\) \| ", line.removeprefix("| "))[0]
            for match in re.finditer(r"``\s?(.+?)\s?``(?!`)|`([^`]+)`", cell):
                yield number, (match[1] or match[2]).replace("\\|", "|")


def missing(message, sources):
    """The parts of a message that no source has."""
    for pattern in FOREIGN.values():
        message = re.sub(pattern, "…", message)
    for fragment in re.split("…", message):
        fragment = fragment.strip(" :;,.()\"")
        if len(re.findall(r"[A-Za-z]", fragment)) < 3 or fragment in sources:
            continue
        for part in re.split(r"[:;,] | [(]|[)]", fragment):
            part = part.strip(" :;,.()\"")
            if len(re.findall(r"[A-Za-z]", part)) >= 3 and part not in sources and not joined(part, sources):
                yield part


def joined(part, sources):
    """Whether the end of one string and the beginning of another make up the part."""
    gaps = [gap.start() for gap in re.finditer(" ", part)]
    halves = [(part[:gap], part[gap + 1:]) for gap in gaps]
    ends = [(" \n", "\n"), ("\n", "\n ")]
    return any(left + end in sources and begin + right in sources for left, right in halves for end, begin in ends)


def main():
    sources = "\n" + "\n".join(pieces()) + "\n"
    faults = [(number, message, list(missing(message, sources))) for number, message in messages()]
    for number, message, parts in faults:
        for part in parts:
            print(f"docs/troubleshooting.md:{number}: `{message}`: no source says `{part}`")
    sys.exit(any(parts for _, _, parts in faults))


if __name__ == "__main__":
    main()
