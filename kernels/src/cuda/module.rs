//! Kernels: PTX that the driver compiles for its GPU.

use std::ffi::{CString, c_void};
use std::io::Read;
use std::ptr;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUfunction, CUjit_option, CUmodule};
use flate2::read::DeflateDecoder;
use parking_lot::Mutex;

use super::{CudaError, CudaStream, Device, ModuleError};

/// The size of the buffer for the compiler's log.
const LOG_BYTES: usize = 8 * 1024;

/// Compiled kernels.
#[derive(Debug, Clone)]
pub struct Module {
    loaded: Arc<LoadedModule>,
}

/// The loaded module, which functions also hold.
#[derive(Debug)]
struct LoadedModule {
    device: Arc<Device>,
    handle: CUmodule,
    name: &'static str,
}

// SAFETY: a module is only read after loading, which the driver allows on any thread.
unsafe impl Send for LoadedModule {}
// SAFETY: as above.
unsafe impl Sync for LoadedModule {}

/// One kernel of a module.
#[derive(Debug, Clone)]
pub struct Function {
    loaded: Arc<LoadedModule>,
    handle: CUfunction,
}

// SAFETY: as for the module; the handle lives as long as it.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Compiles `ptx` for the device; `name` identifies the kernels in errors. The driver caches the result on disk.
    pub fn load(device: &Arc<Device>, name: &'static str, ptx: &str) -> Result<Self, ModuleError> {
        let text = CString::new(ptx).map_err(|_| ModuleError::Damaged(name))?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The size is an integer passed as a pointer; the driver overwrites it with the log's length.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut handle = ptr::null_mut();
        // If the compiler crashes, this is the process's last line.
        log::debug!("loading the kernels `{name}`, which the driver compiles if its cache lacks them");
        // SAFETY: the text is NUL-terminated; both arrays have the two entries given; the log has the given length and, like
        // all others, outlives the call; the context is current.
        let result = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            device.driver()?.module_load(&mut handle, text.as_ptr().cast(), 2, options, values)
        };
        result.map_err(|error| {
            let gpu = device.facts().label();
            ModuleError::Compile { module: name, gpu, error, log: one_line(&log) }
        })?;
        Ok(Self { loaded: Arc::new(LoadedModule { device: device.clone(), handle, name }) })
    }

    /// Does the same as [`Module::load`] for PTX that `build.rs` has packed, but returns the module called `name` if it is loaded
    /// for the device already.
    pub fn shared(device: &Arc<Device>, name: &'static str, packed: &[u8]) -> Result<Self, ModuleError> {
        static LOADED: Mutex<Vec<Weak<LoadedModule>>> = Mutex::new(Vec::new());
        let mut all = LOADED.lock();
        all.retain(|loaded| loaded.strong_count() > 0);
        let wanted = |loaded: &Arc<LoadedModule>| loaded.name == name && Arc::ptr_eq(&loaded.device, device);
        if let Some(loaded) = all.iter().filter_map(Weak::upgrade).find(wanted) {
            return Ok(Self { loaded });
        }
        let module = Self::load(device, name, &unpack(name, packed)?)?;
        all.push(Arc::downgrade(&module.loaded));
        Ok(module)
    }

    /// Returns the kernel called `name`.
    pub fn function(&self, name: &str) -> Result<Function, ModuleError> {
        let loaded = &self.loaded;
        let text = CString::new(name).map_err(|_| ModuleError::Damaged(loaded.name))?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` and the text outlive the call; the module is alive; the context is current.
        unsafe { loaded.device.driver()?.module_function(&mut handle, loaded.handle, text.as_ptr()) }
            .map_err(|error| ModuleError::NoFunction { module: loaded.name, function: name.into(), error })?;
        Ok(Function { loaded: loaded.clone(), handle })
    }

    /// Returns the GPU that the kernels were compiled for.
    pub fn device(&self) -> &Arc<Device> {
        &self.loaded.device
    }
}

impl Function {
    /// Queues one launch on `stream` and returns without waiting. The arguments' values are copied before it returns.
    ///
    /// # Safety
    /// `args` points to one value for each of the kernel's parameters, of the parameter's type; what the kernel reads and
    /// writes through them exists until it is done.
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: &CudaStream,
        args: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        // SAFETY: function and stream are alive and of this context; the rest is the caller's promise.
        unsafe {
            self.loaded.device.driver()?.launch(
                self.handle,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream.handle,
                args.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // SAFETY: loaded once and unloaded once, here; functions hold this value, so none is left.
        self.device.release(|driver| unsafe { driver.module_unload(self.handle) });
    }
}

/// Returns the PTX that `build.rs` has packed.
fn unpack(name: &'static str, packed: &[u8]) -> Result<String, ModuleError> {
    let mut ptx = String::new();
    DeflateDecoder::new(packed).read_to_string(&mut ptx).map_err(|_| ModuleError::Damaged(name))?;
    Ok(ptx)
}

/// Returns the compiler's log up to its NUL, on one line, without control characters.
fn one_line(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    text.replace(char::is_control, " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_log_becomes_one_clean_line() {
        assert_eq!(one_line(b"ptxas line 1;\n  error\t\x1b[0m: bad\n\0rest"), "ptxas line 1; error [0m: bad");
        assert_eq!(one_line(b"\0"), "");
    }

    #[test]
    fn packed_kernels_unpack_to_their_ptx_and_damaged_ones_are_refused() {
        let packed = include_bytes!(concat!(env!("OUT_DIR"), "/preprocess"));
        assert_eq!(unpack("preprocess", packed).unwrap(), include_str!("../../ptx/preprocess.ptx"));
        assert!(matches!(unpack("preprocess", &packed[..packed.len() / 2]), Err(ModuleError::Damaged("preprocess"))));
    }
}
