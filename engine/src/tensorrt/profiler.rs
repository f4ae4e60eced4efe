//! Measures how long each layer takes: an `IProfiler` that collects.

use std::ffi::{c_char, c_void};

use parking_lot::Mutex;

use super::callback::{InterfaceInfo, VTable, language_is_cpp, no_destructor, text, vtable};
use super::version::Layout;

/// The duration of a layer in one run.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerTime {
    /// The layer's name; names of fused layers are joined.
    pub name: String,
    /// Time on the GPU in microseconds.
    pub us: f64,
}

/// An `IProfiler`.
#[repr(C)]
pub(super) struct Profiler {
    vtable: *const *const c_void,
    times: Mutex<Vec<LayerTime>>,
}

impl Profiler {
    /// Creates a profiler, boxed so that its address stays.
    pub(super) fn new(layout: Layout) -> Box<Self> {
        let vtable = match layout {
            Layout::V8 | Layout::V10 => PLAIN_TABLE.start(),
            Layout::V11 | Layout::Rtx => VERSIONED_TABLE.start(),
        };
        Box::new(Self { vtable, times: Mutex::default() })
    }

    /// Returns the pointer to pass to the library.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns and clears the collected durations, in the order of the layers.
    pub(super) fn take(&self) -> Vec<LayerTime> {
        std::mem::take(&mut self.times.lock())
    }
}

static PLAIN_TABLE: VTable<3> = vtable![report_layer_time, no_destructor, no_destructor];
static VERSIONED_TABLE: VTable<5> =
    vtable![language_is_cpp, interface_info, no_destructor, no_destructor, report_layer_time];

unsafe extern "C" fn interface_info(_this: *const c_void) -> InterfaceInfo {
    InterfaceInfo { kind: c"IProfiler".as_ptr(), major: 1, minor: 0 }
}

unsafe extern "C" fn report_layer_time(this: *mut c_void, name: *const c_char, ms: f32) {
    // SAFETY: TensorRT calls with the profiler that it was given, which is alive until it is removed (`TrtContext::profile`),
    // and with a NUL-terminated name.
    let (profiler, name) = unsafe { (&*this.cast::<Profiler>(), text(name)) };
    let mut times = profiler.times.lock();
    times.push(LayerTime { name, us: f64::from(ms) * 1000.0 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_kept_in_order() {
        let profiler = Profiler::new(Layout::V11);
        // SAFETY: the profiler lives, the names are static.
        unsafe {
            report_layer_time(profiler.as_ptr(), c"conv + relu".as_ptr(), 0.25);
            report_layer_time(profiler.as_ptr(), c"concat".as_ptr(), 0.5);
        }
        let times = profiler.take();
        assert_eq!(times[0], LayerTime { name: "conv + relu".into(), us: 250.0 });
        assert_eq!(times[1].name, "concat");
    }
}
