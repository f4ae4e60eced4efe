//! A GPU, its primary context and its properties.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use cudarc::driver::sys::{CUcontext, CUctx_flags, CUdevice};
use parking_lot::Mutex;

use super::driver::Driver;
use super::error::{CudaError, DeviceError, code};
use visiond_ground::gpu_lost::is_gpu_lost;

/// The primary context of one GPU, which CUDA's runtime API, and therefore TensorRT, shares.
///
/// It is made with blocking synchronisation, so that a waiting thread sleeps. Everything made on a device keeps it alive.
pub struct Device {
    driver: &'static Driver,
    ordinal: CUdevice,
    context: CUcontext,
    /// A number that is unique among all devices ever opened.
    number: u64,
    facts: DeviceFacts,
}

thread_local! {
    /// The device whose context this thread made current last; 0 before the first.
    static BOUND: Cell<u64> = const { Cell::new(0) };
}

/// Properties of a GPU that do not change while the driver is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The index among the machine's GPUs.
    pub index: u32,
    /// The name, such as `Orin` or `NVIDIA H100`.
    pub name: String,
    /// The compute capability: (8, 7) is SM 8.7.
    pub sm: (u32, u32),
    /// Whether CPU and GPU share one memory, as on a Jetson.
    pub integrated: bool,
    /// The GPU's memory in bytes; for an integrated GPU the machine's.
    pub memory_bytes: u64,
    /// The newest CUDA version that the driver supports: 12080 is 12.8.
    pub driver_version: u32,
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// The size of the level-2 cache.
    pub l2_bytes: u64,
    /// The peak memory clock; 0 if the driver does not report it.
    pub memory_clock_khz: u32,
    /// The width of the memory bus; 0 if the driver does not report it.
    pub memory_bus_bits: u32,
    /// Whether the GPU can read pinned host memory in place.
    pub can_map_host_memory: bool,
    /// Whether the GPU supports managed memory.
    pub managed_memory: bool,
    /// Whether the CPU may access managed memory while the GPU works.
    pub concurrent_managed_access: bool,
    /// Whether foreign pages can be registered.
    pub host_register_supported: bool,
    /// Whether registered pages have the same address on the GPU.
    pub can_use_host_pointer_for_registered_mem: bool,
}

impl DeviceFacts {
    /// Returns the CUDA version as `12.8`.
    pub fn cuda_version(&self) -> String {
        format!("{}.{}", self.driver_version / 1000, self.driver_version % 1000 / 10)
    }

    /// Returns name and SM: `NVIDIA H100 (SM 9.0)`.
    pub fn label(&self) -> String {
        format!("{} (SM {}.{})", self.name, self.sm.0, self.sm.1)
    }
}

/// The address of a byte on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// Returns the address `bytes` further on.
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// Returns the address as a pointer that only the GPU may use, as TensorRT takes it.
    pub const fn as_ptr(self) -> *mut c_void {
        self.0 as usize as *mut c_void
    }
}

// SAFETY: a context may be current on several threads at once; the driver locks.
unsafe impl Send for Device {}
// SAFETY: as above; nothing in a device changes after it was opened.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the GPU with this index, or returns it if it is open already.
    pub fn open(index: u32) -> Result<Arc<Self>, DeviceError> {
        static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock();
        open.retain(|device| device.strong_count() > 0);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(|device| device.facts.index == index) {
            return Ok(device);
        }
        let device = Arc::new(Self::new(index)?);
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Returns the number of GPUs of this machine.
    pub fn count() -> Result<u32, DeviceError> {
        let driver = Driver::get()?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        unsafe { driver.device_count(&mut count) }?;
        Ok(count.max(0).unsigned_abs())
    }

    fn new(index: u32) -> Result<Self, DeviceError> {
        let driver = Driver::get()?;
        make_cache_folder();
        let count = Self::count()?;
        if count == 0 {
            return Err(DeviceError::NoDevice);
        }
        if index >= count {
            return Err(DeviceError::NoSuchDevice { index, count });
        }
        let mut ordinal = 0;
        // SAFETY: `ordinal` outlives the call; `index` is below the count and therefore fits.
        unsafe { driver.device_get(&mut ordinal, index as c_int) }?;
        let facts = read_facts(driver, index, ordinal)?;
        // SAFETY: the ordinal is the driver's own.
        if let Err(error) = unsafe { driver.primary_flags(ordinal, CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32) } {
            log::warn!("waiting for {} may spin a CPU core: {error}", facts.label());
        }
        let mut context = ptr::null_mut();
        // SAFETY: `context` outlives the call; released once, in `drop`.
        unsafe { driver.primary_retain(&mut context, ordinal) }?;
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let device = Self { driver, ordinal, context, number, facts };
        device.bind()?;
        Ok(device)
    }

    /// Returns the properties that do not change while the driver is loaded.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Makes the context current on the calling thread. Everything created on this device does this itself. It is cheap if the
    /// context is current already: nothing else in visiond changes a thread's context, and TensorRT stays in the primary one.
    pub fn bind(&self) -> Result<(), CudaError> {
        if BOUND.get() == self.number {
            return Ok(());
        }
        // SAFETY: `context` is retained until `self` is dropped.
        unsafe { self.driver.set_current(self.context) }?;
        BOUND.set(self.number);
        Ok(())
    }

    /// Makes the context current and returns the driver, for calls that need the context.
    pub(super) fn driver(&self) -> Result<&'static Driver, CudaError> {
        self.bind()?;
        Ok(self.driver)
    }

    /// Calls the driver with the context current, to free something in a `drop`: logs an error instead of returning it.
    pub(super) fn release(&self, call: impl FnOnce(&Driver) -> Result<(), CudaError>) {
        match self.driver().and_then(call) {
            // The process ends, and the driver has freed everything.
            Err(error) if error.code == code::DEINITIALIZED => {}
            Err(error) => log::warn!("{error}"),
            Ok(()) => {}
        }
    }

    /// Returns the error that lost the GPU, if it is lost. A library that works on the GPU does not report the loss when it fails
    /// a call.
    pub fn lost(&self) -> Option<CudaError> {
        self.memory_info().err().filter(|error| is_gpu_lost(error))
    }

    /// Returns the free memory; on an integrated GPU the machine's available memory, which includes what the kernel can reclaim
    /// and CUDA's own figure does not.
    pub fn memory_free_bytes(&self) -> Result<u64, CudaError> {
        if self.facts.integrated
            && let Some(available) = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(available_memory)
        {
            return Ok(available);
        }
        Ok(self.memory_info()?.0 as u64)
    }

    /// Returns the free and the total memory in bytes, as CUDA counts them.
    fn memory_info(&self) -> Result<(usize, usize), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outlive the call; the context is current.
        unsafe { self.driver()?.memory_info(&mut free, &mut total) }?;
        Ok((free, total))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.facts.index, self.facts.label())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, in `new`; everything made in the context held this device and is dropped.
        match unsafe { self.driver.primary_release(self.ordinal) } {
            Err(error) if error.code != code::DEINITIALIZED => log::warn!("{error}"),
            _ => {}
        }
    }
}

/// Creates the folder that CUDA_CACHE_PATH names. The driver stores compiled kernels there, and compiles at every start without
/// it.
fn make_cache_folder() {
    if let Some(folder) = std::env::var_os("CUDA_CACHE_PATH")
        && let Err(error) = std::fs::create_dir_all(&folder)
    {
        let folder = folder.display();
        log::debug!("cannot create the cache {folder}, so kernels are compiled at every start: {error}");
    }
}

fn read_facts(driver: &Driver, index: u32, ordinal: CUdevice) -> Result<DeviceFacts, CudaError> {
    let attribute = |which: Attribute| -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        unsafe { driver.device_attribute(&mut value, which, ordinal) }?;
        Ok(value.max(0).unsigned_abs())
    };
    // Later drivers may stop reporting these attributes: none of them affects a decision.
    let hint = |which: Attribute| attribute(which).unwrap_or(0);
    let mut name = [0; 256];
    // SAFETY: the buffer has the given length; the driver ends the name with a NUL within it.
    unsafe { driver.device_name(name.as_mut_ptr(), name.len() as c_int, ordinal) }?;
    let mut memory_bytes = 0;
    // SAFETY: `memory_bytes` outlives the call.
    unsafe { driver.device_memory(&mut memory_bytes, ordinal) }?;
    Ok(DeviceFacts {
        index,
        // SAFETY: zeroed before the call, so it is NUL-terminated whatever the driver wrote before the last byte.
        name: unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
        sm: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        integrated: attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        memory_bytes: memory_bytes as u64,
        driver_version: driver.version()?.max(0).unsigned_abs(),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: u64::from(hint(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)),
        memory_clock_khz: hint(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: hint(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        can_map_host_memory: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0,
        managed_memory: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? != 0,
        concurrent_managed_access: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? != 0,
        host_register_supported: hint(Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) != 0,
        can_use_host_pointer_for_registered_mem: hint(
            Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        ) != 0,
    })
}

/// Returns `MemAvailable` of /proc/meminfo in bytes.
fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:        7620900 kB\nMemFree:          100000 kB\nMemAvailable:    3000000 kB\n";
        assert_eq!(available_memory(text), Some(3_072_000_000));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn opening_a_gpu_never_panics() {
        match Device::open(0) {
            Ok(device) => assert!(device.facts().sm.0 > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
