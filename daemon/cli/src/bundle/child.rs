//! A process of this program that does a part of a bundle's proof, with a deadline. It ends with this one.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use visiond_system::child_process::{Child, Filled, Launch, how_it_ended};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use crate::output::complain;

/// Returns a command of this program.
pub fn this_program() -> Result<Command, ExitError> {
    let path = env::current_exe().map_err(|error| {
        ExitError::new(Exit::Failure, format!("cannot find this program's path: {error}; start it by its path"))
    })?;
    Ok(Command::new(path))
}

/// What a process does with a model.
pub struct Job {
    /// The verb.
    pub doing: &'static str,
    /// What to do if it takes longer.
    pub remedy: &'static str,
    /// The longest time that it may take.
    pub timeout: Duration,
}

/// How a process ended that did its job or said why not.
pub struct Ended {
    pub exit: Exit,
    /// What it wrote to standard output.
    pub out: Vec<u8>,
    /// Its last error; empty if it had none.
    pub last_error: String,
}

impl Job {
    /// Waits for a process. Its last errors go to standard error.
    pub fn finish(&self, command: Command) -> Result<Ended, ExitError> {
        /// The most that a report may have.
        const MOST: usize = 16 << 20;
        let Self { doing, remedy, timeout } = self;
        let cannot = |error| ExitError::new(Exit::Failure, format!("cannot {doing} the model: {error}"));
        let stop = Stop::new().map_err(ExitError::system)?;
        let launch = Launch { label: "the model's proof", has_children: true, ..Launch::default() };
        let mut child = Child::spawn(command, &launch).map_err(cannot)?;
        let (mut out, mut read) = (vec![0; MOST], 0);
        let filled = child.fill(&mut out, &stop, Instant::now() + *timeout).map_err(cannot)?;
        match filled {
            Filled::Ended(bytes) => read = bytes,
            Filled::Full => {}
            Filled::Stopped => {
                return Err(ExitError::new(Exit::Failure, "stopped, and nothing has changed; run it again"));
            }
            Filled::TimedOut => {
                let seconds = timeout.as_secs();
                let message = format!("it took more than {seconds} s to {doing} the model: {remedy}");
                return Err(ExitError::new(Exit::Model, message));
            }
        }
        out.truncate(read);
        let status = child.exit_status(&stop);
        let mut last_error = String::new();
        for line in child.last_lines() {
            last_error = line.strip_prefix("visiond: ").unwrap_or(&line).to_owned();
            complain(&last_error);
        }
        let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        match code.and_then(Exit::from_code) {
            Some(exit) => Ok(Ended { exit, out, last_error }),
            None => {
                let how = status.map_or("did not end".to_owned(), how_it_ended);
                let message = format!("the process that was to {doing} the model {how}: {last_error}");
                Err(ExitError::new(Exit::Model, message))
            }
        }
    }
}
