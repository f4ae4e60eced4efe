//! The kernel's argument, its grid, and the memory that it writes.

use super::spec::{
    BoxCode, Choice, FilterSpec, FilterSpecError, LabelCode, MAX_TABLES, PointCode, Points, ScoreCode, Values,
};
use super::values_argument::{ValuesArgument, narrow};
use super::{Filtered, Record};
use crate::tensor::DType;

/// Threads per block, as `THREADS` in cuda/filter.cu.
pub const THREADS: u32 = 256;

/// The bytes before a frame's records; the first four are the count.
const HEADER_BYTES: usize = 16;

/// The bytes of the kernel's counters for one frame, all 0 between launches.
const STATE_BYTES: usize = 8;

/// `Table` of cuda/filter_argument.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct TableArgument {
    first_row: u32,
    rows: u32,
    scores: ValuesArgument,
    columns: u32,
    lines: u32,
    rows_per_cell: u32,
    stride: f32,
    offset: f32,
    has: u32,
    objectness: ValuesArgument,
    labels: ValuesArgument,
    valid_rows: ValuesArgument,
    boxes: ValuesArgument,
    offsets: ValuesArgument,
    points: ValuesArgument,
    anchor: [f32; 2],
    centre_scale: f32,
    unused: [u32; 13],
}

/// The bits of `has`.
const OBJECTNESS: u32 = 1;
const VALID_ROWS: u32 = 2;

/// `Filter` of cuda/filter_argument.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Argument {
    first_block: [u32; MAX_TABLES],
    table_count: u32,
    lanes: u32,
    turned: u32,
    first_class: u32,
    end_class: u32,
    score_code: u32,
    choice: u32,
    threshold: f32,
    floor: f32,
    score_columns: u32,
    state: u64,
    results: u64,
    frame_bytes: u64,
    capacity: u32,
    peaks: u32,
    class_row_step: u32,
    label_code: u32,
    label_limit: u32,
    box_code: u32,
    corners: u32,
    bins: u32,
    point_count: u32,
    point_code: u32,
    point_values: u32,
    scale: [f32; 2],
    point_scale: [f32; 2],
    input_size: [f32; 2],
    unused: [u32; 3],
    tables: [TableArgument; MAX_TABLES],
}

// The kernel asserts the same.
const _: () = assert!(size_of::<TableArgument>() == 320 && size_of::<Argument>() == 192 + MAX_TABLES * 320);
const _: () = assert!(size_of::<Record>() == 32);

/// The argument and the memory of one launch.
#[derive(Debug, Clone)]
pub struct Launch {
    argument: Box<Argument>,
    blocks: u32,
    spec: Box<FilterSpec>,
}

impl Launch {
    /// Checks the spec and fills in everything except the addresses.
    pub fn new(spec: &FilterSpec) -> Result<Self, FilterSpecError> {
        spec.check()?;
        let mut argument = Box::<Argument>::default();
        let a = &mut *argument;
        // `check` ensures that the numbers of rows and elements fit; the rest are sizes of pictures.
        (a.turned, a.lanes) = reading_order(spec);
        a.table_count = narrow(spec.tables.len());
        a.capacity = narrow(spec.capacity());
        a.score_columns = narrow(spec.score_columns);
        (a.first_class, a.end_class) = (narrow(spec.classes.start), narrow(spec.classes.end));
        (a.score_code, a.floor) = match spec.scores {
            ScoreCode::Plain => (0, 0.0),
            ScoreCode::Sigmoid { floor } => (1, floor),
            ScoreCode::Softmax => (2, f32::NEG_INFINITY),
        };
        (a.choice, a.peaks, a.class_row_step) = match spec.choice {
            Choice::BestRaw if spec.scores == ScoreCode::Softmax => (1, 0, 0),
            Choice::BestRaw => (0, 0, 0),
            Choice::BestScore => (1, 0, 0),
            Choice::Every { peaks, row_step } => (2, peaks.into(), narrow(row_step)),
        };
        (a.label_code, a.label_limit) = match spec.labels {
            LabelCode::Plain => (0, 0),
            LabelCode::FromOne => (1, 0),
            LabelCode::Below(limit) => (2, limit),
        };
        a.scale = [1.0, 1.0];
        match spec.boxes {
            BoxCode::Plain { corners, scale } => (a.box_code, a.corners, a.scale) = (0, corners as u32, scale),
            BoxCode::Distances { bins } => (a.box_code, a.bins) = (1, narrow(bins)),
            BoxCode::CellExp => a.box_code = 2,
            BoxCode::Anchor => a.box_code = 3,
            BoxCode::Peak => a.box_code = 4,
            BoxCode::Face => a.box_code = 5,
            BoxCode::Sides => a.box_code = 6,
            BoxCode::CellSides => a.box_code = 7,
            BoxCode::AnchorExp => a.box_code = 8,
            BoxCode::AnchorSquare => a.box_code = 9,
        }
        // The kernel divides by it.
        a.point_values = 2;
        if let Some(points) = spec.points.filter(|points| points.count > 0) {
            a.point_count = narrow(points.count);
            a.point_values = narrow(points.values() / points.count);
            (a.point_code, a.point_scale) = match points.code {
                PointCode::Plain { scale, .. } => (0, scale),
                PointCode::Anchor => (1, [1.0; 2]),
                PointCode::Face => (2, [1.0; 2]),
                PointCode::Cell => (3, [1.0; 2]),
                // The x of a plain point that needs nothing else.
                PointCode::Angle => (0, [1.0; 2]),
            };
        }
        a.threshold = spec.score_threshold;
        a.input_size = [spec.input_size.0 as f32, spec.input_size.1 as f32];
        let rows_per_block = THREADS / a.lanes;
        let mut blocks = 0;
        for ((table, first_block), from) in a.tables.iter_mut().zip(&mut a.first_block).zip(&spec.tables) {
            let grid = from.grid;
            *first_block = blocks;
            let has = |values: Option<Values>, bit: u32| if values.is_some() { bit } else { 0 };
            *table = TableArgument {
                has: has(from.objectness, OBJECTNESS) | has(from.valid_rows, VALID_ROWS),
                first_row: narrow(from.first_row),
                rows: narrow(from.rows),
                columns: narrow(grid.columns),
                lines: narrow(grid.lines),
                rows_per_cell: narrow(grid.rows_per_cell),
                stride: grid.stride,
                offset: grid.offset,
                anchor: from.anchor,
                centre_scale: from.centre_scale,
                ..TableArgument::default()
            };
            for (values, source) in each_values(table).into_iter().zip(from.values()) {
                *values = source.as_ref().map_or_else(ValuesArgument::default, ValuesArgument::new);
            }
            blocks += table.rows.div_ceil(rows_per_block);
        }
        let mut launch = Self {
            argument,
            // The count is written even if there is no row.
            blocks: blocks.max(1),
            spec: Box::new(spec.clone()),
        };
        launch.argument.frame_bytes = launch.results_bytes(1) as u64;
        Ok(launch)
    }

    /// Returns the blocks for one frame; frames are the grid's second dimension.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns how many output addresses [`Launch::set_outputs`] needs.
    pub fn outputs(&self) -> usize {
        self.spec.outputs()
    }

    /// Returns how many candidates of a frame fit.
    pub fn capacity(&self) -> usize {
        self.argument.capacity as usize
    }

    /// Returns the bytes of the results of `frames` frames.
    pub fn results_bytes(&self, frames: usize) -> usize {
        let record = size_of::<Record>() + self.values_per_record() * size_of::<f32>();
        // Each frame begins at a multiple of 64, so that none share a cache line.
        (HEADER_BYTES + self.capacity() * record).next_multiple_of(64) * frames
    }

    /// Returns the bytes of the kernel's counters for `frames` frames. They must be 0 before the first launch, and are 0 after
    /// each.
    pub fn state_bytes(frames: usize) -> usize {
        STATE_BYTES * frames
    }

    /// Sets the addresses of results and counters, both aligned to 16 bytes.
    pub fn set_memory(&mut self, results: u64, state: u64) {
        self.argument.results = results;
        self.argument.state = state;
    }

    /// Sets the address and element type of each output; there must be [`Launch::outputs`] of them.
    pub fn set_outputs(&mut self, outputs: impl Iterator<Item = (u64, DType)> + Clone) {
        for (table, from) in self.argument.tables.iter_mut().zip(&self.spec.tables) {
            for (values, source) in each_values(table).into_iter().zip(from.values()) {
                values.set_output(source.and_then(|source| outputs.clone().nth(source.output)));
            }
        }
    }

    /// Returns the address of the kernel's one argument.
    pub fn argument(&mut self) -> *mut std::ffi::c_void {
        (&raw mut *self.argument).cast()
    }

    /// Returns the candidates of a launch in the frame `slot`, from the bytes of all results.
    ///
    /// `None` if there are fewer bytes than [`Launch::results_bytes`], or they are not aligned to 16 bytes.
    pub fn found<'a>(&self, results: &'a [u8], slot: usize) -> Option<Filtered<'a>> {
        let each = self.results_bytes(1);
        let frame = results.get(slot * each..(slot + 1) * each)?;
        let (header, rest) = frame.split_at(HEADER_BYTES);
        let found = u32::from_ne_bytes(*header.first_chunk()?) as usize;
        let kept = found.min(self.capacity());
        let (records, points) = rest.split_at(self.capacity() * size_of::<Record>());
        // SAFETY: every bit pattern is a valid `Record`; `align_to` hands out only the aligned middle.
        let (unaligned, records, _) = unsafe { records.align_to::<Record>() };
        // SAFETY: every bit pattern is a valid `f32`; as above.
        let (unaligned_points, points, _) = unsafe { points.align_to::<f32>() };
        if !unaligned.is_empty() || !unaligned_points.is_empty() {
            return None;
        }
        Some(Filtered {
            records: records.get(..kept)?,
            points: points.get(..kept * self.values_per_record())?,
            values_per_record: self.values_per_record(),
            points_scored: self.values_per_record() > 0
                && matches!(self.spec.points, Some(Points { code: PointCode::Plain { scored: true, .. }, .. })),
            are_angles: matches!(self.spec.points, Some(Points { code: PointCode::Angle, .. })),
            lost: found - kept,
            keep_best: self.spec.keep_best,
            score_threshold: self.spec.score_threshold,
        })
    }

    fn values_per_record(&self) -> usize {
        self.spec.points.map_or(0, Points::values)
    }
}

/// Returns the table's values in a fixed order.
fn each_values(table: &mut TableArgument) -> [&mut ValuesArgument; 7] {
    [
        &mut table.scores,
        &mut table.objectness,
        &mut table.labels,
        &mut table.valid_rows,
        &mut table.boxes,
        &mut table.offsets,
        &mut table.points,
    ]
}

/// Returns whether the numbers of a column are adjacent, and how many threads read a row.
///
/// Neighbouring threads read neighbouring numbers either way. More threads per row finish sooner, until there are so many
/// blocks that they wait for each other, and so few numbers per thread that finding the best of them takes longer.
fn reading_order(spec: &FilterSpec) -> (u32, u32) {
    let classes = spec.classes.len() as u32;
    let turned = spec.tables.first().is_some_and(|table| table.scores.column_step > table.scores.row_step);
    // The neighbours in a transposed row must still fill a warp, or loads are split.
    let (each, most) = if turned { (10, 8) } else { (5, 32) };
    (turned.into(), classes.div_ceil(each).next_power_of_two().clamp(1, most))
}
