"""Tests of which steps tests/steps.py runs, on a repository of its own."""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import steps
import unchanged


class UnchangedSteps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.logs = self.root / "target/steps"
        self.logs.mkdir(parents=True)
        # Ending a run is for good: it ignores signals.
        for name, value in (("ROOT", self.root), ("LOGS", self.logs), ("stop", lambda running: None)):
            patch = mock.patch.object(steps, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.git("init", "--quiet")
        self.write(".gitignore", "target/\n")
        self.write("code/a.rs", "fn a() {}\n")
        self.write("code/run", "reads tests/golden.txt\n")
        self.write("tests/golden.txt", "1\n")
        self.write("docs/a.md", "# A\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")
        self.commit = self.git("rev-parse", "--short", "HEAD").strip()
        self.outside = "compiler 1"

    def git(self, *words):
        named = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *named, *words], cwd=self.root, capture_output=True, check=True, text=True).stdout

    def write(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True, parents=True)
        (self.root / name).write_text(text)

    def step(self, command="echo 3 passed, 0 failed, 0 skipped", **more):
        script = f"echo >>target/runs; {command}"
        return steps.Step("it", ["sh", "-c", script], inputs=("code",), named=("code",), outputs=("target/out",), **more)

    def run_it(self, *more, command="echo 3 passed, 0 failed, 0 skipped", **options):
        """Whether the step ran, and what was printed."""
        runs = self.root / "target/runs"
        runs.unlink(missing_ok=True)
        passes = unchanged.Passes(self.root, self.logs / "passed", self.outside)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            steps.run_all([*more, self.step(command)], passes, **options)
        return runs.exists(), out.getvalue()

    def assert_runs(self, **options):
        self.assertTrue(self.run_it(**options)[0])

    def assert_skipped(self, **options):
        self.assertFalse(self.run_it(**options)[0])

    def test_a_step_that_passed_is_skipped_and_the_table_says_so(self):
        self.assert_runs()
        ran, out = self.run_it()
        self.assertFalse(ran)
        self.assertIn(f"unchanged since it passed at {self.commit}\n", out.split("where the time went")[1])
        self.assertTrue(out.endswith("0 passed, 0 failed, 0 skipped\n"), out)

    def test_a_change_in_an_input_runs_it(self):
        self.assert_runs()
        self.write("code/a.rs", "fn b() {}\n")
        self.assert_runs()
        self.assert_skipped()

    def test_a_new_file_and_a_removed_one_run_it(self):
        self.assert_runs()
        self.write("code/b.rs", "")
        self.assert_runs()
        (self.root / "code/b.rs").unlink()
        self.assert_runs()
        (self.root / "code/a.rs").unlink()
        self.assert_runs()

    def test_a_change_elsewhere_skips_it(self):
        self.assert_runs()
        self.write("docs/a.md", "# B\n")
        self.write("docs/b.md", "# B\n")
        self.write("target/code/a.rs", "")
        self.assert_skipped()
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "y")
        self.assert_skipped()

    def test_a_file_that_an_input_names_is_an_input(self):
        self.assert_runs()
        self.write("tests/golden.txt", "2\n")
        self.assert_runs()

    def test_another_compiler_or_command_runs_it(self):
        self.assert_runs()
        self.outside = "compiler 2"
        self.assert_runs()
        self.assert_runs(command="echo 4 passed, 0 failed, 0 skipped")
        with mock.patch.dict("os.environ", {"RUSTFLAGS": "-C opt-level=0"}):
            self.assert_runs(command="echo 4 passed, 0 failed, 0 skipped")

    def test_a_step_that_failed_runs_again(self):
        self.assert_runs(command="false")
        self.assert_runs(command="false")
        self.assert_runs()
        self.write("code/a.rs", "broken\n")
        self.assert_runs(command="echo 2 passed, 1 failed, 0 skipped; false")
        self.write("code/a.rs", "fn a() {}\n")
        self.assert_runs()

    def test_a_step_of_which_a_part_was_skipped_runs_again(self):
        self.assert_runs(command="echo 3 passed, 0 failed, 1 skipped")
        self.assert_runs(command="echo 3 passed, 0 failed, 1 skipped")

    def test_a_step_whose_input_changed_while_it_ran_runs_again(self):
        self.assert_runs(command="echo new >code/a.rs; echo 1 passed, 0 failed")
        self.write("code/a.rs", "fn a() {}\n")
        self.assert_runs(command="echo new >code/a.rs; echo 1 passed, 0 failed")

    def test_a_step_whose_output_is_gone_or_another_runs_again(self):
        self.assert_runs(command="echo 1 >target/out; echo 1 passed, 0 failed")
        self.assert_skipped(command="echo 1 >target/out; echo 1 passed, 0 failed")
        self.write("target/out", "2\n")
        self.assert_runs(command="echo 1 >target/out; echo 1 passed, 0 failed")
        (self.root / "target/out").unlink()
        self.assert_runs(command="echo 1 >target/out; echo 1 passed, 0 failed")

    def test_force_runs_all(self):
        self.assert_runs()
        self.assert_runs(force=True)
        self.assert_skipped()

    def test_a_step_after_one_that_is_skipped_still_runs(self):
        self.assert_runs()
        after = steps.Step("after", ["sh", "-c", "echo >>target/after"], ("it",))
        self.assertFalse(self.run_it(after)[0])
        self.assertTrue((self.root / "target/after").exists())


class StepsOfTheGate(unittest.TestCase):
    def test_documents_alone_leave_the_long_steps_as_they_are(self):
        passes = unchanged.Passes(steps.ROOT, None, "")
        long = {"chaos", "rtsp", "hostile", "mutations", "fuzz-bytes", "vm"}
        with contextlib.ExitStack() as patches:
            # What these look for is not asked here, and port 8790 may be the demo's.
            for name in ("port_taken", "no_root", "no_cgroups"):
                patches.enter_context(mock.patch.object(steps, name, lambda: None))
            patches.enter_context(mock.patch.object(steps, "X86", True))
            patches.enter_context(mock.patch("subprocess.run", self.without_setup(subprocess.run)))
            found = {step.name: step for step in steps.test(everything=True)}
        for name in long:
            listed = passes.files(*found[name].inputs)
            self.assertGreater(len(listed), 100)
            self.assertEqual([file for file in listed if file.startswith("docs/") and file.endswith(".md")], [], name)

    @staticmethod
    def without_setup(run):
        setup = subprocess.CompletedProcess([], 0, stdout="/nowhere\n")
        return lambda command, **more: setup if command[0] == "tests/setup" else run(command, **more)


if __name__ == "__main__":
    unittest.main()
