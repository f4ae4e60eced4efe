//! Translates our options into a builder's configuration.

use std::ffi::CString;

use super::error::BuildError;
use super::flags::{BuilderFlag, DETAILED, DLA, Typing, WORKSPACE};
use super::options::{BuildOptions, HardwareCompatibility, ShapeProfile};
use super::refusals;
use crate::precision::Half;
use visiond_engine::builder_api::tensorrt::builder::{Builder, Config, Profile};
use visiond_engine::builder_api::tensorrt::{Object, call, dims_32, dims_64};
use visiond_engine::tensorrt::Layout;

/// The settings to apply.
pub(super) struct Settings<'a> {
    pub(super) options: &'a BuildOptions,
    pub(super) typing: Typing,
    pub(super) profiles: &'a [ShapeProfile],
    /// The numbers of the compute capabilities.
    pub(super) capabilities: &'a [u32],
    pub(super) is_quantised: bool,
}

/// Refuses a DLA core that does not exist.
pub(super) fn check_accelerator(builder: Object<Builder>, options: &BuildOptions) -> Result<(), BuildError> {
    let Some(core) = options.dla_core else { return Ok(()) };
    // SAFETY: the builder is alive; the method takes no arguments.
    let cores = unsafe { call!(builder, Builder::DLA_CORES()) }?;
    if i64::from(core) < i64::from(cores) {
        return Ok(());
    }
    let reason = match cores {
        ..=0 => refusals::no_accelerator(builder.abi().version).to_owned(),
        1 => "this device has one DLA: use --dla 0".to_owned(),
        _ => format!("this device has {cores} DLAs: use --dla 0 to {}", cores - 1),
    };
    Err(BuildError::Unavailable { version: builder.abi().version, option: "--dla", reason })
}

/// Applies all settings. `refused` creates the error for something that TensorRT "cannot" do.
pub(super) fn apply(
    builder: Object<Builder>,
    config: Object<Config>,
    settings: &Settings<'_>,
    refused: &dyn Fn(&str) -> BuildError,
) -> Result<(), BuildError> {
    let options = settings.options;
    let layout = config.abi().layout;
    // Flags that the version lacks were rejected earlier.
    for number in flags(settings).filter_map(|flag| flag.number(layout)) {
        // SAFETY: the configuration lives; the flag is one of this layout.
        unsafe { call!(config, Config::SET_FLAG(number)) }?;
    }
    if !options.tf32
        && let Some(number) = BuilderFlag::TF32.number(layout)
    {
        // SAFETY: the configuration lives; the flag is one of this layout.
        unsafe { call!(config, Config::CLEAR_FLAG(number)) }?;
    }
    // SAFETY: the configuration lives; the numbers of both enumerations are the same in every version.
    unsafe { call!(config, Config::SET_PROFILING_VERBOSITY(DETAILED)) }?;
    if let Some(bytes) = options.workspace_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: as above.
        unsafe { call!(config, Config::SET_MEMORY_POOL_LIMIT(WORKSPACE, bytes)) }?;
    }
    if let Some(level) = options.optimization_level {
        // SAFETY: the configuration lives; levels go from 0 to 5.
        unsafe { call!(config, Config::SET_OPTIMIZATION_LEVEL(i32::try_from(level).unwrap_or(5))) }?;
    }
    if options.hardware_compatibility != HardwareCompatibility::None {
        // SAFETY: the configuration is alive; the version supports the level (`refusals`).
        unsafe { call!(config, Config::SET_HARDWARE_COMPATIBILITY(options.hardware_compatibility as i32)) }?;
    }
    if let Some(core) = options.dla_core {
        // SAFETY: the configuration is alive; the core exists (`check_accelerator`).
        unsafe {
            call!(config, Config::SET_DEFAULT_DEVICE_TYPE(DLA))?;
            call!(config, Config::SET_DLA_CORE(i32::try_from(core).unwrap_or(0)))?;
        }
    }
    compute_capabilities(config, settings.capabilities, refused)?;
    settings.profiles.iter().try_for_each(|profile| add_profile(builder, config, profile, refused))
}

fn flags(settings: &Settings<'_>) -> impl Iterator<Item = BuilderFlag> {
    let options = settings.options;
    let is_weak = settings.typing == Typing::Weak;
    let has_dla = options.dla_core.is_some();
    let wanted = [
        (BuilderFlag::FP16, is_weak && options.half == Some(Half::F16)),
        (BuilderFlag::BF16, is_weak && options.half == Some(Half::Bf16)),
        (BuilderFlag::INT8, is_weak && (options.int8 || settings.is_quantised)),
        (BuilderFlag::GPU_FALLBACK, has_dla && options.gpu_fallback),
        // Reformatting would run on the GPU.
        (BuilderFlag::DIRECT_IO, has_dla && !options.gpu_fallback),
        (BuilderFlag::PREFER_PRECISION_CONSTRAINTS, has_dla && is_weak),
        (BuilderFlag::VERSION_COMPATIBLE, options.version_compatible),
    ];
    wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(flag, _)| flag)
}

fn compute_capabilities(
    config: Object<Config>,
    capabilities: &[u32],
    refused: &dyn Fn(&str) -> BuildError,
) -> Result<(), BuildError> {
    if capabilities.is_empty() {
        return Ok(());
    }
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    // SAFETY: the configuration is alive; that many are set right afterwards.
    let taken = unsafe { call!(config, Config::SET_COMPUTE_CAPABILITIES(number(capabilities.len()))) }?;
    if !taken {
        return Err(refused(&format!("take {} compute capabilities", capabilities.len())));
    }
    for (index, &capability) in capabilities.iter().enumerate() {
        // SAFETY: the configuration lives; the index is below the number just set.
        let taken =
            unsafe { call!(config, Config::SET_COMPUTE_CAPABILITY(number(capability as usize), number(index))) }?;
        if !taken {
            return Err(refused(&format!("build for compute capability {capability}")));
        }
    }
    Ok(())
}

fn add_profile(
    builder: Object<Builder>,
    config: Object<Config>,
    profile: &ShapeProfile,
    refused: &dyn Fn(&str) -> BuildError,
) -> Result<(), BuildError> {
    let abi = builder.abi();
    // SAFETY: the builder is alive; it owns the result, which lives as long.
    let object = unsafe {
        let raw = call!(builder, Builder::CREATE_PROFILE())?;
        Object::<Profile>::from_raw(raw, abi)
    };
    let object = object.ok_or_else(|| refused("make a profile"))?;
    for (name, range) in profile {
        let unfit = || refused(&format!("give `{name}` the shapes {range}"));
        let text = CString::new(name.as_str()).map_err(|_| unfit())?;
        // kMIN, kOPT, kMAX
        for (selector, shape) in (0..).zip([&range.min, &range.opt, &range.max]) {
            let sizes: Vec<i64> = shape.iter().filter_map(|&size| i64::try_from(size).ok()).collect();
            // SAFETY: the profile lives; name and dimensions are read during the call.
            let taken = unsafe {
                if abi.layout == Layout::V8 {
                    let dims = dims_32(&sizes).ok_or_else(unfit)?;
                    call!(object, Profile::SET_DIMENSIONS_8(text.as_ptr(), selector, dims))?
                } else {
                    let dims = dims_64(&sizes).ok_or_else(unfit)?;
                    call!(object, Profile::SET_DIMENSIONS(text.as_ptr(), selector, &dims))?
                }
            };
            if !taken {
                return Err(unfit());
            }
        }
    }
    // SAFETY: both are alive; the builder owns the profile.
    match unsafe { call!(config, Config::ADD_PROFILE(object.as_ptr())) }? {
        0.. => Ok(()),
        _ => Err(refused("use the profile, because its shapes do not fit the model")),
    }
}
