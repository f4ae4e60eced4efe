//! The word that a mistyped one probably means.

/// A longer word cannot be a mistyped known one, and comparing words of a megabyte takes seconds.
const MAX_BYTES: usize = 100;

/// Returns the candidate closest to `word`, ignoring case, if at most a third of the longer one is wrong.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_BYTES {
        return None;
    }
    let word = word.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word, &candidate.to_lowercase());
    let near =
        |candidate: &str| distance(candidate) <= (word.chars().count().max(candidate.chars().count()) / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 2 * MAX_BYTES && near(candidate))
        .min_by_key(|candidate| distance(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_near_if_a_third_of_it_at_most_is_wrong() {
        for (word, candidates, wanted) in [
            ("backnd", &["backend"][..], Some("backend")),
            ("LEVEL", &["Level"], Some("Level")),
            ("x", &["y"], Some("y")),
            ("xy", &["ab"], None),
            ("abcdef", &["abxyef"], Some("abxyef")),
            ("abcde", &["abxye"], None),
            ("abcdef", &["abc"], None),
            ("abcd", &["abcdef"], Some("abcdef")),
            ("abcdef", &["abxyef", "abcdxf"], Some("abcdxf")),
            ("a", &[], None),
            (&"a".repeat(101), &["a"], None),
        ] {
            assert_eq!(nearest(word, candidates.iter().copied()), wanted, "{word} {candidates:?}");
        }
    }
}
