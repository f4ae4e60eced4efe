use std::sync::Arc;

use visiond_live::Live;
use visiond_service::Service;
use visiond_service::reload::ReloadHandle;

use crate::status::StatusCollector;

/// What the request handlers work with. Clones share it.
#[derive(Clone)]
pub struct AppState {
    /// Everything that runs.
    pub service: Arc<Service>,
    /// What clients can watch.
    pub live: Arc<Live>,
    /// The daemon's state, and the server's own counters.
    pub observer: Arc<StatusCollector>,
    /// Requests reloads.
    pub reloads: ReloadHandle,
}
