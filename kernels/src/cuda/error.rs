//! Errors of CUDA.

use std::error::Error;
use std::fmt;
use std::path::Path;

use visiond_ground::gpu_lost::GpuLost;
use visiond_ground::jetson;

/// A failed call of the driver API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError {
    /// The name of the function.
    pub call: &'static str,
    /// The result, as in cuda.h.
    pub code: u32,
    /// The name of the result, from the driver.
    pub name: String,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, name } = self;
        write!(f, "{call} failed: {name} ({code}){}", remedy(*code))?;
        if *code == code::OUT_OF_MEMORY {
            f.write_str(refusal_of_free_memory(jetson::release(Path::new("/"))))
        } else {
            Ok(())
        }
    }
}

impl Error for CudaError {
    /// Returns [`GpuLost`] for ECC and NVLink errors, kernel faults (address, instruction, stack, assertion, timeout), a lost
    /// MPS client, an external device's fault, and the driver's own "unknown error".
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTAINED, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED, ASSERT,
        // HARDWARE_STACK_ERROR to LAUNCH_FAILED, TENSOR_MEMORY_LEAK, MPS_CLIENT_TERMINATED, EXTERNAL_DEVICE, UNKNOWN.
        matches!(self.code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 810 | 911 | 999)
            .then_some(&GpuLost as _)
    }
}

/// The results of cuda.h that have a meaning here.
pub(super) mod code {
    use cudarc::driver::sys::CUresult;

    pub const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
    pub const STUB_LIBRARY: u32 = CUresult::CUDA_ERROR_STUB_LIBRARY as u32;
    pub const DEINITIALIZED: u32 = CUresult::CUDA_ERROR_DEINITIALIZED as u32;
    pub const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
    pub const NO_BINARY_FOR_GPU: u32 = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as u32;
    pub const INVALID_PTX: u32 = CUresult::CUDA_ERROR_INVALID_PTX as u32;
    pub const JIT_COMPILER_NOT_FOUND: u32 = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND as u32;
    pub const UNSUPPORTED_PTX_VERSION: u32 = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as u32;
    pub const NOT_READY: u32 = CUresult::CUDA_ERROR_NOT_READY as u32;
    pub const NOT_SUPPORTED: u32 = CUresult::CUDA_ERROR_NOT_SUPPORTED as u32;
    pub const SYSTEM_DRIVER_MISMATCH: u32 = CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as u32;
    pub const UNKNOWN: u32 = CUresult::CUDA_ERROR_UNKNOWN as u32;
}

/// Returns the remedy for a result, if known.
fn remedy(result: u32) -> &'static str {
    match result {
        code::OUT_OF_MEMORY => ": free memory on the GPU, or use a smaller model or batch",
        code::STUB_LIBRARY => ": libcuda.so.1 is the toolkit's stub; take its folder out of LD_LIBRARY_PATH",
        code::NO_BINARY_FOR_GPU | code::INVALID_PTX => {
            ": visiond's kernels need SM 7.2 or later (Xavier, Turing) and an undamaged binary"
        }
        code::UNSUPPORTED_PTX_VERSION => ": the driver does not support CUDA 11.4; update it",
        code::JIT_COMPILER_NOT_FOUND => ": libnvidia-ptxjitcompiler.so.1 is missing; install the whole driver",
        code::SYSTEM_DRIVER_MISMATCH => ": the kernel module and libcuda are of different versions; reboot",
        _ => "",
    }
}

/// Returns what else an allocation that fails means on this release of Jetson Linux; empty on others.
///
/// From 36.4.7 on, which fixes CVE-2025-33177 in NvMap, the kernel refuses large pieces of memory that is free, until a reboot
/// (github.com/ggml-org/llama.cpp, pull request 23732; github.com/0xShug0/audio.cpp, issue 12). It is also seen with 36.5.0. There are no
/// reports about 38 and 39.
pub fn refusal_of_free_memory(release: Option<(u32, u32, u32)>) -> &'static str {
    match release {
        Some(release @ (36, ..)) if release >= (36, 4, 7) => {
            "; if enough memory is free (`free -h`), reboot the board: Jetson Linux 36.4.7 and later 36 refuse large pieces after a \
             while, and log `NvMapMemAllocInternalTagged: ... error 12`"
        }
        _ => "",
    }
}

/// Returns the remedy if CUDA does not start; empty if unknown. After the start, the same results have other meanings.
///
/// On a Jetson `cuInit` returns 999 for a user who may not open /dev/nvmap (NVIDIA/NemoClaw#5018), and 801 for one in the group
/// `video` but not in `render` (NVIDIA/NemoClaw#7610, #7762). On a PC it returns 999 if /dev/nvidia-uvm cannot be opened, and
/// 100 if /dev/nvidiactl or /dev/nvidia0 cannot (seen with driver 580 on an H200).
pub(super) fn start_remedy(result: u32, is_jetson: bool) -> &'static str {
    match (result, is_jetson) {
        (code::NOT_SUPPORTED, true) => {
            ": CUDA needs a render node, /dev/dri/renderD*, and /sys: put the user into the group render (`sudo usermod -aG \
             render USER`, then log in again or restart the service); in a container pass both on (`--runtime nvidia`)"
        }
        (code::UNKNOWN, true) => {
            ": CUDA cannot open /dev/nvmap or the GPU's nodes (/dev/nvgpu, /dev/nvhost-*): put the user into the groups video \
             and render (`sudo usermod -aG video,render USER`, then log in again or restart the service); in a container pass \
             them on (`--runtime nvidia`)"
        }
        (code::UNKNOWN, false) => {
            ": /dev/nvidia-uvm is missing, denied, or lost in a suspend: run `sudo nvidia-modprobe -u -c=0`, after a suspend \
             `sudo rmmod nvidia_uvm` first"
        }
        _ => "",
    }
}

/// Why a GPU cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The driver's library is missing.
    #[error("no NVIDIA driver: {reason}")]
    NoDriver {
        /// The loader's own message.
        reason: String,
    },
    /// The driver finds no GPU.
    #[error(
        "the NVIDIA driver finds no GPU: check `nvidia-smi` and the permissions of /dev/nvidia* (Jetson: /dev/nvhost*, \
         /dev/nvmap; the user must be in the groups video and render)"
    )]
    NoDevice,
    /// There is no GPU with this index.
    #[error("GPU {index} does not exist: this machine has {count}, counted from 0")]
    NoSuchDevice {
        /// The requested index.
        index: u32,
        /// The number of GPUs.
        count: u32,
    },
    /// The driver is too old.
    #[error("the NVIDIA driver is too old: {0}; CUDA 11.4 or later is needed (JetPack 5.1 or later on a Jetson)")]
    DriverTooOld(String),
    /// The driver does not start.
    #[error("cannot use the GPU: {error}{}", start_remedy(error.code, *.is_jetson))]
    NotStarted {
        /// The error from the driver.
        error: CudaError,
        /// Whether this is a Jetson, where the same results mean other things.
        is_jetson: bool,
    },
    /// A call failed.
    #[error("cannot use the GPU: {0}")]
    Cuda(#[from] CudaError),
}

/// Why a kernel module cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModuleError {
    /// The driver cannot compile it for this GPU.
    #[error("cannot compile the kernels `{module}` for {gpu}: {error}{}", if log.is_empty() { String::new() } else { format!(": {log}") })]
    Compile {
        /// The name of the module.
        module: &'static str,
        /// The GPU's name and SM.
        gpu: String,
        /// The error from the driver.
        #[source]
        error: CudaError,
        /// The compiler's log; may be empty.
        log: String,
    },
    /// The PTX cannot be unpacked, or contains a NUL.
    #[error("the kernels `{0}` cannot be read: the binary is damaged, install it again")]
    Damaged(&'static str),
    /// The module does not contain the kernel.
    #[error("the kernels `{module}` have no `{function}`: {error}")]
    NoFunction {
        /// The name of the module.
        module: &'static str,
        /// The name of the kernel.
        function: String,
        /// The error from the driver.
        #[source]
        error: CudaError,
    },
    /// The GPU cannot be reached.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

#[cfg(test)]
mod tests {
    use visiond_ground::gpu_lost::is_gpu_lost;

    use super::*;

    fn error(code: u32, name: &str) -> CudaError {
        CudaError { call: "cuEventSynchronize", code, name: name.into() }
    }

    #[test]
    fn an_error_names_the_call_the_result_and_what_to_do() {
        assert_eq!(
            error(700, "CUDA_ERROR_ILLEGAL_ADDRESS").to_string(),
            "cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        );
        let text = error(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH").to_string();
        assert!(text.ends_with("are of different versions; reboot"), "{text}");
    }

    #[test]
    fn memory_that_a_release_refuses_although_it_is_free_asks_for_a_reboot() {
        for release in [(36, 4, 7), (36, 5, 0)] {
            let text = refusal_of_free_memory(Some(release));
            assert!(text.contains("reboot the board: Jetson Linux 36.4.7"), "{release:?}: {text}");
        }
        for release in [None, Some((35, 6, 1)), Some((36, 4, 4)), Some((38, 4, 0)), Some((39, 2, 0))] {
            assert_eq!(refusal_of_free_memory(release), "", "{release:?}");
        }
    }

    #[test]
    fn a_driver_that_does_not_start_says_what_this_machine_lacks() {
        let said = |code, name: &str, is_jetson| {
            let error = CudaError { call: "cuInit", code, name: name.into() };
            DeviceError::NotStarted { error, is_jetson }.to_string()
        };
        let unknown = |is_jetson| said(999, "CUDA_ERROR_UNKNOWN", is_jetson);
        let unsupported = |is_jetson| said(801, "CUDA_ERROR_NOT_SUPPORTED", is_jetson);
        assert!(unsupported(true).contains("/dev/dri/renderD*") && unsupported(true).contains("usermod -aG render"));
        assert!(unknown(true).contains("/dev/nvmap") && unknown(true).contains("usermod -aG video,render"));
        assert!(unknown(false).contains("nvidia-modprobe -u") && !unknown(false).contains("nvmap"));
        assert_eq!(unsupported(false), "cannot use the GPU: cuInit failed: CUDA_ERROR_NOT_SUPPORTED (801)");
        // Registering memory can also be unsupported: adding the user to a group does not help there.
        assert_eq!(
            error(801, "CUDA_ERROR_NOT_SUPPORTED").to_string(),
            "cuEventSynchronize failed: CUDA_ERROR_NOT_SUPPORTED (801)"
        );
    }

    #[test]
    fn faults_lose_the_process_its_gpu_and_refusals_do_not() {
        for code in [214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999] {
            assert!(is_gpu_lost(&error(code, "")), "{code}");
        }
        for code in [1, 2, 100, 200, 201, 218, 222, 400, 600, 701, 704, 708, 712, 713, 720, 801, 900, 901, 908] {
            assert!(!is_gpu_lost(&error(code, "")), "{code}");
        }
    }

    #[test]
    fn a_failed_compilation_shows_the_compilers_log() {
        let failed = ModuleError::Compile {
            module: "preprocess",
            gpu: "Orin (SM 8.7)".into(),
            error: CudaError { call: "cuModuleLoadDataEx", code: 218, name: "CUDA_ERROR_INVALID_PTX".into() },
            log: "line 3: syntax error".into(),
        };
        assert_eq!(
            failed.to_string(),
            "cannot compile the kernels `preprocess` for Orin (SM 8.7): cuModuleLoadDataEx failed: \
             CUDA_ERROR_INVALID_PTX (218): visiond's kernels need SM 7.2 or later (Xavier, Turing) and an undamaged \
             binary: line 3: syntax error"
        );
    }
}
