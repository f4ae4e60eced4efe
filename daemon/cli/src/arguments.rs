//! The command line: the global options and the list of commands.

use std::env;
use std::io::{self, IsTerminal};

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use log::LevelFilter;
use visiond_system::exit::Exit;

#[cfg(feature = "workbench")]
use crate::workbench::WorkbenchCommand;
use crate::{check, completions, man, reload, run, systemd_unit, trace};

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
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = LOG)]
    pub verbose: u8,

    /// Log less (repeat for still less)
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = LOG)]
    pub quiet: u8,

    // `run` has a different default, so its help differs.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        help_heading = LOG,
        help = format!("{LEVELS} [default: warn; error with --json and no terminal]")
    )]
    pub log_level: Option<LevelFilter>,
}

/// The heading of the options that all commands share.
const LOG: &str = "Log";
const LEVELS: &str = "Set the log level: off, error, warn, info, debug or trace";

#[cfg(feature = "workbench")]
const EXAMPLES: &str = "\
Examples:
  visiond detect photo.jpg                  list the objects in a photo
  visiond detect --annotate out street.mp4  draw boxes on the frames of a video
  visiond probe                             list backends, GPUs and cameras
  visiond selftest                          test the GPU, memory and cameras
  visiond capture --camera /dev/video0      save a frame of a camera as PNG
  visiond build yolo11n.onnx --fp16         build a TensorRT engine for this GPU
  visiond bundle install street-7.visiond   prove a signed model here and use it
  visiond check /etc/visiond/visiond.toml   list every error in a configuration
  visiond run /etc/visiond/visiond.toml     run the daemon
  visiond reload                            load the changed configuration
  visiond top                               watch the daemon in this terminal";
#[cfg(not(feature = "workbench"))]
const EXAMPLES: &str = "\
Examples:
  visiond check /etc/visiond/visiond.toml   list every error in a configuration
  visiond run /etc/visiond/visiond.toml     run the daemon
  visiond reload                            load the changed configuration

This program is built without the commands that prepare and test: detect, probe, capture, build, inspect, bench, verify, \
compare, bundle, fleet, selftest and top.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::Args),
    Reload(reload::Args),
    Check(check::Args),
    #[cfg(feature = "workbench")]
    #[command(flatten)]
    Workbench(Box<WorkbenchCommand>),
    Trace(trace::Args),
    SystemdUnit(systemd_unit::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Returns whether `--json` is set.
    pub fn prints_json(&self) -> bool {
        match self {
            Self::Reload(args) => args.json,
            Self::Check(args) => args.json,
            #[cfg(feature = "workbench")]
            Self::Workbench(command) => command.prints_json(),
            Self::Run(_) | Self::Trace(_) | Self::SystemdUnit(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

/// Returns the command line. Each help text ends with the table of the command's possible exit statuses.
pub fn command() -> clap::Command {
    let root = Cli::command();
    let log: Vec<_> = root.get_arguments().filter(|arg| arg.get_help_heading() == Some(LOG)).cloned().collect();
    let of_command = |command: clap::Command, group: &str| {
        let name = format!("{group}{}", command.get_name());
        let log = log.iter().map(|arg| match arg.get_id().as_str() {
            "log_level" if name == "run" => arg.clone().help(format!("{LEVELS} [default: `log.level`]")),
            _ => arg.clone().hide(
                NO_LOG.contains(&name.as_str()) || ["bundle", "fleet"].iter().any(|group| name.starts_with(group)),
            ),
        });
        with_table(command.args(log), &exit_table(&name))
    };
    let of_group = |command: clap::Command| {
        let group = format!("{} ", command.get_name());
        of_command(command, "").mut_subcommands(|command| of_command(command, &group))
    };
    with_table(root.clone(), Exit::TABLE).mut_subcommands(of_group).max_term_width(max_width())
}

fn with_table(command: clap::Command, table: &str) -> clap::Command {
    let examples = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(format!("{examples}{table}"))
}

/// Commands that log nothing, as all of `bundle` and `fleet` do; they accept the log options anyway.
const NO_LOG: [&str; 6] = ["reload", "trace", "top", "systemd-unit", "completions", "man"];

/// Returns the rows of [`Exit::TABLE`] that the command can exit with.
fn exit_table(command: &str) -> String {
    use Exit::{Config, Differs, Failure, GpuLost, Input, Model, Output, Success, Usage};
    let others: &[Exit] = match command {
        "run" | "detect" | "build" | "bench" => &[Config, Model, Input, GpuLost],
        "verify" | "compare" => &[Config, Model, Input, GpuLost, Differs],
        "reload" => &[Config, Model, GpuLost],
        "inspect" => &[Config, Model],
        "capture" => &[Config, Input],
        "check" | "bundle keys" => &[Config],
        "bundle install" | "bundle rebuild" | "bundle follow" => &[Config, Model, Input, GpuLost, Differs],
        "bundle make" => &[Config, Model, Input, Differs],
        "bundle verify" => &[Config, Model, Input],
        "bundle sign" => &[Config, Input],
        "fleet bundles" | "fleet init" | "fleet status" | "fleet devices" | "fleet forget" | "fleet pin"
        | "fleet unpin" => &[Config, Input],
        "fleet" | "fleet push" | "fleet rollout" | "fleet resume" | "fleet rollback" | "fleet pause"
        | "fleet delete" => &[Config, Model, Input],
        "bundle publish" => &[Model, Input],
        "bundle" | "bundle inspect" | "bundle list" | "bundle rollback" => &[Input],
        "probe" | "selftest" => &[Input],
        _ => &[],
    };
    let applies = |row: &str| {
        let code = row.split_whitespace().next().and_then(|code| code.parse().ok()).and_then(Exit::from_code);
        code.is_none_or(|exit| [Success, Failure, Usage, Output].contains(&exit) || others.contains(&exit))
    };
    Exit::TABLE.lines().filter(|row| applies(row)).collect::<Vec<_>>().join("\n")
}

/// Returns the maximum width of help texts: without a terminal, clap would always use 100 columns.
fn max_width() -> usize {
    let terminal = io::stdout().is_terminal() || io::stderr().is_terminal() || io::stdin().is_terminal();
    if terminal || env::var_os("COLUMNS").is_some() { 100 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_each_help_has_what_applies_to_its_command() {
        command().debug_assert();
        let mut root = command();
        assert!(root.render_long_help().to_string().contains(Exit::TABLE));
        root.build();
        let mut help = |name: &str| root.find_subcommand_mut(name).unwrap().render_long_help().to_string();
        let (run, verify, completions, reload) = (help("run"), help("verify"), help("completions"), help("reload"));
        assert!(run.contains("\n  7  the GPU failed") && !run.contains("\n  8  "), "{run}");
        assert!(verify.contains(Exit::TABLE), "{verify}");
        assert!([3, 4, 6, 7].iter().all(|code| reload.contains(&format!("\n  {code}  "))), "{reload}");
        assert!(completions.contains("\n  6  an output") && !completions.contains("\n  3  "), "{completions}");
        // Compares the texts regardless of line breaks.
        let words = |help: &str| help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&run).contains("debug or trace [default: `log.level`]"), "{run}");
        assert!(
            words(&verify).contains("debug or trace [default: warn; error with --json and no terminal]"),
            "{verify}"
        );
        assert!(!completions.contains("--log-level"), "{completions}");
        assert!(command().try_get_matches_from(["visiond", "completions", "-v", "bash"]).is_ok());
    }

    #[test]
    fn text_below_the_options_has_a_line_a_paragraph_and_tables_fit_into_80_columns() {
        let root = command();
        let nested = root.get_subcommands().flat_map(clap::Command::get_subcommands);
        for command in root.get_subcommands().chain(nested).chain([&root]) {
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

    #[test]
    fn json_is_expected_of_the_commands_that_have_the_flag() {
        let commands = [
            ("reload", ""),
            ("detect", "a.jpg"),
            ("check", ""),
            ("probe", ""),
            ("capture", "-c /dev/video0"),
            ("build", "a.onnx"),
            ("inspect", "a.onnx"),
            ("bench", ""),
            ("verify", "a.onnx b.onnx --images d"),
            ("bundle inspect", "a.visiond"),
            ("bundle list", ""),
            ("selftest", ""),
        ];
        for (command, arguments) in commands {
            for (flag, expected) in [("", false), ("--json", true)] {
                let line = format!("visiond {command} {arguments} {flag}");
                let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string());
                assert_eq!(
                    cli.map(|cli| cli.command.is_some_and(|command| command.prints_json())),
                    Ok(expected),
                    "{line}"
                );
            }
        }
        for line in ["visiond run", "visiond top", "visiond man", "visiond trace", "visiond systemd-unit"] {
            let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string());
            assert_eq!(cli.map(|cli| cli.command.is_some_and(|command| command.prints_json())), Ok(false), "{line}");
        }
    }

    #[test]
    fn a_command_lists_the_statuses_that_it_can_have() {
        for (command, expected) in [
            ("run", "01234567"),
            ("detect", "01234567"),
            ("build", "01234567"),
            ("bench", "01234567"),
            ("verify", "012345678"),
            ("reload", "0123467"),
            ("inspect", "012346"),
            ("capture", "012356"),
            ("check", "01236"),
            ("probe", "01256"),
            ("selftest", "01256"),
            ("top", "0126"),
            ("bundle install", "012345678"),
            ("bundle verify", "0123456"),
            ("bundle sign", "012356"),
            ("bundle rollback", "01256"),
        ] {
            let table = exit_table(command);
            let codes: String = table.lines().skip(1).filter_map(|row| row.split_whitespace().next()).collect();
            assert_eq!(codes, expected, "{command}");
            assert!(table.starts_with("Exit status:\n"), "{table}");
        }
    }
}
