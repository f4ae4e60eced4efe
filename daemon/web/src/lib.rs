//! HTTP: the live page, the API, streams, metrics and health.
//!
//! - [`server`]: the thread that serves everything; [`state`]: the state that its handlers share.
//! - [`listen`]: addresses, sockets, connections and their limits.
//! - [`guard`]: access control and login.
//! - [`routes`]: the router, and the headers and limits of every answer; [`errors`]: errors as problem+json; [`compress`]: gzip.
//! - [`api`]: the API and health.
//! - [`status`]: the daemon's state at one instant; [`metrics`]: the same for Prometheus.
//! - [`stream`], [`pictures`]: messages and images for as long as a client watches.
//! - [`page`]: the live page and the login page.

mod api;
mod compress;
mod errors;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod guard;
mod listen;
mod metrics;
mod page;
mod pictures;
mod routes;
mod server;
mod state;
pub mod status;
mod stream;

pub use listen::{PreparedListeners, check, user_socket};
pub use server::Server;
pub use state::AppState;
