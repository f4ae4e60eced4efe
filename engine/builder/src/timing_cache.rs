//! Stores measured kernel times between builds, so that the second build of a model takes a fraction of the first.
//!
//! There is one file per TensorRT version and kind of GPU. Times that another build has added meanwhile are also kept.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use visiond_kernels::cuda::DeviceFacts;

use visiond_engine::builder_api::tensorrt::builder::{Config, TimingCache};
use visiond_engine::builder_api::tensorrt::{Object, Owned, call, host_bytes};
use visiond_engine::tensorrt::TensorRtError;
use visiond_engine::tensorrt::Version;
use visiond_ground::atomic_write::write_atomically;

/// Where measured kernel times are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TimingCacheChoice {
    /// Nowhere.
    #[default]
    Off,
    /// In a file in this folder, named by version and GPU.
    Folder(PathBuf),
    /// In this file.
    File(PathBuf),
}

impl TimingCacheChoice {
    pub(super) fn path(&self, version: Version, facts: &DeviceFacts) -> Option<PathBuf> {
        match self {
            Self::Off => None,
            Self::Folder(folder) => {
                let Version { major, minor, patch, .. } = version;
                let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
                let gpu: String = facts.name.chars().map(plain).collect();
                Some(folder.join(format!("{major}.{minor}.{patch}-sm{}{}-{gpu}.timing", facts.sm.0, facts.sm.1)))
            }
            Self::File(path) => Some(path.clone()),
        }
    }
}

/// A cache that a configuration uses.
pub(super) struct LoadedTimingCache {
    path: PathBuf,
    // Drops after the configuration, which refers to it.
    cache: Owned<TimingCache>,
}

impl LoadedTimingCache {
    /// Gives the configuration the times in the file, or an empty cache if the file is missing or unusable.
    pub(super) fn open(config: Object<Config>, path: PathBuf) -> Result<Option<Self>, TensorRtError> {
        let bytes = read(&path);
        let cache = match make(config, &bytes)? {
            Some(cache) => cache,
            None => {
                log::warn!("{} is not a timing cache of this TensorRT: starting an empty one", path.display());
                let Some(empty) = make(config, &[])? else { return Ok(None) };
                empty
            }
        };
        // SAFETY: both are alive; the cache outlives the configuration's use of it (`LoadedTimingCache`). Times of another
        // GPU are rejected.
        let taken = unsafe { call!(config, Config::SET_TIMING_CACHE(cache.get().as_ptr(), false)) }?;
        if !taken {
            log::warn!("ignoring the timing cache {}: it is from another GPU", path.display());
            return Ok(None);
        }
        log::debug!("timing cache {} ({} bytes)", path.display(), bytes.len());
        Ok(Some(Self { path, cache }))
    }

    /// Writes the known times to the file, together with what others wrote there meanwhile.
    pub(super) fn save(&self, config: Object<Config>) -> Result<(), TensorRtError> {
        let Some(_lock) = lock(&self.path) else { return Ok(()) };
        let cache = self.cache.get();
        if let Some(theirs) = make(config, &read(&self.path))? {
            // SAFETY: both are alive and from the same library.
            let merged = unsafe { call!(cache, TimingCache::COMBINE(theirs.get().as_ptr(), false)) }?;
            if !merged {
                log::debug!("replacing {}: it has times of another GPU", self.path.display());
            }
        }
        // SAFETY: the cache is alive; we own the result.
        let raw = unsafe { call!(cache, TimingCache::SERIALIZE()) }?;
        // SAFETY: `raw` is what the method returned, and the cache outlives it.
        if let Some(bytes) = unsafe { host_bytes(raw, cache.abi()) }?
            && let Err(error) = write_atomically(&self.path, &bytes)
        {
            log::warn!("cannot write the timing cache {}: {error}", self.path.display());
        }
        Ok(())
    }
}

fn make(config: Object<Config>, bytes: &[u8]) -> Result<Option<Owned<TimingCache>>, TensorRtError> {
    let start = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast() };
    // SAFETY: the configuration is alive; the bytes are read during the call.
    let raw = unsafe { call!(config, Config::CREATE_TIMING_CACHE(start, bytes.len())) }?;
    // SAFETY: `raw` is what the method returned for this class, and we own it.
    Ok(unsafe { Owned::from_raw(raw, config.abi()) })
}

fn read(path: &Path) -> Vec<u8> {
    match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                log::warn!("cannot read the timing cache {}: {error}", path.display());
            }
            Vec::new()
        }
    }
}

/// Locks the file against other builds until the result is dropped.
fn lock(path: &Path) -> Option<File> {
    let open = || -> io::Result<File> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let file = File::options().create(true).append(true).open(name)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(|error| log::warn!("cannot store the timing cache {}: {error}", path.display())).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;
    use visiond_engine::builder_api::tensorrt::builder::Builder;

    #[test]
    fn the_file_s_name_tells_version_and_gpu() {
        let facts = DeviceFacts {
            index: 0,
            name: "Orin (nvgpu)".to_owned(),
            sm: (8, 7),
            integrated: true,
            memory_bytes: 0,
            driver_version: 12060,
            multiprocessors: 8,
            l2_bytes: 0,
            memory_clock_khz: 0,
            memory_bus_bits: 0,
            can_map_host_memory: true,
            managed_memory: true,
            concurrent_managed_access: false,
            host_register_supported: true,
            can_use_host_pointer_for_registered_mem: false,
        };
        let folder = TimingCacheChoice::Folder("/c".into());
        let path = folder.path(Version::decode(100_300), &facts).unwrap();
        assert_eq!(path, Path::new("/c/10.3.0-sm87-orin--nvgpu-.timing"));
    }

    /// TensorRT for RTX has the same objects and needs no GPU for them, although its builder measures no times.
    #[test]
    fn a_cache_is_made_kept_and_merged_with_what_is_there() {
        let Some(libraries) = std::env::var_os("VISIOND_TEST_TENSORRT") else {
            // Written directly, not printed, so that the test runner passes it on and `tests/steps.py` counts it.
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("a test");
            let _ = writeln!(std::io::stderr(), "skipped: {test}: VISIOND_TEST_TENSORRT names no folder of libraries");
            return;
        };
        let library = Path::new(&libraries).join("rtx-1.6.1/libtensorrt_rtx.so.1");
        let library = visiond_engine::tensorrt::Library::get(Some(&library)).unwrap();
        let builder = library.create_builder().unwrap();
        // SAFETY: the builder lives and outlives its configuration.
        let config = unsafe {
            let raw = call!(builder.get(), Builder::CREATE_CONFIG()).unwrap();
            Owned::<Config>::from_raw(raw, builder.get().abi()).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/times");
        if let Some(kept) = LoadedTimingCache::open(config.get(), path.clone()).unwrap() {
            kept.save(config.get()).unwrap();
            let first = fs::read(&path).unwrap();
            assert!(!first.is_empty());
            kept.save(config.get()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), first, "merged with itself it is the same");
            drop(config);
        }
    }
}
