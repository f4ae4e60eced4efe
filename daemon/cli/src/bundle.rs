//! `visiond bundle`: makes, signs and installs bundles, which bring a model to devices with the proof that it works there.

mod child;
mod comparison;
mod engine;
mod failure;
mod follow;
mod inspect;
mod install;
mod keys;
mod make;
mod proof;
mod publish;
mod rebuild;
mod reporter;
mod rollout_state;
mod settings_proof;
mod trusted_keys;
mod versions;

pub use failure::{refuse as refuse_bundle, refuse_key_list};
pub use rollout_state::described;

use clap::Subcommand;
use visiond_system::exit::{Exit, ExitError};

/// Bring a model to devices in one signed file, with the proof that it works
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: BundleCommand,
}

const AFTER_HELP: &str = "\
docs/bundles.md shows the way from a model to devices that use it.

Examples:
  visiond bundle keys team
  visiond bundle make yolo11n.onnx --name street --version 1
  visiond bundle sign street-1.visiond --key team.key
  sudo visiond bundle install street-1.visiond
  sudo visiond bundle rollback street
  visiond bundle publish street-2.visiond /srv/bundles
  sudo visiond bundle follow --source https://models.example street";

#[derive(Debug, Subcommand)]
enum BundleCommand {
    Make(Box<make::Args>),
    Keys(keys::KeysArgs),
    Sign(keys::SignArgs),
    Inspect(inspect::Args),
    Verify(inspect::VerifyArgs),
    Install(install::Args),
    Rebuild(rebuild::Args),
    List(versions::ListArgs),
    Rollback(versions::RollbackArgs),
    Publish(publish::Args),
    Follow(follow::Args),
}

impl Args {
    /// Returns whether `--json` is set.
    pub fn prints_json(&self) -> bool {
        match &self.command {
            BundleCommand::Inspect(args) => args.json,
            BundleCommand::List(args) => args.json,
            _ => false,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    match args.command {
        BundleCommand::Make(args) => make::run(*args),
        BundleCommand::Keys(args) => keys::make_keys(&args),
        BundleCommand::Sign(args) => keys::sign(&args),
        BundleCommand::Inspect(args) => inspect::run(&args),
        BundleCommand::Verify(args) => inspect::verify(&args),
        BundleCommand::Install(args) => install::run(&args),
        BundleCommand::Rebuild(args) => rebuild::run(&args),
        BundleCommand::List(args) => versions::list(&args),
        BundleCommand::Rollback(args) => versions::roll_back(&args),
        BundleCommand::Publish(args) => publish::run(&args),
        BundleCommand::Follow(args) => follow::run(&args),
    }
}
