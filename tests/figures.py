#!/usr/bin/env python3
"""Checks that README.md shows no figure whose code has changed since it was measured.

    tests/figures.py           lists the stale figures; exit status 1 where README.md shows one, or docs/figures.md does not say so
    tests/figures.py --mark    also adds, or removes, the line in docs/figures.md that says so to readers

Each section of docs/figures.md says where its figures come from, in a comment that covers all up to the next one or the next heading:

    <!-- measured COMMIT PATH... -->     measured at COMMIT; depends on the code in these files and folders
    <!-- tested by FILE -->              a test compares it in each run
    <!-- computed -->                    arithmetic, no measurement

Figures are stale once more than 5 % of the lines of code in PATHs differ between COMMIT and the working tree: lines that only COMMIT has,
or those that only the working tree has, whichever are more, against all lines of the longer side. Comments, blank lines, documents and
tests do not count, nor does code that only moved. So name the files that a figure depends on, rather than a whole crate, by the names
that they have now; renames since COMMIT are followed.

README.md links each point of its promises that has a number to the section of the figure, or to the test in tests/ that compares it in
each run. When this fails for a figure, either
- measure it again at a commit, and write the new figure and that commit here, in a commit of its own; or
- remove the figure from README.md. docs/figures.md may keep it, with the line of --mark.

Needs the history. Without it (no git, a shallow clone) this counts as skipped, and so does each figure whose commit HEAD does not
descend from, as after commits were squashed.
"""

import functools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from links import LINK, anchor

ROOT = Path(__file__).resolve().parent.parent
# Of the lines of code: a change of one in twenty.
ALLOWED = 0.05
# The section of README.md in which every point with a number is a measured figure.
PROMISES = "## Promises and measurements"
COMMENT = re.compile(r"<!-- (measured|tested by|computed)((?: \S+)*) -->")
MARK = "*Measured at {}; what it measures has changed since.*"
MARKED = re.compile(re.escape(MARK).replace(r"\{\}", r"\w+"))
TEST = re.compile(r"(^|/)(\w+_)?(tests?|benches|examples|golden|testing)(/|\.)|\.(md|txt|json|ptx|svg|toml|lock)$")


def git(*words, given=None, root=ROOT):
    """git's output; raises CalledProcessError if it fails."""
    return subprocess.run(["git", *words], cwd=root, input=given, capture_output=True, check=True).stdout


def code_lines(name, text):
    """The lines of a file that are code, without indent."""
    begins = "#" if name.endswith((".py", ".sh")) or "." not in Path(name).name else ("//", "/*", "* ")
    if name.endswith(".rs"):
        text = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{$", text, maxsplit=1, flags=re.M)[0]
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(begins)]


def blobs(names, root):
    """The texts of objects, by name."""
    out, texts = git("cat-file", "--batch", given="".join(f"{name}\n" for name in names).encode(), root=root), {}
    while out:
        head, _, out = out.partition(b"\n")
        name, _, size = head.decode().split()
        texts[name], out = out[: int(size)].decode(errors="replace"), out[int(size) + 1 :]
    return texts


@functools.cache
def renamed(commit, root):
    """The names that files had at the commit, by those that they have in the working tree, where the two differ."""
    words = git("diff", "--name-status", "-z", "--find-renames=30%", "-l0", "--diff-filter=R", commit, root=root).decode().split("\0")
    return dict(zip(words[2::3], words[1::3]))


def changed(commit, paths, root=ROOT):
    """The share of lines of code that differ between the commit and the working tree. A path that neither has is a ValueError."""
    within = lambda name: any(name == path or name.startswith(path.rstrip("/") + "/") for path in paths)
    before = [old for new, old in renamed(commit, root).items() if within(new)]
    words = ("ls-tree", "-r", "-z", commit, "--", *paths, *before)
    rows = [row.split("\t") for row in git(*words, root=root).decode().split("\0") if row]
    then = {name: words.split()[2] for words, name in rows}
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths, root=root).decode().split("\0")
    here = {name for name in listed if name and (root / name).is_file()}
    for path in paths:
        if not any(name == path or name.startswith(path.rstrip("/") + "/") for name in {*then, *here}):
            raise ValueError(f"{path}: there is no such file")
    then = {name: blob for name, blob in then.items() if not TEST.search(name)}
    texts = blobs(set(then.values()), root)
    before = Counter(line for name, blob in then.items() for line in code_lines(name, texts[blob]))
    now = Counter(
        line for name in here if not TEST.search(name) for line in code_lines(name, (root / name).read_bytes().decode(errors="replace"))
    )
    count = lambda lines: sum(lines.values())
    return max(count(before - now), count(now - before)) / max(count(before), count(now), 1)


def has_history(commits, root=ROOT):
    """Why commits cannot be looked up, or None, and those of them that HEAD descends from."""
    try:
        if git("rev-parse", "--is-shallow-repository", root=root).strip() == b"true":
            return "this is a shallow clone", set()
        known = git("rev-list", "HEAD", root=root).decode().split()
    except (subprocess.CalledProcessError, OSError):
        return "this is no git repository", set()
    return None, {commit for commit in commits if any(full.startswith(commit) for full in known)}


class Figures:
    """The section that one comment covers."""

    def __init__(self, section, line, comment):
        self.section, self.line, self.comment = section, line, comment[0]
        self.kind, self.words = comment[1], comment[2].split()
        # Why they may not be shown in README.md; `changed`, if it is that their code differs.
        self.fault, self.changed = None, False
        # Why they cannot be judged here.
        self.skipped = None

    def judge(self, reachable, root=ROOT):
        if self.kind == "tested by":
            missing = [name for name in self.words if not (root / name).exists()]
            self.fault = f"{missing[0]}: there is no such file" if missing or not self.words else None
        elif self.kind == "measured":
            commit, *paths = self.words or [""]
            if not paths:
                self.fault = "the comment names no path"
            elif commit not in reachable:
                self.skipped = f"HEAD does not descend from {commit}"
            else:
                try:
                    share = changed(commit, paths, root)
                except ValueError as error:
                    self.fault = str(error)
                else:
                    self.changed = share > ALLOWED
                    self.fault = f"{100 * share:.1f} % of the code has changed since {commit}" if self.changed else None


def read_figures(text):
    """The figures of the document, and the anchors of sections without a comment."""
    found, bare, section = [], set(), None
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"##+ +(.*)", line):
            section = anchor(heading[1])
            bare.add(section)
        elif (comment := COMMENT.fullmatch(line)) and section:
            bare.discard(section)
            found.append(Figures(section, number, comment))
    return found, bare


def with_marks(text, figures):
    """The document with a line for readers below each comment whose figures are stale, as it was below those that are skipped, and no
    other such line."""
    stale = {one.comment: one.words[0] for one in figures if one.changed}
    skipped = {one.comment for one in figures if one.skipped}
    old = re.compile(rf"^(.*)\n{MARKED.pattern}\n\n", re.M)
    lines = []
    for line in old.sub(lambda match: match[0] if match[1] in skipped else f"{match[1]}\n", text).splitlines():
        lines.append(line)
        if line in stale:
            lines += [MARK.format(stale[line]), ""]
    return "\n".join(lines) + "\n"


def readme_faults(readme, faults, sections):
    """Line and sentence of each figure that README.md may not show. `faults` has the reason by section."""
    for match in LINK.finditer(readme):
        path, _, section = match[2].partition("#")
        if path == "docs/figures.md" and section:
            line = readme.count("\n", 0, match.start()) + 1
            if section not in sections:
                yield line, f"docs/figures.md#{section}: no comment there says when it was measured"
            elif section in faults:
                yield line, f"docs/figures.md#{section}: {faults[section]}: measure it again, or remove it here"
    begin = readme.find(PROMISES)
    end = readme.find("\n## ", begin) if begin >= 0 else begin
    for point in re.finditer(r"^- .*\n(?:  .*\n)*", readme[:end], re.M):
        has_source = "(docs/figures.md#" in point[0] or "(tests/" in point[0]
        if point.start() > begin and re.search(r"\d", LINK.sub(r"\1", point[0])) and not has_source:
            yield (
                readme.count("\n", 0, point.start()) + 1,
                "a figure without its source: link it to its section of docs/figures.md, or to the test of it",
            )


def main(root=ROOT, words=()):
    document = root / "docs/figures.md"
    text = document.read_text()
    figures, bare = read_figures(text)
    missing, reachable = has_history({one.words[0] for one in figures if one.kind == "measured" and one.words}, root)
    if missing:
        print(f"skipped: {missing}\n0 passed, 0 failed, 1 skipped")
        return 0
    faults = {}
    for one in figures:
        one.judge(reachable, root)
        if one.skipped:
            print(f"docs/figures.md:{one.line}: {one.section}: skipped: {one.skipped}")
        if one.fault:
            faults.setdefault(one.section, one.fault)
            print(f"docs/figures.md:{one.line}: {one.section}: {one.fault}")
    for section in sorted(bare):
        print(f"docs/figures.md#{section}: no comment says when it was measured")
    marked = with_marks(text, figures)
    unmarked = marked != text and "--mark" not in words
    if unmarked:
        print("docs/figures.md does not say to its readers which of these are stale: run `python3 tests/figures.py --mark`")
    elif marked != text:
        document.write_text(marked)
    found = list(readme_faults((root / "README.md").read_text(), faults, {one.section for one in figures}))
    for number, sentence in found:
        print(f"README.md:{number}: {sentence}")
    if skipped := sum(bool(one.skipped) for one in figures):
        print(f"{len(figures) - skipped} passed, 0 failed, {skipped} skipped")
    return 1 if found or unmarked else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--mark"]):
        sys.exit(__doc__)
    sys.exit(main(words=sys.argv[1:]))
