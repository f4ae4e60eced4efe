//! A loaded engine: its tensors, its profiles, and the lock for creating contexts.

use std::ffi::{CString, c_void};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use visiond_kernels::cuda::{Device, DeviceBuffer};
use visiond_kernels::tensor::DType;

use super::abi::runtime::{Engine as EngineClass, Runtime};
use super::abi::{Abi, Owned, call, sizes_of_32, sizes_of_64};
use super::callback::text;
use super::error::TensorRtError;
use super::error_recorder::ErrorRecorder;
use super::library::Library;
use super::tensor::{Direction, ShapeLimits, TrtTensor};
use crate::backend::EngineError;

/// Where a context keeps its intermediate values.
#[derive(Debug, Clone)]
pub enum Scratch {
    /// In its own memory.
    Own,
    /// In memory shared by contexts that never run at the same time.
    Shared(SharedScratch),
}

/// Device memory of the size that one engine's contexts need, from [`TrtEngine::shared_scratch`].
#[derive(Debug, Clone)]
pub struct SharedScratch(pub(super) Arc<DeviceBuffer>);

/// An engine that is loaded onto a GPU.
pub struct TrtEngine {
    deserialized: Deserialized,
    library: &'static Library,
    device: Arc<Device>,
    tensors: Vec<TrtTensor>,
    names: Vec<CString>,
    name: String,
    profiles: usize,
    layers: usize,
    scratch_bytes: usize,
    /// Held while a context or inspector is created: an engine creates one at a time.
    making: Mutex<()>,
}

// SAFETY: TensorRT allows several threads to call an engine's methods at once, except those that create contexts, which lock
// `making`; nothing else changes after the engine was loaded.
unsafe impl Sync for TrtEngine {}

impl TrtEngine {
    /// Loads the engine in `plan`, the bytes that TensorRT wrote, without any wrapping.
    pub fn load(library: &'static Library, device: &Arc<Device>, plan: &[u8]) -> Result<Arc<Self>, EngineError> {
        device.bind()?;
        let recorder = ErrorRecorder::new(library.abi().layout);
        let mut loaded = Self {
            deserialized: Deserialized::new(library, recorder, plan).map_err(|error| cause(device, error))?,
            library,
            device: device.clone(),
            tensors: Vec::new(),
            names: Vec::new(),
            name: String::new(),
            profiles: 0,
            layers: 0,
            scratch_bytes: 0,
            making: Mutex::new(()),
        };
        loaded.describe()?;
        Ok(Arc::new(loaded))
    }

    /// Reads everything about the engine that does not change.
    fn describe(&mut self) -> Result<(), TensorRtError> {
        let engine = self.deserialized.engine.get();
        let abi = self.abi();
        // SAFETY: the engine is alive; the getters take no arguments and change nothing; `text` copies before the next call.
        let (count, profiles, layers, name) = unsafe {
            let implicit = EngineClass::IMPLICIT_BATCH.is_in(abi) && call!(engine, EngineClass::IMPLICIT_BATCH())?;
            if implicit {
                return Err(TensorRtError::ImplicitBatch);
            }
            (
                call!(engine, EngineClass::IO_TENSORS())?,
                call!(engine, EngineClass::PROFILES())?,
                call!(engine, EngineClass::LAYERS())?,
                text(call!(engine, EngineClass::NAME())?),
            )
        };
        self.profiles = usize::try_from(profiles).unwrap_or(0).max(1);
        self.layers = usize::try_from(layers).unwrap_or(0);
        self.name = name;
        // SAFETY: as above.
        self.scratch_bytes = unsafe {
            if EngineClass::DEVICE_MEMORY_SIZE_V2.is_in(abi) {
                usize::try_from(call!(engine, EngineClass::DEVICE_MEMORY_SIZE_V2())?).unwrap_or(0)
            } else {
                call!(engine, EngineClass::DEVICE_MEMORY_SIZE())?
            }
        };
        for index in 0..count {
            // SAFETY: as above; the index is below the count.
            let name = unsafe { text(call!(engine, EngineClass::IO_TENSOR_NAME(index))?) };
            let c_name = CString::new(name.as_str()).map_err(|_| TensorRtError::UnknownTensor(name.clone()))?;
            let tensor = self.tensor_of(name, &c_name)?;
            self.tensors.push(tensor);
            self.names.push(c_name);
        }
        Ok(())
    }

    fn tensor_of(&self, name: String, c_name: &CString) -> Result<TrtTensor, TensorRtError> {
        let engine = self.deserialized.engine.get();
        let c_name = c_name.as_ptr();
        // SAFETY: the engine lives, and the name is one of its tensors' and outlives the calls, which change nothing.
        let (mode, dtype, location, format, format_text) = unsafe {
            (
                call!(engine, EngineClass::TENSOR_MODE(c_name))?,
                call!(engine, EngineClass::TENSOR_DATA_TYPE(c_name))?,
                call!(engine, EngineClass::TENSOR_LOCATION(c_name))?,
                call!(engine, EngineClass::TENSOR_FORMAT(c_name))?,
                text(call!(engine, EngineClass::TENSOR_FORMAT_TEXT(c_name))?),
            )
        };
        let direction = match mode {
            1 => Direction::Input,
            2 => Direction::Output,
            _ => return Err(TensorRtError::UnknownTensor(name)),
        };
        let dtype = match dtype {
            0 => DType::F32,
            1 => DType::F16,
            2 => DType::I8,
            3 => DType::I32,
            4 => DType::Bool,
            5 => DType::U8,
            8 => DType::I64,
            other => return Err(TensorRtError::DataType { name, found: data_type_name(other) }),
        };
        // kLINEAR; in every other format the elements are not in the order of the shape.
        if format != 0 {
            return Err(TensorRtError::Format { name, found: format_text });
        }
        let shape = self.engine_shape(c_name)?.ok_or_else(|| TensorRtError::UnknownTensor(name.clone()))?;
        let shape: Vec<Option<usize>> = shape.into_iter().map(|size| usize::try_from(size).ok()).collect();
        let mut limits = Vec::new();
        if direction == Direction::Input {
            for profile in 0..self.profiles {
                let of = |selector| self.profile_shape(c_name, profile as i32, selector);
                let (min, opt, max) = (of(0)?, of(1)?, of(2)?);
                // If no dimension is open there may be no profile, and TensorRT returns no shape.
                let fixed = || shape.iter().map(|size| size.unwrap_or(0)).collect::<Vec<_>>();
                limits.push(ShapeLimits {
                    min: min.unwrap_or_else(fixed),
                    opt: opt.unwrap_or_else(fixed),
                    max: max.unwrap_or_else(fixed),
                });
            }
        }
        Ok(TrtTensor { name, direction, dtype, shape, on_host: location == 1, format: format_text, limits })
    }

    fn engine_shape(&self, name: *const std::ffi::c_char) -> Result<Option<Vec<i64>>, TensorRtError> {
        let engine = self.deserialized.engine.get();
        // SAFETY: the engine is alive, the name outlives the call, and each layout has the method with its own `Dims`.
        unsafe {
            if EngineClass::TENSOR_SHAPE_8.is_in(self.abi()) {
                Ok(sizes_of_32(call!(engine, EngineClass::TENSOR_SHAPE_8(name))?))
            } else {
                Ok(sizes_of_64(call!(engine, EngineClass::TENSOR_SHAPE(name))?))
            }
        }
    }

    fn profile_shape(
        &self,
        name: *const std::ffi::c_char,
        profile: i32,
        selector: i32,
    ) -> Result<Option<Vec<usize>>, TensorRtError> {
        let engine = self.deserialized.engine.get();
        // SAFETY: as in `engine_shape`; the profile is below their number, the selector is kMIN, kOPT or kMAX.
        let sizes = unsafe {
            if EngineClass::PROFILE_SHAPE_8.is_in(self.abi()) {
                sizes_of_32(call!(engine, EngineClass::PROFILE_SHAPE_8(name, profile, selector))?)
            } else {
                sizes_of_64(call!(engine, EngineClass::PROFILE_SHAPE(name, profile, selector))?)
            }
        };
        Ok(sizes.and_then(|sizes| sizes.into_iter().map(|size| usize::try_from(size).ok()).collect()))
    }

    /// Allocates memory for contexts that never run at the same time.
    pub fn shared_scratch(&self) -> Result<Scratch, EngineError> {
        Ok(Scratch::Shared(SharedScratch(Arc::new(DeviceBuffer::new(&self.device, self.scratch_bytes)?))))
    }

    /// Returns the inputs and outputs in the engine's order.
    pub fn tensors(&self) -> &[TrtTensor] {
        &self.tensors
    }

    /// Returns the tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TrtTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Returns the model's name; usually empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of optimization profiles, at least 1.
    pub fn profiles(&self) -> usize {
        self.profiles
    }

    /// Returns the first profile that allows these shapes, given by input name.
    pub fn profile_for(&self, shapes: &[(&str, &[usize])]) -> Option<usize> {
        (0..self.profiles).find(|profile| {
            shapes.iter().all(|(name, shape)| {
                let limits = self.tensor(name).and_then(|tensor| tensor.limits.get(*profile));
                limits.is_none_or(|limits| limits.allow(shape))
            })
        })
    }

    /// Returns the number of layers after fusion.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Returns the bytes of scratch memory that a context needs.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Returns the GPU that it was loaded onto.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the library that runs it.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn abi(&self) -> Abi {
        self.library.abi()
    }

    /// Returns the name of a tensor as a C string.
    pub(super) fn c_name(&self, name: &str) -> Result<&CString, TensorRtError> {
        let index = self.tensors.iter().position(|tensor| tensor.name == name);
        let index = index.ok_or_else(|| TensorRtError::UnknownTensor(name.to_owned()))?;
        Ok(&self.names[index])
    }

    /// Calls `make` with the engine, with no other such call at the same time.
    pub(super) fn make<T>(
        &self,
        make: impl FnOnce(super::abi::Object<EngineClass>) -> Result<T, TensorRtError>,
    ) -> Result<T, EngineError> {
        let _making = self.making.lock();
        self.device.bind()?;
        make(self.deserialized.engine.get()).map_err(|error| cause(&self.device, error))
    }

    /// Returns the error for a refused call, with the reported errors.
    pub(super) fn refused(&self, doing: impl Into<String>) -> TensorRtError {
        TensorRtError::Refused {
            version: self.library.version(),
            doing: doing.into(),
            reported: self.deserialized.recorder.take(),
        }
    }
}

impl Drop for TrtEngine {
    fn drop(&mut self) {
        if let Err(error) = self.device.bind() {
            log::warn!("{error}");
        }
    }
}

impl fmt::Debug for TrtEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrtEngine({} tensors, {} layers, {})", self.tensors.len(), self.layers, self.library.version())
    }
}

/// The engine that TensorRT deserializes from a plan.
pub(super) struct Deserialized {
    // Fields drop in order: the engine before its runtime, both before the recorder that they call.
    engine: Owned<EngineClass>,
    _runtime: Owned<Runtime>,
    recorder: Arc<ErrorRecorder>,
}

impl Deserialized {
    /// Deserializes a plan; runtime and engine report to `recorder`.
    pub(super) fn new(
        library: &'static Library,
        recorder: Arc<ErrorRecorder>,
        plan: &[u8],
    ) -> Result<Self, TensorRtError> {
        // An early return drops it before the parameter that it points to.
        let runtime = library.create_runtime()?;
        let engine = deserialize(library, &runtime, &recorder, plan)?;
        Ok(Self { engine, _runtime: runtime, recorder })
    }
}

/// Deserializes a plan. It fails with an error, even without a GPU.
pub(super) fn deserialize(
    library: &Library,
    runtime: &Owned<Runtime>,
    recorder: &ErrorRecorder,
    plan: &[u8],
) -> Result<Owned<EngineClass>, TensorRtError> {
    let abi = library.abi();
    let runtime = runtime.get();
    super::logger::take_errors();
    // SAFETY: the runtime is alive; the recorder has the layout's virtual methods and outlives runtime and engine (the caller
    // ensures it). The plan outlives the call, which copies what it keeps. Engines that contain host code are allowed,
    // because an engine is trusted like a program in any case.
    let raw = unsafe {
        call!(runtime, Runtime::SET_ERROR_RECORDER(recorder.as_ptr()))?;
        if Runtime::SET_HOST_CODE_ALLOWED.is_in(abi) {
            call!(runtime, Runtime::SET_HOST_CODE_ALLOWED(true))?;
        }
        let (start, len) = (plan.as_ptr().cast::<c_void>(), plan.len());
        if Runtime::DESERIALIZE_8.is_in(abi) {
            call!(runtime, Runtime::DESERIALIZE_8(start, len, std::ptr::null_mut()))?
        } else {
            call!(runtime, Runtime::DESERIALIZE(start, len))?
        }
    };
    // SAFETY: `raw` is what the runtime returned for an engine, and we own it.
    unsafe { Owned::from_raw(raw, abi) }.ok_or_else(|| TensorRtError::Refused {
        version: library.version(),
        doing: "load the engine".to_owned(),
        reported: recorder.take(),
    })
}

/// Returns why TensorRT failed: the lost GPU, or TensorRT's own message.
fn cause(device: &Device, refused: TensorRtError) -> EngineError {
    device.lost().map_or_else(|| refused.into(), EngineError::from)
}

/// Returns TensorRT's name for an element type.
fn data_type_name(number: i32) -> String {
    let names = [(6, "FP8"), (7, "BF16"), (9, "INT4"), (10, "FP4"), (11, "E8M0")];
    let found = names.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| format!("type {number}"), |(_, name)| (*name).to_owned())
}
