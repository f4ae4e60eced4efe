#!/usr/bin/env python3
"""Kills `visiond bundle install`, `rollback` and `follow` at every system call that changes the store, and checks what is left.

    tests/bundles/kills.py PROGRAM

Version 1 is installed. Then version 2 is, by hand or by `follow`, or version 1 is gone back to, and the process is killed at the first use of each such
call, at the second, and so on until it ends by itself. After each kill the current model must be version 1 or version 2, every
byte of it, and the same command must succeed. Needs strace. What a disk makes of calls that were not synced
is tested by power_cuts.py.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# All calls by which a store changes. Those that visiond does not use cost one run each.
CALLS = """
    openat write pwrite64 copy_file_range sendfile mkdir mkdirat rename renameat renameat2 symlink symlinkat unlink unlinkat rmdir fsync
    fdatasync chmod fchmod fchmodat flock ftruncate close
""".split()


def visiond(program, *arguments, kill_at=None):
    """Runs a command; returns its exit status. `kill_at` is a system call and which of its uses the command does not survive."""
    command = [program, "bundle", *map(str, arguments)]
    if kill_at:
        call, nth = kill_at
        # Calls outside of the store (libraries, the bundle itself) count as well: some kills come before anything changes.
        command = ["strace", "-qq", "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={nth}", *command]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def current(store):
    """Hashes of the current version's files."""
    folder = store / "street/current"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        desk = Path(folder)
        assert visiond(program, "keys", desk / "team", "--no-password") == 0
        for version in (1, 2):
            shutil.copy(ROOT / "tests/vm/tiny.onnx", desk / "tiny.onnx")
            # A card whose size differs, so that halves would show.
            card = (ROOT / "tests/vm/tiny.toml").read_text() + f"# version {version}\n" * 500 * version
            (desk / "tiny.toml").write_text(card)
            out = desk / f"street-{version}.visiond"
            make = ("make", desk / "tiny.onnx", "--name", "street", "--version", version, "-o", out, "--build", "--fp16")
            assert visiond(program, *make) == 0
            assert visiond(program, "sign", out, "--key", desk / "team.key") == 0

        def install(store, version, **options):
            named = ("--key", desk / "team.pub", "--store", store)
            return visiond(program, "install", desk / f"street-{version}.visiond", *named, **options)

        versions = {}
        for version in (1, 2):
            assert install(desk / f"store-{version}", version) == 0
            versions[version] = current(desk / f"store-{version}")
        both = desk / "both"
        assert install(both, 1) == 0 and install(both, 2) == 0

        def rollback(store, _, **options):
            return visiond(program, "rollback", "street", "--store", store, **options)

        assert visiond(program, "publish", desk / "street-2.visiond", desk / "published") == 0

        def follow(store, _, **options):
            # There is no daemon: after the switch, what is watched is tested elsewhere.
            named = ("--key", desk / "team.pub", "--store", store, "--url", f"unix:{desk}/no.sock")
            return visiond(program, "follow", "street", "--once", "--source", desk / "published", *named, **options)

        kills = 0
        commands = (("install", desk / "store-1", install), ("rollback", both, rollback), ("follow", desk / "store-1", follow))
        for name, before, command in commands:
            found = {1: 0, 2: 0}
            call, nth = 0, 0
            while call < len(CALLS):
                nth += 1
                at = f"{name}, killed at {CALLS[call]} {nth}"
                store = desk / "store"
                shutil.rmtree(store, ignore_errors=True)
                shutil.copytree(before, store, symlinks=True)
                status = command(store, 2, kill_at=(CALLS[call], nth))
                left = current(store)
                version = next((version for version, files in versions.items() if files == left), None)
                if version is None:
                    sys.exit(f"{at}: the current version is neither 1 nor 2, but {left}")
                if status == 0:
                    call, nth = call + 1, 0
                    continue
                found[version] += 1
                kills += 1
                # A rollback that was complete but for its end has nothing left to go back to.
                again, done = command(store, 2), version == (2 if name == "install" else 1)
                if again != 0 and not done:
                    sys.exit(f"{at}: the same command then ends with {again}")
                if name == "follow" and (again != 0 or current(store) != versions[2]):
                    sys.exit(f"{at}: the same command then ends with {again}, and the current version is not 2")
            print(f"{name}: version 1 was current after {found[1]} kills, version 2 after {found[2]}", flush=True)
    print(f"{kills} passed, 0 failed")


if __name__ == "__main__":
    main()
