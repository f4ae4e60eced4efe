//! Reads and writes the tables of a file: `[name]`, `[[name]]`, and tables whose `type` decides their other keys.

use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::diagnostics::{Diagnostics, nearest};
use super::kinds::Word;
use super::schema::{At, Context, Item, Key, Kind, Shape, TableWriter, Variant, plain};

/// The description of the key `type`.
pub const TYPE_DOC: &str = "The type, which decides the other keys.";

/// A struct that holds a table of the file.
pub trait Section: Sized {
    /// Returns every key, in the order of the file.
    fn keys() -> Vec<Key>;
    /// Reads the table; returns `None` if a reported error leaves no value.
    fn read(table: &mut TableReader<'_, '_>) -> Option<Self>;
    /// Writes every key that has a value.
    fn write(&self, table: &mut TableWriter);
}

/// An enum whose variant the key `type` selects.
pub trait Union: Sized {
    /// Returns every variant, in the order of the reference.
    fn variants() -> Vec<Variant>;
    /// Reads the variant `name`, one of [`Union::variants`].
    fn read(name: &str, table: &mut TableReader<'_, '_>) -> Option<Self>;
    /// Returns the name of the variant.
    fn name(&self) -> &'static str;
    /// Writes the keys of the variant, without `type`.
    fn write(&self, table: &mut TableWriter);
}

/// A table that is being read. Keys that nothing asked for are unknown and reported at the end.
pub struct TableReader<'a, 'i> {
    table: &'a DeTable<'i>,
    span: Range<usize>,
    path: String,
    known: Vec<&'static str>,
    /// The `type` is wrong or absent, so the valid keys are unknown.
    undecided: bool,
    base: &'a Path,
    diagnostics: &'a mut Diagnostics,
}

impl<'a, 'i> TableReader<'a, 'i> {
    /// Reads `table` with `read`, then reports unknown keys.
    pub fn read<T>(
        table: &'a DeTable<'i>,
        span: Range<usize>,
        path: &str,
        context: &'a mut Context<'_>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let (base, diagnostics) = (context.base, &mut *context.diagnostics);
        let mut this =
            Self { table, span, path: path.to_owned(), known: Vec::new(), undecided: false, base, diagnostics };
        let value = read(&mut this);
        this.refuse_unknown();
        value
    }

    /// Reads a required key.
    pub fn required<K: Kind>(&mut self, name: &'static str, doc: &str, kind: &K) -> Option<K::Value> {
        let note = note(doc, "required");
        let found = self.item(name, &note, kind);
        if let Found::Absent = found {
            let owner = if self.path.is_empty() { "the file".to_owned() } else { format!("`[{}]`", self.path) };
            self.diagnostics.absence(self.span.clone(), format!("{owner} needs the key `{name}`"), Some(note));
        }
        match found {
            Found::Value(value) => Some(value),
            Found::Wrong | Found::Absent => None,
        }
    }

    /// Reads a key with a default. Returns the default after an error too, so that reading continues.
    pub fn or_default<K: Kind>(&mut self, name: &'static str, doc: &str, kind: &K, default: K::Value) -> K::Value {
        let note = note(doc, &format!("default {}", kind.inline(&default)));
        match self.item(name, &note, kind) {
            Found::Value(value) => value,
            Found::Wrong | Found::Absent => default,
        }
    }

    /// Reads an optional key.
    pub fn optional<K: Kind>(&mut self, name: &'static str, doc: &str, kind: &K) -> Option<K::Value> {
        match self.item(name, &note(doc, "optional"), kind) {
            Found::Value(value) => Some(value),
            Found::Wrong | Found::Absent => None,
        }
    }

    /// Reads `type` and the keys of that type.
    pub fn union<U: Union>(&mut self) -> Option<U> {
        let variants = U::variants();
        let names = variants.iter().map(|variant| (variant.name, variant.name)).collect();
        let kind = Word { words: names };
        let Some(name) = self.required("type", TYPE_DOC, &kind) else {
            self.undecided = true;
            return None;
        };
        U::read(name, self)
    }

    fn item<K: Kind>(&mut self, name: &'static str, note: &str, kind: &K) -> Found<K::Value> {
        self.known.push(name);
        let Some(item) = self.table.get(name) else { return Found::Absent };
        let path = self.path_of(name);
        let mut context = Context { base: self.base, diagnostics: self.diagnostics };
        kind.read(item, &At { path: &path, note }, &mut context).map_or(Found::Wrong, Found::Value)
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn refuse_unknown(&mut self) {
        if self.undecided {
            return;
        }
        for key in self.table.keys().filter(|key| !self.known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let remedy = match nearest(name, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.path.is_empty() => format!("the tables of the file are {}", self.known.join(", ")),
                None => format!("the keys of `{}` are {}", self.path, self.known.join(", ")),
            };
            let path = visiond_system::logging::escape(&self.path_of(name));
            self.diagnostics.error(key.span(), format!("unknown key `{path}`: {remedy}"), None);
        }
    }
}

enum Found<T> {
    Value(T),
    Wrong,
    Absent,
}

/// Returns the doc comment, and in brackets what applies if the key is absent.
fn note(doc: &str, absence: &str) -> String {
    let doc = plain(doc);
    format!("{} ({absence})", doc.trim_end_matches('.'))
}

/// A [`Section`] as a key: `[name]`.
#[derive(Debug)]
pub struct Table<T>(PhantomData<T>);

/// Returns the kind of a key that is a table: `[name]`.
pub fn table<T: Section>() -> Table<T> {
    Table(PhantomData)
}

impl<T: Section> Kind for Table<T> {
    type Value = T;

    fn shape(&self) -> Shape {
        Shape::Table(T::keys())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<T> {
        let table = as_table(item, at, context)?;
        TableReader::read(table, item.span(), at.path, context, T::read)
    }

    fn write(&self, name: &str, value: &T, table: &mut TableWriter) {
        table.table(name, false, |table| value.write(table));
    }

    fn inline(&self, _: &T) -> String {
        String::new()
    }
}

/// Any number of a [`Section`]: `[[name]]`.
#[derive(Debug)]
pub struct Tables<T>(PhantomData<T>);

/// Returns the kind of a key that is any number of tables: `[[name]]`.
pub fn tables<T: Section>() -> Tables<T> {
    Tables(PhantomData)
}

impl<T: Section> Kind for Tables<T> {
    type Value = Vec<T>;

    fn shape(&self) -> Shape {
        Shape::Tables(T::keys())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Vec<T>> {
        let Some(items) = item.get_ref().as_array() else {
            let sentence = match item.get_ref() {
                DeValue::Table(_) => format!("may appear several times: write `[[{}]]` with two brackets", at.path),
                _ => format!("must be a table: write `[[{}]]` and its keys below", at.path),
            };
            context.wrong(item, at, &sentence);
            return None;
        };
        let read = |item: &Item<'_>| {
            let table = as_table(item, at, context)?;
            TableReader::read(table, item.span(), at.path, context, T::read)
        };
        // Reads every table, also after an invalid one.
        let all: Vec<Option<T>> = items.iter().map(read).collect();
        all.into_iter().collect()
    }

    fn write(&self, name: &str, value: &Vec<T>, table: &mut TableWriter) {
        for one in value {
            table.table(name, true, |table| one.write(table));
        }
    }

    fn inline(&self, _: &Vec<T>) -> String {
        String::new()
    }
}

/// A [`Union`] as a key: `[name]` with `type`.
#[derive(Debug)]
pub struct UnionTable<T>(PhantomData<T>);

/// Returns the kind of a key that is a table with `type`.
pub fn union_table<T: Union>() -> UnionTable<T> {
    UnionTable(PhantomData)
}

impl<T: Union> Kind for UnionTable<T> {
    type Value = T;

    fn shape(&self) -> Shape {
        Shape::UnionTable(T::variants())
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<T> {
        let table = as_table(item, at, context)?;
        TableReader::read(table, item.span(), at.path, context, TableReader::union)
    }

    fn write(&self, name: &str, value: &T, table: &mut TableWriter) {
        table.table(name, false, |table| write_union(value, table));
    }

    fn inline(&self, _: &T) -> String {
        String::new()
    }
}

/// Writes `type` and the variant's keys into `table`.
pub fn write_union(value: &impl Union, table: &mut TableWriter) {
    table.value("type", &format!("\"{}\"", value.name()));
    value.write(table);
}

fn as_table<'a, 'i>(item: &'a Item<'i>, at: &At<'_>, context: &mut Context<'_>) -> Option<&'a DeTable<'i>> {
    let table = item.get_ref().as_table();
    if table.is_none() {
        let sentence = match item.get_ref() {
            DeValue::Array(_) => format!("may appear only once: write `[{}]` with one bracket", at.path),
            _ => format!("must be a table: write `[{}]` and its keys below", at.path),
        };
        context.wrong(item, at, &sentence);
    }
    table
}
