//! The live page: one HTML document with its style, its script and the policy under which a browser runs them.
//!
//! The script is a set of small modules, one a job; here they become one, so that the page comes in a single answer and the
//! policy can name what may run by its hash. Nothing else may: no other script, no style, no picture of another host.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

use crate::state::State;

const FRAME: &str = include_str!("page/index.html");
const LOGIN: &str = include_str!("page/login.html");
const STYLE: &str = include_str!("page/style.css");
const ICON: &str = include_str!("page/icon.svg");

/// Each needs only what stands above it.
const MODULES: [(&str, &str); 13] = [
    ("dom", include_str!("page/dom.js")),
    ("format", include_str!("page/format.js")),
    ("theme", include_str!("page/theme.js")),
    ("history", include_str!("page/history.js")),
    ("overlay", include_str!("page/overlay.js")),
    ("connection", include_str!("page/connection.js")),
    ("pictures", include_str!("page/pictures.js")),
    ("cameras", include_str!("page/cameras.js")),
    ("inspector", include_str!("page/inspector.js")),
    ("machine", include_str!("page/machine.js")),
    ("log", include_str!("page/log.js")),
    ("reload", include_str!("page/reload.js")),
    ("app", include_str!("page/app.js")),
];

/// A document and the policy that it comes with.
#[derive(Debug)]
pub struct Page {
    html: String,
    policy: String,
}

/// `/`: the live page.
pub fn routes() -> Router<State> {
    Router::new().route("/", get(async || live().answer(live().html.as_str())))
}

/// The live page.
fn live() -> &'static Page {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::join(FRAME, &script()));
    &PAGE
}

/// The page that asks for the token: a form that posts `token` to /login. `say` is what came of the last one, as markup.
pub fn login(say: &str) -> Response {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::join(LOGIN, ""));
    PAGE.answer(PAGE.html.replace("{say}", say))
}

impl Page {
    /// What is sent; `html` is the page, filled in.
    fn answer(&self, html: impl IntoResponse) -> Response {
        let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, self.policy.as_str())];
        (headers, html).into_response()
    }

    fn join(frame: &str, script: &str) -> Self {
        let icon = format!("data:image/svg+xml;base64,{}", base64(ICON.trim().as_bytes()));
        let html = frame.replace("{icon}", &icon).replace("{style}", STYLE).replace("{script}", script);
        let hash = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text)));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; img-src 'self' data: blob:; connect-src 'self'; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(script),
            hash(STYLE),
        );
        Self { html, policy }
    }
}

/// The modules as one. Each stays a scope of its own, of which only what it exports can be seen.
fn script() -> String {
    let mut script = String::new();
    for (_, text) in MODULES {
        let names = exported(text).join(", ");
        let lines = text.lines().filter(|line| !line.starts_with("import "));
        let body = lines.map(|line| line.strip_prefix("export ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
        script += &format!("const {{ {names} }} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n");
    }
    script
}

/// The names that a module exports.
fn exported(text: &str) -> Vec<&str> {
    let kinds = ["const ", "class ", "function ", "async function "];
    let lines = text.lines().filter_map(|line| line.strip_prefix("export "));
    let names = lines.filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
    names.filter_map(|name| name.split(|letter: char| !letter.is_ascii_alphanumeric()).next()).collect()
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0, |number, at| number << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for place in 0..4 {
            let letter = ALPHABET[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A phone on a slow link has it within a second.
    const MOST_BYTES: usize = 100_000;

    #[test]
    fn the_page_is_one_small_document_that_takes_nothing_from_elsewhere() {
        assert!(live().html.len() <= MOST_BYTES, "{} bytes", live().html.len());
        for left in ["{icon}", "{style}", "{script}", "https://", "style=\"", "onclick"] {
            assert!(!live().html.contains(left), "{left}");
        }
    }

    #[test]
    fn the_policy_names_what_the_page_holds_and_nothing_by_wish() {
        let page = live();
        let script =
            page.html.split_once("<script type=\"module\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let (script, _) = script.unwrap_or_default();
        assert!(!script.is_empty());
        assert!(page.policy.contains(&base64(&Sha256::digest(script))));
        assert!(!page.policy.contains("unsafe"));
    }

    #[test]
    fn a_module_takes_only_what_one_above_it_exports() {
        let mut owners = BTreeMap::new();
        for (module, text) in MODULES {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let parts = line.strip_prefix("import { ").and_then(|line| line.split_once(" } from './"));
                let (names, from) = parts.unwrap_or_else(|| panic!("{module}: {line}"));
                for name in names.split(", ") {
                    assert_eq!(owners.get(name).copied(), from.strip_suffix(".js';"), "{module} takes {name}");
                }
            }
            for name in exported(text) {
                assert_eq!(owners.insert(name, module), None, "{module} exports {name}, which is there already");
            }
        }
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
