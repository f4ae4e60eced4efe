//! What the lines of a thread are about: its camera, model or sink, which the journal keeps as fields.

use std::cell::RefCell;
use std::sync::Arc;

use log::Record;
use log::kv::Key;

/// Kinds of things that have a field of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// CAMERA
    Camera,
    /// MODEL
    Model,
    /// SINK
    Sink,
}

impl Subject {
    /// The word for it, which is also the key of a line's own.
    fn word(self) -> &'static str {
        match self {
            Self::Camera => "camera",
            Self::Model => "model",
            Self::Sink => "sink",
        }
    }

    /// The journal's field.
    fn field(self) -> &'static str {
        match self {
            Self::Camera => "CAMERA",
            Self::Model => "MODEL",
            Self::Sink => "SINK",
        }
    }
}

thread_local! {
    static ABOUT: RefCell<Vec<(Subject, Arc<str>)>> = const { RefCell::new(Vec::new()) };
}

/// From here on this thread's lines are about the `subject` called `name`.
pub fn about(subject: Subject, name: impl Into<Arc<str>>) {
    ABOUT.with_borrow_mut(|about| {
        about.retain(|(other, _)| *other != subject);
        about.push((subject, name.into()));
    });
}

/// Which `subject` this thread's lines are about.
pub fn subject(subject: Subject) -> Option<Arc<str>> {
    ABOUT.with_borrow(|about| about.iter().find(|(kind, _)| *kind == subject).map(|(_, name)| Arc::clone(name)))
}

/// What a line is about: what its call says, else what its thread is.
pub(super) fn of(record: &Record<'_>) -> Option<(String, String)> {
    let subjects = [Subject::Camera, Subject::Model, Subject::Sink];
    let own = subjects.into_iter().find_map(|subject| {
        let value = record.key_values().get(Key::from_str(subject.word()))?;
        Some((subject.word().to_owned(), value.to_string()))
    });
    // At the end of a thread its storage is gone already.
    let threads = || {
        ABOUT.try_with(|about| {
            about.try_borrow().ok()?.last().map(|(is, name)| (is.word().to_owned(), name.to_string()))
        })
    };
    own.or_else(|| threads().ok().flatten())
}

/// Hands every field of this thread to `tell`.
pub(super) fn with(mut tell: impl FnMut(&str, &str)) {
    // At the end of a thread, when its storage is gone already, there is nothing to tell.
    let _ = ABOUT.try_with(|about| {
        if let Ok(about) = about.try_borrow() {
            about.iter().for_each(|(subject, name)| tell(subject.field(), name));
        }
    });
}
