//! A build with somebody watching: a live line on a terminal, plain lines in a pipe, and an end by Ctrl-C.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use visiond_engine_builder::{BuildError, BuildOptions, Built, Monitor, Phase};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging;

use crate::output::complain;

/// How often the terminal's line is drawn anew, and signals are looked for.
const TICK: Duration = Duration::from_millis(200);

/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(10);

/// How long the builder has to end by itself: it looks between its steps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Builds, and tells how far it is.
pub fn build(onnx: &Path, options: BuildOptions) -> Result<Built, ExitError> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&ended));
        registered.map_err(|error| ExitError::new(Exit::Failure, format!("cannot wait for signals: {error}")))?;
    }
    let monitor = Monitor::new();
    let (done, result) = channel();
    let (path, theirs) = (onnx.to_owned(), Arc::clone(&monitor));
    let work = move || {
        // Nobody listens any more when the process is ending.
        let _ = done.send(visiond_engine_builder::build(&path, options, &theirs));
    };
    let thread = std::thread::Builder::new().name("build".to_owned()).spawn(work);
    thread.map_err(|error| ExitError::new(Exit::Failure, format!("cannot start a thread: {error}")))?;

    let began = Instant::now();
    let (mut line, mut asked) = (began, None);
    let built = loop {
        match result.recv_timeout(TICK) {
            Ok(built) => break built,
            // It panicked; the hook has told.
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
        let text = progress(&monitor.phases(), now - began, asked.is_some());
        if logging::has_terminal() {
            logging::live_line(&text);
        } else if now - line >= LINE && log::max_level() >= log::LevelFilter::Warn {
            line = now;
            // There is no place left to tell when standard error is gone.
            let _ = writeln!(io::stderr(), "{text}");
        }
    };
    logging::clear_live_line();
    built.map_err(|error| failure(&error))
}

/// Ends the process while TensorRT is at work: it looks for no signal before its step is done, which may take minutes, and
/// the library's own clearing-up must not run under its feet. Nothing has been written yet.
fn leave() -> ! {
    logging::clear_live_line();
    complain(&BuildError::Cancelled.to_string());
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(Exit::Failure.code().into()) }
}

/// The exit status that goes with what went wrong.
fn failure(error: &BuildError) -> ExitError {
    let exit = match error {
        BuildError::Calibration { .. } => Exit::Input,
        BuildError::Write { .. } => Exit::Output,
        BuildError::Cancelled | BuildError::NoDevice { .. } | BuildError::Cuda(_) => Exit::Failure,
        BuildError::Unavailable { .. } | BuildError::Shape { .. } => Exit::Usage,
        _ => Exit::Model,
    };
    ExitError::new(exit, error)
}

/// `building: 1:05, Building Engine 3/5, Timing 42/100`
fn progress(phases: &[Phase], elapsed: Duration, ends: bool) -> String {
    let seconds = elapsed.as_secs();
    let mut text = format!("{} {}:{:02}", if ends { "ending:" } else { "building:" }, seconds / 60, seconds % 60);
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
        let phase = |name: &str, done, steps| Phase { name: name.to_owned(), done, steps };
        let phases = [phase("building the engine", 0, 0), phase("Timing", 42, 100)];
        assert_eq!(
            progress(&phases, Duration::from_secs(65), false),
            "building: 1:05, building the engine, Timing 42/100"
        );
        assert_eq!(progress(&[], Duration::from_secs(3), true), "ending: 0:03");
    }
}
