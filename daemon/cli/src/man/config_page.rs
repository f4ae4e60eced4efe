//! The manual page visiond.toml(5), generated from the declarations of the configuration's keys.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use visiond_config::{Key, Presence, Shape, TYPE_DOC, Variant, join, keys};

/// Program and version, for the footer of every page.
pub const SOURCE: &str = concat!("visiond ", env!("CARGO_PKG_VERSION"));
/// Heading of every page.
pub const MANUAL: &str = "visiond";

const DESCRIPTION: &[&str] = &[
    "The configuration of visiond(1) is one file in TOML. The daemon of the package reads /etc/visiond/visiond.toml, the \
     instance visiond@NAME reads /etc/visiond/NAME.toml.",
    "Durations and sizes have units: \"250 ms\", \"1m30s\", \"64 MiB\". Relative paths start at the folder of the file. \
     Unknown keys are errors. `visiond check FILE` reports every error in a file, `visiond check --effective FILE` \
     prints the values that apply.",
];

/// Returns the page in roff; its date is YYYY-MM-DD.
pub fn text(date: &str) -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["visiond.toml", "5", date, SOURCE, MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("visiond.toml - configuration of the vision daemon")]);
    roff.control("SH", ["DESCRIPTION"]);
    for (index, paragraph) in DESCRIPTION.iter().enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        roff.text(prose(paragraph));
    }
    for key in keys() {
        table(&mut roff, &key, "");
    }
    roff.control("SH", ["FILES"]);
    entry(&mut roff, vec![roman("/etc/visiond/visiond.toml")], "the daemon's configuration");
    let examples = "small configurations to start from, and one with every key";
    entry(&mut roff, vec![roman("/usr/share/doc/visiond/examples")], examples);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("visiond(1), visiond-check(1), visiond-probe(1)")]);
    roff.render()
}

/// Writes a table of the file: a section of the page for a top-level table, otherwise a subsection.
fn table(roff: &mut Roff, key: &Key, parent: &str) {
    let path = join(parent, key.name);
    let title = match &key.shape {
        Shape::Table(_) | Shape::UnionTable(_) => format!("[{path}]"),
        Shape::Tables(_) => format!("[[{path}]]"),
        Shape::Union(variants) => return types(roff, variants, parent),
        Shape::Value(_) => return,
    };
    roff.control(if parent.is_empty() { "SH" } else { "SS" }, [title.as_str()]);
    roff.text(prose(&key.doc));
    match &key.shape {
        Shape::Table(keys) | Shape::Tables(keys) => rows(roff, keys, &path),
        Shape::UnionTable(variants) => types(roff, variants, &path),
        Shape::Union(_) | Shape::Value(_) => {}
    }
}

/// Writes the values of a table, then its tables.
fn rows(roff: &mut Roff, keys: &[Key], path: &str) {
    for key in keys {
        match &key.shape {
            Shape::Value(kind) => {
                let mut head = vec![bold(key.name)];
                match &key.presence {
                    Presence::Default(value) => head.extend([roman(" = "), italic(value)]),
                    Presence::Required(_) => head.push(roman(" (required)")),
                    Presence::Optional(_) => head.push(roman(" (optional)")),
                    Presence::Parts => {}
                }
                entry(roff, head, &format!("{} Must be {kind}.", key.doc));
            }
            Shape::Union(_) => entry(roff, vec![bold("type"), roman(" (required)")], TYPE_DOC),
            _ => {}
        }
    }
    for key in keys {
        table(roff, key, path);
    }
}

fn types(roff: &mut Roff, variants: &[Variant], path: &str) {
    for variant in variants {
        roff.control("SS", [format!("{path} with type = \"{}\"", variant.name).as_str()]);
        roff.text(prose(&variant.doc));
        rows(roff, &variant.keys, path);
    }
}

fn entry(roff: &mut Roff, head: Vec<Inline>, text: &str) {
    roff.control("TP", []);
    roff.text(head);
    roff.text(prose(text));
}

/// Returns `text` with its `code` in bold.
fn prose(text: &str) -> Vec<Inline> {
    let part = |(index, part): (usize, &str)| if index % 2 == 1 { bold(part) } else { roman(part) };
    text.split('`').enumerate().filter(|(_, part)| !part.is_empty()).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_table_and_key() {
        fn has(page: &str, keys: &[Key]) {
            for key in keys {
                match &key.shape {
                    Shape::Value(_) => {
                        let name = key.name.replace('-', "\\-");
                        assert!(page.contains(&format!(".TP\n\\fB{name}\\fR")), "no key {name}");
                    }
                    Shape::Table(keys) | Shape::Tables(keys) => {
                        assert!(page.contains(&format!("{}]", key.name)), "no table {}", key.name);
                        has(page, keys);
                    }
                    Shape::UnionTable(variants) | Shape::Union(variants) => {
                        variants.iter().for_each(|variant| has(page, &variant.keys));
                    }
                }
            }
        }
        let page = text("2026-01-31");
        has(&page, &keys());
        let level = r"Log level; each level includes those before it. \fB\-\-log\-level\fR, \fB\-v\fR and \fB\-q\fR on the command line";
        assert!(page.contains(level), "the text of a key, with its code in bold");
    }

    #[test]
    fn a_key_is_required_optional_or_has_its_default() {
        fn unions(keys: &[Key]) -> usize {
            let of = |key: &Key| match &key.shape {
                Shape::Union(variants) => 1 + variants.iter().map(|variant| unions(&variant.keys)).sum::<usize>(),
                Shape::UnionTable(variants) => variants.iter().map(|variant| unions(&variant.keys)).sum(),
                Shape::Table(keys) | Shape::Tables(keys) => unions(keys),
                Shape::Value(_) => 0,
            };
            keys.iter().map(of).sum()
        }
        let page = text("2026-01-31");
        let types = page.matches(".TP\n\\fBtype\\fR (required)\n").count();
        assert!(types > 0 && types == unions(&keys()), "{types} tables with a type, of {}", unions(&keys()));
        for line in [
            ".SH [[camera]]\n",
            ".SH [log]\n",
            ".TP\n\\fBlevel\\fR = \\fI\"info\"\\fR\n",
            ".TP\n\\fBpath\\fR (required)\n",
            ".TP\n\\fBcard\\fR (optional)\n",
        ] {
            assert!(page.contains(line), "{line} is missing:\n{page}");
        }
    }
}
