//! Exit statuses, the same for every command.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use visiond_ground::gpu_lost::is_gpu_lost;

static SKIP_CLEANUP: AtomicBool = AtomicBool::new(false);

/// Makes the process exit without its libraries' clean-up, which would crash a thread that still loads a model.
pub fn skip_cleanup() {
    SKIP_CLEANUP.store(true, Ordering::Relaxed);
}

/// Exit status of every command; `--help` prints this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything requested was done.
    Success = 0,
    /// A failure without a number of its own.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration or a model card is wrong.
    Config = 3,
    /// A model cannot be used.
    Model = 4,
    /// An input (camera, video, image) cannot be read.
    Input = 5,
    /// An output (file, socket, disk, pipe) cannot be written.
    Output = 6,
    /// The GPU failed in a way that only a new process recovers from.
    GpuLost = 7,
    /// The outputs of two compared models differ, or a model's and a reference's.
    Differs = 8,
}

impl Exit {
    /// The table of statuses for `--help`.
    pub const TABLE: &'static str = "\
Exit status:
  0  everything asked for was done
  1  something failed that has no number below
  2  the command line is wrong
  3  the configuration or a model card is wrong
  4  a model cannot be used
  5  an input (camera, video, picture) cannot be read
  6  an output (file, socket, pipe) cannot be written (no message with | head)
  7  the GPU failed and only a new process recovers: restart, as systemd does
  8  the compared models, or model and reference, differ (verify)";

    /// Returns the status for `main`. After a GPU failure or [`skip_cleanup`], ends the process at once instead.
    ///
    /// The clean-up of CUDA and TensorRT would wait for a hung GPU, or crash on a lost context and lose the status.
    pub fn leave(self) -> std::process::ExitCode {
        if self == Self::GpuLost || SKIP_CLEANUP.load(Ordering::Relaxed) {
            // SAFETY: the call ends the process and runs no more of its code; sinks were closed and the log is not buffered.
            unsafe { libc::_exit(self.code().into()) };
        }
        self.into()
    }

    /// Returns this status, or [`GpuLost`](Self::GpuLost) if that is the reason for `error`.
    pub fn unless_gpu_lost(self, error: &(dyn Error + 'static)) -> Self {
        if is_gpu_lost(error) { Self::GpuLost } else { self }
    }

    /// Returns the status with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        use Exit::*;
        let all = [Success, Failure, Usage, Config, Model, Input, Output, GpuLost, Differs];
        all.into_iter().find(|exit| exit.code() == code)
    }

    /// Returns the number that the shell sees.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that ends a command: a sentence for the user, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitError {
    /// The problem and its remedy, without a full stop; empty if it was logged already.
    pub message: String,
    /// The exit status.
    pub exit: Exit,
}

impl ExitError {
    /// Creates an error with its sentence.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), exit }
    }

    /// Creates an error for a thread or descriptor that the system refused.
    pub fn system(error: io::Error) -> Self {
        Self::new(Exit::Failure, format!("cannot start a thread or open a descriptor: {error}"))
    }

    /// Creates an error for standard output; silent if the reader has closed it.
    pub fn stdout(error: &io::Error) -> Self {
        let message = match error.kind() {
            io::ErrorKind::BrokenPipe => String::new(),
            _ => format!("cannot write to standard output: {error}"),
        };
        Self { message, exit: Exit::Output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_the_one_in_the_table_and_comes_back_from_its_number() {
        for code in 0..=u8::MAX {
            let row = Exit::TABLE.lines().any(|line| line.trim_start().starts_with(&format!("{code}  ")));
            assert_eq!(Exit::from_code(code).map(Exit::code), row.then_some(code), "{code}");
        }
    }

    #[test]
    fn all_statuses_but_that_of_the_gpu_are_left_to_main() {
        // If the process ended here, the test program would report no result.
        for exit in [Exit::Failure, Exit::Config, Exit::Input, Exit::Differs] {
            let status = std::process::ExitCode::from(exit.code());
            assert_eq!(format!("{:?}", exit.leave()), format!("{status:?}"));
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_news() {
        let error = |kind| ExitError::stdout(&io::Error::from(kind));
        assert_eq!(error(io::ErrorKind::BrokenPipe), ExitError { message: String::new(), exit: Exit::Output });
        let full = error(io::ErrorKind::StorageFull);
        assert!(full.message.starts_with("cannot write to standard output: ") && full.exit == Exit::Output, "{full:?}");
    }
}
