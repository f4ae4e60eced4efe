"""Tests of tests/subjects.py on a separate repository."""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path

import subjects


class Subjects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("what was pushed long ago; and more.")

    def git(self, *words):
        named = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *named, *words], cwd=self.root, capture_output=True, check=True, text=True).stdout

    def commit(self, subject):
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)

    def check(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = subjects.main(self.root, words)
        return status, out.getvalue()

    def test_subjects(self):
        for good in ("Add a UDP sink", "Setup: Install promtool on Debian 13", "Process B-frames", "Feed the watchdog", "x" * 72):
            self.assertIsNone(subjects.fault(good), good)
        for bad, why in [
            ("x" * 73, "73 characters"),
            ("Add a sink; fix a test", "two topics"),
            ("Add a sink.", "full stop"),
            ("Adds a sink", "no imperative"),
            ("Added a sink", "no imperative"),
            ("Tests: adding a sink", "no imperative"),
            ("The sink retries", "no imperative"),
            ("", "no imperative"),
        ]:
            self.assertIn(why, subjects.fault(bad) or "", bad)

    def test_without_anything_to_compare_with_it_counts_as_skipped(self):
        status, out = self.check()
        self.assertEqual(status, 0)
        self.assertIn("0 passed, 0 failed, 1 skipped", out)

    def test_commits_since_main_are_checked(self):
        self.git("checkout", "--quiet", "-b", "mine")
        self.commit("Add a sink")
        self.assertEqual(self.check(), (0, ""))
        self.commit("Added a source")
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("Added a source: `added` is no imperative", out)
        self.assertNotIn("pushed", out)

    def test_commits_since_the_upstream_or_the_newest_tag_are_checked(self):
        self.git("tag", "v1")
        self.commit("Added a source")
        self.assertEqual(self.check()[0], 1)
        with tempfile.TemporaryDirectory() as clone:
            self.git("clone", "--quiet", str(self.root), clone)
            self.root = Path(clone)
            self.assertEqual(self.check(), (0, ""))
            self.commit("Fixed it")
            self.assertIn("Fixed it", self.check()[1])

    def test_merges_do_not_count(self):
        self.git("tag", "v1")
        self.git("checkout", "--quiet", "-b", "mine")
        self.commit("Add a sink")
        self.git("checkout", "--quiet", "main")
        self.git("merge", "--quiet", "--no-ff", "--message", "Merged; as one merges", "mine")
        self.assertEqual(self.check(), (0, ""))


if __name__ == "__main__":
    unittest.main()
