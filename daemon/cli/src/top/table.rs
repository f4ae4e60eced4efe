//! A table as text, with columns as wide as their contents.

use std::fmt::Write;

use visiond_system::logging::escape;

/// A header and rows; numbers are right-aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The name of each column, and whether it holds numbers.
    pub head: Vec<(&'static str, bool)>,
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(head: &[(&'static str, bool)]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
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
            for ((cell, width), (_, number)) in row.iter().zip(&widths).zip(&self.head) {
                // Writing into a String cannot fail.
                let _ = if *number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:width$}  ") };
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
        let mut table = Table::new(&[("CAMERA", false), ("FPS", true), ("SEES", false)]);
        table.push(["door".to_owned(), "29.9".to_owned(), String::new()]);
        table.push(["a\x1b[2J".to_owned(), "5.0".to_owned(), "1 dog".to_owned()]);
        assert_eq!(table.text(), "CAMERA       FPS  SEES\ndoor        29.9\na\\u{1b}[2J   5.0  1 dog\n");
    }
}
