//! Changes the masks, lines and zones of one camera in the text of a configuration, and leaves all other text as it is.
//!
//! The parser says where a key, a value or a header is in the text. Each step changes one of these places and parses the text again, so
//! that no step has to know what the ones before it moved. At the end, the new text must mean exactly what was asked for.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// More steps than the changes of all shapes of a camera take.
const MOST_STEPS: usize = 10_000;
/// Lines and zones look at tracks.
const TRACK: &str = "track";

/// A table below `[[camera]]` that describes an area or a line of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShapeKind {
    /// `[[camera.privacy]]`
    Privacy,
    /// `[[camera.ignore]]`
    Ignore,
    /// `[[camera.line]]`
    Line,
    /// `[[camera.zone]]`
    Zone,
}

impl ShapeKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Privacy, Self::Ignore, Self::Line, Self::Zone];

    /// Returns the name of the table.
    pub fn table(self) -> &'static str {
        match self {
            Self::Privacy => "privacy",
            Self::Ignore => "ignore",
            Self::Line => "line",
            Self::Zone => "zone",
        }
    }
}

/// The shapes of a camera, by kind.
pub type Shapes<T> = BTreeMap<ShapeKind, Vec<T>>;

/// A shape as the file shall have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedShape {
    /// Its place among the tables of its kind in the file; `None` for a new one. Shapes of the file that are not wanted are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<usize>,
    /// The keys of its table.
    pub table: Table,
}

/// Why a text cannot be changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The file is no TOML.
    #[error("line {line} is invalid TOML: {message}: correct the file first")]
    Syntax {
        /// The first invalid line, counted from 1.
        line: usize,
        /// The parser's reason.
        message: String,
    },
    /// The file does not have the camera; a running one may have been renamed in it.
    #[error("the file has no camera \"{0}\": use a name that is in it")]
    NoCamera(String),
    /// The camera has its shapes in a list without headers.
    #[error(
        "`{table}` of camera \"{camera}\" is a list in one value: write a table [[camera.{table}]] for each to change them here"
    )]
    Inline {
        /// Name of the camera.
        camera: String,
        /// The key with the list.
        table: &'static str,
    },
    /// A place that the file does not have, or has twice.
    #[error(
        "`was` of the {table} tables must ascend, and be less than {number}, the number of these tables in the file"
    )]
    Was {
        /// The name of the tables.
        table: &'static str,
        /// How many the file has.
        number: usize,
    },
    /// A key that would need quotes.
    #[error("\"{0}\" cannot be a key: write letters, digits, - and _")]
    Key(String),
    /// The camera or its shapes are written in a way that the editor does not understand.
    #[error("cannot change the text of camera \"{0}\" alone: paste the tables into the file by hand")]
    Entangled(String),
}

/// Returns the tables of a camera's shapes, with the keys that the file sets, and whether the camera has a table `track`.
///
/// # Errors
/// The text is no TOML, or has no such camera.
pub fn shapes_of(text: &str, camera: &str) -> Result<(Shapes<Table>, bool), ShapeError> {
    let file = CameraText::find(text, camera)?;
    let shapes = ShapeKind::ALL.map(|kind| (kind, tables(&file.meaning, kind)));
    Ok((shapes.into(), file.meaning.contains_key(TRACK)))
}

/// Returns the privacy masks, by their place in the file, that `wanted` removes or changes. Changing a mask may uncover what it hid.
///
/// # Errors
/// As of [`shapes_of`].
pub fn uncovered(text: &str, camera: &str, wanted: &Shapes<WantedShape>) -> Result<Vec<usize>, ShapeError> {
    let file = CameraText::find(text, camera)?;
    let wanted = wanted.get(&ShapeKind::Privacy).map(Vec::as_slice).unwrap_or_default();
    let masks = tables(&file.meaning, ShapeKind::Privacy);
    let stays = |(place, mask): (usize, &Table)| {
        wanted.iter().any(|shape| shape.was == Some(place) && is_same_table(&shape.table, mask))
    };
    Ok((0..masks.len()).filter(|place| !stays((*place, &masks[*place]))).collect())
}

/// A shape that a change adds, removes or alters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedShape {
    /// Its kind.
    pub kind: ShapeKind,
    /// Its name; `None` of masks, which have none.
    pub name: Option<String>,
}

/// Returns the shapes that `wanted` adds to the file, removes from it or alters there; one that gets another name with both names.
///
/// # Errors
/// As of [`shapes_of`].
pub fn changed_shapes(text: &str, camera: &str, wanted: &Shapes<WantedShape>) -> Result<Vec<ChangedShape>, ShapeError> {
    let file = CameraText::find(text, camera)?;
    let changed = ShapeKind::ALL.map(|kind| {
        let (old, new) = (tables(&file.meaning, kind), of_kind(wanted, kind));
        let stays = |shape: &WantedShape, place: usize| {
            shape.was == Some(place) && old.get(place).is_some_and(|old| is_same_table(&shape.table, old))
        };
        let gone = old.iter().enumerate().filter(|(place, _)| !new.iter().any(|shape| stays(shape, *place)));
        let added = new.iter().filter(|shape| !shape.was.is_some_and(|place| stays(shape, place)));
        let tables: Vec<_> = gone.map(|(_, table)| table).chain(added.map(|shape| &shape.table)).cloned().collect();
        tables.into_iter().map(move |table| {
            let name = table.get("name").and_then(Value::as_str).map(str::to_owned);
            ChangedShape { kind, name }
        })
    });
    Ok(changed.into_iter().flatten().collect())
}

/// Returns `text` with `wanted` as the shapes of `camera`. A camera that gets its first line or zone also gets `[camera.track]`.
///
/// Comments stay, except those of a shape or key that is removed: in its lines, and directly above or below a shape.
///
/// # Errors
/// The text is no TOML, has no such camera, or has its shapes where they cannot be changed without touching other text.
pub fn with_shapes(text: &str, camera: &str, wanted: &Shapes<WantedShape>) -> Result<String, ShapeError> {
    let before = CameraText::find(text, camera)?;
    let mut text = text.to_owned();
    for kind in ShapeKind::ALL {
        let wanted = of_kind(wanted, kind);
        let number = tables(&before.meaning, kind).len();
        let kept: Vec<_> = wanted.iter().filter_map(|shape| shape.was).collect();
        if !kept.is_sorted_by(|a, b| a < b) || kept.last().is_some_and(|last| *last >= number) {
            return Err(ShapeError::Was { table: kind.table(), number });
        }
        for place in (0..number).rev().filter(|place| !kept.contains(place)) {
            remove(&mut text, camera, kind, place)?;
        }
        for (place, shape) in wanted.iter().filter(|shape| shape.was.is_some()).enumerate() {
            change(&mut text, camera, kind, place, &shape.table)?;
        }
    }
    if needs_track(wanted) && !before.meaning.contains_key(TRACK) {
        append(&mut text, camera, "[camera.track]")?;
    }
    for kind in ShapeKind::ALL {
        for shape in of_kind(wanted, kind).iter().filter(|shape| shape.was.is_none()) {
            CameraText::find(&text, camera)?.array(kind)?;
            let mut lines = vec![format!("[[camera.{}]]", kind.table())];
            for (key, value) in &shape.table {
                lines.push(assignment(key, value)?);
            }
            append(&mut text, camera, &lines.join("\n"))?;
        }
    }
    match CameraText::find(&text, camera) {
        Ok(after) if after.is(&before, wanted) => Ok(text),
        _ => Err(ShapeError::Entangled(camera.to_owned())),
    }
}

/// Returns the shape whose table a line of the text is in, counted from 1: its kind, and its place in the lists of `wanted`, for
/// which [`with_shapes`] returned the text.
pub fn shape_at(text: &str, camera: &str, wanted: &Shapes<WantedShape>, line: usize) -> Option<(ShapeKind, usize)> {
    let file = CameraText::find(text, camera).ok()?;
    let line_of = |offset: usize| text[..offset].matches('\n').count() + 1;
    for kind in ShapeKind::ALL {
        for (place, (header, table)) in file.array(kind).ok()?.into_iter().enumerate() {
            let blocks = file.blocks(&header, table);
            if blocks.iter().any(|block| (line_of(block.start)..=line_of(block.end)).contains(&line)) {
                // The new ones follow those that were in the file.
                let (old, new): (Vec<_>, Vec<_>) =
                    of_kind(wanted, kind).iter().enumerate().partition(|(_, shape)| shape.was.is_some());
                return old.into_iter().chain(new).nth(place).map(|(place, _)| (kind, place));
            }
        }
    }
    None
}

fn of_kind(wanted: &Shapes<WantedShape>, kind: ShapeKind) -> &[WantedShape] {
    wanted.get(&kind).map(Vec::as_slice).unwrap_or_default()
}

fn needs_track(wanted: &Shapes<WantedShape>) -> bool {
    [ShapeKind::Line, ShapeKind::Zone].iter().any(|kind| !of_kind(wanted, *kind).is_empty())
}

/// Returns the tables of a kind below a camera's table.
fn tables(camera: &Table, kind: ShapeKind) -> Vec<Table> {
    let list = camera.get(kind.table()).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|shape| shape.as_table().cloned()).collect()
}

/// A text, with the table of one camera.
struct CameraText<'t> {
    text: &'t str,
    /// The whole text.
    root: Table,
    /// The place of the camera among the tables `[[camera]]`.
    place: usize,
    /// What the camera's table says.
    meaning: Table,
    /// The camera's header and table, with their places in the text.
    header: Range<usize>,
    table: DeTable<'t>,
}

impl<'t> CameraText<'t> {
    fn find(text: &'t str, camera: &str) -> Result<Self, ShapeError> {
        let invalid = |error: toml::de::Error| {
            let at = error.span().map_or(text.len(), |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            ShapeError::Syntax { line, message: error.message().trim_end().to_owned() }
        };
        let root: Table = text.parse().map_err(invalid)?;
        let mut places = DeTable::parse(text).map_err(invalid)?.into_inner();
        let missing = || ShapeError::NoCamera(camera.to_owned());
        let cameras = root.get("camera").and_then(Value::as_array).ok_or_else(missing)?;
        let has_name = |table: &Value| table.get("name").and_then(Value::as_str) == Some(camera);
        let place = cameras.iter().position(has_name).ok_or_else(missing)?;
        let meaning = cameras[place].as_table().cloned().ok_or_else(missing)?;
        let spanned = match places.get_mut("camera").map(Spanned::get_mut) {
            Some(DeValue::Array(cameras)) => cameras.get_mut(place),
            _ => None,
        };
        let spanned = spanned.ok_or_else(missing)?;
        let header = spanned.span();
        if !text[header.start..].starts_with('[') {
            return Err(ShapeError::Entangled(camera.to_owned()));
        }
        let DeValue::Table(table) = spanned.get_mut() else { return Err(missing()) };
        let table = std::mem::take(table);
        Ok(Self { text, root, place, meaning, header, table })
    }

    /// Returns the tables of a kind, each with the place of its header.
    fn array(&self, kind: ShapeKind) -> Result<Vec<(Range<usize>, &DeTable<'t>)>, ShapeError> {
        let Some(value) = self.table.get(kind.table()) else { return Ok(Vec::new()) };
        let inline = || {
            let camera = self.meaning.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            ShapeError::Inline { camera, table: kind.table() }
        };
        self.headed(value.get_ref()).ok_or_else(inline)
    }

    /// Returns the tables of a value that has a header for each of them, `[a]` or `[[a]]`.
    fn headed<'a>(&self, value: &'a DeValue<'t>) -> Option<Vec<(Range<usize>, &'a DeTable<'t>)>> {
        let list = value.as_array().filter(|list| !list.is_empty())?;
        list.iter().map(|item| self.with_header(item)).collect()
    }

    /// Returns the table if it has a header, and is neither inline nor made by dotted keys.
    fn with_header<'a>(&self, item: &'a Spanned<DeValue<'t>>) -> Option<(Range<usize>, &'a DeTable<'t>)> {
        let table = item.get_ref().as_table()?;
        self.text[item.span().start..].starts_with('[').then(|| (item.span(), table))
    }

    /// Whether dotted keys, or headers of tables below it, make this table.
    fn is_implied(&self, item: &Spanned<DeValue<'t>>) -> bool {
        item.get_ref().is_table() && !self.text[item.span().start..].starts_with(['[', '{'])
    }

    /// Returns the end of the keys below a table's own header.
    fn own_end(&self, table: &DeTable<'t>, header_end: usize) -> usize {
        let mut end = header_end;
        for item in table.values() {
            if self.is_implied(item) {
                end = item.get_ref().as_table().map_or(end, |table| self.own_end(table, end));
            } else if self.with_header(item).is_none() && self.headed(item.get_ref()).is_none() {
                end = end.max(item.span().end);
            }
        }
        end
    }

    /// Returns the places of a table and of those below it, each from its header to the end of its own keys.
    fn blocks(&self, header: &Range<usize>, table: &DeTable<'t>) -> Vec<Range<usize>> {
        let own = header.start..self.own_end(table, header.end);
        let mut blocks = Vec::from([own]);
        table.values().for_each(|item| blocks.extend(self.blocks_of(item)));
        blocks
    }

    /// Returns the places of a value's tables that have headers.
    fn blocks_of(&self, item: &Spanned<DeValue<'t>>) -> Vec<Range<usize>> {
        if let Some((header, table)) = self.with_header(item) {
            return self.blocks(&header, table);
        }
        let listed = self.headed(item.get_ref()).unwrap_or_default();
        let listed = listed.iter().flat_map(|(header, table)| self.blocks(header, table));
        let implied = item.get_ref().as_table().filter(|_| self.is_implied(item));
        let implied = implied.into_iter().flat_map(|table| table.values().flat_map(|item| self.blocks_of(item)));
        listed.chain(implied).collect()
    }

    /// Returns the first edit that makes `table`, which says `meaning`, say what is wanted; `None` if it does.
    fn next_edit(
        &self,
        header: &Range<usize>,
        table: &DeTable<'t>,
        meaning: &Table,
        wanted: &Table,
    ) -> Result<Option<(Range<usize>, String)>, ShapeError> {
        for (key, item) in table {
            let name: &str = key.get_ref();
            let (value, wanted) = (meaning.get(name), wanted.get(name));
            if value.zip(wanted).is_some_and(|(value, wanted)| is_same(value, wanted)) {
                continue;
            }
            let nested = wanted.and_then(Value::as_table).zip(value.and_then(Value::as_table));
            if let (Some((below, inner)), Some((wanted, meaning))) = (self.with_header(item), nested) {
                return self.next_edit(&below, inner, meaning, wanted);
            }
            // Tables with headers go, the last one first; what is wanted in their place is written as a key.
            if let Some(last) = self.blocks_of(item).into_iter().max_by_key(|block| block.start) {
                return Ok(Some((whole_block(self.text, &last), String::new())));
            }
            if let Some(table) = item.get_ref().as_table().filter(|_| self.is_implied(item)) {
                let empty = Table::new();
                let meaning = value.and_then(Value::as_table).unwrap_or(&empty);
                return self.next_edit(header, table, meaning, &empty);
            }
            return Ok(Some(match wanted {
                Some(wanted) => (item.span(), wanted.to_string()),
                None => (line_start(self.text, key.span().start)..line_end(self.text, item.span().end), String::new()),
            }));
        }
        let Some((key, value)) = wanted.iter().find(|(key, _)| !meaning.contains_key(*key)) else { return Ok(None) };
        let at = line_end(self.text, self.own_end(table, header.end));
        let before = if self.text[..at].ends_with('\n') { "" } else { newline(self.text) };
        Ok(Some((at..at, format!("{before}{}{}", assignment(key, value)?, newline(self.text)))))
    }

    /// Whether this is `before` with other shapes, and nothing else.
    fn is(&self, before: &CameraText<'_>, wanted: &Shapes<WantedShape>) -> bool {
        let mut expected = before.root.clone();
        let camera = expected.get_mut("camera").and_then(|cameras| cameras.get_mut(before.place)?.as_table_mut());
        let Some(camera) = camera else { return false };
        for kind in ShapeKind::ALL {
            let (old, new): (Vec<_>, Vec<_>) = of_kind(wanted, kind).iter().partition(|shape| shape.was.is_some());
            let list: Vec<_> = old.into_iter().chain(new).map(|shape| Value::Table(shape.table.clone())).collect();
            if !list.is_empty() {
                camera.insert(kind.table().to_owned(), Value::Array(list));
            } else if !tables(camera, kind).is_empty() {
                camera.remove(kind.table());
            }
        }
        if needs_track(wanted) {
            camera.entry(TRACK).or_insert_with(|| Value::Table(Table::new()));
        }
        is_same_table(&self.root, &expected)
    }
}

/// Removes the shape at `place`, with the tables below it.
fn remove(text: &mut String, camera: &str, kind: ShapeKind, place: usize) -> Result<(), ShapeError> {
    // The last block is that of the shape's own header, so the one to remove is known until then.
    loop {
        let file = CameraText::find(text, camera)?;
        let shapes = file.array(kind)?;
        let (header, table) = shapes.get(place).ok_or_else(|| ShapeError::Entangled(camera.to_owned()))?;
        let blocks = file.blocks(header, table);
        let is_last = blocks.len() == 1;
        let last = blocks.into_iter().max_by_key(|block| block.start).unwrap_or(header.clone());
        let range = whole_block(text, &last);
        text.replace_range(range, "");
        if is_last {
            return Ok(());
        }
    }
}

/// Makes the shape at `place` what is wanted.
fn change(text: &mut String, camera: &str, kind: ShapeKind, place: usize, wanted: &Table) -> Result<(), ShapeError> {
    for _ in 0..MOST_STEPS {
        let file = CameraText::find(text, camera)?;
        let entangled = || ShapeError::Entangled(camera.to_owned());
        let meaning = tables(&file.meaning, kind).into_iter().nth(place).ok_or_else(entangled)?;
        if is_same_table(&meaning, wanted) {
            return Ok(());
        }
        let shapes = file.array(kind)?;
        let (header, table) = shapes.get(place).ok_or_else(entangled)?;
        let (range, new) = file.next_edit(header, table, &meaning, wanted)?.ok_or_else(entangled)?;
        text.replace_range(range, &new);
    }
    Err(ShapeError::Entangled(camera.to_owned()))
}

/// Writes lines after the last table of the camera.
fn append(text: &mut String, camera: &str, lines: &str) -> Result<(), ShapeError> {
    let file = CameraText::find(text, camera)?;
    let end = file.blocks(&file.header, &file.table).into_iter().map(|block| block.end).max();
    let at = line_end(text, end.unwrap_or(file.header.end));
    let newline = newline(text);
    let before = if text[..at].ends_with('\n') { "" } else { newline };
    let lines = lines.replace('\n', newline);
    text.insert_str(at, &format!("{before}{newline}{lines}{newline}"));
    Ok(())
}

/// Returns `key = value`. Text of a client becomes a part of the file, so a key must be one that needs no quotes.
fn assignment(key: &str, value: &Value) -> Result<String, ShapeError> {
    let is_bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { Ok(format!("{key} = {value}")) } else { Err(ShapeError::Key(key.chars().take(64).collect())) }
}

/// Whether both mean the same; a whole number is the same as a real one, because clients do not distinguish them.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Table(a), Value::Table(b)) => is_same_table(a, b),
        (Value::Integer(whole), Value::Float(real)) | (Value::Float(real), Value::Integer(whole)) => {
            *whole as f64 == *real
        }
        _ => a == b,
    }
}

fn is_same_table(a: &Table, b: &Table) -> bool {
    a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| is_same(value, other)))
}

/// Returns the lines of a table with its comments: those in it, and those directly above and below it that are beside no other
/// table.
fn whole_block(text: &str, block: &Range<usize>) -> Range<usize> {
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let is_blank = |line: &str| line.trim().is_empty();
    let line_at = |at: usize| &text[at..line_end(text, at)];
    let before = |at: usize| line_start(text, at.saturating_sub(1));
    let (mut start, mut end) = (line_start(text, block.start), line_end(text, block.end));
    let mut above = start;
    while above > 0 && is_comment(line_at(before(above))) {
        above = before(above);
    }
    if above == 0 || is_blank(line_at(before(above))) {
        start = above;
    }
    let mut below = end;
    while below < text.len() && is_comment(line_at(below)) {
        below = line_end(text, below);
    }
    if below == text.len() || is_blank(line_at(below)) {
        end = below;
    }
    // One empty line between the neighbours is enough.
    while end < text.len() && is_blank(line_at(end)) {
        end = line_end(text, end);
    }
    while end == text.len() && start > 0 && is_blank(line_at(before(start))) {
        start = before(start);
    }
    start..end
}

/// Returns the place after the line break of the line.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |found| at + found + 1)
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |found| found + 1)
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

#[cfg(test)]
mod tests;
