//! What the filter is told of a network's outputs: where the numbers are, and how they become boxes.
//!
//! A spec describes numbers, not networks: [`Table`]s of rows, each with scores and a box, perhaps on a grid. Everything
//! but the tables' places is common to all of them.

/// Tables of one spec at most: the description travels as one launch's argument.
pub const MAX_TABLES: usize = 8;

/// Bins of a distance's distribution at most.
const MAX_BINS: usize = 256;

/// Candidates of one frame that there is room for, unless the outputs cannot give so many.
///
/// A hundred objects of a network with several boxes an object give about a thousand.
pub const CAPACITY: usize = 4096;

/// Rows and columns of numbers inside one output. All distances are in elements, within one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    /// Which of the network's outputs.
    pub output: usize,
    /// Where the first row's first number is.
    pub offset: usize,
    /// From one row to the next.
    pub row_step: usize,
    /// From one column to the next.
    pub column_step: usize,
    /// Elements that one frame has in this output.
    pub frame_len: usize,
}

impl Values {
    /// A table whose rows lie one after another, `width` numbers each, all of the output's.
    pub const fn rows(output: usize, rows: usize, width: usize) -> Self {
        Self { output, offset: 0, row_step: width, column_step: 1, frame_len: rows * width }
    }

    /// A table turned: a plane of `rows` numbers for each of `planes` columns.
    pub const fn planes(output: usize, planes: usize, rows: usize) -> Self {
        Self { output, offset: 0, row_step: 1, column_step: rows, frame_len: rows * planes }
    }

    /// The same without the first `columns` columns.
    #[must_use]
    pub const fn from_column(self, columns: usize) -> Self {
        Self { offset: self.offset + columns * self.column_step, ..self }
    }

    /// The same without the first `rows` rows.
    #[must_use]
    pub const fn from_row(self, rows: usize) -> Self {
        Self { offset: self.offset + rows * self.row_step, ..self }
    }

    /// Whether `rows` rows of `columns` numbers lie inside the frame, and are near enough to be counted in 32 bits.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let last = |count: usize, step: usize| count.checked_sub(1).map(|last| last.checked_mul(step));
        let (Some(row), Some(column)) = (last(rows, self.row_step), last(columns, self.column_step)) else {
            return true; // Nothing is read.
        };
        let end = row.zip(column).and_then(|(r, c)| r.checked_add(c)?.checked_add(self.offset));
        end.is_some_and(|end| end < self.frame_len) && u32::try_from(self.frame_len).is_ok()
    }
}

/// Cells that a table's rows stand for, line by line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    /// Cells of a line.
    pub columns: usize,
    /// Lines.
    pub lines: usize,
    /// Rows of a cell.
    pub rows_per_cell: usize,
    /// Input pixels of a cell.
    pub stride: f32,
    /// Where in a cell its place is: 0 its corner, 0.5 its centre.
    pub offset: f32,
}

impl Default for Grid {
    /// No grid.
    fn default() -> Self {
        Self { columns: 1, lines: 1, rows_per_cell: 1, stride: 1.0, offset: 0.0 }
    }
}

/// Rows of candidates that lie together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table {
    /// Number of the first row in what candidates are told.
    pub first_row: usize,
    /// Rows.
    pub rows: usize,
    /// `score_columns` scores a row.
    pub scores: Values,
    /// A number a row that multiplies its scores, and that must pass by itself.
    pub objectness: Option<Values>,
    /// The class of a row, where the network has chosen it.
    pub labels: Option<Values>,
    /// How many rows count, in row 0; all where there is none.
    pub valid_rows: Option<Values>,
    /// The numbers that boxes are made of.
    pub boxes: Values,
    /// Two numbers a row that a box's place is shifted by, inside its cell.
    pub offsets: Option<Values>,
    /// The numbers that points are made of.
    pub points: Option<Values>,
    /// What the rows stand for.
    pub grid: Grid,
}

/// How a raw number becomes a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScoreCode {
    /// It is one.
    Plain,
    /// 1 / (1 + exp(-x)). No number below `floor` passes the threshold: most rows end there.
    Sigmoid {
        /// What raw numbers are compared with first.
        floor: f32,
    },
    /// exp(x) / sum of exp, over all of the row's columns.
    Softmax,
}

/// Which of a row's classes become candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The first with the greatest raw number.
    BestRaw,
    /// The first with the greatest score. Differs from the above where unequal numbers have equal scores.
    BestScore,
    /// Each that passes.
    Every {
        /// Only cells that no neighbour of their 3x3 exceeds; the rows are a grid's cells.
        peaks: bool,
        /// What a class adds to a candidate's row, so that each is told apart; 0 where they share the row.
        row_step: usize,
    },
}

/// What a network's own class numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelCode {
    /// Classes from 0.
    #[default]
    Plain,
    /// 0 is none, 1 the first class.
    FromOne,
    /// From here on it is none.
    Below(u32),
}

/// The order of a box's four numbers.
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
    /// Four numbers, then multiplied.
    Plain {
        /// Their order.
        corners: Corners,
        /// Multiplies x and y last: 1, or the input's size for parts of it.
        scale: [f32; 2],
    },
    /// A distribution of `bins` logits a side: the distance from the cell's place to the left, top, right and bottom is the
    /// expected bin, in strides.
    Distances {
        /// Logits of a side.
        bins: usize,
    },
    /// Centre from the cell's place, in strides; width and height as exp(x) strides.
    CellExp,
    /// Centre from the middle of the cell, in pixels; width and height in pixels, not below 0. The middle is
    /// `(x + 0.5) / columns` of the input's width.
    Anchor,
    /// Width and height in strides, round the cell's place and `offsets` (x, y; half a cell without).
    Peak,
    /// Height and width as exp(x) strides, round the cell's centre and `offsets` (y, x), moved into the input.
    Face,
}

impl BoxCode {
    /// Numbers that it reads of a row.
    const fn columns(self) -> usize {
        match self {
            Self::Distances { bins } => 4 * bins,
            Self::Peak | Self::Face => 2,
            Self::Plain { .. } | Self::CellExp | Self::Anchor => 4,
        }
    }
}

/// How numbers become points in pixels of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PointCode {
    /// x, y and perhaps a score.
    Plain {
        /// Multiplies x and y.
        scale: [f32; 2],
        /// Whether each has a score.
        scored: bool,
    },
    /// x and y from the middle of the cell, as [`BoxCode::Anchor`].
    Anchor,
    /// y and x in sizes of the box, from its corner: of [`BoxCode::Face`].
    Face,
}

/// Points of every candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Points {
    /// How many.
    pub count: usize,
    /// What their numbers mean.
    pub code: PointCode,
}

impl Points {
    /// Numbers of one candidate, as the network gives them and as the filter does.
    pub const fn values(self) -> usize {
        let scored = matches!(self.code, PointCode::Plain { scored: true, .. });
        self.count * if scored { 3 } else { 2 }
    }
}

/// What a filter does.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSpec {
    /// Width and height of the network's input in pixels.
    pub input_size: (u32, u32),
    /// What scores less is left out.
    pub score_threshold: f32,
    /// Where the rows are; in the order of their numbers.
    pub tables: Vec<Table>,
    /// Scores of a row, those of no class included.
    pub score_columns: usize,
    /// Which of them are classes; the first of these is class 0.
    pub classes: std::ops::Range<usize>,
    /// How they come about.
    pub scores: ScoreCode,
    /// Which of them count.
    pub choice: Choice,
    /// What `labels` mean.
    pub labels: LabelCode,
    /// How boxes come about.
    pub boxes: BoxCode,
    /// Points of each candidate.
    pub points: Option<Points>,
    /// Of more candidates than this only the best are kept; `None` for all.
    pub keep_best: Option<usize>,
}

/// A spec that no filter can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterSpecError {
    /// More tables than a launch takes.
    #[error(
        "{found} tables of candidates are more than the GPU's filter takes ({MAX_TABLES}): read the outputs on the CPU"
    )]
    TooManyTables {
        /// How many.
        found: usize,
    },
    /// A table that reaches beyond its output.
    #[error("table {table} reads {what} beyond the {frame_len} numbers of output {output}")]
    Outside {
        /// Which table.
        table: usize,
        /// Which of its numbers.
        what: &'static str,
        /// Which output.
        output: usize,
        /// Numbers of a frame there.
        frame_len: usize,
    },
    /// Parts that do not go together.
    #[error("a candidate filter cannot have {0}")]
    Contradiction(&'static str),
}

impl FilterSpec {
    /// Rows of all tables.
    pub fn rows(&self) -> usize {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// Candidates that there is room for: as many as there can be, [`CAPACITY`] at most.
    pub fn capacity(&self) -> usize {
        let each = if matches!(self.choice, Choice::Every { .. }) { self.classes.len() } else { 1 };
        self.rows().saturating_mul(each).clamp(1, CAPACITY)
    }

    /// Outputs that it reads: one more than the highest.
    pub fn outputs(&self) -> usize {
        let used = self.tables.iter().flat_map(|t| {
            let others = [t.objectness, t.labels, t.valid_rows, t.offsets, t.points];
            others.into_iter().flatten().chain([t.scores, t.boxes]).map(|values| values.output + 1)
        });
        used.max().unwrap_or(0)
    }

    /// Whether every number that it reads lies inside its output, and its parts go together.
    pub fn check(&self) -> Result<(), FilterSpecError> {
        use FilterSpecError::Contradiction;
        if self.tables.len() > MAX_TABLES {
            return Err(FilterSpecError::TooManyTables { found: self.tables.len() });
        }
        if self.classes.start > self.classes.end || self.classes.end > self.score_columns {
            return Err(Contradiction("classes outside its scores"));
        }
        let peaks = matches!(self.choice, Choice::Every { peaks: true, .. });
        for (index, table) in self.tables.iter().enumerate() {
            let Table { rows, grid, .. } = *table;
            let points = self.points.map_or(0, Points::values);
            if points > 0 && table.points.is_none() {
                return Err(Contradiction("points that no table has"));
            }
            if self.boxes == BoxCode::Face && table.offsets.is_none() {
                return Err(Contradiction("faces without offsets"));
            }
            if matches!(self.boxes, BoxCode::Distances { bins } if bins == 0 || bins > MAX_BINS) {
                return Err(Contradiction("distributions of no bins, or more than 256"));
            }
            if grid.columns == 0 || grid.rows_per_cell == 0 {
                return Err(Contradiction("a grid without cells"));
            }
            if peaks && grid.columns.checked_mul(grid.lines) != Some(rows) {
                return Err(Contradiction("peaks of something that is no grid"));
            }
            let parts = [
                ("scores", Some(table.scores), rows, self.score_columns),
                ("boxes", Some(table.boxes), rows, self.boxes.columns()),
                ("objectness", table.objectness, rows, 1),
                ("labels", table.labels, rows, 1),
                ("the count of rows", table.valid_rows, 1, 1),
                ("offsets", table.offsets, rows, 2),
                ("points", table.points, rows, points),
            ];
            for (what, values, rows, columns) in parts {
                if let Some(values) = values
                    && !values.holds(rows, columns)
                {
                    let Values { output, frame_len, .. } = values;
                    return Err(FilterSpecError::Outside { table: index, what, output, frame_len });
                }
            }
            let classes = self.classes.len();
            let last = match self.choice {
                Choice::Every { row_step, .. } => classes.saturating_sub(1).saturating_mul(row_step),
                _ => 0,
            };
            let last = last.saturating_add(table.first_row).saturating_add(rows);
            if u32::try_from(last).is_err() || u32::try_from(classes.saturating_mul(rows)).is_err() {
                return Err(Contradiction("more rows than are counted in 32 bits"));
            }
        }
        Ok(())
    }
}
