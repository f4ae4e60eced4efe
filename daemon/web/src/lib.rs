//! HTTP: the live page, the API, streams, metrics and health.
//!
//! - [`server`]: the thread that serves everything; [`state`]: the state that its handlers share.
//! - [`listen`]: addresses, sockets, connections and their limits.
//! - [`guard`]: access control and login.
//! - [`routes`]: the router, and the headers and limits of every answer; [`errors`]: errors as problem+json; [`compress`]: gzip.
//! - [`api`]: the API and health; [`commands`]: changes of cameras, lines and zones.
//! - [`shapes`]: the masks, lines and zones of a camera in the configuration file; [`event_files`]: the images and clips of events.
//! - [`status`]: the daemon's state at one instant; [`metrics`]: the same for Prometheus.
//! - [`stream`], [`pictures`]: messages and images for as long as a client watches.
//! - [`page`]: the live page and the login page.

mod api;
mod commands;
mod compress;
mod errors;
mod event_files;
mod frames;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod guard;
mod listen;
mod metrics;
mod page;
mod pictures;
mod routes;
mod server;
mod shapes;
mod state;
pub mod status;
mod stream;

pub use listen::{PreparedListeners, check, user_socket};
pub use server::Server;
pub use state::AppState;
