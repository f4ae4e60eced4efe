//! Runs programs that may crash or hang, and kills them after a time limit.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_system::child_process::{Signal, die_with_parent, isolate, signal_group};

/// Time limit for the pipes of a program that has exited: its children may still hold them.
const PIPES_TIME: Duration = Duration::from_secs(3);

/// How much of a program's standard error to keep, from its end.
const ERRORS_BYTES: usize = 64 << 10;

/// A program that has exited.
#[derive(Debug)]
pub struct ExitedProgram {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    /// Its standard error.
    pub errors: String,
}

impl ExitedProgram {
    /// The last line of its standard error.
    pub fn last_line(&self) -> &str {
        last_line(&self.errors)
    }
}

impl std::fmt::Display for ExitedProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last_line = self.last_line();
        let separator = if last_line.is_empty() { "" } else { ": " };
        write!(f, "its process ended with {}{separator}{last_line}", self.status)
    }
}

/// Why a program did not exit by itself.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("cannot run {program}: {error}")]
    Run { program: String, error: io::Error },
    #[error("{program} did not exit within {} s; its last line: {last_line}", patience.as_secs())]
    TimedOut { program: String, patience: Duration, last_line: String },
}

/// Runs a program until it exits, and kills it with all of its children after `patience`. Meanwhile passes the last line of its
/// standard error to `report`.
///
/// The program leads its own process group, which Ctrl-C at the terminal does not reach; the kernel kills it when this
/// process ends.
pub fn supervise(
    command: &mut Command,
    patience: Duration,
    mut report: impl FnMut(&str),
) -> Result<ExitedProgram, SuperviseError> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |error| SuperviseError::Run { program: program.clone(), error };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    isolate(command);
    die_with_parent(command);
    let mut child = command.spawn().map_err(failed)?;
    // Both readers drop their end of the channel when their pipe closes.
    let (open, closed) = channel::<()>();
    let output = child.stdout.take().map(|pipe| read(pipe, open.clone(), usize::MAX)).unwrap_or_default();
    let errors = child.stderr.take().map(|pipe| read(pipe, open, ERRORS_BYTES)).unwrap_or_default();
    let said = || last_line(&String::from_utf8_lossy(&errors.lock())).to_owned();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if began.elapsed() >= patience {
            signal_group(child.id(), Signal::KILL);
            // This returns at once, because the program was killed.
            let _ = child.wait();
            return Err(SuperviseError::TimedOut { program, patience, last_line: said() });
        }
        report(&said());
        thread::sleep(Duration::from_millis(50));
    };
    // Nothing is ever sent: this returns when both pipes are closed, or after the time limit.
    let _ = closed.recv_timeout(PIPES_TIME);
    let (output, errors) = (std::mem::take(&mut *output.lock()), std::mem::take(&mut *errors.lock()));
    Ok(ExitedProgram { status, output, errors: String::from_utf8_lossy(&errors).into_owned() })
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// Reads a pipe on its own thread, and drops `open` at its end. Keeps the last whole lines if there are more than `limit` bytes.
fn read(mut pipe: impl Read + Send + 'static, open: Sender<()>, limit: usize) -> Arc<Mutex<Vec<u8>>> {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&bytes);
    thread::spawn(move || {
        let _open = open;
        let mut chunk = vec![0; 64 << 10];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    let mut all = all.lock();
                    all.extend_from_slice(&chunk[..count]);
                    let excess = all.len().saturating_sub(limit);
                    if excess > 0 {
                        // A cut line could show a secret without the word by which it is masked.
                        let cut = all[excess..]
                            .iter()
                            .position(|byte| *byte == b'\n')
                            .map_or(all.len(), |at| excess + at + 1);
                        all.drain(..cut);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    });
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_and_its_last_line_reported() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready; echo begun >&2; echo 'waiting for the GPU' >&2; exec sleep 1000"]);
        let mut heard = false;
        let error = supervise(&mut command, Duration::from_millis(300), |words| heard |= !words.is_empty());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("sh did not exit within 0 s; its last line: waiting for the GPU"), "{error}");
        assert!(heard);
    }

    #[test]
    fn a_program_that_crashes_is_reported_with_its_signal() {
        let mut command = Command::new("/bin/sh");
        let ended =
            supervise(command.args(["-c", "echo half; kill -SEGV $$"]), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!((ended.status.signal(), ended.output.as_slice()), (Some(libc::SIGSEGV), &b"half\n"[..]));
        let missing = supervise(&mut Command::new("/no/such/program"), Duration::from_secs(60), |_| {});
        let missing = missing.unwrap_err().to_string();
        assert!(missing.starts_with("cannot run program: No such file"), "{missing}");
    }

    #[test]
    fn a_program_that_is_killed_takes_its_children_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"exec 3>"$0"; sleep 1000 & wait"#]).arg(&pipe);
        assert!(matches!(
            supervise(&mut command, Duration::from_secs(1), |_| {}),
            Err(SuperviseError::TimedOut { .. })
        ));
        // The end of file: nothing has it open for writing any more.
        while !matches!(reader.read(&mut [0]), Ok(0)) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_leaves_its_pipes_to_another_is_not_waited_for() {
        let mut command = Command::new("/bin/sh");
        let ended = supervise(command.args(["-c", "sleep 1000 & echo $!"]), Duration::from_secs(60), |_| {}).unwrap();
        assert!(ended.status.success());
        let left: libc::pid_t = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
        // SAFETY: the call touches no memory; the child still sleeps and has not been reaped.
        assert_eq!(unsafe { libc::kill(left, libc::SIGKILL) }, 0, "it was still running");
    }
}
