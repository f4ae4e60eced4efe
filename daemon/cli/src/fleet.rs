//! `visiond fleet`: gives devices new versions of bundles, over the key-value buckets and the object store of NATS servers.

mod arguments;
mod bundles;
mod control;
mod devices;
mod drive;
mod failure;
mod pin;
mod push;
mod rollout;
mod status;

use clap::Subcommand;
use visiond_system::exit::{Exit, ExitError};

/// Give a fleet of devices new versions of bundles, wave by wave, over NATS
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: FleetCommand,
}

const AFTER_HELP: &str = "\
The devices run `visiond bundle follow --source nats://SERVER`. docs/fleet.md shows how to set up a fleet.

NATS_URL, NATS_CREDS, NATS_NKEY, NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CA, NATS_CERT and NATS_KEY work as with the program `nats`. NATS_JS_API_PREFIX is its --js-api-prefix.

Examples:
  visiond fleet init --replicas 3
  visiond fleet push street-7.visiond
  visiond fleet rollout street 7 --group north --waves 5,25
  visiond fleet status --watch
  visiond fleet rollback street --group north";

#[derive(Debug, Subcommand)]
enum FleetCommand {
    Init(push::InitArgs),
    Push(push::PushArgs),
    Bundles(bundles::Args),
    Delete(bundles::DeleteArgs),
    Rollout(rollout::Args),
    Pause(control::PauseArgs),
    Resume(control::ResumeArgs),
    Rollback(control::RollbackArgs),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Status(status::Args),
    Devices(devices::Args),
    Forget(devices::ForgetArgs),
}

impl Args {
    /// Returns whether `--json` is set.
    pub fn prints_json(&self) -> bool {
        match &self.command {
            FleetCommand::Status(args) => args.json,
            FleetCommand::Devices(args) => args.json,
            FleetCommand::Bundles(args) => args.json,
            _ => false,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    match args.command {
        FleetCommand::Init(args) => push::init(&args),
        FleetCommand::Push(args) => push::push(&args),
        FleetCommand::Bundles(args) => bundles::run(&args),
        FleetCommand::Delete(args) => bundles::delete(&args),
        FleetCommand::Rollout(args) => rollout::run(&args),
        FleetCommand::Pause(args) => control::pause(&args),
        FleetCommand::Resume(args) => control::resume(&args),
        FleetCommand::Rollback(args) => control::roll_back(&args),
        FleetCommand::Pin(args) => pin::pin(&args),
        FleetCommand::Unpin(args) => pin::unpin(&args),
        FleetCommand::Status(args) => status::run(&args),
        FleetCommand::Devices(args) => devices::run(&args),
        FleetCommand::Forget(args) => devices::forget(&args),
    }
}
