//! The folder for what can be made again, such as the driver's compiled kernels.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The driver's own variable for its cache of compiled kernels.
const CUDA_CACHE: &str = "CUDA_CACHE_PATH";

/// Has CUDA's driver keep the kernels that it compiled in `cuda` below visiond's cache, unless the user named a place.
///
/// Its own place is below the home folder, which a service has none of; each start would then compile again.
///
/// # Safety
/// No other thread may run: the process's environment is changed.
pub unsafe fn keep_kernels() {
    if env::var_os(CUDA_CACHE).is_some_and(|value| !value.is_empty()) {
        return;
    }
    if let Some(folder) = own_folder() {
        // SAFETY: the caller has no other thread, so that nobody reads the environment meanwhile.
        unsafe { env::set_var(CUDA_CACHE, folder.join("cuda")) }
    }
}

/// visiond's cache folder; `None` where neither the service nor the user has one.
pub fn own_folder() -> Option<PathBuf> {
    folder(|name| env::var_os(name))
}

/// visiond's cache folder: systemd's for the service ($CACHE_DIRECTORY), else the user's.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // With several CacheDirectory= systemd writes all of them, a colon between.
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
