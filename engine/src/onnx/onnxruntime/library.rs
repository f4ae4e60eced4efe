//! Finds ONNX Runtime's library and checks that it is usable.
//!
//! This module opens the library and queries its version, with the system's message if that fails, before `ort` opens it:
//! `ort` panics if the library is missing.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::backend::EngineError;
use crate::dynamic_library::{as_file, file_of, loader_error, search_directories};

/// The oldest usable minor version (1.18): this asks for that version of the C API, and newer libraries keep it.
pub const MINIMUM_MINOR_VERSION: u32 = ort::MINOR_VERSION;

/// The names of the library, in search order.
const NAMES: [&str; 2] = ["libonnxruntime.so.1", "libonnxruntime.so"];

/// Directories searched after the loader's own and the architecture's.
const DIRECTORIES: [&str; 3] = ["/usr/lib", "/usr/local/lib", "/opt/onnxruntime/lib"];

/// The environment variable that names the library, as in every program that uses `ort`.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// A usable library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLibrary {
    /// The file, with links resolved if possible.
    pub path: PathBuf,
    /// Its version, such as "1.32.0".
    pub version: String,
    /// Its minor version: 32 for 1.32.0.
    pub minor_version: u32,
}

/// Finds ONNX Runtime's library.
///
/// The order is: the file `library`, the library that `ORT_DYLIB_PATH` names, and then the first usable one in the loader's
/// path, the system's directories, the executable's directory, `lib` beside that, and the user's cache
/// (`$XDG_CACHE_HOME/visiond/lib`).
///
/// # Errors
/// A named library must be usable. When searching, unusable ones are skipped; if all are unusable, the error describes the
/// first.
pub fn find(library: Option<&Path>) -> Result<FoundLibrary, EngineError> {
    if let Some(library) = library {
        return check(&as_file(library));
    }
    if let Some(library) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        return check(Path::new(&library));
    }
    let mut unusable = None;
    for name in NAMES {
        // Ignore errors here: the loader reports a missing file and an unreadable one in the same words.
        if let Ok(found) = check(Path::new(name)) {
            return Ok(found);
        }
    }
    let searched = search_directories(&DIRECTORIES);
    for candidate in searched.iter().flat_map(|directory| candidates(directory)) {
        match check(&candidate) {
            Ok(found) => return Ok(found),
            Err(error) => {
                log::debug!("{error}");
                unusable.get_or_insert(error);
            }
        }
    }
    Err(unusable.unwrap_or(EngineError::LibraryNotFound(searched)))
}

/// Returns the library's files in `directory`: the plain names first, then those with a full version, newest first.
fn candidates(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = NAMES.iter().map(|name| directory.join(name)).filter(|path| path.exists()).collect();
    let version = |path: &Path| -> Option<Vec<u32>> {
        let version = path.file_name()?.to_str()?.strip_prefix("libonnxruntime.so.")?;
        version.split('.').map(|part| part.parse().ok()).collect()
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut versioned: Vec<_> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    versioned.sort_by(|a, b| b.0.cmp(&a.0));
    found.extend(versioned.into_iter().map(|(_, path)| path).filter(|path| !found.contains(path)).collect::<Vec<_>>());
    found
}

/// The part of `OrtApiBase` that every version has.
#[repr(C)]
struct ApiBase {
    get_api: unsafe extern "C" fn(u32) -> *const c_void,
    get_version_string: unsafe extern "C" fn() -> *const c_char,
}

type GetApiBase = unsafe extern "C" fn() -> *const ApiBase;

/// Opens `path` and asks it for its version. A usable library stays open: `ort` opens it again, and it must never be closed.
fn check(path: &Path) -> Result<FoundLibrary, EngineError> {
    let unusable = |reason: String| EngineError::LibraryUnusable(path.to_owned(), reason);
    // SAFETY: opening a library runs its initialisers. The user named the path, or only the system's owner or the user can put
    // a library there. Nothing more can be known before it is opened.
    let library = unsafe { Library::new(path) }.map_err(|error| unusable(loader_error(&error, path)))?;
    // SAFETY: `OrtGetApiBase` has had this signature in every release of ONNX Runtime (onnxruntime_c_api.h).
    let get_api_base = unsafe { library.get::<GetApiBase>(b"OrtGetApiBase\0") }
        .map_err(|_| unusable("it is a library, but not ONNX Runtime's (it has no OrtGetApiBase)".to_owned()))?;
    let get_api_base: GetApiBase = *get_api_base;
    // SAFETY: the function takes no arguments and returns a pointer to a static structure, or null.
    let base = unsafe { get_api_base().as_ref() };
    let base = base.ok_or_else(|| unusable("it does not report its version".to_owned()))?;
    // SAFETY: `base` is the library's static `OrtApiBase`, whose two entries are the same in every release; the string is
    // static and NUL-terminated.
    let version = unsafe { CStr::from_ptr((base.get_version_string)()) }.to_string_lossy().into_owned();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    // SAFETY: as above; an unsupported version returns null.
    let has_api = !unsafe { (base.get_api)(MINIMUM_MINOR_VERSION) }.is_null();
    let Some(minor_version) = minor.filter(|minor| *minor >= MINIMUM_MINOR_VERSION && has_api) else {
        return Err(unusable(format!("it is version {version}; 1.{MINIMUM_MINOR_VERSION} or later is required")));
    };
    let opened = file_of(get_api_base as *const c_void).unwrap_or_else(|| path.to_owned());
    std::mem::forget(library);
    Ok(FoundLibrary { path: opened.canonicalize().unwrap_or(opened), version, minor_version })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn a_named_library_that_is_missing_is_told_in_the_loaders_words() {
        let error = find(Some(Path::new("/nowhere/libonnxruntime.so"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libonnxruntime.so"), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_and_a_library_that_is_another_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("libonnxruntime.so");
        std::fs::write(&file, "not a library at all").unwrap();
        let error = find(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("libonnxruntime.so"), "{error}");
        let error = check(Path::new("libc.so.6")).unwrap_err().to_string();
        assert!(error.contains("not ONNX Runtime's"), "{error}");
    }

    #[test]
    fn a_library_that_is_named_without_a_folder_is_a_file_and_not_searched() {
        let error = find(Some(Path::new("libc.so.6"))).unwrap_err().to_string();
        assert!(error.contains("./libc.so.6") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn the_oldest_version_serves_and_an_older_one_does_not() {
        const SOURCE: &str = r#"
            struct base { const void *(*api)(unsigned); const char *(*version)(void); };
            static const void *api(unsigned version) { return version <= API ? "" : 0; }
            static const char *version(void) { return VERSION; }
            static const struct base base = { api, version };
            const struct base *OrtGetApiBase(void) { return &base; }
        "#;
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("ort.c");
        std::fs::write(&source, SOURCE).unwrap();
        let oldest = MINIMUM_MINOR_VERSION;
        for (minor, api, serves) in [(oldest, oldest, true), (oldest - 1, oldest, false), (oldest, oldest - 1, false)] {
            let library = directory.path().join(format!("libonnxruntime.so.1.{minor}.{api}"));
            let made = std::process::Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .args([&library, &source])
                .args([format!("-DVERSION=\"1.{minor}.0\""), format!("-DAPI={api}")])
                .status();
            assert!(made.unwrap().success());
            match find(Some(&library)) {
                Ok(found) => assert_eq!((found.version, serves), (format!("1.{minor}.0"), true)),
                Err(error) => {
                    let words = format!("it is version 1.{minor}.0; 1.{oldest} or later is required");
                    assert!(!serves && error.to_string().contains(&words), "{error}");
                }
            }
        }
    }

    #[test]
    fn versioned_names_are_tried_from_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        for name in
            ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime.so", "libonnxruntime.so.bak"]
        {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let names: Vec<_> = candidates(directory.path()).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["libonnxruntime.so", "libonnxruntime.so.1.31.1", "libonnxruntime.so.1.9.0"]);
    }
}
