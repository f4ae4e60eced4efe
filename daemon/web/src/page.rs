//! The live page: one HTML document with its style, its script and its content security policy.
//!
//! The script is written as small modules. They are joined here, so that the page is one answer and the policy can allow the
//! script and the style by their hashes. A browser loads nothing else: no other script or style, no image from another host.

use std::sync::LazyLock;

use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("page/index.html");
const LOGIN: &str = include_str!("page/login.html");
const STYLE: &str = include_str!("page/style.css");
const ICON: &str = include_str!("page/icon.svg");

/// The modules of the script; each imports only from modules above it.
const MODULES: [(&str, &str); 20] = [
    ("dom", include_str!("page/dom.js")),
    ("format", include_str!("page/format.js")),
    ("settings", include_str!("page/settings.js")),
    ("history", include_str!("page/history.js")),
    ("shape", include_str!("page/shape.js")),
    ("overlay", include_str!("page/overlay.js")),
    ("connection", include_str!("page/connection.js")),
    ("rules", include_str!("page/rules.js")),
    ("heat", include_str!("page/heat.js")),
    ("pictures", include_str!("page/pictures.js")),
    ("filter", include_str!("page/filter.js")),
    ("cameras", include_str!("page/cameras.js")),
    ("inspector", include_str!("page/inspector.js")),
    ("drawing", include_str!("page/drawing.js")),
    ("masks", include_str!("page/masks.js")),
    ("events", include_str!("page/events.js")),
    ("machine", include_str!("page/machine.js")),
    ("log", include_str!("page/log.js")),
    ("reload", include_str!("page/reload.js")),
    ("app", include_str!("page/app.js")),
];

/// An HTML document with its content security policy.
#[derive(Debug)]
pub struct Page {
    html: String,
    policy: String,
}

static LIVE: LazyLock<Page> = LazyLock::new(|| Page::join(FRAME, &script()));

/// `GET /`: the live page.
pub async fn live() -> Response {
    LIVE.answer(LIVE.html.as_str())
}

/// Returns the page with the form that posts `token` to /login. `say` is markup about the last attempt; `query` is the query of
/// the live page's address, which the login leads to. A `Uri` has no quotation mark in its query.
pub fn login(query: Option<&str>, say: &str) -> Response {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::join(LOGIN, ""));
    let query = query.map(|query| format!("?{}", query.replace('&', "&amp;")));
    PAGE.answer(PAGE.html.replace("{say}", say).replace("{query}", &query.unwrap_or_default()))
}

impl Page {
    /// Returns the answer; `html` is the complete page.
    fn answer(&self, html: impl IntoResponse) -> Response {
        let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, self.policy.as_str())];
        (headers, html).into_response()
    }

    fn join(frame: &str, script: &str) -> Self {
        let icon = format!("data:image/svg+xml;base64,{}", STANDARD.encode(ICON.trim()));
        let html = frame.replace("{icon}", &icon).replace("{style}", STYLE).replace("{script}", script);
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; img-src 'self' data: blob:; connect-src 'self'; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(script),
            hash(STYLE),
        );
        Self { html, policy }
    }
}

/// Joins the modules without their comments. Each keeps its own scope, and only its exports are visible outside.
fn script() -> String {
    let mut script = String::new();
    for (_, text) in MODULES {
        let names = exported(text).join(", ");
        let lines = without_comments(text).filter(|line| !line.starts_with("import "));
        let body = lines.map(|line| line.strip_prefix("export ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
        script += &format!("const {{ {names} }} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n");
    }
    script
}

/// Returns the lines that hold no comment only. A comment of several lines is alone on them.
fn without_comments(text: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    text.lines().filter(move |line| {
        let line = line.trim();
        is_inside |= line.starts_with("/*");
        let is_comment = is_inside || line.starts_with("//");
        is_inside &= !line.ends_with("*/");
        !is_comment
    })
}

/// Returns the exported names of a module.
fn exported(text: &str) -> Vec<&str> {
    let kinds = ["const ", "class ", "function ", "async function "];
    let lines = text.lines().filter_map(|line| line.strip_prefix("export "));
    let names = lines.filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
    names.filter_map(|name| name.split(|letter: char| !letter.is_ascii_alphanumeric()).next()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A phone on a slow link has it within a second.
    const MOST_BYTES: usize = 140_000;

    #[test]
    fn the_page_is_one_small_document_that_takes_nothing_from_elsewhere() {
        assert!(LIVE.html.len() <= MOST_BYTES, "{} bytes", LIVE.html.len());
        for left in ["{icon}", "{style}", "{script}", "https://", "style=\"", "onclick", "/**", "\n// "] {
            assert!(!LIVE.html.contains(left), "{left}");
        }
    }

    #[test]
    fn the_policy_names_what_the_page_holds_and_nothing_by_wish() {
        let page = &*LIVE;
        let script =
            page.html.split_once("<script type=\"module\">").and_then(|(_, rest)| rest.split_once("</script>"));
        let (script, _) = script.unwrap_or_default();
        assert!(!script.is_empty());
        assert!(page.policy.contains(&STANDARD.encode(Sha256::digest(script))));
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
}
