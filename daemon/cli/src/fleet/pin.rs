//! `visiond fleet pin` and `unpin`: a version for one device, whatever its group gets.

use visiond_fleet::Pin;
use visiond_nats::NatsError;
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, bundle, name, operator, version};
use super::failure::refuse;
use super::rollout::is_whole;
use crate::fleet_buckets::Buckets;
use crate::output::{complain, note};
use crate::wall_clock::unix_s;

/// Keep a device at a version of a bundle, whatever its group gets
#[derive(Debug, clap::Args)]
pub struct PinArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Name of the device
    #[arg(value_name = "DEVICE", value_parser = name)]
    device: String,

    /// Name of the bundle
    #[arg(value_name = "NAME", value_parser = bundle)]
    bundle: String,

    /// Version [default: the one that the device has]
    #[arg(value_name = "VERSION", value_parser = version)]
    version: Option<u64>,

    /// Reason shown to other operators
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Remove the pin of a device, so that it uses the version of its group
#[derive(Debug, clap::Args)]
pub struct UnpinArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Name of the device
    #[arg(value_name = "DEVICE", value_parser = name)]
    device: String,

    /// Name of the bundle
    #[arg(value_name = "NAME", value_parser = bundle)]
    bundle: String,
}

/// Pins a device.
pub fn pin(args: &PinArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let (version, reason) = (args.version, args.reason.clone());
    let pin = Pin { format: 1, version, by: operator(), since_unix_s: unix_s(), reason };
    buckets.put_pin(&args.device, &args.bundle, &pin).map_err(refuse)?;
    let at = version.map_or_else(|| "the version that it has".to_owned(), |version| format!("version {version}"));
    note(&format!("{} stays at {at} of {}", args.device, args.bundle));
    warn_of_unknown(&mut buckets, args).map_err(refuse)?;
    Ok(Exit::Success)
}

/// Warns if no such device has reported, or the version is not there yet. A pin may come before both.
fn warn_of_unknown(buckets: &mut Buckets, args: &PinArgs) -> Result<(), NatsError> {
    let PinArgs { device, bundle, .. } = args;
    match buckets.reported()?.get(device) {
        None => complain(&format!("no device {device} has reported: check the name with `visiond fleet devices`")),
        Some(found) if !found.reported.bundles.contains_key(bundle) => {
            let followed: Vec<_> = found.reported.bundles.keys().map(String::as_str).collect();
            complain(&format!("{device} does not follow {bundle}, but {}", followed.join(", ")));
        }
        Some(_) => {}
    }
    if let Some(version) = args.version
        && is_whole(buckets, bundle, version).is_ok_and(|is_whole| !is_whole)
    {
        complain(&format!("{bundle} {version} is not in the fleet's store: put it there with `visiond fleet push`"));
    }
    Ok(())
}

/// Takes a pin away.
pub fn unpin(args: &UnpinArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    if !buckets.delete_pin(&args.device, &args.bundle).map_err(refuse)? {
        let message = format!("{} has no pin for {}: check both names", args.device, args.bundle);
        return Err(ExitError::new(Exit::Input, message));
    }
    note(&format!("{} uses the version of its group", args.device));
    Ok(Exit::Success)
}
