//! Shows how far a build is, with an `IProgressMonitor` for the versions that have one, and cancels it.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use visiond_engine::builder_api::tensorrt::{InterfaceInfo, VTable, language_is_cpp, no_destructor, text, vtable};

/// The maximum depth of nested phases; TensorRT has about four.
const MOST_PHASES: usize = 32;

/// The progress of a build, shared by the thread that builds and the one that displays it.
#[derive(Debug, Default)]
pub struct Monitor {
    phases: Mutex<Vec<BuildPhase>>,
    cancelled: AtomicBool,
}

/// A phase of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildPhase {
    /// The work of the phase, in TensorRT's words or ours.
    pub name: String,
    /// The number of completed steps.
    pub done: u32,
    /// The total number of steps; 0 if unknown.
    pub steps: u32,
}

impl Monitor {
    /// Makes a monitor without phases.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the current phases, outermost first.
    pub fn phases(&self) -> Vec<BuildPhase> {
        self.phases.lock().clone()
    }

    /// Cancels the build, which stops at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the build was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Sets the current phase, for work outside TensorRT.
    pub(super) fn say(&self, name: &str) {
        *self.phases.lock() = vec![BuildPhase { name: name.to_owned(), done: 0, steps: 0 }];
    }

    /// Sets how many steps of the current phase are completed.
    pub(super) fn step(&self, done: usize, steps: usize) {
        if let Some(phase) = self.phases.lock().last_mut() {
            let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
            (phase.done, phase.steps) = (number(done), number(steps));
        }
    }
}

/// The `IProgressMonitor` for a monitor. The owner keeps it alive as long as the builder's configuration uses it.
#[repr(C)]
pub(super) struct Callback {
    vtable: *const *const c_void,
    monitor: Arc<Monitor>,
}

impl Callback {
    pub(super) fn new(monitor: &Arc<Monitor>) -> Box<Self> {
        Box::new(Self { vtable: TABLE.start(), monitor: Arc::clone(monitor) })
    }

    /// Returns the pointer to pass to the library.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// The virtual methods of `v_1_0::IProgressMonitor` in TensorRT 10, 11 and for RTX: the versioned interface, then the three
/// methods in the order of NvInfer.h.
static TABLE: VTable<7> =
    vtable![language_is_cpp, interface_info, no_destructor, no_destructor, phase_start, step_complete, phase_finish];

unsafe extern "C" fn interface_info(_this: *const c_void) -> InterfaceInfo {
    InterfaceInfo { kind: c"IProgressMonitor".as_ptr(), major: 1, minor: 0 }
}

/// Returns the monitor behind a callback's `this`.
///
/// # Safety
/// `this` is what `Callback::as_ptr` returned, for a living callback.
unsafe fn monitor<'a>(this: *mut c_void) -> &'a Monitor {
    // SAFETY: guaranteed by the caller; the callback is shared and never changed.
    unsafe { &(*this.cast::<Callback>()).monitor }
}

unsafe extern "C" fn phase_start(this: *mut c_void, name: *const c_char, _parent: *const c_char, steps: i32) {
    // SAFETY: TensorRT calls with the object that it was given, while its owner keeps it, and with NUL-terminated texts.
    let (monitor, name) = unsafe { (monitor(this), text(name)) };
    let mut phases = monitor.phases.lock();
    if phases.len() < MOST_PHASES {
        phases.push(BuildPhase { name, done: 0, steps: u32::try_from(steps).unwrap_or(0) });
    }
}

/// Returns whether the build continues.
unsafe extern "C" fn step_complete(this: *mut c_void, name: *const c_char, step: i32) -> bool {
    // SAFETY: as in `phase_start`.
    let (monitor, name) = unsafe { (monitor(this), text(name)) };
    if let Some(phase) = monitor.phases.lock().iter_mut().rev().find(|phase| phase.name == name) {
        phase.done = u32::try_from(step).map_or(0, |step| step.saturating_add(1));
    }
    !monitor.is_cancelled()
}

unsafe extern "C" fn phase_finish(this: *mut c_void, name: *const c_char) {
    // SAFETY: as in `phase_start`.
    let (monitor, name) = unsafe { (monitor(this), text(name)) };
    let mut phases = monitor.phases.lock();
    if let Some(index) = phases.iter().rposition(|phase| phase.name == name) {
        phases.remove(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_nest_and_a_cancelled_build_stops_at_its_next_step() {
        let monitor = Monitor::new();
        let callback = Callback::new(&monitor);
        let this = callback.as_ptr();
        // SAFETY: the callback lives, and the texts are static.
        unsafe {
            phase_start(this, c"Building Engine".as_ptr(), std::ptr::null(), 5);
            phase_start(this, c"Timing".as_ptr(), c"Building Engine".as_ptr(), 100);
            assert!(step_complete(this, c"Timing".as_ptr(), 41));
            let phases = monitor.phases();
            assert_eq!((phases[1].name.as_str(), phases[1].done, phases[1].steps), ("Timing", 42, 100));
            phase_finish(this, c"Timing".as_ptr());
            assert_eq!(monitor.phases().len(), 1);
            monitor.cancel();
            assert!(!step_complete(this, c"Building Engine".as_ptr(), 0));
        }
    }
}
