//! Why a camera gives no answer.

use crate::source::SourceError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Stopped,
    /// The camera is away, or starts: it may answer at any moment.
    Absent(String),
    /// Somebody has to act.
    Refused(String),
}

impl Failure {
    /// Returns the error of a source, which `say` makes of the reason; `None` if visiond is stopping.
    pub fn error(self, say: impl FnOnce(&str) -> String) -> Option<SourceError> {
        match self {
            Self::Stopped => None,
            Self::Absent(reason) => Some(SourceError::absent(say(&reason))),
            Self::Refused(reason) => Some(SourceError::transient(say(&reason))),
        }
    }
}
