//! The description of a key, for the reference, and how its value is read and written.
//!
//! The declarations themselves are made with the macros of [`table_macros`](super::table_macros).

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
    /// What applies if the key is absent.
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

/// What applies if a key is absent.
#[derive(Debug, Clone)]
pub enum Presence {
    /// The default value, as TOML.
    Default(String),
    /// The file is rejected. The text is an example.
    Required(String),
    /// The doc comment says what applies. The text is an example.
    Optional(String),
    /// Each key of the table has its own presence.
    Parts,
}

/// How a key's value is read, checked and written.
pub trait Kind {
    /// The Rust type of the value.
    type Value;
    /// Returns the kind of value or table.
    fn shape(&self) -> Shape;
    /// Reads a value; returns `None` after it reported an error.
    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Self::Value>;
    /// Writes a value under a name.
    fn write(&self, name: &str, value: &Self::Value, table: &mut TableWriter);
    /// Returns a value as TOML, to stand after `=`; empty for tables.
    fn inline(&self, value: &Self::Value) -> String;
}

/// The key that is being read.
#[derive(Debug)]
pub struct At<'a> {
    /// Path from the root of the file: `camera.source.device`.
    pub path: &'a str,
    /// Description of the key, and what applies without it.
    pub note: &'a str,
}

/// What reading a value needs, and the errors it found.
#[derive(Debug)]
pub struct Context<'a> {
    /// Folder that relative paths start from.
    pub base: &'a Path,
    /// Errors and warnings found so far.
    pub diagnostics: &'a mut Diagnostics,
}

impl Context<'_> {
    /// Reports that a value is wrong: `` `PATH` SENTENCE ``.
    pub fn wrong(&mut self, item: &Item<'_>, at: &At<'_>, sentence: &str) {
        self.diagnostics.error(item.span(), format!("`{}` {sentence}", at.path), Some(at.note.to_owned()));
    }
}

/// Joins a doc comment to one line.
pub fn plain(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A table that is being written: values first, then tables, as TOML requires.
#[derive(Debug, Default)]
pub struct TableWriter {
    path: String,
    values: String,
    tables: String,
}

impl TableWriter {
    /// Returns the file's text.
    pub fn finish(self) -> String {
        self.values + self.tables.trim_start()
    }

    /// Writes `name = text`.
    pub fn value(&mut self, name: &str, text: &str) {
        self.values += &format!("{name} = {text}\n");
    }

    /// Writes the table `[name]`, or `[[name]]` for one of many.
    pub fn table(&mut self, name: &str, one_of_many: bool, write: impl FnOnce(&mut Self)) {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let (open, close) = if one_of_many { ("[[", "]]") } else { ("[", "]") };
        let header = format!("\n{open}{path}{close}\n");
        let mut child = Self { path, ..Self::default() };
        write(&mut child);
        self.tables += &(header + &child.values + &child.tables);
    }
}

/// Returns `kind`, which must fit a field of type `T`.
pub fn for_field<T, K: Kind<Value = T>>(kind: K) -> K {
    kind
}

/// Returns `kind`, which must fit a field of type `T`, an `Option`.
pub fn for_option<T: IntoIterator, K: Kind<Value = T::Item>>(kind: K) -> K {
    kind
}
