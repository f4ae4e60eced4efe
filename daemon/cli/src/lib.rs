//! The command line: one file a command.

mod bench;
mod build;
mod cameras;
mod capture;
mod check;
mod client;
mod completions;
mod detect;
mod inspect;
mod machine;
mod man;
mod models;
mod probe;
mod progress;
mod reload;
mod run;
mod selftest;
mod top;
mod trace;
mod verify;

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use log::LevelFilter;
use visiond_config::parse_word;
use visiond_config::types::BackendChoice;
use visiond_kernels::nvtx;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{self, Verbosity};

pub use models::default_model;

/// The vision daemon: a camera goes in, detections come out.
#[derive(Debug, Parser)]
#[command(
    name = "visiond",
    disable_version_flag = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print the version and the engines that are there
    #[arg(short = 'V', long)]
    version: bool,

    /// Log more; twice for more still
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Log")]
    verbose: u8,

    /// Log less; twice for less still
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Log")]
    quiet: u8,

    /// Log so much: off, error, warn, info, debug or trace
    ///
    /// Without it: what the configuration says for `run`, else warn.
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Log")]
    log_level: Option<LevelFilter>,
}

const EXAMPLES: &str = "\
Examples:
  visiond detect photo.jpg                     what is on a photo
  visiond detect --annotate out street.mp4     pictures with boxes, from a video
  visiond probe                                what this machine has
  visiond selftest                             whether its GPU, memory and cameras work
  visiond capture --camera /dev/video0         a picture of a camera
  visiond build yolo11n.onnx --fp16            a TensorRT engine for its GPU
  visiond check /etc/visiond/visiond.toml      every error of a configuration
  visiond run /etc/visiond/visiond.toml        the daemon
  visiond reload                               it reads its configuration again
  visiond top                                  what it does, live in this terminal";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Reload(reload::Args),
    Detect(detect::Args),
    Check(check::Args),
    Probe(probe::Args),
    Capture(Box<capture::Args>),
    Build(Box<build::Args>),
    Inspect(inspect::Args),
    Bench(bench::Args),
    Verify(verify::Args),
    Selftest(Box<selftest::Args>),
    Trace(trace::Args),
    Top(top::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// The command line with the exit table below every help text.
fn command() -> clap::Command {
    fn with_table(command: clap::Command) -> clap::Command {
        let examples = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
        command.after_help(format!("{examples}{}", Exit::TABLE))
    }
    with_table(Cli::command()).mut_subcommands(with_table)
}

/// Runs the command that the arguments name; returns its exit status.
///
/// # Safety
/// No other thread runs yet: this sets variables of the environment.
pub unsafe fn main() -> ExitCode {
    // SAFETY: the caller's promise.
    unsafe {
        visiond_engine::onnx::silence_telemetry();
        visiond_system::cache::keep_kernels();
    }

    let cli = match command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Prints help to standard output, mistakes to standard error; a reader that has gone wants neither.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    logging::start(Verbosity { level: cli.log_level, steps: steps(cli.verbose) - steps(cli.quiet) });
    nvtx::start();
    // The panic hook has told what happened; threads and children end with the process.
    let nothing_to_add = |_| Err(ExitError { message: String::new(), exit: Exit::Failure });
    let result = catch_unwind(AssertUnwindSafe(|| dispatch(cli))).unwrap_or_else(nothing_to_add);
    logging::clear_live_line();
    match result {
        Ok(exit) => exit.leave(),
        Err(error) => {
            if !error.message.is_empty() {
                complain(&error.message);
            }
            error.exit.leave()
        }
    }
}

fn dispatch(cli: Cli) -> Result<Exit, ExitError> {
    match cli.command {
        _ if cli.version => probe::print_version(),
        None => print(&command().render_help().to_string()).map(|()| Exit::Usage),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Reload(args)) => reload::run(args),
        Some(Command::Detect(args)) => detect::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Probe(args)) => probe::run(args),
        Some(Command::Capture(args)) => capture::run(*args),
        Some(Command::Build(args)) => build::run(*args),
        Some(Command::Inspect(args)) => inspect::run(args),
        Some(Command::Bench(args)) => bench::run(args),
        Some(Command::Verify(args)) => verify::run(args),
        Some(Command::Selftest(args)) => selftest::run(*args),
        Some(Command::Trace(args)) => trace::run(args),
        Some(Command::Top(args)) => top::run(args),
        Some(Command::Completions(args)) => completions::run(args),
        Some(Command::Man(args)) => man::run(args),
    }
}

fn steps(count: u8) -> i8 {
    i8::try_from(count.min(9)).unwrap_or(9)
}

/// Writes `visiond: message` to standard error. Several lines are a list of errors that name their file themselves.
pub fn complain(message: &str) {
    let program = if message.contains('\n') { "" } else { "visiond: " };
    // There is no place left to complain to when standard error is gone.
    let _ = writeln!(io::stderr(), "{program}{message}");
}

/// Writes `text` to standard output, at once.
pub fn print(text: &str) -> Result<(), ExitError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| ExitError::stdout(&error))
}

/// Writes `value` to standard output as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), ExitError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| ExitError::new(Exit::Failure, format!("no JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

/// A number from 0 to 1, for clap.
fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "not a number from 0 to 1".to_owned())
}

/// A backend by name, for clap.
fn backend(text: &str) -> Result<BackendChoice, String> {
    parse_word(text)
}

/// Where a configuration is looked for when none is named, first found first.
pub const DEFAULT_CONFIGS: [&str; 2] = ["/etc/visiond/visiond.toml", "visiond.toml"];

/// The configuration named on the command line, else the first of [`DEFAULT_CONFIGS`] that exists.
pub fn config_path(named: Option<PathBuf>) -> Result<PathBuf, ExitError> {
    let found = || DEFAULT_CONFIGS.map(Path::new).into_iter().find(|path| path.exists()).map(Path::to_owned);
    named.or_else(found).ok_or_else(|| {
        ExitError::new(
            Exit::Config,
            format!(
                "no configuration: neither {} nor {} in this folder exists; name one, or write one with \
                 `visiond check --print-default-config > visiond.toml`",
                DEFAULT_CONFIGS[0], DEFAULT_CONFIGS[1]
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_help_has_the_exit_table() {
        command().debug_assert();
        for sub in command().get_subcommands_mut() {
            let help = sub.render_long_help().to_string();
            assert!(help.contains(Exit::TABLE), "{help}");
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_message() {
        let gone = ExitError::stdout(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(gone, ExitError { message: String::new(), exit: Exit::Output });
        let full = ExitError::stdout(&io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(full.message, "cannot write to standard output: No space left on device (os error 28)");
    }
}
