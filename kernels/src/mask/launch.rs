//! The kernel's argument, and the pieces of masks that its blocks make.

use super::spec::MAX_WORDS;
use super::{Mask, MaskFrame, MaskJob, MaskParts, MaskSpec, MaskSpecError};
use crate::filter::{ValuesArgument, narrow};
use crate::tensor::DType;

/// Threads per block, as `THREADS` in cuda/mask.cu.
pub const THREADS: u32 = 256;

/// The words of a mask that a block makes, as `WORDS` in cuda/mask.cu.
const WORDS: u32 = 256;

/// The words that a launch with masks as large as the frame should make: 8 MiB.
const WORDS_AT_ONCE: usize = 2 << 20;

/// `MaskAxis` of cuda/mask_argument.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct AxisArgument {
    cells: u32,
    first: u32,
    count: u32,
    step: f32,
    origin: f32,
}

/// `Masks` of cuda/mask_argument.cuh.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Argument {
    planes: ValuesArgument,
    coefficients: ValuesArgument,
    channels: u32,
    own_plane: u32,
    threshold: f32,
    width: u32,
    factor: u32,
    slot: u32,
    axes: [AxisArgument; 2],
    pieces: u64,
    bits: u64,
}

/// Consecutive words of a mask, as `Piece` of cuda/mask_argument.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(16))]
pub struct Piece {
    row: u32,
    left: u32,
    top: u32,
    width: u32,
    first: u32,
    count: u32,
    out: u32,
    unused: u32,
}

// The kernel asserts the same.
const _: () = assert!(size_of::<Argument>() == 144 && size_of::<AxisArgument>() == 20 && size_of::<Piece>() == 32);

/// Where the words of a job's mask are: the first word, and the rectangle.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    start: usize,
    pixels: [u32; 4],
}

/// The argument and the pieces of one launch.
#[derive(Debug, Clone)]
pub struct MaskLaunch {
    spec: MaskSpec,
    argument: Box<Argument>,
    pieces: Vec<Piece>,
    places: Vec<Place>,
    words: usize,
}

impl MaskLaunch {
    /// Checks the spec and fills in the values that are the same for every frame.
    pub fn new(spec: &MaskSpec) -> Result<Self, MaskSpecError> {
        spec.check()?;
        let mut argument =
            Argument { planes: ValuesArgument::new(&spec.planes), width: narrow(spec.width), ..Argument::default() };
        match spec.parts {
            MaskParts::Prototypes { channels, coefficients } => {
                argument.coefficients = ValuesArgument::new(&coefficients);
                argument.channels = narrow(channels);
            }
            MaskParts::OwnPlane { threshold, .. } => {
                (argument.channels, argument.own_plane, argument.threshold) = (1, 1, threshold);
            }
        }
        let (pieces, places) = (Vec::new(), Vec::new());
        Ok(Self { spec: *spec, argument: Box::new(argument), pieces, places, words: 0 })
    }

    /// Returns how many outputs the model must have: one more than the highest index.
    pub fn outputs(&self) -> usize {
        let coefficients = self.coefficients().map_or(0, |values| values.output);
        self.spec.planes.output.max(coefficients) + 1
    }

    /// Returns how many masks of a frame one launch should make: those of planes of their own are as large as the frame.
    pub fn most_at_once(&self, frame: &MaskFrame) -> usize {
        let [_, _, right, bottom] = match self.spec.parts {
            MaskParts::Prototypes { .. } => return usize::MAX,
            MaskParts::OwnPlane { .. } => frame.pixels([0.0, 0.0, f32::INFINITY, f32::INFINITY]),
        };
        (WORDS_AT_ONCE / (right.div_ceil(32) as usize * bottom as usize).max(1)).max(1)
    }

    fn coefficients(&self) -> Option<crate::filter::Values> {
        match self.spec.parts {
            MaskParts::Prototypes { coefficients, .. } => Some(coefficients),
            MaskParts::OwnPlane { .. } => None,
        }
    }

    /// Lays out the masks of the frame `slot` of the outputs; returns how many do not fit into [`MAX_WORDS`] and stay empty.
    pub fn set_jobs(&mut self, frame: &MaskFrame, slot: usize, jobs: &[MaskJob]) -> usize {
        let a = &mut *self.argument;
        a.factor = frame.factor;
        a.slot = narrow(slot);
        for (argument, axis) in a.axes.iter_mut().zip(&frame.axes) {
            let super::MaskAxis { cells, first, count, step, origin, .. } = *axis;
            *argument = AxisArgument { cells, first, count, step, origin };
        }
        let usable = [self.spec.width, self.spec.height] == frame.axes.map(|axis| axis.cells as usize)
            && frame.axes.iter().all(|axis| axis.count > 0);
        self.pieces.clear();
        self.places.clear();
        self.words = 0;
        let mut lost = 0;
        for job in jobs {
            let mut place = Place { start: self.words, pixels: [0; 4] };
            let pixels = self.spec.pixels(frame, job);
            let (width, height) = (pixels[2] - pixels[0], pixels[3] - pixels[1]);
            let words = width.div_ceil(32) as usize * height as usize;
            if words > 0 && usable && self.spec.has_row(job.row) {
                if self.words + words > MAX_WORDS {
                    lost += 1;
                } else {
                    place.pixels = pixels;
                    let (row, [left, top, ..]) = (job.row, pixels);
                    let mut first = 0;
                    while first < narrow(words) {
                        let count = WORDS.min(narrow(words) - first);
                        let out = narrow(self.words) + first;
                        self.pieces.push(Piece { row, left, top, width, first, count, out, unused: 0 });
                        first += count;
                    }
                    self.words += words;
                }
            }
            self.places.push(place);
        }
        lost
    }

    /// Returns a piece for each block.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns how many words the launch writes.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Sets the addresses of the pieces (aligned to 16 bytes) and of the words.
    pub fn set_memory(&mut self, pieces: u64, bits: u64) {
        self.argument.pieces = pieces;
        self.argument.bits = bits;
    }

    /// Sets the address and element type of each output; there must be [`Self::outputs`] of them.
    pub fn set_outputs(&mut self, outputs: impl Iterator<Item = (u64, DType)> + Clone) {
        let a = &mut *self.argument;
        a.planes.set_output(outputs.clone().nth(self.spec.planes.output));
        if let MaskParts::Prototypes { coefficients, .. } = self.spec.parts {
            a.coefficients.set_output(outputs.clone().nth(coefficients.output));
        }
    }

    /// Returns the address of the kernel's one argument.
    pub fn argument(&mut self) -> *mut std::ffi::c_void {
        (&raw mut *self.argument).cast()
    }

    /// Copies the masks of the last launch from the words that it wrote, a mask for each job; reuses the memory of `out`.
    pub fn read(&self, words: &[u32], out: &mut Vec<Mask>) {
        out.resize_with(self.places.len(), Mask::default);
        for (Place { start, pixels }, mask) in self.places.iter().zip(out) {
            mask.clear(*pixels);
            let count = mask.words.len();
            if let Some(found) = words.get(*start..*start + count) {
                mask.words.copy_from_slice(found);
            }
            // These are as large as the frame.
            if matches!(self.spec.parts, MaskParts::OwnPlane { .. }) {
                *mask = mask.cropped();
            }
        }
    }
}
