//! `visiond bundle install`: unpacks a bundle beside the version that is in use, lets the model prove itself on this machine, and
//! makes it the current one.

use std::path::{Path, PathBuf};

use jiff::Zoned;
use jiff::civil::Date;
use visiond_bundle::store::{Store, Switched};
use visiond_bundle::{BundleError, BundleSettings, Manifest};
use visiond_system::exit::{Exit, ExitError};

use super::engine::note_building;
use super::failure::{refuse, refuse_key_list};
use super::proof::{Failed, ProofArgs, prove};
use super::settings_proof::{check_alone, prove as prove_settings, wanted};
use super::trusted_keys::KeyArgs;
use super::versions::StoreArgs;
use crate::config_path::config_path;
use crate::output::{complain, note};

/// Verify a bundle, let its model prove itself on this machine, and make it the current version
///
/// The version in use stays until the new one has passed. Cameras use the new one after `sudo visiond reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Bundle; with --keys, a list of keys
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Install a list of keys: the first one, or one that is signed by enough keys of the one before
    #[arg(id = "list", long = "keys", conflicts_with_all = ["keys", "again", "timeout"])]
    is_key_list: bool,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    store: StoreArgs,

    /// Install it though it was refused here before, or is not newer than a version that was installed
    #[arg(long)]
    again: bool,

    #[command(flatten)]
    proof: ProofArgs,

    /// Check settings with this configuration [default: /etc/visiond/visiond.toml, otherwise ./visiond.toml]
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
A version that differs from its reference, or is too slow, is refused: it is not installed again without --again.

The proof chooses the backend as `visiond bench` does: [engine] of the configuration is not read.

In the configuration: bundle = \"NAME\" in a [[model]]. Of a bundle with settings: settings = \"NAME\" in [bundles]; then the configuration must be valid with them.

Examples:
  sudo visiond bundle install street-7.visiond && sudo visiond reload
  visiond bundle install street-7.visiond --key team.pub --store /tmp/models
  sudo visiond bundle install --keys keys.toml";

/// Installs a bundle or a list of keys.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let store = args.store.open();
    if args.is_key_list {
        let list = store.install_key_list(&args.bundle).map_err(refuse_key_list)?;
        let (version, count, threshold) = (list.version, list.keys.len(), list.threshold);
        note(&format!(
            "version {version} of the list of keys is installed: bundles of its {count} keys are trusted, and {threshold} of them change the list"
        ));
        return Ok(Exit::Success);
    }
    let keys = args.keys.read(&store)?;
    let candidate = match store.unpack(&args.bundle, &keys, args.again) {
        Err(BundleError::Installed { name, version }) => {
            note(&format!("{name} {version} is already installed"));
            return Ok(Exit::Success);
        }
        candidate => candidate.map_err(refuse)?,
    };
    let (name, version) = (candidate.manifest.name.clone(), candidate.manifest.version);
    note(&format!("{name} {version}: signed by the key {}", candidate.signer.id));
    warn_of_expiry(&candidate.manifest);
    if let Some(settings) = candidate.settings().map_err(refuse)? {
        let is_wanted = check_settings_here(&settings, args.config.as_deref(), &store)?;
        note_left(&candidate.accept().map_err(refuse)?);
        let remedy = if is_wanted {
            "`sudo visiond reload` makes the daemon use them".to_owned()
        } else {
            format!("a configuration takes them with `settings = \"{name}\"` in its table [bundles]")
        };
        note(&format!("the settings {name} {version} are installed: {remedy}"));
        return Ok(Exit::Success);
    }
    if config_path(args.config.clone()).is_ok_and(|path| wanted(&path, &name, &store).is_ok()) {
        return Err(refuse(BundleError::NoSettings { name, version }));
    }
    match prove(&candidate, &args.proof, &|step| note_building(&name, version, step)) {
        Ok(_) => {}
        Err(Failed::Proof(reason, remedy)) => {
            candidate.refuse(&reason).map_err(refuse)?;
            let message = format!("{name} {version} is refused, and the version in use stays: {reason}; {remedy}");
            return Err(ExitError::new(Exit::Differs, message));
        }
        Err(Failed::Other(error)) => return Err(error),
    }
    let switched = candidate.accept().map_err(refuse)?;
    note_left(&switched);
    note(&format!(
        "{name} {version} is installed: `sudo visiond reload` makes the daemon use it, if a model has bundle = \"{name}\""
    ));
    Ok(Exit::Success)
}

/// Checks settings, with the configuration if that takes them; returns whether it does. One that was named must.
fn check_settings_here(settings: &BundleSettings, config: Option<&Path>, store: &Store) -> Result<bool, ExitError> {
    check_alone(settings)?;
    let path = match config_path(config.map(Path::to_owned)) {
        Ok(path) => path,
        Err(_) => {
            complain("the settings were not checked: no configuration found; use --config");
            return Ok(false);
        }
    };
    match wanted(&path, &settings.name, store) {
        Ok(text) => prove_settings(&text, &path, settings, None)?.map(|()| true).map_err(ExitError::from),
        Err(fault) if config.is_some() => Err(fault.into()),
        Err(_) => Ok(false),
    }
}

/// Says what could not be removed after a switch.
pub fn note_left(switched: &Switched) {
    if let Some(error) = &switched.left {
        note(&format!("the next installation has to tidy up: {error}"));
    }
}

/// Warns if the bundle is out of date. It is no error, because a board may have no clock.
pub fn warn_of_expiry(manifest: &Manifest) {
    let day = manifest.expires.and_then(|date| date.date);
    let day = day.and_then(|day| Date::new(day.year as i16, day.month as i8, day.day as i8).ok());
    if let Some(day) = day.filter(|day| Zoned::now().date() >= *day) {
        note(&format!("{} {} expired on {day}: ask its maker for a newer one", manifest.name, manifest.version));
    }
}
