//! TensorRT's own plugins: opens the library that contains them, and returns the remedy if one is missing.
//!
//! Layers such as `EfficientNMS_TRT` are plugins: an engine names them, and loading it fails unless they were registered
//! before. On TensorRT 8.5 the ONNX parser itself turns `InstanceNormalization` into one. NVIDIA's plugins are in
//! `libnvinfer_plugin`, which nothing links against, so it is opened here.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::logger::{self, TrtLogger, first_message};
use super::version::{Layout, Version};
use crate::dynamic_library::{file_of, loader_error};

/// The type of `getInferLibVersion`.
pub(super) type GetVersion = unsafe extern "C" fn() -> i32;
type Register = unsafe extern "C" fn(*mut c_void, *const c_char) -> bool;

/// Whether TensorRT's plugins are available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugins {
    /// The plugins are registered.
    Registered {
        /// The library.
        path: PathBuf,
    },
    /// The library is missing or unusable.
    Missing {
        /// The Debian package that contains it.
        package: &'static str,
        /// The reason, in the loader's words if the loader rejected it.
        reason: String,
    },
    /// There are no plugins: TensorRT for RTX, lean and dispatch runtimes.
    None {
        /// The version without plugins.
        version: Version,
    },
}

impl Plugins {
    /// Opens the plugin library for the TensorRT at `tensorrt`, which is already open, and registers its plugins.
    pub(super) fn register(tensorrt: &Path, version: Version, layout: Layout) -> Self {
        let (name, package) = match layout {
            Layout::V8 => ("libnvinfer_plugin.so.8", "libnvinfer-plugin8"),
            Layout::V10 => ("libnvinfer_plugin.so.10", "libnvinfer-plugin10"),
            Layout::V11 => ("libnvinfer_plugin.so.11", "libnvinfer-plugin11"),
            Layout::Rtx => return Self::None { version },
        };
        let beside = tensorrt.with_file_name(name);
        let path = if beside.exists() { beside } else { PathBuf::from(name) };
        match open(&path, tensorrt, TrtLogger::of(layout)) {
            Ok(()) => {
                log::debug!("registered TensorRT's plugins ({})", path.display());
                Self::Registered { path }
            }
            Err(reason) => {
                log::debug!("TensorRT's plugins are not registered: {reason}");
                Self::Missing { package, reason }
            }
        }
    }
}

/// Writes `with its plugins`, or why not, to follow the library's name.
impl fmt::Display for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered { .. } => f.write_str("with its plugins"),
            Self::Missing { package, reason } => write!(f, "without its plugins (package {package}): {reason}"),
            Self::None { .. } => f.write_str("which has no plugins"),
        }
    }
}

/// Opens the library at `path` and registers its plugins with the TensorRT at `tensorrt`. The error is text, because it becomes
/// [`Plugins::Missing`]'s reason.
fn open(path: &Path, tensorrt: &Path, logger: &'static TrtLogger) -> Result<(), String> {
    // SAFETY: opening a library runs its initialisers. It is beside TensorRT's library or in the loader's search path, so it
    // is equally trusted. It links against libnvinfer.so.N by name: the loader takes the library that is already open under
    // that soname, whatever its folder (`_dl_map_object` in glibc's elf/dl-load.c compares sonames before it searches).
    // RTLD_LOCAL does not hide them from each other: a library's symbols are also looked up in its dependencies. RTLD_NOW
    // makes a missing symbol an error here, not a crash later.
    let handle =
        unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| loader_error(&error, path))?;
    // SAFETY: the signature is that of NvInferPlugin.h since TensorRT 5.
    let register = unsafe { handle.get::<Register>(b"initLibNvInferPlugins\0") }
        .map(|function| *function)
        .map_err(|_| format!("{} is a library, but not TensorRT's plugins", path.display()))?;
    // Two libraries of one soname may be open from different folders; the plugins belong to the first.
    // SAFETY: the signature is that of NvInferRuntime.h; nothing is called, only the address is used.
    let theirs = unsafe { handle.get::<GetVersion>(b"getInferLibVersion\0") };
    let theirs = theirs.ok().and_then(|function| file_of(*function as *const c_void));
    let theirs = theirs.map(|file| file.canonicalize().unwrap_or(file));
    if let Some(theirs) = theirs.filter(|theirs| theirs != tensorrt) {
        return Err(format!("{} belongs to {}, which was opened before", path.display(), theirs.display()));
    }
    logger::take_errors();
    // SAFETY: the logger has the layout that this version calls and lives as long as the process; the text is NUL-terminated
    // and static. It may be called once per library, which the caller's `OnceLock` ensures.
    let registered = unsafe { register(logger.as_ptr(), c"".as_ptr()) };
    // Never close it: TensorRT's registry points into it. When the process exits, the loader unloads it before the libnvinfer
    // that it links against.
    std::mem::forget(handle);
    match (registered, logger::take_errors()) {
        (true, _) => Ok(()),
        (false, said) if said.is_empty() => Err(format!("{} gives no reason", path.display())),
        (false, said) => Err(first_message(&said)),
    }
}

/// A plugin that TensorRT needs but does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is missing; {remedy}")]
pub struct MissingPlugin {
    /// `the plugin EfficientNMS_TRT (version 1)`, with the parts that TensorRT names.
    pub what: String,
    /// The package to install, as an imperative.
    pub remedy: String,
}

impl MissingPlugin {
    /// Returns the plugin that TensorRT's messages report as missing; `None` if they are about something else.
    pub(super) fn of<'a>(messages: impl Iterator<Item = &'a str> + Clone, plugins: &Plugins) -> Option<Self> {
        let unnamed = || messages.clone().any(is_missing).then(|| "a plugin that TensorRT does not name".to_owned());
        let what = messages.clone().find_map(named).or_else(unnamed)?;
        let remedy = match plugins {
            Plugins::Registered { .. } => {
                "it is not one of NVIDIA's, and visiond opens no others: export the model without it".to_owned()
            }
            Plugins::Missing { package, reason } => {
                format!("TensorRT's plugins are not installed ({reason}): install them (`sudo apt install {package}`)")
            }
            Plugins::None { version } if version.rtx => {
                "TensorRT for RTX has no plugins: export the model without it".to_owned()
            }
            Plugins::None { .. } => {
                "a library for running engines only has no plugins: install the whole TensorRT (on a Jetson: `sudo apt \
                 install tensorrt`)"
                    .to_owned()
            }
        };
        Some(Self { what, remedy })
    }
}

/// Whether a message reports a missing plugin. The parser treats every unknown operator as a plugin.
fn is_missing(message: &str) -> bool {
    message.contains("IPluginCreator not found") || message.contains("Plugin not found, are the plugin name")
}

/// Returns the plugin that the registry did not find, from its message: `getPluginCreator could not find plugin:
/// EfficientNMS_TRT version: 1` (TensorRT 8), or `IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find
/// plugin: EfficientNMS_TRT, version: 1, namespace:.)` (10 and 11).
fn named(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("not find plugin").or_else(|| message.split_once("Cannot find plugin"))?;
    let word = |text: &str| {
        let text = text.trim_start_matches([':', ' ']);
        let word = text.split([',', ' ', ')']).next().unwrap_or_default().trim_end_matches('.');
        (!word.is_empty()).then(|| word.to_owned())
    };
    let name = word(rest)?;
    let detail = |key: &str| {
        let value = rest.split_once(key)?.1.trim_start_matches(':');
        // An empty namespace is followed by a full stop.
        let value = if value.starts_with('.') { None } else { word(value) };
        Some(format!("{key} {}", value?))
    };
    let details: Vec<_> = ["version", "namespace"].into_iter().filter_map(detail).collect();
    match details.is_empty() {
        true => Some(format!("the plugin {name}")),
        false => Some(format!("the plugin {name} ({})", details.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn missing() -> Plugins {
        let reason = "libnvinfer_plugin.so.10: cannot open shared object file: No such file or directory".to_owned();
        Plugins::Missing { package: "libnvinfer-plugin10", reason }
    }

    fn said(messages: &[&str], plugins: &Plugins) -> Option<String> {
        MissingPlugin::of(messages.iter().copied(), plugins).map(|plugin| plugin.to_string())
    }

    #[test]
    fn the_missing_plugin_is_named_in_the_words_of_each_version() {
        let remedy = "is missing; TensorRT's plugins are not installed (libnvinfer_plugin.so.10: cannot open shared object file: \
                      No such file or directory): install them (`sudo apt install libnvinfer-plugin10`)";
        for (messages, plugin) in [
            // As TensorRT 8 logs them (onnx/onnx-tensorrt#597, NVIDIA/TensorRT#1913).
            (
                &[
                    "1: [pluginV2Runner.cpp::load::308] Error Code 1: Serialization (Serialization assertion creator failed.\
                     Cannot deserialize plugin since corresponding IPluginCreator not found in Plugin Registry)",
                    "3: getPluginCreator could not find plugin: InstanceNormalization_TRT version: 1",
                ][..],
                "the plugin InstanceNormalization_TRT (version 1)",
            ),
            (&["getPluginCreator could not find plugin CHUNK_TRT version 1.0"], "the plugin CHUNK_TRT (version 1.0)"),
            // As TensorRT 10 and 11 log them.
            (
                &["IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: EfficientNMS_TRT, \
                   version: 1, namespace:. In getCreatorInternal at /_src/runtime/dispatch/pluginRegistry.cpp:436)"],
                "the plugin EfficientNMS_TRT (version 1)",
            ),
            (
                &["API Usage Error (Cannot find plugin: Mine, version: 2, namespace: of.mine.)"],
                "the plugin Mine (version 2, namespace of.mine)",
            ),
            (
                &["[6] creator && \"Plugin not found, are the plugin name, version, and namespace correct?\""],
                "a plugin that TensorRT does not name",
            ),
        ] {
            assert_eq!(said(messages, &missing()).unwrap(), format!("{plugin} {remedy}"));
        }
        assert_eq!(said(&["Error Code 1: Serialization (header.magicTag failed)", ""], &missing()), None);
    }

    #[test]
    fn the_remedy_is_for_what_is_installed() {
        let message = ["Cannot find plugin: Mine, version: 1, namespace:."];
        let said = |plugins| said(&message, &plugins).unwrap();
        let registered = Plugins::Registered { path: "/usr/lib/libnvinfer_plugin.so.10".into() };
        assert!(
            said(registered)
                .ends_with("it is not one of NVIDIA's, and visiond opens no others: export the model without it")
        );
        let none = |number| Plugins::None { version: Version::decode(number) };
        assert!(said(none(10_601)).contains("TensorRT for RTX has no plugins"));
        assert!(said(none(101_600)).contains("`sudo apt install tensorrt`"));
    }
}
