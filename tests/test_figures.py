"""Tests of tests/figures.py on a separate repository."""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path

import figures

README = """# x

## Promises and measurements

- **Fast.** A frame takes {}.
- **Good.** No number here.

## Read on
"""
LINES = "".join(f"let a{number} = {number};\n" for number in range(100))


class StaleFigures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.git("init", "--quiet")
        self.write("src/fast.rs", LINES)
        self.measured = self.commit()
        self.write("README.md", README.format("[1 ms](docs/figures.md#speed)"))
        self.write("docs/figures.md", f"# Figures\n\n## Speed\n<!-- measured {self.measured} src -->\n1 ms.\n")
        self.commit()

    def git(self, *words):
        named = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *named, *words], cwd=self.root, capture_output=True, check=True, text=True).stdout

    def write(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")
        return self.git("rev-parse", "--short=8", "HEAD").strip()

    def check(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = figures.main(self.root, words)
        return status, out.getvalue()

    def test_a_figure_whose_code_is_the_same_may_be_shown(self):
        self.assertEqual(self.check(), (0, ""))

    def test_readme_may_not_show_a_figure_whose_code_has_changed(self):
        self.write("src/fast.rs", LINES.replace("let a1", "let b1"))
        self.commit()
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("README.md:5: docs/figures.md#speed: 11.0 % of the code has changed", out)

    def test_what_is_not_committed_yet_counts(self):
        self.write("src/fast.rs", LINES + "".join(f"let b{number} = 0;\n" for number in range(5)))
        self.assertEqual(self.check(), (0, ""))
        self.write("src/new.rs", "let b5 = 0;\n")
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("docs/figures.md#speed: 5.7 % of the code has changed", out)
        (self.root / "src/new.rs").unlink()
        (self.root / "src/fast.rs").unlink()
        self.assertIn("100.0 % of the code has changed", self.check()[1])

    def test_a_replaced_line_counts_once(self):
        replaced = LINES.replace("let a1 =", "let b =").replace("let a2 =", "let c =").replace("let a3 =", "let d =")
        self.write("src/fast.rs", replaced.replace("let a4 =", "let e =").replace("let a5 =", "let f ="))
        self.assertEqual(self.check(), (0, ""))
        self.write("src/fast.rs", (self.root / "src/fast.rs").read_text().replace("let a6 =", "let g ="))
        self.assertEqual(self.check()[0], 1)

    def test_docs_may_keep_a_stale_figure_with_its_mark(self):
        clean = (self.root / "docs/figures.md").read_text()
        self.write("README.md", README.format("little time"))
        self.write("src/fast.rs", LINES + LINES.replace("a", "b"))
        self.commit()
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("run `python3 tests/figures.py --mark`", out)
        self.assertEqual(self.check("--mark")[0], 0)
        marked = (self.root / "docs/figures.md").read_text()
        self.assertIn(f"\n*Measured at {self.measured}; what it measures has changed since.*\n\n1 ms.", marked)
        status, out = self.check("--mark")
        self.assertEqual((status, (self.root / "docs/figures.md").read_text()), (0, marked))
        self.assertNotIn("--mark", out)
        self.write("src/fast.rs", LINES)
        self.commit()
        self.assertEqual(self.check()[0], 1)
        self.check("--mark")
        self.assertEqual((self.root / "docs/figures.md").read_text(), clean)

    def test_comments_tests_and_moved_code_change_no_figure(self):
        comments = "".join(f"// {number}\n\n" for number in range(100))
        inside = "\n#[cfg(test)]\nmod tests {\n" + LINES.replace("a", "t") + "}\n"
        self.write("src/fast.rs", comments + LINES[100:] + inside)
        self.write("src/tail.rs", LINES[:100])
        self.write("src/tests.rs", LINES.replace("a", "c"))
        self.write("src/filter_tests.rs", LINES.replace("a", "d"))
        self.commit()
        self.assertEqual(self.check()[0], 0)

    def test_a_file_under_another_name_is_the_same_code(self):
        self.write("docs/figures.md", (self.root / "docs/figures.md").read_text().replace(" src ", " lib "))
        (self.root / "src/fast.rs").rename(self.root / "src/quick.rs")
        (self.root / "src").rename(self.root / "lib")
        self.commit()
        self.assertEqual(self.check()[0], 0)
        self.write("lib/quick.rs", LINES + LINES.replace("a", "b"))
        self.assertIn("% of the code has changed", self.check()[1])

    def test_a_number_needs_a_source(self):
        self.write("README.md", README.format("1 ms"))
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("README.md:5: a figure without its source", out)
        self.write("README.md", README.format("[1 ms](tests/e2e/speed.rs)"))
        self.assertEqual(self.check()[0], 0)

    def test_a_path_that_no_longer_exists_or_never_did_is_no_source(self):
        self.write("docs/figures.md", f"## Speed\n<!-- measured {self.measured} src/slow -->\n1 ms.\n")
        self.assertEqual(self.check()[0], 1)
        self.write("docs/figures.md", "## Speed\n<!-- tested by tests/speed.rs -->\n1 ms.\n")
        self.assertEqual(self.check()[0], 1)
        self.write("docs/figures.md", "## Speed\n1 ms.\n")
        self.assertEqual(self.check()[0], 1)

    def test_a_figure_whose_commit_is_in_another_history_is_skipped(self):
        mark = "*Measured at 0123abcd; what it measures has changed since.*\n\n"
        other = f"\n## Size\n<!-- measured 0123abcd src -->\n{mark}1 MB.\n"
        self.write("docs/figures.md", (self.root / "docs/figures.md").read_text() + other)
        self.write("README.md", README.format("[1 MB](docs/figures.md#size)"))
        said = "docs/figures.md:8: size: skipped: HEAD does not descend from 0123abcd\n1 passed, 0 failed, 1 skipped\n"
        self.assertEqual(self.check(), (0, said))
        self.check("--mark")
        self.assertTrue((self.root / "docs/figures.md").read_text().endswith(other))

    def test_without_the_history_it_is_skipped(self):
        self.write("README.md", README.format("1 ms"))
        self.commit()
        shallow = self.root / "shallow"
        self.git("clone", "--quiet", "--depth", "1", f"file://{self.root}", str(shallow))
        self.root = shallow
        status, out = self.check()
        self.assertEqual(status, 0)
        self.assertTrue(out.endswith("skipped: this is a shallow clone\n0 passed, 0 failed, 1 skipped\n"), out)


if __name__ == "__main__":
    unittest.main()
