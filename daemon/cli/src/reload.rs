//! `visiond reload`: the daemon reads its configuration again, and says what came of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use visiond_service::reload::Outcome;
use visiond_system::exit::{Exit, ExitError};

use crate::client::{Client, DaemonArgs};
use crate::output::{print, print_json};

/// Networks are loaded within this, or the daemon hangs.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Have the daemon read its configuration again, and tell what came of it
///
/// The daemon checks the file, loads what is new, tries it, and switches between two frames; what has not changed is not
/// touched. Or it refuses, says why, and everything goes on as it was.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
A configuration that is refused ends it with the status that `visiond run` would end with: 3, 4 or 6.

Examples:
  visiond reload
  visiond reload --json /etc/visiond/visiond.toml
  visiond reload --url http://127.0.0.1:8790";

/// What a daemon says of itself that matters here.
#[derive(Deserialize)]
struct Status {
    config: PathBuf,
}

/// Asks for it and waits.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let client = Client::find(&args.daemon)?;
    if let Some(named) = &args.daemon.config {
        is_its_own(&client, named)?;
    }
    let reply = client.ask(Method::POST, "/api/v1/reload", None, PATIENCE)?;
    // What is refused is an outcome as well.
    let reply = if reply.status == 409 { reply } else { client.well(reply)? };
    let outcome: Outcome = client.json(&reply)?;
    if args.json {
        print_json(&outcome)?;
    } else if outcome.applied {
        print(&text(&outcome))?;
    }
    let exit = Exit::from_code(outcome.exit_status).filter(|_| !outcome.applied);
    match (outcome.error, exit) {
        (None, _) => Ok(Exit::Success),
        (Some(_), exit) if args.json => Ok(exit.unwrap_or(Exit::Failure)),
        (Some(why), exit) => {
            let message = format!("the configuration is refused, and what runs goes on:\n{why}");
            Err(ExitError::new(exit.unwrap_or(Exit::Failure), message))
        }
    }
}

/// The daemon's own file is the one that it reads again; another one that is named is a misunderstanding.
fn is_its_own(client: &Client, named: &Path) -> Result<(), ExitError> {
    let Status { config } = client.get_json("/api/v1/status")?;
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // One that is not absolute is so from where the daemon was started.
    if config.is_relative() || resolved(&config) == resolved(named) {
        return Ok(());
    }
    let message = format!(
        "visiond at {} runs {}, and reads that again, not {}: name that one, or start the daemon with the other",
        client.address(),
        config.display(),
        named.display()
    );
    Err(ExitError::new(Exit::Usage, message))
}

fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    for change in &outcome.changes {
        out += &format!("{change}\n");
    }
    for sentence in &outcome.restart_needed {
        out += &format!("needs a restart: {sentence}\n");
    }
    let what = if outcome.changes.is_empty() { "nothing has changed" } else { "reloaded" };
    out + &format!("{what}, in {} ms\n", outcome.took_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_config::diff::{Change, Difference};

    #[test]
    fn what_came_of_it_is_told_line_by_line() {
        let mut outcome = Outcome { applied: true, took_ms: 7, ..Outcome::default() };
        assert_eq!(text(&outcome), "nothing has changed, in 7 ms\n");
        outcome.changes = vec![Difference { part: "camera".into(), name: "door".to_owned(), change: Change::Changed }];
        outcome.restart_needed = vec!["[device] `name` is b".to_owned()];
        assert_eq!(
            text(&outcome),
            "camera door opened anew\nneeds a restart: [device] `name` is b\nreloaded, in 7 ms\n"
        );
    }
}
