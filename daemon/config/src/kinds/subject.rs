//! NATS subjects, with placeholders for names.

use super::text::filled;
use super::{Inline, quote};
use crate::schema::{At, Context, Item};

/// Valid placeholders.
const PLACEHOLDERS: [&str; 2] = ["{device}", "{camera}"];

/// The kind of NATS subjects.
#[derive(Debug)]
pub struct Subject;

/// Returns the kind of subjects: words separated by dots; {device} and {camera} stand for names.
pub fn subject() -> Subject {
    Subject
}

/// Returns whether `word` is a valid word of a subject once names replace its placeholders. Names have no special characters.
fn is_word(word: &str) -> bool {
    let mut rest = word.to_owned();
    PLACEHOLDERS.iter().for_each(|place| rest = rest.replace(place, "n"));
    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_graphic() && !"*>{}".contains(c))
}

impl Inline for Subject {
    type Value = String;

    fn describe(&self) -> String {
        "a subject: words with dots between them, without spaces, * and >; {device} and {camera} stand for names"
            .to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let text = filled(item).filter(|text| {
            let first = text.split('.').next().unwrap_or("");
            // Subjects that begin with these are reserved for the server.
            text.len() <= 256 && text.split('.').all(is_word) && !first.starts_with(['$', '_'])
        });
        text.map(str::to_owned).or_else(|| self.refuse(item, at, context, ""))
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_subject_hold_places_and_nothing_that_servers_read_otherwise() {
        for word in ["visiond", "{device}", "cam-{camera}", "{device}_{camera}"] {
            assert!(is_word(word), "{word}");
        }
        for word in ["", "*", ">", "{name}", "{", "a b", "ü", "{device", "a>"] {
            assert!(!is_word(word), "{word}");
        }
    }
}
