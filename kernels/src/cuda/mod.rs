//! One NVIDIA GPU through CUDA's driver API, opened at run time.
//!
//! - [`Device`]: the primary context of one GPU, the one that TensorRT uses too, and the facts about it.
//! - [`CudaStream`], [`Event`], [`Graph`]: work in order, and knowing when it is done.
//! - [`DeviceBuffer`], [`Module`]: the GPU's own memory and kernels from PTX.
//!
//! `driver` holds every raw call; the types here own what they made and free it when dropped. A machine without a driver
//! gets [`DeviceError::NoDriver`] from [`Device::open`]; nothing here panics. Waiting sleeps: events and the context are
//! made with blocking synchronisation.

mod device;
mod driver;
mod error;
mod event;
mod graph;
mod memory;
mod module;
mod stream;
mod tegra;

pub use device::{Device, DeviceFacts};
pub use error::{CudaError, DeviceError, ModuleError};
pub use event::Event;
pub use graph::Graph;
pub use memory::{DeviceBuffer, RegisteredPages};
pub use module::{Function, Module};
pub use stream::CudaStream;
pub use tegra::is_jetson;

pub(crate) use memory::SharedPages;

/// A byte's address as the GPU sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The address `bytes` further on.
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// The address as a pointer that only the GPU may follow, as TensorRT takes it.
    pub const fn as_ptr(self) -> *mut std::ffi::c_void {
        self.0 as usize as *mut std::ffi::c_void
    }
}
