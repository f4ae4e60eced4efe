//! The commands that prepare models and cameras and test machines. A daemon runs without them: the feature `workbench`.

use clap::Subcommand;
use visiond_system::exit::{Exit, ExitError};

use crate::{bench, build, bundle, capture, compare, detect, fleet, inspect, probe, selftest, top, verify};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum WorkbenchCommand {
    Detect(detect::Args),
    Probe(probe::Args),
    Capture(Box<capture::Args>),
    Build(Box<build::Args>),
    Inspect(inspect::Args),
    Bench(bench::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Bundle(Box<bundle::Args>),
    Fleet(Box<fleet::Args>),
    Selftest(Box<selftest::Args>),
    Top(top::Args),
}

impl WorkbenchCommand {
    /// Returns whether `--json` is set.
    pub fn prints_json(&self) -> bool {
        match self {
            Self::Detect(args) => args.json,
            Self::Probe(args) => args.json,
            Self::Capture(args) => args.json,
            Self::Build(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Bench(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Compare(args) => args.json,
            Self::Bundle(args) => args.prints_json(),
            Self::Fleet(args) => args.prints_json(),
            Self::Selftest(args) => args.json,
            Self::Top(_) => false,
        }
    }

    /// Runs the command.
    pub fn run(self) -> Result<Exit, ExitError> {
        match self {
            Self::Detect(args) => detect::run(args),
            Self::Probe(args) => probe::run(args),
            Self::Capture(args) => capture::run(*args),
            Self::Build(args) => build::run(*args),
            Self::Inspect(args) => inspect::run(args),
            Self::Bench(args) => bench::run(args),
            Self::Verify(args) => verify::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Bundle(args) => bundle::run(*args),
            Self::Fleet(args) => fleet::run(*args),
            Self::Selftest(args) => selftest::run(*args),
            Self::Top(args) => top::run(args),
        }
    }
}
