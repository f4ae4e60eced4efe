#!/usr/bin/env python3
"""The weight of each crate in the binary: bytes of code and data of each crate, of the release build with its symbols.

    tests/bench/weight.py [--top N] [BINARY]

Without BINARY it builds one. A generic function counts for the crate that its name begins with, and with the standard library
where its type arguments alone name another; C code has no crate and counts as C.
"""

import argparse
import collections
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PATH = re.compile(r"<*(?:&|mut |\*const |\*mut |\[|\(|dyn )*([A-Za-z_]\w*)::")


def weigh(binary):
    """Bytes of each crate, by the symbols of `binary`."""
    weights = collections.Counter()
    for line in subprocess.run(["nm", "-S", "-C", binary], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split(" ", 3)
        if len(parts) == 4 and parts[1] and parts[2] in "tTrRdDwW":
            crate = PATH.match(parts[3])
            weights[crate[1] if crate else "C"] += int(parts[1], 16)
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", nargs="?", help="an unstripped binary")
    parser.add_argument("--top", type=int, default=25, help="how many crates to print [default: 25]")
    args = parser.parse_args()
    binary = args.binary
    if not binary:
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "weight"
        environment = {**os.environ, "CARGO_PROFILE_RELEASE_STRIP": "none", "CARGO_TARGET_DIR": str(target)}
        subprocess.run(["cargo", "build", "--release", "--locked", "--package", "visiond"], cwd=ROOT, env=environment, check=True)
        binary = target / "release/visiond"
    weights = weigh(binary)
    for crate, size in weights.most_common(args.top):
        print(f"{size / 1e6:6.2f} MB  {crate}")
    print(f"{sum(weights.values()) / 1e6:6.2f} MB  all symbols of {len(weights)} crates")
    crates = subprocess.run(
        ["cargo", "tree", "--locked", "--package", "visiond", "--edges", "normal", "--prefix", "none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    print(f"{len({line.removesuffix(' (*)').removesuffix(' (proc-macro)') for line in crates.splitlines()})} crates linked")


if __name__ == "__main__":
    main()
