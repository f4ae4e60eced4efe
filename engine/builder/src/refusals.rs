//! Rejects impossible options before the long build, and decides who chooses the types.

use visiond_kernels::cuda::Device;

use super::error::BuildError;
use super::flags::Typing;
use super::options::{BuildOptions, HardwareCompatibility};
use super::timing_cache::TimingCacheChoice;
use crate::precision::Half;
use visiond_engine::builder_api::tensorrt::Abi;
use visiond_engine::builder_api::tensorrt::builder::Config;
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::tensorrt::{Layout, Version};

/// The compute capabilities that TensorRT for RTX builds for.
const RTX_CAPABILITIES: [u32; 6] = [75, 80, 86, 89, 120, 121];

/// Whether the model contains quantised layers.
pub(super) fn is_quantised(file: &OnnxFile) -> bool {
    ["QuantizeLinear", "DequantizeLinear"].iter().any(|operator| file.operators.contains_key(*operator))
}

/// Checks the options for the version and returns who decides the types.
pub(super) fn check(abi: Abi, file: &OnnxFile, options: &BuildOptions) -> Result<Typing, BuildError> {
    const EXPORT: &str = "quantise the model while it is exported (NVIDIA's modelopt writes QuantizeLinear and \
        DequantizeLinear into the .onnx), then build that with --int8";
    let (is_old, is_rtx) = (abi.layout == Layout::V8, abi.layout == Layout::Rtx);
    let is_before_8_6 = is_old && abi.version.minor < 6;
    let can_calibrate = matches!(abi.layout, Layout::V8 | Layout::V10);
    let typing = match abi.layout {
        Layout::V8 => Typing::Weak,
        // With calibration or a DLA, TensorRT itself chooses where to use which type.
        Layout::V10 if options.calibration.is_some() || options.dla_core.is_some() => Typing::Weak,
        Layout::V10 | Layout::V11 | Layout::Rtx => Typing::Strong,
    };
    let is_weak = typing == Typing::Weak;
    let chooser = match (is_old, options.dla_core) {
        (true, _) => "this version chooses every layer's type itself, within --fp16 and --int8",
        (false, Some(_)) => "for a DLA, TensorRT 10 chooses every layer's type itself",
        (false, None) => "with calibration, TensorRT 10 chooses every layer's type itself",
    };
    let (calibrates, is_quantised, inputs) = (options.calibration.is_some(), is_quantised(file), file.inputs.len());
    let ranges_from = if can_calibrate { "name a folder of pictures with --calibrate, or " } else { "" };
    let (dla, half) = (options.dla_core.is_some(), options.half);
    let hardware = options.hardware_compatibility;
    let is_compatible = hardware != HardwareCompatibility::None;
    // The first minor version of 10 with engines for every GPU of one compute capability is 9.
    let lacks_same_sm = is_old || abi.layout == Layout::V10 && abi.version.minor < 9;
    let capabilities = &options.compute_capabilities;
    let unknown = capabilities.iter().find(|capability| !RTX_CAPABILITIES.contains(&capability.0));
    // When to refuse, which option, why and what to do instead; the first match counts.
    let refusals: [(bool, &'static str, &str); 19] = [
        (is_old && half == Some(Half::Bf16), "--bf16", "BF16 came with TensorRT 10: use --fp16"),
        (is_weak && !options.rules.is_empty(), "--precision", &format!("{chooser}; leave --precision out")),
        (
            is_weak && options.half_io,
            "--half-io",
            &format!("{chooser}, and inputs and outputs stay FP32; leave --half-io out"),
        ),
        (calibrates && !can_calibrate, "--calibrate", &format!("calibration ended with TensorRT 10: {EXPORT}")),
        (calibrates && is_quantised, "--calibrate", "the model contains its ranges; leave --calibrate out"),
        (
            calibrates && inputs != 1,
            "--calibrate",
            &format!("pictures fill one input, and the model has {inputs}: {EXPORT}"),
        ),
        (
            !calibrates && options.int8 && !is_quantised,
            "--int8",
            &format!("the model contains no ranges for its numbers: {ranges_from}{EXPORT}"),
        ),
        (dla && is_rtx, "--dla", "TensorRT for RTX does not support a DLA; leave --dla out"),
        (dla && half == Some(Half::Bf16), "--dla", "a DLA computes in FP16 and INT8: use --fp16"),
        (dla && half.is_none() && !options.int8, "--dla", "a DLA computes in FP16 and INT8: add --fp16"),
        (
            options.version_compatible && is_rtx,
            "--version-compatible",
            "TensorRT for RTX has no such engines; build again after an update",
        ),
        (
            options.version_compatible && is_before_8_6,
            "--version-compatible",
            "such engines came with TensorRT 8.6; build again after an update",
        ),
        (
            is_compatible && is_rtx,
            "--hardware-compatible",
            "TensorRT for RTX takes compute capabilities: use --sm 86,89",
        ),
        (
            is_compatible && is_before_8_6,
            "--hardware-compatible",
            "such engines came with TensorRT 8.6; build on each kind of GPU",
        ),
        (
            hardware == HardwareCompatibility::SameComputeCapability && lacks_same_sm,
            "--hardware-compatible same-sm",
            "it came with TensorRT 10.9: build on each kind of GPU",
        ),
        (
            options.optimization_level.is_some() && !Config::SET_OPTIMIZATION_LEVEL.is_in(abi),
            "--optimization-level",
            "levels came with TensorRT 8.6; leave it out",
        ),
        (
            is_rtx && matches!(options.timing_cache, TimingCacheChoice::File(_)),
            "--timing-cache",
            "TensorRT for RTX does not time kernels while it builds; leave it out",
        ),
        (!is_rtx && !capabilities.is_empty(), "--sm", "only TensorRT for RTX can build for other GPUs; leave it out"),
        (
            unknown.is_some(),
            "--sm",
            &unknown.map_or(String::new(), |capability| {
                let known = "it builds for 75, 80, 86, 89, 120 and 121";
                format!("{known}, not for {capability}: leave --sm out for an engine that any GPU runs")
            }),
        ),
    ];
    match refusals.into_iter().find(|(holds, ..)| *holds) {
        Some((_, option, reason)) => {
            Err(BuildError::Unavailable { version: abi.version, option, reason: reason.to_owned() })
        }
        None => Ok(typing),
    }
}

/// Returns why a builder of this version finds no DLA, and what to do.
///
/// NVIDIA's "Working with DLA" of TensorRT 11.4.1: 10.7 was the last 10.x with DLA, 11.0 to 11.3 had none, 11.4.0 had it only
/// on Windows, and 11.4.1 has it on AGX Orin with JetPack 7.2.2 or later and nowhere else on Linux.
pub(super) fn no_accelerator(version: Version) -> &'static str {
    match (version.major, version.minor, version.patch) {
        (..10, ..) | (10, ..=7, _) => {
            "this device has no DLA (AGX Orin, Orin NX and Xavier have some, Orin Nano has none); leave --dla out"
        }
        (10, ..) | (11, ..4, _) | (11, 4, 0) => {
            "this version has none: DLAs are in TensorRT up to 10.7 (JetPack 5 and 6), and from 11.4.1 on for AGX Orin with \
             JetPack 7.2.2 or newer; install one of these, or leave --dla out"
        }
        _ => "it only supports DLAs on AGX Orin with JetPack 7.2.2 or newer; leave --dla out",
    }
}

/// Returns the compute capabilities to build for; empty for an engine that runs on any GPU.
pub(super) fn capabilities(layout: Layout, options: &BuildOptions, device: Option<&Device>) -> Vec<u32> {
    if layout != Layout::Rtx {
        return Vec::new();
    }
    if !options.compute_capabilities.is_empty() {
        return options.compute_capabilities.iter().map(|capability| capability.0).collect();
    }
    let here = device.map(|device| device.facts().sm).map(|(major, minor)| major * 10 + minor);
    here.into_iter().filter(|number| RTX_CAPABILITIES.contains(number)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::PathBuf;

    use super::*;
    use crate::calibration::CalibrationOptions;
    use visiond_engine::engine::ModelFile;

    fn abi(number: u32) -> Abi {
        let version = Version::decode(number);
        Abi { version, layout: version.layout().unwrap() }
    }

    fn file(operators: &[&str]) -> OnnxFile {
        OnnxFile {
            file: ModelFile { path: PathBuf::from("net.onnx"), size_bytes: 1, sha256: String::new() },
            inputs: vec![visiond_engine::engine::TensorInfo {
                name: "images".to_owned(),
                dtype: visiond_kernels::tensor::DType::F32,
                shape: None,
            }],
            outputs: Vec::new(),
            foreign: Vec::new(),
            metadata: Default::default(),
            opsets: Default::default(),
            ir_version: 8,
            producer: String::new(),
            operators: operators.iter().map(|&name| (name.to_owned(), 1)).collect(),
            external_files: Default::default(),
            tails: Default::default(),
        }
    }

    const V85: u32 = 8_502;
    const V86: u32 = 8_602;
    const V103: u32 = 100_300;
    const V1013: u32 = 101_300;
    const V114: u32 = 110_400;
    const RTX: u32 = 10_601;

    fn refused(number: u32, operators: &[&str], options: BuildOptions) -> String {
        check(abi(number), &file(operators), &options).unwrap_err().to_string()
    }

    fn calibrated() -> BuildOptions {
        BuildOptions { int8: true, calibration: Some(CalibrationOptions::untested()), ..BuildOptions::default() }
    }

    #[test]
    fn options_that_a_version_lacks_are_refused_with_a_remedy() {
        let rule = || vec!["type:Softmax=fp32".parse().unwrap()];
        let half = || Some(Half::F16);
        for (number, options, expected) in [
            (
                V86,
                BuildOptions { half: Some(Half::Bf16), ..Default::default() },
                "TensorRT 8.6.2 cannot build with --bf16: BF16 came with TensorRT 10: use --fp16",
            ),
            (
                V86,
                BuildOptions { half: half(), rules: rule(), ..Default::default() },
                "chooses every layer's type itself",
            ),
            (V86, BuildOptions { half: half(), half_io: true, ..Default::default() }, "leave --half-io out"),
            (V85, BuildOptions { version_compatible: true, ..Default::default() }, "came with TensorRT 8.6"),
            (
                RTX,
                BuildOptions { version_compatible: true, ..Default::default() },
                "TensorRT for RTX has no such engines",
            ),
            (
                V85,
                BuildOptions { hardware_compatibility: HardwareCompatibility::AmperePlus, ..Default::default() },
                "8.6",
            ),
            (
                V103,
                BuildOptions {
                    hardware_compatibility: HardwareCompatibility::SameComputeCapability,
                    ..Default::default()
                },
                "10.9",
            ),
            (
                RTX,
                BuildOptions { hardware_compatibility: HardwareCompatibility::AmperePlus, ..Default::default() },
                "use --sm 86,89",
            ),
            (V85, BuildOptions { optimization_level: Some(3), ..Default::default() }, "--optimization-level"),
            (
                RTX,
                BuildOptions { timing_cache: TimingCacheChoice::File("c".into()), ..Default::default() },
                "does not time kernels",
            ),
            (
                V103,
                BuildOptions { compute_capabilities: vec!["86".parse().unwrap()], ..Default::default() },
                "leave it out",
            ),
            (
                RTX,
                BuildOptions { compute_capabilities: vec!["9.0".parse().unwrap()], ..Default::default() },
                "not for 9.0",
            ),
            (RTX, BuildOptions { dla_core: Some(0), half: half(), ..Default::default() }, "does not support a DLA"),
            (V103, BuildOptions { dla_core: Some(0), ..Default::default() }, "add --fp16"),
            (V103, BuildOptions { dla_core: Some(0), half: Some(Half::Bf16), ..Default::default() }, "use --fp16"),
            (V114, BuildOptions { int8: true, ..Default::default() }, "contains no ranges"),
            (V103, BuildOptions { int8: true, ..Default::default() }, "--calibrate"),
            (RTX, calibrated(), "calibration ended with TensorRT 10"),
        ] {
            let error = refused(number, &["Conv"], options);
            assert!(error.contains(expected), "{error}");
        }
        assert!(refused(V103, &["QuantizeLinear"], calibrated()).contains("contains its ranges"));
    }

    #[test]
    fn a_version_without_dlas_says_which_have_them() {
        for (number, expected) in [
            (V85, "this device has no DLA"),
            (V103, "this device has no DLA"),
            (100_700, "this device has no DLA"),
            (100_800, "this version has none: DLAs are in TensorRT up to 10.7"),
            (101_602, "from 11.4.1 on for AGX Orin with JetPack 7.2.2 or newer"),
            (110_000, "this version has none"),
            (V114, "this version has none"),
            (110_401, "it only supports DLAs on AGX Orin with JetPack 7.2.2 or newer"),
            (110_500, "it only supports DLAs on AGX Orin with JetPack 7.2.2 or newer"),
        ] {
            let said = no_accelerator(Version::decode(number));
            assert!(said.contains(expected) && said.ends_with("leave --dla out"), "{number}: {said}");
        }
        // From version 11 on, the model also states its types on a DLA.
        let dla = BuildOptions { dla_core: Some(0), gpu_fallback: true, half: Some(Half::F16), ..Default::default() };
        assert_eq!(check(abi(110_401), &file(&["Conv"]), &dla).unwrap(), Typing::Strong);
    }

    #[test]
    fn supported_options_pass_and_the_model_decides_types_where_it_can() {
        let plain = |half| BuildOptions { half, ..BuildOptions::default() };
        let conv = file(&["Conv"]);
        assert_eq!(check(abi(V86), &conv, &plain(Some(Half::F16))).unwrap(), Typing::Weak);
        for number in [V103, V1013, V114, RTX] {
            assert_eq!(check(abi(number), &conv, &plain(Some(Half::Bf16))).unwrap(), Typing::Strong);
        }
        assert_eq!(check(abi(V103), &conv, &calibrated()).unwrap(), Typing::Weak);
        let dla = BuildOptions { dla_core: Some(0), gpu_fallback: true, half: Some(Half::F16), ..Default::default() };
        assert_eq!(check(abi(V103), &conv, &dla).unwrap(), Typing::Weak);
        let explicit = BuildOptions { int8: true, ..BuildOptions::default() };
        for number in [V85, V103, V114, RTX] {
            check(abi(number), &file(&["QuantizeLinear", "DequantizeLinear"]), &explicit).unwrap();
        }
        let same = BuildOptions {
            hardware_compatibility: HardwareCompatibility::SameComputeCapability,
            version_compatible: true,
            ..BuildOptions::default()
        };
        check(abi(V1013), &conv, &same).unwrap();
    }
}
