//! Parses untrusted XML: bounded, without a document type, with elements found by local name.

use roxmltree::{Document, Node, ParsingOptions};

/// The most elements, texts and comments. A camera with 16 profiles takes some 2,000.
const MOST_NODES: u32 = 20_000;

/// The most namespace declarations. In nested elements, the parse time grows with the square of their number.
const MOST_NAMESPACES: usize = 512;

/// The most attributes, counted by their equals signs. Within one element, the parse time grows with the square of their
/// number.
const MOST_ATTRIBUTES: usize = 8_192;

/// Why a document is rejected.
#[derive(Debug, thiserror::Error)]
pub enum XmlError {
    #[error("more than {MOST_NAMESPACES} namespaces")]
    Namespaces,
    #[error("more than {MOST_ATTRIBUTES} attributes")]
    Attributes,
    #[error("{0}")]
    Syntax(#[from] roxmltree::Error),
}

/// Parses a document. A document type, and therefore an entity, is an error.
pub fn parse(text: &str) -> Result<Document<'_>, XmlError> {
    if text.matches("xmlns").nth(MOST_NAMESPACES).is_some() {
        return Err(XmlError::Namespaces);
    }
    if text.matches('=').nth(MOST_ATTRIBUTES).is_some() {
        return Err(XmlError::Attributes);
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Ok(Document::parse_with_options(text, options)?)
}

/// Returns the first element below `node` with this local name, at any depth.
pub fn find<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    all(node, name).next()
}

/// Returns all elements below `node` with this local name, at any depth.
pub fn all<'a, 'i, 'n>(node: Node<'a, 'i>, name: &'n str) -> impl Iterator<Item = Node<'a, 'i>> + use<'a, 'i, 'n> {
    node.descendants().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

/// Returns the text of the first element below `node` with this local name, if it has one.
pub fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    find(node, name).and_then(|node| node.text()).map(str::trim).filter(|text| !text.is_empty())
}

/// Returns the first `most` characters, escaped for the text of an element.
pub fn escaped(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().take(most) {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bombs_are_refused() {
        let entities = "<!DOCTYPE a [<!ENTITY b \"bbbb\"><!ENTITY c \"&b;&b;\">]><a>&c;</a>";
        assert!(matches!(parse(entities), Err(XmlError::Syntax(_))));
        assert!(parse("<a>&b;</a>").is_err());
        assert!(matches!(parse(&"<a xmlns:b='c'>".repeat(600)), Err(XmlError::Namespaces)));
        assert!(parse(&format!("<a>{}</a>", "<b/>".repeat(30_000))).is_err());
        let attributes: String = (0..9_000).map(|n| format!(" b{n}='c'")).collect();
        assert!(matches!(parse(&format!("<a{attributes}/>")), Err(XmlError::Attributes)));
        // As deeply nested as the node limit allows, closed and unclosed: neither may overflow the stack.
        let deep = format!("{}{}", "<a>".repeat(15_000), "</a>".repeat(15_000));
        assert_eq!(all(parse(&deep).unwrap().root(), "a").count(), 15_000);
        assert!(parse(&"<a>".repeat(15_000)).is_err());
    }

    #[test]
    fn elements_are_found_by_their_local_names() {
        let document = parse("<s:a xmlns:s='x'><s:b> one </s:b><b/></s:a>").unwrap();
        assert_eq!(text(document.root(), "b"), Some("one"));
        assert_eq!((all(document.root(), "b").count(), text(document.root(), "c")), (2, None));
        assert_eq!(escaped("a<&>b", 4), "a&lt;&amp;&gt;");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,400}", tags in "[<>/ab=' &;#x!-]{0,400}") {
            for text in [text, tags] {
                if let Ok(document) = parse(&text) {
                    prop_assert!(document.descendants().count() <= MOST_NODES as usize + 1);
                }
            }
        }
    }
}
