"""Tests of tests/changelog.py and of ./release, on a separate repository."""

import hashlib
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import changelog

TEXT = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-01-03

### Added
- A [page](docs/a.md#b).

## [0.1.0] - 2026-01-02

The first version.

[Unreleased]: #unreleased
[0.2.0]: #020---2026-01-03
[0.1.0]: #010---2026-01-02
"""
# A stand-in for ./package, with its outputs.
PACKAGE = """#!/bin/sh
mkdir -p target/package
for arch in amd64 arm64; do echo "$arch" >target/package/visiond_0.2.0_$arch.deb; done
"""


class Changelog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tests").mkdir()
        for name in ("release", "tests/changelog.py"):
            shutil.copy(changelog.ROOT / name, self.root / name)
        self.write(".gitignore", "target/\n__pycache__/\n")
        self.write("Cargo.toml", '[workspace.package]\nversion = "0.2.0"\n')
        self.write("Cargo.lock", '[[package]]\nname = "visiond"\nversion = "0.2.0"\n')
        self.write("CHANGELOG.md", TEXT)
        self.write("package", PACKAGE)
        (self.root / "package").chmod(0o755)
        self.git("init", "--quiet")
        self.commit()

    def write(self, name, text):
        (self.root / name).write_text(text)

    def git(self, *words):
        named = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *named, *words], cwd=self.root, capture_output=True, check=True, text=True).stdout

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def release(self, *words):
        # The tag needs a name.
        self.git("config", "user.name", "x")
        self.git("config", "user.email", "x@localhost")
        done = subprocess.run(["./release", *words], cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def faults(self, text):
        self.write("CHANGELOG.md", text)
        return list(changelog.faults(self.root))

    def test_the_newest_version_must_be_that_of_the_sources(self):
        self.assertEqual(self.faults(TEXT), [])
        self.write("Cargo.toml", '[workspace.package]\nversion = "0.3.0"\n')
        found = self.faults(TEXT)
        self.assertEqual(len(found), 2, found)
        self.assertIn("the newest version is 0.2.0, but Cargo.toml has 0.3.0", found[0])
        self.assertIn("Cargo.lock has 0.2.0", found[1])

    def test_a_change_has_one_line_and_versions_fall(self):
        long = TEXT.replace("(docs/a.md#b).", "(docs/a.md#b),\n  and more.")
        self.assertEqual(self.faults(long), ["line 9: a change has one line: shorten it"])
        self.assertIn("versions are not in order", self.faults(TEXT.replace("## [0.1.0]", "## [0.4.0]"))[0])
        self.assertIn("use one of Added", self.faults(TEXT.replace("### Added", "### News"))[0])
        self.assertIn("0.1.0 has no changes", self.faults(TEXT.replace("The first version.", ""))[0])
        self.assertIn("write `## [1.2.3] - 2026-01-31`", self.faults(TEXT.replace(" - 2026-01-02\n\nThe", "\n\nThe"))[0])

    def test_notes_have_links_to_the_files_of_the_tag(self):
        self.assertEqual(changelog.notes(self.root, "0.2.0"), "### Added\n- A [page](../../blob/v0.2.0/docs/a.md#b).")
        self.assertEqual(changelog.notes(self.root, "0.1.0"), "The first version.")
        self.assertFalse(changelog.notes(self.root, "0.3.0"))

    def test_a_dry_run_prints_the_page_and_changes_nothing(self):
        status, out = self.release("--dry-run")
        self.assertEqual(status, 0, out)
        self.assertIn("v0.2.0 would be tagged", out)
        self.assertIn("- A [page](", out)
        self.assertEqual(self.git("tag"), "")
        self.assertFalse((self.root / "target").exists())

    def test_a_release_has_packages_checksums_notes_and_a_tag(self):
        status, out = self.release()
        self.assertEqual(status, 0, out)
        folder = self.root / "target/release-0.2.0"
        self.assertEqual(
            sorted(path.name for path in folder.iterdir()),
            ["SHA256SUMS", "notes.md", "visiond_0.2.0_amd64.deb", "visiond_0.2.0_arm64.deb"],
        )
        sums = (folder / "SHA256SUMS").read_text()
        self.assertIn(f"{hashlib.sha256(b'arm64' + bytes([10])).hexdigest()}  visiond_0.2.0_arm64.deb\n", sums)
        self.assertEqual((folder / "notes.md").read_text(), changelog.notes(self.root, "0.2.0") + "\n")
        self.assertEqual(self.git("cat-file", "-t", "v0.2.0"), "tag\n")
        self.assertEqual(self.git("rev-parse", "v0.2.0^{commit}"), self.git("rev-parse", "HEAD"))

    def test_nothing_is_released_twice_or_with_changes_left(self):
        self.write("more", "x")
        self.assertIn("the working tree has changes", self.release()[1])
        self.write("CHANGELOG.md", TEXT.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n- B.\n"))
        self.commit()
        self.assertIn("changes under Unreleased", self.release()[1])
        self.write("CHANGELOG.md", TEXT)
        self.commit()
        self.git("tag", "v0.2.0")
        status, out = self.release()
        self.assertEqual(status, 1)
        self.assertIn("v0.2.0 already exists", out)
        self.assertFalse((self.root / "target").exists())


if __name__ == "__main__":
    unittest.main()
