//! The configuration: what can be set, its defaults, and how a file becomes it.

pub mod types;
