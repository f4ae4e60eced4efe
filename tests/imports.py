#!/usr/bin/env python3
"""Checks that no two source files of a crate import each other, directly or in a cycle, and that lower crates use no higher ones.

    tests/imports.py [--graph] [CRATE_FOLDER...]

Reads `use` declarations and paths in the code, follows re-exports to the file that defines a name, and leaves tests out. Exit
status 1 and the shortest circle of each knot of files, if there is one. --graph prints every arrow. Of a crate's Cargo.toml it reads
which crates of the workspace it uses.
"""

import argparse
import re
import sys
import tomllib
from collections import defaultdict, deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The crates of the workspace that these may use, and what these must not.
MAY_USE = {"ground": set(), "rtsp": set(), "events": set(), "kernels": {"ground"}, "system": {"ground"}, "nats": {"system"}, "fleet": {"bundle"}, "engine": {"ground", "kernels"}}
MUST_NOT_USE = {"annotate": {"engine"}, "capture": {"engine"}}

NAME = re.compile(r"(?:r#)?[A-Za-z_]\w*")


def without_comments_and_strings(text):
    """Only the code: everything else becomes blanks."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\\'])\'', re.S
    )
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def without_tests(text):
    """Returns the text without items after `#[cfg(test)]`."""
    out, position = [], 0
    for match in re.finditer(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]", text):
        if match.start() < position:
            continue
        out.append(text[position : match.start()])
        depth, index = 0, match.end()
        while index < len(text):
            if text[index] == "{":
                depth += 1
            elif text[index] == "}":
                depth -= 1
                if depth == 0:
                    index += 1
                    break
            elif text[index] == ";" and depth == 0:
                index += 1
                break
            index += 1
        position = index
    out.append(text[position:])
    return "".join(out)


def trees(text, index, prefix):
    """The paths of the use tree at `index`, as (path, alias), and where it ends."""
    segments = list(prefix)
    while True:
        while index < len(text) and text[index].isspace():
            index += 1
        if text[index] == "{":
            index += 1
            paths = []
            while True:
                while index < len(text) and (text[index].isspace() or text[index] == ","):
                    index += 1
                if text[index] == "}":
                    return paths, index + 1
                found, index = trees(text, index, segments)
                paths += found
        if text[index] == "*":
            return [(segments + ["*"], "*")], index + 1
        if text.startswith("::", index):
            index += 2
            continue
        match = NAME.match(text, index)
        if not match:
            return [(segments, segments[-1])], index
        segments.append(match[0].removeprefix("r#"))
        index = match.end()
        after = re.match(r"\s*::", text[index:])
        if after:
            index += after.end()
            continue
        alias = re.match(r"\s+as\s+([A-Za-z_]\w*)", text[index:])
        if alias:
            return [(segments, alias[1])], index + alias.end()
        return [(segments, segments[-1])], index


class Crate:
    """The files of a crate, as modules, and who imports whom."""

    def __init__(self, folder):
        self.folder = folder
        self.modules = {}  # path of names -> file
        self.uses = {}  # module -> [(path, alias)]
        self.inner = defaultdict(dict)  # module -> inline modules
        # The program's only file lies beside its Cargo.toml.
        root = next(filter(Path.exists, (folder / name for name in ("src/lib.rs", "src/main.rs", "main.rs"))))
        self.source = root.parent
        self.read((), root)
        self.arrows = defaultdict(dict)
        for module, text in self.texts.items():
            self.collect(module, text)

    texts = None

    def read(self, module, file):
        self.texts = self.texts or {}
        text = without_tests(without_comments_and_strings(file.read_text()))
        self.modules[module], self.texts[module] = file, text
        home = file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.parent / file.stem
        source = without_tests(file.read_text())
        for match in re.finditer(r'(?:#\[path\s*=\s*"([^"]+)"\]\s*)?(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;', source):
            line = source[source.rfind("\n", 0, match.start(2)) + 1 : match.start(2)]
            if "//" in line:
                continue
            path = [file.parent / match[1]] if match[1] else [home / f"{match[2]}.rs", home / match[2] / "mod.rs"]
            for child in path:
                if child.exists():
                    self.read((*module, match[2]), child)
        exports = []
        for match in re.finditer(r"\buse\s+", text):
            paths, _ = trees(text, match.end(), [])
            exports += paths
        self.uses[module] = exports

    def absolute(self, module, segments):
        """The path from the crate's root, or None where it is another crate's."""
        first, rest = segments[0], segments[1:]
        if first == "crate":
            return tuple(rest)
        if first == "self":
            return (*module, *rest)
        if first == "super":
            module = module[:-1]
            while rest and rest[0] == "super":
                module, rest = module[:-1], rest[1:]
            return (*module, *rest)
        if (*module, first) in self.modules:
            return (*module, *segments)
        return None

    def home(self, path, seen=()):
        """The module that defines what `path` names, through re-exports."""
        module = path
        while module not in self.modules:
            module = module[:-1]
        rest = path[len(module) :]
        if not rest or (module, rest[0]) in seen:
            return module
        for segments, alias in self.uses[module]:
            target = self.absolute(module, segments)
            if alias == rest[0] and target is not None:
                return self.home((*target, *rest[1:]), (*seen, (module, rest[0])))
        if not re.search(rf"\b{rest[0]}\b", self.texts[module]):
            for segments, alias in self.uses[module]:
                if alias == "*":
                    target = self.absolute(module, segments[:-1])
                    if target is not None and target in self.modules and re.search(rf"\b{rest[0]}\b", self.texts[target]):
                        return self.home((*target, *rest), (*seen, (module, rest[0])))
        return module

    def collect(self, module, text):
        paths = [(segments, False) for segments, _ in self.uses[module]]
        exported = set()
        for match in re.finditer(r"\bpub(?:\([^)]*\))?\s+use\s+", text):
            exported |= {tuple(segments) for segments, _ in trees(text, match.end(), [])[0]}
        for match in re.finditer(r"(?<![\w:])((?:crate|self|super|[a-z_]\w*)(?:::(?:r#)?\w+)+)", text):
            paths.append((match[1].split("::"), True))
        for segments, _ in paths:
            if tuple(segments) in exported:
                continue
            # A name that this file imports: a module, most often.
            if segments[0] not in ("crate", "self", "super"):
                for known, alias in self.uses[module]:
                    if alias == segments[0] and known != segments:
                        segments = known + segments[1:]
                        break
            target = self.absolute(module, [s for s in segments if s != "*"] or segments)
            if target is None:
                continue
            home = self.home(target)
            if home != module:
                self.arrows[module].setdefault(home, "::".join(segments))

    def knots(self):
        """Groups of files that reach each other (Tarjan)."""
        index, low, stack, on, out = {}, {}, [], set(), []
        sys.setrecursionlimit(10000)

        def visit(node):
            index[node] = low[node] = len(index)
            stack.append(node)
            on.add(node)
            for other in self.arrows[node]:
                if other not in index:
                    visit(other)
                    low[node] = min(low[node], low[other])
                elif other in on:
                    low[node] = min(low[node], index[other])
            if low[node] == index[node]:
                group = []
                while True:
                    group.append(stack.pop())
                    on.discard(group[-1])
                    if group[-1] == node:
                        break
                if len(group) > 1:
                    out.append(group)

        for node in list(self.modules):
            if node not in index:
                visit(node)
        return out

    def circle(self, group):
        """The shortest circle in a group."""
        best = None
        for start in sorted(group):
            came, queue = {start: None}, deque([start])
            while queue:
                node = queue.popleft()
                for other in self.arrows[node]:
                    if other == start:
                        path = [start]
                        while node is not None:
                            path.append(node)
                            node = came[node]
                        path.reverse()
                        if best is None or len(path) < len(best):
                            best = path
                        queue.clear()
                        break
                    if other in group and other not in came:
                        came[other] = node
                        queue.append(other)
        return best


def wrong_uses(folder):
    """The crates of the workspace that the crate in `folder` uses and should not."""
    manifest = tomllib.loads((folder / "Cargo.toml").read_text())
    used = {name.removeprefix("visiond-") for name in manifest.get("dependencies", {}) if name.startswith("visiond-")}
    allowed = MAY_USE.get(folder.name)
    return (used - allowed if allowed is not None else set()) | (used & MUST_NOT_USE.get(folder.name, set()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", action="store_true", help="print every arrow")
    parser.add_argument("--pairs", action="store_true", help="print every pair of files that import each other")
    parser.add_argument("folders", nargs="*", type=Path)
    args = parser.parse_args()
    folders = args.folders or sorted(path.parent for path in ROOT.glob("**/Cargo.toml") if (path.parent / "src").is_dir() and "target" not in path.parts)
    failed = False
    for folder in folders:
        for used in sorted(wrong_uses(folder)):
            failed = True
            print(f"{folder}: uses visiond-{used}, which it should not know")
        crate = Crate(folder)
        name = lambda module: str(crate.modules[module].relative_to(crate.source))
        if args.graph:
            for module, others in crate.arrows.items():
                for other, path in others.items():
                    print(f"{name(module)} -> {name(other)} ({path})")
        for group in crate.knots():
            failed = True
            print(f"{folder}: {len(group)} files import each other round a circle, the shortest:")
            circle = crate.circle(group)
            for module, other in zip(circle, circle[1:]):
                print(f"    {name(module)} -> {name(other)} ({crate.arrows[module][other]})")
            if args.pairs:
                for a in group:
                    for b in crate.arrows[a]:
                        if a < b and a in crate.arrows[b]:
                            print(f"    pair {name(a)} ({crate.arrows[a][b]}) <-> {name(b)} ({crate.arrows[b][a]})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
