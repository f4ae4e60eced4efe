//! The preprocessor for one GPU.

use std::ffi::c_void;
use std::sync::Arc;

use super::job::{COPY_BYTES, DESCRIBE_GRID, FRAME_BYTES, Frame, Job, Kernel, Planes, TableCopy};
use super::table_cache::{Found, TableCache};
use crate::buffer::{Memory, MemoryKind, UnifiedBuffer};
use crate::cuda::{CudaError, CudaStream, Device, DeviceAddress, DeviceBuffer, Function, Module};
use crate::frame::FrameView;
use crate::placement::Mapping;
use crate::preprocess::axis::PlanKey;
use crate::preprocess::error::PreprocessError;
use crate::preprocess::plan::KEPT_PLANS;
use crate::preprocess::spec::PreprocessSpec;
use crate::tensor::DType;

/// The compiled kernel, as packed PTX.
const PTX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preprocess"));

/// Threads per block of the kernels with one word per thread, as they declare.
const WORD_THREADS: u32 = 128;

/// Staged rows begin at multiples of this, so that the kernel may read words.
pub(super) const STAGED_ALIGNMENT: usize = 64;

/// Turns batches of frames into one model's input on a GPU.
///
/// [`prepare`](Self::prepare) is the host's part of a run and [`enqueue`](Self::enqueue) the GPU's, which may be captured in a
/// graph once and launched again after every `prepare`. Memory is allocated in `new`, for frames to stage that are larger than any
/// before, for the first 64 frame sizes, and for tables that are larger than the memory of their place. Otherwise a frame of a new
/// size costs only the making of its tables, which the launch that each run begins with copies.
pub struct CudaPreprocessor {
    device: Arc<Device>,
    spec: PreprocessSpec,
    kernel: Function,
    /// Threads per block, blocks per frame.
    grid: (u32, u32),
    describe: Function,
    /// Rounds the tensor in its place; `None` if its elements are not i32.
    round: Option<Function>,
    job: Job,
    max_batch: usize,
    /// The descriptions of the batch's frames, then the copies of their tables, written by the host.
    described: UnifiedBuffer,
    /// The descriptions in the GPU's memory: every warp reads its frame's, and some GPUs do not cache pinned memory.
    descriptions: DeviceBuffer,
    mappings: Vec<Mapping>,
    tables: TableCache,
    /// The tables of the batch's frames.
    found: Vec<Found>,
    /// The tables that are new in a run, written by the host.
    new_tables: UnifiedBuffer,
    /// The tables in the GPU's memory, by the cache's places.
    placed_tables: Vec<DeviceBuffer>,
    staging: UnifiedBuffer,
    copied_bytes: u64,
}

impl CudaPreprocessor {
    /// Checks a spec and makes its preprocessor for up to `max_batch` frames at once.
    pub fn new(spec: &PreprocessSpec, device: &Arc<Device>, max_batch: usize) -> Result<Self, PreprocessError> {
        spec.check()?;
        let pinned = Memory::on(device, MemoryKind::Mapped)?;
        let module = Module::shared(device, "preprocess", PTX)?;
        let kernel = Kernel::of(spec);
        Ok(Self {
            device: device.clone(),
            spec: spec.clone(),
            kernel: module.function(kernel.name())?,
            grid: kernel.grid(spec),
            describe: module.function("describe")?,
            round: (spec.dtype == DType::I32).then(|| module.function("round_tensor")).transpose()?,
            job: Job::new(spec),
            max_batch,
            described: pinned.allocate(max_batch * (FRAME_BYTES + COPY_BYTES))?,
            descriptions: DeviceBuffer::new(device, max_batch * FRAME_BYTES)?,
            mappings: Vec::with_capacity(max_batch),
            tables: TableCache::new(max_batch.max(KEPT_PLANS)),
            found: Vec::with_capacity(max_batch),
            new_tables: pinned.allocate(0)?,
            placed_tables: Vec::new(),
            staging: pinned.allocate(0)?,
            copied_bytes: 0,
        })
    }

    /// Returns the spec.
    pub fn spec(&self) -> &PreprocessSpec {
        &self.spec
    }

    /// Describes the frames of the next run to the kernel. Copies frames that the GPU cannot access to where it can.
    ///
    /// The previous run must be done: its descriptions and staged frames are overwritten.
    pub fn prepare(&mut self, frames: &[FrameView<'_>]) -> Result<(), PreprocessError> {
        if frames.len() > self.max_batch {
            let (most, given) = (self.max_batch, frames.len());
            return Err(PreprocessError::Invalid(format!("the preprocessor was made for {most} frames, not {given}")));
        }
        let prepared = self.describe(frames);
        if prepared.is_err() {
            self.forget_tables();
        }
        prepared
    }

    /// Makes all tables new to the next run, after one that was prepared and may not have been launched.
    pub fn forget_tables(&mut self) {
        self.tables.forget();
    }

    fn describe(&mut self, frames: &[FrameView<'_>]) -> Result<(), PreprocessError> {
        self.find_tables(frames)?;
        let staged: usize = frames.iter().filter(|frame| planes_of(frame).is_none()).map(staged_size).sum();
        self.staging.refit(staged)?;
        self.mappings.clear();
        let mut staged_bytes = 0;
        // `pinned` is mapped memory, and every block of that has an address.
        let new_tables = self.new_tables.device_address().unwrap_or_default();
        let (descriptions, copies) = self.described.as_mut_slice().split_at_mut(self.max_batch * FRAME_BYTES);
        let described = descriptions.chunks_exact_mut(FRAME_BYTES).zip(copies.chunks_exact_mut(COPY_BYTES));
        for ((frame, Found { tables, place, words }), (described, copy)) in
            frames.iter().zip(&self.found).zip(described)
        {
            let address = self.placed_tables[*place].address();
            let planes = match planes_of(frame) {
                Some(planes) => planes,
                None => {
                    let (planes, bytes) = stage(frame, &mut self.staging, &mut staged_bytes);
                    self.copied_bytes += bytes as u64;
                    planes
                }
            };
            let axes = tables.axes(&self.spec, address.0);
            let description =
                Frame::new(self.spec.sampling, frame, &planes, (&tables.mapping, tables.rules, tables.tiles), axes);
            self.mappings.push(tables.mapping.of_view(frame.view()));
            // SAFETY: a `Frame` is FRAME_BYTES integers and floats without padding, so all of its bytes are initialised.
            let bytes = unsafe { std::slice::from_raw_parts((&raw const description).cast::<u8>(), FRAME_BYTES) };
            described.copy_from_slice(bytes);
            copy.copy_from_slice(&TableCopy::new(words, new_tables, address).to_bytes());
        }
        Ok(())
    }

    /// Finds or makes the tables of frames, and writes those that are new to pinned memory.
    fn find_tables(&mut self, frames: &[FrameView<'_>]) -> Result<(), PreprocessError> {
        self.tables.begin_run();
        self.found.clear();
        for frame in frames {
            let found = self.tables.find_or_make(&self.spec, PlanKey::of(frame));
            let bytes = found.words.len() * size_of::<u32>();
            // Powers of two. Otherwise, where tables grow with the frame, many new ones would be a little larger than their place.
            match self.placed_tables.get_mut(found.place) {
                Some(memory) if memory.len() >= bytes => {}
                Some(memory) => *memory = DeviceBuffer::new(&self.device, bytes.next_power_of_two())?,
                None => self.placed_tables.push(DeviceBuffer::new(&self.device, bytes.next_power_of_two())?),
            }
            self.found.push(found);
        }
        let words = self.tables.new_words();
        self.new_tables.refit(size_of_val(words).next_power_of_two())?;
        let bytes = self.new_tables.as_mut_slice().chunks_exact_mut(size_of::<u32>());
        bytes.zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_ne_bytes()));
        Ok(())
    }

    /// Returns the mapping from the tensor's pixels back to the frame in `slot` of the last [`prepare`](Self::prepare), which
    /// had more frames than that.
    pub fn mapping(&self, slot: usize) -> Mapping {
        self.mappings[slot]
    }

    /// Returns the bytes of frames that were copied so far because the GPU could not access them.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Queues the run of `frames` frames into consecutive tensors at `out`; returns without waiting.
    ///
    /// A launch that reads 272 bytes per frame, and tables that are new, and the one that does the work. Reads the rows and columns of each frame that
    /// are sampled, writes the tensor once: 1080p YUYV to 640x640 f16 moves 3.8 MB. A tensor of i32 is read and written once
    /// more.
    ///
    /// # Safety
    /// `out` has room for that many tensors. `self`, `out` and the memory of the frames last prepared do not change until the
    /// run is done, and for every launch of a captured graph; [`prepare`](Self::prepare) had `frames` frames before every run.
    /// After a `prepare` without a run comes [`forget_tables`](Self::forget_tables) before the next.
    pub unsafe fn enqueue(&mut self, out: DeviceAddress, frames: usize, stream: &CudaStream) -> Result<(), CudaError> {
        if frames == 0 {
            return Ok(());
        }
        let frames = frames.min(self.max_batch);
        self.copy_descriptions(frames, stream)?;
        let mut job = self.job.at(out, self.descriptions.address());
        let (threads, blocks) = self.grid;
        let mut arguments = [(&raw mut job).cast::<c_void>()];
        // SAFETY: the kernel takes one `Job`. It reads the descriptions, the tables they name, which are in `self`, and the
        // frames; it writes `frames` tensors from `out` on. All of that stays valid (the caller's promise).
        unsafe { self.kernel.launch([blocks, frames as u32, 1], [threads, 1, 1], 0, stream, &mut arguments) }?;
        match &self.round {
            None => Ok(()),
            Some(round) => {
                let mut tensor = out;
                let mut count = (frames * self.spec.shape().iter().product::<usize>()) as u64;
                let mut arguments = [(&raw mut tensor).cast::<c_void>(), (&raw mut count).cast::<c_void>()];
                let blocks = count.div_ceil(u64::from(WORD_THREADS)) as u32;
                // SAFETY: the kernel takes an address and a count of words: the tensors, which the launch before it in this stream
                // writes.
                unsafe { round.launch([blocks, 1, 1], [WORD_THREADS, 1, 1], 0, stream, &mut arguments) }
            }
        }
    }

    /// Queues copying the descriptions, and the tables that are new.
    fn copy_descriptions(&mut self, frames: usize, stream: &CudaStream) -> Result<(), CudaError> {
        // `pinned` is mapped memory, and every block of that has an address.
        let mut from = self.described.device_address().unwrap_or_default();
        let mut to = self.descriptions.address();
        let mut copies = from.offset(self.max_batch * FRAME_BYTES);
        let mut arguments =
            [(&raw mut from).cast::<c_void>(), (&raw mut to).cast::<c_void>(), (&raw mut copies).cast::<c_void>()];
        let (threads, blocks) = DESCRIBE_GRID;
        // SAFETY: the kernel takes three addresses. Each block has room for `max_batch` descriptions or copies, these name memory
        // in `self`, and all of it stays valid until the run is done (the promise to `enqueue`).
        unsafe { self.describe.launch([blocks, frames as u32, 1], [threads, 1, 1], 0, stream, &mut arguments) }
    }
}

/// Returns the addresses of a frame's planes on the GPU; `None` if it cannot access all of them, or rows are 4 GiB apart, or, if they
/// become columns, the plane is that long.
fn planes_of(frame: &FrameView<'_>) -> Option<Planes> {
    let mut planes = Planes::default();
    let rows = if frame.view().orientation().transposed { frame.height() as usize } else { 1 };
    for (plane, seen) in frame.planes().iter().zip(&mut planes) {
        if plane.pitch_bytes > u32::MAX as usize / rows {
            return None;
        }
        *seen = (plane.device?, plane.pitch_bytes);
    }
    Some(planes)
}

fn staged_pitch(frame: &FrameView<'_>, plane: usize) -> usize {
    frame.format().row_bytes(plane, frame.width()).next_multiple_of(STAGED_ALIGNMENT)
}

pub(super) fn staged_size(frame: &FrameView<'_>) -> usize {
    let planes = 0..frame.format().plane_count();
    planes.map(|plane| staged_pitch(frame, plane) * frame.format().plane_rows(plane, frame.height())).sum()
}

/// Copies a frame to `staging` after the first `used` bytes; returns its planes there and how many bytes were copied.
pub(super) fn stage(frame: &FrameView<'_>, staging: &mut UnifiedBuffer, used: &mut usize) -> (Planes, usize) {
    let first = staging.device_address().unwrap_or_default();
    let (mut planes, mut copied) = (Planes::default(), 0);
    for (i, plane) in frame.planes().iter().enumerate() {
        let (pitch, rows) = (staged_pitch(frame, i), frame.format().plane_rows(i, frame.height()));
        let row_bytes = frame.format().row_bytes(i, frame.width());
        planes[i] = (first.offset(*used), pitch);
        for (y, row) in staging.as_mut_slice()[*used..].chunks_exact_mut(pitch).take(rows).enumerate() {
            row[..row_bytes].copy_from_slice(&plane.row(y)[..row_bytes]);
        }
        *used += pitch * rows;
        copied += row_bytes * rows;
    }
    (planes, copied)
}
