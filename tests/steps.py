#!/usr/bin/env python3
"""Runs the steps of ./check, ./test and ./test --all, side by side where they do not compete.

    tests/steps.py check | test | all [--force]

Expects what tests/setup fetches for that size. Prints a line for each step, then where the time went, then the sum of all tests.
The output of a step stays in target/steps/STEP.log, with the commands that it ran. One run at a time: another waits.

`all` skips a step whose inputs are the same as when it last passed here (tests/unchanged.py). `--force`, or the variable CI, runs all.
"""

import contextlib
import fcntl
import json
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from unchanged import Passes, surroundings

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
CACHE = Path(os.environ.get("VISIOND_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "visiond")
LOGS = ROOT / "target/steps"
X86 = platform.machine() == "x86_64"

# Closing lines of those that run tests: passed, failed, skipped.
CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?", re.M)

# For failed runs.
FAILED = re.compile(r"^(?:test .* \.\.\. FAILED|[ ]*(?:FAIL|ERROR)\b.*)$", re.M)

# The line of a skipped Rust test: its name.
SKIPPED = re.compile(r"skipped: ([\w:]+): ")

def counts(log, passed):
    """Passed, failed and skipped tests of a step: what its output says, else the step itself is one."""
    sums = [0, 0, 0]
    for found in CARGO.findall(log) + PLAIN.findall(log)[-1:]:
        sums = [a + int(b or 0) for a, b in zip(sums, found)]
    for ran, notes in UNITTEST.findall(log):
        named = {key: int(number) for key, number in re.findall(r"(\w+)=(\d+)", notes)}
        failed, skipped = named.get("failures", 0) + named.get("errors", 0), named.get("skipped", 0)
        sums = [sums[0] + int(ran) - failed - skipped, sums[1] + failed, sums[2] + skipped]
    skipped = len(set(SKIPPED.findall(log)))
    sums = [sums[0] - skipped, sums[1], sums[2] + skipped]
    if passed:
        return sums if any(sums) else [1, 0, 0]
    return [sums[0], max(sums[1], 1), sums[2]]

class Step:
    """A command, the steps that must have passed before it, and the resources that it needs alone."""

    # Held while a process is started, so that none is started after the stop.
    starting, stopping = threading.Lock(), False

    def __init__(
        self, name, command, after=(), lock=None, cores=1, env=None, title=None, skipped=None, inputs=(), named=(), outputs=()
    ):
        self.name, self.command, self.after, self.lock, self.cores = name, command, after, lock, cores
        self.env, self.title = env or {}, title or name
        # Files whose contents decide the result; those of them whose text names others, which then count too; and, as patterns, what it
        # leaves for others. Without inputs it always runs.
        self.inputs, self.named, self.outputs = inputs and (*inputs, "tests/steps.py"), named, outputs
        # The commit at which it passed with the same inputs, if that is why it does not run.
        self.unchanged = None
        self.process = self.began = self.seconds = self.passed = None
        # Why it does not run; `blocked` if a step before it failed, so that later steps do not run either.
        self.skipped, self.blocked = skipped, False
        self.counts = [0, 0, 1]
        self.log = LOGS / f"{name}.log"

    def start(self):
        self.began = time.monotonic()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        passed = False
        try:
            passed = self.run_commands()
            self.counts = counts(self.log.read_text(errors="replace"), passed)
        except Exception as error:
            self.counts = [0, 1, 0]
            show(f"cannot run {self.title}: {error!r}")
        self.seconds = time.monotonic() - self.began
        # Last: the scheduler reads it.
        self.passed = passed

    def skip_if_unchanged(self, passes):
        """Whether it need not run."""
        self.unchanged = passes.unchanged_since(self)
        if self.unchanged:
            self.skipped, self.counts = f"unchanged since it passed at {self.unchanged}", [0, 0, 0]
        return bool(self.unchanged)

    def run_commands(self):
        commands = self.command() if callable(self.command) else [(self.command, ROOT)]
        passed = True
        with open(self.log, "wb") as log:
            if not commands:
                log.write(b"no test program was built\n")
                return False
            for command, folder in commands:
                log.write(f"$ {shlex.join([*(f'{k}={v}' for k, v in self.env.items()), *map(str, command)])}\n".encode())
                log.flush()
                with Step.starting:
                    if Step.stopping:
                        return False
                    self.process = subprocess.Popen(
                        command,
                        cwd=folder,
                        env={**os.environ, **self.env},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                passed = self.process.wait() == 0 and passed
        return passed

def stop(steps):
    """Stops all running steps and starts no more: sends SIGTERM, then waits 20 s."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with Step.starting:
        Step.stopping = True
    left = [step.process for step in steps if step.process and step.process.poll() is None]
    until = time.monotonic() + 20
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

def show(text):
    print(text, flush=True)

def tail(path, lines=40):
    text = path.read_text(errors="replace").splitlines()
    # Of the Rust test runner, what failed rather than what passed.
    text = [line for line in text if not re.match(r"test .* \.\.\. (ok|ignored)", line)]
    return "\n".join("      " + line for line in text[-lines:])

def run_all(steps, passes=None, force=False):
    """Runs them to the end, whether they pass or not; what waits for a step that failed is skipped, and what is unchanged since it
    passed, unless `force`. Without `passes`, nothing is remembered."""
    digests = {}
    began, free, told = time.monotonic(), max(os.cpu_count() or 1, 2), time.monotonic()
    waiting, running, by_name = list(steps), [], {step.name: step for step in steps}
    try:
        while waiting or running:
            for step in [step for step in running if step.passed is not None]:
                running.remove(step)
                if passes:
                    passes.note(step, digests[step.name])
                nothing = step.passed and not step.counts[0]
                word = "skip" if nothing else "ok  " if step.passed else "FAIL"
                show(f"{word} {step.seconds:6.0f} s  {step.title}")
                if nothing:
                    show(tail(step.log, 3))
                if not step.passed and step.log.exists():
                    show(tail(step.log) + f"\n      all of it: {step.log.relative_to(ROOT)}")
            for step in list(waiting):
                if step.skipped:
                    waiting.remove(step)
                    show(f"skip         -  {step.title}: {step.skipped}")
                    continue
                before = [by_name[name] for name in step.after if name in by_name]
                broken = next((one for one in before if one.passed is False or one.blocked), None)
                if broken:
                    step.skipped, step.blocked = f"after {broken.title}, which did not pass", True
                    continue
                if any(one.passed is None and not one.skipped for one in before):
                    continue
                used = sum(min(one.cores, free) for one in running)
                if running and used + min(step.cores, free) > free:
                    continue
                if step.lock and any(one.lock == step.lock for one in running):
                    continue
                if passes and not force and step.skip_if_unchanged(passes):
                    continue
                waiting.remove(step)
                running.append(step)
                if passes:
                    digests[step.name] = passes.digest(step)
                step.start()
            if time.monotonic() - told > 60 and running:
                told = time.monotonic()
                show("     running: " + ", ".join(f"{one.title} ({told - one.began:.0f} s)" for one in running))
            time.sleep(0.05)
    except KeyboardInterrupt:
        show("interrupted")
        sys.exit(130)
    finally:
        stop(running)
    took = time.monotonic() - began
    show("\nwhere the time went")
    for step in sorted((one for one in steps if one.seconds), key=lambda one: one.seconds, reverse=True):
        passed, failed, skipped = step.counts
        notes = f"{passed} passed" + (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")
        show(f"  {step.seconds:6.0f} s  {step.title:42} {notes}")
    for step in steps:
        if step.unchanged:
            show(f"       -    {step.title:42} {step.skipped}")
    show(f"  {took:6.0f} s  in all, side by side")
    failed = [step for step in steps if step.passed is False]
    if failed:
        show("\nfailed: " + ", ".join(f"{step.title} ({step.log.relative_to(ROOT)})" for step in failed))
        for step in failed:
            log = step.log.read_text(errors="replace") if step.log.exists() else ""
            for line in FAILED.findall(log)[:20]:
                show(f"  {step.name}: {line[:200]}")
    show("\n{} passed, {} failed, {} skipped".format(*(sum(column) for column in zip(*(step.counts for step in steps)))))
    sys.exit(1 if failed else 0)

# --- the steps ---------------------------------------------------------------------------------------------

def cargo(*words):
    return ["cargo", *words]

def build_command(packages):
    """Unit tests of some packages, or without any all that the tests run, in one call of cargo, which tells where it put them."""
    which = [word for package in packages for word in ("--package", package)] if packages else ["--workspace", "--bins", "--examples"]
    out = ["--message-format", "json-render-diagnostics"]
    script = f"exec {shlex.join(cargo('build', *which, '--tests', '--locked', *out))} >{shlex.quote(str(LOGS / 'programs'))}"
    return ["sh", "-c", script]

def programs():
    """Test programs that were built: name, path, folder of the package."""
    found = []
    for line in (LOGS / "programs").read_text().splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = Path(message["manifest_path"]).parent
            found.append((message["target"]["name"], message["executable"], folder))
    return sorted(found)

def unit_tests(*more):
    return lambda: [([path, *more], folder) for name, path, folder in programs() if name != "e2e"]

def end_to_end(*more):
    # They wait for daemons, brokers and children most of the time.
    return lambda: [([path, *more, "--test-threads", "6"], folder) for name, path, folder in programs() if name == "e2e"]

def changed_packages():
    """Packages with files that differ from the last commit, or that it changed where none differ, and those that use them. All,
    where git cannot tell."""

    def names(*words):
        asked = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return asked.stdout.split() if asked.returncode == 0 else ["Cargo.toml"]

    files = names("diff", "--name-only", "HEAD") + names("ls-files", "--others", "--exclude-standard")
    files = files or names("diff", "--name-only", "HEAD~1", "HEAD")
    asked = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package["name"]: package for package in metadata["packages"]}
    folders = {name: Path(package["manifest_path"]).parent.relative_to(ROOT) for name, package in packages.items()}
    # `visiond` is a few lines; the tests from outside are a step of their own.
    tested = [name for name in packages if name not in ("visiond", "visiond-tests")]

    def belong_to(file):
        if file in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml"):
            return tested
        # Tests of the daemon also read documents, configurations and units.
        folder = "daemon" if file.split("/")[0] in ("config", "docs", "systemd") else None
        return [name for name in tested if Path(folder or "/") in folders[name].parents or folders[name] in Path(file).parents]

    changed = {name for file in files for name in belong_to(file)}
    while True:
        uses = lambda name: any(dependency["name"] in changed for dependency in packages[name]["dependencies"])
        more = {name for name in tested if name not in changed and uses(name)}
        if not more:
            return [name for name in tested if name in changed]
        changed |= more

def no_deny():
    """Why the crates cannot be compared with deny.toml."""
    machine = platform.machine()
    return None if machine in ("x86_64", "aarch64") else f"cargo-deny is not published for {machine}"

def lints(after=()):
    # With the fuzzers' targets; nothing is linked, so libFuzzer need not be compiled.
    clippy = cargo("clippy", "--workspace", "--all-targets", "--features", "visiond-fuzz/fuzz", "--locked", "--quiet", "--", "-D", "warnings")
    daemon = ["--package", "visiond", "--package", "visiond-cli", "--no-default-features"]
    daemon_alone = cargo("clippy", *daemon, "--locked", "--quiet", "--", "-D", "warnings")
    deny = ["cargo-deny", "--locked", "check", "-D", "unmatched-skip", "--hide-inclusion-graph", "bans", "licenses", "sources"]
    return [
        Step("format", cargo("fmt", "--all", "--check")),
        Step("links", [sys.executable, "tests/links.py"], title="links in the documents"),
        Step("changelog", [sys.executable, "tests/changelog.py"], title="the changelog and the version"),
        Step("figures", [sys.executable, "tests/figures.py"], title="README shows no stale figure"),
        Step("scripts", [sys.executable, "-m", "unittest", "discover", "-s", "tests"], title="tests of these checks"),
        Step("messages", [sys.executable, "tests/messages.py"], title="messages in the documents"),
        Step("remedies", [sys.executable, "tests/remedies.py"], title="errors have remedies"),
        Step("skips", [sys.executable, "tests/skips.py"], title="no test ends early unnoticed"),
        Step("imports", [sys.executable, "tests/imports.py"], title="no imports in circles"),
        Step("crates", deny, after, title="crates: bans, licences, sources, duplicates", skipped=no_deny()),
        Step("advisories", [sys.executable, "tests/advisories.py"], after, title="crates: known vulnerabilities", skipped=no_deny()),
        Step("lints", clippy, after, "cargo", env={"CUSTOM_LIBFUZZER_PATH": "/nonexistent/libfuzzer.a"}),
        Step("daemon-alone", daemon_alone, after, "cargo", title="lints of the program without the workbench"),
    ]

def check():
    packages = changed_packages()
    steps = lints(("build",))
    steps.append(Step("subjects", [sys.executable, "tests/subjects.py"], title="subjects of commits that are not pushed"))
    if packages:
        steps.append(Step("build", build_command(packages), lock="cargo", cores=2, title="building unit tests of " + ", ".join(packages)))
        steps.append(Step("unit", unit_tests(), ("build",), title="unit tests"))
    else:
        show("no package has changed: no unit tests")
    return steps

def port_taken():
    """Why the demo cannot run."""
    with socket.socket() as try_it:
        try_it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            try_it.bind(("127.0.0.1", 8790))
        except OSError:
            return "another program listens on port 8790, another ./demo perhaps"
    return None

def no_root(script):
    """Why a script that makes systems or containers cannot run."""
    if os.geteuid() == 0:
        return None
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return None
    return f"it needs root, or sudo that asks for no password: run {script} by itself"

def no_cgroups():
    """Why systemd cannot be booted in a folder."""
    hierarchies = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    if any(os.statvfs(path).f_flag & os.ST_RDONLY == 0 for path in hierarchies):
        return None
    return "systemd needs a cgroup2 hierarchy that can be written to, and this machine has none"

# The program's inputs. The package also has the documents, which only the tests of `OF_DOCUMENTS` read there.
CRATES = ("daemon", "engine", "ground", "kernels", "tests/licences", "tests/src")
PROGRAM = (*CRATES, "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "config", "systemd", "docs/*.json", "tests/setup")

# End-to-end tests that read documents and packages.
OF_DOCUMENTS = ("documents::", "package::")

# End-to-end tests that are run by hand, because tests/setup does not fetch what they need.
BY_HAND = ("brokers::aedes_",)

def reads(*files, named=None):
    """Inputs of a step: the program, the network that most tests run and its card, these files and those whose paths stand in them,
    or in `named`."""
    return {"inputs": (*PROGRAM, "tests/vm/tiny.*", *files), "named": named or files}

def test(everything=False):
    debug = str(TARGET / "debug/visiond")
    shipped = str(ROOT / "target/package/amd64/visiond")
    ship = everything and X86
    tested = {"VISIOND_BIN": shipped if ship else debug}
    web = {**tested, "PYTHONPATH": str(CACHE / "web")}
    ready = ("build", "packages") if ship else ("build",)
    ignored = ["--include-ignored"] if ship else []
    if ship:
        zig = subprocess.run(["tests/setup", "--package"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        tested.update(VISIOND_PACKAGES=str(ROOT / "target/package"), VISIOND_TEST_ZIG=f"{zig}/zig/zig")
    steps = [
        Step("build", build_command([]), lock="cargo", cores=2, title="building"),
        Step("unit", unit_tests(*ignored), ("build",), env=tested, title="unit tests, golden data", **reads(*CRATES)),
        Step(
            "e2e",
            end_to_end(*ignored, *(word for name in (*OF_DOCUMENTS, *BY_HAND) for word in ("--skip", name))),
            ready,
            env=tested,
            title="end-to-end tests",
            # nothing_lost.rs runs a script of tests/bench.
            **reads("tests/e2e", "tests/src", "tests/Cargo.toml", "tests/bench", named=("tests/e2e", "tests/src")),
        ),
        Step("documents", end_to_end(*ignored, *OF_DOCUMENTS), ready, env=tested, title="the documents' examples, the packages"),
        Step("page", [sys.executable, "tests/web/page.py"], ready, env=web, title="the live page in Chromium", **reads("tests/web")),
        Step(
            "consume",
            [sys.executable, "tests/web/consume.py"],
            ready,
            env=web,
            title="the programs of docs/consume.md",
            **reads("tests/web", "docs/consume.md"),
        ),
        Step(
            "demo",
            ["./demo", "--max-messages", "50"],
            ready,
            env=tested,
            title="the demo on 50 frames",
            skipped=port_taken(),
            **reads("demo", "tests/setup"),
        ),
        *lints(("build",)),
        Step("doctests", cargo("test", "--doc", "--workspace", "--locked"), ("build",), "cargo", title="examples in the documentation"),
        Step(
            "doc",
            cargo("doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"),
            ("build", "lints"),
            "cargo",
            env={"RUSTDOCFLAGS": "-D warnings"},
            title="documentation",
        ),
    ]
    if X86:
        ptx = [str(TARGET / "debug/examples/ptx"), "--check"]
        steps.append(Step("ptx", ptx, ("build",), title="the GPU's kernels are what their sources compile to", **reads()))
    if everything:
        fuzz = {**tested, "PYTHONPATH": str(CACHE / "fuzz")}
        api = [sys.executable, "tests/web/fuzz.py"]
        steps.append(Step("fuzz", api, ready, env=fuzz, title="the API, fuzzed by its own document", **reads("tests/web")))
        # Of an hour of this seed, the minutes after which it took longest until all worked again.
        chaos = ["tests/chaos/run", "--seconds", "300", "--seed", "11", "--first-round", "71"]
        title = "faults of everything around the daemon, five minutes"
        steps.append(Step("chaos", chaos, ready, env=tested, title=title, **reads("tests/chaos", "tests/bench")))
        # How long it takes is judged by hand: a machine may be busy.
        rtsp = ["tests/rtsp/run", "--restarts", "8", "--loss-seconds", "10", "--limit", "0"]
        title = "an RTSP camera that goes away and loses packets"
        steps.append(Step("rtsp", rtsp, ready, env=tested, title=title, **reads("tests/rtsp", "tests/chaos")))
        hostile = ["tests/hostile/run"]
        title = "hostile models, cards, pictures and videos"
        inputs = reads("tests/hostile", "tests/messages.py", "tests/remedies.py", named=("tests/hostile", "tests/messages.py"))
        steps.append(Step("hostile", hostile, ready, env=tested, cores=2, title=title, **inputs))
        # A seed with answers at which the RTSP library panics.
        mutations = [sys.executable, "tests/rtsp/mutations.py", "--messages", "30000", "--seed", "2"]
        title = "damaged RTSP and RTP messages"
        steps.append(Step("mutations", mutations, ready, env=tested, cores=2, title=title, **reads("tests/rtsp")))
    if ship:
        guests = ("packages", "images", "unit", "e2e", "page", "consume", "demo", "fuzz", "chaos", "rtsp", "doc", "ptx")
        # First after the build, because most steps wait for it; in parallel, steps of the same length that do not use Cargo.
        steps[1:1] = [
            Step(
                "packages",
                ["./package", "all"],
                ("build",),
                title="packages",
                # With the time of the last commit, which changes no test.
                inputs=(*PROGRAM, "package", "tests/setup", "docs", "*.md", "LICENSE*"),
                outputs=("target/package/*.deb", "target/package/*/visiond"),
            ),
            Step("images", ["tests/vm/run", "--gate", "--images"], ("build",), title="images of the virtual machines"),
        ]
        steps += [
            Step(
                "container",
                ["tests/container/run"],
                ("packages",),
                title="the container image, in runc",
                skipped=no_root("tests/container/run"),
                **reads("tests/container", "tests/vm/apt.sh", "package", "README.md", named=("tests/container",)),
            ),
            Step(
                "vm",
                ["tests/vm/run", "--gate"],
                guests,
                cores=2,
                title="virtual machines: cameras, systemd, packages",
                **reads("tests/vm", "package"),
            ),
            Step(
                "docs",
                ["tests/docs/run"],
                ("packages",),
                title="the documents' commands on a booted bare system",
                skipped=no_root("tests/docs/run") or no_cgroups(),
            ),
        ]
    return steps

def main():
    sizes = {"check": check, "test": test, "all": lambda: test(everything=True)}
    size, *options = sys.argv[1:] or [None]
    if size not in sizes or options not in ([], ["--force"]):
        sys.exit(__doc__)
    os.chdir(ROOT)
    sys.stdout.reconfigure(errors="replace")
    # One run at a time, because runs share logs and build outputs.
    LOGS.mkdir(parents=True, exist_ok=True)
    held = open(LOGS / ".lock", "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        show("waiting for another run in this folder to end")
        fcntl.flock(held, fcntl.LOCK_EX)
    # Cargo's own settings may name another folder.
    os.environ["CARGO_TARGET_DIR"] = str(TARGET)
    os.environ["VISIOND_TEST_VIDEO"] = str(CACHE / "media/vtest.avi")
    os.environ["PATH"] = f"{CACHE / 'bin'}:{os.environ['PATH']}:/usr/sbin"
    # Named, so that a test of a library fails where it is not found instead of passing with another engine.
    for name, path in [("ORT_DYLIB_PATH", CACHE / "lib/libonnxruntime.so"), ("VISIOND_TEST_TENSORRT", CACHE / "tensorrt")]:
        if path.exists():
            os.environ[name] = str(path)
    for name in ("VISIOND_BIN", "VISIOND_PACKAGES"):
        os.environ.pop(name, None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    steps = sizes[size]()
    passes = Passes(ROOT, LOGS / "passed", surroundings(CACHE)) if size == "all" else None
    run_all(steps, passes, force="--force" in options or bool(os.environ.get("CI")))

if __name__ == "__main__":
    main()
