//! Secrets outside the configuration: systemd's credentials, and files.
//!
//! systemd passes a service its credentials as files in the folder $CREDENTIALS_DIRECTORY, which no other user can read
//! (`LoadCredential=` in the unit, since systemd 247).

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::preflight::Certainty;
use crate::regular_file;

/// All but the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Maximum bytes of a secret; a larger file is something else.
const MAX_BYTES: u64 = 4096;

/// Why a secret cannot be read. The texts never contain any of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// systemd did not start visiond, or passed no credentials.
    #[error(
        "the {0} \"{1}\" is a systemd credential, and visiond got none: set `LoadCredential={1}:FILE` in visiond's unit \
         (`systemctl edit visiond`), or set `{0}` to the path of a file, with a slash in it"
    )]
    None(&'static str, String),
    /// systemd passed other credentials.
    #[error(
        "the {0} \"{1}\" is not among the credentials that systemd passed: set `LoadCredential={1}:FILE` in visiond's unit \
         (`systemctl edit visiond`), then restart it"
    )]
    Unknown(&'static str, String),
    /// What should be a name or a path may be the secret, so it is not shown.
    #[error(
        "`{0}` looks like the secret itself, which does not belong in the configuration: write it into a file that only \
         visiond can read (chmod 400), and set `{0}` to the file's path"
    )]
    Itself(&'static str),
    /// A file cannot be read.
    #[error("cannot read the {key} {path}: {reason}")]
    Unreadable {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's text.
        reason: String,
        /// Whether the service may be able to read it.
        certainty: Certainty,
        /// Whether there is no such file, which may appear later.
        is_missing: bool,
    },
    /// The file has no `user:password`.
    #[error("the login {0} must be one line, `user:password`")]
    Shape(PathBuf),
    /// The file is not text.
    #[error("the credentials {0} are not text: name a file that `nsc generate creds` made")]
    Binary(PathBuf),
    /// The token is too short, or has characters that a header cannot carry.
    #[error(
        "the token {0} must be one line of 16 to 256 letters, digits and symbols: make one with \
         `head -c 24 /dev/urandom | base64`"
    )]
    Weak(PathBuf),
}

impl CredentialError {
    /// Returns whether the service would fail in the same way.
    pub fn certainty(&self) -> Certainty {
        match self {
            Self::None(..) => Certainty::OnlyHere,
            Self::Unreadable { certainty, .. } => certainty.clone(),
            Self::Unknown(..) | Self::Itself(_) | Self::Shape(_) | Self::Binary(_) | Self::Weak(_) => {
                Certainty::Certain
            }
        }
    }
}

/// A secret text. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secret {
    /// Reads the secret `name` of the key `key`: a systemd credential, or, with a slash, a file.
    pub fn read(key: &'static str, name: &Path) -> Result<Self, CredentialError> {
        let (_, text) = read_secret(key, name, folder().as_deref(), CredentialError::Binary)?;
        Ok(Self(text))
    }

    /// Reads the token `name` of clients: a systemd credential, or, with a slash, a file.
    pub fn read_token(name: &Path) -> Result<Self, CredentialError> {
        Self::token_from(name, folder().as_deref())
    }

    fn token_from(name: &Path, credentials: Option<&Path>) -> Result<Self, CredentialError> {
        let (path, text) = read_secret("token", name, credentials, CredentialError::Weak)?;
        let line = without_line_end(&text);
        // A header can carry no other characters.
        let strong = (16..=256).contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
        if strong { Ok(Self(line.to_owned())) } else { Err(CredentialError::Weak(path)) }
    }

    /// Creates a secret from a text that is already in memory, such as an environment variable.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// User and password. Its `Debug` shows neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    user: Secret,
    password: Secret,
}

impl Login {
    /// Reads `name`: a systemd credential, or, with a slash, a file.
    pub fn read(name: &Path) -> Result<Self, CredentialError> {
        Self::read_from(name, folder().as_deref())
    }

    fn read_from(name: &Path, credentials: Option<&Path>) -> Result<Self, CredentialError> {
        let (path, text) = read_secret("login", name, credentials, CredentialError::Shape)?;
        let line = without_line_end(&text);
        match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !line.contains(char::is_control) => {
                Ok(Self::new(user.to_owned(), password.to_owned()))
            }
            _ => Err(CredentialError::Shape(path)),
        }
    }

    /// Creates a login from a user and a password.
    pub fn new(user: String, password: String) -> Self {
        Self { user: Secret(user), password: Secret(password) }
    }

    /// Returns user and password.
    pub fn into_parts(self) -> (String, String) {
        (self.user.0, self.password.0)
    }

    /// Returns `url` with this login in it, percent-encoded. A text that is not a URL stays as it is.
    pub fn into_url(self, url: &str) -> String {
        match url.split_once("://") {
            Some((scheme, rest)) => {
                let [user, password] = [&self.user.0, &self.password.0].map(|text| utf8_percent_encode(text, ESCAPED));
                format!("{scheme}://{user}:{password}@{rest}")
            }
            None => url.to_owned(),
        }
    }
}

fn folder() -> Option<PathBuf> {
    env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

fn without_line_end(text: &str) -> &str {
    let line = text.strip_suffix('\n').unwrap_or(text);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Returns the file of the secret that `key` names, and its text; `not_text` makes the error for other content.
fn read_secret(
    key: &'static str,
    name: &Path,
    credentials: Option<&Path>,
    not_text: fn(PathBuf) -> CredentialError,
) -> Result<(PathBuf, String), CredentialError> {
    let is_file = name.components().count() > 1;
    let path = match credentials {
        _ if is_file => name.to_owned(),
        Some(folder) => folder.join(name),
        None if may_be_secret(name) => return Err(CredentialError::Itself(key)),
        None => return Err(CredentialError::None(key, name.display().to_string())),
    };
    match read(key, &path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename if may_be_secret(name) => {
                CredentialError::Itself(key)
            }
            io::ErrorKind::NotFound if !is_file => CredentialError::Unknown(key, name.display().to_string()),
            io::ErrorKind::InvalidData => not_text(path),
            _ => CredentialError::Unreadable {
                key,
                reason: error.to_string(),
                certainty: Certainty::of(&error, &path),
                is_missing: error.kind() == io::ErrorKind::NotFound,
                path,
            },
        }),
    }
}

/// Returns whether the name of a credential, or the relative path of a file, may be a secret that was put in its place: it has a
/// character that few names have, or a word of 16 or more characters with a digit.
fn may_be_secret(name: &Path) -> bool {
    let text = name.to_string_lossy();
    let is_name_character = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || "-_./".contains(one);
    let is_long = |word: &str| word.len() >= 16 && word.contains(|one: char| one.is_ascii_digit());
    let starts_as_path = ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start));
    !starts_as_path && (!text.chars().all(is_name_character) || text.split(['-', '_', '.', '/']).any(is_long))
}

fn read(key: &str, path: &Path) -> io::Result<String> {
    /// Files that were already warned about: a login is read at each connection.
    static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let file = regular_file::open(path)?;
    let is_public = file.metadata()?.permissions().mode() & 0o004 != 0;
    if is_public && WARNED.lock().insert(path.to_owned()) {
        log::warn!("every user of this machine may read the {key} {}: chmod 400, owner visiond", path.display());
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    // The byte order mark that some editors write is not part of the user name.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    fn folder_with(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("gate"), text).unwrap();
        folder
    }

    #[test]
    fn a_login_goes_into_a_url_with_whatever_a_password_holds() {
        let folder = folder_with("admin:p@ss:w/ö rd%\n");
        let login = Login::read_from(Path::new("gate"), Some(folder.path())).unwrap();
        assert_eq!(format!("{login:?}"), "Login { user: ***, password: *** }");
        let url = login.clone().into_url("rtsp://camera:554/1?x=@");
        assert_eq!(url, "rtsp://admin:p%40ss%3Aw%2F%C3%B6%20rd%25@camera:554/1?x=@");
        assert_eq!(Login::read_from(&folder.path().join("gate"), None).unwrap(), login, "a file by its path");
        assert_eq!(login.into_url("/film.mp4"), "/film.mp4");
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_a_pipe_is_refused() {
        let folder = folder_with("\u{feff}admin:secret\r\n");
        let login = Login::read_from(Path::new("gate"), Some(folder.path())).unwrap();
        assert_eq!(login.into_parts(), ("admin".to_owned(), "secret".to_owned()));
        let folder = folder_with("\u{feff}0123456789abcdef");
        assert_eq!(Secret::token_from(Path::new("gate"), Some(folder.path())).unwrap().as_str(), "0123456789abcdef");
        let fifo = folder.path().join("fifo");
        crate::testing::make_fifo(&fifo);
        for path in [&fifo, Path::new("/dev/zero")] {
            let [login, token] = [Login::read_from(path, None).err(), Secret::token_from(path, None).err()];
            for error in [login.unwrap(), token.unwrap()] {
                assert!(
                    error.to_string().ends_with("it is a device or a pipe, not a file: copy it into one"),
                    "{error}"
                );
                assert_eq!(error.certainty(), Certainty::Certain);
            }
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_with_its_remedy_and_without_the_secret() {
        let error = |text: &str, name: &str, credentials: bool| {
            let folder = folder_with(text);
            let name = name.replace("DIR", folder.path().to_str().unwrap());
            let error = Login::read_from(Path::new(&name), credentials.then_some(folder.path())).unwrap_err();
            error.to_string().replace(folder.path().to_str().unwrap(), "DIR")
        };
        assert!(
            error("", "gate", false).contains("visiond got none: set `LoadCredential=gate:FILE` in visiond's unit")
        );
        assert!(error("", "door", true).starts_with("the login \"door\" is not among the credentials"));
        assert!(error("", "DIR/door", true).starts_with("cannot read the login DIR/door: No such file"));
        for shape in ["", "secret", ":secret", "user:sec\nret", "user:sec\u{7}ret\n"] {
            assert_eq!(error(shape, "gate", true), "the login DIR/gate must be one line, `user:password`");
        }
    }

    #[test]
    fn a_secret_in_the_place_of_its_name_is_not_shown() {
        let folder = folder_with("");
        let secrets = [
            "admin:hunter2",
            "VtEx0BeLmXb3Yg7J4xTq1ZkCw9oPd2Ra",
            "9f86d081884c7d659a2feaa0c55ad015",
            "Qm9yZWQ/c2Nhbm5lcg",
            "tok-9f86d081884c7d659a2f",
        ];
        for secret in secrets {
            for credentials in [None, Some(folder.path())] {
                let errors = [
                    Login::read_from(Path::new(secret), credentials).unwrap_err(),
                    Secret::token_from(Path::new(secret), credentials).unwrap_err(),
                ];
                for (error, key) in errors.into_iter().zip(["login", "token"]) {
                    assert_eq!(error, CredentialError::Itself(key), "{secret}");
                    assert_eq!(error.certainty(), Certainty::Certain);
                }
            }
        }
        for name in ["gate-login", "http-token", "camera.12", "visiond_yard_login_2026", "secrets/gate", "./Gate:1"] {
            assert!(!may_be_secret(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_token_is_one_line_that_cannot_be_guessed() {
        let token = |text: &str| {
            let folder = folder_with(text);
            Secret::token_from(Path::new("gate"), Some(folder.path())).map_err(|error| error.to_string())
        };
        let good = token("0123456789abcdef\r\n").unwrap();
        assert_eq!((good.as_str(), format!("{good:?}").as_str()), ("0123456789abcdef", "***"));
        assert_eq!(token(&"x".repeat(256)).unwrap().as_str().len(), 256);
        let lengths = [8, 15, 257].map(|length| "x".repeat(length));
        let others = ["", "short", "0123456789abcde f", "0123456789abcdef\nmore"];
        for weak in others.into_iter().chain(lengths.iter().map(String::as_str)) {
            let error = token(weak).unwrap_err();
            assert!(error.contains("must be one line of 16 to 256"), "{error}");
            assert!(weak.is_empty() || !error.contains(weak), "{error}");
        }
        let missing = Secret::token_from(Path::new("door"), None).unwrap_err().to_string();
        assert!(missing.starts_with("the token \"door\" is a systemd credential"), "{missing}");
    }
}
