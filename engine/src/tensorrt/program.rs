//! Engines as a backend for sessions: tensors in host memory, copied to the GPU and back around each run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use visiond_kernels::cuda::{CudaStream, Device, DeviceBuffer};
use visiond_kernels::tensor::TensorRef;

use super::context::TrtContext;
use super::declared::{check_shape, declared};
use super::engine::{Scratch, TrtEngine};
use super::error::TensorRtError;
use super::error_recorder::Reported;
use super::library::Library;
use super::plan::{self, Plan, PlanError, PlanHeader, rebuild_command};
use super::sidecar::Sidecar;
use super::tensor::Direction;
use super::version::Version;
use crate::backend::{
    Backend, BackendModel, EngineError, EngineOptions, InputTensor, ModelFile, Program, ProgramContext,
};

/// Loads the engine at `path`, both as the model that every backend returns and as the engine on the GPU.
pub(crate) fn load(path: &Path, options: &EngineOptions) -> Result<(BackendModel, Arc<TrtEngine>), EngineError> {
    let bytes = plan::read_plan(path)?;
    plan::check_length(path, &bytes)?;
    let file = ModelFile::new(path, &bytes);
    let Some(Plan { header, offset, mut metadata }) = Plan::parse(&bytes) else {
        let command = rebuild_command(path);
        return Err(PlanError::NotAPlan(path.to_owned(), command).into());
    };
    file.check_sha256(options.sha256.as_deref())?;
    let (library, device) = library_and_gpu(path, &header, options)?;
    let engine = TrtEngine::load(library, &device, &bytes[offset..]);
    // By now, TensorRT has its own copy.
    drop(bytes);
    if !plan::has_plan_name(path) {
        log::info!("{} is a TensorRT engine, although its name does not say so", path.display());
    }
    let sidecar = Sidecar::of(path).unwrap_or_else(|error| {
        log::warn!("{error}");
        None
    });
    let engine = engine.map_err(|error| explained(path, &header, &device, library, sidecar.as_ref(), error))?;
    // The exporter's metadata is in the ONNX file; `visiond build` stores a copy beside the engine.
    if let Some(sidecar) = sidecar.filter(|sidecar| metadata.is_empty() && sidecar.engine.sha256 == file.sha256) {
        metadata = sidecar.metadata;
    }
    let (inputs, outputs) = declared(path, &engine, options)?;
    let description = format!("{} on {}", library.description(), device.facts().label());
    let model = BackendModel {
        program: Box::new(TensorRtProgram { engine: Arc::clone(&engine), path: path.to_owned() }),
        backend: Backend::TensorRt,
        description,
        file,
        metadata,
        inputs: inputs.into(),
        outputs: outputs.into(),
    };
    Ok((model, engine))
}

/// Returns the library and the GPU for an engine, or the reason in the header that rules them out before anything is loaded.
fn library_and_gpu(
    path: &Path,
    header: &PlanHeader,
    options: &EngineOptions,
) -> Result<(&'static Library, Arc<Device>), EngineError> {
    let (built, command) = (header.to_string(), || rebuild_command(path));
    // CUDA comes first: TensorRT uses the context that it finds.
    let device = options.device.open();
    let library = Library::for_engine(options.tensorrt_library.as_deref(), header.version());
    if let Ok(library) = library
        && !may_run(library.version(), header, device.is_ok())
    {
        let (path, installed) = (path.to_owned(), library.version());
        return Err(
            PlanError::OtherVersion { path, built, installed, command: command(), reason: String::new() }.into()
        );
    }
    let device = device.map_err(|error| PlanError::NoGpu {
        path: path.to_owned(),
        built: built.clone(),
        reason: error.to_string(),
    })?;
    let library = library.map_err(|error| PlanError::NoLibrary {
        path: path.to_owned(),
        built: built.clone(),
        reason: error.to_string(),
    })?;
    if header.is_for(device.facts().sm) == Some(false) {
        let gpus: Vec<String> = header.gpus().iter().map(|(major, minor)| format!("SM {major}.{minor}")).collect();
        return Err(PlanError::OtherGpu {
            path: path.to_owned(),
            built: gpus.join(", "),
            installed: device.facts().label(),
            command: command(),
        }
        .into());
    }
    Ok((library, device))
}

/// Whether one version may load an engine of another, by the version numbers. TensorRT for RTX loads only engines
/// of its own release. TensorRT loads older engines that were built to be compatible, which only TensorRT itself can tell:
/// with a GPU, it decides.
fn may_run(installed: Version, header: &PlanHeader, has_gpu: bool) -> bool {
    let built = header.version();
    if installed.rtx || built.rtx {
        return installed == built;
    }
    has_gpu || (installed.major, installed.minor, installed.patch) >= (built.major, built.minor, built.patch)
}

/// Adds the facts of header and sidecar to TensorRT's own message about an engine that it rejects.
fn explained(
    path: &Path,
    header: &PlanHeader,
    device: &Device,
    library: &Library,
    sidecar: Option<&Sidecar>,
    error: EngineError,
) -> EngineError {
    let EngineError::Backend(inner) = &error else { return error };
    let Some(TensorRtError::Refused { reported, .. }) = inner.downcast_ref() else { return error };
    let (built, installed) = (header.to_string(), library.version());
    if let Some(plugin) = library.missing_plugin(reported.iter().map(|reported| reported.text.as_str())) {
        return PlanError::Plugin(installed, path.to_owned(), plugin).into();
    }
    let (path, command) = (path.to_owned(), rebuild_command(path));
    // The first report explains it; later ones say that the call failed.
    let reason = reported.iter().map(Reported::plain).find(|text| !text.is_empty()).unwrap_or_default();
    let same = match header {
        PlanHeader::OldTensorRt { .. } => installed.major == 8 && installed.minor == 5,
        PlanHeader::TensorRt { version } | PlanHeader::Rtx { version, .. } => *version == installed,
    };
    if !same {
        return PlanError::OtherVersion { path, built, installed, command, reason }.into();
    }
    let (major, minor) = device.facts().sm;
    let here = format!("{major}.{minor}");
    if let Some((gpu, sm)) = sidecar.and_then(|sidecar| sidecar.gpu.as_ref().zip(sidecar.sm.as_ref()))
        && !header.is_rtx()
        && *sm != here
    {
        let (built, installed) = (format!("{gpu} (SM {sm})"), device.facts().label());
        return PlanError::OtherGpu { path, built, installed, command }.into();
    }
    let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
    PlanError::Refused { path, built, installed, reason, command }.into()
}

/// An engine that sessions run.
struct TensorRtProgram {
    engine: Arc<TrtEngine>,
    path: PathBuf,
}

impl Program for TensorRtProgram {
    fn context(&self) -> Result<Box<dyn ProgramContext>, EngineError> {
        let context = self.engine.context(Scratch::Own)?;
        let stream = CudaStream::new(self.engine.device())?;
        let bound = |direction| {
            let tensors = self.engine.tensors().iter().filter(move |tensor| tensor.direction == direction);
            tensors.map(|tensor| BoundTensor { name: tensor.name.clone(), ..BoundTensor::default() }).collect()
        };
        Ok(Box::new(TensorRtContext {
            inputs: bound(Direction::Input),
            outputs: bound(Direction::Output),
            profile: 0,
            has_run: false,
            path: self.path.clone(),
            context,
            stream,
        }))
    }
}

/// One context of a session.
struct TensorRtContext {
    // Fields drop in order: the context before the memory that it points to.
    context: TrtContext,
    inputs: Vec<BoundTensor>,
    outputs: Vec<BoundTensor>,
    profile: usize,
    has_run: bool,
    /// The engine's file, for messages.
    path: PathBuf,
    stream: CudaStream,
}

/// A tensor of the session and its memory.
#[derive(Default)]
struct BoundTensor {
    name: String,
    shape: Vec<usize>,
    len_bytes: usize,
    buffer: Option<DeviceBuffer>,
    /// For outputs: the last run's result. For inputs in host memory: the numbers.
    host: Vec<u8>,
}

impl TensorRtContext {
    /// Sets shapes and addresses; does nothing if no shape changed.
    fn prepare(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError> {
        let unchanged = |(bound, input): (&BoundTensor, &InputTensor)| bound.shape == input.shape();
        let on_host = self.context.engine().tensors().iter().any(|tensor| tensor.on_host);
        if self.has_run && !on_host && self.inputs.iter().zip(inputs).all(unchanged) {
            return Ok(());
        }
        self.has_run = false;
        self.choose_profile(inputs)?;
        for (index, input) in inputs.iter().enumerate() {
            let bound = &mut self.inputs[index];
            bound.shape.clear();
            bound.shape.extend_from_slice(input.shape());
            bound.len_bytes = input.bytes().len();
            self.context.set_input_shape(&bound.name, input.shape())?;
            bind_memory(&mut self.context, bound, input.bytes())?;
        }
        self.context.infer_shapes()?;
        for bound in &mut self.outputs {
            bound.shape = self.context.shape(&bound.name)?;
            let tensor = self.context.engine().tensor(&bound.name);
            let each = tensor.map_or(1, |tensor| tensor.dtype.size_bytes());
            bound.len_bytes = bound.shape.iter().product::<usize>() * each;
            bound.host.resize(bound.len_bytes, 0);
            bind_memory(&mut self.context, bound, &[])?;
        }
        Ok(())
    }

    /// Selects the first profile that allows the inputs' shapes.
    fn choose_profile(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError> {
        let engine = self.context.engine().clone();
        let of = |(bound, input): (&BoundTensor, &InputTensor)| (bound.name.clone(), input.shape().to_vec());
        let shapes: Vec<_> = self.inputs.iter().zip(inputs).map(of).collect();
        let shapes: Vec<_> = shapes.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
        if let Some(profile) = engine.profile_for(&shapes) {
            if profile != self.profile {
                self.context.set_profile(profile, &self.stream)?;
                self.profile = profile;
            }
            return Ok(());
        }
        for (bound, input) in self.inputs.iter().zip(inputs) {
            if let Some(tensor) = engine.tensor(&bound.name) {
                check_shape(&self.path, tensor, input.shape())?;
            }
        }
        // Each shape is within some profile, but no profile allows all of them: TensorRT names the rejected one.
        Ok(())
    }
}

/// Allocates memory for a tensor if necessary, and sets its address in the context.
fn bind_memory(context: &mut TrtContext, bound: &mut BoundTensor, numbers: &[u8]) -> Result<(), EngineError> {
    let engine = context.engine().clone();
    if engine.tensor(&bound.name).is_some_and(|tensor| tensor.on_host) {
        bound.host.resize(bound.len_bytes.max(8), 0);
        bound.host[..numbers.len()].copy_from_slice(numbers);
        // SAFETY: the memory is as large as the tensor; it belongs to the context's owner, drops after it, and moves only when
        // this runs again.
        return unsafe { context.set_host_address(&bound.name, bound.host.as_mut_ptr()) };
    }
    if bound.buffer.as_ref().is_none_or(|buffer| buffer.len() < bound.len_bytes) {
        bound.buffer = Some(DeviceBuffer::new(engine.device(), bound.len_bytes)?);
    }
    match &bound.buffer {
        Some(buffer) => context.set_address(&bound.name, buffer.address()),
        None => Ok(()),
    }
}

impl ProgramContext for TensorRtContext {
    fn run(&mut self, inputs: &[InputTensor]) -> Result<(), EngineError> {
        self.prepare(inputs)?;
        self.has_run = false;
        let Self { context, inputs: bound_inputs, outputs, stream, .. } = self;
        for (bound, input) in bound_inputs.iter().zip(inputs) {
            if let Some(buffer) = &bound.buffer {
                // SAFETY: the buffer was allocated for the input's bytes; both outlive the synchronisation below, or the
                // stream's destruction if something fails in between.
                unsafe { stream.copy_to_device(input.bytes(), buffer.address()) }?;
            }
        }
        // SAFETY: every tensor has memory of its size, which belongs to this context alone and lives until the stream is done.
        let queued = unsafe { context.enqueue(stream) };
        let mut copied = Ok(());
        if queued.is_ok() {
            for bound in outputs.iter_mut() {
                if let Some(buffer) = &bound.buffer {
                    let host = &mut bound.host[..bound.len_bytes];
                    // SAFETY: the buffer holds the output's bytes; both outlive the synchronisation below.
                    copied = copied.and_then(|()| unsafe { stream.copy_to_host(buffer.address(), host) });
                }
            }
        }
        stream.synchronize()?;
        queued?;
        copied?;
        self.has_run = true;
        Ok(())
    }

    fn output(&self, index: usize) -> Result<TensorRef<'_>, EngineError> {
        let outputs = self.outputs.len();
        let bound = self.outputs.get(index).filter(|_| self.has_run);
        let bound = bound.ok_or(EngineError::NoOutput { index, outputs })?;
        let tensor = self.context.engine().tensor(&bound.name);
        let dtype = tensor.map_or(visiond_kernels::tensor::DType::F32, |tensor| tensor.dtype);
        TensorRef::new(dtype, &bound.shape, &bound.host[..bound.len_bytes])
            .map_err(|error| EngineError::Run(Backend::TensorRt, error.to_string()))
    }
}
