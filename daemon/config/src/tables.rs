//! Reads and writes the tables of a file: `[name]`, `[[name]]`, and tables whose `type` decides their other keys.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use visiond_ground::nearest::nearest;

use super::diagnostics::Diagnostics;
use super::kinds::one_of_with_hints;
use super::schema::{Context, Entries, Item, Key, KeyKind, Shape, Variant, Written, join, plain};

/// The description of the key `type`.
pub const TYPE_DOC: &str = "The type, which decides the other keys.";

/// A struct that holds a table of the file.
pub trait Section: Sized {
    /// Returns every key, in the order of the file.
    fn keys() -> Vec<Key>;
    /// Reads the table; returns `None` if a reported error leaves no value.
    fn read(table: &mut TableReader<'_, '_>) -> Option<Self>;
    /// Returns every key that has a value.
    fn write(&self) -> Entries;
}

/// An enum whose variant the key `type` selects.
pub trait Union: Sized {
    /// Returns every variant, in the order of the reference.
    fn variants() -> Vec<Variant>;
    /// Returns what is meant by a word in small letters that is no variant's name, if that is known.
    fn hint(other: &str) -> Option<&'static str>;
    /// Reads the variant `name`, one of [`Union::variants`].
    fn read(name: &str, table: &mut TableReader<'_, '_>) -> Option<Self>;
    /// Returns the name of the variant.
    fn name(&self) -> &'static str;
    /// Returns the keys of the variant, without `type`.
    fn write(&self) -> Entries;
}

/// A table that is being read. Keys that nothing asked for are unknown and reported at the end.
pub struct TableReader<'a, 'i> {
    table: &'a DeTable<'i>,
    span: Range<usize>,
    path: String,
    known: Vec<&'static str>,
    /// The `type` is wrong or absent, so the valid keys are unknown.
    undecided: bool,
    /// Every type with its keys, if the table has a `type`.
    variants: Vec<Variant>,
    base: &'a Path,
    diagnostics: &'a mut Diagnostics,
}

impl<'a, 'i> TableReader<'a, 'i> {
    /// Reads `table` with `read`, then reports unknown keys.
    pub fn read<T>(
        table: &'a DeTable<'i>,
        span: Range<usize>,
        context: &'a mut Context<'_>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let (path, base, diagnostics) = (context.path.to_owned(), context.base, &mut *context.diagnostics);
        let mut this =
            Self { table, span, path, known: Vec::new(), undecided: false, variants: Vec::new(), base, diagnostics };
        let value = read(&mut this);
        this.refuse_unknown();
        value
    }

    /// Reads a required key.
    pub fn required<T>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T>) -> Option<T> {
        let note = note(doc, "required");
        if !self.table.contains_key(name) {
            let owner = if self.path.is_empty() { "the file".to_owned() } else { format!("`[{}]`", self.path) };
            self.diagnostics.absence(self.span.clone(), format!("{owner} needs the key `{name}`"), Some(note.clone()));
        }
        self.item(name, &note, kind)
    }

    /// Reads a key with a default. Returns the default after an error too, so that reading continues.
    pub fn or_default<T>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T>, default: T) -> T {
        // Tables that may be missing have no default in a line.
        let shown = match kind.inline(&default).as_str() {
            "" => "optional".to_owned(),
            text => format!("default {text}"),
        };
        self.item(name, &note(doc, &shown), kind).unwrap_or(default)
    }

    /// Reads an optional key.
    pub fn optional<T>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T>) -> Option<T> {
        self.item(name, &note(doc, "optional"), kind)
    }

    /// Reads `type` and the keys of that type.
    pub fn union<U: Union>(&mut self) -> Option<U> {
        let names = U::variants().iter().map(|variant| (variant.name, variant.name)).collect();
        let kind = one_of_with_hints(names, U::hint);
        let Some(name) = self.required("type", TYPE_DOC, &kind) else {
            self.undecided = true;
            return None;
        };
        self.variants = U::variants();
        U::read(name, self)
    }

    /// Reads a key; returns `None` if it is absent, or after it reported an error.
    fn item<T>(&mut self, name: &'static str, note: &str, kind: &KeyKind<T>) -> Option<T> {
        self.known.push(name);
        let item = self.table.get(name)?;
        let path = join(&self.path, name);
        (kind.read)(item, &mut Context { path: &path, note, base: self.base, diagnostics: self.diagnostics })
    }

    fn refuse_unknown(&mut self) {
        if self.undecided {
            return;
        }
        for key in self.table.keys().filter(|key| !self.known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let has = |variant: &&Variant| variant.keys.iter().any(|key| key.name == name.as_ref());
            let remedy = match nearest(name, self.known.iter().copied()) {
                _ if self.variants.iter().any(|variant| has(&variant)) => {
                    let types =
                        self.variants.iter().filter(has).map(|variant| format!("`type = \"{}\"`", variant.name));
                    format!("it is a key of {}", types.collect::<Vec<_>>().join(" and "))
                }
                Some(near) => format!("did you mean `{near}`?"),
                None if self.path.is_empty() => format!("the tables of the file are {}", self.known.join(", ")),
                None => format!("the keys of `{}` are {}", self.path, self.known.join(", ")),
            };
            let path = visiond_system::logging::escape(&join(&self.path, name));
            self.diagnostics.error(key.span(), format!("unknown key `{path}`: {remedy}"));
        }
    }
}

/// Returns the doc comment, and in brackets what applies if the key is absent.
fn note(doc: &str, absence: &str) -> String {
    let doc = plain(doc);
    format!("{} ({absence})", doc.trim_end_matches('.'))
}

/// Returns the kind of a key that is a table: `[name]`.
pub fn table<T: Section>() -> KeyKind<T> {
    KeyKind {
        shape: Box::new(|| Shape::Table(T::keys())),
        read: Box::new(|item, context| read_table(item, context, T::read)),
        write: Box::new(|value| Written::Table(value.write())),
    }
}

/// Returns the kind of a key that is any number of tables: `[[name]]`.
pub fn tables<T: Section>() -> KeyKind<Vec<T>> {
    KeyKind {
        shape: Box::new(|| Shape::Tables(T::keys())),
        read: Box::new(|item, context| {
            let Some(items) = item.get_ref().as_array() else {
                let sentence = match item.get_ref() {
                    DeValue::Table(_) => {
                        format!("may appear several times: write `[[{}]]` with two brackets", context.path)
                    }
                    _ => format!("must be a table: write `[[{}]]` and its keys below", context.path),
                };
                context.wrong(item, &sentence);
                return None;
            };
            // Reads every table, also after an invalid one.
            let all: Vec<Option<T>> = items.iter().map(|item| read_table(item, context, T::read)).collect();
            all.into_iter().collect()
        }),
        write: Box::new(|all| Written::Tables(all.iter().map(Section::write).collect())),
    }
}

/// Returns the kind of a key that is a table with `type`.
pub fn union_table<T: Union>() -> KeyKind<T> {
    KeyKind {
        shape: Box::new(|| Shape::UnionTable(T::variants())),
        read: Box::new(|item, context| read_table(item, context, |table| table.union())),
        write: Box::new(|value| Written::Table(write_union(value))),
    }
}

/// Returns `type` and the variant's keys.
pub fn write_union(value: &impl Union) -> Entries {
    let mut entries = vec![("type", Written::Value(format!("\"{}\"", value.name())))];
    entries.extend(value.write());
    entries
}

fn read_table<T>(
    item: &Item<'_>,
    context: &mut Context<'_>,
    read: impl FnOnce(&mut TableReader<'_, '_>) -> Option<T>,
) -> Option<T> {
    let Some(table) = item.get_ref().as_table() else {
        let sentence = match item.get_ref() {
            DeValue::Array(_) => format!("may appear only once: write `[{}]` with one bracket", context.path),
            _ => format!("must be a table: write `[{}]` and its keys below", context.path),
        };
        context.wrong(item, &sentence);
        return None;
    };
    TableReader::read(table, item.span(), context, read)
}
