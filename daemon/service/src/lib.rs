//! Runs everything, and switches it to another configuration.
//!
//! A change is a transaction: [`prepared_config`] loads models and opens sinks beside the running ones; any failure happens
//! there. Only then is anything switched. Cameras, lanes and sinks that did not change are not touched.

mod bundle_watch;
pub mod bundles;
mod canary;
pub mod cascade;
mod command_queue;
mod error;
mod http_server;
pub mod loaded_model;
pub mod model_trial;
mod prepared_config;
pub mod reload;
mod rules;
mod service;

pub use command_queue::{CommandQueue, CommandResult, WaitingCommand};
pub use error::{ServiceError, detector_exit, no_tiles};
pub use http_server::{HttpError, HttpServer};
pub use prepared_config::{LoadedFacts, RunningCropModel, RunningModel};
pub use service::{NO_SINK, Service, Snapshot, SummaryParts};
