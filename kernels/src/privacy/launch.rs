//! The argument of the kernels in cuda/privacy.cu, and the runs and tiles of their blocks.

use std::ops::Range;

use super::plan::MaskPlan;
use crate::frame::PixelFormat;

/// Threads per block, as `THREADS` in cuda/privacy.cu.
pub const THREADS: u32 = 128;

/// `Blanking` of cuda/privacy.cu.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Argument {
    /// The address of the frame.
    pub frame: u64,
    tiles: u64,
    runs: u64,
    words: u64,
}

/// `Tile` of cuda/privacy.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Tile {
    start: u64,
    pitch: u32,
    rows: u32,
    row_bytes: u32,
    samples: u32,
    sample_bytes: u32,
    word: u32,
}

/// `Run` of cuda/privacy.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Run {
    start: u64,
    bytes: u32,
    word: u32,
}

// The kernel asserts the same.
const _: () = assert!(size_of::<Argument>() == 32 && size_of::<Tile>() == 32 && size_of::<Run>() == 16);

/// The writes of a plan as the kernels read them: one table of tiles, runs and colours.
#[derive(Debug)]
pub struct BlankLaunch {
    tiles: Vec<Tile>,
    /// Those of mosaics, then those of colours.
    runs: Vec<Run>,
    mosaic_runs: u32,
    words: Vec<u32>,
}

impl BlankLaunch {
    /// Lays out the writes of `plan`; `None` for a format that no surface has.
    pub fn new(plan: &MaskPlan) -> Option<Self> {
        if !matches!(plan.layout.format(), PixelFormat::Nv12 | PixelFormat::P010) {
            return None;
        }
        let narrow = |number: usize| u32::try_from(number).ok();
        let mut this = Self { tiles: Vec::new(), runs: Vec::new(), mosaic_runs: 0, words: Vec::new() };
        for band in &plan.bands {
            for block in band.edges.windows(2) {
                let (Some(first), word) = (band.rows.first(), narrow(this.words.len())?) else { continue };
                let within = |bytes: &Range<usize>| bytes.start.max(block[0])..bytes.end.min(block[1]);
                let masked = band.masked.iter().map(|(start, bytes)| (start, within(bytes)));
                let runs_before = this.runs.len();
                for (start, bytes) in masked.filter(|(_, bytes)| !bytes.is_empty()) {
                    this.runs.push(Run { start: (start + bytes.start) as u64, bytes: narrow(bytes.len())?, word });
                }
                if this.runs.len() == runs_before {
                    continue;
                }
                this.tiles.push(Tile {
                    start: (first + block[0]) as u64,
                    pitch: narrow(band.rows.get(1).map_or(0, |second| second - first))?,
                    rows: narrow(band.rows.len())?,
                    row_bytes: narrow(block[1] - block[0])?,
                    samples: narrow(band.cell.samples)?,
                    sample_bytes: narrow(band.cell.sample_bytes)?,
                    word,
                });
                this.words.push(0);
            }
        }
        this.mosaic_runs = narrow(this.runs.len())?;
        let first_color = narrow(this.words.len())?;
        // The cells of these formats have 1, 2 or 4 bytes.
        let word = |row: &Vec<u8>| {
            let mut bytes = row.iter().copied().cycle();
            u32::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or_default()))
        };
        this.words.extend(plan.colors.iter().map(word));
        for run in &plan.runs {
            let word = first_color + narrow(run.color)?;
            this.runs.push(Run { start: run.start as u64, bytes: narrow(run.bytes.len())?, word });
        }
        Some(this)
    }

    /// Returns the blocks of `means`, and those of `blank` for mosaics and for colours.
    pub fn blocks(&self) -> [u32; 3] {
        [self.tiles.len() as u32, self.mosaic_runs, self.runs.len() as u32 - self.mosaic_runs]
    }

    /// Returns the size of the table.
    pub fn table_bytes(&self) -> usize {
        size_of_val(&self.tiles[..]) + size_of_val(&self.runs[..]) + size_of_val(&self.words[..])
    }

    /// Writes the table into `bytes`, which has its size.
    pub fn write_table(&self, bytes: &mut [u8]) {
        let tiles = self.tiles.iter().flat_map(|tile| {
            let narrow = [tile.pitch, tile.rows, tile.row_bytes, tile.samples, tile.sample_bytes, tile.word];
            tile.start.to_ne_bytes().into_iter().chain(narrow.into_iter().flat_map(u32::to_ne_bytes))
        });
        let runs = self.runs.iter().flat_map(|run| {
            run.start.to_ne_bytes().into_iter().chain([run.bytes, run.word].into_iter().flat_map(u32::to_ne_bytes))
        });
        let words = self.words.iter().flat_map(|word| word.to_ne_bytes());
        bytes.iter_mut().zip(tiles.chain(runs).chain(words)).for_each(|(to, from)| *to = from);
    }

    /// Returns the arguments for the table at `table`, which is aligned to 16 bytes: for the first two launches, and for the runs of
    /// colours.
    pub fn arguments(&self, table: u64, frame: u64) -> [Argument; 2] {
        let runs = table + size_of_val(&self.tiles[..]) as u64;
        let words = runs + size_of_val(&self.runs[..]) as u64;
        let colors = runs + u64::from(self.mosaic_runs) * size_of::<Run>() as u64;
        [runs, colors].map(|runs| Argument { frame, tiles: table, runs, words })
    }
}
