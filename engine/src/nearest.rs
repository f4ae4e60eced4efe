//! The word that a mistyped one probably means.

/// A longer word is no known one with a mistake.
const MAX_MISTYPED_BYTES: usize = 100;

/// Returns the one of `known` that `word` probably means.
pub(crate) fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // The comparison takes seconds for a word of a megabyte.
    if word.len() > MAX_MISTYPED_BYTES {
        return None;
    }
    let word = word.to_ascii_lowercase();
    known
        .into_iter()
        .map(|name| {
            (strsim::normalized_damerau_levenshtein(&word, name).max(strsim::jaro_winkler(&word, name) * 0.75), name)
        })
        .filter(|(likeness, _)| *likeness > 0.5)
        // On a tie, take the first.
        .reduce(|best, other| if other.0 > best.0 { other } else { best })
        .map(|(_, name)| name)
}
