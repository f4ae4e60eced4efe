//! Why a camera does not respond.

use crate::source::SourceError;

/// The reason for a missing response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Stopped,
    /// The camera is away or starting: it may respond at any moment.
    Absent(String),
    /// The user must act.
    Refused(String),
}

impl Failure {
    /// Returns the source's error, which `say` makes from the reason; `None` if visiond is stopping.
    pub fn error(self, say: impl FnOnce(&str) -> String) -> Option<SourceError> {
        match self {
            Self::Stopped => None,
            Self::Absent(reason) => Some(SourceError::absent(say(&reason))),
            Self::Refused(reason) => Some(SourceError::transient(say(&reason))),
        }
    }
}
