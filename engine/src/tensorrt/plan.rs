//! Engine files, which TensorRT calls plans: their header, their bytes, and why one cannot be loaded.

mod build_command;
mod error;
mod file;
mod header;
#[cfg(test)]
mod tests;

pub use build_command::{build_command, has_plan_name, rebuild_command};
pub use error::PlanError;
pub use file::{PlanFile, is_plan_file};
pub(crate) use file::{check_length, read_plan};
pub use header::{Plan, PlanHeader, is_plan};
