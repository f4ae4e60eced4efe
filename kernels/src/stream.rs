//! The order in which work happens: every operation names the stream that it runs on.

/// Where an operation's work is queued.
///
/// On the host there is no queue: work is done when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stream {
    /// The calling thread.
    #[default]
    Host,
}
