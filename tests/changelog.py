#!/usr/bin/env python3
"""Checks CHANGELOG.md, and prints its notes on a version.

    tests/changelog.py                checks the form, and that the newest version is that of Cargo.toml and Cargo.lock
    tests/changelog.py notes VERSION  prints the section of VERSION, with links that work on a release's page: to the tag's files
    tests/changelog.py version        prints the version of Cargo.toml

The package takes its version from Cargo.toml, and `visiond --version` prints it; tests/e2e/package.rs compares all three.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})")
GROUPS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
LINK = re.compile(r"\]\((?![a-z]+:)([^()\s]+)\)")


def version_of_sources(root):
    return tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def sections(text):
    """Each version's name and the lines below its heading, newest first; "Unreleased" is one of them."""
    found = {}
    lines = []
    for line in text.splitlines():
        match = re.match(r"## \[([^\]]+)\]", line)
        if match:
            lines = found.setdefault(match[1], [])
        elif re.match(r"\[[^\]]+\]: ", line):
            lines = []
        else:
            lines.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def faults(root):
    """The faults, as sentences."""
    text = (root / "CHANGELOG.md").read_text()
    version = version_of_sources(root)
    names = re.findall(r"^## \[([^\]]+)\]", text, re.M)
    if names[:1] != ["Unreleased"]:
        yield "the first section is not `## [Unreleased]`"
    headings = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## ") and line != "## [Unreleased]":
            match = HEADING.fullmatch(line)
            if match:
                headings.append((tuple(map(int, match.groups()[:3])), match[4]))
            else:
                yield f"line {number}: {line}: write `## [1.2.3] - 2026-01-31`"
        elif line.startswith("### ") and line[4:] not in GROUPS:
            yield f"line {number}: {line}: use one of {', '.join(GROUPS)}"
        elif line.startswith((" ", "\t")):
            yield f"line {number}: a change has one line: shorten it"
    if headings != sorted(headings, reverse=True) or len({at for at, _ in headings}) != len(headings):
        yield "versions are not in order, newest first"
    newest = ".".join(map(str, headings[0][0])) if headings else "none"
    if newest != version:
        yield f"the newest version is {newest}, but Cargo.toml has {version}: give both the same"
    for name, body in sections(text).items():
        if name != "Unreleased" and not body:
            yield f"{name} has no changes"
        if f"\n[{name}]: #" not in text:
            yield f"there is no link for [{name}] at the end"
    for package in tomllib.loads((root / "Cargo.lock").read_text())["package"]:
        ours = package["name"] == "visiond" and "source" not in package
        if ours and package["version"] != version:
            yield f"Cargo.lock has {package['version']}: run `cargo update --workspace --offline`"


def notes(root, version):
    """The section of a version; None where there is none. Links lead to the files of its tag."""
    body = sections((root / "CHANGELOG.md").read_text()).get(version)
    return body and LINK.sub(rf"](../../blob/v{version}/\1)", body)


def main(root, words):
    match words:
        case []:
            found = list(faults(root))
            for sentence in found:
                print(f"CHANGELOG.md: {sentence}")
            return 1 if found else 0
        case ["version"]:
            print(version_of_sources(root))
            return 0
        case ["notes", version]:
            text = notes(root, version)
            print(text or f"CHANGELOG.md has no changes of {version}", file=sys.stdout if text else sys.stderr)
            return 0 if text else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
