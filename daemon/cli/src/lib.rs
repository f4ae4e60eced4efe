//! The commands of visiond: one file for each command, and their common parts.

// Some common parts serve the workbench alone.
#![cfg_attr(not(feature = "workbench"), allow(dead_code))]

mod arguments;
mod cameras;
mod check;
mod client;
mod completions;
mod config_path;
mod load_limits;
mod man;
mod media_decoder;
mod mot_file;
mod next_frame;
mod output;
mod progress;
mod reload;
mod run;
mod sample_model;
mod systemd_unit;
mod text_table;
mod trace;
mod value_parsers;
mod version;

#[cfg(feature = "workbench")]
mod workbench;

#[cfg(feature = "workbench")]
mod bench;
#[cfg(feature = "workbench")]
mod build;
#[cfg(feature = "workbench")]
mod bundle;
#[cfg(feature = "workbench")]
mod capture;
#[cfg(feature = "workbench")]
mod compare;
#[cfg(feature = "workbench")]
mod detect;
#[cfg(feature = "workbench")]
mod fleet;
#[cfg(feature = "workbench")]
mod fleet_buckets;
#[cfg(feature = "workbench")]
mod inspect;
#[cfg(feature = "workbench")]
mod probe;
#[cfg(feature = "workbench")]
mod selftest;
#[cfg(feature = "workbench")]
mod top;
#[cfg(feature = "workbench")]
mod verify;
#[cfg(feature = "workbench")]
mod wall_clock;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::FromArgMatches;
use log::LevelFilter;
use visiond_kernels::nvtx;
use visiond_service::model_trial;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{self, Verbosity};

use arguments::{Cli, Command, command};
use output::{complain, print, print_usage_error};

/// Parses the command line, runs the command, and returns its exit status.
///
/// # Safety
/// The caller has started no thread yet, because this function sets environment variables.
pub unsafe fn main() -> ExitCode {
    // SAFETY: the caller promises that no other thread runs, which both functions require.
    unsafe {
        visiond_engine::onnx::silence_telemetry();
        visiond_system::cache::keep_kernels();
    }

    if let Some(exit) = model_trial::answer(std::env::args_os()) {
        return exit.leave();
    }
    let cli = match command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() {
                print_usage_error(&error.render().to_string());
                return Exit::Usage.into();
            }
            // Help and versions, with colours. A closed pipe is not an error here.
            let _ = error.print();
            return Exit::Success.into();
        }
    };
    // A program reads the output, and perhaps standard error as well.
    let errors_alone = cli.command.as_ref().is_some_and(Command::prints_json) && !logging::has_terminal();
    let level = if errors_alone { LevelFilter::Error } else { LevelFilter::Warn };
    logging::start(level, Verbosity { level: cli.log_level, steps: cli.verbose.min(9) as i8 - cli.quiet.min(9) as i8 });
    nvtx::start();
    // The panic hook has already printed the panic. Threads and child processes end with this process.
    let nothing_to_add = |_| Err(ExitError { message: String::new(), exit: Exit::Failure });
    let result = catch_unwind(AssertUnwindSafe(|| dispatch(cli))).unwrap_or_else(nothing_to_add);
    logging::clear_live_line();
    let exit = result.unwrap_or_else(|error| {
        if !error.message.is_empty() {
            complain(&error.message);
        }
        error.exit
    });
    exit.leave()
}

fn dispatch(cli: Cli) -> Result<Exit, ExitError> {
    match cli.command {
        _ if cli.version => version::print_version(),
        None => print(&command().render_help().to_string()).map(|()| Exit::Usage),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Reload(args)) => reload::run(args),
        Some(Command::Check(args)) => check::run(args),
        #[cfg(feature = "workbench")]
        Some(Command::Workbench(command)) => command.run(),
        Some(Command::Trace(args)) => trace::run(args),
        Some(Command::SystemdUnit(args)) => systemd_unit::run(args),
        Some(Command::Completions(args)) => completions::run(args, command()),
        Some(Command::Man(args)) => man::run(args, command()),
    }
}
