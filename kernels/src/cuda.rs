//! One NVIDIA GPU through CUDA's driver API, opened at run time.
//!
//! - [`Device`]: the primary context of one GPU, which TensorRT shares, and its properties.
//! - [`CudaStream`], [`Event`], [`Graph`]: queue work, and wait for it.
//! - [`DeviceBuffer`], [`Module`]: the GPU's own memory, and kernels from PTX.
//!
//! `driver` holds every raw call; the types here own what they make and free it when dropped. On a machine without a driver,
//! [`Device::open`] returns [`DeviceError::NoDriver`]; nothing here panics. Waiting sleeps: events and the context use blocking
//! synchronisation.

mod device;
mod driver;
mod error;
mod event;
mod graph;
mod memory;
mod module;
mod stream;
mod tegra;

pub use device::{Device, DeviceAddress, DeviceFacts};
pub use error::{CudaError, DeviceError, ModuleError, refusal_of_free_memory};
pub use event::Event;
pub use graph::Graph;
pub use memory::{DeviceBuffer, RegisteredPages};
pub use module::{Function, Module};
pub use stream::{CudaStream, StreamPriority};

pub(crate) use memory::SharedPages;
