//! Libraries made for the test: every virtual method records its calls, which shows that each of our calls reaches the right
//! method of the right object. The tables are made from `slots.md`, not from ours.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};

use libloading::os::unix::Library as Handle;
use parking_lot::Mutex;

use super::super::abi::builder::{Builder, Config, Network, Parser, Profile as BuildProfile, Tensor, TimingCache};
use super::super::abi::runtime::{Context, Engine, HostMemory, Inspector, Runtime};
use super::super::abi::{Abi, Object, Owned, RawObject, call, dims_32, dims_64, sizes_of_32, sizes_of_64};
use super::super::error::TensorRtError;
use super::super::error_recorder::ErrorRecorder;
use super::super::library::Library;
use super::super::plugins::Plugins;
use super::super::profiler::Profiler;
use super::super::version::Version;
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

/// The source text that every mock has.
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
static void (*on_delete)(void *);
void mock_on_delete(void (*tell)(void *)) { on_delete = tell; }
static void deleting(void *self) { deleted++; if (on_delete) on_delete(self); }
static const void *own_table[2] = { (void *)complete, (void *)deleting };
static struct dims last_dims;
static void *the_logger;
static char registered[64] = "none";
void mock_register(const char *space) { strcpy(registered, "in:"); strcat(registered, space); }
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
                // The plan `nms!` needs a plugin, in whichever namespace it is registered.
                ("VRuntime", "deserializeCudaEngine") => writeln!(
                    c,
                    "static void *{class}_{index}(void *self, const void *plan, size_t size{third}) {{ {note} \
                     if (size == 4 && !memcmp(plan, \"nms!\", 4)) {{ if (!strcmp(registered, \"in:\")) return &VCudaEngine_object; \
                     ((void (*)(void *, int32_t, const char *))callback(the_logger, {log}))(the_logger, 1, \"{missing}\"); \
                     return 0; }} \
                     return size == 4 && !memcmp(plan, \"plan\", 4){third_null} ? &VCudaEngine_object : 0; }}",
                    log = golden::callback("ILogger", "log", version),
                    missing = match number {
                        ..10_000 => "3: getPluginCreator could not find plugin: EfficientNMS_TRT version: 1",
                        _ =>
                            "IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: EfficientNMS_TRT, \
                              version: 1, namespace:.)",
                    },
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
         void *createInferRuntime_INTERNAL(void *logger, int version) {{ the_logger = logger;\n\
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
    compiled_as(&folder.join(format!("lib{name}.so")), source, &[])
}

/// Compiles a library as `library`, with its file name as its soname where `arguments` say so or link against another.
pub(super) fn compiled_as(library: &Path, source: &str, arguments: &[&str]) -> PathBuf {
    let file = library.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O0", "-o"]).arg(library).arg(&file).args(arguments);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library.to_owned()
}

/// A TensorRT of this version in `folder`, by the names that it has on devices, and its library of plugins beside it.
fn installed(folder: &Path, number: u32, version: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let major = Version::decode(number).major;
    let name = format!("libnvinfer.so.{major}");
    let soname = format!("-Wl,-soname,{name}");
    let library = compiled_as(&folder.join(&name), &source(number, version), &[&soname]);
    // As NVIDIA's is: linked against libnvinfer by its soname, and with no path to find it by.
    let plugins = format!(
        "void mock_register(const char *); int getInferLibVersion(void);\n\
         static void *callback(void *object, int slot) {{ return (void *)((*(const void ***)object)[slot]); }}\n\
         _Bool initLibNvInferPlugins(void *logger, const char *space) {{\n\
         if (getInferLibVersion() != {number}) return 0;\n\
         ((void (*)(void *, int, const char *))callback(logger, {log}))(logger, 4, \"registers\");\n\
         mock_register(space); return 1; }}",
        log = golden::callback("ILogger", "log", version),
    );
    let (place, link) = (format!("-L{}", folder.display()), format!("-l:{name}"));
    compiled_as(&folder.join(format!("libnvinfer_plugin.so.{major}")), &plugins, &[&place, &link]);
    library
}

/// A mock, which reports the calls that it got.
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

/// Opens a library whose functions have the signatures that the test needs.
pub(super) fn unsafe_open(path: &Path) -> Handle {
    // SAFETY: the library is the one that this test compiled.
    unsafe { Handle::new(path) }.unwrap()
}

/// From the library to a context's shapes, with logger, recorder and profiler called back on the way.
fn flow(library: &'static Library, mock: &Mock) {
    let layout = mock.abi.layout;
    let recorder = ErrorRecorder::new(layout);
    let runtime = library.create_runtime().unwrap();
    assert_eq!(logger::take_errors(), ["mock   logs"]);

    let error = engine::deserialize(library, &runtime, &recorder, b"garbage").err().unwrap().to_string();
    assert_eq!(error, format!("{} cannot load the engine: mock   reports", library.version()));
    let loaded = engine::deserialize(library, &runtime, &recorder, b"plan").unwrap();
    mock.check_last("VRuntime::deserializeCudaEngine");
    let reported = recorder.take();
    assert_eq!((reported.len(), reported[0].code), (1, Some(6)));

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
    // An invalid builder, as TensorRT 10 and 11 return without a working CUDA.
    let error = library.create_builder().err().unwrap().to_string();
    assert!(error.contains("found no working CUDA GPU"), "{error}");
    let deleted = mock.number("mock_deleted");
    drop::<Owned<Engine>>(loaded);
    drop::<Owned<Runtime>>(runtime);
    assert_eq!(mock.number("mock_deleted"), deleted + 2, "objects are deleted by the deleting destructor");
}

/// The recorder that the objects of a mock report to, and for each object that was deleted whether the recorder lived.
static REPORTED_TO: Mutex<Weak<ErrorRecorder>> = Mutex::new(Weak::new());
static DELETED: Mutex<Vec<(usize, bool)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note_deletion(object: *mut c_void) {
    DELETED.lock().push((object.addr(), REPORTED_TO.lock().upgrade().is_some()));
}

#[test]
fn runtime_and_engine_are_deleted_before_the_recorder_that_they_report_to() {
    let folder = tempfile::tempdir().unwrap();
    for (number, version) in MOCKED {
        let path = compiled(folder.path(), &format!("deletes_{number}"), &source(number, version));
        let library = Library::get(Some(&path)).unwrap();
        let mock = Mock { handle: unsafe_open(&path), abi: library.abi(), version };
        // SAFETY: the function takes a function of this type, which takes any address.
        unsafe {
            type OnDelete = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void));
            mock.handle.get::<OnDelete>(b"mock_on_delete").unwrap()(note_deletion);
        }
        let deleted_after = |plan: &[u8]| {
            let recorder = ErrorRecorder::new(mock.abi.layout);
            *REPORTED_TO.lock() = Arc::downgrade(&recorder);
            let loaded = engine::Deserialized::new(library, recorder, plan);
            let is_loaded = loaded.is_ok();
            assert_eq!(DELETED.lock().is_empty(), is_loaded, "an error deletes what was made");
            drop(loaded);
            assert!(REPORTED_TO.lock().upgrade().is_none(), "the recorder is freed at last");
            (is_loaded, std::mem::take(&mut *DELETED.lock()))
        };
        let [runtime, engine] = ["VRuntime", "VCudaEngine"].map(|class| mock.object(class).addr());
        assert_eq!(deleted_after(b"garbage"), (false, vec![(runtime, true)]), "{version}");
        assert_eq!(deleted_after(b"plan"), (true, vec![(engine, true), (runtime, true)]), "{version}");
    }
}

/// Loads an engine that needs a plugin: `Ok`, or which one is missing.
fn engine_with_plugin(library: &'static Library) -> Result<(), String> {
    logger::take_errors();
    let recorder = ErrorRecorder::new(library.abi().layout);
    let runtime = library.create_runtime().unwrap();
    recorder.take();
    let Err(error) = engine::deserialize(library, &runtime, &recorder, b"nms!") else { return Ok(()) };
    let TensorRtError::Refused { reported, .. } = error else { panic!("{error}") };
    let message = reported.iter().map(|reported| reported.text.as_str());
    Err(library.missing_plugin(message).unwrap().to_string())
}

#[test]
fn an_engine_with_nvidias_plugins_is_loaded_wherever_tensorrt_was_opened_from() {
    let folder = tempfile::tempdir().unwrap();
    for (number, version) in [(8503, "8.5.3"), (100_300, "v10.3.0"), (110_400, "v11.4")] {
        let path = installed(&folder.path().join(version), number, version);
        let library = Library::get(Some(&path)).unwrap();
        assert_eq!(engine_with_plugin(library), Ok(()));
        let plugins = path.with_file_name(format!("libnvinfer_plugin.so.{}", library.version().major));
        assert_eq!(*library.plugins(), Plugins::Registered { path: plugins.canonicalize().unwrap() });
        assert_eq!(library.plugins().to_string(), "with its plugins");
    }
    // Another of a soname that is taken: the loader links its plugins to the first, where they would be registered.
    let path = installed(&folder.path().join("other"), 100_300, "v10.3.0");
    let library = Library::get(Some(&path)).unwrap();
    let error = engine_with_plugin(library).unwrap_err();
    assert!(
        error.starts_with("the plugin EfficientNMS_TRT (version 1) is missing; TensorRT's plugins are not installed"),
        "{error}"
    );
    assert!(error.contains("v10.3.0/libnvinfer.so.10, which was opened before"), "{error}");
}

#[test]
fn without_nvidias_plugins_the_missing_one_is_named_with_the_package_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    for (number, version) in [(8601, "v8.6.1"), (100_001, "v10.0.1"), (110_400, "v11.4")] {
        let path = compiled(folder.path(), &format!("without_plugins_{number}"), &source(number, version));
        let library = Library::get(Some(&path)).unwrap();
        let major = library.version().major;
        assert_eq!(
            engine_with_plugin(library).unwrap_err(),
            format!(
                "the plugin EfficientNMS_TRT (version 1) is missing; TensorRT's plugins are not installed (libnvinfer_plugin.so.{major}: \
                 cannot open shared object file: No such file or directory): install them (`sudo apt install \
                 libnvinfer-plugin{major}`)"
            )
        );
    }
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
        "LIBRARY is TensorRT 8.2.1, which visiond does not support: install 8.5 or newer, which comes with JetPack 5.1 (JetPack 4 \
         has no newer one)"
    );
    assert_eq!(
        refused(10_400),
        "LIBRARY is TensorRT for RTX 1.4.0, which visiond does not support: install TensorRT for RTX 1.5 or newer"
    );
    assert_eq!(refused(9100), "LIBRARY is TensorRT 9.1.0, which visiond does not support: install TensorRT 10 or 11");
    assert!(refused(120_000).contains("or a newer visiond"));
}

#[test]
fn what_is_no_library_of_tensorrt_is_told_in_the_loaders_words() {
    let error = |path: &Path| Library::get(Some(path)).unwrap_err().to_string();
    let said = error(Path::new("/nowhere/libnvinfer.so.10"));
    assert!(said.contains("/nowhere/libnvinfer.so.10") && said.contains("No such file"), "{said}");
    // A name without a folder is also a file, and not searched.
    let said = error(Path::new("libc.so.6"));
    assert!(said.contains("./libc.so.6") && said.contains("No such file"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let said = error(&compiled(folder.path(), "other", "int other(void) { return 1; }"));
    assert!(said.contains("not TensorRT's (it has no getInferLibVersion)"), "{said}");
    // A library that needs another which is missing, as libnvinfer needs libnvdla_compiler.so.
    let needed = compiled(folder.path(), "nvdla_compiler", "int nvdla(void) { return 1; }");
    let source = folder.path().join("nvinfer.c");
    std::fs::write(&source, "int nvdla(void); int getInferLibVersion(void) { return nvdla(); }").unwrap();
    let library = folder.path().join("libnvinfer.so.10");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-L").arg(folder.path()).arg("-lnvdla_compiler");
    assert!(cc.status().unwrap().success());
    std::fs::remove_file(needed).unwrap();
    let said = error(&library);
    let needs = format!("{} needs libnvdla_compiler.so, which the loader does not find: ", library.display());
    assert!(said.contains(&needs) && said.contains("apt install nvidia-l4t-dla-compiler"), "{said}");
}
