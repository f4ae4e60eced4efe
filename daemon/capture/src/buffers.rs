//! The memory of a camera's frames, chosen by where its model runs.

use std::sync::Arc;

use visiond_config::types::BufferConfig;
use visiond_frames::frame::FramePool;
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{BufferError, Memory, MemoryKind};
use visiond_kernels::cuda::Device;

use super::source::SourceError;

/// The default number of buffers of a camera with one lane.
const USUAL_COUNT: usize = 4;
/// Each further lane adds one waiting frame and one frame in the lane.
const COUNT_PER_LANE: usize = 2;
/// The maximum number of buffers of a camera, the same as in the configuration.
const MOST: usize = 32;

/// The memory that a source allocates its buffers from, and its limits.
#[derive(Debug, Clone)]
pub struct Buffers {
    /// The kind of memory, and the GPU that can read it.
    pub memory: Memory,
    /// The number of buffers.
    pub count: usize,
    /// Whether the configuration sets the number.
    pub is_count_set: bool,
    /// The most pixels of a frame.
    pub max_pixels: u64,
    /// The most bytes that reading an image, or all frames of a video, may take.
    pub max_picture_bytes: u64,
}

/// A camera, stream or image has larger frames than the configuration allows.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "it has {pixels} pixels ({width}x{height}), more than {most}: make it smaller, or raise `max_pixels` in `[buffers]`"
)]
pub struct TooManyPixels {
    width: u32,
    height: u32,
    pixels: u64,
    most: u64,
}

/// The buffers of a video would take more memory than the configuration allows.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "its frames may take {} MiB of memory, more than {}: make it smaller, or raise `max_picture_bytes` in `[buffers]` \
     (`--input-memory`)",
    .needed.div_ceil(1 << 20),
    .most >> 20
)]
pub struct TooMuchMemory {
    needed: u64,
    most: u64,
}

impl Buffers {
    /// Follows the configuration for a model on the GPU `device`. Without a device, the model runs on the CPU and the memory is
    /// host memory, whatever the configuration says. If the configuration leaves the choice to visiond, the first call for a
    /// GPU measures.
    pub fn new(config: &BufferConfig, device: Option<&Arc<Device>>) -> Result<Self, BufferError> {
        let memory = match (device, config.memory) {
            (None, _) => Memory::host(),
            (Some(device), None) => Memory::on(device, AutoMemory::of(device).kind())?,
            (Some(device), Some(kind)) => Memory::on(device, kind)?,
        };
        Ok(Self::of(config, memory))
    }

    fn of(config: &BufferConfig, memory: Memory) -> Self {
        let BufferConfig { memory: _, count, max_pixels, max_picture_bytes } = *config;
        let (count, is_count_set) = (count.unwrap_or(USUAL_COUNT), count.is_some());
        Self { memory, count, is_count_set, max_pixels, max_picture_bytes }
    }

    /// Returns buffers for a camera whose frames go to this many lanes: more for each further lane, unless the configuration
    /// sets the number.
    pub fn for_lanes(&self, lanes: usize) -> Self {
        let more = COUNT_PER_LANE.saturating_mul(lanes.saturating_sub(1));
        let count = if self.is_count_set { self.count } else { self.count.saturating_add(more).min(MOST) };
        Self { count, ..self.clone() }
    }

    /// Checks the size of frames that a driver, a program or a file states, before memory is allocated for them.
    pub(super) fn check_size(&self, width: u32, height: u32) -> Result<(), TooManyPixels> {
        let (pixels, most) = (u64::from(width) * u64::from(height), self.max_pixels);
        if pixels > most { Err(TooManyPixels { width, height, pixels, most }) } else { Ok(()) }
    }

    /// Checks the memory of all buffers of a video whose frames have `bytes` bytes.
    pub(super) fn check_memory(&self, bytes: usize) -> Result<(), TooMuchMemory> {
        self.check_memory_in_all((bytes as u64).saturating_mul(self.count as u64))
    }

    /// Checks the memory of all buffers of a video together.
    pub(super) fn check_memory_in_all(&self, needed: u64) -> Result<(), TooMuchMemory> {
        let most = self.max_picture_bytes;
        if needed > most { Err(TooMuchMemory { needed, most }) } else { Ok(()) }
    }

    /// Whether a source that has `other` could use these buffers instead.
    pub fn are_like(&self, other: &Self) -> bool {
        let parts = |buffers: &Self| {
            let Self { memory, count, is_count_set, max_pixels, max_picture_bytes } = buffers;
            (memory.device().map(Arc::as_ptr), memory.kind(), *count, *is_count_set, *max_pixels, *max_picture_bytes)
        };
        parts(self) == parts(other)
    }

    /// Returns the kind of memory and what reads it, for the log.
    pub fn describe(&self) -> String {
        let kind = self.memory.kind();
        match (kind, self.memory.device()) {
            (MemoryKind::Host, None) => "host memory".to_owned(),
            (MemoryKind::Host, Some(gpu)) => format!("host memory, copied once for {}", gpu.facts().label()),
            (_, Some(gpu)) => format!("{kind} memory, read in place by {}", gpu.facts().label()),
            (_, None) => format!("{kind} memory"),
        }
    }

    /// Returns buffers in host memory.
    pub fn host(count: usize) -> Self {
        Self::of(&BufferConfig { count: Some(count), ..BufferConfig::default() }, Memory::host())
    }

    /// Allocates the buffers of a source whose frames have `bytes` bytes.
    pub(super) fn pool(&self, bytes: usize) -> Result<FramePool, SourceError> {
        FramePool::new(&self.memory, self.count, bytes).map_err(|error| SourceError::transient(error.to_string()))
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::of(&BufferConfig::default(), Memory::host())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_model_on_the_cpu_has_host_memory_whatever_is_configured() {
        for memory in [None, Some(MemoryKind::Host), Some(MemoryKind::Mapped), Some(MemoryKind::Managed)] {
            let buffers =
                Buffers::new(&BufferConfig { memory, count: Some(5), ..BufferConfig::default() }, None).unwrap();
            assert_eq!((buffers.memory.kind(), buffers.count), (MemoryKind::Host, 5));
        }
    }

    #[test]
    fn a_reload_that_changes_a_limit_gets_other_buffers() {
        let buffers = |config| Buffers::new(&config, None).unwrap();
        let usual = buffers(BufferConfig::default());
        assert!(usual.are_like(&Buffers::default()));
        assert!(!usual.are_like(&buffers(BufferConfig { max_pixels: 1, ..BufferConfig::default() })));
        assert!(!usual.are_like(&buffers(BufferConfig { max_picture_bytes: 1, ..BufferConfig::default() })));
        assert!(!usual.are_like(&buffers(BufferConfig { count: Some(5), ..BufferConfig::default() })));
        // Not the same for a camera with two models.
        assert!(!usual.are_like(&buffers(BufferConfig { count: Some(4), ..BufferConfig::default() })));
    }

    #[test]
    fn the_number_of_buffers_follows_the_lanes_unless_it_is_set() {
        let counts = |count| {
            let buffers = Buffers::new(&BufferConfig { count, ..BufferConfig::default() }, None).unwrap();
            [1, 2, 3, 15, 16, usize::MAX].map(|lanes| buffers.for_lanes(lanes).count)
        };
        assert_eq!(counts(None), [4, 6, 8, 32, 32, 32]);
        assert_eq!(counts(Some(3)), [3; 6]);
        assert_eq!(counts(Some(4)), [4; 6], "the usual number");
    }

    #[test]
    fn the_frames_of_a_video_fit_into_the_memory_of_a_picture() {
        let (buffers, bytes) = (Buffers::default(), |width: usize, height: usize| width * height * 3);
        assert!(buffers.check_memory(bytes(7680, 4320)).is_ok());
        let error = buffers.check_memory(bytes(8192, 8192)).unwrap_err().to_string();
        assert!(error.starts_with("its frames may take 768 MiB of memory, more than 384: make it smaller"), "{error}");
        assert!(buffers.check_memory(usize::MAX).is_err());
    }

    #[test]
    fn a_frame_has_at_most_as_many_pixels_as_the_configuration_says() {
        let buffers = Buffers::default();
        assert!(buffers.check_size(8192, 8192).is_ok());
        let error = buffers.check_size(8192, 8193).unwrap_err().to_string();
        assert!(error.starts_with("it has 67117056 pixels (8192x8193), more than 67108864: "), "{error}");
        assert!(buffers.check_size(u32::MAX, u32::MAX).is_err());
    }
}
