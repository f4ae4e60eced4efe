//! The cache folder, for data that can be generated again, such as compiled CUDA kernels.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Variable of the CUDA driver for its cache of compiled kernels.
const CUDA_CACHE: &str = "CUDA_CACHE_PATH";

/// Makes the CUDA driver store compiled kernels in `cuda` below visiond's cache, unless the user set a folder.
///
/// The default is below the home folder. A service has none, so it would compile the kernels at every start.
///
/// # Safety
/// No other thread may run, because this changes the environment of the process.
pub unsafe fn keep_kernels() {
    if env::var_os(CUDA_CACHE).is_some_and(|value| !value.is_empty()) {
        return;
    }
    if let Some(folder) = own_folder() {
        // SAFETY: the caller has no other thread, so no other code reads the environment meanwhile.
        unsafe { env::set_var(CUDA_CACHE, folder.join("cuda")) }
    }
}

/// Returns visiond's cache folder; `None` if neither the service nor the user has one.
pub fn own_folder() -> Option<PathBuf> {
    folder(|name| env::var_os(name))
}

/// Returns visiond's cache folder: the service's ($CACHE_DIRECTORY), otherwise the user's.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd separates several CacheDirectory= values with colons.
    let service = variable("CACHE_DIRECTORY").and_then(|all| env::split_paths(&all).next());
    service
        .filter(|path| path.is_absolute())
        .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("visiond")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/visiond")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        folder(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_services_cache_comes_before_the_users() {
        let all = [("CACHE_DIRECTORY", "/var/cache/visiond"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/home/me")];
        assert_eq!(with(&all), Some("/var/cache/visiond".into()));
        assert_eq!(with(&all[1..]), Some("/x/visiond".into()));
        assert_eq!(with(&all[2..]), Some("/home/me/.cache/visiond".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_first_of_several_service_caches_counts_and_a_relative_one_does_not() {
        assert_eq!(with(&[("CACHE_DIRECTORY", "/a:/b")]), Some("/a".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "here"), ("HOME", "/h")]), Some("/h/.cache/visiond".into()));
    }
}
