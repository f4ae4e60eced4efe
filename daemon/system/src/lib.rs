//! Linux services for a long-running process: threads and their end, child processes, the log, systemd, credentials,
//! temperatures.
//!
//! This crate knows nothing about frames, cameras or the configuration.

pub mod backoff;
pub mod board;
pub mod broker_tls;
pub mod broker_url;
pub mod cache;
pub mod caught_panic;
pub mod certificate_fault;
pub mod cgroup_memory;
pub mod child_process;
pub mod confinement;
pub mod credentials;
pub mod exit;
pub mod find_program;
pub mod heartbeat;
pub mod logging;
pub mod outage;
pub mod preflight;
pub mod priority;
pub mod process;
pub mod process_limits;
pub mod redact;
pub mod regular_file;
pub mod restart_once;
pub mod setting_error;
pub mod signals;
pub mod state;
pub mod stop;
pub mod systemd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thermal;
pub mod threads;
pub mod unix_socket;
pub mod wake_pipe;
