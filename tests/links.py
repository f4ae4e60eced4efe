#!/usr/bin/env python3
"""Checks the documents' links: files, headings, and the functions and types that they name.

    tests/links.py

A link to a file needs the file; one with #heading needs the heading. A link whose text is a name in backticks and which leads
to a source file needs the name in that file. A path in backticks that begins with a folder of the repository or of `daemon` needs
to exist, except in the changelog and for the files that the walk-throughs in docs/contributing add. Exit status 1 and a line for each that fails.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ROOMS = "|".join(folder.name for folder in (ROOT / "daemon").iterdir() if folder.is_dir())
PLACE = re.compile(rf"`((?:daemon|engine|ground|kernels|tests|docs|systemd|config|{ROOMS})/[\w./-]+)`")
# The walk-throughs in docs/contributing add these.
EXAMPLES = re.compile(r"/(corners|udp|blank)\.")


def text_of(file):
    """The document without its code blocks, lines kept."""
    return re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), file.read_text(), flags=re.S | re.M)


def anchor(heading):
    """The anchor that GitHub makes of a heading that occurs once."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", words.lower().strip()).replace(" ", "-")


def headings(file):
    """The anchors that GitHub makes of a document's headings."""
    found = {}
    for line in text_of(file).splitlines():
        match = re.match(r"#+\s+(.*)", line)
        if match:
            name = anchor(match[1])
            count = found.get(name, -1) + 1
            found[name] = count
            if count:
                found[f"{name}-{count}"] = 0
    return set(found)


def faults(document):
    """The faults in a document's links, as (line, sentence)."""
    text = text_of(document)
    line = lambda match: text.count("\n", 0, match.start()) + 1
    for match in LINK.finditer(text):
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            yield line(match), f"{target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in headings(file):
            yield line(match), f"{target}: there is no such heading"
        elif re.fullmatch(r"`[\w:]+`", words) and file.suffix in (".rs", ".cuh", ".cu"):
            name = words.strip("`").split("::")[-1]
            if not re.search(rf"\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!|void|int)\s+{name}\b", file.read_text()):
                yield line(match), f"{target}: `{name}` is not defined there"
    if document.name != "CHANGELOG.md":
        for match in PLACE.finditer(text):
            place = match[1]
            found = any((folder / place).exists() for folder in (ROOT, ROOT / "daemon"))
            if not found and not re.search(r"[A-Z]{3}|\.\.", place) and not EXAMPLES.search(place):
                yield line(match), f"{place}: there is no such file"


def main():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    documents = [ROOT / name for name in listed.stdout.split()] or sorted(ROOT.glob("docs/**/*.md"))
    failed = 0
    for document in documents:
        for number, sentence in faults(document):
            print(f"{document.relative_to(ROOT)}:{number}: {sentence}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
