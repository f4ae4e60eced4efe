//! What can go wrong with TensorRT, each with what to do about it.

use std::fmt;
use std::path::PathBuf;

use super::abi::Version;
use super::recorder::Reported;

/// TensorRT is not there, does not serve, or refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorRtError {
    /// No library was found.
    #[error(
        "TensorRT is not installed: the loader knows none of {names}{seen}; install it (on a Jetson: `sudo apt install \
         tensorrt`), or name the library in VISIOND_TENSORRT_LIBRARY or the configuration",
        seen = also(.seen)
    )]
    NotInstalled {
        /// Names that were asked for.
        names: String,
        /// Libraries of other versions that lie in the system's directories.
        seen: Vec<PathBuf>,
    },
    /// A library is there and cannot be opened, or is another.
    #[error("{path} does not serve as TensorRT's library: {reason}")]
    Unusable {
        /// The library.
        path: PathBuf,
        /// What the loader says, word for word, or what the file is.
        reason: String,
    },
    /// The version's objects are laid out in a way that is not known.
    #[error("{path} is {version}, which visiond does not run: {remedy}")]
    Unsupported {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// What to do.
        remedy: &'static str,
    },
    /// The loaded version lacks a method.
    #[error("{version} has no `{what}`, which this needs: a newer version has it", what = method(.what))]
    Missing {
        /// Class and method.
        what: &'static str,
        /// The version.
        version: Version,
    },
    /// The library gave no object.
    #[error("{version} could not start its {what}: {reason}")]
    NotStarted {
        /// The version.
        version: Version,
        /// "runtime", "builder".
        what: &'static str,
        /// What it says, or the likeliest cause.
        reason: String,
    },
    /// A call was refused.
    #[error("{version} could not {doing}: {}", sentence(.reported))]
    Refused {
        /// The version.
        version: Version,
        /// What was asked for, to read behind "could not".
        doing: String,
        /// What it reported.
        reported: Vec<Reported>,
    },
}

/// `IRuntime::setMaxThreads` for `VRuntime::setMaxThreads`: the name that NVIDIA's documents have.
fn method(name: &str) -> String {
    match name.strip_prefix('V') {
        Some(rest) => format!("I{rest}"),
        None => name.to_owned(),
    }
}

fn also(seen: &[PathBuf]) -> impl fmt::Display {
    match seen {
        [] => String::new(),
        _ => {
            let seen: Vec<_> = seen.iter().map(|path| path.display().to_string()).collect();
            format!(" (there is {}, of a version that visiond does not run)", seen.join(", "))
        }
    }
}

/// What was reported, the first first: later ones mostly follow from it.
fn sentence(reported: &[Reported]) -> String {
    match reported {
        [] => "it gives no reason; `visiond --log-level debug` shows its messages".to_owned(),
        _ => reported.iter().map(Reported::to_string).collect::<Vec<_>>().join("; "),
    }
}
