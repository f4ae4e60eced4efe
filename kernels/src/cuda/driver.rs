//! libcuda.so.1: the functions that we call, looked up by name when first needed.
//!
//! This table is our own instead of cudarc's functions: results stay plain numbers, because newer drivers return some that no
//! enum knows today, and a missing symbol is an error instead of a panic. Handles, flags and results are cudarc's, generated
//! from CUDA 11.4's cuda.h; the suffixes (`_v2`) are part of the names, as in that header's macros.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUjit_option,
    CUmodule, CUstream,
};

use visiond_ground::jetson::is_jetson;
use visiond_ground::loader_message;

use super::error::{CudaError, DeviceError, code};
use super::tegra;

/// The library's soname, the same on every Linux.
const LIBRARY: &str = "libcuda.so.1";

/// CUDA 11.4 in the format of `cuDriverGetVersion`.
const OLDEST_VERSION: c_int = 11_040;

/// Declares the table: for each function, a field that is loaded by name and a method that turns its result into a
/// [`CudaError`].
macro_rules! driver {
    ($($method:ident = $symbol:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The loaded driver. It is never unloaded: some of its work may still run after its last user is dropped.
        pub(super) struct Driver {
            $($method: unsafe extern "C" fn($($kind),*) -> u32,)*
            error_name: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
            _library: libloading::Library,
        }

        impl Driver {
            fn from_library(library: libloading::Library) -> Result<Self, DeviceError> {
                Ok(Self {
                    // SAFETY: the type is the function's in cuda.h of CUDA 11.4; NVIDIA never changes the signature of a symbol
                    // (a changed one gets a new suffix). The pointer stays valid because the library is stored in the table.
                    $($method: unsafe { symbol(&library, stringify!($symbol))? },)*
                    // SAFETY: as above.
                    error_name: unsafe { symbol(&library, "cuGetErrorName")? },
                    _library: library,
                })
            }

            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                /// Calls the function.
                ///
                /// # Safety
                /// As documented in cuda.h: pointers valid, handles alive, the right context current.
                #[allow(clippy::too_many_arguments)]
                pub(super) unsafe fn $method(&self, $($argument: $kind),*) -> Result<(), CudaError> {
                    // SAFETY: the caller's promise.
                    let result = unsafe { (self.$method)($($argument),*) };
                    self.check(stringify!($symbol), result)
                }
            )*
        }
    };
}

driver! {
    init = cuInit(flags: c_uint);
    driver_version = cuDriverGetVersion(version: *mut c_int);
    device_count = cuDeviceGetCount(count: *mut c_int);
    device_get = cuDeviceGet(device: *mut CUdevice, index: c_int);
    device_name = cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    device_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    device_memory = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    primary_flags = cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    primary_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    primary_release = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    set_current = cuCtxSetCurrent(context: CUcontext);
    memory_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    alloc = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    alloc_managed = cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    free = cuMemFree_v2(address: CUdeviceptr);
    alloc_host = cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: c_uint);
    free_host = cuMemFreeHost(start: *mut c_void);
    host_address = cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, start: *mut c_void, flags: c_uint);
    register = cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    unregister = cuMemHostUnregister(start: *mut c_void);
    copy_to_device = cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    copy_to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_on_device = cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fill = cuMemsetD8Async(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
    stream_priorities = cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    stream_create = cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    stream_wait_event = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    stream_attach = cuStreamAttachMemAsync(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint);
    capture_begin = cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    capture_end = cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    graph_instantiate = cuGraphInstantiateWithFlags(runnable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    graph_destroy = cuGraphDestroy(graph: CUgraph);
    graph_runnable_destroy = cuGraphExecDestroy(runnable: CUgraphExec);
    graph_launch = cuGraphLaunch(runnable: CUgraphExec, stream: CUstream);
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    event_destroy = cuEventDestroy_v2(event: CUevent);
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    event_record_with_flags = cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
    event_synchronize = cuEventSynchronize(event: CUevent);
    event_query = cuEventQuery(event: CUevent);
    event_elapsed = cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    module_load = cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void
    );
    module_unload = cuModuleUnload(module: CUmodule);
    module_function = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    launch = cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
}

/// Looks up one function.
///
/// # Safety
/// `F` is the function's type.
unsafe fn symbol<F: Copy>(library: &libloading::Library, name: &str) -> Result<F, DeviceError> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| DeviceError::DriverTooOld(format!("{LIBRARY} has no {name}")))
}

impl Driver {
    /// Returns the driver, loaded and initialised once; after a failure the next call tries again.
    pub(super) fn get() -> Result<&'static Self, DeviceError> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver =
            powered(|| Self::open(LIBRARY), || tegra::power_on(Path::new("/"), || std::thread::sleep(tegra::PAUSE)))?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    /// Loads `library` and initialises CUDA.
    fn open(library: &str) -> Result<Self, DeviceError> {
        // SAFETY: loading the driver runs its initialisers, which NVIDIA makes for being loaded like this; they need nothing
        // from us.
        let loaded = unsafe { libloading::Library::new(library) }
            .map_err(|error| DeviceError::NoDriver { reason: spelt_out(&error, library) })?;
        let driver = Self::from_library(loaded)?;
        // SAFETY: the flags must be 0.
        unsafe { driver.init(0) }.map_err(|error| match error.code {
            code::NO_DEVICE => DeviceError::NoDevice,
            _ => DeviceError::NotStarted { error, is_jetson: is_jetson(Path::new("/")) },
        })?;
        let version = driver.version()?;
        if version < OLDEST_VERSION {
            let found = format!("it supports CUDA {}.{}", version / 1000, version % 1000 / 10);
            return Err(DeviceError::DriverTooOld(found));
        }
        Ok(driver)
    }

    /// Returns the newest CUDA version that the driver supports: 12080 is 12.8.
    pub(super) fn version(&self) -> Result<c_int, CudaError> {
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        unsafe { self.driver_version(&mut version) }?;
        Ok(version)
    }

    fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: any number is allowed; an unknown one leaves a null pointer. A name lives as long as the library.
        let name = if unsafe { (self.error_name)(code, &mut name) } == 0 && !name.is_null() {
            // SAFETY: it was checked above; the driver's names are C strings that are never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "an error that this driver has no name for".to_owned()
        };
        Err(CudaError { call, code, name })
    }
}

/// Calls `open`, and again if the driver finds no GPU and `power_on` then succeeds.
///
/// The driver may be asked again: one that could not open its device nodes starts at the next `cuInit` of the same process
/// (seen with driver 580 on an H200, with the nodes denied to the first call and libcuda never unloaded; not tried on a
/// Jetson).
fn powered<T>(open: impl Fn() -> Result<T, DeviceError>, power_on: impl Fn() -> bool) -> Result<T, DeviceError> {
    match open() {
        Err(DeviceError::NoDevice | DeviceError::NotStarted { .. }) if power_on() => open(),
        opened => opened,
    }
}

/// Returns the loader's own message about `library`, without libloading's wrapping; if a library that it needs is missing, with the
/// remedy.
fn spelt_out(error: &libloading::Error, library: &str) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), |inner| inner.to_string());
    loader_message::explain(&text, Path::new(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_a_gpu_is_asked_once_more_after_the_gpu_got_power() {
        let asked = std::cell::Cell::new(0);
        let second = || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 { Ok("a driver") } else { Err(DeviceError::NoDevice) }
        };
        assert_eq!(powered(second, || true), Ok("a driver"));
        asked.set(0);
        assert_eq!(powered(second, || false), Err(DeviceError::NoDevice));
        assert_eq!(asked.get(), 1);
        let none = || Err::<(), _>(DeviceError::NoDriver { reason: "no libcuda.so.1".into() });
        assert!(powered(none, || panic!("power does not bring a driver")).is_err());
    }

    #[test]
    fn a_missing_library_is_reported_in_the_loaders_words() {
        let error = Driver::open("libcuda-that-is-nowhere.so.1").err().unwrap();
        let DeviceError::NoDriver { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("libcuda-that-is-nowhere.so.1"), "{reason}");
        assert!(reason.contains("No such file"), "{reason}");
    }

    #[test]
    fn a_library_without_cudas_functions_is_a_driver_too_old() {
        let error = Driver::open("libc.so.6").err().unwrap();
        assert!(matches!(&error, DeviceError::DriverTooOld(found) if found.contains("cuInit")), "{error}");
    }
}
