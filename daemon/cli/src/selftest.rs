//! `visiond selftest`: tests what visiond needs of this board, prints a table and writes a file to send.
//!
//! Everything that calls NVIDIA's libraries may crash or hang, so it runs in a child process. A crash is a row of the table
//! like any other failure.

mod archive;
mod argus;
mod board;
mod cameras;
mod checks;
mod child;
mod deadline;
mod gpu;
mod heat;
mod nodes;
mod progress;
mod redact;
mod report;
mod sandbox;
mod tensorrt;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use visiond_config::types::CameraName;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging;

use crate::output::{complain, print, print_json};
use crate::value_parsers::duration;
use checks::{Area, Row, Section};
use child::{SuperviseError, supervise};
use deadline::{NO_TIME, time_left};
use progress::TestProgress;
use redact::Redaction;
use report::{FORMAT, Report};

/// Test this board's GPU, memory, TensorRT, cameras, cooling and service sandbox, and write a report to send
///
/// Takes at most five minutes. Run as root, it also tests the sandbox of visiond.service. Missing hardware and software is
/// skipped, and the table says why. Stop the service first, because a camera in use cannot be tested.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Test this camera, named as by a configuration's `device` (repeatable) [default: every V4L2 camera]
    #[arg(short, long, value_name = "CAMERA")]
    camera: Vec<CameraName>,

    /// Test only these areas, separated by commas [default: all]
    #[arg(long, value_name = "AREA", value_delimiter = ',', value_enum)]
    only: Vec<Area>,

    /// Keep the board under load for TIME in the heat test
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = duration)]
    load: Duration,

    /// Write the report to FILE, a .tar.gz, without serial numbers, addresses and names [default: none]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Print JSON instead of the table, without serial numbers, addresses and names
    #[arg(long)]
    json: bool,

    /// Show a report that --report or --json wrote, without testing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["camera", "only", "report"])]
    show: Option<PathBuf>,

    /// Test in this process (used by the parent process)
    #[arg(long, hide = true)]
    in_process: bool,

    /// Print unredacted JSON within TIME (used by the parent process)
    #[arg(long, hide = true, value_name = "TIME", value_parser = duration)]
    inner: Option<Duration>,

    /// Print the milliseconds that compiling the kernels takes
    #[arg(long, hide = true)]
    compile_kernels: bool,
}

/// Time limit for all areas but heat, including their run in the sandbox. Tests without time left are skipped. Together with
/// the minute under load and [`HEAT_TIME`] this is less than five minutes.
const TIME: Duration = Duration::from_secs(220);
/// Time limit for an area in a child process, after which it counts as hanging.
const AREA_TIME: Duration = Duration::from_secs(90);
/// Time limit for heat beyond its time under load.
const HEAT_TIME: Duration = Duration::from_secs(15);

/// The check name for an area that did not finish.
const WHOLE: &str = "the test itself";
const AFTER_HELP: &str = "\
Examples:
  visiond selftest
  sudo visiond selftest --report board.tar.gz      also test the sandbox, and write a report
  visiond selftest --camera /dev/video0 --only cameras
  visiond selftest --show board.tar.gz             show a report

The exit status is 0 if no check failed and 1 otherwise, also with --show.";

/// Tests the board, or shows a report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if args.compile_kernels {
        let milliseconds = gpu::compile_here().map_err(|error| ExitError::new(Exit::Failure, error))?;
        return print(&format!("{milliseconds}\n")).map(|()| Exit::Success);
    }
    if let Some(path) = &args.show {
        let report = archive::read(path).map_err(|error| ExitError::new(Exit::Input, error))?;
        if args.json {
            print_json(&report)?;
        } else {
            print(&report.table())?;
        }
        return Ok(exit(&report));
    }
    if let Some(path) = &args.report {
        // Before minutes of tests, so that a path that cannot be written is an early error.
        archive::make(path).map_err(|error| ExitError::new(Exit::Output, error))?;
    }
    let is_for_another_process = args.in_process || args.inner.is_some();
    let mut tell = TestProgress::new(is_for_another_process);
    let report = test(&args, &mut tell);
    logging::clear_live_line();
    if is_for_another_process {
        // The parent process redacts it.
        return print_json(&report).map(|()| exit(&report));
    }
    output(&args, &report)?;
    Ok(exit(&report))
}

fn exit(report: &Report) -> Exit {
    if report.counts()[1] == 0 { Exit::Success } else { Exit::Failure }
}

/// Prints and writes the report. JSON and file are redacted, the table on the terminal is not.
fn output(args: &Args, report: &Report) -> Result<(), ExitError> {
    let redaction = Redaction::here();
    let mut redacted = report.clone();
    redaction.report(&mut redacted);
    // Print first, because writing the file may fail.
    if args.json {
        print_json(&redacted)?;
    } else {
        print(&report.table())?;
    }
    let Some(path) = &args.report else { return Ok(()) };
    let json = serde_json::to_string_pretty(&redacted)
        .map_err(|error| ExitError::new(Exit::Failure, format!("cannot write JSON: {error}")))?;
    archive::write(path, &json, &redacted.table(), &redaction)
        .map_err(|error| ExitError::new(Exit::Output, format!("cannot write {}: {error}", path.display())))?;
    complain(&format!("wrote {}: look through it, then attach it to your issue", path.display()));
    Ok(())
}

/// Tests the selected areas, in the order that disturbs later ones least.
fn test(args: &Args, tell: &mut TestProgress) -> Report {
    let began = Instant::now();
    let end = began + args.inner.unwrap_or(TIME);
    let mut only = args.only.clone();
    if only.contains(&Area::Sandbox) && !only.iter().any(|area| sandbox::AREAS.contains(area)) {
        // The sandbox repeats the other areas, so it needs them.
        only.extend(sandbox::AREAS);
    }
    let wanted = |area| only.is_empty() || only.contains(&area);
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let mut report = Report {
        format: FORMAT,
        visiond: env!("CARGO_PKG_VERSION").to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        at: now.to_string(),
        seconds: 0.0,
        rows: Vec::new(),
        nodes: Vec::new(),
        sandbox: None,
    };
    let nodes_before = wanted(Area::Nodes).then(|| nodes::look(Path::new("/dev")));
    let isolated = |area: Area, report: &mut Report, tell: &mut TestProgress| {
        if wanted(area) {
            report.rows.extend(if args.in_process {
                test_here(area, args, tell, end)
            } else {
                test_in_child(area, args, tell, end)
            });
        }
    };
    isolated(Area::Board, &mut report, tell);
    isolated(Area::Cuda, &mut report, tell);
    if let Some(before) = nodes_before {
        report.nodes = nodes::merge(before, nodes::look(Path::new("/dev")));
        let mut section = Section::new(Area::Nodes);
        nodes::rows(&report.nodes, &mut section);
        report.rows.extend(section.rows);
    }
    isolated(Area::Memory, &mut report, tell);
    isolated(Area::Tensorrt, &mut report, tell);
    for area in [Area::Cameras, Area::Argus].into_iter().filter(|area| wanted(*area)) {
        report.rows.extend(test_here(area, args, tell, end));
    }
    if wanted(Area::Sandbox) && !args.in_process {
        tell.begin(Area::Sandbox);
        let mut section = Section::new(Area::Sandbox);
        let areas = sandbox::AREAS.into_iter().filter(|area| wanted(*area)).collect();
        report.sandbox = sandbox::run(&mut section, tell, &report, areas, &args.camera, end);
        report.rows.extend(section.rows);
    }
    isolated(Area::Heat, &mut report, tell);
    report.rows.sort_by_key(|row| row.area);
    report.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    report
}

/// Tests an area in this process.
fn test_here(area: Area, args: &Args, tell: &mut TestProgress, end: Instant) -> Vec<Row> {
    tell.begin(area);
    let mut section = Section::new(area);
    let result = match area {
        Area::Board => {
            board::run(&mut section);
            Ok(())
        }
        Area::Cuda => gpu::cuda(&mut section, tell),
        Area::Memory => gpu::memory(&mut section, tell),
        Area::Tensorrt => tensorrt::run(&mut section, tell),
        Area::Cameras => {
            cameras::run(&args.camera, &mut section, tell, end);
            Ok(())
        }
        Area::Argus => {
            argus::run(&mut section, tell, end);
            Ok(())
        }
        Area::Heat => {
            heat::run(&mut section, tell, args.load);
            Ok(())
        }
        // The parent process tests these two itself.
        Area::Nodes | Area::Sandbox => Ok(()),
    };
    if let Err(error) = result {
        section.fail(WHOLE, "the test finishes", error);
    }
    section.rows
}

/// Tests an area in a child process, until `end`; heat has its own limit.
fn test_in_child(area: Area, args: &Args, tell: &mut TestProgress, end: Instant) -> Vec<Row> {
    tell.begin(area);
    let mut section = Section::new(area);
    let (limit, left) = match area {
        Area::Heat => (args.load + HEAT_TIME, Some(args.load + HEAT_TIME)),
        _ => (AREA_TIME, time_left(end)),
    };
    let Some(left) = left else {
        section.skip(WHOLE, NO_TIME);
        return section.rows;
    };
    let patience = limit.min(left);
    let mut failed = |why: String| {
        section.fail(WHOLE, "the test finishes", why);
        std::mem::take(&mut section.rows)
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(format!("cannot find the program file of visiond: {error}")),
    };
    let mut command = Command::new(program);
    command.args(["selftest", "--in-process", "--only", area.name()]);
    command.arg(format!("--load={}ms", args.load.as_millis()));
    match supervise(&mut command, patience, |words| tell.say(words)) {
        Ok(ended) => match serde_json::from_slice::<Report>(&ended.output) {
            Ok(report) => report.rows,
            Err(_) => failed(ended.to_string()),
        },
        Err(SuperviseError::TimedOut { .. }) if patience < limit => {
            section.skip(WHOLE, NO_TIME);
            section.rows
        }
        Err(error) => failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
