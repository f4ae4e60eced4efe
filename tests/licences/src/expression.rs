//! Licence expressions as `Cargo.toml` has them ("MIT OR Apache-2.0"), and which licences are known.

/// Licences that somebody has read: a binary under them may be distributed with its notices, without other conditions.
const KNOWN: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "IJG",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether the licences that `expression` requires, or one of its alternatives, are known.
pub fn is_known(expression: &str) -> bool {
    // The old way to write OR.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) == Some(true) && rest.is_empty()
}

/// Whether the licence is offered by `expression`.
pub fn offers(expression: &str, licence: &str) -> bool {
    let alternatives = expression.replace('/', " OR ");
    !expression.contains(" AND ") && alternatives.split(" OR ").any(|offered| offered.trim() == licence)
}

/// `both OR both …`; `None` if it is not an expression.
fn either(rest: &mut &[&str]) -> Option<bool> {
    let mut known = both(rest)?;
    while next_is(rest, "OR") {
        known |= both(rest)?;
    }
    Some(known)
}

/// `one AND one …`
fn both(rest: &mut &[&str]) -> Option<bool> {
    let mut known = one(rest)?;
    while next_is(rest, "AND") {
        known &= one(rest)?;
    }
    Some(known)
}

/// A licence, perhaps `WITH` an exception, or an expression in brackets.
fn one(rest: &mut &[&str]) -> Option<bool> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    if first == "(" {
        let known = either(rest)?;
        return next_is(rest, ")").then_some(known);
    }
    let name = if next_is(rest, "WITH") {
        let (&exception, after) = rest.split_first()?;
        *rest = after;
        format!("{first} WITH {exception}")
    } else {
        first.to_owned()
    };
    Some(KNOWN.contains(&name.as_str()))
}

fn next_is(rest: &mut &[&str], word: &str) -> bool {
    let found = rest.first() == Some(&word);
    if found {
        *rest = &rest[1..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_known_offer_is_enough_and_every_demand_must_be_known() {
        for known in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "MIT AND (Zlib OR GPL-3.0)", "Apache-2.0 WITH LLVM-exception"]
        {
            assert!(is_known(known), "{known}");
        }
        for unknown in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH other",
            "(MIT",
            "MIT OR",
            "MIT Zlib",
            "MPL-2.0 OR GPL-2.0",
        ] {
            assert!(!is_known(unknown), "{unknown}");
        }
    }

    #[test]
    fn an_offer_is_one_of_several_not_a_demand() {
        assert!(offers("MIT/Apache-2.0", "Apache-2.0"));
        assert!(!offers("MIT AND Apache-2.0", "Apache-2.0"));
    }
}
