//! The slots of the methods that build engines.

use std::ffi::{c_char, c_void};

use super::{Dims32, Dims64, RawObject, methods};

type Name = *const c_char;
/// An object of ours that the library calls back.
type Callback = *mut c_void;

methods! {
    /// `nvinfer1::IBuilder`.
    Builder {
        CREATE_NETWORK "VBuilder::createNetworkV2" fn(u32) -> *mut RawObject = [11, 8, 6, 6];
        CREATE_CONFIG "VBuilder::createBuilderConfig" fn() -> *mut RawObject = [9, 7, 5, 5];
        BUILD "VBuilder::buildSerializedNetwork" fn(*mut RawObject, *mut RawObject) -> *mut RawObject = [17, 14, 11, 11];
        CREATE_PROFILE "VBuilder::createOptimizationProfile" fn() -> *mut RawObject = [12, 9, 7, 7];
        SET_ERROR_RECORDER "VBuilder::setErrorRecorder" fn(Callback) = [13, 10, 8, 8];
        SET_MAX_THREADS "VBuilder::setMaxThreads" fn(i32) -> bool = [20, 17, 14, 14];
        DLA_CORES "VBuilder::getNbDLACores" fn() -> i32 = [7, 5, 3, 3];
        IS_NETWORK_SUPPORTED "VBuilder::isNetworkSupported" fn(*const RawObject, *const RawObject) -> bool = [18, 15, 12, 12];
        HAS_FAST_FP16 "VBuilder::platformHasFastFp16" fn() -> bool = [4, 2, -, -];
        HAS_FAST_INT8 "VBuilder::platformHasFastInt8" fn() -> bool = [5, 3, -, -];
    }
}

methods! {
    /// `nvinfer1::IBuilderConfig`.
    Config {
        SET_FLAG "VBuilderConfig::setFlag" fn(i32) = [15, 11, 9, 9];
        CLEAR_FLAG "VBuilderConfig::clearFlag" fn(i32) = [14, 10, 8, 8];
        FLAG "VBuilderConfig::getFlag" fn(i32) -> bool = [16, 12, 10, 10];
        SET_MEMORY_POOL_LIMIT "VBuilderConfig::setMemoryPoolLimit" fn(i32, usize) = [47, 43, 32, 32];
        SET_PROFILING_VERBOSITY "VBuilderConfig::setProfilingVerbosity" fn(i32) = [31, 27, 25, 25];
        SET_HARDWARE_COMPATIBILITY "VBuilderConfig::setHardwareCompatibilityLevel" fn(i32) = [(6: 53), 49, 38, 38];
        SET_OPTIMIZATION_LEVEL "VBuilderConfig::setBuilderOptimizationLevel" fn(i32) = [(6: 51), 47, 36, 36];
        ADD_PROFILE "VBuilderConfig::addOptimizationProfile" fn(*const RawObject) -> i32 = [29, 25, 23, 23];
        CREATE_TIMING_CACHE "VBuilderConfig::createTimingCache" fn(*const c_void, usize) -> *mut RawObject = [44, 40, 29, 29];
        SET_TIMING_CACHE "VBuilderConfig::setTimingCache" fn(*const RawObject, bool) -> bool = [45, 41, 30, 30];
        TIMING_CACHE "VBuilderConfig::getTimingCache" fn() -> *const RawObject = [46, 42, 31, 31];
        SET_CALIBRATOR "VBuilderConfig::setInt8Calibrator" fn(Callback) = [8, 6, -, -];
        SET_CALIBRATION_PROFILE "VBuilderConfig::setCalibrationProfile" fn(*const RawObject) -> bool = [35, 31, -, -];
        SET_DEFAULT_DEVICE_TYPE "VBuilderConfig::setDefaultDeviceType" fn(i32) = [24, 20, 18, 18];
        SET_DLA_CORE "VBuilderConfig::setDLACore" fn(i32) = [22, 18, 16, 16];
        SET_PROGRESS_MONITOR "VBuilderConfig::setProgressMonitor" fn(Callback) = [-, 56, 45, 45];
        SET_MAX_AUX_STREAMS "VBuilderConfig::setMaxAuxStreams" fn(i32) = [(6: 58), 54, 43, 43];
        SET_COMPUTE_CAPABILITIES "VBuilderConfig::setNbComputeCapabilities" fn(i32) -> bool = [-, -, -, 55];
        SET_COMPUTE_CAPABILITY "VBuilderConfig::setComputeCapability" fn(i32, i32) -> bool = [-, -, -, 57];
    }
}

methods! {
    /// `nvinfer1::IOptimizationProfile`.
    Profile {
        SET_DIMENSIONS_8 "VOptimizationProfile::setDimensions" fn(Name, i32, Dims32) -> bool = [2, -, -, -];
        SET_DIMENSIONS "VOptimizationProfile::setDimensions" fn(Name, i32, *const Dims64) -> bool = [-, 2, 2, 2];
        IS_VALID "VOptimizationProfile::isValid" fn() -> bool = [9, 9, 7, 7];
    }
}

methods! {
    /// `nvinfer1::INetworkDefinition`.
    Network {
        INPUTS "VNetworkDefinition::getNbInputs" fn() -> i32 = [19, 14, 14, 14];
        INPUT "VNetworkDefinition::getInput" fn(i32) -> *mut RawObject = [20, 15, 15, 15];
        OUTPUTS "VNetworkDefinition::getNbOutputs" fn() -> i32 = [21, 16, 16, 16];
        OUTPUT "VNetworkDefinition::getOutput" fn(i32) -> *mut RawObject = [22, 17, 17, 17];
        LAYERS "VNetworkDefinition::getNbLayers" fn() -> i32 = [17, 12, 12, 12];
    }
}

methods! {
    /// `nvinfer1::ITensor`.
    Tensor {
        NAME "VTensor::getName" fn() -> Name = [3, 3, 3, 3];
        DIMENSIONS_8 "VTensor::getDimensions" fn() -> Dims32 = [5, -, -, -];
        DIMENSIONS "VTensor::getDimensions" fn() -> Dims64 = [-, 5, 5, 5];
        DATA_TYPE "VTensor::getType" fn() -> i32 = [7, 7, 6, 6];
        SET_DATA_TYPE "VTensor::setType" fn(i32) = [6, 6, -, -];
        SET_FORMATS "VTensor::setAllowedFormats" fn(u32) = [19, 19, 13, 9];
    }
}

methods! {
    /// `nvinfer1::ITimingCache`.
    TimingCache {
        SERIALIZE "VTimingCache::serialize" fn() -> *mut RawObject = [2, 2, 2, 2];
        COMBINE "VTimingCache::combine" fn(*const RawObject, bool) -> bool = [3, 3, 3, 3];
    }
}

methods! {
    /// `nvonnxparser::IParser`.
    Parser of object, deleted by [10, 9, 7, 7] {
        PARSE "IParser::parse" fn(*const c_void, usize, Name) -> bool = [0, 0, 0, 0];
        ERRORS "IParser::getNbErrors" fn() -> i32 = [6, 5, 3, 3];
        ERROR "IParser::getError" fn(i32) -> *mut RawObject = [7, 6, 4, 4];
    }
}

methods! {
    /// `nvonnxparser::IParserError`; the parser owns it.
    ParserError of object, deleted by [7, 11, 11, 11] {
        CODE "IParserError::code" fn() -> i32 = [0, 0, 0, 0];
        TEXT "IParserError::desc" fn() -> Name = [1, 1, 1, 1];
        NODE "IParserError::node" fn() -> i32 = [5, 5, 5, 5];
        NODE_NAME "IParserError::nodeName" fn() -> Name = [-, 6, 6, 6];
        NODE_OPERATOR "IParserError::nodeOperator" fn() -> Name = [-, 7, 7, 7];
    }
}
