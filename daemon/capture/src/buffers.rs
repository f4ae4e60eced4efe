//! The memory of a camera's frames, chosen by where its model runs.

use std::sync::Arc;

use visiond_config::types::BufferConfig;
use visiond_flow::frame::FramePool;
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{BufferError, Memory, MemoryKind};
use visiond_kernels::cuda::Device;

use super::source::SourceError;

/// The memory that a source allocates its buffers from.
#[derive(Debug, Clone)]
pub struct Buffers {
    /// The kind of memory, and the GPU that can read it.
    pub memory: Memory,
    /// The number of buffers.
    pub count: usize,
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
        Ok(Self { memory, count: config.count })
    }

    /// Whether a source that has `other` could use these buffers instead.
    pub fn are_like(&self, other: &Self) -> bool {
        let parts = |buffers: &Self| {
            let Self { memory, count } = buffers;
            (memory.device().map(Arc::as_ptr), memory.kind(), *count)
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
        Self { memory: Memory::host(), count }
    }

    /// Allocates the buffers of a source whose frames have `bytes` bytes.
    pub(super) fn pool(&self, bytes: usize) -> Result<FramePool, SourceError> {
        FramePool::new(&self.memory, self.count, bytes).map_err(|error| SourceError::transient(error.to_string()))
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::host(BufferConfig::default().count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_model_on_the_cpu_has_host_memory_whatever_is_configured() {
        for memory in [None, Some(MemoryKind::Host), Some(MemoryKind::Mapped), Some(MemoryKind::Managed)] {
            let buffers = Buffers::new(&BufferConfig { memory, count: 5 }, None).unwrap();
            assert_eq!((buffers.memory.kind(), buffers.count), (MemoryKind::Host, 5));
        }
    }
}
