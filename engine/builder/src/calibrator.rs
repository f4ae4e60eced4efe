//! An `IInt8Calibrator`: supplies images, and stores the ranges that TensorRT finds in a file.
//!
//! For TensorRT 8 and 10; later versions take the ranges only from the model.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parking_lot::Mutex;

use super::calibration::{Algorithm, Batches, CalibrationError};
use visiond_engine::builder_api::tensorrt::{InterfaceInfo, VTable, language_is_cpp, no_destructor, text, vtable};
use visiond_engine::tensorrt::Layout;
use visiond_ground::atomic_write::write_atomically;

/// The object for a builder's configuration. Its owner keeps it until the build is done.
#[repr(C)]
pub(super) struct Calibrator {
    vtable: *const *const c_void,
    algorithm: Algorithm,
    state: Mutex<CalibratorState>,
}

// SAFETY: the table is constant, and everything that changes is behind the lock.
unsafe impl Sync for Calibrator {}

struct CalibratorState {
    batches: Box<dyn Batches>,
    cache_file: Option<std::path::PathBuf>,
    /// The content of the file; TensorRT reads it in place.
    cache: Vec<u8>,
    /// Why calibration ended early.
    failure: Option<CalibrationError>,
}

impl Calibrator {
    pub(super) fn new(
        layout: Layout,
        algorithm: Algorithm,
        batches: Box<dyn Batches>,
        cache_file: Option<&Path>,
    ) -> Box<Self> {
        let is_legacy = matches!(algorithm, Algorithm::Percentile(_));
        let vtable = match (layout, is_legacy) {
            (Layout::V8, false) => PLAIN.start(),
            (Layout::V8, true) => PLAIN_LEGACY.start(),
            (_, false) => VERSIONED.start(),
            (_, true) => VERSIONED_LEGACY.start(),
        };
        let cache_file = cache_file.map(Path::to_owned);
        let state = CalibratorState { batches, cache_file, cache: Vec::new(), failure: None };
        Box::new(Self { vtable, algorithm, state: Mutex::new(state) })
    }

    /// Returns the pointer to pass to the library.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns why calibration ended before its last batch, if it did.
    pub(super) fn take_failure(&self) -> Option<CalibrationError> {
        self.state.lock().failure.take()
    }

    fn next(&self, inputs: &[String]) -> Option<Vec<*mut c_void>> {
        let mut state = self.state.lock();
        // A panic must not unwind through TensorRT's code.
        let next = catch_unwind(AssertUnwindSafe(|| state.batches.next(inputs)));
        match next.unwrap_or(Err(CalibrationError::Panicked)) {
            Ok(next) => next,
            Err(reason) => {
                state.failure.get_or_insert(reason);
                None
            }
        }
    }
}

/// TensorRT 8: the interface's methods, then its destructors.
static PLAIN: VTable<7> = vtable![batch_size, batch, read_cache, write_cache, algorithm, no_destructor, no_destructor];

/// `IInt8LegacyCalibrator` appends its own methods.
static PLAIN_LEGACY: VTable<11> = vtable![
    batch_size,
    batch,
    read_cache,
    write_cache,
    algorithm,
    no_destructor,
    no_destructor,
    quantile,
    regression_cutoff,
    read_histogram,
    write_histogram
];

/// TensorRT 10: the versioned interface first.
static VERSIONED: VTable<9> = vtable![
    language_is_cpp,
    interface_info,
    no_destructor,
    no_destructor,
    batch_size,
    batch,
    read_cache,
    write_cache,
    algorithm
];

static VERSIONED_LEGACY: VTable<13> = vtable![
    language_is_cpp,
    interface_info,
    no_destructor,
    no_destructor,
    batch_size,
    batch,
    read_cache,
    write_cache,
    algorithm,
    quantile,
    regression_cutoff,
    read_histogram,
    write_histogram
];

/// Returns the calibrator behind a callback's `this`.
///
/// # Safety
/// `this` is what `Calibrator::as_ptr` returned, for a living calibrator.
unsafe fn calibrator<'a>(this: *const c_void) -> &'a Calibrator {
    // SAFETY: guaranteed by the caller; calibrators are shared, and changed only under their lock.
    unsafe { &*this.cast::<Calibrator>() }
}

unsafe extern "C" fn interface_info(this: *const c_void) -> InterfaceInfo {
    // SAFETY: TensorRT calls with the object that it was given, while its owner keeps it.
    let kind = match unsafe { calibrator(this) }.algorithm {
        Algorithm::Entropy => c"IInt8EntropyCalibrator2",
        Algorithm::MinMax => c"IInt8MinMaxCalibrator",
        Algorithm::Percentile(_) => c"IInt8Calibrator",
    };
    InterfaceInfo { kind: kind.as_ptr(), major: 1, minor: 0 }
}

unsafe extern "C" fn batch_size(this: *const c_void) -> i32 {
    // SAFETY: as in `interface_info`.
    unsafe { calibrator(this) }.state.lock().batches.size()
}

/// Returns whether there was another batch.
unsafe extern "C" fn batch(
    this: *mut c_void,
    bindings: *mut *mut c_void,
    names: *const *const c_char,
    count: i32,
) -> bool {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: TensorRT passes `count` NUL-terminated names.
    let names: Vec<String> = (0..count).map(|index| unsafe { text(*names.add(index)) }).collect();
    // SAFETY: as in `interface_info`.
    match unsafe { calibrator(this) }.next(&names) {
        Some(addresses) if addresses.len() == count => {
            for (index, address) in addresses.into_iter().enumerate() {
                // SAFETY: there is room for `count` addresses.
                unsafe { *bindings.add(index) = address };
            }
            true
        }
        _ => false,
    }
}

/// Returns the cache's bytes, which stay in place until the next call.
unsafe extern "C" fn read_cache(this: *mut c_void, length: *mut usize) -> *const c_void {
    // SAFETY: as in `interface_info`.
    let mut state = unsafe { calibrator(this) }.state.lock();
    state.cache = match state.cache_file.as_deref().map(std::fs::read) {
        Some(Ok(bytes)) => bytes,
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            log::warn!("cannot read the calibration cache, calibrating again: {error}");
            Vec::new()
        }
        _ => Vec::new(),
    };
    let start = if state.cache.is_empty() { std::ptr::null() } else { state.cache.as_ptr().cast() };
    // SAFETY: TensorRT passes a valid place for the length.
    unsafe { *length = state.cache.len() };
    start
}

unsafe extern "C" fn write_cache(this: *mut c_void, start: *const c_void, length: usize) {
    // SAFETY: as in `interface_info`.
    let state = unsafe { calibrator(this) }.state.lock();
    if start.is_null() || state.failure.is_some() {
        return;
    }
    // SAFETY: TensorRT passes that many bytes, which are alive during the call.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) };
    if let Some(path) = &state.cache_file {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let stored = folder.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| write_atomically(path, bytes));
        if let Err(error) = stored {
            log::warn!("cannot write the calibration cache {}: {error}", path.display());
        }
    }
}

unsafe extern "C" fn algorithm(this: *mut c_void) -> i32 {
    // SAFETY: as in `interface_info`.
    match unsafe { calibrator(this) }.algorithm {
        // kLEGACY_CALIBRATION, kENTROPY_CALIBRATION_2, kMINMAX_CALIBRATION
        Algorithm::Percentile(_) => 0,
        Algorithm::Entropy => 2,
        Algorithm::MinMax => 3,
    }
}

/// Returns the fraction of the numbers that a range must cover.
unsafe extern "C" fn quantile(this: *const c_void) -> f64 {
    // SAFETY: as in `interface_info`.
    match unsafe { calibrator(this) }.algorithm {
        Algorithm::Percentile(percent) => percent / 100.0,
        Algorithm::Entropy | Algorithm::MinMax => 1.0,
    }
}

/// Unused: only the quantile decides.
unsafe extern "C" fn regression_cutoff(_this: *const c_void) -> f64 {
    1.0
}

/// Histograms are not stored; the cache of ranges is.
unsafe extern "C" fn read_histogram(_this: *mut c_void, length: *mut usize) -> *const c_void {
    // SAFETY: TensorRT passes a valid place for the length.
    unsafe { *length = 0 };
    std::ptr::null()
}

unsafe extern "C" fn write_histogram(_this: *mut c_void, _start: *const c_void, _length: usize) {}

#[cfg(test)]
mod tests;
