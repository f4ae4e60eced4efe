//! Why outputs do not fit a head, in the head's words.

/// Why outputs do not fit, as a part of a [`HeadError`](super::HeadError).
#[derive(Debug)]
pub(super) struct Misfit {
    /// The card's key that is wrong, such as `head.scores`.
    pub(super) key: &'static str,
    pub(super) problem: String,
    /// The correction, if it is known.
    pub(super) remedy: Option<String>,
    /// The fault of one frame's row, in words that are the same for every such row.
    pub(super) of_row: Option<&'static str>,
}

impl Misfit {
    /// Creates a misfit at a key with the correction.
    pub(super) fn at(key: &'static str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { key, problem: problem.into(), remedy: Some(remedy.into()), of_row: None }
    }
}

/// The key of a misfit that belongs to no other key; the remedy follows from the shapes.
pub(super) const FAMILY: &str = "head.family";

impl From<String> for Misfit {
    fn from(problem: String) -> Self {
        Self { key: FAMILY, problem, remedy: None, of_row: None }
    }
}

impl From<&str> for Misfit {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}
