//! Why a record cannot be read.

/// A record that cannot be read, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Another version of visiond has written it.
    #[error("{key} has format {format}, and this visiond reads format 1: update visiond")]
    Format {
        /// The key.
        key: String,
        /// The format of the record.
        format: u32,
    },
    /// It is no record of visiond.
    #[error("{key} is not a record of visiond: {reason}; write it with `visiond fleet`")]
    Broken {
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

impl RecordError {
    pub(crate) fn broken(key: &str, reason: impl ToString) -> Self {
        Self::Broken { key: key.to_owned(), reason: reason.to_string().chars().take(200).collect() }
    }
}
