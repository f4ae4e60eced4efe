//! The memory that a camera's frames live in: chosen by what runs the network that looks at them.

use std::sync::Arc;

use visiond_config::types::BufferConfig;
use visiond_flow::frame::FramePool;
use visiond_kernels::auto_memory::AutoMemory;
use visiond_kernels::buffer::{BufferError, Memory, MemoryKind};
use visiond_kernels::cuda::Device;

use super::source::SourceError;

/// What a source makes its buffers of.
#[derive(Debug, Clone)]
pub struct Buffers {
    /// Kind of memory, and the GPU that sees it.
    pub memory: Memory,
    /// How many.
    pub count: usize,
}

impl Buffers {
    /// As configured, for a network that runs on `device`; without one, on the CPU, in host memory whatever is configured.
    /// Where the choice is left to visiond, the first call for a GPU measures.
    pub fn new(config: &BufferConfig, device: Option<&Arc<Device>>) -> Result<Self, BufferError> {
        let memory = match (device, config.memory) {
            (None, _) => Memory::host(),
            (Some(device), None) => Memory::on(device, AutoMemory::of(device).kind())?,
            (Some(device), Some(kind)) => Memory::on(device, kind)?,
        };
        Ok(Self { memory, count: config.count })
    }

    /// Whether a source could have these in place of `other`.
    pub fn are_like(&self, other: &Self) -> bool {
        let same_device = match (self.memory.device(), other.memory.device()) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        same_device && (self.memory.kind(), self.count) == (other.memory.kind(), other.count)
    }

    /// The kind of memory and who reads it, for the log.
    pub fn describe(&self) -> String {
        let kind = self.memory.kind();
        match (kind, self.memory.device()) {
            (MemoryKind::Host, None) => "host memory".to_owned(),
            (MemoryKind::Host, Some(gpu)) => format!("host memory, copied once for {}", gpu.facts().label()),
            (_, Some(gpu)) => format!("{kind} memory, read in place by {}", gpu.facts().label()),
            (_, None) => format!("{kind} memory"),
        }
    }

    /// Host memory.
    pub fn host(count: usize) -> Self {
        Self { memory: Memory::host(), count }
    }

    /// The buffers of a source whose frames have `bytes` bytes.
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
    fn a_network_on_the_cpu_has_host_memory_whatever_is_configured() {
        for memory in [None, Some(MemoryKind::Host), Some(MemoryKind::Mapped), Some(MemoryKind::Managed)] {
            let buffers = Buffers::new(&BufferConfig { memory, count: 5 }, None).unwrap();
            assert_eq!((buffers.memory.kind(), buffers.count), (MemoryKind::Host, 5));
        }
    }
}
