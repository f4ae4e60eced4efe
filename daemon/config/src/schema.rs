//! What a declaration of keys becomes: readers and writers of tables, and the list of keys for the reference.
//!
//! The declarations themselves are made with the macros of [`table_macros`](super::table_macros).

use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostics::Diagnostics;

/// A value of a file with its place.
pub type Item<'i> = Spanned<DeValue<'i>>;

/// A key as the reference shows it.
#[derive(Debug, Clone)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// The doc comment.
    pub doc: String,
    /// What it holds.
    pub shape: Shape,
    /// What holds when it is absent.
    pub presence: Presence,
}

/// What a key holds.
#[derive(Debug, Clone)]
pub enum Shape {
    /// A value: the text after "must be".
    Value(String),
    /// A table.
    Table(Vec<Key>),
    /// Any number of tables.
    Tables(Vec<Key>),
    /// `type` and the keys that go with it, in a table of their own.
    UnionTable(Vec<Variant>),
    /// `type` and the keys that go with it, in this table.
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

/// What holds when a key is absent.
#[derive(Debug, Clone)]
pub enum Presence {
    /// This value, as TOML.
    Default(String),
    /// The file is refused; the text is an example.
    Required(String),
    /// What the doc comment says; the text is an example.
    Optional(String),
    /// The parts' own presences.
    Parts,
}

/// How a key's value is read, checked and written.
pub trait Kind {
    /// What becomes of it.
    type Value;
    /// What it holds.
    fn shape(&self) -> Shape;
    /// Reads a value; `None` when an error was reported.
    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Self::Value>;
    /// Writes a value under a name.
    fn write(&self, name: &str, value: &Self::Value, table: &mut TableWriter);
    /// A value as it stands behind `=`. Empty for tables, which never stand there.
    fn inline(&self, value: &Self::Value) -> String;
}

/// The key that is being read.
#[derive(Debug)]
pub struct At<'a> {
    /// From the file's root: `camera.source.device`.
    pub path: &'a str,
    /// What the key is for, and what holds without it.
    pub note: &'a str,
}

/// What reading needs to know, and what it found wrong.
#[derive(Debug)]
pub struct Context<'a> {
    /// The folder that relative paths are relative to.
    pub base: &'a Path,
    /// What is wrong.
    pub diagnostics: &'a mut Diagnostics,
}

impl Context<'_> {
    /// Reports that a value is wrong: `` `PATH` SENTENCE ``.
    pub fn wrong(&mut self, item: &Item<'_>, at: &At<'_>, sentence: &str) {
        self.diagnostics.error(item.span(), format!("`{}` {sentence}", at.path), Some(at.note.to_owned()));
    }
}

/// A doc comment as one line of text.
pub fn plain(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A table while it is written: values first, then tables, as TOML wants it.
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

    /// `name = text`
    pub fn value(&mut self, name: &str, text: &str) {
        self.values += &format!("{name} = {text}\n");
    }

    /// `[name]`, or `[[name]]` for one of many.
    pub fn table(&mut self, name: &str, one_of_many: bool, write: impl FnOnce(&mut Self)) {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let (open, close) = if one_of_many { ("[[", "]]") } else { ("[", "]") };
        let header = format!("\n{open}{path}{close}\n");
        let mut child = Self { path, ..Self::default() };
        write(&mut child);
        self.tables += &(header + &child.values + &child.tables);
    }
}

/// `kind`, which must fit a field of type `T`.
pub fn for_field<T, K: Kind<Value = T>>(kind: K) -> K {
    kind
}

/// `kind`, which must fit a field of type `T`, an `Option`.
pub fn for_option<T: IntoIterator, K: Kind<Value = T::Item>>(kind: K) -> K {
    kind
}
