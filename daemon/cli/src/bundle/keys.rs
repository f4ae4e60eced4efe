//! `visiond bundle keys` and `sign`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use visiond_bundle::{Bundle, generate_key, sign as sign_bundle, sign_key_list};
use visiond_system::exit::{Exit, ExitError};

use super::failure::{refuse, refuse_key_list};
use super::trusted_keys::read_text;
use crate::output::{note, print};

/// Make a pair of keys: NAME.key signs bundles, NAME.pub is for devices
///
/// They are keys of minisign, whose own keys work as well.
#[derive(Debug, clap::Args)]
#[command(after_help = KEYS_HELP)]
pub struct KeysArgs {
    /// Write NAME.key and NAME.pub
    name: PathBuf,

    /// Do not ask for a password: whoever reads the file can sign
    #[arg(long)]
    no_password: bool,
}

const KEYS_HELP: &str = "\
Keep NAME.key where nobody else can read it, with a copy elsewhere: without it, devices take no more bundles from you until \
they trust another key.

Examples:
  visiond bundle keys team
  sudo install -D -m 644 team.pub /etc/visiond-keys/team.pub     on each device";

/// Sign a bundle, or a list of keys
#[derive(Debug, clap::Args)]
#[command(after_help = SIGN_HELP)]
pub struct SignArgs {
    /// Bundle to sign; a signature that it has is replaced. With --keys, a list of keys; signatures of other keys stay
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,

    /// Secret key, of `visiond bundle keys` or of minisign
    #[arg(short, long, value_name = "FILE")]
    key: PathBuf,

    /// Sign a list of keys: the signature is added to LIST.minisig
    #[arg(long)]
    keys: bool,
}

const SIGN_HELP: &str = "\
The signature covers the manifest, which has the SHA-256 of every file. A key with a password asks for it at the terminal.

A list of keys must be signed by as many keys of the list before as that one demands; docs/bundles.md shows how lists are made.

Examples:
  visiond bundle sign street-7.visiond --key team.key
  visiond bundle sign --keys keys.toml --key anna.key";

/// Makes a pair of keys.
pub fn make_keys(args: &KeysArgs) -> Result<Exit, ExitError> {
    let with = |ending: &str| {
        let mut path = args.name.clone().into_os_string();
        path.push(ending);
        PathBuf::from(path)
    };
    let [public, secret] = [with(".pub"), with(".key")];
    // Before the password is asked for.
    for path in [&public, &secret] {
        if path.exists() {
            let message = format!("{} exists: choose another name, or move it away", path.display());
            return Err(ExitError::new(Exit::Output, message));
        }
    }
    if !args.no_password && File::open("/dev/tty").is_err() {
        let message = "a password is asked for at a terminal, and there is none: use --no-password";
        return Err(ExitError::new(Exit::Usage, message));
    }
    let [public_text, secret_text] = generate_key(!args.no_password).map_err(refuse)?;
    write_new(&secret, 0o600, &secret_text)?;
    write_new(&public, 0o644, &public_text)?;
    print(&format!("{} signs bundles: keep it to yourself\n{} is for devices\n", secret.display(), public.display()))?;
    Ok(Exit::Success)
}

/// Signs a bundle or a list of keys.
pub fn sign(args: &SignArgs) -> Result<Exit, ExitError> {
    let key = read_text(&args.key)?;
    if args.keys {
        let id = sign_key_list(&args.bundle, &key).map_err(refuse_key_list)?;
        note(&format!("signed the list of keys {} with the key {id}", args.bundle.display()));
        return Ok(Exit::Success);
    }
    sign_bundle(&args.bundle, &key).map_err(refuse)?;
    let bundle = Bundle::open(&args.bundle).map_err(refuse)?;
    let (manifest, signer) = (bundle.manifest(), bundle.claimed_signer().map_err(refuse)?);
    let id = signer.map(|signer| signer.id).unwrap_or_default();
    note(&format!("signed {} {} with the key {id}", manifest.name, manifest.version));
    Ok(Exit::Success)
}

/// Writes a file that must not exist.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), ExitError> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|error| ExitError::new(Exit::Output, format!("cannot write {}: {error}", path.display())))
}
