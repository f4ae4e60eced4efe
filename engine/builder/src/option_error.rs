//! Why the text of an option is refused.

/// The text of an option is not valid; says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub(super) String);
