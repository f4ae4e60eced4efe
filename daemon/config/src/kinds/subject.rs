//! Subjects of NATS, with places for names.

use super::text::filled;
use super::{Inline, quote};
use crate::schema::{At, Context, Item};

/// What may stand in braces.
const PLACES: [&str; 2] = ["{device}", "{camera}"];

/// The subject of a message.
#[derive(Debug)]
pub struct Subject;

/// A subject: words with dots between them; {device} and {camera} stand for names.
pub fn subject() -> Subject {
    Subject
}

/// Whether a word of a subject is one once names, which hold no odd character, stand in place of the braces.
fn is_word(word: &str) -> bool {
    let mut rest = word.to_owned();
    PLACES.iter().for_each(|place| rest = rest.replace(place, "n"));
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
            // What begins so is the server's own.
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
