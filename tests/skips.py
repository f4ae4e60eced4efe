#!/usr/bin/env python3
"""Checks that no Rust test ends early as if it had passed.

    tests/skips.py

A test that lacks something writes `skipped: NAME: REASON`, by `skip` of `visiond_tests` or `visiond_system::testing`, and tests/steps.py
counts it. So each `return` out of a function with `#[test]` must stand in a block that calls `skip`, be the `else` of a function that
does, or come after the test's own run in another process (`1 passed`). Returns with a value are those of closures. Exit status 1 and a line for each test that breaks this.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = re.compile(r"((?:^[ \t]*///[^\n]*\n)*)^[ \t]*#\[test\]\s*(?:#\[[^\n]*\]\s*)*(?:async )?fn (\w+)[^{]*\{", re.M)
RETURN = re.compile(r"\breturn\s*(?:;|\})")
# How tests begin that are helper processes of other tests.
NO_TEST = "Not a test:"


def blank(text):
    """The code with comments and strings blanked, as long as before."""
    pattern = re.compile(r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|\'(?:\\.|[^\\\'])\'', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def end_of_block(code, start):
    """The index after the `}` that closes the block which begins before `start`."""
    depth = 1
    for index in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code)


def begin_of_block(code, index):
    """The index after the `{` of the innermost block around `index`."""
    depth = 0
    for at in range(index - 1, -1, -1):
        if code[at] == "}":
            depth += 1
        elif code[at] == "{":
            if depth == 0:
                return at + 1
            depth -= 1
    return 0


def says_so(text, start, end):
    """Whether the code between calls `skip`, or writes what it writes."""
    return any(words in text[start:end] for words in ("skip(", '"skipped: {', '"1 passed"'))


def skipping_functions(text):
    """Names of a file's functions that report a skipped test."""
    code = blank(text)
    found = re.finditer(r"\bfn (\w+)[^{;]*\{", code)
    return {match[1] for match in found if says_so(text, match.end(), end_of_block(code, match.end()))}


def faults(text, skipping):
    """Line and test of each return that says nothing; `skipping` has the functions that say it themselves."""
    code = blank(text)
    for test in TEST.finditer(text):
        if NO_TEST in test[1]:
            continue
        body_start, body_end = test.end(), end_of_block(code, test.end())
        for found in RETURN.finditer(code, body_start, body_end):
            begin = begin_of_block(code, found.start())
            statement = code[max(code.rfind(";", 0, begin), code.rfind("}", 0, begin), body_start - 1) + 1 : begin]
            is_closure = re.search(r"(\|[^|]*\||\bmove)\s*\{$", statement)
            called = set(re.findall(r"\b(\w+)\(", statement))
            if not says_so(text, begin, found.start()) and not is_closure and not called & skipping:
                yield text.count("\n", 0, found.start()) + 1, test[2]


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = {name: (ROOT / name).read_text() for name in filter(None, listed)}
    skipping = set().union(*(skipping_functions(text) for text in texts.values()))
    count = 0
    for name, text in texts.items():
        for line, test in faults(text, skipping):
            print(f"{name}:{line}: the test {test} returns without `skip(REASON)`, so it counts as passed")
            count += 1
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
