//! What the lines of a thread are about: its camera, model or sink, which the journal keeps as fields.

use std::cell::RefCell;
use std::sync::Arc;

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

/// Hands every field of this thread to `tell`.
pub(super) fn with(mut tell: impl FnMut(&str, &str)) {
    // At the end of a thread, when its storage is gone already, there is nothing to tell.
    let _ = ABOUT.try_with(|about| {
        if let Ok(about) = about.try_borrow() {
            about.iter().for_each(|(subject, name)| tell(subject.field(), name));
        }
    });
}
