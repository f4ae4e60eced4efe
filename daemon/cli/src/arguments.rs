//! The command line: the global options and the list of commands.

use std::env;
use std::io::{self, IsTerminal};

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use log::LevelFilter;
use visiond_system::exit::Exit;

use crate::{
    bench, build, capture, check, completions, detect, inspect, man, probe, reload, run, selftest, systemd_unit, top,
    trace, verify,
};

/// Vision daemon: reads cameras and publishes detections.
#[derive(Debug, Parser)]
#[command(
    name = "visiond",
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Print the version and the installed inference backends
    #[arg(short = 'V', long)]
    pub version: bool,

    /// Log more (repeat for still more)
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Log")]
    pub verbose: u8,

    /// Log less (repeat for still less)
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Log")]
    pub quiet: u8,

    /// Set the log level: off, error, warn, info, debug or trace [default: `log.level` for `run`, else warn; error with --json
    /// and no terminal]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Log")]
    pub log_level: Option<LevelFilter>,
}

const EXAMPLES: &str = "\
Examples:
  visiond detect photo.jpg                  list the objects in a photo
  visiond detect --annotate out street.mp4  draw boxes on the frames of a video
  visiond probe                             list backends, GPUs and cameras
  visiond selftest                          test the GPU, memory and cameras
  visiond capture --camera /dev/video0      save a frame of a camera as PNG
  visiond build yolo11n.onnx --fp16         build a TensorRT engine for this GPU
  visiond check /etc/visiond/visiond.toml   list every error in a configuration
  visiond run /etc/visiond/visiond.toml     run the daemon
  visiond reload                            load the changed configuration
  visiond top                               watch the daemon in this terminal";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
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
    SystemdUnit(systemd_unit::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Returns whether `--json` is set.
    pub fn prints_json(&self) -> bool {
        match self {
            Self::Reload(args) => args.json,
            Self::Detect(args) => args.json,
            Self::Check(args) => args.json,
            Self::Probe(args) => args.json,
            Self::Capture(args) => args.json,
            Self::Build(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Bench(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Selftest(args) => args.json,
            Self::Run(_)
            | Self::Trace(_)
            | Self::Top(_)
            | Self::SystemdUnit(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

/// Returns the command line with the table of exit statuses below every help text.
pub fn command() -> clap::Command {
    fn with_table(command: clap::Command) -> clap::Command {
        let examples = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
        command.after_help(format!("{examples}{}", Exit::TABLE))
    }
    with_table(Cli::command()).mut_subcommands(with_table).max_term_width(max_width())
}

/// Returns the most columns of a help text: without a terminal, clap alone would take 100.
fn max_width() -> usize {
    let terminal = io::stdout().is_terminal() || io::stderr().is_terminal() || io::stdin().is_terminal();
    if terminal || env::var_os("COLUMNS").is_some() { 100 } else { 80 }
}

#[cfg(test)]
mod tests {
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
    fn text_below_the_options_has_a_line_a_paragraph_and_tables_fit_into_80_columns() {
        let root = command();
        for command in root.get_subcommands().chain([&root]) {
            let help = command.get_after_help().unwrap().to_string();
            for block in help.split("\n\n") {
                let lines: Vec<_> = block.lines().collect();
                assert!(
                    lines.len() == 1 || lines[0].ends_with(':'),
                    "{}: a broken paragraph: {block}",
                    command.get_name()
                );
                for line in &lines[1..] {
                    assert!(line.starts_with("  ") && line.len() <= 80, "{}: {line}", command.get_name());
                }
            }
        }
    }
}
