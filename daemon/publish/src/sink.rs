//! The interface of every sink.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use visiond_config::command::{Command, CommandError};
use visiond_config::types::SinkConfig;
use visiond_live::Live;
use visiond_message::SettingsMessage;
use visiond_system::outage::IfUnusable;
use visiond_system::setting_error::SettingError;

use crate::queue::{Queue, Succession};

/// A sink writes the messages of its queue to one place, on its own thread.
pub trait Sink: Send {
    /// Writes messages until the queue is closed and empty, its deadline has passed, or the reader has gone for good.
    fn run(self: Box<Self>, queue: &Queue) -> SinkEnd;
}

/// A type of sink with its configuration. It is implemented beside the sink, and listed in `sink_types.rs`.
pub trait SinkType {
    /// Returns where messages go, for the log. No secrets.
    fn place(&self) -> String;

    /// Checks whether [`SinkType::open`] would fail, without connecting to or touching the output.
    fn check(&self) -> Result<(), SinkError>;

    /// Opens the sink. Fails only if waiting cannot help, or with [`IfUnusable::Retry`] only if its keys are wrong.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError>;
}

/// The parameters for opening a sink, in addition to the keys of its type.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The keys that every sink has.
    pub sink: &'a SinkConfig,
    /// The process.
    pub context: &'a SinkContext,
    /// What to do if the output cannot be used.
    pub if_unusable: IfUnusable,
    /// Set once another sink publishes to the same topics.
    pub succession: &'a Succession,
}

/// Why a sink cannot be opened as it is configured. `key` is one of its `[[sink]]`.
pub type SinkError = SettingError;

/// How a sink's thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkEnd {
    /// The queue was closed, and the sink wrote what it could.
    Closed,
    /// The reader has gone for good.
    ReaderGone,
}

/// The facts about the process that a sink needs.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The cameras with their newest messages, snapshots and states.
    pub live: Arc<Live>,
    /// This machine's name in topics and subjects.
    pub device: Arc<str>,
    /// Carries out commands; `None` if the process does not.
    pub commander: Option<Arc<dyn Commander>>,
}

/// Carries out commands to cameras.
pub trait Commander: fmt::Debug + Send + Sync {
    /// Returns the cameras of the configuration in force, by name. Never waits.
    fn cameras(&self) -> Arc<BTreeMap<String, CommandedCamera>>;

    /// Queues a command, and never waits.
    ///
    /// # Errors
    /// The configuration does not have what it is for, or too many commands wait.
    fn request(&self, command: Command) -> Result<(), CommandError>;
}

/// A camera that may get commands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommandedCamera {
    /// The names of its models, separated by commas.
    pub models: String,
    /// Its settings.
    pub settings: SettingsMessage,
}
