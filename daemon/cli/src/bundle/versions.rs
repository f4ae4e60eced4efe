//! `visiond bundle list` and `rollback`.

use std::path::{self, PathBuf};

use serde::Serialize;
use visiond_bundle::rollout::Rollout;
use visiond_bundle::store::{FOLDER, Installed, Store};
use visiond_system::exit::{Exit, ExitError};

use super::failure::refuse;
use super::rollout_state::described;
use crate::output::{note, print_report};

/// Where a device keeps its bundles.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Use the store in this folder
    #[arg(id = "store", long, value_name = "FOLDER", default_value = FOLDER)]
    pub folder: PathBuf,
}

impl StoreArgs {
    pub fn open(&self) -> Store {
        Store::new(path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone()))
    }
}

/// List the installed bundles
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_HELP)]
pub struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

const LIST_HELP: &str = "\
Examples:
  visiond bundle list
  visiond bundle list --json | jq '.[].current.version'";

/// Go back to the previous version
///
/// The version that you leave is not installed again without `visiond bundle install --again`.
#[derive(Debug, clap::Args)]
#[command(after_help = ROLLBACK_HELP)]
pub struct RollbackArgs {
    /// Name of the bundle
    name: String,

    /// Why, for `visiond bundle list`
    #[arg(long, value_name = "TEXT", default_value = "rolled back by hand")]
    reason: String,

    #[command(flatten)]
    store: StoreArgs,
}

const ROLLBACK_HELP: &str = "\
The daemon uses it after `sudo visiond reload`.

Examples:
  sudo visiond bundle rollback street && sudo visiond reload
  sudo visiond bundle rollback street --reason 'misses bicycles'";

/// An installed bundle as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    current: Option<ListedVersion>,
    previous: Option<ListedVersion>,
    refused: Vec<Refused>,
    /// What `visiond bundle follow` does about newer versions.
    rollout: Option<Rollout>,
}

#[derive(Debug, Serialize)]
struct ListedVersion {
    version: u64,
    /// The number of the key that signed it.
    signed_by: Option<String>,
    /// The file of its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The file of its settings, in place of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<String>,
}

#[derive(Debug, Serialize)]
struct Refused {
    version: u64,
    reason: String,
}

/// Lists what is installed.
pub fn list(args: &ListArgs) -> Result<Exit, ExitError> {
    let store = args.store.open();
    let installed = store.list().map_err(refuse)?;
    let version = |it: Installed| {
        let settings = it.settings().map(|path| path.display().to_string());
        let model = settings.is_none().then(|| it.model().display().to_string());
        ListedVersion { version: it.manifest.version, signed_by: it.signed_by, model, settings }
    };
    let listed: Vec<_> = installed
        .into_iter()
        .map(|it| Listed {
            current: it.current.map(version),
            previous: it.previous.map(version),
            refused: it.refused.into_iter().map(|(version, reason)| Refused { version, reason }).collect(),
            rollout: Rollout::read(&args.store.folder.join(&it.name)),
            name: it.name,
        })
        .collect();
    print_report(args.json, &listed, |listed| {
        if listed.is_empty() {
            return format!("no bundle is installed in {}\n", args.store.folder.display());
        }
        let mut out = String::new();
        for one in listed {
            let (current, previous) = (number(one.current.as_ref()), number(one.previous.as_ref()));
            if one.current.is_none() && one.refused.is_empty() {
                out += &format!("{:20} no version yet\n", one.name);
            } else {
                out += &format!("{:20} version {current}, previous version {previous}\n", one.name);
            }
            if let Some(id) = one.current.as_ref().and_then(|current| current.signed_by.as_ref()) {
                out += &format!("  signed by the key {id}\n");
            }
            let is_settings = one.current.as_ref().is_some_and(|current| current.settings.is_some());
            let key = if is_settings { "settings" } else { "bundle" };
            out += &format!("  {key} = \"{}\"\n", one.name);
            for refused in &one.refused {
                out += &format!("  {} is refused: {}\n", refused.version, refused.reason);
            }
            if let Some(rollout) = &one.rollout {
                out += &format!("  follows {}: {}\n", rollout.source, described(rollout));
            }
        }
        out
    })
}

fn number(version: Option<&ListedVersion>) -> String {
    version.map_or("none".to_owned(), |it| it.version.to_string())
}

/// Goes back to the version before.
pub fn roll_back(args: &RollbackArgs) -> Result<Exit, ExitError> {
    let switched = args.store.open().roll_back(&args.name, None, &args.reason).map_err(refuse)?;
    let now = match &switched.now {
        Some(now) => format!("{} is at version {} again", args.name, now.manifest.version),
        None => format!("no settings of {} are installed any more", args.name),
    };
    note(&format!("{now}: `sudo visiond reload` makes the daemon use it"));
    if let Some(error) = switched.left {
        note(&format!("the version that was left may be installed again: {error}"));
    }
    Ok(Exit::Success)
}
