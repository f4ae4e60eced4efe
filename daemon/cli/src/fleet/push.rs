//! `visiond fleet init` and `push`: make the buckets, and put bundles into the object store.

use std::path::{Path, PathBuf};

use visiond_bundle::{Index, key_list_files};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::ServerArgs;
use super::bundles::remove_leftovers;
use super::failure::refuse;
use super::rollout::{is_whole, stored_index};
use crate::bundle::{refuse_bundle, refuse_key_list};
use crate::fleet_buckets::Buckets;
use crate::output::{complain, note};
use crate::progress::Progress;

/// Make the buckets of a fleet; those that exist stay as they are
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Store everything on this many servers of the cluster, from 1 to 5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: Option<u8>,
}

/// Put signed bundles into the fleet's store; no device uses them before `rollout`
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Bundles that `visiond bundle sign` has signed; with --keys, a list of keys
    #[arg(value_name = "BUNDLE", required = true)]
    bundles: Vec<PathBuf>,

    /// Push a list of keys, which devices then trust instead of the one before
    #[arg(long, conflicts_with = "again")]
    keys: bool,

    /// Replace a version that is there, also with other contents
    #[arg(long)]
    again: bool,
}

/// Makes the buckets.
pub fn init(args: &InitArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let streams = buckets.create(args.replicas.unwrap_or(1)).map_err(refuse)?;
    if let Some(wanted) = args.replicas {
        for (stream, has) in streams.into_iter().filter(|(_, has)| *has != wanted) {
            complain(&format!(
                "{stream} was there before, with --replicas {has}: change it with `nats stream edit {stream} --replicas {wanted}`"
            ));
        }
    }
    note("the fleet's buckets exist: push a bundle, and start `visiond bundle follow` on devices");
    Ok(Exit::Success)
}

/// Pushes bundles.
pub fn push(args: &PushArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    remove_leftovers(&mut buckets);
    for path in &args.bundles {
        if args.keys {
            push_keys(&mut buckets, path)?;
            continue;
        }
        let index = Index::of(path).map_err(refuse_bundle)?;
        let Index { name, version, bytes, .. } = &index;
        // A broken index is replaced, and with --again whatever is there.
        let there = if args.again { None } else { stored_index(&mut buckets, name, *version)? };
        if let Some(there) = there {
            if there.sha256 != index.sha256 {
                let message = format!(
                    "{name} {version} is there with other contents: make these the next version, or use --again, which devices that have it \
                     do not notice"
                );
                return Err(ExitError::new(Exit::Model, message));
            }
            // Its file, or a part of it, may be gone.
            if is_whole(&mut buckets, name, *version)? {
                note(&format!("{name} {version} is already there"));
                continue;
            }
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
        note(&format!(
            "{name} {version} is in the store: `visiond fleet rollout {name} {version}` gives it to devices"
        ));
    }
    Ok(Exit::Success)
}

/// Pushes a list of keys.
fn push_keys(buckets: &mut Buckets, path: &Path) -> Result<(), ExitError> {
    let (list, files) = key_list_files(path, buckets).map_err(refuse_key_list)?;
    for (name, text) in files {
        buckets.put_bytes(&name, &text).map_err(refuse)?;
    }
    note(&format!("version {} of the list of keys is there: devices that have one before take it", list.version));
    Ok(())
}
