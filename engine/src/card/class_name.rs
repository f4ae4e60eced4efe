//! The length limit of class names.

/// The longest name of a class, in characters: each detection carries it.
pub(crate) const MAX_NAME_CHARS: usize = 256;

/// Whether a class name exceeds the limit.
pub(crate) fn is_too_long(name: &str) -> bool {
    name.chars().nth(MAX_NAME_CHARS).is_some()
}
