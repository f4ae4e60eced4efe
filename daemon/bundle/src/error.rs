//! Why a bundle cannot be made, read or installed.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a bundle or of the store, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {path}: {error}")]
    Io {
        /// "read", "write", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is something else.
    #[error("{0} is not a bundle: make one with `visiond bundle make`")]
    NotABundle(PathBuf),
    /// The file ends early, or has other contents than its manifest says.
    #[error("{path} is damaged: {reason}; copy it again")]
    Damaged {
        /// The bundle.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The manifest says what no bundle may say.
    #[error("the manifest of {path} is invalid: {reason}; make the bundle again")]
    Manifest {
        /// The bundle.
        path: PathBuf,
        /// The key, and what is wrong with it.
        reason: String,
    },
    /// The bundle has no signature.
    #[error("{0} is not signed: sign it with `visiond bundle sign`")]
    Unsigned(PathBuf),
    /// None of the trusted keys has signed the bundle.
    #[error(
        "{path} is signed by the key {id}, which is not trusted here: if you know whose it is, put its public key into /etc/visiond-keys, or name it with --key"
    )]
    Untrusted {
        /// The bundle.
        path: PathBuf,
        /// The key's number, as minisign shows it.
        id: String,
    },
    /// The key was trusted once.
    #[error(
        "{path} is signed by the key {id} of {name}, which is revoked: ask its maker for a bundle that another key has signed"
    )]
    Revoked {
        /// The bundle.
        path: PathBuf,
        /// The key's number, as minisign shows it.
        id: String,
        /// Whose key it was.
        name: String,
    },
    /// The manifest has changed after it was signed.
    #[error(
        "the signature of {path} does not fit its manifest: somebody has changed the bundle; ask its maker for it again"
    )]
    Forged {
        /// The bundle.
        path: PathBuf,
    },
    /// The signature is not in minisign's format.
    #[error("the signature of {path} is invalid: {reason}; sign the bundle again")]
    Signature {
        /// The bundle.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No keys are trusted.
    #[error("no key is trusted here: put the maker's public key into /etc/visiond-keys, or name it with --key")]
    NoKeys,
    /// A public key cannot be read.
    #[error("{0:?} is not a public key of minisign: it must be one line of 56 characters that begins with RW")]
    Key(String),
    /// Somebody else could change a folder that is relied on.
    #[error(
        "{0} is a link, or users other than root can change it, and with it a model or a key: make it root's (`chown root`, \
         `chmod go-w`), or name another folder"
    )]
    Foreign(PathBuf),
    /// What was to be packed cannot be.
    #[error("cannot make this bundle: {reason}")]
    Invalid {
        /// The key of the manifest or the file, and what is wrong with it.
        reason: String,
    },
    /// The password of a secret key cannot be read, or is another one.
    #[error("cannot use the secret key with a password: {0}; run the command at a terminal, and repeat the password")]
    Password(String),
    /// The secret key cannot be used.
    #[error("cannot use the secret key: {0}; name the file that `visiond bundle keys` or `minisign -G` made")]
    SecretKey(String),
    /// The bundle needs a newer program.
    #[error("{name} {version} needs visiond {needed} or newer, and this is {}: update visiond first", env!("CARGO_PKG_VERSION"))]
    TooOld {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
        /// The oldest visiond that can use it.
        needed: String,
    },
    /// The same bundle is installed.
    #[error("{name} {version} is already installed: use it, or install it once more with --again")]
    Installed {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
    },
    /// A newer or equal version is, or was, installed.
    #[error(
        "{name} {version} is not newer than version {newest}, which was installed here: give the bundle a higher version, or \
         install it with --again"
    )]
    NotNewer {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
        /// The newest version that was installed.
        newest: u64,
    },
    /// A newer or equal version is published.
    #[error(
        "{name} {version} is not newer than version {newest}, which is published there: give the bundle a higher version, or \
         publish it with --again"
    )]
    NotNewerThanPublished {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
        /// The version of the index.
        newest: u64,
    },
    /// The version failed here before.
    #[error(
        "{name} {version} was refused here before ({reason}): make a new version, or try it once more with --again"
    )]
    Refused {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
        /// The reason.
        reason: String,
    },
    /// There is no older version.
    #[error("{name} has no previous version: install another one with `visiond bundle install`")]
    NothingBefore {
        /// The bundle's name.
        name: String,
    },
    /// Another version is current than the one to go back from.
    #[error(
        "{name} {version} is not the version in use, so it cannot be left: see `visiond bundle list` for the one that was installed meanwhile"
    )]
    NotCurrent {
        /// The bundle's name.
        name: String,
        /// The version that was expected to be current.
        version: u64,
    },
    /// Nothing of that name is installed.
    #[error("no bundle named {name} is installed in {folder}: install one with `visiond bundle install`")]
    NotInstalled {
        /// The bundle's name.
        name: String,
        /// The store.
        folder: PathBuf,
    },
    /// The bundle has a model.
    #[error(
        "{name} {version} has a model, and no settings: make a bundle of settings with `visiond bundle make --settings`"
    )]
    NoSettings {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
    },
    /// The bundle has settings.
    #[error("{name} {version} has settings, and no model: name it as `settings` in `[bundles]`")]
    NoModel {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
    },
    /// The installed version of that name is a model, and this one settings, or the reverse.
    #[error(
        "{name} {version} has {has}, and {name} {installed}, which is installed, has {installed_has}: make it again under another name"
    )]
    OtherKind {
        /// The bundle's name.
        name: String,
        /// Its version.
        version: u64,
        /// What it has.
        has: &'static str,
        /// The installed version.
        installed: u64,
        /// What that has.
        installed_has: &'static str,
    },
    /// Another process is installing.
    #[error(
        "another process is changing {0}: wait until it has ended; an installation takes as long as its model's proof, and as the build of its engine; \
         end it first if that cannot wait (`systemctl stop visiond-bundles`)"
    )]
    Busy(PathBuf),
    /// Another process follows the bundle.
    #[error("another `visiond bundle follow` uses {0}: end it first (`systemctl stop visiond-bundles`)")]
    Followed(PathBuf),
    /// The files do not fit on the disk.
    #[error("{needed_mib} MiB are needed in {folder}, and {free_mib} MiB are free: delete other files first")]
    NoSpace {
        /// The store.
        folder: PathBuf,
        /// What the bundle takes, with a reserve.
        needed_mib: u64,
        /// What is free.
        free_mib: u64,
    },
}

impl BundleError {
    /// Makes the mapping of an input/output error of `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { action, path, error }
    }
}
