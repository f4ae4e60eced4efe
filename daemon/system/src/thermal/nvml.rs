//! libnvidia-ml.so.1, NVIDIA's management library (NVML): load and clock of GPUs whose driver has no files for them.
//!
//! A Thor has no file with the GPU's load, and a PC has none at all. On an Orin, NVML comes with JetPack 7.2 and answers every
//! such question with "not supported" (github.com/rbonghi/jetson_stats, pull requests 867 and 889): there the files count.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

/// The library's soname, the same on every Linux. It is part of the driver.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// `NVML_CLOCK_GRAPHICS` of nvml.h.
const GRAPHICS_CLOCK: c_uint = 0;

/// `nvmlUtilization_t` of nvml.h, in per cent.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlDevice_t` of nvml.h.
type GpuHandle = *mut c_void;

/// The loaded library. It is never unloaded, because its threads may outlive the last call.
#[derive(Debug)]
pub struct Nvml {
    init: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    handle: unsafe extern "C" fn(c_uint, *mut GpuHandle) -> c_int,
    utilization: unsafe extern "C" fn(GpuHandle, *mut Utilization) -> c_int,
    clock: unsafe extern "C" fn(GpuHandle, c_uint, *mut c_uint) -> c_int,
    is_started: bool,
}

/// A GPU's load and clock, each if NVML reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuReading {
    /// Share of time in which the GPU worked, 0 to 100.
    pub load_percent: Option<u32>,
    /// Clock of its cores, in MHz.
    pub clock_mhz: Option<u32>,
}

impl Nvml {
    /// Loads the library; returns `None` if it is missing or lacks a function. Does not call it yet.
    pub fn open(library: &Path) -> Option<Self> {
        // SAFETY: loading the library runs its initialisers, which NVIDIA makes for being loaded like this; they need nothing
        // from us.
        let library = unsafe { Library::new(library) }.ok()?;
        // Also one that lacks a function stays.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: the types are the functions' in nvml.h; NVIDIA never changes the signature of a symbol (a changed one gets a new
        // suffix). The pointers stay valid because the library is never closed.
        unsafe {
            Some(Self {
                init: *library.get(b"nvmlInit_v2\0").ok()?,
                count: *library.get(b"nvmlDeviceGetCount_v2\0").ok()?,
                handle: *library.get(b"nvmlDeviceGetHandleByIndex_v2\0").ok()?,
                utilization: *library.get(b"nvmlDeviceGetUtilizationRates\0").ok()?,
                clock: *library.get(b"nvmlDeviceGetClockInfo\0").ok()?,
                is_started: false,
            })
        }
    }

    /// Reads the busiest GPU; returns `None` if NVML does not start now, as before the driver's module is loaded.
    ///
    /// The first call may take a second, because it wakes GPUs that no program uses.
    pub fn read(&mut self) -> Option<GpuReading> {
        // SAFETY: the function takes no arguments.
        self.is_started = self.is_started || unsafe { (self.init)() } == 0;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        if !self.is_started || unsafe { (self.count)(&mut count) } != 0 {
            // A later call starts it again.
            self.is_started = false;
            return None;
        }
        (0..count).map(|index| self.read_gpu(index)).max_by_key(|gpu| (gpu.load_percent, gpu.clock_mhz))
    }

    fn read_gpu(&self, index: c_uint) -> GpuReading {
        let (mut gpu, mut used, mut clock_mhz) = (ptr::null_mut(), Utilization::default(), 0);
        // SAFETY: NVML is started, and `gpu` outlives the call. Any index is allowed.
        if unsafe { (self.handle)(index, &mut gpu) } != 0 {
            return GpuReading::default();
        }
        // SAFETY: the handle is NVML's own, and `used` outlives the call.
        let has_load = unsafe { (self.utilization)(gpu, &mut used) } == 0;
        // SAFETY: the handle is NVML's own, and `clock_mhz` outlives the call.
        let has_clock = unsafe { (self.clock)(gpu, GRAPHICS_CLOCK, &mut clock_mhz) } == 0;
        GpuReading { load_percent: has_load.then_some(used.gpu), clock_mhz: has_clock.then_some(clock_mhz) }
    }
}
