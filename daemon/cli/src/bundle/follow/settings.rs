//! A bundle of settings that is followed: whether the configuration takes them, and their proof.

use std::path::{Path, PathBuf};

use visiond_bundle::rollout::Step;
use visiond_bundle::store::Candidate;
use visiond_bundle::{BundleSettings, Manifest};
use visiond_system::exit::{Exit, ExitError};
use visiond_web::status::report::StatusReport;

use super::super::failure::refuse;
use super::super::rollout_state::State;
use super::super::settings_proof::{SettingsFault, check_alone, prove, wanted};
use super::Follower;
use crate::client::Client;
use crate::config_path::config_path;

impl Follower<'_> {
    /// Returns why the configuration of this device takes no settings from this bundle; `None` if it does, or if the bundle has a model.
    /// It is asked again in each turn.
    pub(super) fn unwanted(&self, manifest: &Manifest) -> Option<ExitError> {
        manifest.settings.as_ref()?;
        self.config().and_then(|path| Ok(wanted(&path, &manifest.name, &self.store)?)).err()
    }

    /// Lets the settings of a candidate prove themselves: the configuration with them must be valid. Returns what else is left to do
    /// about it: a candidate that passed, or how its turn ended.
    pub(super) fn prove_settings(
        &self,
        state: &State<'_>,
        candidate: Candidate,
        settings: &BundleSettings,
        daemon: Option<&Client>,
    ) -> Result<Result<Candidate, Exit>, ExitError> {
        let version = Some(settings.version);
        let proven = self.config().and_then(|path| {
            let text = wanted(&path, &settings.name, &self.store)?;
            check_alone(settings).map_or_else(|fault| Ok(Err(fault)), |()| prove(&text, &path, settings, daemon))
        });
        match proven {
            Ok(Ok(())) => Ok(Ok(candidate)),
            Ok(Err(fault @ SettingsFault::Settings(_))) => {
                let reason = fault.to_string();
                candidate.refuse(&reason).map_err(refuse)?;
                state.following.keep_only(None).map_err(refuse)?;
                state.set(Step::Refused, version, version, Some(reason));
                Ok(Err(Exit::Config))
            }
            // No version is to blame: it is tried again.
            Ok(Err(fault)) => {
                state.set(Step::Proving, version, version, Some(fault.to_string()));
                Ok(Err(Exit::Config))
            }
            Err(error) => {
                state.set(Step::Proving, version, version, Some(error.message));
                Ok(Err(error.exit))
            }
        }
    }

    /// Whether the configuration of the daemon takes its settings from this bundle.
    pub(super) fn takes_settings(&self, report: &StatusReport, name: &str) -> bool {
        wanted(Path::new(&report.config), name, &self.store).is_ok()
    }

    /// Returns the configuration file of the daemon, or without one the file that it would read.
    fn config(&self) -> Result<PathBuf, ExitError> {
        let client = self.client()?;
        match client.config() {
            Err(_) if client.finds_no_listener() => config_path(self.args.config.clone()),
            found => found,
        }
    }
}
