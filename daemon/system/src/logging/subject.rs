//! Subjects of log lines: the camera, model or sink of a thread, which become fields of the journal.

use std::cell::RefCell;
use std::sync::Arc;

use log::Record;
use log::kv::Key;

/// Kind of subject, each with its own field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A camera, field CAMERA.
    Camera,
    /// A model, field MODEL.
    Model,
    /// A sink, field SINK.
    Sink,
}

impl Subject {
    /// Returns the word for the kind, which is also its key in log calls.
    fn word(self) -> &'static str {
        ["camera", "model", "sink"][self as usize]
    }

    /// Returns the field of the journal.
    fn field(self) -> &'static str {
        ["CAMERA", "MODEL", "SINK"][self as usize]
    }
}

thread_local! {
    static ABOUT: RefCell<Vec<(Subject, Arc<str>)>> = const { RefCell::new(Vec::new()) };
}

/// Sets the subject of the following log lines of this thread.
pub fn about(subject: Subject, name: impl Into<Arc<str>>) {
    ABOUT.with_borrow_mut(|about| {
        about.retain(|(other, _)| *other != subject);
        about.push((subject, name.into()));
    });
}

/// Returns the name of the subject of this thread's log lines.
pub fn subject(subject: Subject) -> Option<Arc<str>> {
    ABOUT.with_borrow(|about| about.iter().find(|(kind, _)| *kind == subject).map(|(_, name)| Arc::clone(name)))
}

/// Returns the subject of a line: from its call, otherwise from its thread.
pub(super) fn of(record: &Record<'_>) -> Option<(String, String)> {
    let subjects = [Subject::Camera, Subject::Model, Subject::Sink];
    let own = subjects.into_iter().find_map(|subject| {
        let value = record.key_values().get(Key::from_str(subject.word()))?;
        Some((subject.word().to_owned(), value.to_string()))
    });
    // Thread-local storage is gone at the end of a thread.
    let threads = || {
        ABOUT.try_with(|about| {
            about.try_borrow().ok()?.last().map(|(is, name)| (is.word().to_owned(), name.to_string()))
        })
    };
    own.or_else(|| threads().ok().flatten())
}

/// Passes every field of this thread to `add`.
pub(super) fn with(mut add: impl FnMut(&str, &str)) {
    // Thread-local storage is gone at the end of a thread.
    let _ = ABOUT.try_with(|about| {
        if let Ok(about) = about.try_borrow() {
            about.iter().for_each(|(subject, name)| add(subject.field(), name));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_what_its_call_names_else_about_what_its_thread_does() {
        // On a new thread, which has no subject yet.
        let thread = std::thread::spawn(|| {
            let own = [("sink", "fleet")];
            let call = Record::builder().key_values(&own).build();
            let plain = Record::builder().build();
            assert_eq!((of(&plain), subject(Subject::Camera)), (None, None));
            about(Subject::Camera, "door");
            about(Subject::Model, "objects");
            assert_eq!(of(&plain), Some(("model".to_owned(), "objects".to_owned())));
            assert_eq!(of(&call), Some(("sink".to_owned(), "fleet".to_owned())));
            about(Subject::Camera, "yard");
            assert_eq!(subject(Subject::Camera).as_deref(), Some("yard"));
            let mut fields = Vec::new();
            with(|field, name| fields.push(format!("{field}={name}")));
            assert_eq!(fields, ["MODEL=objects", "CAMERA=yard"]);
        });
        assert!(thread.join().is_ok());
    }
}
