//! Runs programs that may crash or hang, and kills them after a time limit.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_system::child_process::{die_with_parent, signal_group};

/// Time limit for the pipes of a program that has exited: programs that it left behind may still hold them.
const PIPES_TIME: Duration = Duration::from_secs(3);

/// A program that has exited.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// Its standard output.
    pub output: Vec<u8>,
    /// The last lines of its standard error.
    pub errors: Vec<String>,
}

impl Ended {
    /// The last line of its standard error.
    pub fn last_line(&self) -> &str {
        self.errors.last().map_or("", String::as_str)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let separator = if self.errors.is_empty() { "" } else { ": " };
        write!(f, "its process ended with {}{separator}{}", self.status, self.last_line())
    }
}

/// Why a program did not exit by itself.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The program cannot be started or waited for.
    #[error("cannot run {program}: {error}")]
    Run {
        /// File name of the program.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// The program was killed after the time limit.
    #[error("{program} did not exit within {} s; its last line: {last_line}", patience.as_secs())]
    TimedOut {
        /// File name of the program.
        program: String,
        /// The time limit.
        patience: Duration,
        /// The last line of its standard error.
        last_line: String,
    },
}

/// The output of a program so far.
#[derive(Debug, Default)]
struct Heard {
    output: Vec<u8>,
    errors: VecDeque<String>,
}

/// Runs a program until it exits, and kills it with everything that it started after `patience`. Meanwhile passes the last
/// line of its standard error to `tell`.
///
/// The program leads its own process group, which Ctrl-C at the terminal does not reach; the kernel kills it when this
/// process ends.
pub fn supervise(
    command: &mut Command,
    patience: Duration,
    mut tell: impl FnMut(&str),
) -> Result<Ended, SuperviseError> {
    /// Maximum number of lines of standard error kept.
    const LINES: usize = 100;
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let failed = |error| SuperviseError::Run { program: program.clone(), error };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    die_with_parent(command);
    let mut child = command.spawn().map_err(failed)?;
    let heard = Arc::new(Mutex::new(Heard::default()));
    // Both readers drop their end of the channel when their pipe closes.
    let (open, closed) = channel::<()>();
    if let Some(mut pipe) = child.stdout.take() {
        let (heard, open) = (Arc::clone(&heard), open.clone());
        thread::spawn(move || {
            let _open = open;
            let mut bytes = vec![0; 64 << 10];
            loop {
                match pipe.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => heard.lock().output.extend_from_slice(&bytes[..count]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
    }
    if let Some(pipe) = child.stderr.take() {
        let (heard, open) = (Arc::clone(&heard), open.clone());
        thread::spawn(move || {
            let _open = open;
            let lines = BufReader::new(pipe).split(b'\n').map_while(Result::ok);
            for line in lines.filter(|line| !line.is_empty()) {
                let errors = &mut heard.lock().errors;
                if errors.len() == LINES {
                    errors.pop_front();
                }
                errors.push_back(String::from_utf8_lossy(&line).into_owned());
            }
        });
    }
    drop(open);
    let said = || heard.lock().errors.back().cloned().unwrap_or_default();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if began.elapsed() >= patience {
            signal_group(child.id(), libc::SIGKILL);
            // Returns at once, because the program was killed.
            let _ = child.wait();
            return Err(SuperviseError::TimedOut { program, patience, last_line: said() });
        }
        tell(&said());
        thread::sleep(Duration::from_millis(50));
    };
    // Nothing is ever sent: this returns when both pipes are closed, or after the time limit.
    let _ = closed.recv_timeout(PIPES_TIME);
    let Heard { output, errors } = std::mem::take(&mut *heard.lock());
    Ok(Ended { status, output, errors: errors.into() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_hangs_is_ended_and_its_last_line_are_told() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready; echo begun >&2; echo 'waiting for the GPU' >&2; exec sleep 1000"]);
        let mut heard = false;
        let error = supervise(&mut command, Duration::from_millis(300), |words| heard |= !words.is_empty());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("sh did not exit within 0 s; its last line: waiting for the GPU"), "{error}");
        assert!(heard);
    }

    #[test]
    fn a_program_that_crashes_is_told_by_its_signal() {
        let mut command = Command::new("/bin/sh");
        let ended =
            supervise(command.args(["-c", "echo half; kill -SEGV $$"]), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!((ended.status.signal(), ended.output.as_slice()), (Some(libc::SIGSEGV), &b"half\n"[..]));
        let missing = supervise(&mut Command::new("/no/such/program"), Duration::from_secs(60), |_| {});
        let missing = missing.unwrap_err().to_string();
        assert!(missing.starts_with("cannot run program: No such file"), "{missing}");
    }

    #[test]
    fn a_program_that_is_ended_takes_with_it_what_it_started() {
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
        // At its end when nothing has it open for writing any more.
        while !matches!(reader.read(&mut [0]), Ok(0)) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_that_leaves_one_behind_with_its_pipes_is_not_waited_for_longer() {
        let mut command = Command::new("/bin/sh");
        let ended = supervise(command.args(["-c", "sleep 1000 & echo $!"]), Duration::from_secs(60), |_| {}).unwrap();
        assert!(ended.status.success());
        let left: libc::pid_t = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
        // SAFETY: it touches no memory; the program sleeps yet, and nothing has waited for it.
        assert_eq!(unsafe { libc::kill(left, libc::SIGKILL) }, 0, "it was left alone");
    }
}
