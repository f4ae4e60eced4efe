//! One context of an engine: sets shapes and addresses, and runs.

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::sync::Arc;

use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::cuda::{CudaStream, DeviceAddress};

use super::abi::runtime::{Context as ContextClass, Engine as EngineClass, Inspector};
use super::abi::{Owned, call, dims_32, dims_64, sizes_of_32, sizes_of_64};
use super::callback::text;
use super::engine::{Scratch, SharedScratch, TrtEngine};
use super::error::TensorRtError;
use super::error_recorder::ErrorRecorder;
use super::profiler::{LayerTime, Profiler};
use super::tensor::{Direction, TrtTensor};
use super::version::Layout;
use crate::backend::EngineError;

/// `ExecutionContextAllocationStrategy`: the context's own memory, or the caller's.
const OWN_MEMORY: i32 = 0;
const CALLERS_MEMORY: i32 = 2;

/// `LayerInformationFormat::kJSON`.
const JSON: i32 = 1;

/// One context of an engine. Contexts of one engine share its weights and may run at the same time, each on its own stream,
/// unless they share scratch memory.
pub struct TrtContext {
    // Fields drop in this order.
    context: Owned<ContextClass>,
    recorder: Arc<ErrorRecorder>,
    _scratch: Scratch,
    engine: Arc<TrtEngine>,
}

impl TrtEngine {
    /// Makes a context.
    pub fn context(self: &Arc<Self>, scratch: Scratch) -> Result<TrtContext, EngineError> {
        let abi = self.abi();
        let own = matches!(scratch, Scratch::Own);
        let recorder = ErrorRecorder::new(abi.layout);
        // SAFETY: the engine is alive and creates nothing else at the same time; these layouts have strategies with these
        // numbers.
        let context = self.make(|object| unsafe {
            let raw = match (abi.layout, own) {
                (Layout::V8, true) => call!(object, EngineClass::CREATE_CONTEXT_8())?,
                (Layout::V8 | Layout::V10, false) => call!(object, EngineClass::CREATE_CONTEXT_WITHOUT_MEMORY())?,
                (_, true) => call!(object, EngineClass::CREATE_CONTEXT(OWN_MEMORY))?,
                (_, false) => call!(object, EngineClass::CREATE_CONTEXT(CALLERS_MEMORY))?,
            };
            // The engine, which the context needs, is stored beside it and drops after it.
            Owned::from_raw(raw, abi).ok_or_else(|| self.refused("make a context of the engine"))
        })?;
        // SAFETY: the recorder has the layout's virtual methods and drops after the context.
        unsafe { call!(context.get(), ContextClass::SET_ERROR_RECORDER(recorder.as_ptr())) }?;
        if let Scratch::Shared(SharedScratch(shared)) = &scratch {
            let (address, len) = (shared.address().0 as *mut c_void, shared.len());
            if len < self.scratch_bytes() {
                return Err(self.refused("use scratch memory of another, smaller engine").into());
            }
            // SAFETY: the memory is as large as the engine requires, aligned by CUDA to 256 bytes, and drops after the context.
            unsafe {
                if ContextClass::SET_DEVICE_MEMORY_V2.is_in(abi) {
                    call!(context.get(), ContextClass::SET_DEVICE_MEMORY_V2(address, len as i64))?;
                } else {
                    call!(context.get(), ContextClass::SET_DEVICE_MEMORY(address))?;
                }
            }
        }
        Ok(TrtContext { context, recorder, _scratch: scratch, engine: self.clone() })
    }

    /// Returns the engine's layers as TensorRT's JSON: `{"Layers": [...], "Bindings": [...]}`, with names only unless it was
    /// built with detailed profiling verbosity. With a context, sizes that follow from its shapes are filled in.
    pub fn information(&self, context: Option<&TrtContext>) -> Result<String, EngineError> {
        let abi = self.abi();
        self.make(|engine| {
            // SAFETY: the engine is alive; we own the inspector and drop it at the end of this function, before the engine
            // and the context; its text lives as long as the inspector, and is copied.
            unsafe {
                let raw = call!(engine, EngineClass::CREATE_INSPECTOR())?;
                let inspector: Owned<Inspector> =
                    Owned::from_raw(raw, abi).ok_or_else(|| self.refused("inspect the engine"))?;
                if let Some(context) = context {
                    call!(inspector.get(), Inspector::SET_CONTEXT(context.context.get().as_ptr()))?;
                }
                Ok(text(call!(inspector.get(), Inspector::ENGINE(JSON))?))
            }
        })
    }
}

impl TrtContext {
    /// Returns the engine.
    pub fn engine(&self) -> &Arc<TrtEngine> {
        &self.engine
    }

    fn refused(&self, doing: impl Into<String>) -> TensorRtError {
        let version = self.engine.library().version();
        TensorRtError::Refused { version, doing: doing.into(), reported: self.recorder.take() }
    }

    fn tensor(&self, name: &str) -> Result<(&TrtTensor, &CString), TensorRtError> {
        let unknown = || TensorRtError::UnknownTensor(name.to_owned());
        Ok((self.engine.tensor(name).ok_or_else(unknown)?, self.engine.c_name(name)?))
    }

    /// Sets the shape of an input.
    pub fn set_input_shape(&mut self, name: &str, shape: &[usize]) -> Result<(), EngineError> {
        self.engine.device().bind()?;
        let (_, c_name) = self.tensor(name)?;
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let context = self.context.get();
        let refused = || self.refused(format!("take {shape:?} as the shape of `{name}`"));
        // SAFETY: the context is alive; name and dimensions outlive the call; each layout has the method with its own `Dims`.
        let taken = unsafe {
            if ContextClass::SET_INPUT_SHAPE_8.is_in(self.engine.abi()) {
                let dims = dims_32(&sizes).ok_or_else(refused)?;
                call!(context, ContextClass::SET_INPUT_SHAPE_8(c_name.as_ptr(), &dims))?
            } else {
                let dims = dims_64(&sizes).ok_or_else(refused)?;
                call!(context, ContextClass::SET_INPUT_SHAPE(c_name.as_ptr(), &dims))?
            }
        };
        if taken { Ok(()) } else { Err(refused().into()) }
    }

    /// Computes the outputs' shapes. The error names the inputs that are not set.
    pub fn infer_shapes(&mut self) -> Result<(), EngineError> {
        self.engine.device().bind()?;
        let mut missing: [*const c_char; 8] = [std::ptr::null(); 8];
        // SAFETY: the context is alive; the array has the stated number of entries and outlives the call.
        let count = unsafe {
            call!(self.context.get(), ContextClass::INFER_SHAPES(missing.len() as i32, missing.as_mut_ptr()))
        }?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: TensorRT filled entries with names that live as long as the engine; the others are null.
        let names: Vec<String> = missing.iter().map(|name| unsafe { text(*name) }).collect();
        let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).map(|name| format!("`{name}`")).collect();
        let doing = match names.is_empty() {
            true => "work out the outputs' shapes".to_owned(),
            false => format!("work out the outputs' shapes without shape and numbers of {}", names.join(", ")),
        };
        Err(self.refused(doing).into())
    }

    /// Returns the current shape of a tensor; for an output, after every input has its shape.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, EngineError> {
        let (tensor, c_name) = self.tensor(name)?;
        let context = self.context.get();
        // SAFETY: as in `set_input_shape`.
        let sizes = unsafe {
            if ContextClass::TENSOR_SHAPE_8.is_in(self.engine.abi()) {
                sizes_of_32(call!(context, ContextClass::TENSOR_SHAPE_8(c_name.as_ptr()))?)
            } else {
                sizes_of_64(call!(context, ContextClass::TENSOR_SHAPE(c_name.as_ptr()))?)
            }
        };
        let sizes = sizes.ok_or_else(|| self.refused(format!("return the shape of `{name}`")))?;
        let shape: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
        Ok(shape.ok_or_else(|| match tensor.direction {
            Direction::Input => TensorRtError::ShapeOpen(name.to_owned()),
            Direction::Output => TensorRtError::DependsOnData(name.to_owned()),
        })?)
    }

    /// Sets the address of a tensor on the GPU. [`TrtContext::enqueue`] reads or writes it there.
    pub fn set_address(&mut self, name: &str, address: DeviceAddress) -> Result<(), EngineError> {
        if self.tensor(name)?.0.on_host {
            return Err(TensorRtError::OnHost(name.to_owned()).into());
        }
        self.set_any_address(name, address.0 as *mut c_void)
    }

    /// Sets the address of a tensor that is in host memory. Inputs are read when shapes are computed.
    ///
    /// # Safety
    /// `numbers` has room for the tensor and stays valid until another address is set or the context is dropped.
    pub(super) unsafe fn set_host_address(&mut self, name: &str, numbers: *mut u8) -> Result<(), EngineError> {
        self.set_any_address(name, numbers.cast())
    }

    fn set_any_address(&mut self, name: &str, address: *mut c_void) -> Result<(), EngineError> {
        self.engine.device().bind()?;
        let (_, c_name) = self.tensor(name)?;
        // SAFETY: the context is alive; the name outlives the call, which only stores the address of a tensor on the GPU, and
        // may read one in host memory (`set_host_address`).
        let taken = unsafe { call!(self.context.get(), ContextClass::SET_TENSOR_ADDRESS(c_name.as_ptr(), address)) }?;
        if taken { Ok(()) } else { Err(self.refused(format!("take an address for `{name}`")).into()) }
    }

    /// Selects an optimization profile. Every input's shape is open again afterwards.
    ///
    /// Two contexts of a TensorRT 8 engine may not use the same profile at once.
    pub fn set_profile(&mut self, profile: usize, stream: &CudaStream) -> Result<(), EngineError> {
        self.engine.device().bind()?;
        let index = i32::try_from(profile).unwrap_or(i32::MAX);
        // SAFETY: context and stream are alive; this waits for the queued work before it returns.
        let taken = unsafe { call!(self.context.get(), ContextClass::SET_PROFILE(index, stream.raw())) }?;
        stream.synchronize()?;
        let profiles = self.engine.profiles();
        if taken { Ok(()) } else { Err(self.refused(format!("use profile {profile} of {profiles}")).into()) }
    }

    /// Queues a run and returns without waiting.
    ///
    /// # Safety
    /// The address of every tensor is set to memory of its size that stays valid until the run is done, or for every launch of
    /// a captured graph. No other context that shares its scratch memory runs meanwhile, and this one does not run on another
    /// stream.
    pub unsafe fn enqueue(&mut self, stream: &CudaStream) -> Result<(), EngineError> {
        self.engine.device().bind()?;
        // SAFETY: context and stream are alive; the caller guarantees the rest.
        let queued = unsafe { call!(self.context.get(), ContextClass::ENQUEUE(stream.raw())) }?;
        if queued {
            return Ok(());
        }
        let refused = self.refused("run the model");
        // After a kernel fault, the process has lost the GPU, and that is the error. During a capture, CUDA rejects this call
        // itself.
        match stream.synchronize() {
            Err(error) if is_gpu_lost(&error) => Err(error.into()),
            _ => Err(refused.into()),
        }
    }

    /// Runs once, waits, and returns how long each layer took.
    ///
    /// # Safety
    /// The same as for [`TrtContext::enqueue`]. The stream is not being captured.
    pub unsafe fn profile(&mut self, stream: &CudaStream) -> Result<Vec<LayerTime>, EngineError> {
        let profiler = Profiler::new(self.engine.abi().layout);
        let context = self.context.get();
        // SAFETY: the context is alive; the profiler has the layout's virtual methods and lives until it is removed below.
        unsafe { call!(context, ContextClass::SET_PROFILER(profiler.as_ptr())) }?;
        // SAFETY: the caller's promise.
        let ran = unsafe { self.enqueue(stream) }.and_then(|()| Ok(stream.synchronize()?));
        // SAFETY: as above; null removes the profiler.
        unsafe { call!(context, ContextClass::SET_PROFILER(std::ptr::null_mut())) }?;
        ran?;
        Ok(profiler.take())
    }
}

impl Drop for TrtContext {
    fn drop(&mut self) {
        if let Err(error) = self.engine.device().bind() {
            log::warn!("{error}");
        }
    }
}

impl fmt::Debug for TrtContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrtContext({:?})", self.engine)
    }
}
