//! `visiond bundle publish`.

use std::path::PathBuf;

use visiond_bundle::{publish, publish_key_list};
use visiond_config::format_size;
use visiond_system::exit::{Exit, ExitError};

use super::failure::{refuse, refuse_key_list};
use crate::output::note;

/// Put a signed bundle into a folder from which devices fetch it by themselves
///
/// Any web server can serve the folder. It can also be on a USB stick or a network drive.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Bundle, which is signed; with --keys, a list of keys
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Folder, to which FOLDER/NAME/VERSION.visiond and FOLDER/NAME/index.toml are written, or FOLDER/keys.toml
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Publish it though it is not newer than the version that is published there
    #[arg(long)]
    again: bool,

    /// Publish a list of keys, which devices then trust instead of the one before
    #[arg(long, conflicts_with = "again")]
    keys: bool,
}

const AFTER_HELP: &str = "\
Devices never install a version that is not newer than what they had.

The status is 4 if the bundle is not signed, or is not newer than the version that is published there.

Examples:
  visiond bundle publish street-8.visiond /srv/bundles
  visiond bundle publish street-8.visiond /media/stick
  visiond bundle publish --keys keys.toml /srv/bundles";

/// Publishes a bundle or a list of keys.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    if args.keys {
        let list = publish_key_list(&args.bundle, &args.folder).map_err(refuse_key_list)?;
        note(&format!("version {} of the list of keys is published in {}", list.version, args.folder.display()));
        return Ok(Exit::Success);
    }
    let published = publish(&args.bundle, &args.folder, args.again).map_err(refuse)?;
    let index = &published.index;
    let (name, version, size) = (&index.name, index.version, format_size(index.bytes));
    let path = args.folder.join(index.path());
    note(&if published.is_same {
        format!("{name} {version} is already published: {}", path.display())
    } else {
        format!("{name} {version} is published: {}, {size}", path.display())
    });
    Ok(Exit::Success)
}
