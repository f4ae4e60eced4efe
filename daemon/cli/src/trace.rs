//! `visiond trace`: what every thread of the running daemon does with every frame, as a file for Perfetto.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use visiond_flow::trace::MOST_SECONDS;
use visiond_system::exit::{Exit, ExitError};

use crate::client::{Client, DaemonArgs};
use crate::output::print;

/// What the daemon may need to make the file, after it has recorded.
const WRITING: Duration = Duration::from_secs(15);

/// Record what every thread of the running daemon does with every frame, for Perfetto or chrome://tracing
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// How long to record, in seconds
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    seconds: u64,

    /// The file; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,
}

const AFTER_HELP: &str = "\
Open the file at https://ui.perfetto.dev (it stays on your machine) or with chrome://tracing. Each camera has a row of its
frames with their stages; each thread a row of what it did; arrows follow a frame from the camera's thread over the lane's to
the sinks'. The daemon does what it always does meanwhile, and keeps nothing afterwards.

Examples:
  visiond trace
  visiond trace --seconds 20 -o slow.json
  visiond trace --url http://127.0.0.1:8790 -o - | gzip > trace.json.gz";

/// Records, and writes the file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let client = Client::find(&args.daemon)?;
    let patience = Duration::from_secs(args.seconds) + WRITING;
    let reply = client.ask(Method::POST, &format!("/api/v1/trace?seconds={}", args.seconds), None, patience)?;
    let body = client.well(reply)?.body;
    if args.output == Path::new("-") {
        let mut out = io::stdout().lock();
        out.write_all(&body).and_then(|()| out.flush()).map_err(|error| ExitError::stdout(&error))?;
    } else {
        let shown = args.output.display();
        let fail = |error| ExitError::new(Exit::Output, format!("{shown} cannot be written: {error}"));
        fs::write(&args.output, &body).map_err(fail)?;
        print(&format!("{shown}: {} KB; open it at https://ui.perfetto.dev\n", body.len().div_ceil(1024)))?;
    }
    Ok(Exit::Success)
}
