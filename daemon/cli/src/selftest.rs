//! `visiond selftest`: tests everything that visiond needs on this board, prints a table and writes a report file to send.
//!
//! Everything that calls NVIDIA's libraries may crash or hang, so it runs in a child process. A crash becomes a row of the table
//! like any other failure.

mod archive;
mod argus;
mod board;
mod cameras;
mod checks;
mod child;
mod color_bar;
mod gpu;
mod heat;
mod nodes;
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

use crate::output::{note, print, print_json};
use crate::value_parsers::duration;
use checks::{Area, AreaTest, Failed, NO_TIME};
use child::{SuperviseError, supervise};
use nodes::DeviceList;
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
    pub json: bool,

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

/// Time limit for all areas but heat, including their repetition in the sandbox. Tests without time left are skipped. Together
/// with the minute under load and [`HEAT_TIME`] this is less than five minutes.
const TIME: Duration = Duration::from_secs(220);
/// Time limit for an area in a child process, after which it counts as hung.
const AREA_TIME: Duration = Duration::from_secs(90);
/// Time limit for heat beyond its time under load.
const HEAT_TIME: Duration = Duration::from_secs(15);

/// The check name for an area that did not finish.
const WHOLE: &str = "the test itself";
const FINISHES: &str = "the test finishes";

/// The areas, in the order that disturbs later ones least.
const ORDER: [Area; 9] = {
    use Area::{Argus, Board, Cameras, Cuda, Heat, Memory, Nodes, Sandbox, Tensorrt};
    [Board, Cuda, Nodes, Memory, Tensorrt, Cameras, Argus, Sandbox, Heat]
};

const AFTER_HELP: &str = "\
The exit status is 0 if no check failed and 1 otherwise, also with --show.

Examples:
  visiond selftest
  sudo visiond selftest --report board.tar.gz   test the sandbox, too
  visiond selftest --camera /dev/video0 --only cameras
  visiond selftest --show board.tar.gz          show a report";

/// Tests the board, or shows a report.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if args.compile_kernels {
        let milliseconds = gpu::compile_here().map_err(|error| ExitError::new(Exit::Failure, error))?;
        return print(&format!("{milliseconds}\n")).map(|()| Exit::Success);
    }
    if let Some(path) = &args.show {
        let report = archive::read(path)?;
        show(&report, &report, args.json)?;
        return Ok(exit(&report));
    }
    if let Some(path) = &args.report {
        // Check the path before minutes of tests, so that an unwritable one is an early error.
        archive::make(path)?;
    }
    let mut report = test(&args);
    logging::clear_live_line();
    if args.inner.is_some() {
        let mut test = AreaTest::new(Area::Sandbox, true, Instant::now());
        sandbox::system_calls(&mut test);
        report.rows.extend(test.rows);
    }
    if args.is_child() {
        // The parent process redacts it.
        return print_json(&report).map(|()| exit(&report));
    }
    let redaction = Redaction::here();
    let mut redacted = report.clone();
    redaction.report(&mut redacted);
    // Print first, because writing the file may fail.
    show(&report, &redacted, args.json)?;
    if let Some(path) = &args.report {
        archive::write(path, &redacted, &redaction)?;
        note(&format!("wrote {}: look through it, then attach it to your issue", path.display()));
    }
    Ok(exit(&report))
}

impl Args {
    fn is_child(&self) -> bool {
        self.in_process || self.inner.is_some()
    }
}

fn exit(report: &Report) -> Exit {
    if report.counts()[1] == 0 { Exit::Success } else { Exit::Failure }
}

/// Prints the redacted report as a table or JSON.
fn show(report: &Report, redacted: &Report, json: bool) -> Result<(), ExitError> {
    if json { print_json(redacted) } else { print(&report.table()) }
}

/// Tests the selected areas.
fn test(args: &Args) -> Report {
    let began = Instant::now();
    let end = began + args.inner.unwrap_or(TIME);
    let mut only = args.only.clone();
    if only.contains(&Area::Sandbox) && !only.iter().any(|area| sandbox::AREAS.contains(area)) {
        // The sandbox repeats the other areas, so it needs their results.
        only.extend(sandbox::AREAS);
    }
    let wanted = |area: &Area| only.is_empty() || only.contains(area);
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let mut report = Report {
        format: FORMAT,
        visiond: env!("CARGO_PKG_VERSION").to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        at: now.to_string(),
        ..Report::default()
    };
    let list_nodes = || nodes::list(Path::new("/dev"), &DeviceList::of_unit(&sandbox::unit()));
    let mut nodes_before = wanted(&Area::Nodes).then(list_nodes);
    for area in ORDER.into_iter().filter(wanted) {
        let mut test = AreaTest::new(area, args.is_child(), end);
        match area {
            Area::Nodes => {
                report.nodes = nodes::merge(nodes_before.take().unwrap_or_default(), list_nodes());
                nodes::rows(&report.nodes, &mut test);
                nodes::grandchildren(&report.nodes, &mut test);
            }
            Area::Sandbox if args.in_process => {}
            Area::Sandbox => {
                test.begin();
                let areas = sandbox::AREAS.into_iter().filter(wanted).collect();
                report.sandbox = sandbox::run(&mut test, &report, areas, &args.camera);
            }
            Area::Board | Area::Cuda | Area::Memory | Area::Tensorrt | Area::Heat if !args.in_process => {
                test_in_child(&mut test, args);
            }
            _ => test_here(&mut test, args),
        }
        report.rows.extend(test.rows);
    }
    report.rows.sort_by_key(|row| row.area);
    report.seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    report
}

/// Tests an area in this process.
fn test_here(test: &mut AreaTest, args: &Args) {
    test.begin();
    let mut result: Result<(), Failed> = Ok(());
    match test.area {
        Area::Board => board::run(test),
        Area::Cuda => result = gpu::cuda(test),
        Area::Memory => result = gpu::memory(test),
        Area::Tensorrt => result = tensorrt::run(test),
        Area::Cameras => cameras::run(&args.camera, test),
        Area::Argus => argus::run(test),
        Area::Heat => heat::run(test, args.load),
        // `test` does these two itself.
        Area::Nodes | Area::Sandbox => {}
    }
    if let Err(error) = result {
        test.fail(WHOLE, FINISHES, error);
    }
}

/// Tests an area in a child process, within the time that is left; heat has its own limit.
fn test_in_child(test: &mut AreaTest, args: &Args) {
    test.begin();
    let (limit, left) = match test.area {
        Area::Heat => (args.load + HEAT_TIME, Some(args.load + HEAT_TIME)),
        _ => (AREA_TIME, test.time_left()),
    };
    let Some(left) = left else { return test.skip(WHOLE, NO_TIME) };
    let patience = limit.min(left);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return test.fail(WHOLE, FINISHES, format!("cannot find the program file of visiond: {error}")),
    };
    let mut command = Command::new(program);
    command.args(["selftest", "--in-process", "--only", &test.area.to_string()]);
    command.arg(format!("--load={}ms", args.load.as_millis()));
    match supervise(&mut command, patience, |words| test.say(words)) {
        Ok(exited) => match serde_json::from_slice::<Report>(&exited.output) {
            Ok(report) => test.rows = report.rows,
            Err(_) => test.fail(WHOLE, FINISHES, exited),
        },
        Err(SuperviseError::TimedOut { .. }) if patience < limit => test.skip(WHOLE, NO_TIME),
        Err(error) => test.fail(WHOLE, FINISHES, error),
    }
}

#[cfg(test)]
mod tests;
