//! A bundle of settings that is followed: whether the configuration takes them, and their proof.

use std::path::Path;

use visiond_bundle::rollout::Step;
use visiond_bundle::store::Candidate;
use visiond_bundle::{BundleError, BundleSettings, Manifest};
use visiond_system::exit::{Exit, ExitError};
use visiond_web::status::report::StatusReport;

use super::super::failure::refuse;
use super::super::rollout_state::State;
use super::super::settings_proof::{SettingsFault, check_alone, prove, wanted, wanted_in};
use super::Follower;
use super::daemon_config::DaemonConfig;
use crate::client::Client;

impl Follower<'_> {
    /// Returns why the configuration of this device has no use for what this bundle has: settings that it does not take, a model under
    /// the name of its settings, or the other of what is installed under that name. It is asked again in each turn.
    pub(super) fn unwanted(&self, manifest: &Manifest) -> Option<ExitError> {
        if let Err(error) = self.store.check_kind(manifest) {
            return Some(refuse(error));
        }
        let config = self.config();
        let takes = |it: &DaemonConfig| wanted_in(&it.text, &it.path, &manifest.name, &self.store);
        match &manifest.settings {
            Some(_) => config.and_then(|it| Ok(takes(&it)?)).err(),
            None => config
                .is_ok_and(|it| takes(&it).is_ok())
                .then(|| refuse(BundleError::NoSettings { name: manifest.name.clone(), version: manifest.version })),
        }
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
        let proven = self.config().and_then(|DaemonConfig { path, text }| {
            wanted_in(&text, &path, &settings.name, &self.store)?;
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

    /// Reads the configuration file of the daemon, or without one the file that it would read.
    fn config(&self) -> Result<DaemonConfig, ExitError> {
        DaemonConfig::read(&self.client()?, self.args.config.as_deref())
    }
}
