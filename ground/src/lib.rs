//! Small utilities for crates that must not depend on each other.
//!
//! - [`atomic_write`]: writes a file completely or not at all.
//! - [`ranked_lock`]: locks with a fixed nesting order.
//! - [`nearest`]: the word that a mistyped one probably means.
//! - [`jetson`]: whether this machine is one, and the release of its system.
//! - [`loader_message`]: why a shared library cannot be opened, with a remedy.
//! - [`gpu_lost`]: the error of a process that has lost its GPU.
//!
//! This crate depends on no other of the workspace.

pub mod atomic_write;
pub mod gpu_lost;
pub mod jetson;
pub mod loader_message;
pub mod nearest;
pub mod ranked_lock;
