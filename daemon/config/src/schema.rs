//! The description of a key, for the reference, and how its value is read and written.
//!
//! The declarations themselves are made with the macros of [`table_macros`](super::table_macros).

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostics::Diagnostics;

/// A value of a file with its place.
pub type Item<'i> = Spanned<DeValue<'i>>;

/// A key, as the reference describes it.
#[derive(Debug, Clone)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// The doc comment.
    pub doc: String,
    /// Kind of value or table.
    pub shape: Shape,
    /// The rule that applies if the key is absent.
    pub presence: Presence,
}

/// Kind of value or table that a key holds.
#[derive(Debug, Clone)]
pub enum Shape {
    /// A value: the text after "must be".
    Value(String),
    /// A table.
    Table(Vec<Key>),
    /// Any number of tables.
    Tables(Vec<Key>),
    /// `type` and the keys of that type, in a table of their own.
    UnionTable(Vec<Variant>),
    /// `type` and the keys of that type, in this table.
    Union(Vec<Variant>),
}

/// One `type` with its keys.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The value of `type`.
    pub name: &'static str,
    /// The doc comment.
    pub doc: String,
    /// Its keys.
    pub keys: Vec<Key>,
}

/// The rule that applies if a key is absent.
#[derive(Debug, Clone)]
pub enum Presence {
    /// The default value, as TOML.
    Default(String),
    /// The file is rejected. The text is an example.
    Required(String),
    /// The doc comment states the default. The text is an example.
    Optional(String),
    /// Each key of the table has its own presence.
    Parts,
}

/// How a key's value of type `T` is described, checked, read as an `R`, and written.
pub struct KeyKind<T, R = T> {
    /// Returns the kind of value or table.
    pub shape: Box<dyn Fn() -> Shape>,
    /// Reads a value; returns `None` after reporting an error. For a list, it returns the valid items.
    pub read: Box<ReadFn<R>>,
    /// Returns a value as the file holds it.
    pub write: Box<dyn Fn(&T) -> Written>,
}

/// See [`KeyKind::read`].
pub type ReadFn<T> = dyn Fn(&Item<'_>, &mut Context<'_>) -> Option<T>;

impl<T, R> KeyKind<T, R> {
    /// Returns a value as TOML, to follow `=`; empty for tables.
    pub fn inline(&self, value: &T) -> String {
        if let Written::Value(text) = (self.write)(value) { text } else { String::new() }
    }
}

/// The content of a key, as TOML.
pub enum Written {
    /// A value, to follow `=`.
    Value(String),
    /// A table.
    Table(Entries),
    /// Any number of tables.
    Tables(Vec<Entries>),
}

/// The keys of a table with what they hold.
pub type Entries = Vec<(&'static str, Written)>;

/// Returns the table at `path` as TOML: values first, then tables, as TOML requires.
pub fn render(entries: &Entries, path: &str) -> String {
    let (mut values, mut tables) = (String::new(), String::new());
    for (name, written) in entries {
        let inner = join(path, name);
        match written {
            Written::Value(text) => values += &format!("{name} = {text}\n"),
            Written::Table(entries) => tables += &format!("\n[{inner}]\n{}", render(entries, &inner)),
            Written::Tables(all) => {
                all.iter().for_each(|entries| tables += &format!("\n[[{inner}]]\n{}", render(entries, &inner)));
            }
        }
    }
    values + &tables
}

/// Returns the path of the key `name` in the table at `path`, which is empty for the file itself.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The key that is being read, and the errors found.
#[derive(Debug)]
pub struct Context<'a> {
    /// Path from the root of the file: `camera.source.device`.
    pub path: &'a str,
    /// Description of the key, and what applies without it.
    pub note: &'a str,
    /// Folder that relative paths start from.
    pub base: &'a Path,
    /// Errors and warnings found so far.
    pub diagnostics: &'a mut Diagnostics,
    /// The places of a list's valid items.
    pub items: Vec<Range<usize>>,
}

impl Context<'_> {
    /// Reports that a value is wrong: `` `PATH` SENTENCE ``.
    pub fn wrong(&mut self, item: &Item<'_>, sentence: &str) {
        self.diagnostics.wrong(item.span(), format!("`{}` {sentence}", self.path), self.note.to_owned());
    }
}

/// Joins a doc comment to one line.
pub fn plain(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `kind`, which must fit a field of type `T`, an `Option`.
pub fn for_option<T: IntoIterator, R>(kind: KeyKind<T::Item, R>) -> KeyKind<T::Item, R> {
    kind
}
