//! `visiond reload`: makes the daemon read its configuration again and prints the result.

use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use visiond_service::reload::ReloadOutcome;
use visiond_system::exit::{Exit, ExitError};

use crate::client::{Client, DaemonArgs, is_same};
use crate::output::{print, print_json};

/// Time limit for a reload, which may load several models.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Make the daemon read its configuration again and print what changed
///
/// The daemon checks the file, loads and tests what is new, and switches between two frames; unchanged parts keep running.
/// An invalid configuration is rejected with its errors; the running one stays in force.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
If the configuration is rejected, the exit status is the one of `visiond run`: 3, 4, 6 or 7.

Examples:
  visiond reload
  visiond reload --json /etc/visiond/visiond.toml
  visiond reload --url http://127.0.0.1:8790";

/// Requests the reload and waits for its result.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let client = Client::find(&args.daemon, args.daemon.config.as_deref())?;
    if let Some(named) = &args.daemon.config {
        is_its_own(&client, named)?;
    }
    let outcome = request(&client)?;
    if args.json {
        print_json(&outcome)?;
    } else if outcome.applied {
        print(&text(&outcome))?;
    }
    let Some(why) = outcome.error else { return Ok(Exit::Success) };
    let exit = Exit::from_code(outcome.exit_status).filter(|_| !outcome.applied).unwrap_or(Exit::Failure);
    if args.json {
        return Ok(exit);
    }
    Err(ExitError::new(exit, format!("configuration rejected; the running one stays in force:\n{why}")))
}

/// Makes the daemon reload, and waits for the result, also of a reload that is rejected.
pub fn request(client: &Client) -> Result<ReloadOutcome, ExitError> {
    let reply = client.ask(Method::POST, "/api/v1/reload", None, PATIENCE)?;
    // Status 409 carries the result of a rejected reload.
    let reply = if reply.status() == StatusCode::CONFLICT { reply } else { client.success(reply)? };
    client.json(&reply)
}

/// Fails if `named` is not the daemon's own configuration, because a reload reads only that file.
fn is_its_own(client: &Client, named: &Path) -> Result<(), ExitError> {
    let config = client.config()?;
    if is_same(&config, named) {
        return Ok(());
    }
    let message = format!(
        "cannot reload: visiond at {} runs {}, not {}; name its own file, or restart it with the other one",
        client.address,
        config.display(),
        named.display()
    );
    Err(ExitError::new(Exit::Usage, message))
}

fn text(outcome: &ReloadOutcome) -> String {
    let changes = outcome.changes.iter().map(|change| format!("{change}\n"));
    let restarts = outcome.restart_needed.iter().map(|sentence| format!("needs a restart: {sentence}\n"));
    let what = if outcome.changes.is_empty() { "nothing has changed" } else { "reloaded" };
    changes.chain(restarts).chain([format!("{what}, in {} ms\n", outcome.took_ms)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_config::diff::{Change, Difference};

    #[test]
    fn the_result_is_printed_line_by_line() {
        let mut outcome = ReloadOutcome { applied: true, took_ms: 7, ..ReloadOutcome::default() };
        assert_eq!(text(&outcome), "nothing has changed, in 7 ms\n");
        outcome.changes = vec![Difference { part: "camera".into(), name: "door".to_owned(), change: Change::Changed }];
        outcome.restart_needed = vec!["[device] `name` is b".to_owned()];
        assert_eq!(
            text(&outcome),
            "camera door opened again\nneeds a restart: [device] `name` is b\nreloaded, in 7 ms\n"
        );
    }
}
