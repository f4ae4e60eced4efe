//! Turns a backend's panics into errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::backend::{Backend, EngineError};

/// Runs `work` and returns an error if it panics.
///
/// Both backends are third-party code that runs on data from a file: rten's operators index and unwrap, and `ort` expects a
/// library that behaves. A panic there must stop one model, not the daemon. `AssertUnwindSafe` is sound: after a panic the
/// value being built is dropped, and a context that panicked holds only tensors, which the next run replaces.
pub(super) fn guarded<T>(
    backend: Backend,
    doing: &'static str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(EngineError::Panicked(backend, doing, panic_text(&*panic))))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
