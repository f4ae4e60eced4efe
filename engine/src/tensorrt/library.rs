//! Finds TensorRT's library and checks that it is usable.
//!
//! Libraries are opened by their names on devices, newest first, and are never closed: TensorRT leaves threads and CUDA memory
//! behind. Open CUDA (a [`Device`](visiond_kernels::cuda::Device)) before you create a runtime that needs a GPU: without it
//! TensorRT 10 and 11 return an invalid object.

use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;

use super::abi::{Abi, Class, Owned, RawObject, builder, runtime};
use super::error::TensorRtError;
use super::logger::{self, TrtLogger, first_message};
use super::plugins::{GetVersion, MissingPlugin, Plugins};
use super::version::{Layout, Version};
use crate::backend::EngineError;
use crate::dynamic_library::{as_file, file_of, loader_error, search_directories};

/// The environment variable that names the library.
pub const VARIABLE: &str = "VISIOND_TENSORRT_LIBRARY";

/// The names of the library, in search order.
const NAMES: [&str; 4] = ["libnvinfer.so.11", "libnvinfer.so.10", "libnvinfer.so.8", "libtensorrt_rtx.so.1"];

/// Directories searched after the loader's own and the architecture's.
const DIRECTORIES: [&str; 4] = ["/usr/lib64", "/usr/local/lib", "/usr/local/tensorrt/lib", "/usr/local/cuda/lib64"];

/// The function that creates a builder; lean and dispatch runtimes do not have it.
const BUILDER: &[u8] = b"createInferBuilder_INTERNAL\0";

/// The open libraries; usually one.
static OPEN: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());

type CreateObject = unsafe extern "C" fn(*mut c_void, i32) -> *mut RawObject;
type CreateParser = unsafe extern "C" fn(*mut RawObject, *mut c_void, i32) -> *mut RawObject;

/// A usable TensorRT library.
pub struct Library {
    handle: Handle,
    path: PathBuf,
    number: i32,
    abi: Abi,
    parser: OnceLock<Result<ParserLibrary, (PathBuf, String)>>,
    plugins: OnceLock<Plugins>,
}

/// TensorRT's ONNX parser, a separate library.
struct ParserLibrary {
    create: CreateParser,
    number: i32,
    path: PathBuf,
}

impl Library {
    /// Finds TensorRT's library.
    ///
    /// The order is: the file `path`, the library that `VISIOND_TENSORRT_LIBRARY` names, and then the first usable one of
    /// libnvinfer.so.11, .10, .8 and libtensorrt_rtx.so.1 in the loader's path, the system's directories, the executable's
    /// directory, `lib` beside that, and the user's cache (`$XDG_CACHE_HOME/visiond/lib`).
    pub fn get(path: Option<&Path>) -> Result<&'static Self, EngineError> {
        Ok(Self::find(path, None)?)
    }

    /// Does the same as [`Library::get`], but tries the library for engines of `built_by` first: a device may have several.
    pub fn for_engine(path: Option<&Path>, built_by: Version) -> Result<&'static Self, EngineError> {
        Ok(Self::find(path, Some(built_by))?)
    }

    fn find(path: Option<&Path>, built_by: Option<Version>) -> Result<&'static Self, TensorRtError> {
        if let Some(path) = path {
            return Self::open(&as_file(path));
        }
        if let Some(path) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            return Self::open(Path::new(&path));
        }
        let mut names = NAMES;
        if let Some(version) = built_by {
            names.sort_by_key(|name| *name != soname(version));
        }
        let searched = search_directories(&DIRECTORIES);
        let mut unusable = None;
        for name in names {
            let in_directories = searched.iter().map(|directory| directory.join(name)).filter(|path| path.exists());
            for candidate in std::iter::once(PathBuf::from(name)).chain(in_directories) {
                match Self::open(&candidate) {
                    Ok(library) => return Ok(library),
                    // The loader's message for a name that it does not find.
                    Err(TensorRtError::Unusable(_, reason)) if reason.starts_with(&format!("{name}: cannot open")) => {}
                    Err(error) => drop(unusable.get_or_insert(error)),
                }
            }
        }
        let not_installed = || TensorRtError::NotInstalled(NAMES.join(", "), others(&searched));
        Err(unusable.unwrap_or_else(not_installed))
    }

    /// Opens the library at `path`, or returns it if it is already open.
    fn open(path: &Path) -> Result<&'static Self, TensorRtError> {
        let unusable = |reason: String| TensorRtError::Unusable(path.to_owned(), reason);
        // SAFETY: opening a library runs its initialisers. The user named the path, or only the system's owner or the user can
        // put a library there. Nothing more can be known before it is opened.
        let handle = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| unusable(loader_error(&error, path)))?;
        // SAFETY: `getInferLibVersion` has had this signature in every release of TensorRT (NvInferRuntime.h).
        let number = unsafe { handle.get::<GetVersion>(b"getInferLibVersion\0") }
            .map(|function| *function)
            .map_err(|_| unusable("it is a library, but not TensorRT's (it has no getInferLibVersion)".to_owned()))?;
        let file = file_of(number as *const c_void).unwrap_or_else(|| path.to_owned());
        let file = file.canonicalize().unwrap_or(file);
        let mut open = OPEN.lock();
        if let Some(library) = open.iter().find(|library| library.path == file) {
            return Ok(library);
        }
        // SAFETY: the function takes no arguments and returns a number.
        let number = unsafe { number() };
        let abi = abi(&file, Version::decode(number.unsigned_abs()))?;
        let (parser, plugins) = (OnceLock::new(), OnceLock::new());
        let library: &'static Self = Box::leak(Box::new(Self { handle, path: file, number, abi, parser, plugins }));
        log::debug!("opened {} ({})", library.abi.version, library.path.display());
        open.push(library);
        Ok(library)
    }

    /// Returns its version.
    pub fn version(&self) -> Version {
        self.abi.version
    }

    /// Returns its file, with links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is TensorRT for RTX.
    pub fn is_rtx(&self) -> bool {
        self.abi.version.rtx
    }

    /// Returns version and path: "TensorRT 10.3.0 (/usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0)".
    pub fn description(&self) -> String {
        format!("{} ({})", self.abi.version, self.path.display())
    }

    /// Returns whether its plugins are registered. The first runtime or builder registers them, or this call. Open the GPU
    /// first.
    pub fn plugins(&self) -> &Plugins {
        self.plugins.get_or_init(|| {
            // Lean and dispatch runtimes have no builder. Plugins would also load the full library.
            // SAFETY: the signature is that of NvInfer.h since TensorRT 8; it is not called here.
            match unsafe { self.handle.get::<CreateObject>(BUILDER) } {
                Ok(_) => Plugins::register(&self.path, self.abi.version, self.abi.layout),
                Err(_) => Plugins::None { version: self.abi.version },
            }
        })
    }

    /// Returns the plugin that TensorRT's `messages` report as missing; `None` if they are about something else.
    pub fn missing_plugin<'a>(&self, messages: impl Iterator<Item = &'a str> + Clone) -> Option<MissingPlugin> {
        MissingPlugin::of(messages, self.plugins())
    }

    /// Returns its version and the layout of its objects.
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// Returns the logger for its objects.
    pub(crate) fn logger(&self) -> &'static TrtLogger {
        TrtLogger::of(self.abi.layout)
    }

    /// Creates a runtime. Open the GPU first.
    pub fn create_runtime(&'static self) -> Result<Owned<runtime::Runtime>, TensorRtError> {
        self.create(b"createInferRuntime_INTERNAL\0", "runtime")
    }

    /// Creates a builder. Open the GPU first, except for TensorRT for RTX, which builds without one.
    pub fn create_builder(&'static self) -> Result<Owned<builder::Builder>, TensorRtError> {
        self.create(BUILDER, "builder")
    }

    fn create<C: Class>(&'static self, symbol: &[u8], what: &'static str) -> Result<Owned<C>, TensorRtError> {
        let version = self.abi.version;
        let not_started = |reason: String| TensorRtError::NotStarted { version, what, reason };
        // SAFETY: both functions have had this signature since TensorRT 8 (NvInferRuntime.h, NvInfer.h).
        let create = unsafe { self.handle.get::<CreateObject>(symbol) }
            .map_err(|_| not_started(format!("{} has none: this library only runs engines", self.path.display())))?;
        self.plugins();
        logger::take_errors();
        // SAFETY: the logger has the layout that this version calls and lives as long as the process; the number is the
        // library's own, so it treats the caller as compiled against it.
        let raw = unsafe { create(self.logger().as_ptr(), self.number) };
        // SAFETY: `raw` is what the function returned for this class, and we own it.
        unsafe { Owned::from_raw(raw, self.abi) }.ok_or_else(|| {
            let said = logger::take_errors();
            not_started(match said.is_empty() {
                true => "it found no working CUDA GPU; see `visiond probe`".to_owned(),
                false => first_message(&said),
            })
        })
    }

    /// Creates a parser for `network`.
    ///
    /// # Safety
    /// `network` is a living network definition of this library and outlives the result.
    pub unsafe fn create_parser(
        &'static self,
        network: *mut RawObject,
    ) -> Result<Owned<builder::Parser>, TensorRtError> {
        let parser = self.parser.get_or_init(|| self.open_parser());
        let parser = parser.as_ref().map_err(|(path, reason)| TensorRtError::Unusable(path.clone(), reason.clone()))?;
        logger::take_errors();
        // SAFETY: the signature is the same in every release; the caller guarantees the network; logger and number as in
        // `create`.
        let raw = unsafe { (parser.create)(network, self.logger().as_ptr(), parser.number) };
        // SAFETY: `raw` is what the function returned for this class, and we own it.
        unsafe { Owned::from_raw(raw, self.abi) }.ok_or_else(|| TensorRtError::NotStarted {
            version: self.abi.version,
            what: "ONNX parser",
            reason: match logger::take_errors() {
                said if said.is_empty() => format!("{} gives no reason", parser.path.display()),
                said => first_message(&said),
            },
        })
    }

    /// Opens the parser's library: beside this one, otherwise by name.
    fn open_parser(&self) -> Result<ParserLibrary, (PathBuf, String)> {
        let name = match self.abi.layout {
            Layout::V8 => "libnvonnxparser.so.8",
            Layout::V10 => "libnvonnxparser.so.10",
            Layout::V11 => "libnvonnxparser.so.11",
            Layout::Rtx => "libtensorrt_onnxparser_rtx.so.1",
        };
        let beside = self.path.with_file_name(name);
        let path = if beside.exists() { beside } else { PathBuf::from(name) };
        // SAFETY: as in `open`.
        let handle = unsafe { Handle::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let handle = handle.map_err(|error| (path.clone(), loader_error(&error, &path)))?;
        let foreign = |_| (path.clone(), "it is a library, but not TensorRT's ONNX parser".to_owned());
        // SAFETY: the signatures are those of NvOnnxParser.h since TensorRT 8.
        let (create, number) = unsafe {
            let create = *handle.get::<CreateParser>(b"createNvOnnxParser_INTERNAL\0").map_err(foreign)?;
            let number = *handle.get::<GetVersion>(b"getNvOnnxParserVersion\0").map_err(foreign)?;
            (create, number())
        };
        std::mem::forget(handle);
        Ok(ParserLibrary { create, number, path })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({})", self.description())
    }
}

/// Returns the file name of the library of a version.
fn soname(version: Version) -> &'static str {
    match (version.rtx, version.major) {
        (true, _) => "libtensorrt_rtx.so.1",
        (false, ..=9) => "libnvinfer.so.8",
        (false, 10) => "libnvinfer.so.10",
        (false, _) => "libnvinfer.so.11",
    }
}

/// Returns the layout of the version's objects.
fn abi(path: &Path, version: Version) -> Result<Abi, TensorRtError> {
    let unsupported = |remedy| TensorRtError::Unsupported { path: path.to_owned(), version, remedy };
    if let Some(layout) = version.layout() {
        return Ok(Abi { version, layout });
    }
    Err(unsupported(match (version.rtx, version.major) {
        (true, 0..=1) => "install TensorRT for RTX 1.5 or newer",
        (false, ..=8) => "install 8.5 or newer, which comes with JetPack 5.1 (JetPack 4 has no newer one)",
        (false, 9) => "install TensorRT 10 or 11",
        _ => {
            "it supports TensorRT 8.5 to 11 and TensorRT for RTX 1.5 and newer 1.x; install one of them, or a newer visiond"
        }
    }))
}

/// Returns TensorRT's libraries in `directories` that have unsupported versions.
fn others(directories: &[PathBuf]) -> Vec<PathBuf> {
    let entries = directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    let other = |name: &str| name.strip_prefix("libnvinfer.so.").is_some_and(|major| major.parse::<u32>().is_ok());
    let mut found: Vec<_> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(other)).map(|e| e.path()).collect();
    found.sort();
    found
}
