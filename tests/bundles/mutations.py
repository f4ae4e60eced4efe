#!/usr/bin/env python3
"""Gives malicious bundles, signed by a key that is trusted where it matters, to the real program.

    tests/bundles/mutations.py [--visiond PROGRAM] [--count 500] [--seed 1]

Version 2 of a bundle is installed. Then `bundle inspect`, `verify` and `install` get version 3 cut at many lengths, with flipped bits in
the file and in the archive inside it, with other keys and signatures, with links, paths that lead outside, bombs, and manifests that
lie. The script has its own archives, frames of zstd and signatures of minisign, so that nothing is corrected on the way. Wants, each
time: an exit status for the reason and one sentence, or the same bundle where only padding has changed; at most 512 MiB of memory, which
is also the limit of the process; version 2 whole and current, and no file more anywhere. Needs openssl (1.1.1 or newer).
"""

import argparse
import base64
import hashlib
import io
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 512 << 20
# Only turns a hang into a failure.
HANG_S = 120
BLOCK = 128 << 10
PICTURES = [ROOT / "tests/media/astronaut.png", ROOT / "tests/media/coffee.png"]
# Statuses that name a reason: the bundle is of no use here, the file is damaged, the disk is too small.
REASONS = {4, 5, 6}


def frame(*pieces, window=0x50, ends=True):
    """A frame of zstd. A piece is bytes, which stay as they are, or a byte and how often it comes, which takes 4 bytes for each 128 KiB.
    Without `ends`, further blocks must follow."""
    blocks = []
    for piece in pieces:
        if isinstance(piece, tuple):
            byte, left = piece
            while left > 0:
                size = min(left, BLOCK)
                blocks.append((1, size, byte))
                left -= size
        else:
            blocks += [(0, len(piece[at : at + BLOCK]), piece[at : at + BLOCK]) for at in range(0, len(piece), BLOCK)]
    out = [b"\x28\xb5\x2f\xfd\x00", bytes([window])]
    for number, (kind, size, contents) in enumerate(blocks):
        out.append((size << 3 | kind << 1 | (ends and number == len(blocks) - 1)).to_bytes(3, "little") + contents)
    return b"".join(out)


def entry(name, contents=b"", kind=tarfile.REGTYPE, size=None, link=""):
    """An entry of a tar archive, with a size that may lie."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(contents) if size is None else size
    # Sizes from 8 GiB on are GNU's.
    form = tarfile.USTAR_FORMAT if info.size < 8 << 30 else tarfile.GNU_FORMAT
    return info.tobuf(form) + contents + bytes(-len(contents) % 512)


END = bytes(1024)


class Key:
    """A secret key of minisign without a password, which signs any text."""

    def __init__(self, path):
        raw = base64.b64decode(path.read_text().splitlines()[1])
        self.number, seed = raw[54:62], raw[62:94]
        self.pem = path.with_suffix(".pem")
        der = base64.b64encode(bytes.fromhex("302e020100300506032b657004220420") + seed).decode()
        self.pem.write_text(f"-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n")

    def raw(self, message):
        path = self.pem.with_suffix(".message")
        path.write_bytes(message)
        return subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.pem, "-in", path], capture_output=True, check=True).stdout

    def sign(self, text, number=None, kind=b"ED"):
        comment = b"street 3"
        signature = self.raw(hashlib.blake2b(text).digest() if kind == b"ED" else text)
        whole = self.raw(signature + comment)
        line = base64.b64encode(kind + (number or self.number) + signature)
        return b"untrusted comment: x\n" + line + b"\ntrusted comment: " + comment + b"\n" + base64.b64encode(whole) + b"\n"


def tree(folder):
    """Every path below a folder, with the contents of files and where links lead."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


class Desk:
    def __init__(self, visiond, folder):
        self.visiond, self.folder, self.store = visiond, folder, folder / "in/models"
        self.bundle = folder / "in/street-3.visiond"
        self.store.mkdir(parents=True)
        self.wrong, self.statuses, self.said, self.most_kib, self.slowest = [], Counter(), {}, 0, 0
        self.cases = self.accepted = 0
        for name in ("tiny.onnx", "tiny.toml"):
            shutil.copy(ROOT / "tests/vm" / name, folder)
        for name in ("team", "other"):
            self.say("bundle", "keys", folder / name, "--no-password")
        self.key, self.other = Key(folder / "team.key"), Key(folder / "other.key")
        expected = folder / "expected.json"
        expected.write_text(self.say("detect", "--json", "--model", folder / "tiny.onnx", *PICTURES))
        for version in (1, 2, 3):
            out = folder / f"street-{version}.visiond"
            words = [word for picture in PICTURES for word in ("--pictures", picture)]
            self.say("bundle", "make", folder / "tiny.onnx", "--name", "street", "--version", version, "-o", out, "--reference", expected, *words)
            self.say("bundle", "sign", out, "--key", folder / "team.key")
        self.good = {version: (folder / f"street-{version}.visiond").read_bytes() for version in (1, 2, 3)}
        self.named = ["--key", folder / "team.pub", "--store", self.store]
        self.say("bundle", "install", folder / "street-2.visiond", *self.named)
        self.before = tree(folder / "in")
        shutil.copytree(self.store, folder / "kept", symlinks=True)
        # The third version as an archive: its manifest, and its files.
        third = folder / "third"
        self.say("bundle", "install", folder / "street-3.visiond", "--key", folder / "team.pub", "--store", third)
        self.text = (third / "street/3/manifest.toml").read_bytes()
        paths = re.findall(rb'^path = "(.*)"$', self.text, re.M)
        self.files = [(path.decode(), (third / "street/3" / path.decode()).read_bytes()) for path in paths]

    def say(self, *words):
        done = subprocess.run([self.visiond, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"visiond {' '.join(map(str, words))}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def run(self, *words):
        """Runs a command with little memory; returns its status and what it said."""

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

        with tempfile.TemporaryFile() as said:
            begin = time.monotonic()
            process = subprocess.Popen(
                ["timeout", str(HANG_S), self.visiond, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limit
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.slowest = max(self.slowest, time.monotonic() - begin)
            said.seek(0)
            self.most_kib = max(self.most_kib, usage.ru_maxrss)
            return process.returncode, said.read().decode(errors="replace"), usage.ru_maxrss

    def signed(self, text=None, files=None, key=None, signature=None, more=b""):
        """An archive with this manifest, its signature, and these entries."""
        text = self.text if text is None else text
        signature = (key or self.key).sign(text) if signature is None else signature
        files = b"".join(entry(*file) for file in self.files) if files is None else files
        return entry("manifest.toml", text) + entry("manifest.toml.minisig", signature) + files + more + END

    def check(self, name, contents, same=False, inspect=True):
        """Tries a file. `same`: it may also be installed, if it is version 3."""
        self.cases += 1
        if not (isinstance(contents, Path)):
            self.bundle.write_bytes(contents)
        commands = [["inspect", self.bundle]] if inspect else []
        commands += [["verify", self.bundle, "--key", self.folder / "team.pub"], ["install", self.bundle, *self.named]]
        for command in commands:
            status, said, kib = self.run("bundle", *command)
            fault = None
            if "panicked" in said or status not in REASONS | {0}:
                fault = f"status {status}"
            elif status and (not said.startswith("visiond: ") or said.count("\n") != 1):
                fault = "not one sentence"
            elif kib > MEMORY >> 10:
                fault = f"{kib} KiB"
            elif status == 0 and command[0] == "install" and not same and not said.endswith(" is already installed\n"):
                fault = "installed"
            if fault:
                self.wrong.append(f"{name}: {command[0]}: {fault}: {said[-600:]}")
            if command[0] == "install":
                self.statuses[status] += 1
                self.said[name] = said.strip().replace(str(self.folder), "DIR")[:200]
        self.bundle.unlink()
        if status == 0 and same:
            self.accepted += 1
            third = self.store / "street/3"
            if os.readlink(self.store / "street/current") != "3" or any((third / path).read_bytes() != contents for path, contents in self.files):
                self.wrong.append(f"{name}: something else was installed")
            shutil.rmtree(self.store)
            shutil.copytree(self.folder / "kept", self.store, symlinks=True)
        elif (after := tree(self.folder / "in")) != self.before:
            changed = sorted(path for path in {*after, *self.before} if after.get(path) != self.before.get(path))
            self.wrong.append(f"{name}: the store has changed: {changed[:5]}")
            shutil.rmtree(self.store)
            shutil.copytree(self.folder / "kept", self.store, symlinks=True)


def damage(desk, count, rng):
    """Cuts and flipped bits, in the file and in the archive."""
    whole = desk.good[3]
    lengths = {*range(0, 200, 5), *range(len(whole) - 20, len(whole)), *(rng.randrange(len(whole)) for _ in range(count))}
    for length in sorted(lengths)[:: 1 if count >= 100 else 8]:
        desk.check(f"cut at {length}", whole[:length])
    for number in range(count):
        changed = bytearray(whole)
        at = rng.randrange(8 * len(changed))
        changed[at // 8] ^= 1 << at % 8
        desk.check(f"bit {at} flipped", bytes(changed), same=True)
    archive = desk.signed()
    for number in range(count):
        changed = bytearray(archive)
        # Every second one in the part that is read before the signature is known.
        at = rng.randrange(8 * (len(desk.text) + 2048 if number % 2 else len(changed)))
        changed[at // 8] ^= 1 << at % 8
        desk.check(f"bit {at} of the archive flipped", frame(bytes(changed)), same=True)


def keys(desk):
    """Signatures that are none of this bundle."""
    for version in (1, 2):
        desk.check(f"version {version}", desk.good[version])
    signature = desk.key.sign(desk.text.replace(b"version = 3", b"version = 4"))
    desk.check("the signature of another version", frame(desk.signed(signature=signature)))
    desk.check("another key", frame(desk.signed(key=desk.other)))
    forged = desk.other.sign(desk.text, number=desk.key.number)
    desk.check("another key under the trusted one's number", frame(desk.signed(signature=forged)))
    desk.check("the trusted key under another number", frame(desk.signed(signature=desk.key.sign(desk.text, number=desk.other.number))))
    desk.check("a signature without a hash, of old minisign", frame(desk.signed(signature=desk.key.sign(desk.text, kind=b"Ed"))))
    good = desk.key.sign(desk.text)
    lines = good.splitlines(keepends=True)
    desk.check("a changed trusted comment", frame(desk.signed(signature=good.replace(b"street 3", b"street 9"))))
    for name, signature in (
        ("no signature", b""),
        ("a signature of zeros", base64.b64encode(b"ED" + desk.key.number + bytes(64))),
        ("a signature of one line", lines[1]),
        ("a signature that is cut", good[:-20]),
        ("a signature of 5 KiB", good + b"#" * 5000),
        ("a signature that is no text", bytes(range(256))),
    ):
        desk.check(name, frame(desk.signed(signature=signature)))
    unsigned = entry("manifest.toml", desk.text) + b"".join(entry(*file) for file in desk.files) + END
    desk.check("an entry less: the signature", frame(unsigned))
    twice = entry("manifest.toml", desk.text) + entry("manifest.toml", desk.text) + entry("manifest.toml.minisig", good) + END
    desk.check("two manifests", frame(twice))


def entries(desk):
    """Archives whose entries are not those of the signed manifest."""
    (first, contents), *rest = desk.files
    others = b"".join(entry(*file) for file in rest)
    for name, kind, link in (
        ("a symbolic link", tarfile.SYMTYPE, "/etc/passwd"),
        ("a symbolic link outside", tarfile.SYMTYPE, "../../../../in/evil"),
        ("a hard link", tarfile.LNKTYPE, "../../evil"),
        ("a folder", tarfile.DIRTYPE, ""),
        ("a pipe", tarfile.FIFOTYPE, ""),
        ("a device", tarfile.CHRTYPE, ""),
        ("a sparse file", tarfile.GNUTYPE_SPARSE, ""),
    ):
        desk.check(name, frame(desk.signed(files=entry(first, b"", kind, link=link) + others)))
    pax = b"27 path=../../../../in/evil\n"
    desk.check("a pax header with a path", frame(desk.signed(files=entry("x", pax, tarfile.XHDTYPE) + entry(first, contents) + others)))
    desk.check("a global pax header", frame(desk.signed(files=entry("x", pax, tarfile.XGLTYPE) + entry(first, contents) + others)))
    long = entry("././@LongLink", b"../" * 200 + b"in/evil\0", tarfile.GNUTYPE_LONGNAME)
    desk.check("a GNU name", frame(desk.signed(files=long + entry(first, contents) + others)))
    for path in ("../../../evil", "/tmp/visiond-evil", f"{first}/../../evil", "./" + first, first.upper(), first + "/"):
        desk.check(f"an entry {path}", frame(desk.signed(files=entry(path, contents) + others)))
    desk.check("files in another order", frame(desk.signed(files=b"".join(entry(*file) for file in reversed(desk.files)))))
    desk.check("a file twice", frame(desk.signed(files=entry(first, contents) + entry(first, contents) + others)))
    desk.check("a file more", frame(desk.signed(more=entry("more", b"more"))))
    desk.check("a file less", frame(desk.signed(files=others)))
    desk.check("something after the archive", frame(desk.signed() + b"more"))
    desk.check("a second frame", frame(desk.signed()) + frame(desk.signed()))


def bombs(desk):
    """Little that becomes much."""
    head = entry("manifest.toml", desk.text) + entry("manifest.toml.minisig", desk.key.sign(desk.text))
    (first, contents), *rest = desk.files
    for window in (0xA8, 0xB0, 0xFF):
        desk.check(f"a window of zstd, descriptor {window:#x}", frame(desk.signed(), window=window))
    size = 8 << 30
    desk.check("a manifest of 8 GiB", frame(entry("manifest.toml", b"", size=size), (b"#", size)))
    desk.check("a manifest of 4 MiB of brackets", frame(entry("manifest.toml", b"[" * (4 << 20)) + END))
    desk.check("a signature of 8 GiB", frame(entry("manifest.toml", desk.text) + entry("manifest.toml.minisig", b"", size=size), (b"#", size)))
    desk.check("a file of 8 GiB", frame(head + entry(first, b"", size=size), (b"\0", size)))
    desk.check("a file whose size has every bit", frame(head + entry(first, contents)[:124] + b"\xff" * 12 + entry(first, contents)[136:]))
    desk.check("8 GiB of zeros after the archive", frame(desk.signed(), (b"\0", size)))
    desk.check("8 GiB of zeros instead of an archive", frame((b"\0", size)))
    # A million entries: the same block again and again.
    million = entry("a", b"") * (BLOCK // 512)
    with open(desk.bundle, "wb") as file:
        file.write(frame(desk.signed()[: -len(END)], ends=False))
        for _ in range(1_000_000 * 512 // BLOCK):
            file.write((BLOCK << 3).to_bytes(3, "little") + million)
        # The last block, which is empty.
        file.write((1).to_bytes(3, "little"))
    desk.check("a million entries", desk.bundle)
    # A bundle that is as it says, of zeros.
    zeros = 1 << 30
    digest = hashlib.sha256()
    for _ in range(zeros >> 20):
        digest.update(bytes(1 << 20))
    text = desk.text + f'\n[[file]]\npath = "zeros.bin"\nbytes = {zeros}\nsha256 = "{digest.hexdigest()}"\n'.encode()
    start = desk.signed(text)[: -len(END)] + entry("zeros.bin", b"", size=zeros)
    desk.bundle.write_bytes(frame(start, (b"\0", zeros), END))
    status, said, kib = desk.run("bundle", "verify", desk.bundle, "--key", desk.folder / "team.pub")
    if status or kib > MEMORY >> 10:
        desk.wrong.append(f"a bundle with a GiB of zeros is as it says: status {status}, {kib} KiB: {said}")
    wrong = text.replace(digest.hexdigest().encode(), b"0" * 64)
    start = desk.signed(wrong)[: -len(END)] + entry("zeros.bin", b"", size=zeros)
    desk.check("a GiB of zeros with another hash", frame(start, (b"\0", zeros), END))


def manifests(desk):
    """Signed manifests that say what is not so, or may not be."""
    text = desk.text
    (first, contents), *_ = desk.files
    digest = hashlib.sha256(contents).hexdigest().encode()
    size = f"bytes = {len(contents)}\n".encode()
    more = lambda path, count=1: b"".join(
        f'\n[[file]]\npath = "{path}{number or ""}"\nbytes = 0\nsha256 = "{hashlib.sha256(b"").hexdigest()}"\n'.encode() for number in range(count)
    )
    changes = {
        "a byte more": text.replace(size, f"bytes = {len(contents) + 1}\n".encode()),
        "a byte less": text.replace(size, f"bytes = {len(contents) - 1}\n".encode()),
        "no bytes": text.replace(size, b"bytes = 0\n"),
        "bytes below zero": text.replace(size, b"bytes = -1\n"),
        "all bytes there are": text.replace(size, b"bytes = 9223372036854775807\n"),
        "60 GiB": text.replace(size, f"bytes = {60 << 30}\n".encode()),
        "another hash": text.replace(digest, digest[::-1]),
        "a hash of one digit": text.replace(digest, b"0"),
        "another format": text.replace(b"format = 1", b"format = 2"),
        "version 0": text.replace(b"version = 3", b"version = 0"),
        "version -1": text.replace(b"version = 3", b"version = -1"),
        "a version that is text": text.replace(b"version = 3", b'version = "3"'),
        "a version above all": text.replace(b"version = 3", b"version = 18446744073709551616"),
        "the installed version": text.replace(b"version = 3", b"version = 2"),
        "an older version": text.replace(b"version = 3", b"version = 1"),
        "a name outside": text.replace(b'name = "street"', b'name = "../evil"'),
        "an absolute name": text.replace(b'name = "street"', b'name = "/tmp/evil"'),
        "no name": text.replace(b'name = "street"', b'name = ""'),
        "a name of 1,000 letters": text.replace(b'name = "street"', b'name = "' + b"a" * 1000 + b'"'),
        "a newer visiond": text.replace(b"version = 3", b'version = 3\nminimum_visiond = "99.0"'),
        "an unknown key": text.replace(b"version = 3", b"version = 3\nrun = 'rm -rf /'"),
        "a key twice": text.replace(b"version = 3", b"version = 3\nversion = 4"),
        "a model that is no file of it": text.replace(b'file = "', b'file = "x'),
        "not UTF-8": text + b"# \xff\n",
        "nothing": b"",
        "10,001 files": text + more("f", 10_001),
        "38,000 files": text + more("f", 38_000),
        "a file that is a folder as well": text + more(first + "/a"),
        "a file twice": text + more(first),
        "a key with a million dots": b"a" + b".a" * 1_000_000 + b" = 1\n",
        "a million tables": b"[a" + b".a" * 1_000_000 + b"]\n",
        "a million arrays": b"a = " + b"[" * 1_000_000 + b"]" * 1_000_000 + b"\n",
        "a million inline tables": b"a = " + b"{a=" * 1_000_000 + b"1" + b"}" * 1_000_000 + b"\n",
        "300,000 keys": b"".join(b"k%d = 1\n" % number for number in range(300_000)),
        "a text of 4 MiB": b'name = "' + b"a" * ((4 << 20) - 100) + b'"\n',
    }
    paths = ("../evil", "../../../../../../tmp/visiond-evil", "/etc/evil", "a/../../evil", "a//b", "./a", ".a", "-a", "a\\\\b", "a b", "ä", "a" * 101)
    paths += ("manifest.toml", "manifest.toml.minisig", "model", "model.json", "model.toml", "built", "built/a", "model/a")
    for path in paths:
        changes[f"a path {path}"] = text + more(path)
    for name, changed in changes.items():
        assert changed != text, name
        desk.check(name, frame(desk.signed(changed)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--count", type=int, default=500, help="of cuts, of flipped bits in the file, and of those in the archive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print each refusal")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="visiond-mutations-") as folder:
        desk = Desk(os.path.abspath(args.visiond), Path(folder))
        # What the script itself makes is installed, so that refusals have another reason.
        desk.check("the same bundle", frame(desk.signed()), same=True)
        if desk.accepted != 1:
            sys.exit(f"the script makes no bundle: {desk.said}")
        for part in (keys, entries, manifests, bombs):
            part(desk)
        structured = desk.cases - 1
        damage(desk, args.count, random.Random(args.seed))
        if args.verbose:
            print("\n".join(f"{name}: {said}" for name, said in desk.said.items()))
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(desk.statuses.items()))
        print(f"{desk.cases} bundles, {structured} of them made by hand, 3 commands each; status of install: {statuses}")
        print(f"installed, and the same as version 3: {desk.accepted}; at most {desk.most_kib / 1024:.0f} MiB, at most {desk.slowest:.1f} s a command")
        print("\n".join(desk.wrong) or "each refused, or the same")
        sys.exit(bool(desk.wrong))


if __name__ == "__main__":
    main()
