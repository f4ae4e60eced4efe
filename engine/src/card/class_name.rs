//! How long the name of a class may be.

/// The longest name of a class, in characters: each detection carries it.
pub(crate) const MAX_NAME_CHARS: usize = 256;

/// Whether a class's name is longer than any that people read.
pub(crate) fn is_too_long(name: &str) -> bool {
    name.chars().nth(MAX_NAME_CHARS).is_some()
}
