//! `visiond trace`: records the path of every frame through the daemon's threads, as a file for Perfetto.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use visiond_system::exit::{Exit, ExitError};
use visiond_telemetry::trace::MOST_SECONDS;

use crate::client::{Client, DaemonArgs};
use crate::output::{print, print_bytes, write_file};

/// Time limit for the daemon to write the trace after recording.
const WRITING: Duration = Duration::from_secs(15);

/// Record the path of every frame through the running daemon, for Perfetto or chrome://tracing
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Record for N seconds
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    seconds: u64,

    /// Write the trace to FILE, or to standard output with -
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,
}

const AFTER_HELP: &str = "\
Open the file at https://ui.perfetto.dev (it stays on your machine) or with chrome://tracing. Each camera \
has a row with its frames and their stages, and each thread a row with its work. Arrows follow a frame from the camera's \
thread through the model's thread to the sinks. The daemon keeps working while it records, and stores nothing afterwards.

Examples:
  visiond trace
  visiond trace --seconds 20 -o slow.json
  visiond trace --url http://127.0.0.1:8790 -o - | gzip > trace.json.gz";

/// Records and writes the file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let client = Client::find(&args.daemon, args.daemon.config.as_deref())?;
    let patience = Duration::from_secs(args.seconds) + WRITING;
    let reply = client.ask(Method::POST, &format!("/api/v1/trace?seconds={}", args.seconds), None, patience)?;
    let body = client.success(reply)?.into_body();
    if args.output == Path::new("-") {
        print_bytes(&body)?;
    } else {
        let shown = args.output.display();
        write_file(&args.output, &body)?;
        print(&format!("{shown}: {} KB; open it at https://ui.perfetto.dev\n", body.len().div_ceil(1024)))?;
    }
    Ok(Exit::Success)
}
