//! Describes a model's outputs to the filter: where the numbers are, and how they become boxes.
//!
//! A spec describes numbers, not models: [`Table`]s of rows, each with scores and a box, perhaps on a grid. All tables share
//! everything except their positions.

/// The maximum number of tables: the description is passed as one launch's argument.
pub const MAX_TABLES: usize = 12;

/// The maximum number of bins in a distance's distribution.
const MAX_BINS: usize = 256;

/// The maximum number of candidates per frame.
///
/// A hundred objects of a model with several boxes per object have about a thousand.
pub const CAPACITY: usize = 4096;

/// Rows and columns of numbers inside one output. All distances are in elements, within one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    /// The index of the output.
    pub output: usize,
    /// The position of the first row's first number.
    pub offset: usize,
    /// The distance between rows.
    pub row_step: usize,
    /// The distance between columns.
    pub column_step: usize,
    /// The elements of one frame in this output.
    pub frame_len: usize,
}

impl Values {
    /// Returns a table of consecutive rows with `width` numbers each, which fills the output.
    pub const fn rows(output: usize, rows: usize, width: usize) -> Self {
        Self { output, offset: 0, row_step: width, column_step: 1, frame_len: rows * width }
    }

    /// Returns a transposed table: a plane of `rows` numbers for each of `planes` columns.
    pub const fn planes(output: usize, planes: usize, rows: usize) -> Self {
        Self { output, offset: 0, row_step: 1, column_step: rows, frame_len: rows * planes }
    }

    /// Returns the table without the first `columns` columns.
    #[must_use]
    pub const fn from_column(self, columns: usize) -> Self {
        Self { offset: self.offset + columns * self.column_step, ..self }
    }

    /// Returns the table without the first `rows` rows.
    #[must_use]
    pub const fn from_row(self, rows: usize) -> Self {
        Self { offset: self.offset + rows * self.row_step, ..self }
    }

    /// Whether `rows` rows of `columns` numbers lie inside the frame and can be indexed with 32 bits.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let last = |count: usize, step: usize| count.checked_sub(1).map(|last| last.checked_mul(step));
        let (Some(row), Some(column)) = (last(rows, self.row_step), last(columns, self.column_step)) else {
            return true; // Nothing is read.
        };
        let end = row.zip(column).and_then(|(r, c)| r.checked_add(c)?.checked_add(self.offset));
        end.is_some_and(|end| end < self.frame_len) && u32::try_from(self.frame_len).is_ok()
    }
}

/// The grid cells that a table's rows stand for, line by line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// Cells per line.
    pub columns: usize,
    /// The number of lines.
    pub lines: usize,
    /// How many boxes a cell has.
    pub rows_per_cell: usize,
    /// Input pixels per cell.
    pub stride: f32,
    /// The position of a cell's reference point: 0 is its corner, 0.5 its centre.
    pub offset: f32,
}

impl Default for Grid {
    /// Returns no grid.
    fn default() -> Self {
        Self { columns: 1, lines: 1, rows_per_cell: 1, stride: 1.0, offset: 0.0 }
    }
}

/// A table of candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table {
    /// The number of the first row, as it appears in candidates.
    pub first_row: usize,
    /// The number of rows.
    pub rows: usize,
    /// `score_columns` scores per row.
    pub scores: Values,
    /// A number per row that multiplies its scores and must pass the threshold itself. It is a score if they are plain, otherwise
    /// a logit.
    pub objectness: Option<Values>,
    /// The class of a row, for end-to-end models.
    pub labels: Option<Values>,
    /// The number of valid rows, in row 0; `None` if all are valid.
    pub valid_rows: Option<Values>,
    /// The numbers that boxes are made of.
    pub boxes: Values,
    /// Two numbers per row that shift a box's position within its cell.
    pub offsets: Option<Values>,
    /// The numbers that points are made of.
    pub points: Option<Values>,
    /// The grid of the rows.
    pub grid: Grid,
    /// The width and height in pixels that [`BoxCode::AnchorExp`] and [`BoxCode::AnchorSquare`] scale.
    pub anchor: [f32; 2],
    /// How many cells wide the centres lie that these two can give.
    pub centre_scale: f32,
}

impl Table {
    /// Returns the positions of all its numbers, in the order of the kernel's argument.
    pub(super) fn values(&self) -> [Option<Values>; 7] {
        let (scores, boxes) = (Some(self.scores), Some(self.boxes));
        [scores, self.objectness, self.labels, self.valid_rows, boxes, self.offsets, self.points]
    }
}

/// How a raw number becomes a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScoreCode {
    /// It is already a score.
    Plain,
    /// 1 / (1 + exp(-x)). No number below `floor` passes the threshold, which rules out most rows.
    Sigmoid {
        /// The threshold for raw numbers.
        floor: f32,
    },
    /// exp(x) / sum of exp, over all of the row's columns.
    Softmax,
}

/// Which classes of a row become candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The first with the greatest raw number.
    BestRaw,
    /// The first with the greatest score. This differs from the above if unequal numbers have equal scores.
    BestScore,
    /// Each that passes the threshold.
    Every {
        /// Only local maxima of their 3x3 neighbourhood; the rows are a grid's cells.
        peaks: bool,
        /// The number that a class adds to a candidate's row number, so that they differ; 0 if they share the row.
        row_step: usize,
    },
}

/// The meaning of a model's own class numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelCode {
    /// The class, from 0.
    #[default]
    Plain,
    /// 0 is the background, 1 the first class.
    FromOne,
    /// This number and above are the background.
    Below(u32),
}

/// The order of a box's four numbers, numbered as in cuda/filter_argument.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corners {
    /// Left, top, right, bottom.
    Xyxy,
    /// Top, left, bottom, right.
    Yxyx,
    /// Centre x, centre y, width, height.
    Cxcywh,
    /// Left, top, width, height.
    Xywh,
}

/// How a box's numbers become corners in pixels of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BoxCode {
    /// Four numbers, scaled.
    Plain {
        /// Their order.
        corners: Corners,
        /// The factors for x and y: 1, or the input's size for fractions of it.
        scale: [f32; 2],
    },
    /// A distribution of `bins` logits per side: the distance from the reference point to the left, top, right and bottom is
    /// the expected bin, in strides.
    Distances {
        /// Logits per side.
        bins: usize,
    },
    /// The distances from the reference point to the left, top, right and bottom, in pixels.
    Sides,
    /// The same in strides.
    CellSides,
    /// The centre relative to the reference point, in strides; width and height as exp(x) strides.
    CellExp,
    /// The centre relative to the middle of the cell, in pixels; width and height in pixels, at least 0. The middle is `(x +
    /// 0.5) / columns` of the input's width.
    Anchor,
    /// Width and height in strides, around the reference point plus `offsets` (x, y; half a cell without).
    Peak,
    /// The centre at `(cell + sigmoid(x) * s - (s - 1) / 2)` cells of the input, `s` the table's `centre_scale`; width and height
    /// as exp(x) times its `anchor`.
    AnchorExp,
    /// The same with a size of `(2 * sigmoid(x))^2` times the anchor.
    AnchorSquare,
    /// Height and width as exp(x) strides, around the cell's centre plus `offsets` (y, x), moved into the input.
    Face,
}

impl BoxCode {
    /// Returns how many numbers of a row it reads.
    const fn columns(self) -> usize {
        match self {
            Self::Distances { bins } => 4 * bins,
            Self::Peak | Self::Face => 2,
            Self::Plain { .. }
            | Self::Sides
            | Self::CellSides
            | Self::CellExp
            | Self::Anchor
            | Self::AnchorExp
            | Self::AnchorSquare => 4,
        }
    }
}

/// How numbers become points in pixels of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PointCode {
    /// x, y and perhaps a score.
    Plain {
        /// The factors for x and y.
        scale: [f32; 2],
        /// Whether each point has a score.
        scored: bool,
    },
    /// x and y relative to the middle of the cell, as in [`BoxCode::Anchor`].
    Anchor,
    /// x and y relative to the reference point, in strides.
    Cell,
    /// y and x in sizes of the box, from its corner, for [`BoxCode::Face`].
    Face,
    /// A single number that is passed through: the angle of an oriented box.
    Angle,
}

/// The points of every candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Points {
    /// The number of points.
    pub count: usize,
    /// The meaning of their numbers.
    pub code: PointCode,
}

impl Points {
    /// Returns the numbers per candidate, which are the same in the model's output and in the filter's.
    pub const fn values(self) -> usize {
        let each = match self.code {
            PointCode::Plain { scored: true, .. } => 3,
            PointCode::Plain { scored: false, .. } | PointCode::Anchor | PointCode::Cell | PointCode::Face => 2,
            PointCode::Angle => 1,
        };
        self.count * each
    }
}

/// The computation of a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSpec {
    /// The width and height of the model's input in pixels.
    pub input_size: (u32, u32),
    /// The minimum score.
    pub score_threshold: f32,
    /// The tables, in the order of their row numbers.
    pub tables: Vec<Table>,
    /// The scores per row, including the background's.
    pub score_columns: usize,
    /// Which of them are classes; the first of these is class 0.
    pub classes: std::ops::Range<usize>,
    /// How raw numbers become scores.
    pub scores: ScoreCode,
    /// Which classes of a row become candidates.
    pub choice: Choice,
    /// The meaning of `labels`.
    pub labels: LabelCode,
    /// How boxes are decoded.
    pub boxes: BoxCode,
    /// The points of each candidate.
    pub points: Option<Points>,
    /// Keep only this many of the best candidates; `None` keeps all.
    pub keep_best: Option<usize>,
}

/// No filter can be made of a spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterSpecError(String);

impl FilterSpec {
    /// Returns the rows of all tables.
    pub fn rows(&self) -> usize {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Returns how many candidates fit: as many as there can be, but at most [`CAPACITY`].
    pub fn capacity(&self) -> usize {
        let each = if matches!(self.choice, Choice::Every { .. }) { self.classes.len() } else { 1 };
        self.rows().saturating_mul(each).clamp(1, CAPACITY)
    }

    /// Returns the number of outputs needed: one more than the highest index.
    pub fn outputs(&self) -> usize {
        let used = self.tables.iter().flat_map(Table::values).flatten().map(|values| values.output + 1);
        used.max().unwrap_or(0)
    }

    /// Checks that every number it reads lies inside its output, and that its parts fit together.
    pub fn check(&self) -> Result<(), FilterSpecError> {
        let tables = self.tables.len();
        if tables > MAX_TABLES {
            return Err(FilterSpecError(format!(
                "{tables} tables of candidates are more than the GPU's filter takes ({MAX_TABLES}): read the outputs on the CPU"
            )));
        }
        let cannot_have = |what: &str| Err(FilterSpecError(format!("a candidate filter cannot have {what}")));
        if self.classes.start > self.classes.end || self.classes.end > self.score_columns {
            return cannot_have("classes outside its scores");
        }
        if matches!(self.boxes, BoxCode::Distances { bins } if bins == 0 || bins > MAX_BINS) {
            return cannot_have("distributions of no bins, or more than 256");
        }
        let peaks = matches!(self.choice, Choice::Every { peaks: true, .. });
        let points = self.points.map_or(0, Points::values);
        for (index, table) in self.tables.iter().enumerate() {
            let Table { rows, grid, .. } = *table;
            if points > 0 && table.points.is_none() {
                return cannot_have("points that no table has");
            }
            if self.boxes == BoxCode::Face && table.offsets.is_none() {
                return cannot_have("faces without offsets");
            }
            if grid.columns == 0 || grid.rows_per_cell == 0 {
                return cannot_have("a grid without cells");
            }
            if peaks && grid.columns.checked_mul(grid.lines) != Some(rows) {
                return cannot_have("peaks of rows that do not fill a grid");
            }
            let read = [
                ("scores", rows, self.score_columns),
                ("objectness", rows, 1),
                ("labels", rows, 1),
                ("the count of rows", 1, 1),
                ("boxes", rows, self.boxes.columns()),
                ("offsets", rows, 2),
                ("points", rows, points),
            ];
            for (values, (what, rows, columns)) in table.values().into_iter().zip(read) {
                if let Some(values) = values
                    && !values.holds(rows, columns)
                {
                    let Values { output, frame_len, .. } = values;
                    return Err(FilterSpecError(format!(
                        "table {index} reads {what} beyond the {frame_len} numbers of output {output}"
                    )));
                }
            }
            let classes = self.classes.len();
            let last = match self.choice {
                Choice::Every { row_step, .. } => classes.saturating_sub(1).saturating_mul(row_step),
                _ => 0,
            };
            let last = last.saturating_add(table.first_row).saturating_add(rows);
            if u32::try_from(last).is_err() || u32::try_from(classes.saturating_mul(rows)).is_err() {
                return cannot_have("more rows than are counted in 32 bits");
            }
        }
        Ok(())
    }
}
