//! A table as text, with columns as wide as their contents.

use std::fmt::Write;

use visiond_system::logging::escape;

/// A header and rows.
#[derive(Debug)]
pub struct TextTable {
    /// The name of each column, and whether it holds numbers, which are right-aligned.
    pub head: Vec<(&'static str, bool)>,
    /// The rows, with one cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates an empty table. A `>` at the start of a column's name marks a column of numbers.
    pub fn new(names: &[&'static str]) -> Self {
        let head = names.iter().map(|name| name.strip_prefix('>').map_or((*name, false), |name| (name, true)));
        Self { head: head.collect(), rows: Vec::new() }
    }

    /// Adds a row and escapes its cells, so that control characters cannot move the cursor.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escape(&cell)).collect());
    }

    /// Returns the width of each column in characters.
    pub fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].0.chars().count()]).max().unwrap_or(0)
        };
        (0..self.head.len()).map(width).collect()
    }

    /// Formats the table for a pipe or a file: two spaces between columns, none at the end of a line.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        let names: Vec<_> = self.head.iter().map(|(name, _)| (*name).to_owned()).collect();
        for row in [&names].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, is_number)) in row.iter().zip(&widths).zip(&self.head) {
                // Writing into a String cannot fail.
                let _ = if *is_number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:width$}  ") };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(&["CAMERA", ">FPS", "SEES"]);
        table.push(["door".to_owned(), "29.9".to_owned(), String::new()]);
        table.push(["a\x1b[2J".to_owned(), "5.0".to_owned(), "1 dog".to_owned()]);
        assert_eq!(table.text(), "CAMERA       FPS  SEES\ndoor        29.9\na\\u{1b}[2J   5.0  1 dog\n");
    }
}
