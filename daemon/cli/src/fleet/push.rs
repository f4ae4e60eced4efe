//! `visiond fleet init` and `push`: make the buckets, and put bundles into the object store.

use std::path::PathBuf;

use visiond_bundle::{Index, SourceError};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::ServerArgs;
use super::failure::refuse;
use crate::bundle::refuse_bundle;
use crate::output::note;
use crate::progress::Progress;

/// Make the buckets of a fleet; those that exist stay as they are
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Store everything on this many servers of the cluster, from 1 to 5
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
}

/// Put signed bundles into the fleet's store; no device uses them before `rollout`
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Bundles that `visiond bundle sign` has signed
    #[arg(value_name = "BUNDLE", required = true)]
    bundles: Vec<PathBuf>,

    /// Replace a version that is there with other contents
    #[arg(long)]
    again: bool,
}

/// Makes the buckets.
pub fn init(args: &InitArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    buckets.create(args.replicas).map_err(refuse)?;
    note("the fleet's buckets are there: push a bundle, and start `visiond bundle follow` on devices");
    Ok(Exit::Success)
}

/// Pushes bundles.
pub fn push(args: &PushArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    for path in &args.bundles {
        let index = Index::of(path).map_err(refuse_bundle)?;
        let Index { name, version, bytes, .. } = &index;
        match Index::ask_version(&mut buckets, name, *version) {
            Ok(there) if there.sha256 == index.sha256 => {
                note(&format!("{name} {version} is already there"));
                continue;
            }
            Ok(_) if !args.again => {
                let message = format!(
                    "{name} {version} is there with other contents: make these the next version, or use --again, which devices that have it \
                     do not notice"
                );
                return Err(ExitError::new(Exit::Model, message));
            }
            // A broken index is replaced.
            Ok(_) | Err(SourceError::Missing { .. } | SourceError::Index { .. }) => {}
            Err(error) => return Err(ExitError::new(Exit::Failure, error)),
        }
        let mut progress = Progress::new();
        // The index comes last: before that, no device can find the bundle.
        let put = buckets.put_file(&index.path(), path, &mut |sent| {
            progress.tell(|| format!("{name} {version}: {} %", u128::from(sent) * 100 / u128::from(*bytes).max(1)));
        });
        put.map_err(|error| match error {
            Ok(system) => ExitError::new(Exit::Input, format!("cannot read {}: {system}", path.display())),
            Err(error) => refuse(error),
        })?;
        let text = index.to_toml();
        buckets.put_bytes(&Index::path_of_version(name, *version), text.as_bytes()).map_err(refuse)?;
        note(&format!("{name} {version} is there: `visiond fleet rollout {name} {version}` gives it to devices"));
    }
    Ok(Exit::Success)
}
