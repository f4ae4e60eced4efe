//! Libraries made for the test: every virtual notes that it was called, so that each of our calls can be told to have
//! reached the right method of the right object. The tables are made from `slots.md`, not from ours.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::Library as Handle;

use super::super::abi::builder::{Builder, Config, Network, Parser, Profile as BuildProfile, Tensor, TimingCache};
use super::super::abi::runtime::{Context, Engine, HostMemory, Inspector, Runtime};
use super::super::abi::{Abi, Object, Owned, RawObject, Version, call, dims_32, dims_64, sizes_of_32, sizes_of_64};
use super::super::library::Library;
use super::super::profiler::Profiler;
use super::super::recorder::{ErrorCode, Recorder};
use super::super::{engine, logger};
use super::golden;

/// The library's number and its version as the golden data have it.
const MOCKED: [(u32, &str); 6] = [
    (8503, "8.5.3"),
    (8601, "v8.6.1"),
    (100_001, "v10.0.1"),
    (100_300, "v10.3.0"),
    (101_600, "v10.16"),
    (110_400, "v11.4"),
];

const CLASSES: [&str; 12] = [
    "VRuntime",
    "VCudaEngine",
    "VExecutionContext",
    "VHostMemory",
    "VEngineInspector",
    "VBuilder",
    "VBuilderConfig",
    "VOptimizationProfile",
    "VNetworkDefinition",
    "VTensor",
    "VTimingCache",
    "IParser",
];

/// What every mock has.
const HEAD: &str = r#"
#include <stdint.h>
#include <string.h>
struct dims { int32_t count; SIZE sizes[8]; };
struct implementation { const void **vtable; };
struct object { const void **vtable; struct implementation *implementation; };
static const char *last_class = "";
static int last_slot = -1;
static const void *last_this;
static int deleted;
const char *mock_class(void) { return last_class; }
int mock_slot(void) { return last_slot; }
const void *mock_this(void) { return last_this; }
int mock_deleted(void) { return deleted; }
static void note(const char *name, int slot, const void *self) { last_class = name; last_slot = slot; last_this = self; }
static void complete(void *self) { (void)self; deleted = -1000; }
static void deleting(void *self) { (void)self; deleted++; }
static const void *own_table[2] = { (void *)complete, (void *)deleting };
static struct dims last_dims;
static void *callback(void *object, int slot) { return (void *)((*(const void ***)object)[slot]); }
"#;

/// The source of a library of this version.
fn source(number: u32, version: &str) -> String {
    let plain = version.trim_start_matches('v');
    let slot = |class: &str, method: &str| golden::class(class, plain).and_then(|c| c.methods[method]);
    let size = if number < 10_000 { "int32_t" } else { "int64_t" };
    let mut c = format!("#define SIZE {size}\n{HEAD}");
    let objects: Vec<&str> = CLASSES.into_iter().filter(|class| golden::class(class, plain).is_some()).collect();
    for class in &objects {
        let _ = writeln!(c, "static struct object {class}_object;");
    }
    for class in &objects {
        let golden_class = golden::class(class, plain).unwrap();
        for index in 0..golden_class.slots {
            let method =
                golden_class.methods.iter().find(|(_, slot)| **slot == Some(index)).map_or("", |(name, _)| name);
            let note = format!("note(\"{class}\", {index}, self);");
            let _ = match (*class, method) {
                (_, "getTensorShape" | "getProfileShape" | "getDimensions") => writeln!(
                    c,
                    "static struct dims {class}_{index}(void *self) {{ {note} struct dims d = {{ 3, {{ 7, -1, 9 }} }}; return d; }}"
                ),
                (_, "setInputShape") => writeln!(
                    c,
                    "static intptr_t {class}_{index}(void *self, const char *name, const struct dims *d) {{ {note} \
                     if (d) last_dims = *d; return !name || !strcmp(name, \"images\"); }}"
                ),
                ("VOptimizationProfile", "setDimensions") if number < 10_000 => writeln!(
                    c,
                    "static intptr_t {class}_{index}(void *self, const char *name, int32_t which, struct dims d) {{ {note} \
                     (void)name; (void)which; last_dims = d; return 1; }}"
                ),
                ("VRuntime", "deserializeCudaEngine") => writeln!(
                    c,
                    "static void *{class}_{index}(void *self, const void *plan, size_t size{third}) {{ {note} \
                     return size == 4 && !memcmp(plan, \"plan\", 4){third_null} ? &VCudaEngine_object : 0; }}",
                    third = if number < 10_000 { ", void *third" } else { "" },
                    third_null = if number < 10_000 { " && !third" } else { "" },
                ),
                ("VRuntime", "setErrorRecorder") => writeln!(
                    c,
                    "static intptr_t {class}_{index}(void *self, void *recorder) {{ {note} if (recorder) \
                     ((char (*)(void *, int32_t, const char *))callback(recorder, {report}))(recorder, 6, \"mock \\1 reports.\"); return 1; }}",
                    report = golden::callback("IErrorRecorder", "reportError", version),
                ),
                ("VExecutionContext", "setProfiler") => writeln!(
                    c,
                    "static intptr_t {class}_{index}(void *self, void *profiler) {{ {note} if (profiler) \
                     ((void (*)(void *, const char *, float))callback(profiler, {time}))(profiler, \"conv\", 0.5f); return 1; }}",
                    time = golden::callback("IProfiler", "reportLayerTime", version),
                ),
                _ => writeln!(c, "static intptr_t {class}_{index}(void *self) {{ {note} return 1; }}"),
            };
        }
        let entries: Vec<_> = (0..golden_class.slots).map(|index| format!("(void *){class}_{index}")).collect();
        let _ = writeln!(c, "static const void *{class}_table[] = {{ {} }};", entries.join(", "));
        let _ = match class.starts_with('V') {
            true => writeln!(
                c,
                "static struct implementation {class}_implementation = {{ {class}_table }};\n\
                 static struct object {class}_object = {{ own_table, &{class}_implementation }};"
            ),
            false => writeln!(c, "static struct object {class}_object = {{ {class}_table, 0 }};"),
        };
    }
    let _ = writeln!(c, "void *mock_object(const char *name) {{");
    for class in &objects {
        let _ = writeln!(c, "  if (!strcmp(name, \"{class}\")) return &{class}_object;");
    }
    let _ = writeln!(
        c,
        "  return 0; }}\n\
         int getInferLibVersion(void) {{ return {number}; }}\n\
         const void *mock_dims(void) {{ return &last_dims; }}\n\
         void *createInferRuntime_INTERNAL(void *logger, int version) {{\n\
         ((void (*)(void *, int32_t, const char *))callback(logger, {log}))(logger, 1, \"mock \\x1b logs\");\n\
         return version == {number} ? (void *)&VRuntime_object : (void *)0x228; }}\n\
         void *createInferBuilder_INTERNAL(void *logger, int version) {{ (void)logger; (void)version; return (void *)0x238; }}",
        log = golden::callback("ILogger", "log", version),
    );
    assert!(slot("VRuntime", "getLogger").is_some());
    c
}

/// Compiles a library into `folder`.
fn compiled(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&file, source).unwrap();
    let output = Command::new("cc").args(["-shared", "-fPIC", "-O0", "-o"]).arg(&library).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// What a mock tells of the calls it got.
struct Mock {
    handle: Handle,
    abi: Abi,
    version: &'static str,
}

impl Mock {
    fn number(&self, name: &str) -> i32 {
        // SAFETY: the function takes nothing and returns a number.
        unsafe { self.handle.get::<unsafe extern "C" fn() -> c_int>(name.as_bytes()).unwrap()() }
    }

    fn pointer(&self, name: &str) -> *const c_void {
        // SAFETY: the function takes nothing and returns a pointer.
        unsafe { self.handle.get::<unsafe extern "C" fn() -> *const c_void>(name.as_bytes()).unwrap()() }
    }

    fn object(&self, class: &str) -> *mut RawObject {
        let class = CString::new(class).unwrap();
        // SAFETY: the function takes a text and returns a static object.
        unsafe {
            let find =
                self.handle.get::<unsafe extern "C" fn(*const c_char) -> *mut RawObject>(b"mock_object").unwrap();
            find(class.as_ptr())
        }
    }

    /// Fails unless the last call was to `name`, as the golden data have it, on the object's own methods.
    fn check_last(&self, name: &str) {
        let (class, method) = name.split_once("::").unwrap();
        let golden_class = golden::class(class, self.version.trim_start_matches('v')).unwrap();
        let expected = golden_class.methods.get(method).copied().flatten();
        let expected = expected.or_else(|| Some(golden_class.methods["setEngineHostCodeAllowed"]? + 1));
        // SAFETY: the mock's texts are static.
        let called = unsafe { CStr::from_ptr(self.pointer("mock_class").cast()) }.to_str().unwrap();
        let slot = usize::try_from(self.number("mock_slot")).unwrap();
        assert_eq!((called, Some(slot)), (class, expected), "{name} in {}", self.version);
        let object = self.object(class);
        let this = match class.starts_with('V') {
            // SAFETY: the mock's object has both fields.
            true => unsafe { *object.cast::<*const c_void>().add(1) },
            false => object.cast_const().cast(),
        };
        assert_eq!(self.pointer("mock_this"), this, "{name} in {}", self.version);
    }
}

macro_rules! call_each {
    ($mock:expr, $($name:literal $class:ident),*) => {
        $(
            // SAFETY: the mock's objects are static and take anything.
            unsafe {
                if let Some(object) = Object::<$class>::from_raw($mock.object($name), $mock.abi) {
                    $class::call_each(object, |name| $mock.check_last(name));
                }
            }
        )*
    };
}

#[test]
fn each_method_of_every_version_is_the_one_that_is_called() {
    let folder = tempfile::tempdir().unwrap();
    for (number, version) in MOCKED {
        let path = compiled(folder.path(), &format!("nvinfer_{number}"), &source(number, version));
        logger::take_errors();
        let library = Library::get(Some(&path)).unwrap();
        assert_eq!(library.version(), Version::decode(number));
        assert!(std::ptr::eq(library, Library::get(Some(&path)).unwrap()), "a library is opened once");
        let handle = unsafe_open(&path);
        let mock = Mock { handle, abi: library.abi(), version };
        call_each!(
            mock, "VRuntime" Runtime, "VCudaEngine" Engine, "VExecutionContext" Context, "VHostMemory" HostMemory,
            "VEngineInspector" Inspector, "VBuilder" Builder, "VBuilderConfig" Config,
            "VOptimizationProfile" BuildProfile, "VNetworkDefinition" Network, "VTensor" Tensor,
            "VTimingCache" TimingCache, "IParser" Parser
        );
        flow(library, &mock);
    }
}

/// Opens a library whose functions take and do what the test says.
fn unsafe_open(path: &Path) -> Handle {
    // SAFETY: the library is the one that this test compiled.
    unsafe { Handle::new(path) }.unwrap()
}

/// From the library to a context's shapes, with logger, recorder and profiler called back on the way.
fn flow(library: &'static Library, mock: &Mock) {
    let layout = mock.abi.layout;
    let recorder = Recorder::new(layout);
    let runtime = library.create_runtime().unwrap();
    assert_eq!(logger::take_errors(), ["mock   logs"]);

    let error = engine::deserialize(library, &runtime, &recorder, b"garbage").err().unwrap().to_string();
    assert_eq!(error, format!("{} could not load the engine: mock   reports", library.version()));
    let loaded = engine::deserialize(library, &runtime, &recorder, b"plan").unwrap();
    mock.check_last("VRuntime::deserializeCudaEngine");
    let reported = recorder.take();
    assert_eq!((reported.len(), reported[0].code), (1, ErrorCode::FailedInitialization));

    // SAFETY: the mock's objects are static and take anything.
    unsafe {
        let object = Object::<Context>::from_raw(mock.object("VExecutionContext"), mock.abi).unwrap();
        let profiler = Profiler::new(layout);
        call!(object, Context::SET_PROFILER(profiler.as_ptr())).unwrap();
        assert_eq!(profiler.take()[0].us, 500.0);
        let (images, others) = (c"images".as_ptr(), c"others".as_ptr());
        let (shape, taken, refused, last) = if Context::TENSOR_SHAPE_8.is_in(mock.abi) {
            let dims = dims_32(&[2, 3, 4, 5]).unwrap();
            (
                sizes_of_32(call!(object, Context::TENSOR_SHAPE_8(images)).unwrap()),
                call!(object, Context::SET_INPUT_SHAPE_8(images, &dims)).unwrap(),
                call!(object, Context::SET_INPUT_SHAPE_8(others, &dims)).unwrap(),
                sizes_of_32(*mock.pointer("mock_dims").cast()),
            )
        } else {
            let dims = dims_64(&[2, 3, 4, 5]).unwrap();
            (
                sizes_of_64(call!(object, Context::TENSOR_SHAPE(images)).unwrap()),
                call!(object, Context::SET_INPUT_SHAPE(images, &dims)).unwrap(),
                call!(object, Context::SET_INPUT_SHAPE(others, &dims)).unwrap(),
                sizes_of_64(*mock.pointer("mock_dims").cast()),
            )
        };
        assert_eq!((shape.unwrap(), taken, refused), (vec![7, -1, 9], true, false));
        assert_eq!(last.unwrap(), [2, 3, 4, 5]);
        if BuildProfile::SET_DIMENSIONS_8.is_in(mock.abi) {
            let profile = Object::<BuildProfile>::from_raw(mock.object("VOptimizationProfile"), mock.abi).unwrap();
            call!(profile, BuildProfile::SET_DIMENSIONS_8(images, 2, dims_32(&[6, 7]).unwrap())).unwrap();
            assert_eq!(sizes_of_32(*mock.pointer("mock_dims").cast()).unwrap(), [6, 7]);
        }
    }
    // A builder that is none: what TensorRT 10 and 11 give where CUDA does not work.
    let error = library.create_builder().err().unwrap().to_string();
    assert!(error.contains("found no CUDA GPU that works"), "{error}");
    let deleted = mock.number("mock_deleted");
    drop::<Owned<Engine>>(loaded);
    drop::<Owned<Runtime>>(runtime);
    assert_eq!(mock.number("mock_deleted"), deleted + 2, "objects are deleted by the deleting destructor");
}

#[test]
fn libraries_of_other_versions_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |number: u32| {
        let source = format!("int getInferLibVersion(void) {{ return {number}; }}");
        let path = compiled(folder.path(), &format!("refused_{number}"), &source);
        let error = Library::get(Some(&path)).unwrap_err().to_string();
        error.replace(&*path.canonicalize().unwrap().to_string_lossy(), "LIBRARY")
    };
    assert_eq!(
        refused(8201),
        "LIBRARY is TensorRT 8.2.1, which visiond does not run: it needs 8.5 or newer, which comes with JetPack 5.1 (JetPack 4 \
         has no newer one)"
    );
    assert_eq!(
        refused(10_400),
        "LIBRARY is TensorRT for RTX 1.4.0, which visiond does not run: install TensorRT for RTX 1.5 or newer"
    );
    assert_eq!(refused(9100), "LIBRARY is TensorRT 9.1.0, which visiond does not run: install TensorRT 10 or 11");
    assert!(refused(120_000).contains("or a newer visiond"));
}

#[test]
fn what_is_no_library_of_tensorrt_is_told_in_the_loaders_words() {
    let error = |path: &Path| Library::get(Some(path)).unwrap_err().to_string();
    let said = error(Path::new("/nowhere/libnvinfer.so.10"));
    assert!(said.contains("/nowhere/libnvinfer.so.10") && said.contains("No such file"), "{said}");
    let said = error(Path::new("libc.so.6"));
    assert!(said.contains("not TensorRT's (it has no getInferLibVersion)"), "{said}");
    // A library that needs another which is missing, as libnvinfer needs libnvdla_compiler.so.
    let folder = tempfile::tempdir().unwrap();
    let needed = compiled(folder.path(), "nvdla_compiler", "int nvdla(void) { return 1; }");
    let source = folder.path().join("nvinfer.c");
    std::fs::write(&source, "int nvdla(void); int getInferLibVersion(void) { return nvdla(); }").unwrap();
    let library = folder.path().join("libnvinfer.so.10");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-L").arg(folder.path()).arg("-lnvdla_compiler");
    assert!(cc.status().unwrap().success());
    std::fs::remove_file(needed).unwrap();
    let said = error(&library);
    assert!(said.contains("libnvdla_compiler.so: cannot open shared object file"), "{said}");
}
