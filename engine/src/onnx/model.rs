//! The parts that both backends need: a model that is ready to load, and a guard against their panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::backend::{Backend, EngineError, TensorInfo};

/// A model that was read and checked, and is ready for a backend.
pub(super) struct OnnxModel<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: Vec<u8>,
    pub(super) inputs: &'a [TensorInfo],
    pub(super) outputs: &'a [TensorInfo],
    /// The files with weights, named as in the model.
    pub(super) external_files: Vec<PathBuf>,
}

impl OnnxModel<'_> {
    /// Returns the directory that external files are relative to.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// Runs `work` and returns an error if it panics.
///
/// Both backends are third-party code that runs on data from a file: rten's operators index and unwrap, and `ort` expects a
/// well-behaved library. A panic there must stop one model, not the daemon. `AssertUnwindSafe` is sound: after a panic the
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_panics_is_an_error_with_its_words() {
        let error = |work: fn()| {
            let work = || {
                work();
                Ok(())
            };
            guarded(Backend::Rten, "loaded the model", work).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let text = error(|| panic!("no such shape"));
        assert!(
            text.ends_with(
                " crashed while it loaded the model: no such shape; this is a bug in rten: try another backend"
            ),
            "{text}"
        );
        let text = error(|| panic!("index {} of {}", 3, 2));
        assert!(text.contains(" loaded the model: index 3 of 2; "), "{text}");
        let text = error(|| std::panic::panic_any(7));
        assert!(text.contains(" loaded the model: no message; "), "{text}");
        assert_eq!(error(|| {}), "");
    }
}
