#!/usr/bin/env python3
"""Looks up the crates in Cargo.lock in RustSec's advisories: known vulnerabilities, crates that were withdrawn or given up.

    tests/advisories.py

Fetches the advisories; offline, it uses those of an earlier run, and prints their age. Without either
nothing is checked, and the step counts as skipped. Prints when the advisories were last checked on this machine.
"""

import datetime
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("VISIOND_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "visiond")
DATABASES = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "advisory-dbs"
# The days of the last check, and of the advisories that it used.
CHECKED = CACHE / "advisories-checked"
DENY = ["cargo-deny", "--locked"]

def database():
    """The day on which the advisories here were fetched."""
    times = [path.stat().st_mtime for path in DATABASES.glob("*/.git/*HEAD")]
    return datetime.date.fromtimestamp(max(times)).isoformat() if times else None

def main():
    last = CHECKED.read_text().strip() if CHECKED.exists() else "never on this machine"
    fetched = subprocess.run([*DENY, "fetch", "db"], cwd=ROOT, capture_output=True, text=True)
    found = database()
    if fetched.returncode != 0:
        lines = [line for line in fetched.stderr.splitlines() if line.strip()]
        print("cannot fetch the advisories:", lines[-1] if lines else "cargo-deny gave no reason", flush=True)
        if not found:
            print(f"the advisories were not checked; last checked: {last}")
            print("0 passed, 0 failed, 1 skipped")
            return 0
    offline = ["--offline"] if fetched.returncode != 0 else []
    checked = subprocess.run([*DENY, *offline, "check", "--hide-inclusion-graph", "advisories"], cwd=ROOT)
    today = datetime.date.today().isoformat()
    if checked.returncode == 0:
        last = f"{today}, with those of {found or today}"
        CHECKED.write_text(last + "\n")
    print(f"last checked without a finding: {last}")
    return checked.returncode

if __name__ == "__main__":
    sys.exit(main())
