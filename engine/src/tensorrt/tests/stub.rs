//! The whole way of an engine, from its file to its outputs, on a driver and a TensorRT made for the test: a GPU of malloc and
//! memcpy, and engines that are a few lines of text (`stub/`).
//!
//! The driver is found by its name, once in a process. So the test runs its program again, with the stub in the loader's path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::tensor::DType;

use super::golden;
use super::mock::{compiled_as, unsafe_open};
use crate::backend::{Backend, Dim, EngineOptions};
use crate::engine::Engine;
use crate::tensorrt::sidecar::Sidecar;
use crate::tensorrt::version::Version;

const INNER: &str = "VISIOND_TEST_STUB_DRIVER";

/// The library's number, and its version as the golden data have it for methods and for callbacks.
const STUBBED: [(u32, &str, &str); 4] = [
    (8601, "8.6.1", "v8.6.1"),
    (100_300, "10.3.0", "v10.3.0"),
    (110_400, "11.4", "v11.4"),
    (10_701, "rtx1.7.1", "rtx1.7"),
];

/// What the stub has of each class.
const METHODS: [(&str, &[&str]); 3] = [
    ("VRuntime", &["deserializeCudaEngine", "setErrorRecorder", "setEngineHostCodeAllowed"]),
    (
        "VCudaEngine",
        &[
            "getNbIOTensors",
            "getIOTensorName",
            "getTensorShape",
            "getTensorDataType",
            "getTensorLocation",
            "getTensorIOMode",
            "getTensorFormat",
            "getTensorFormatDesc",
            "getProfileShape",
            "getNbOptimizationProfiles",
            "getDeviceMemorySize",
            "getDeviceMemorySizeV2",
            "createExecutionContext",
            "getName",
            "getNbLayers",
            "hasImplicitBatchDimension",
        ],
    ),
    (
        "VExecutionContext",
        &[
            "setTensorAddress",
            "setInputShape",
            "getTensorShape",
            "inferShapes",
            "enqueueV3",
            "setOptimizationProfileAsync",
            "setErrorRecorder",
        ],
    ),
];

/// Reads a number.
type Read = fn(&[u8]) -> f64;

/// A number each for every type that sessions carry: TensorRT's, ours, and how bytes of it are read.
const TYPES: [(u8, DType, Read); 6] = [
    (0, DType::F32, |bytes| f32::from_le_bytes(bytes.try_into().unwrap()).into()),
    (2, DType::I8, |bytes| (bytes[0] as i8).into()),
    (3, DType::I32, |bytes| i32::from_le_bytes(bytes.try_into().unwrap()).into()),
    (4, DType::Bool, |bytes| bytes[0].into()),
    (5, DType::U8, |bytes| bytes[0].into()),
    (8, DType::I64, |bytes| i64::from_le_bytes(bytes.try_into().unwrap()) as f64),
];

#[test]
fn engines_run_on_a_gpu_that_is_made_of_memory() {
    let Some(folder) = std::env::var_os(INNER) else {
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libcuda.so.1");
        compiled_as(
            &driver,
            include_str!("../../../../kernels/src/cuda/tests/stub_driver.c"),
            &["-Wl,-soname,libcuda.so.1"],
        );
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tensorrt::tests::stub::engines_run_on_a_gpu_that_is_made_of_memory", "--nocapture"])
            .env(INNER, folder.path())
            .env("LD_LIBRARY_PATH", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    };
    let folder = PathBuf::from(folder);
    let driver = unsafe_open(&folder.join("libcuda.so.1"));
    for (number, version, callbacks) in STUBBED {
        let stub = Stub::new(&folder, number, version, callbacks);
        types_and_shapes(&stub);
        profiles(&stub);
        wrong_engines(&stub);
        metadata(&stub);
        lost_gpu(&stub, &driver);
        assert_eq!(count(&unsafe_open(&stub.library), b"stub_objects"), 0, "objects of {version} were not deleted");
    }
    assert_eq!(count(&driver, b"stub_alive"), 0, "memory or streams were not freed");
}

/// Calls a function of a library that takes nothing and returns a number.
fn count(library: &libloading::os::unix::Library, name: &[u8]) -> i32 {
    // SAFETY: the functions of the stubs have this signature.
    unsafe { library.get::<unsafe extern "C" fn() -> i32>(name).unwrap()() }
}

/// A compiled TensorRT, and where its engines lie.
struct Stub {
    folder: PathBuf,
    library: PathBuf,
    version: Version,
}

impl Stub {
    fn new(folder: &Path, number: u32, version: &str, callbacks: &str) -> Self {
        let size = if number < 10_000 { "int32_t" } else { "int64_t" };
        let report = golden::callback("IErrorRecorder", "reportError", callbacks);
        let mut source = format!("#define SIZE {size}\n#define VERSION {number}\n#define REPORT_ERROR {report}\n");
        for (class, methods) in METHODS {
            let golden = golden::class(class, version).unwrap();
            for method in methods {
                let slot = golden.methods.get(*method).copied().flatten();
                let slot = slot.map_or("-1".to_owned(), |slot| slot.to_string());
                source += &format!("#define {class}_{method} {slot}\n");
            }
        }
        source = format!("#define _GNU_SOURCE\n{source}{}", include_str!("stub/nvinfer.c"));
        let folder = folder.join(number.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let library = compiled_as(&folder.join("libstub.so"), &source, &[]);
        Self { folder, library, version: Version::decode(number) }
    }

    /// Writes an engine that this version built.
    fn engine(&self, name: &str, lines: &str) -> PathBuf {
        self.engine_for(name, lines, 1 << 6)
    }

    /// The same, for the GPUs of a mask, which only TensorRT for RTX records.
    fn engine_for(&self, name: &str, lines: &str, gpus: u64) -> PathBuf {
        let Version { rtx, major, minor, patch } = self.version;
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(if rtx { b"vtrt" } else { b"ftrt" });
        bytes[24..27].copy_from_slice(&[major as u8, minor as u8, patch as u8]);
        bytes.extend_from_slice(lines.as_bytes());
        if rtx {
            let len = bytes.len() as u64;
            bytes[16..24].copy_from_slice(&len.to_le_bytes());
            bytes[32..40].copy_from_slice(&gpus.to_le_bytes());
        }
        let path = self.folder.join(name).with_extension("engine");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn options(&self) -> EngineOptions {
        EngineOptions { tensorrt_library: Some(self.library.clone()), ..EngineOptions::default() }
    }

    fn load(&self, name: &str, lines: &str) -> Result<Engine, String> {
        Engine::load(&self.engine(name, lines), &self.options()).map_err(|error| error.to_string())
    }
}

/// Every type comes through with its own size and numbers.
fn types_and_shapes(stub: &Stub) {
    for (number, dtype, read) in TYPES {
        let lines = format!("tensor images 1 0 0 2 3\ntensor found 2 {number} 0 2 3\ntensor plain 2 0 0 4");
        let engine = stub.load("types", &lines).unwrap();
        assert_eq!(engine.backend(), Backend::TensorRt);
        assert!(engine.backend_description().ends_with("on Stub (SM 8.7)"), "{}", engine.backend_description());
        let mut session = engine.session().unwrap();
        for round in 0..2_u8 {
            let numbers: Vec<f32> = (0..6).map(|at| f32::from(at + round)).collect();
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            session.input_mut(0).bytes().copy_from_slice(&bytes);
            session.run().unwrap();
            let found = session.output(0).unwrap();
            assert_eq!((found.dtype(), found.shape()), (dtype, &[2, 3][..]));
            let expected =
                |number: f32| if dtype == DType::Bool { f64::from(number != 0.0) } else { f64::from(2.0 * number) };
            let expected: Vec<f64> = numbers.iter().map(|number| expected(*number)).collect();
            let read: Vec<f64> = found.bytes().chunks(dtype.size_bytes()).map(read).collect();
            assert_eq!(read, expected, "{dtype:?} with {}", stub.version);
            assert_eq!(session.output(1).unwrap().to_f32().len(), 4);
        }
    }
    // A type that our code does not read.
    let error = stub.load("types", "tensor images 1 0 0 2 3\ntensor found 2 6 0 2").unwrap_err();
    assert!(error.contains("found") && error.contains("FP8"), "{error}");
}

/// The first profile that allows a shape runs it, its largest sizes included; no other shape runs.
fn profiles(stub: &Stub) {
    let lines = "tensor images 1 0 0 -1 3\ntensor found 2 0 0 -1 2\n\
                 limits images 0 0 1 3\nlimits images 0 1 1 3\nlimits images 0 2 2 3\n\
                 limits images 1 0 3 3\nlimits images 1 1 4 3\nlimits images 1 2 4 3";
    let engine = stub.load("profiles", lines).unwrap();
    assert!(matches!(engine.inputs()[0].shape.as_deref(), Some([Dim::Dynamic(_), Dim::Fixed(3)])));
    assert_eq!(engine.batch_limit(), Some(4));
    let trt = engine.tensorrt().unwrap();
    assert_eq!(trt.profiles(), 2);
    let profile = |frames| trt.profile_for(&[("images", &[frames, 3])]);
    assert_eq!([1, 2, 3, 4, 5].map(profile), [Some(0), Some(0), Some(1), Some(1), None]);
    let mut session = engine.session().unwrap();
    for frames in [1, 2, 3, 4, 2, 4, 1] {
        session.set_input_shape(0, &[frames, 3]).unwrap();
        session.input_mut(0).bytes().fill(0);
        session.run().unwrap();
        let found = session.output(0).unwrap();
        assert_eq!(found.shape(), [frames, 2]);
        assert!(found.to_f32().iter().all(|number| *number == 0.0));
    }
    session.set_input_shape(0, &[5, 3]).unwrap();
    let error = session.run().unwrap_err().to_string();
    assert!(error.contains("the engine was built for [1, 3] to [2, 3] and [3, 3] to [4, 3]"), "{error}");
    let asked = BTreeMap::from([("images".to_owned(), vec![5, 3])]);
    let options = EngineOptions { input_shapes: asked, ..stub.options() };
    let error = Engine::load(&stub.engine("profiles", lines), &options).err().unwrap().to_string();
    assert!(error.contains("the engine was built for"), "{error}");
}

/// TensorRT's reason for rejecting an engine is passed on, with the information in the file beside it.
fn wrong_engines(stub: &Stub) {
    let error = stub.load("refused", "refuse the plan is of no use").unwrap_err();
    assert!(error.contains("the plan is of no use") && error.contains("visiond build"), "{error}");
    let path = stub.engine("refused", "refuse the plan is of no use");
    for (gpu, sm, named) in [("Xavier", "7.2", true), ("Orin", "8.7", false)] {
        let sidecar = Sidecar { gpu: Some(gpu.to_owned()), sm: Some(sm.to_owned()), ..Sidecar::default() };
        sidecar.write(&path).unwrap();
        let error = Engine::load(&path, &stub.options()).err().unwrap().to_string();
        // The header of TensorRT for RTX says which GPUs, so that a refusal has another reason.
        let named = named && !stub.version.rtx;
        assert_eq!(error.contains("Xavier (SM 7.2)"), named, "{error}");
        assert_eq!(error.contains("the plan is of no use"), !named, "{error}");
    }
    if stub.version.rtx {
        let path = stub.engine_for("other", "tensor images 1 0 0 2 3\ntensor found 2 0 0 2 3", 0b101);
        let error = Engine::load(&path, &stub.options()).err().unwrap().to_string();
        assert!(error.contains("SM 7.5, SM 8.6") && error.contains("Stub (SM 8.7)"), "{error}");
    }
}

/// TensorRT rejects an engine on a lost GPU without a reason.
fn lost_gpu(stub: &Stub, driver: &libloading::os::unix::Library) {
    let path = stub.engine("lost", "refuse the GPU does not answer");
    // SAFETY: the stub has this function.
    let lose = |code: u32| unsafe { driver.get::<unsafe extern "C" fn(u32)>(b"stub_lose").unwrap()(code) };
    for (code, lost) in [(700, true), (2, false)] {
        lose(code);
        let error = Engine::load(&path, &stub.options()).err().unwrap();
        lose(0);
        assert_eq!(is_gpu_lost(&error), lost, "{error}");
        assert_eq!(error.to_string().contains("does not answer"), !lost, "{error}");
    }
}

/// The metadata beside an engine are those of this engine, or none.
fn metadata(stub: &Stub) {
    let lines = "tensor images 1 0 0 2 3\ntensor found 2 0 0 2 3";
    let path = stub.engine("metadata", lines);
    let sha256 = stub.load("metadata", lines).unwrap().file().sha256.clone();
    for (sha256, known) in [(sha256, true), ("0".repeat(64), false)] {
        let engine = crate::tensorrt::sidecar::EngineFile { sha256 };
        let metadata = BTreeMap::from([("names".to_owned(), "{0: 'person'}".to_owned())]);
        Sidecar { engine, metadata, ..Sidecar::default() }.write(&path).unwrap();
        let engine = Engine::load(&path, &stub.options()).unwrap();
        assert_eq!(engine.metadata().contains_key("names"), known);
    }
}
