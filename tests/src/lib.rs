//! Shared code of the end-to-end tests: the built binary, the media, a daemon in its own folder.

#![allow(clippy::expect_used, reason = "a test ends at the first thing that is not as arranged")]

pub mod certificates;
pub mod exports;
pub mod mosquitto;
pub mod nats;
pub mod networks;
pub mod onnx;
pub mod port;
pub mod web;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// How long a wait may take before it counts as a hang. It only turns a hang into a failure: even a machine that runs twelve
/// other programs on each core is much faster.
pub const HANG: Duration = Duration::from_secs(600);

/// Waits until `ready` holds; panics if it hangs. For a daemon, [`Daemon::wait_until`] also shows its log.
pub fn wait_until(what: &str, ready: impl FnMut() -> bool) {
    wait_until_or_show(what, ready, String::new);
}

/// Like [`wait_until`]; shows `log` if it hangs.
pub fn wait_until_or_show(what: &str, mut ready: impl FnMut() -> bool, log: impl Fn() -> String) {
    let until = Instant::now() + HANG;
    while !ready() {
        assert!(Instant::now() < until, "waited {} s for {what}\n{}", HANG.as_secs(), log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reports that the running test cannot run, so that `tests/steps.py` counts it as skipped. Does not use the print macros,
/// because the runner captures their output.
pub fn skip(reason: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// The binary under test: `VISIOND_BIN`, otherwise the development build. A relative path is relative to the checkout,
/// because cargo runs tests in the folder of their package.
pub fn visiond() -> PathBuf {
    let named = std::env::var_os("VISIOND_BIN").map(PathBuf::from);
    let path = root().join(named.unwrap_or_else(|| PathBuf::from("target/debug/visiond")));
    assert!(path.is_file(), "{} is missing: run `cargo build -p visiond`", path.display());
    path
}

/// The sample network.
pub fn model() -> PathBuf {
    root().join("config/models/nanodet-g-416.onnx")
}

/// A sample picture.
pub fn picture(name: &str) -> PathBuf {
    root().join("tests/media").join(name)
}

/// The sample video, which `tests/setup` fetches.
pub fn video() -> PathBuf {
    let path = std::env::var_os("VISIOND_TEST_VIDEO").map_or_else(|| cache().join("media/vtest.avi"), PathBuf::from);
    assert!(path.is_file(), "{} is not there: run tests/setup", path.display());
    path
}

/// The Python packages of the tests, which `tests/setup` fetches.
pub fn python_packages() -> PathBuf {
    let path = cache().join("web");
    assert!(path.is_dir(), "{} is not there: run tests/setup --test", path.display());
    path
}

/// What `tests/setup` has fetched.
fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    base.unwrap_or_default().join("visiond")
}

/// The backends that can be tested here: rten always, ONNX Runtime if `ORT_DYLIB_PATH` names it.
pub fn backends() -> Vec<&'static str> {
    let mut backends = vec!["rten"];
    if std::env::var_os("ORT_DYLIB_PATH").is_some() {
        backends.push("onnxruntime");
    }
    backends
}

/// `visiond`, without the user's runtime folder, in which a developer's own daemon may listen.
pub fn command() -> Command {
    let mut command = Command::new(visiond());
    command.env_remove("XDG_RUNTIME_DIR");
    command
}

/// Runs `visiond ARGS` to its end.
pub fn run<I, S>(args: I) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    output(command().args(args).stdin(Stdio::null()))
}

/// Runs a command to its end; kills it and panics with its output if it hangs.
pub fn output(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let stdout = read(Box::new(child.stdout.take().expect("piped")));
    let stderr = read(Box::new(child.stderr.take().expect("piped")));
    let until = Instant::now() + HANG;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break Some(status);
        }
        if Instant::now() >= until {
            child.kill().and_then(|()| child.wait()).expect("the program ends");
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().expect("no panic").expect("its output"));
    let Some(status) = status else {
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        panic!("{command:?} did not end within {} s:\n{stdout}\n{stderr}", HANG.as_secs());
    };
    Output { status, stdout, stderr }
}

/// Standard output as JSON, one value a line.
pub fn json_lines(output: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(output).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}"))).collect()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a run, however it ended, had no panic and no backtrace.
pub fn assert_no_panic(text: &str) {
    for word in ["panicked", "RUST_BACKTRACE", "stack backtrace"] {
        assert!(!text.contains(word), "a panic showed:\n{text}");
    }
}

/// A `visiond run` in its own folder; killed when dropped.
pub struct Daemon {
    /// The folder: configuration, outputs.
    pub folder: tempfile::TempDir,
    child: Child,
    log: Arc<Mutex<Vec<u8>>>,
    log_reader: JoinHandle<()>,
}

impl Daemon {
    /// Starts `visiond run` on `config`, in which `{dir}`, `{model}` and `{video}` are replaced.
    pub fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    /// Like `start`, with more arguments.
    pub fn start_with(config: &str, adapt: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = fill(config, folder.path());
        let path = folder.path().join("visiond.toml");
        std::fs::write(&path, text).expect("the configuration is written");
        let mut command = command();
        command.arg("run").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        adapt(&mut command);
        let mut child = command.spawn().expect("visiond starts");
        let mut pipe = child.stderr.take().expect("piped");
        let log: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = Arc::clone(&log);
        let log_reader = std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(n @ 1..) = pipe.read(&mut chunk) {
                kept.lock().expect("no panic").extend_from_slice(&chunk[..n]);
            }
        });
        Self { folder, child, log, log_reader }
    }

    /// Standard error so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().expect("no panic")).into_owned()
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The process's memory in KiB, by its name in /proc/PID/status: `VmRSS`, or `VmHWM`, the most so far.
    pub fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running daemon");
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("this line");
        value.trim().trim_end_matches(" kB").parse().expect("a number of kB")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill(2) takes two integers; the child has not been waited for, so the pid is still its own.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0, "signal {signal}");
    }

    /// Replaces its configuration, and requests a reload.
    pub fn reconfigure(&self, config: &str) {
        self.rewrite(config);
        self.signal(libc::SIGHUP);
    }

    /// Replaces its configuration, and requests nothing.
    pub fn rewrite(&self, config: &str) {
        let next = self.path("next.toml");
        std::fs::write(&next, fill(config, self.folder.path())).expect("the configuration is written");
        std::fs::rename(next, self.path("visiond.toml")).expect("the configuration is replaced");
    }

    /// The number of messages in a file of JSON lines so far, without parsing them.
    pub fn count(&self, name: &str) -> usize {
        std::fs::read(self.path(name)).unwrap_or_default().iter().filter(|&&b| b == b'\n').count()
    }

    /// The messages in a file of JSON lines so far; a line still being written is left out.
    pub fn messages(&self, name: &str) -> Vec<Value> {
        let bytes = std::fs::read(self.path(name)).unwrap_or_default();
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        json_lines(&bytes[..whole])
    }

    /// Waits until `ready` holds; panics with the log if that hangs or the daemon ends first.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + HANG;
        while !ready(self) {
            assert!(Instant::now() < until, "waited {} s for {what}; the log:\n{}", HANG.as_secs(), self.log());
            if self.child.try_wait().expect("wait").is_some() {
                wait_until("the end of the log", || self.log_reader.is_finished());
                panic!("visiond ended while the test waited for {what}; its log:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log holds `words`.
    pub fn wait_for_log(&mut self, words: &str) {
        self.wait_until(&format!("`{words}` in the log"), |daemon| daemon.log().contains(words));
    }

    /// Waits for the end. The folder lives as long as the returned value.
    pub fn finish(mut self) -> Finished {
        let until = Instant::now() + HANG;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < until, "visiond did not end within {} s:\n{}", HANG.as_secs(), self.log());
            std::thread::sleep(Duration::from_millis(5));
        };
        wait_until("the end of the log", || self.log_reader.is_finished());
        let log = self.log();
        assert_no_panic(&log);
        Finished { status, log, daemon: self }
    }

    /// SIGTERM, then as `finish`.
    pub fn terminate(self) -> Finished {
        self.signal(libc::SIGTERM);
        self.finish()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // On other failures, shows the same as `finish` and `wait_until`.
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

/// A daemon that has ended.
pub struct Finished {
    /// How.
    pub status: ExitStatus,
    /// Standard error.
    pub log: String,
    /// Its folder is still there.
    pub daemon: Daemon,
}

/// Replaces `{dir}`, `{model}`, `{video}` and `{media}` in a configuration.
pub fn fill(config: &str, folder: &Path) -> String {
    let mut text = config.replace("{dir}", &folder.display().to_string());
    text = text.replace("{model}", &model().display().to_string());
    text = text.replace("{media}", &root().join("tests/media").display().to_string());
    if text.contains("{video}") {
        text = text.replace("{video}", &video().display().to_string());
    }
    text
}
