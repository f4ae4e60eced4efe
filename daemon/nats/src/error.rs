//! Why a request to NATS failed.

use std::io;

use crate::answer::Refusal;
use crate::connect::NoServer;
use visiond_system::setting_error::SettingError;

/// Why a request to NATS failed. Each text has its remedy.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// No server can be reached.
    #[error("{0}")]
    Unreachable(NoServer),
    /// The servers refuse the login.
    #[error("{0}")]
    Login(NoServer),
    /// The system has no descriptor for a connection.
    #[error("cannot connect: {0}: raise the limit of open files (`ulimit -n`)")]
    System(io::Error),
    /// A file or variable of the options cannot be used.
    #[error("{0}")]
    Setting(#[from] SettingError),
    /// The connection is lost again and again.
    #[error("{servers}: {reason}; see the server's log")]
    Lost {
        /// The servers.
        servers: String,
        /// How the last one was lost.
        reason: String,
    },
    /// The login lacks a permission.
    #[error("{servers}: this login may not {action} {subject}: allow it in the server's permissions of this user")]
    Forbidden {
        /// The servers.
        servers: String,
        /// `publish to` or `subscribe to`.
        action: &'static str,
        /// What to allow.
        subject: String,
    },
    /// The servers have no JetStream.
    #[error("{servers}: JetStream is off: start the server with -js, or enable it for this account")]
    NoJetStream {
        /// The servers.
        servers: String,
    },
    /// There is no such bucket.
    #[error("{servers}: there is no key-value bucket {bucket}: create it with `nats kv add {bucket}`")]
    MissingBucket {
        /// The servers.
        servers: String,
        /// Its name.
        bucket: String,
    },
    /// There is no such object store.
    #[error("{servers}: there is no object store {bucket}: create it with `nats object add {bucket}`")]
    MissingStore {
        /// The servers.
        servers: String,
        /// Its name.
        bucket: String,
    },
    /// The bucket's stream does not allow direct reads.
    #[error(
        "{servers}: {stream} does not allow direct reads: allow them with `nats stream edit {stream} --allow-direct`"
    )]
    NoDirectReads {
        /// The servers.
        servers: String,
        /// The bucket's stream.
        stream: String,
    },
    /// Another client has changed the key since it was read.
    #[error("{key} in {bucket} has changed since it was read: read it again, then repeat the change")]
    LostRace {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
    },
    /// A message exceeds a limit.
    #[error("{servers}: {what} of {bytes} bytes is too large: raise {limit}, which is {most} bytes")]
    TooLarge {
        /// The servers.
        servers: String,
        /// What is too large.
        what: String,
        /// Its size.
        bytes: u64,
        /// The limit's name.
        limit: &'static str,
        /// The limit.
        most: u64,
    },
    /// The object is not in the store.
    #[error("{servers}: there is no object {name} in {bucket}: check the name (`nats object ls {bucket}`)")]
    MissingObject {
        /// The servers.
        servers: String,
        /// The store.
        bucket: String,
        /// Its name.
        name: String,
    },
    /// The object was replaced, deleted or damaged while it was read.
    #[error("the object {name} in {bucket} {what}: read it again, or put it again if that fails")]
    BrokenObject {
        /// The store.
        bucket: String,
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The source of an object cannot be read.
    #[error("cannot read the contents of the object {name}: {error}")]
    Source {
        /// The object's name.
        name: String,
        /// The system's error.
        error: io::Error,
    },
    /// The bucket's, key's or object's name is invalid.
    #[error("`{name}` is no {what}: use {allowed}")]
    Name {
        /// The name.
        name: String,
        /// What it should be.
        what: &'static str,
        /// What it may contain.
        allowed: &'static str,
    },
    /// JetStream refuses.
    #[error("{servers}: cannot {what}: {refusal}; see the server's log and the limits of the account")]
    Refused {
        /// The servers.
        servers: String,
        /// The request.
        what: String,
        /// JetStream's reason.
        refusal: Refusal,
    },
    /// No server answered in time.
    #[error(
        "{servers}: cannot {what}: no answer within {seconds} s; check that the stream has a leader (`nats stream report`)"
    )]
    NoAnswer {
        /// The servers.
        servers: String,
        /// The request.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// The answer is not what JetStream sends.
    #[error("{servers}: cannot {what}: the answer is invalid ({why}); check that these are NATS servers 2.9 or newer")]
    Answer {
        /// The servers.
        servers: String,
        /// The request.
        what: String,
        /// What is wrong.
        why: String,
    },
}
