#!/usr/bin/env python3
"""Checks the subjects of commits that are not pushed: at most 72 characters, one topic, an imperative.

    tests/subjects.py [BASE]    those of BASE..HEAD

Without BASE: since the branch's upstream, else since origin's main branch, since `main` where HEAD is another branch, or since the
newest tag. Without any of these it counts as skipped. Merges do not count. Exit status 1 and a line for each that fails.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 72
# No imperatives, as the first word.
ENDINGS = re.compile(r"(?:[^s]s|ing|[^e]ed)$")
OTHERS = {"a", "an", "the", "some", "more", "no", "new", "this", "what", "how", "wip"}
# Imperatives that look like something else.
VERBS = {"alias", "bring", "embed", "focus", "ping", "shed"}


def fault(subject):
    """The fault of a subject; None if it has none."""
    if len(subject) > LONGEST:
        return f"{len(subject)} characters: write at most {LONGEST}, and the rest into the body"
    if ";" in subject:
        return "two topics: split the commit, or name what they have in common"
    if subject.endswith("."):
        return "ends with a full stop: remove it"
    # After the area, as in `Setup: ...`.
    words = re.sub(r"^[\w/.-]+: ", "", subject).split()
    first = words[0].lower() if words else ""
    if not re.match(r"[a-z]", first) or (first not in VERBS and (first in OTHERS or ENDINGS.search(first))):
        return f"`{first}` is no imperative: begin with one, such as Add, Reject or Document"
    return None


def git(root, *words):
    """git's output; None if it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def base(root):
    """The commit up to which everything is pushed; None where that is unknown."""
    branch = git(root, "rev-parse", "--abbrev-ref", "HEAD")
    for name in ("@{upstream}", "origin/HEAD", "origin/main", "main"):
        if name != branch and git(root, "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"):
            return git(root, "merge-base", name, "HEAD")
    return git(root, "describe", "--tags", "--abbrev=0")


def main(root, words):
    since = words[0] if words else base(root)
    if not since:
        print("no upstream, main branch or tag to compare with: name one, tests/subjects.py BASE\n0 passed, 0 failed, 1 skipped")
        return 0
    listed = git(root, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD")
    if listed is None:
        print(f"{since} is no commit here: name one, tests/subjects.py BASE")
        return 2
    failed = 0
    for line in listed.splitlines():
        commit, _, subject = line.partition(" ")
        found = fault(subject)
        if found:
            print(f"{commit}: {subject}: {found}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
