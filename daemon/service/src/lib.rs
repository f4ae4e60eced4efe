//! Everything that runs, and how it is switched to another configuration.
//!
//! A change is a transaction: [`prepared_config`] loads models and opens sinks beside those that run, and fails there if it
//! fails at all. Only then is anything switched. Cameras, lanes and sinks that did not change are not touched.

mod canary;
mod error;
mod http_server;
pub mod loaded_model;
pub mod model_trial;
mod prepared_config;
pub mod reload;
mod service;

pub use error::{ServiceError, detector_exit};
pub use http_server::{HttpError, HttpServer};
pub use prepared_config::RunningModel;
pub use service::{NO_SINK, Service, Snapshot, SummaryParts};
