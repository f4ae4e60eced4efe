//! Runs a build, shows its progress, and cancels it on Ctrl-C.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use visiond_engine_builder::{BuildError, BuildOptions, BuildPhase, Built, Monitor};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging;

use crate::output::{complain, thread_error};
use crate::progress::Progress;

/// Interval between checks for signals.
const TICK: Duration = Duration::from_millis(200);

/// Time for the builder to react to a cancellation, which it checks between its steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Builds the engine and shows the progress.
pub fn build(onnx: &Path, options: BuildOptions) -> Result<Built, ExitError> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&ended));
        registered.map_err(ExitError::system)?;
    }
    let monitor = Monitor::new();
    let (done, result) = channel();
    let (path, theirs) = (onnx.to_owned(), Arc::clone(&monitor));
    let work = move || {
        // The receiver is gone only when the process is exiting.
        let _ = done.send(visiond_engine_builder::build(&path, options, &theirs));
    };
    std::thread::Builder::new().name("build".to_owned()).spawn(work).map_err(thread_error)?;

    let began = Instant::now();
    let (mut progress, mut asked) = (Progress::new(), None);
    let built = loop {
        match result.recv_timeout(TICK) {
            Ok(built) => break built,
            // The thread panicked, and the panic hook has printed the panic.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ExitError { message: String::new(), exit: Exit::Failure });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        match asked {
            None if ended.load(Ordering::SeqCst) => {
                monitor.cancel();
                asked = Some(now);
            }
            Some(since) if now - since > PATIENCE => leave(),
            _ => {}
        }
        progress.tell(|| progress_text(&monitor.phases(), now - began, asked.is_some()));
    };
    logging::clear_live_line();
    built.map_err(|error| failure(&error))
}

/// Exits while TensorRT is still working, because a step may take minutes. `_exit` skips the library's destructors, which
/// must not run meanwhile. Nothing has been written yet.
fn leave() -> ! {
    complain(&BuildError::Cancelled.to_string());
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(Exit::Failure.code().into()) }
}

/// Returns the error with its exit status.
fn failure(error: &BuildError) -> ExitError {
    let exit = match error {
        BuildError::Calibration(_) => Exit::Input,
        BuildError::Write { .. } => Exit::Output,
        BuildError::Cancelled | BuildError::NoDevice { .. } | BuildError::Cuda(_) => Exit::Failure,
        BuildError::Unavailable { .. } | BuildError::Shape { .. } => Exit::Usage,
        _ => Exit::Model,
    };
    ExitError::new(exit.unless_gpu_lost(error), error)
}

/// Formats a line such as `building: 1:05, Building Engine 3/5, Timing 42/100`
fn progress_text(phases: &[BuildPhase], elapsed: Duration, ends: bool) -> String {
    let seconds = elapsed.as_secs();
    let mut text = format!("{} {}:{:02}", if ends { "cancelling:" } else { "building:" }, seconds / 60, seconds % 60);
    for phase in phases {
        text.push_str(", ");
        text.push_str(&phase.name);
        if phase.steps > 0 {
            text.push_str(&format!(" {}/{}", phase.done.min(phase.steps), phase.steps));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_the_time_and_the_phases() {
        let phase = |name: &str, done, steps| BuildPhase { name: name.to_owned(), done, steps };
        let phases = [phase("building the engine", 0, 0), phase("Timing", 42, 100)];
        assert_eq!(
            progress_text(&phases, Duration::from_secs(65), false),
            "building: 1:05, building the engine, Timing 42/100"
        );
        assert_eq!(progress_text(&[], Duration::from_secs(3), true), "cancelling: 0:03");
    }

    #[test]
    fn an_error_of_a_build_has_its_exit_status() {
        use visiond_engine_builder::calibration::CalibrationError;
        let write = BuildError::Write { path: "a.engine".into(), error: std::io::ErrorKind::StorageFull.into() };
        for (error, exit) in [
            (BuildError::Calibration(CalibrationError::Picture("a.jpg is damaged".to_owned())), Exit::Input),
            (write, Exit::Output),
            (BuildError::Cancelled, Exit::Failure),
        ] {
            let failure = failure(&error);
            assert_eq!((failure.exit, failure.message), (exit, error.to_string()));
        }
    }

    #[test]
    fn a_phase_shows_at_most_all_of_its_steps() {
        let phase = BuildPhase { name: "Timing".to_owned(), done: 5, steps: 3 };
        assert_eq!(progress_text(&[phase], Duration::from_secs(600), false), "building: 10:00, Timing 3/3");
    }
}
