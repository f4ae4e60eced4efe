//! Runs a program that writes to a pipe: in its own process group, with time limits on reads, and always ended.
//!
//! The program ends when its [`Child`] is dropped (SIGTERM to the group, after a grace period SIGKILL) and when visiond dies
//! (parent-death signal; [`GroupGuard`] for the program's own children). When memory runs out, the kernel kills it before
//! visiond. Its standard error goes to the log at level debug. The last lines are kept, because they explain a failure.
//!
//! No program inherits visiond's descriptors, or the variables with which systemd passes secrets, sockets and the watchdog to
//! the service ([`isolate`]). Decoders of untrusted data can also be confined.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, getpid, getppid, kill_process_group, set_parent_process_death_signal, waitid,
};

use crate::backoff::Backoff;
use crate::confinement::{self, Confinement, confine};
use crate::logging::is_unprintable;
use crate::redact::{MASK, hidden_in_arguments, redact_line};
use crate::stop::{Stop, Wake};
use crate::threads::finished_by;

/// Time between SIGTERM and SIGKILL. The pipe is closed by then, so a program that writes ends at once.
const GRACE: Duration = Duration::from_millis(300);

/// How long a program that closed its output may take to exit by itself.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// Requested size of the pipe, the limit for an unprivileged process. A larger pipe needs fewer reads.
const PIPE_BYTES: usize = 1 << 20;

/// Number of lines of standard error to keep.
const KEPT_LINES: usize = 8;

/// Maximum bytes of one line of standard error; a longer line is cut.
const LINE_BYTES: usize = 4096;

/// Maximum characters of a line that are logged and kept.
const LINE_CHARS: usize = 400;

/// Variables that systemd sets for the service's own process (systemd.exec(5), "Environment Variables Set or Propagated by the
/// Service Manager"). One that ends with `_` is the start of several. The folders, such as STATE_DIRECTORY, stay.
const OF_THE_SERVICE: [&str; 17] = [
    "CREDENTIALS_DIRECTORY",
    "ENCRYPTED_CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",
    "LISTEN_",
    "WATCHDOG_",
    "MEMORY_PRESSURE_",
    "FDSTORE",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    "SYSTEMD_EXEC_PID",
    "MAINPID",
    "MANAGERPID",
    "MANAGERPIDFDID",
    "REMOTE_",
    "TRIGGER_",
    "DEBUG_INVOCATION",
    "LOG_NAMESPACE",
];

/// The descriptor that a program may write its frames to in place of standard output, see [`Launch::on_descriptor_3`].
const FRAMES_FD: libc::c_int = 3;

/// How filling a buffer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// The buffer is full.
    Full,
    /// The program closed its output after this many bytes.
    Ended(usize),
    /// Stop was raised.
    Stopped,
    /// The deadline passed.
    TimedOut,
}

/// How a program is started.
#[derive(Debug, Default)]
pub struct Launch<'a> {
    /// Precedes its lines in the log.
    pub label: &'a str,
    /// Whether it writes to descriptor 3. Its standard output then goes to the same place as its standard error.
    pub on_descriptor_3: bool,
    /// Whether it gets input through [`Child::take_input`]. Otherwise its standard input is empty.
    pub is_fed: bool,
    /// Its permissions; `None`: the same as visiond's.
    pub confinement: Option<Confinement>,
    /// Whether it starts other programs, which must not outlive visiond either: a shell then waits to kill its group.
    pub has_children: bool,
}

/// A running program.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    /// `None` once taken.
    input: Option<ChildStdin>,
    /// `None` once closed.
    output: Option<ChildStdout>,
    errors: ErrorLines,
    guard: Option<GroupGuard>,
    /// Set once the process was reaped; from then on its id may belong to another process.
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts `command` with its output on a pipe.
    pub fn spawn(mut command: Command, launch: &Launch<'_>) -> io::Result<Self> {
        let Launch { label, on_descriptor_3, is_fed, confinement, has_children } = launch;
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let secrets = hidden_in_arguments(arguments.iter().map(String::as_str));
        let input = if *is_fed { Stdio::piped() } else { Stdio::null() };
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        isolate(&mut command);
        die_with_parent(&mut command);
        die_before_parent(&mut command);
        if let Some(confinement) = confinement {
            confine(&mut command, confinement)?;
            log::debug!("{label}: confined by {}", confinement::available());
        }
        // After `isolate`, which would close descriptor 3, and `confine`, whose ruleset may have that number.
        if *on_descriptor_3 {
            move_output(&mut command);
        }
        let mut process = spawn_from_lasting_thread(command)?;
        let (input, output, errors) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let label = (*label).to_owned();
        let errors = errors.ok_or_else(|| io::Error::other("no pipe for standard error")).and_then(|pipe| {
            let output = output.ok_or_else(|| io::Error::other("no pipe for standard output"))?;
            Ok((output, ErrorLines::read(pipe, label, secrets)?))
        });
        match errors {
            Ok((output, errors)) => {
                // If the system refuses, the default size stays.
                let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
                let guard = has_children.then(|| GroupGuard::start(process.id())).flatten();
                Ok(Self { process, input, output: Some(output), errors, guard, status: None })
            }
            Err(error) => {
                signal_group(process.id(), Signal::KILL);
                let _ = process.wait();
                Err(error)
            }
        }
    }

    /// Returns the pipe to the program's standard input, once, if it is fed. A write fails when the program ends; dropping the
    /// pipe ends the program's input.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }

    /// Whether a read would return at once: the program has written something, or closed its output.
    pub fn has_output(&self, stop: &Stop) -> io::Result<bool> {
        let Some(output) = &self.output else { return Ok(true) };
        Ok(stop.wait_readable(output.as_fd(), Some(Duration::ZERO))? == Wake::Ready)
    }

    /// Reads from the pipe until `buffer` is full.
    pub fn fill(&mut self, buffer: &mut [u8], stop: &Stop, deadline: Instant) -> io::Result<Filled> {
        let Some(output) = &mut self.output else { return Ok(Filled::Ended(0)) };
        let mut read = 0;
        while read < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match stop.wait_readable(output.as_fd(), Some(left))? {
                Wake::Stopped => return Ok(Filled::Stopped),
                Wake::TimedOut => return Ok(Filled::TimedOut),
                Wake::Ready => match output.read(&mut buffer[read..]) {
                    Ok(0) => return Ok(Filled::Ended(read)),
                    Ok(n) => read += n,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(Filled::Full)
    }

    /// Waits for a program whose output has ended, and ends it if it does not exit by itself.
    ///
    /// Returns `None` if it had to be ended, or if stop was raised.
    pub fn exit_status(&mut self, stop: &Stop) -> Option<ExitStatus> {
        let deadline = Instant::now() + EXIT_WAIT;
        let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
        while !self.has_exited() {
            if Instant::now() >= deadline || stop.sleep(backoff.pause()) {
                self.end();
                return None;
            }
        }
        self.end();
        self.status
    }

    /// Returns the last lines of its standard error, oldest first.
    pub fn last_lines(&self) -> Vec<String> {
        self.errors.last_lines()
    }

    /// Returns whether the process has ended. Does not take its status: until that is taken, no other process gets its number.
    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let running =
            || waitid(WaitId::Pid(Pid::from_child(&self.process)), options).is_ok_and(|ended| ended.is_none());
        self.status.is_some() || !running()
    }

    /// Ends the whole group and takes the status. Idempotent.
    fn end(&mut self) {
        self.input = None;
        self.output = None;
        if self.status.is_some() {
            return;
        }
        if !self.has_exited() {
            signal_group(self.process.id(), Signal::TERM);
            let deadline = Instant::now() + GRACE;
            let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(10));
            while !self.has_exited() && Instant::now() < deadline {
                std::thread::sleep(backoff.pause());
            }
        }
        // Do this before the group's id can belong to another one.
        self.guard = None;
        // Also if the first process has ended, because others in its group may still run. Its id is still taken (see
        // `has_exited`), so this cannot be another program's group.
        signal_group(self.process.id(), Signal::KILL);
        match self.process.wait() {
            Ok(status) => self.status = Some(status),
            Err(error) => log::warn!("cannot wait for process {}: {error}", self.process.id()),
        }
        self.errors.finish();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns how a program ended, for the middle of a sentence: "exited with status 1" or "was ended by SIGKILL".
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => match signal_name(signal) {
            Some(name) => format!("was ended by {name}"),
            None => format!("was ended by signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

/// Returns the name of a signal that ends programs.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        _ => return None,
    })
}

/// Keeps visiond's descriptors (except standard input, output and error) and its systemd variables from the program.
pub fn isolate(command: &mut Command) {
    let is_of_the_service = |name: &OsString| {
        let name = name.to_string_lossy();
        OF_THE_SERVICE.iter().any(|known| name == *known || (known.ends_with('_') && name.starts_with(known)))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_of_the_service).for_each(|name| {
        command.env_remove(name);
    });
    // SAFETY: between fork and exec the hook makes only async-signal-safe calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(close_on_exec) };
}

/// Makes exec close every descriptor but standard input, output and error. Libraries may have opened some without O_CLOEXEC.
///
/// They are not closed at once, because `Command` reports a failed exec on one. Async-signal-safe.
fn close_on_exec() -> io::Result<()> {
    // SAFETY: close_range(2) takes three numbers, touches no memory and is a plain system call.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, FRAMES_FD, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) } == 0;
    if done { Ok(()) } else { close_each_on_exec() }
}

/// The same before Linux 5.11, as in JetPack 5.
fn close_each_on_exec() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes one `rlimit`, and is async-signal-safe.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for fd in FRAMES_FD..libc::c_int::try_from(limit.rlim_cur).unwrap_or(libc::c_int::MAX) {
        // SAFETY: fcntl(2) with F_SETFD takes numbers, touches no memory and is async-signal-safe. For a descriptor that is
        // not open, it returns an error.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Makes the pipe descriptor 3 of the program, and redirects its standard output to its standard error.
///
/// Both are duplicates, so neither is closed on exec. Only number 3 is safe: [`Command`] opens descriptors before it forks, each
/// with the lowest free number, and keeps the last of them (which reports a failed exec) until exec. Standard input, output and
/// error come before it, so it is never 3.
fn move_output(command: &mut Command) {
    let hook = || {
        for (from, to) in [(libc::STDOUT_FILENO, FRAMES_FD), (libc::STDERR_FILENO, libc::STDOUT_FILENO)] {
            // SAFETY: dup2(2) takes two numbers, touches no memory and is async-signal-safe. Standard output and error are in
            // place by now; this process no longer uses any other descriptor 3.
            if unsafe { libc::dup2(from, to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes only async-signal-safe calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// Makes the kernel kill the program before visiond when memory runs out: visiond reports that and starts it again.
fn die_before_parent(command: &mut Command) {
    const ADJUSTMENT: &[u8] = b"900";
    let hook = || {
        // SAFETY: open(2) reads a NUL-terminated constant; it is async-signal-safe.
        let file = unsafe { libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        if file >= 0 {
            // This is best effort, and does nothing without /proc. SAFETY: write(2) reads a constant of this length; `file`
            // is open. Async-signal-safe.
            let _ = unsafe { libc::write(file, ADJUSTMENT.as_ptr().cast(), ADJUSTMENT.len()) };
            // SAFETY: close(2) takes a number; `file` was opened here and is not used again. Async-signal-safe.
            unsafe { libc::close(file) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes only async-signal-safe calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// A shell that kills a process group when visiond ends for any reason. The parent-death signal reaches one process, but not
/// its children.
#[derive(Debug)]
struct GroupGuard {
    shell: std::process::Child,
    /// When this pipe closes, the shell notices that visiond is gone.
    _alive: ChildStdin,
}

impl GroupGuard {
    /// Starts the shell for the group that `leader` leads. If the system has no shell, there is no guard.
    fn start(leader: u32) -> Option<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r line; kill -s KILL -- \"-$1\"", "sh", &leader.to_string()]);
        // In its own group, so that Ctrl-C in a terminal does not end it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear().process_group(0);
        isolate(&mut command);
        let mut shell = command.spawn().ok()?;
        let alive = shell.stdin.take();
        Some(Self { shell, _alive: alive? })
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // Do this before its input ends, which would make it kill.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Makes the kernel kill the program when the thread that starts it ends.
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If visiond died before that call, the signal never comes.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the hook makes only async-signal-safe calls, allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// Starts a program from a thread that lives as long as the process.
///
/// The kernel sends the parent-death signal when the starting *thread* ends, but one thread may open a source and another read it.
fn spawn_from_lasting_thread(command: Command) -> io::Result<std::process::Child> {
    type Job = (Command, Sender<io::Result<std::process::Child>>);
    static STARTER: OnceLock<Mutex<Sender<Job>>> = OnceLock::new();
    let starter = match STARTER.get() {
        Some(starter) => starter,
        None => {
            let (jobs, inbox) = channel::<Job>();
            std::thread::Builder::new().name("starter".to_owned()).spawn(move || {
                for (mut command, reply) in inbox {
                    // The caller waits for the answer. If it has gone anyway, the program must not keep running.
                    if let Err(unsent) = reply.send(command.spawn())
                        && let Ok(mut child) = unsent.0
                    {
                        signal_group(child.id(), Signal::KILL);
                        let _ = child.wait();
                    }
                }
            })?;
            // If another caller was faster, this thread gets no job and ends with its channel.
            STARTER.get_or_init(|| Mutex::new(jobs))
        }
    };
    let (reply, answer) = channel();
    let gone = || io::Error::other("the thread that starts programs has ended");
    starter.lock().send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Sends a signal to a program that leads its own group, and to the processes of that group.
///
/// The program must not have been waited for; after that, its number may belong to another process.
pub fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // The group may have ended already.
        let _ = kill_process_group(group, signal);
    }
}

/// Reads a program's standard error on its own thread.
#[derive(Debug)]
struct ErrorLines {
    kept: Arc<Mutex<VecDeque<String>>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl ErrorLines {
    fn read(mut pipe: ChildStderr, label: String, secrets: Vec<String>) -> io::Result<Self> {
        let stop = Stop::new()?;
        // The program's end of the pipe is another file description, so its writes block as before.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let kept = Arc::new(Mutex::new(VecDeque::<String>::new()));
        let (thread_stop, thread_kept) = (stop.clone(), Arc::clone(&kept));
        let thread = std::thread::Builder::new().name("stderr".to_owned()).spawn(move || {
            let keep = |line: &[u8]| {
                let line = clean(line, &secrets);
                if line.is_empty() {
                    return;
                }
                log::debug!("{label}: {line}");
                let mut kept = thread_kept.lock();
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            };
            let mut line = Vec::new();
            let mut chunk = [0; 1024];
            // After stop, read only as much as the pipe can hold: a program that left the group may keep writing.
            let mut chunks_after_stop = 64;
            loop {
                match pipe.read(&mut chunk) {
                    Ok(n) if n > 0 => {
                        for &byte in &chunk[..n] {
                            if byte == b'\n' || byte == b'\r' {
                                keep(&line);
                                line.clear();
                            } else if line.len() < LINE_BYTES {
                                line.push(byte);
                            }
                        }
                        if thread_stop.is_raised() {
                            chunks_after_stop -= 1;
                            if chunks_after_stop == 0 {
                                break;
                            }
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if !matches!(thread_stop.wait_readable(pipe.as_fd(), None), Ok(Wake::Ready)) {
                            break;
                        }
                    }
                    _ => break,
                }
            }
            keep(&line);
        })?;
        Ok(Self { kept, stop, thread: Some(thread) })
    }

    fn last_lines(&self) -> Vec<String> {
        self.kept.lock().iter().cloned().collect()
    }

    /// Reads the rest of the pipe and ends the thread. The group is dead by now, so the pipe ends by itself, unless a program
    /// that left the group holds it open.
    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + Duration::from_millis(100);
        finished_by([&thread], deadline);
        self.stop.raise();
        if thread.join().is_err() {
            log::warn!(
                "the thread that reads a program's standard error panicked, which is a bug in visiond: please report it"
            );
        }
    }
}

/// Returns a line without secrets (from the program's arguments, and others), without terminal control characters and
/// surrounding spaces, and cut to a maximum length.
fn clean(line: &[u8], secrets: &[String]) -> String {
    // The last word of a cut line may be part of a secret that is no longer recognisable.
    let is_cut = line.len() == LINE_BYTES;
    let blank = line.iter().rposition(u8::is_ascii_whitespace).filter(|_| is_cut);
    let line = if is_cut { &line[..blank.unwrap_or(0)] } else { line };
    let text = String::from_utf8_lossy(line);
    let text = secrets.iter().fold(text.into_owned(), |text, secret| text.replace(secret, MASK));
    let text = redact_line(text.trim());
    let end = text.char_indices().nth(LINE_CHARS).map_or(text.len(), |(at, _)| at);
    let more = if is_cut || end < text.len() { "…" } else { "" };
    text[..end].chars().map(|c| if is_unprintable(c) { '\u{FFFD}' } else { c }).collect::<String>() + more
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::{finishes, hang, never, stopped_while_it_waits, wait_until};

    fn sh(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::spawn(command, &Launch::default()).unwrap()
    }

    fn is_alive(pid: i32) -> bool {
        // kill(2) succeeds on a zombie, so check the state.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_buffer_is_filled_and_the_end_is_reported() {
        let stop = Stop::new().unwrap();
        let mut child = sh("printf abcdef; sleep 0.05; printf gh");
        let mut buffer = [0; 4];
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Full);
        assert_eq!(&buffer, b"abcd");
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Full);
        assert_eq!(&buffer, b"efgh");
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Ended(0));
        assert!(child.exit_status(&stop).unwrap().success());
    }

    #[test]
    fn the_status_and_the_last_lines_say_why_it_failed() {
        let stop = Stop::new().unwrap();
        let mut child =
            sh("for i in 1 2 3 4 5 6 7 8 9; do echo line $i >&2; done; printf 'bad\\033[1m thing\\n' >&2; exit 3");
        assert_eq!(child.fill(&mut [0; 4], &stop, hang()).unwrap(), Filled::Ended(0));
        let status = child.exit_status(&stop).unwrap();
        assert_eq!(how_it_ended(status), "exited with status 3");
        let lines = child.last_lines();
        assert_eq!(lines.len(), KEPT_LINES);
        assert_eq!(lines.last().unwrap(), "bad\u{FFFD}[1m thing");
    }

    #[test]
    fn output_on_descriptor_3_leaves_standard_output_to_the_log() {
        let stop = Stop::new().unwrap();
        let mut command = Command::new("sh");
        // Its child inherits it.
        command.args(["-c", "echo to the log; printf abcd >&3; sh -c 'echo and this; printf efgh >&3'"]);
        let launch = Launch { on_descriptor_3: true, ..Launch::default() };
        let mut child = Child::spawn(command, &launch).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Full);
        assert_eq!(&buffer, b"abcdefgh");
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Ended(0));
        assert!(child.exit_status(&stop).unwrap().success());
        assert_eq!(child.last_lines(), ["to the log", "and this"]);

        let missing = Command::new("/nonexistent/program");
        assert_eq!(Child::spawn(missing, &launch).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_confined_program_gets_descriptor_3_although_the_sandbox_has_that_number_before() {
        const ALONE: &str = "VISIOND_TEST_ALONE";
        // In its own process, where 3 is the first free number.
        if std::env::var_os(ALONE).is_none() {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let name = "a_confined_program_gets_descriptor_3_although_the_sandbox_has_that_number_before";
            command.args(["--exact", &format!("child_process::tests::{name}")]).env(ALONE, "");
            isolate(&mut command);
            let output = command.output().unwrap();
            let report = String::from_utf8_lossy(&output.stdout);
            assert!(report.contains("1 passed"), "{report}");
            return;
        }
        let mut command = Command::new("sh");
        command.args(["-c", "printf abcd >&3"]);
        let confinement = Some(Confinement::default());
        let mut child =
            Child::spawn(command, &Launch { confinement, on_descriptor_3: true, ..Launch::default() }).unwrap();
        assert_eq!(child.fill(&mut [0; 4], &Stop::new().unwrap(), hang()).unwrap(), Filled::Full);
    }

    #[test]
    fn a_program_gets_no_descriptor_and_no_duty_of_the_service() {
        // Like a library's descriptor: open in this process and not closed on exec.
        let leaked = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        for on_descriptor_3 in [false, true] {
            let stop = Stop::new().unwrap();
            let mut command = Command::new("sh");
            // `ls` opens the folder itself.
            command.args(["-c", "exec ls /proc/self/fd >&2"]);
            let mut child = Child::spawn(command, &Launch { on_descriptor_3, ..Launch::default() }).unwrap();
            assert_eq!(child.fill(&mut [0; 4], &stop, hang()).unwrap(), Filled::Ended(0));
            assert!(child.exit_status(&stop).unwrap().success());
            let expected: &[_] = if on_descriptor_3 { &["0", "1", "2", "3", "4"] } else { &["0", "1", "2", "3"] };
            assert_eq!(child.last_lines(), expected);
        }
        drop(leaked);
    }

    #[test]
    fn descriptors_are_closed_on_exec_by_an_older_kernel_too() {
        let leaked = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd").stdin(Stdio::null());
        // SAFETY: the hook makes only async-signal-safe calls.
        unsafe { command.pre_exec(close_each_on_exec) };
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), "0\n1\n2\n3\n");
        drop(leaked);
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let line = clean(b" rtsp://me:word@camera/1: 401 Unauthorized\n", &["me:word".to_owned()]);
        assert_eq!(line, "rtsp://***@camera/1: 401 Unauthorized");
    }

    #[test]
    fn no_part_of_a_secret_in_a_long_line_is_shown() {
        for length in (350..450).chain(LINE_BYTES - 60..LINE_BYTES + 10) {
            for secret in
                ["rtsp://admin:hushhushhush@cam/1", "https://cam/1?token=hushhushhush", "-x password=hushhushhush"]
            {
                let line = format!("{:>length$} {secret}: 401", "x");
                let read = &line.as_bytes()[..line.len().min(LINE_BYTES)];
                let line = clean(read, &[]);
                assert!(!line.contains("hu") && line.chars().count() <= LINE_CHARS + 1, "{line}");
            }
        }
        let stop = Stop::new().unwrap();
        let mut child = sh("printf 'x%8000s password=hush y\\nend\\n' ' ' >&2");
        assert_eq!(child.fill(&mut [0; 4], &stop, hang()).unwrap(), Filled::Ended(0));
        assert!(child.exit_status(&stop).unwrap().success());
        assert_eq!(child.last_lines(), ["x…", "end"]);
    }

    #[test]
    fn a_child_that_hangs_delays_neither_stop_nor_a_time_limit() {
        let mut child = sh("sleep 3600");
        let soon = Instant::now() + Duration::from_millis(30);
        assert_eq!(child.fill(&mut [0; 4], &Stop::new().unwrap(), soon).unwrap(), Filled::TimedOut);
        let stopped = stopped_while_it_waits(move |stop| child.fill(&mut [0; 4], stop, never()).unwrap());
        assert_eq!(stopped, Filled::Stopped);
    }

    #[test]
    fn a_dropped_child_leaves_no_process_of_its_group_even_when_it_ignores_sigterm() {
        let stop = Stop::new().unwrap();
        let mut child = sh("trap '' TERM; sleep 3600 & printf '%08d' $!; wait; sleep 3600");
        let mut digits = [0; 8];
        assert_eq!(child.fill(&mut digits, &stop, hang()).unwrap(), Filled::Full);
        let grandchild: i32 = std::str::from_utf8(&digits).unwrap().parse().unwrap();
        let leader = child.process.id() as i32;
        assert!(is_alive(grandchild));
        finishes("the end of the child", move || drop(child));
        wait_until("both to be gone", || !is_alive(leader) && !is_alive(grandchild));
        assert!(!std::path::Path::new(&format!("/proc/{leader}")).exists(), "a zombie is left");
    }

    #[test]
    fn what_a_child_left_behind_ends_with_it_although_the_child_ended_before() {
        let stop = Stop::new().unwrap();
        let mut child = sh("trap '' TERM; sleep 3600 & printf '%08d' $!");
        let mut digits = [0; 8];
        assert_eq!(child.fill(&mut digits, &stop, hang()).unwrap(), Filled::Full);
        let left: i32 = std::str::from_utf8(&digits).unwrap().parse().unwrap();
        let leader = child.process.id() as i32;
        wait_until("the leader to have ended", || !is_alive(leader));
        assert!(is_alive(left));
        finishes("the end of the child", move || drop(child));
        wait_until("what it left to be gone", || !is_alive(left));
    }

    #[test]
    fn a_program_is_ended_for_its_memory_before_this_process() {
        let stop = Stop::new().unwrap();
        // More, if every process here has more.
        let mut child = sh("test $(cat /proc/self/oom_score_adj) -ge 900 && printf yes || printf no.");
        let mut answer = [0; 3];
        assert_eq!(child.fill(&mut answer, &stop, hang()).unwrap(), Filled::Full);
        assert_eq!(&answer, b"yes");
    }

    #[test]
    fn a_guard_that_is_dropped_kills_nothing() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf begun; exec sleep 3600"]);
        let mut child = Child::spawn(command, &Launch { has_children: true, ..Launch::default() }).unwrap();
        assert_eq!(child.fill(&mut [0; 5], &Stop::new().unwrap(), hang()).unwrap(), Filled::Full);
        let guard = child.guard.take().unwrap();
        drop(guard);
        assert!(!child.has_exited() && is_alive(child.process.id() as i32));
    }

    #[test]
    fn a_child_outlives_the_thread_that_opened_it() {
        let stop = Stop::new().unwrap();
        let mut child = std::thread::spawn(|| sh("sleep 0.2; printf done")).join().unwrap();
        let mut buffer = [0; 4];
        assert_eq!(child.fill(&mut buffer, &stop, hang()).unwrap(), Filled::Full);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = Child::spawn(Command::new("/nonexistent/program"), &Launch::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_signal_that_ended_a_program_has_its_name() {
        // As wait(2) has it.
        let ended = |status| how_it_ended(ExitStatus::from_raw(status));
        assert_eq!([ended(0), ended(3 << 8)], ["exited with status 0", "exited with status 3"]);
        for (signal, name) in [
            (libc::SIGABRT, "SIGABRT"),
            (libc::SIGBUS, "SIGBUS"),
            (libc::SIGFPE, "SIGFPE"),
            (libc::SIGILL, "SIGILL"),
            (libc::SIGINT, "SIGINT"),
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGPIPE, "SIGPIPE"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGSYS, "SIGSYS"),
            (libc::SIGTERM, "SIGTERM"),
        ] {
            assert_eq!(ended(signal), format!("was ended by {name}"));
        }
        assert_eq!(ended(libc::SIGUSR1), format!("was ended by signal {}", libc::SIGUSR1));
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it_where_that_is_wanted() {
        let mut command = Command::new("sleep");
        command.arg("3600");
        die_with_parent(&mut command);
        let mut program = std::thread::spawn(move || command.spawn().unwrap()).join().unwrap();
        let status = finishes("the program's end", move || program.wait().unwrap());
        assert_eq!(how_it_ended(status), "was ended by SIGKILL");
    }
}
