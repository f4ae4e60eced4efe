//! `visiond bundle rebuild`.

use visiond_system::exit::{Exit, ExitError};

use super::engine::note_building;
use super::failure::refuse;
use super::install::note_left;
use super::proof::{Failed, ProofArgs, prove};
use super::versions::StoreArgs;
use crate::output::note;

/// Choose the model for this machine, and build its engine, once more: after an update of TensorRT, say
///
/// It is proven as by an installation. The engine in use stays until the new one has passed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Name of the bundle
    name: String,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    proof: ProofArgs,
}

const AFTER_HELP: &str = "\
The version and the one before stay the same. The daemon uses the new engine after `sudo visiond reload`.

Examples:
  sudo visiond bundle rebuild street && sudo visiond reload";

/// Builds the engine of the current version once more.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let candidate = args.store.open().unpack_current(&args.name).map_err(refuse)?;
    let (name, version) = (&args.name, candidate.manifest.version);
    match prove(&candidate, &args.proof, &|step| note_building(name, version, step)) {
        Ok(_) => {}
        Err(Failed::Proof(reason, _)) => {
            let message = format!("{name} {version} stays as it was: {reason}; make a new version");
            return Err(ExitError::new(Exit::Differs, message));
        }
        Err(Failed::Other(error)) => return Err(error),
    }
    note_left(&candidate.accept().map_err(refuse)?);
    note(&format!("{name} {version} is ready again: `sudo visiond reload` makes the daemon use it"));
    Ok(Exit::Success)
}
