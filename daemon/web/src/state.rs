use std::sync::Arc;

use visiond_live::Live;
use visiond_service::Service;
use visiond_service::reload::ReloadHandle;

use crate::status::StatusCollector;

/// The state that the request handlers share; a clone refers to the same state.
#[derive(Clone)]
pub struct AppState {
    /// Everything that runs.
    pub service: Arc<Service>,
    /// The images and messages that clients can watch.
    pub live: Arc<Live>,
    /// The daemon's state, and the server's own counters.
    pub status: Arc<StatusCollector>,
    /// Requests reloads.
    pub reloads: ReloadHandle,
}
