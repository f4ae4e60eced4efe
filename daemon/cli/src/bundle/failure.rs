//! The exit status of each error of a bundle, or of a list of keys.

use std::io::ErrorKind;

use visiond_bundle::{BundleError, KeyListError};
use visiond_system::exit::{Exit, ExitError};

/// Returns the exit of an error of a bundle.
pub fn refuse(error: BundleError) -> ExitError {
    if let BundleError::Io { error: system, .. } = &error
        && system.kind() == ErrorKind::PermissionDenied
    {
        return ExitError::new(Exit::Output, format!("{error}; use sudo, or a folder of your own"));
    }
    let exit = match &error {
        BundleError::Io { action: "read", .. } => Exit::Input,
        BundleError::Io { .. } | BundleError::NoSpace { .. } => Exit::Output,
        BundleError::NoKeys | BundleError::Key(_) | BundleError::SecretKey(_) | BundleError::Password(_) => {
            Exit::Config
        }
        BundleError::Foreign(_)
        | BundleError::NoSettings { .. }
        | BundleError::NoModel { .. }
        | BundleError::OtherKind { .. } => Exit::Config,
        BundleError::Invalid { .. } => Exit::Usage,
        BundleError::NotABundle(_) | BundleError::Damaged { .. } | BundleError::Manifest { .. } => Exit::Input,
        BundleError::Unsigned(_)
        | BundleError::Untrusted { .. }
        | BundleError::Revoked { .. }
        | BundleError::Forged { .. }
        | BundleError::Signature { .. }
        | BundleError::TooOld { .. }
        | BundleError::Installed { .. }
        | BundleError::NotNewer { .. }
        | BundleError::NotNewerThanPublished { .. }
        | BundleError::Refused { .. } => Exit::Model,
        BundleError::NothingBefore { .. }
        | BundleError::NotCurrent { .. }
        | BundleError::NotInstalled { .. }
        | BundleError::Busy(_)
        | BundleError::Followed(_) => Exit::Failure,
    };
    ExitError::new(exit, error)
}

/// Returns the exit of an error of a list of keys.
pub fn refuse_key_list(error: KeyListError) -> ExitError {
    let exit = match error {
        KeyListError::Files(error) => return refuse(error),
        KeyListError::Source(_) => Exit::Input,
        KeyListError::Invalid { .. } => Exit::Config,
        KeyListError::TooFewSignatures { .. }
        | KeyListError::Changed { .. }
        | KeyListError::NotNewer { .. }
        | KeyListError::Unrevoked { .. }
        | KeyListError::TooFarAhead { .. } => Exit::Model,
    };
    ExitError::new(exit, error)
}
