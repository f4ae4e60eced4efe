//! Builds an engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use visiond_engine::builder_api::tensorrt::builder::{Builder, Config, Network, Parser};
use visiond_engine::builder_api::tensorrt::{ErrorRecorder, Owned, call, host_bytes};
use visiond_engine::onnx;
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::tensorrt::{Library, TensorRtError, Version};
use visiond_kernels::cuda::{Device, DeviceFacts};

use super::calibration::Upload;
use super::calibrator::Calibrator;
use super::error::BuildError;
use super::flags::Typing;
use super::monitor::{self, Monitor};
use super::options::{BuildOptions, ShapeProfile};
use super::precision::{PrecisionOptions, Rewritten, quantises_convolutions, rewrite};
use super::{config, input_shapes, parser, refusals, timing_cache};

/// A new engine, and how it was built.
#[derive(Debug)]
pub struct Built {
    /// The bytes of the engine file.
    pub plan: Vec<u8>,
    /// The SHA-256 of these bytes, in lower-case hexadecimal.
    pub sha256: String,
    /// The version of TensorRT that built it.
    pub version: Version,
    /// TensorRT's library.
    pub library: PathBuf,
    /// The GPU that it was built on; `None` without one.
    pub device: Option<DeviceFacts>,
    /// The model's file, as it describes itself.
    pub onnx: OnnxFile,
    /// The half-precision model, if it was rewritten.
    pub rewritten: Option<Rewritten>,
    /// The ranges of the inputs' shapes, by profile; empty if all are fixed.
    pub profiles: Vec<ShapeProfile>,
    /// Fixed shapes that the file leaves open or declares differently.
    pub fixed_shapes: BTreeMap<String, Vec<usize>>,
    /// The compute capabilities that it was built for; empty if TensorRT has no such choice or it runs on any.
    pub compute_capabilities: Vec<u32>,
}

/// Builds an engine from the model at `onnx`. Takes from seconds to an hour; `monitor` shows the progress and can cancel the
/// build.
pub fn build(onnx: &Path, mut options: BuildOptions, monitor: &Arc<Monitor>) -> Result<Built, BuildError> {
    monitor.say("reading the model");
    let (file, bytes) = onnx::read_usable(onnx)?;
    // CUDA comes first: without it TensorRT 10 and 11 return invalid objects.
    let device = Device::open(options.device);
    let library = Library::get(options.library.as_deref())?;
    let abi = library.abi();
    let device = match device {
        Ok(device) => Some(device),
        Err(error) if library.is_rtx() => {
            log::info!("building without a GPU: {error}");
            None
        }
        Err(error) => return Err(BuildError::NoDevice { version: library.version(), error }),
    };
    let typing = refusals::check(abi, &file, &options)?;
    if library.is_rtx() && quantises_convolutions(&bytes) {
        let (version, option) = (library.version(), "convolutions of 8-bit integers");
        let reason = "it only has floating-point convolutions; build the model from before quantisation with --fp16";
        return Err(BuildError::Unavailable { version, option, reason: reason.to_owned() });
    }
    let (fixed_shapes, profiles) = input_shapes::plan(onnx, &file.inputs, &options.profiles)?;
    let resized = is_resized(&file, &fixed_shapes);
    let (file, bytes) = onnx::reshaped(onnx, file, bytes, &fixed_shapes)?;
    let rewritten = match options.half {
        Some(half) if typing == Typing::Strong => {
            monitor.say("rewriting the model in half precision");
            let precision = PrecisionOptions { half, rules: options.rules.clone(), half_io: options.half_io };
            let directory = onnx.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let rewritten = rewrite(&bytes, directory, &precision);
            Some(rewritten.map_err(|error| BuildError::Precision(onnx.to_owned(), error))?)
        }
        _ => None,
    };
    let bytes = rewritten.as_ref().map_or(&bytes, |rewritten| &rewritten.bytes);
    let capabilities = refusals::capabilities(abi.layout, &options, device.as_deref());
    let job = BuildJob { library, device: device.as_ref(), typing, monitor, onnx, resized };
    let plan = job.run(bytes, &file, &mut options, &profiles, &capabilities);
    // TensorRT does not report this itself.
    let lost = || device.as_ref().and_then(|device| device.lost());
    let plan = plan.map_err(|error| lost().map_or(error, BuildError::from))?;
    Ok(Built {
        sha256: Sha256::digest(&plan).iter().map(|byte| format!("{byte:02x}")).collect(),
        plan,
        version: library.version(),
        library: library.path().to_owned(),
        device: device.map(|device| device.facts().clone()),
        onnx: file,
        rewritten,
        profiles,
        fixed_shapes,
        compute_capabilities: capabilities,
    })
}

/// Whether a shape contradicts what the file fixes.
fn is_resized(file: &OnnxFile, shapes: &BTreeMap<String, Vec<usize>>) -> bool {
    file.inputs.iter().any(|input| {
        let (Some(dims), Some(shape)) = (&input.shape, shapes.get(&input.name)) else { return false };
        dims.iter().zip(shape).any(|(dim, size)| dim.fixed().is_some_and(|fixed| fixed != *size))
    })
}

/// The parameters of TensorRT's part of a build.
struct BuildJob<'a> {
    library: &'static Library,
    device: Option<&'a Arc<Device>>,
    typing: Typing,
    monitor: &'a Arc<Monitor>,
    onnx: &'a Path,
    /// Whether inputs have other sizes than the ones that the file fixes.
    resized: bool,
}

impl BuildJob<'_> {
    /// Does TensorRT's part: parser, configuration, builder.
    fn run(
        &self,
        bytes: &[u8],
        file: &OnnxFile,
        options: &mut BuildOptions,
        profiles: &[ShapeProfile],
        capabilities: &[u32],
    ) -> Result<Vec<u8>, BuildError> {
        let abi = self.library.abi();
        // Locals drop in reverse order: later ones refer to earlier ones.
        let recorder = ErrorRecorder::new(abi.layout);
        let progress = monitor::Callback::new(self.monitor);
        let calibrator = self.calibrator(options, file, profiles)?;
        let builder = self.library.create_builder()?;
        // SAFETY: the builder lives; the recorder outlives it.
        unsafe { call!(builder.get(), Builder::SET_ERROR_RECORDER(recorder.as_ptr())) }?;
        let refused = |doing: &str| {
            let (version, doing) = (abi.version, doing.to_owned());
            BuildError::TensorRt(TensorRtError::Refused { version, doing, reported: recorder.take() })
        };
        config::check_accelerator(builder.get(), options)?;
        let kept: Option<timing_cache::LoadedTimingCache>;
        // SAFETY: the builder is alive; the flags are those of this layout. We own the result, and the builder outlives it.
        let network = unsafe {
            let raw = call!(builder.get(), Builder::CREATE_NETWORK(self.typing.network_flags(abi.layout)))?;
            Owned::<Network>::from_raw(raw, abi)
        };
        let network = network.ok_or_else(|| refused("make a model"))?;
        // SAFETY: as above.
        let config = unsafe {
            let raw = call!(builder.get(), Builder::CREATE_CONFIG())?;
            Owned::<Config>::from_raw(raw, abi)
        };
        let config = config.ok_or_else(|| refused("make a configuration"))?;
        self.monitor.say("reading the model");
        // SAFETY: the network is alive and drops after the parser.
        let parser: Owned<Parser> = unsafe { self.library.create_parser(network.get().as_ptr()) }?;
        // SAFETY: the bytes belong to the caller and outlive the network.
        unsafe { parser::parse(&parser, self.library, self.onnx, bytes, &recorder, self.resized) }?;
        let settings = config::Settings {
            options,
            typing: self.typing,
            profiles,
            capabilities,
            is_quantised: refusals::is_quantised(file),
        };
        config::apply(builder.get(), config.get(), &settings, &refused)?;
        if Config::SET_PROGRESS_MONITOR.is_in(abi) {
            // SAFETY: the configuration lives; the monitor outlives it.
            unsafe { call!(config.get(), Config::SET_PROGRESS_MONITOR(progress.as_ptr())) }?;
        }
        if let Some(calibrator) = &calibrator {
            // SAFETY: as above.
            unsafe { call!(config.get(), Config::SET_CALIBRATOR(calibrator.as_ptr())) }?;
        }
        kept = self.timing_cache(&config, options)?;
        if self.monitor.is_cancelled() {
            return Err(BuildError::Cancelled);
        }
        self.monitor.say("building the engine");
        // SAFETY: all three are alive; we own the result.
        let raw = unsafe { call!(builder.get(), Builder::BUILD(network.get().as_ptr(), config.get().as_ptr())) }?;
        // SAFETY: `raw` is the method's result.
        let plan = unsafe { host_bytes(raw, abi) }?;
        if let Some(error) = calibrator.as_ref().and_then(|calibrator| calibrator.take_failure()) {
            return Err(BuildError::Calibration(error));
        }
        if self.monitor.is_cancelled() {
            return Err(BuildError::Cancelled);
        }
        let plan = plan.ok_or_else(|| refused(&format!("build an engine of {}", self.onnx.display())))?;
        if let Some(kept) = &kept {
            kept.save(config.get())?;
        }
        Ok(plan)
    }

    fn calibrator(
        &self,
        options: &mut BuildOptions,
        file: &OnnxFile,
        profiles: &[ShapeProfile],
    ) -> Result<Option<Box<Calibrator>>, BuildError> {
        let (Some(calibration), Some(device)) = (options.calibration.take(), self.device) else { return Ok(None) };
        // Several images per run only affect the speed; TensorRT calibrates with the `opt` shape.
        let batch = file.inputs.first().and_then(|input| {
            let ranged =
                profiles.first().and_then(|profile| profile.get(&input.name)).and_then(|range| range.opt.first());
            ranged.copied().or_else(|| input.shape.as_ref()?.first()?.fixed())
        });
        let batch = i32::try_from(batch.unwrap_or(1)).unwrap_or(1);
        let upload = Upload::new(calibration.feed, device, batch, self.monitor)?;
        let layout = self.library.abi().layout;
        Ok(Some(Calibrator::new(layout, calibration.algorithm, Box::new(upload), calibration.cache.as_deref())))
    }

    fn timing_cache(
        &self,
        config: &Owned<Config>,
        options: &BuildOptions,
    ) -> Result<Option<timing_cache::LoadedTimingCache>, BuildError> {
        let Some(device) = self.device.filter(|_| !self.library.is_rtx()) else { return Ok(None) };
        let path = options.timing_cache.path(self.library.version(), device.facts());
        Ok(match path {
            Some(path) => timing_cache::LoadedTimingCache::open(config.get(), path)?,
            None => None,
        })
    }
}
