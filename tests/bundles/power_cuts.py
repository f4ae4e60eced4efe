#!/usr/bin/env python3
"""Cuts the power after every system call of `visiond bundle install`, `rollback`, `follow` and `install --keys` that changes the
store, and checks what a disk may have made of it.

    tests/bundles/power_cuts.py PROGRAM

Each command runs once, under strace. The log is then replayed: a cut after any call leaves each of the states below. In every one,
the current model and the list of keys must be the old or the new ones, every byte of them, `visiond bundle list` must say the same,
and the same command must succeed. Once a command has ended, only the new ones may be left.

The model is ext4 with data=ordered and delayed allocation, without the flush at a rename (noauto_da_alloc):

- Names (create, mkdir, symlink, rename, unlink, rmdir) reach the disk in their order, through one journal: after a cut, the first J of
  them are there. J is at least what a sync has committed: fsync of a file or folder commits the last change of it, and all names
  before that.
- Contents of a file reach the disk by themselves, at any time: after a cut, a file has what it had at its last fsync or fdatasync,
  all that was written since, or half of that. This is chosen for each file by itself; of more than MOST_DIRTY files, the newest.
- fdatasync commits contents alone. Modes and times are not modelled, nor are sectors that the cut tears.

At the end, the syncs of files, and then those of folders, are left out of the logs, and that must break the commands of NEEDED: a
test that nothing can fail proves nothing. Needs strace.
"""

import hashlib
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_DIRTY = 4
# The commands that only these syncs keep whole. A sync of a file also commits the names before it, so the others survive without.
NEEDED = {"files": ("install", "follow", "install --keys"), "folders": ("rollback", "install --keys")}
CALLS = """
    openat write pwrite64 writev lseek rename renameat renameat2 symlink symlinkat link linkat mkdir mkdirat unlink unlinkat rmdir fsync
    fdatasync sync_file_range ftruncate truncate copy_file_range sendfile
""".split()
LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (-?\d+|\?)(.*)$")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"|<((?:\\x[0-9a-f]{2})*)>')


def unescape(text):
    return bytes.fromhex(text.replace("\\x", ""))


def visiond(program, *arguments, log=None):
    command = [program, "bundle", *map(str, arguments)]
    if log:
        command = ["strace", "-ff", "-qq", "-y", "-xx", "-s", "10000000", "--absolute-timestamps=format:unix,precision:ns",
                   "-e", f"trace={','.join(CALLS)}", "-o", log / "log", *command]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)


def calls(log, store):
    """The calls of all processes that succeeded and changed the store, in their order."""
    found = []
    for path in log.iterdir():
        for line in path.read_text("ascii").splitlines():
            match = LINE.match(line)
            if not match or match[4].startswith("-") or match[4] == "?":
                continue
            at, call, arguments, result = match[1], match[2], match[3], int(match[4])
            texts = [unescape(one or other) for one, other in STRING.findall(arguments)]
            found.append((float(at), call, arguments, texts, result))
    changes, offsets = [], {}
    for _, call, arguments, texts, result in sorted(found, key=lambda one: one[0]):
        def path(text, folder=None):
            full = Path(folder.decode()) / text.decode() if folder is not None else Path(text.decode())
            return str(full.relative_to(store)) if full.is_relative_to(store) else None

        if call == "openat":
            name = path(texts[-1], texts[0] if len(texts) > 1 else None)
            if name is not None:
                offsets[name] = 0
                if "O_CREAT" in arguments:
                    changes.append(("create", name))
                if "O_TRUNC" in arguments:
                    changes.append(("resize", name, 0))
        elif call == "lseek":
            name = path(texts[0])
            if name is not None:
                offsets[name] = result
        elif call == "write":
            name = path(texts[0])
            if name is not None:
                at = offsets[name]
                changes.append(("write", name, at, texts[1][:result]))
                offsets[name] = at + result
        elif call == "ftruncate":
            name = path(texts[0])
            if name is not None:
                changes.append(("resize", name, int(arguments.rsplit(", ", 1)[1], 0)))
        elif call in ("fsync", "fdatasync"):
            name = path(texts[0])
            if name is not None:
                changes.append((call, name))
        elif call in ("mkdir", "rmdir", "unlink"):
            name = path(texts[0])
            if name is not None:
                changes.append((call, name))
        elif call == "unlinkat":
            name = path(texts[-1], texts[0] if len(texts) > 1 else None)
            if name is not None:
                changes.append(("rmdir" if "AT_REMOVEDIR" in arguments else "unlink", name))
        elif call == "symlink":
            name = path(texts[1])
            if name is not None:
                changes.append(("symlink", name, texts[0].decode()))
        elif call == "rename":
            names = [path(text) for text in texts]
            if names != [None, None]:
                changes.append(("rename", *names))
                offsets[names[1]] = offsets.pop(names[0], 0)
        elif any(path(text) is not None for text in texts if text.startswith(b"/")):
            sys.exit(f"{call} changes the store, and this script does not know how: {arguments[:200]}")
    return changes


class Disk:
    """What the calls make of a store: names by the number of calls that reached the disk, and the contents of files over time."""

    def __init__(self, before, changes):
        self.tree, self.contents, self.numbers = {}, {}, itertools.count()
        self.load(before, self.tree)
        self.changes = changes
        # For each call: the file that it creates or changes; the least J after it; and for each file, (call, contents, is synced).
        self.files, self.least = [], []
        self.history = {number: [(-1, contents, True)] for number, contents in self.contents.items()}
        self.replay()

    def load(self, folder, tree):
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                tree[path.name] = ("link", str(path.readlink()))
            elif path.is_dir():
                self.load(path, tree.setdefault(path.name, {}))
            else:
                tree[path.name] = next(self.numbers)
                self.contents[tree[path.name]] = path.read_bytes()

    @staticmethod
    def parent(tree, path):
        *above, name = Path(path).parts
        for part in above:
            tree = tree[part]
        return tree, name

    def node(self, tree, path):
        for part in Path(path).parts:
            tree = tree[part]
        return tree

    def name(self, tree, at):
        """Applies the call `at` to the names."""
        call, path, *more = self.changes[at]
        if call == "create":
            folder, name = self.parent(tree, path)
            folder.setdefault(name, self.files[at])
        elif call == "mkdir":
            folder, name = self.parent(tree, path)
            folder[name] = {}
        elif call in ("unlink", "rmdir"):
            folder, name = self.parent(tree, path)
            del folder[name]
        elif call == "symlink":
            folder, name = self.parent(tree, path)
            folder[name] = ("link", more[0])
        elif call == "rename":
            folder, name = self.parent(tree, path)
            to_folder, to_name = self.parent(tree, more[0])
            to_folder[to_name] = folder.pop(name)

    def replay(self):
        tree, least, touched = copied(self.tree), 0, {}
        for at, (call, path, *more) in enumerate(self.changes):
            number = None
            if call == "create":
                folder, name = self.parent(tree, path)
                number = folder.get(name)
                if number is None:
                    number = next(self.numbers)
                    self.history[number] = [(at, b"", True)]
                    touched[number] = at + 1
            elif call in ("write", "resize"):
                number = self.node(tree, path)
                old = self.history[number][-1][1]
                if call == "write":
                    begin, data = more
                    new = old[:begin].ljust(begin, b"\0") + data + old[begin + len(data):]
                else:
                    new = old[:more[0]].ljust(more[0], b"\0")
                self.history[number].append((at, new, False))
                touched[number] = at + 1
            elif call in ("fsync", "fdatasync"):
                node = self.node(tree, path) if path != "." else tree
                if isinstance(node, dict):
                    least = max(least, touched.get(str(Path(path)), 0))
                else:
                    number = node
                    self.history[number].append((at, self.history[number][-1][1], True))
                    if call == "fsync":
                        least = max(least, touched.get(number, 0))
            self.files.append(number)
            self.name(tree, at)
            for changed in (path, *more[:1]) if call == "rename" else (path,):
                if call in ("create", "mkdir", "unlink", "rmdir", "symlink", "rename"):
                    touched[str(Path(changed).parent)] = at + 1
            self.least.append(least)

    def states(self, cut):
        """Each tree that a cut after the first `cut` calls may leave: names, and contents of files."""
        names = [at for at in range(cut) if self.changes[at][0] in ("create", "mkdir", "unlink", "rmdir", "symlink", "rename")]
        least = self.least[cut - 1] if cut else 0
        for last in sorted({least, *(at + 1 for at in names if at + 1 > least)}):
            tree = copied(self.tree)
            for at in names:
                if at < last:
                    self.name(tree, at)
            choices = {}
            for number in numbers(tree):
                history = [one for one in self.history[number] if one[0] < cut]
                synced = max((index for index, one in enumerate(history) if one[2]), default=0)
                begin, end = history[synced][1], history[-1][1]
                half = begin[:len(end)] + end[len(begin):(len(begin) + len(end)) // 2] if len(end) > len(begin) else begin
                # A call that the journal does not have may have written all the same.
                choices[number] = list(dict.fromkeys([end, begin, half]))
            dirty = [number for number in choices if len(choices[number]) > 1][-MOST_DIRTY:]
            for picked in itertools.product(*(choices[number] for number in dirty)):
                contents = {number: every[0] for number, every in choices.items()} | dict(zip(dirty, picked))
                yield tree, contents


def copied(tree):
    return {name: copied(node) if isinstance(node, dict) else node for name, node in tree.items()}


def numbers(tree):
    for node in tree.values():
        if isinstance(node, dict):
            yield from numbers(node)
        elif isinstance(node, int):
            yield node


def described(tree, contents):
    """The tree with contents in place of numbers, for comparisons."""
    def of(node):
        if isinstance(node, dict):
            return tuple((name, of(one)) for name, one in sorted(node.items()))
        return hashlib.sha256(contents[node]).hexdigest() if isinstance(node, int) else node
    return of(tree)


def write(tree, contents, folder):
    folder.mkdir()
    for name, node in tree.items():
        path = folder / name
        if isinstance(node, dict):
            write(node, contents, path)
        elif isinstance(node, int):
            path.write_bytes(contents[node])
        else:
            path.symlink_to(node[1])


def used(tree, contents):
    """What a device uses: the files of the current version, by their names, and the list of keys."""
    street = tree.get("street", {})
    current = street.get("current")
    version = street.get(current[1]) if isinstance(current, tuple) else None
    if isinstance(version, dict):
        version = described(version, contents)
    keys = tree.get("keys.toml")
    return version, None if keys is None else hashlib.sha256(contents[keys]).hexdigest()


def loaded(store):
    """The same of a folder."""
    disk = Disk(store, [])
    return used(disk.tree, disk.contents)


def broken(disk, old, new):
    """Whether a cut leaves something that is neither old nor new, or a cut after the end something that is not new."""
    allowed = {(version, keys) for version in (old[0], new[0]) for keys in (old[1], new[1])}
    end = len(disk.changes)
    states = ((cut, used(*state)) for cut in range(end + 1) for state in disk.states(cut))
    return any(found not in allowed or (cut == end and found != new) for cut, found in states)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        desk = Path(folder).resolve()

        def run(*arguments, **options):
            ended = visiond(program, *arguments, **options)
            if ended.returncode != 0:
                sys.exit(f"{arguments}: status {ended.returncode}: {ended.stderr.decode()}")
            return ended

        run("keys", desk / "team", "--no-password")
        key = (desk / "team.pub").read_text().splitlines()[1]
        for version in (1, 2):
            shutil.copy(ROOT / "tests/vm/tiny.onnx", desk / "tiny.onnx")
            # A card whose size differs, so that halves would show.
            card = (ROOT / "tests/vm/tiny.toml").read_text() + f"# version {version}\n" * 500 * version
            (desk / "tiny.toml").write_text(card)
            out = desk / f"street-{version}.visiond"
            run("make", "--no-proof", desk / "tiny.onnx", "--name", "street", "--version", version, "-o", out)
            run("sign", out, "--key", desk / "team.key")
            keys = f'format = 1\nversion = {version}\nthreshold = 1\n[[key]]\nname = "team"\nkey = "{key}"\n'
            (desk / f"keys-{version}.toml").write_text(keys + f"# version {version}\n" * 500 * version)
            run("sign", "--keys", desk / f"keys-{version}.toml", "--key", desk / "team.key")
        run("publish", desk / "street-2.visiond", desk / "published")
        for version in (1, 2):
            run("publish", "--keys", desk / f"keys-{version}.toml", desk / "published")
        named = ("--key", desk / "team.pub")
        for name, versions in (("one", (1,)), ("both", (1, 2))):
            for version in versions:
                run("install", desk / f"street-{version}.visiond", *named, "--store", desk / name)
        shutil.copytree(desk / "one", desk / "with-keys", symlinks=True)
        run("install", "--keys", desk / "keys-1.toml", "--store", desk / "with-keys")
        follow = ("follow", "street", "--once", "--source", desk / "published", "--url", f"unix:{desk}/no.sock")
        commands = {
            "install": ("one", ("install", desk / "street-2.visiond", *named)),
            "rollback": ("both", ("rollback", "street")),
            "follow": ("with-keys", follow),
            "install --keys": ("with-keys", ("install", "--keys", desk / "keys-2.toml")),
        }
        store, state, disks, passed = desk / "store", desk / "state", {}, 0
        for name, (before, command) in commands.items():
            shutil.copytree(desk / before, store, symlinks=True)
            log = desk / "logs" / name.replace(" ", "")
            log.mkdir(parents=True)
            run(*command, "--store", store, log=log)
            old, new = loaded(desk / before), loaded(store)
            shutil.rmtree(store)
            disk = Disk(desk / before, calls(log, store))
            disks[name] = disk, old, new
            # Each may change by itself: `follow` takes the keys first.
            allowed = {(version, keys) for version in (old[0], new[0]) for keys in (old[1], new[1])}
            known, cuts = {}, len(disk.changes)
            for cut in range(cuts + 1):
                for tree, contents in disk.states(cut):
                    found = used(tree, contents)
                    at = f"{name}, cut after {cut} of {cuts} calls"
                    if found not in allowed or (cut == cuts and found != new):
                        sys.exit(f"{at}: what is used is neither old nor new: {tree}")
                    known.setdefault(described(tree, contents), (at, tree, contents, found))
            for at, tree, contents, found in known.values():
                write(tree, contents, state)
                listed = json.loads(run("list", "--json", "--store", state).stdout)
                version = 1 if found[0] == old[0] else 2
                if name == "rollback":
                    version = 3 - version
                if [one["current"]["version"] for one in listed] != [version]:
                    sys.exit(f"{at}: version {version} is current, and `list` says {listed}")
                # After a rollback, there is nothing to go back to.
                done = found == new and name == "rollback"
                ended = visiond(program, *command, "--store", state)
                if not done and (ended.returncode != 0 or loaded(state) != new):
                    sys.exit(f"{at}: the same command then ends with {ended.returncode}: {ended.stderr.decode()}")
                shutil.rmtree(state)
            passed += len(known)
            print(f"{name}: {cuts} calls, {len(known)} states", flush=True)
        for what, names in NEEDED.items():
            def is_kept(change, is_of=what):
                # Files of a store have a dot in their names; folders have none.
                is_file = "." in Path(change[1]).name
                return change[0] not in ("fsync", "fdatasync") or is_file != (is_of == "files")

            for name in names:
                disk, old, new = disks[name]
                before, _ = commands[name]
                if not broken(Disk(desk / before, [change for change in disk.changes if is_kept(change)]), old, new):
                    sys.exit(f"{name}: without syncs of {what} nothing breaks, so this script tests nothing")
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
