//! The slots of the methods that load and run engines.

use std::ffi::{c_char, c_void};

use super::{Abi, Dims32, Dims64, Owned, RawObject, call, methods};
use crate::tensorrt::error::TensorRtError;

type Name = *const c_char;
type Stream = *mut c_void;
/// An object of ours that the library calls back.
type Callback = *mut c_void;

methods! {
    /// `nvinfer1::IRuntime`.
    Runtime {
        DESERIALIZE_8 "VRuntime::deserializeCudaEngine" fn(*const c_void, usize, *mut c_void) -> *mut RawObject = [2, -, -, -];
        DESERIALIZE "VRuntime::deserializeCudaEngine" fn(*const c_void, usize) -> *mut RawObject = [-, 3, 3, 3];
        SET_DLA_CORE "VRuntime::setDLACore" fn(i32) = [3, 5, 4, 4];
        DLA_CORE "VRuntime::getDLACore" fn() -> i32 = [4, 6, 5, 5];
        DLA_CORES "VRuntime::getNbDLACores" fn() -> i32 = [5, 7, 6, 6];
        SET_ERROR_RECORDER "VRuntime::setErrorRecorder" fn(Callback) = [7, 9, 8, 8];
        ERROR_RECORDER "VRuntime::getErrorRecorder" fn() -> Callback = [8, 10, 9, 9];
        LOGGER "VRuntime::getLogger" fn() -> Callback = [9, 11, 10, 10];
        SET_MAX_THREADS "VRuntime::setMaxThreads" fn(i32) -> bool = [10, 12, 11, 11];
        MAX_THREADS "VRuntime::getMaxThreads" fn() -> i32 = [11, 13, 12, 12];
        SET_HOST_CODE_ALLOWED "VRuntime::setEngineHostCodeAllowed" fn(bool) = [(6: 20), 21, 20, 20];
        HOST_CODE_ALLOWED "VRuntime::getEngineHostCodeAllowed" fn() -> bool = [(6: 21), 22, 21, 21];
    }
}

methods! {
    /// `nvinfer1::ICudaEngine`.
    Engine {
        IO_TENSORS "VCudaEngine::getNbIOTensors" fn() -> i32 = [45, 30, 26, 26];
        IO_TENSOR_NAME "VCudaEngine::getIOTensorName" fn(i32) -> Name = [46, 31, 27, 27];
        TENSOR_SHAPE_8 "VCudaEngine::getTensorShape" fn(Name) -> Dims32 = [34, -, -, -];
        TENSOR_SHAPE "VCudaEngine::getTensorShape" fn(Name) -> Dims64 = [-, 19, 15, 15];
        TENSOR_DATA_TYPE "VCudaEngine::getTensorDataType" fn(Name) -> i32 = [35, 20, 16, 16];
        TENSOR_LOCATION "VCudaEngine::getTensorLocation" fn(Name) -> i32 = [36, 21, 17, 17];
        IS_SHAPE_TENSOR "VCudaEngine::isShapeInferenceIO" fn(Name) -> bool = [37, 22, 18, 18];
        TENSOR_MODE "VCudaEngine::getTensorIOMode" fn(Name) -> i32 = [38, 23, 19, 19];
        TENSOR_FORMAT "VCudaEngine::getTensorFormat" fn(Name) -> i32 = [41, 26, 22, 22];
        TENSOR_FORMAT_TEXT "VCudaEngine::getTensorFormatDesc" fn(Name) -> Name = [42, 27, 23, 23];
        PROFILE_SHAPE_8 "VCudaEngine::getProfileShape" fn(Name, i32, i32) -> Dims32 = [44, -, -, -];
        PROFILE_SHAPE "VCudaEngine::getProfileShape" fn(Name, i32, i32) -> Dims64 = [-, 29, 25, 25];
        PROFILES "VCudaEngine::getNbOptimizationProfiles" fn() -> i32 = [22, 10, 8, 8];
        DEVICE_MEMORY_SIZE "VCudaEngine::getDeviceMemorySize" fn() -> usize = [14, 7, -, -];
        DEVICE_MEMORY_SIZE_V2 "VCudaEngine::getDeviceMemorySizeV2" fn() -> i64 = [-, (1: 52), 44, 44];
        CREATE_CONTEXT_8 "VCudaEngine::createExecutionContext" fn() -> *mut RawObject = [11, -, -, -];
        CREATE_CONTEXT "VCudaEngine::createExecutionContext" fn(i32) -> *mut RawObject = [-, 5, 5, 5];
        CREATE_CONTEXT_WITHOUT_MEMORY "VCudaEngine::createExecutionContextWithoutDeviceMemory" fn() -> *mut RawObject
            = [13, 6, -, -];
        CREATE_INSPECTOR "VCudaEngine::createEngineInspector" fn() -> *mut RawObject = [33, 18, 14, 14];
        NAME "VCudaEngine::getName" fn() -> Name = [21, 9, 7, 7];
        LAYERS "VCudaEngine::getNbLayers" fn() -> i32 = [9, 3, 3, 3];
        IMPLICIT_BATCH "VCudaEngine::hasImplicitBatchDimension" fn() -> bool = [30, 15, -, -];
        IS_REFITTABLE "VCudaEngine::isRefittable" fn() -> bool = [15, 8, 6, 6];
        SET_ERROR_RECORDER "VCudaEngine::setErrorRecorder" fn(Callback) = [28, 13, 10, 10];
        AUX_STREAMS "VCudaEngine::getNbAuxStreams" fn() -> i32 = [(6: 49), 33, 29, 29];
        HARDWARE_COMPATIBILITY "VCudaEngine::getHardwareCompatibilityLevel" fn() -> i32 = [(6: 47), 32, 28, 28];
        PROFILING_VERBOSITY "VCudaEngine::getProfilingVerbosity" fn() -> i32 = [32, 17, 13, 13];
    }
}

methods! {
    /// `nvinfer1::IExecutionContext`.
    Context {
        SET_TENSOR_ADDRESS "VExecutionContext::setTensorAddress" fn(Name, *mut c_void) -> bool = [32, 24, 23, 23];
        TENSOR_ADDRESS "VExecutionContext::getTensorAddress" fn(Name) -> *const c_void = [33, 25, 24, 24];
        SET_INPUT_SHAPE_8 "VExecutionContext::setInputShape" fn(Name, *const Dims32) -> bool = [29, -, -, -];
        SET_INPUT_SHAPE "VExecutionContext::setInputShape" fn(Name, *const Dims64) -> bool = [-, 21, 20, 20];
        TENSOR_SHAPE_8 "VExecutionContext::getTensorShape" fn(Name) -> Dims32 = [30, -, -, -];
        TENSOR_SHAPE "VExecutionContext::getTensorShape" fn(Name) -> Dims64 = [-, 22, 21, 21];
        INFER_SHAPES "VExecutionContext::inferShapes" fn(i32, *mut Name) -> i32 = [35, 28, 27, 27];
        ENQUEUE "VExecutionContext::enqueueV3" fn(Stream) -> bool = [44, 37, 36, 36];
        SET_PROFILE "VExecutionContext::setOptimizationProfileAsync" fn(i32, Stream) -> bool = [25, 17, 16, 16];
        PROFILE "VExecutionContext::getOptimizationProfile" fn() -> i32 = [14, 11, 11, 11];
        SET_DEVICE_MEMORY "VExecutionContext::setDeviceMemory" fn(*mut c_void) = [11, 10, 10, 10];
        SET_DEVICE_MEMORY_V2 "VExecutionContext::setDeviceMemoryV2" fn(*mut c_void, i64) = [-, (1: 49), 48, 48];
        SET_PROFILER "VExecutionContext::setProfiler" fn(Callback) = [6, 5, 5, 5];
        REPORT_TO_PROFILER "VExecutionContext::reportToProfiler" fn() -> bool = [28, 20, 19, 19];
        SET_ENQUEUE_EMITS_PROFILE "VExecutionContext::setEnqueueEmitsProfile" fn(bool) = [26, 18, 17, 17];
        SET_OUTPUT_ALLOCATOR "VExecutionContext::setOutputAllocator" fn(Name, Callback) -> bool = [39, 32, 31, 31];
        MAX_OUTPUT_SIZE "VExecutionContext::getMaxOutputSize" fn(Name) -> i64 = [41, 34, 33, 33];
        SET_NVTX_VERBOSITY "VExecutionContext::setNvtxVerbosity" fn(i32) -> bool = [47, 40, 39, 39];
        SET_NAME "VExecutionContext::setName" fn(Name) = [9, 8, 8, 8];
        SET_ERROR_RECORDER "VExecutionContext::setErrorRecorder" fn(Callback) = [21, 14, 13, 13];
    }
}

methods! {
    /// `nvinfer1::IEngineInspector`.
    Inspector {
        SET_CONTEXT "VEngineInspector::setExecutionContext" fn(*const RawObject) -> bool = [2, 3, 3, 3];
        LAYER "VEngineInspector::getLayerInformation" fn(i32, i32) -> Name = [4, 5, 5, 5];
        ENGINE "VEngineInspector::getEngineInformation" fn(i32) -> Name = [5, 6, 6, 6];
    }
}

methods! {
    /// `nvinfer1::IHostMemory`.
    HostMemory {
        DATA "VHostMemory::data" fn() -> *mut c_void = [2, 2, 2, 2];
        SIZE "VHostMemory::size" fn() -> usize = [3, 3, 3, 3];
    }
}

/// Copies the bytes of an `IHostMemory` and deletes it; `None` if there is none.
///
/// # Safety
/// A method of a library of this `abi` returned `raw` as an `IHostMemory`, and we own it; the objects that it needs
/// are alive.
pub unsafe fn host_bytes(raw: *mut RawObject, abi: Abi) -> Result<Option<Vec<u8>>, TensorRtError> {
    // SAFETY: the caller's promise.
    let Some(memory) = (unsafe { Owned::<HostMemory>::from_raw(raw, abi) }) else { return Ok(None) };
    // SAFETY: the memory is alive; the methods take no arguments.
    let (start, len) = unsafe { (call!(memory.get(), HostMemory::DATA())?, call!(memory.get(), HostMemory::SIZE())?) };
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: the memory holds `len` bytes as long as it lives.
    Ok(Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec()))
}
