//! Reads and writes the tables of a file: `[name]`, `[[name]]`, and tables whose `type` decides their other keys.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use visiond_ground::nearest::nearest;

use super::diagnostics::Diagnostics;
use super::kinds::{one_of_with_hints, valid_items};
use super::other_names;
use super::schema::{Context, Entries, Item, Key, KeyKind, Shape, Variant, Written, join, plain};

/// The description of the key `type`.
pub const TYPE_DOC: &str = "The type, which decides the other keys.";

/// Keys of the previous version, with the remedy for each. Remove them in the next version.
const REMOVED: [(&str, &str); 5] = [
    ("status.interval", "remove it, the status line comes each second; `log_interval` is the interval in the log"),
    ("sink.qos_state", "remove it, availability, state and snapshots have QoS 1"),
    ("camera.source.ffmpeg", "set `program` in `[ffmpeg]`, for all cameras"),
    ("camera.source.confined", "set `confined` in `[ffmpeg]`, for all cameras"),
    ("camera.source.max_memory_bytes", "set `max_memory_bytes` in `[ffmpeg]`, for all cameras"),
];

/// A part of the file: a table, a `type` with its keys, or any number of tables.
pub trait Part: Default {
    /// The same with the location of each key, for the checks across tables.
    type Read: Clone;
    /// Returns the value, with the default of each key that is absent or invalid.
    fn of(read: Self::Read) -> Self;
}

/// See [`Part::Read`].
pub type Read<T> = <T as Part>::Read;

impl<T: Part> Part for Vec<T> {
    type Read = Vec<T::Read>;

    fn of(read: Self::Read) -> Self {
        read.into_iter().map(T::of).collect()
    }
}

impl<T: Part> Part for Option<T> {
    type Read = T::Read;

    fn of(read: Self::Read) -> Self {
        Some(T::of(read))
    }
}

/// A struct that holds a table of the file.
pub trait Section: Part {
    /// Returns every key, in the order of the file.
    fn keys() -> Vec<Key>;
    /// Returns a short table as one value, `{ key = value }`, for errors about what is written in its place.
    fn example() -> Option<&'static str> {
        None
    }
    /// Reads the table and reports its errors.
    fn read(table: &mut TableReader<'_, '_>) -> Self::Read;
    /// Returns every key that has a value.
    fn write(&self) -> Entries;
}

/// An enum whose variant the key `type` selects.
pub trait Union: Part {
    /// Returns every variant, in the order of the reference.
    fn variants() -> Vec<Variant>;
    /// Returns the suggestion for a lower-case word that is not a variant's name, if there is one.
    fn hint(_other: &str) -> Option<&'static str> {
        None
    }
    /// Reads the variant `name`, one of [`Union::variants`], and reports its errors.
    fn read(name: &str, table: &mut TableReader<'_, '_>) -> Option<Self::Read>;
    /// Returns the name of the variant.
    fn name(&self) -> &'static str;
    /// Returns the keys of the variant, without `type`.
    fn write(&self) -> Entries;
}

/// A key as it was read from a file.
#[derive(Debug, Clone)]
pub struct Field<T> {
    /// The value, or the default if the key is absent; `None` without a default, or if the value is invalid.
    pub value: Option<T>,
    /// The location of the key.
    pub place: Place,
}

/// The location of a key.
#[derive(Debug, Clone)]
pub struct Place {
    /// Path from the root of the file: `camera.source.device`.
    pub path: String,
    /// The place of the value; `None` if the key is absent.
    pub span: Option<Range<usize>>,
    /// The places of a list's valid items.
    pub items: Vec<Range<usize>>,
    /// Whether nothing is wrong with the value.
    pub is_valid: bool,
}

impl Place {
    /// Returns the key without the path of its table.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// Whether the file has the key, with any value.
    pub fn is_set(&self) -> bool {
        self.span.is_some()
    }
}

impl<T> Field<T> {
    /// Adds the default of an absent key.
    pub fn or(mut self, default: T) -> Self {
        if !self.place.is_set() {
            self.value = Some(default);
        }
        self
    }

    /// Returns a valid value that the file has, with its place.
    pub fn set(&self) -> Option<(&T, Range<usize>)> {
        Some((self.value.as_ref().filter(|_| self.place.is_valid)?, self.place.span.clone()?))
    }

    /// Returns whether the key, if absent by default, has this value.
    pub fn is(&self, value: &T) -> bool
    where
        T: PartialEq,
    {
        self.value.as_ref() == Some(value)
    }
}

impl<T> Field<Vec<T>> {
    /// Returns the valid items with their places.
    pub fn items(&self) -> impl Iterator<Item = (&T, Range<usize>)> {
        self.value.iter().flatten().zip(self.place.items.iter().cloned())
    }
}

/// A table that is being read. Keys that were not requested are unknown and reported at the end.
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
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let (path, base, diagnostics) = (context.path.to_owned(), context.base, &mut *context.diagnostics);
        let mut this =
            Self { table, span, path, known: Vec::new(), undecided: false, variants: Vec::new(), base, diagnostics };
        let value = read(&mut this);
        this.refuse_unknown();
        value
    }

    /// Reads a required key.
    pub fn required<T, R>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T, R>) -> Field<R> {
        let note = note(doc, "required");
        if !self.table.contains_key(name) {
            let owner = if self.path.is_empty() { "the file".to_owned() } else { format!("`[{}]`", self.path) };
            self.diagnostics.absence(self.span.clone(), format!("{owner} needs the key `{name}`"), Some(note.clone()));
        }
        self.field(name, &note, kind)
    }

    /// Reads a key with a default.
    pub fn or_default<T>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T>, default: T) -> Field<T> {
        let note = note(doc, &format!("default {}", kind.inline(&default)));
        self.field(name, &note, kind).or(default)
    }

    /// Reads an optional key.
    pub fn optional<T, R>(&mut self, name: &'static str, doc: &str, kind: &KeyKind<T, R>) -> Field<R> {
        self.field(name, &note(doc, "optional"), kind)
    }

    /// Reads `type` and the keys of that type.
    pub fn union<U: Union>(&mut self) -> Field<U::Read> {
        let names = U::variants().iter().map(|variant| (variant.name, variant.name)).collect();
        let kind = one_of_with_hints(names, U::hint);
        let Field { value, place } = self.required("type", TYPE_DOC, &kind);
        self.undecided = value.is_none();
        self.variants = if self.undecided { Vec::new() } else { U::variants() };
        Field { value: value.and_then(|name| U::read(name, self)), place }
    }

    fn field<T, R>(&mut self, name: &'static str, note: &str, kind: &KeyKind<T, R>) -> Field<R> {
        self.known.push(name);
        let (item, path) = (self.table.get(name), join(&self.path, name));
        let before = self.diagnostics.error_count();
        let mut context =
            Context { path: &path, note, base: self.base, diagnostics: self.diagnostics, items: Vec::new() };
        let value = item.and_then(|item| (kind.read)(item, &mut context));
        let (items, is_valid) = (context.items, self.diagnostics.error_count() == before);
        Field { value, place: Place { path, span: item.map(Spanned::span), items, is_valid } }
    }

    fn refuse_unknown(&mut self) {
        if self.undecided {
            return;
        }
        for key in self.table.keys().filter(|key| !self.known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let path = join(&self.path, name);
            if let Some((_, remedy)) = REMOVED.iter().find(|(removed, _)| *removed == path) {
                self.diagnostics.error(key.span(), format!("the key `{path}` no longer exists: {remedy}"));
                continue;
            }
            let has = |variant: &&Variant| variant.keys.iter().any(|key| key.name == name.as_ref());
            let near = nearest(name, self.known.iter().copied());
            let remedy = match (other_names::remedy(&self.path, name), near) {
                (Some(remedy), _) => remedy.to_owned(),
                _ if self.variants.iter().any(|variant| has(&variant)) => {
                    let types =
                        self.variants.iter().filter(has).map(|variant| format!("`type = \"{}\"`", variant.name));
                    format!("it is a key of {}", types.collect::<Vec<_>>().join(" and "))
                }
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) if self.path.is_empty() => {
                    format!("the tables of the file are {}", self.known.join(", "))
                }
                (None, None) => format!("the keys of `{}` are {}", self.path, self.known.join(", ")),
            };
            let path = visiond_system::logging::escape(&path);
            self.diagnostics.error(key.span(), format!("unknown key `{path}`: {remedy}"));
        }
    }
}

/// Returns the doc comment, followed in brackets by the rule that applies if the key is absent.
fn note(doc: &str, absence: &str) -> String {
    let doc = plain(doc);
    format!("{} ({absence})", doc.trim_end_matches('.'))
}

/// Returns the kind of a key that is a table: `[name]`.
pub fn table<T: Section>() -> KeyKind<T, T::Read> {
    KeyKind {
        shape: Box::new(|| Shape::Table(T::keys())),
        read: Box::new(|item, context| read_table(item, context, T::example(), T::read)),
        write: Box::new(|value| Written::Table(value.write())),
    }
}

/// Returns the kind of a key that is any number of tables: `[[name]]`.
pub fn tables<T: Section>() -> KeyKind<Vec<T>, Vec<T::Read>> {
    fn refuse<T: Section>(item: &Item<'_>, context: &mut Context<'_>) {
        let path = context.path;
        let sentence = match item.get_ref().as_table() {
            Some(_) => format!("may appear several times: write `[[{path}]]` with two brackets"),
            None => format!("must be a table: write `[[{path}]]` and its keys below"),
        };
        let example = T::example().map(|example| format!("[{example}]"));
        context.wrong(item, &(sentence + &or_inline(path, example.as_deref())));
    }
    KeyKind {
        shape: Box::new(|| Shape::Tables(T::keys())),
        read: Box::new(|item, context| {
            let Some(items) = item.get_ref().as_array() else {
                refuse::<T>(item, context);
                return None;
            };
            Some(valid_items(items.iter(), context, |item, context| {
                if item.get_ref().as_table().is_none() {
                    refuse::<T>(item, context);
                    return None;
                }
                read_table(item, context, None, T::read)
            }))
        }),
        write: Box::new(|all| Written::Tables(all.iter().map(Section::write).collect())),
    }
}

/// Returns the kind of a key that is any number of tables, or a list of their names.
pub fn tables_or_names<T: Section>() -> KeyKind<Vec<T>, Vec<T::Read>> {
    let KeyKind { shape, .. } = tables::<T>();
    KeyKind {
        shape,
        read: Box::new(|item, context| {
            let Some(items) = item.get_ref().as_array() else {
                context.wrong(item, "must be a list of names, or tables with two brackets");
                return None;
            };
            Some(valid_items(items.iter(), context, |item, context| match item.get_ref() {
                DeValue::Table(_) => read_table(item, context, None, T::read),
                _ => {
                    let mut table = DeTable::new();
                    table.insert(Spanned::new(item.span(), "name".into()), item.clone());
                    Some(TableReader::read(&table, item.span(), context, T::read))
                }
            }))
        }),
        write: Box::new(|all| Written::Tables(all.iter().map(Section::write).collect())),
    }
}

/// Returns the kind of a key that is a table with `type`.
pub fn union_table<T: Union>() -> KeyKind<T, T::Read> {
    KeyKind {
        shape: Box::new(|| Shape::UnionTable(T::variants())),
        read: Box::new(|item, context| read_table(item, context, None, |table| table.union::<T>().value)?),
        write: Box::new(|value| Written::Table(write_union(value))),
    }
}

/// Returns `type` and the variant's keys.
pub fn write_union(value: &impl Union) -> Entries {
    let mut entries = vec![("type", Written::Value(format!("\"{}\"", value.name())))];
    entries.extend(value.write());
    entries
}

/// Returns the end of a remedy: the key at `path` with a value, if there is an example.
fn or_inline(path: &str, example: Option<&str>) -> String {
    let name = path.rsplit('.').next().unwrap_or_default();
    example.map_or(String::new(), |example| format!(", or `{name} = {example}`"))
}

fn read_table<T>(
    item: &Item<'_>,
    context: &mut Context<'_>,
    example: Option<&str>,
    read: impl FnOnce(&mut TableReader<'_, '_>) -> T,
) -> Option<T> {
    let Some(table) = item.get_ref().as_table() else {
        let sentence = match item.get_ref().as_array() {
            Some(_) => format!("may appear only once: write `[{}]` with one bracket", context.path),
            None => format!("must be a table: write `[{}]` and its keys below", context.path),
        };
        let or_inline = or_inline(context.path, example);
        context.wrong(item, &(sentence + &or_inline));
        return None;
    };
    Some(TableReader::read(table, item.span(), context, read))
}
