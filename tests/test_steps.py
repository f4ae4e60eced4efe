"""Tests of which steps tests/steps.py runs, on a separate repository."""

import ast
import contextlib
import io
import re
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
        # Once a run is ending, it ignores signals.
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
        """Whether the step ran, and its output."""
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


def local_imports(script, folders=()):
    """The repository's files that a Python script imports, and those that these import. It looks in the script's folder, in `folders`
    and in those that stand in the script's statements about `sys.path`."""
    tree = ast.parse((steps.ROOT / script).read_text())
    named = [
        node.value
        for statement in ast.walk(tree)
        if isinstance(statement, (ast.Assign, ast.Expr)) and "sys.path" in ast.unparse(statement)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (steps.ROOT / node.value).is_dir()
    ]
    folders = [str(Path(script).parent), *folders, *named]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in [node.module] if isinstance(node, ast.ImportFrom) else [module.name for module in node.names]:
                files = (f"{folder}/{name}.py" for folder in folders)
                found.update([file for file in files if (steps.ROOT / file).is_file()][:1])
    return found.union(*(local_imports(file, folders) for file in found))


class StepsOfTheGate(unittest.TestCase):
    def setUp(self):
        self.passes = unchanged.Passes(steps.ROOT, None, "")
        with contextlib.ExitStack() as patches:
            # These look at the machine, and the demo may hold port 8790.
            for name in ("port_taken", "no_root", "no_cgroups"):
                patches.enter_context(mock.patch.object(steps, name, lambda *_: None))
            patches.enter_context(mock.patch.object(steps, "X86", True))
            patches.enter_context(mock.patch("subprocess.run", self.without_setup(subprocess.run)))
            self.steps = {step.name: step for step in steps.test(everything=True)}

    def scripts(self, step):
        """The Python scripts that a step runs: of its command, and of the end-to-end tests."""
        if step.name == "e2e":
            texts = [path.read_text() for path in (steps.ROOT / "tests/e2e").glob("*.rs")]
            return {script for text in texts for script in re.findall(r'"(?:\$1/)?(tests/[\w/]+\.py)"', text)}
        words = () if callable(step.command) else (word for word in step.command if (steps.ROOT / word).is_file())
        is_python = lambda file: re.match(r"#!.*python|\"\"\"", (steps.ROOT / file).read_text())
        return {word for word in words if not word.startswith("/") and is_python(word)}

    def test_what_the_scripts_of_a_step_import_is_among_its_inputs(self):
        seen = set()
        for step in self.steps.values():
            names = set(self.passes.names(step))
            for script in self.scripts(step) if names else ():
                needed = {script, *local_imports(script)}
                seen |= needed
                self.assertEqual(needed - names, set(), f"{step.name}, {script}")
        # It finds modules beside a script, in another folder, and those that they import.
        self.assertLessEqual({"tests/web/running.py", "tests/messages.py", "tests/bench/brokers.py", "tests/hostile/cases.py"}, seen)

    def test_the_tiny_network_and_its_card_are_inputs_of_all_that_run_it(self):
        for name in ("e2e", "page", "consume", "fuzz", "chaos", "rtsp", "mutations", "hostile", "vm"):
            missing = {"tests/vm/tiny.onnx", "tests/vm/tiny.toml"} - set(self.passes.names(self.steps[name]))
            self.assertEqual(missing, set(), name)

    def test_documents_alone_leave_the_long_steps_as_they_are(self):
        for name in ("chaos", "rtsp", "hostile", "mutations", "vm"):
            listed = self.passes.files(*self.steps[name].inputs)
            self.assertGreater(len(listed), 100)
            self.assertEqual([file for file in listed if file.startswith("docs/") and file.endswith(".md")], [], name)

    @staticmethod
    def without_setup(run):
        setup = subprocess.CompletedProcess([], 0, stdout="/nowhere\n")
        return lambda command, **more: setup if command[0] == "tests/setup" else run(command, **more)


if __name__ == "__main__":
    unittest.main()
