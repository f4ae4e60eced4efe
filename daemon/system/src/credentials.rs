//! Secrets that do not stand in the configuration: systemd's credentials, and files.
//!
//! A service finds its credentials as files in the folder $CREDENTIALS_DIRECTORY, which nobody else can read
//! (`LoadCredential=` in its unit, systemd 247 and newer).

use std::collections::BTreeSet;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// Bytes of a login at most; what is larger is some other file.
const MAX_BYTES: u64 = 4096;

/// Why a secret cannot be had. The texts never hold any of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Not run by systemd, or by one without credentials.
    #[error(
        "the {0} \"{1}\" is a credential of systemd's, and there are none here: give visiond's unit \
         `LoadCredential={1}:FILE` (`systemctl edit visiond`), or set `{0}` to a file's path, with a slash in it"
    )]
    None(&'static str, String),
    /// There are others.
    #[error(
        "the {0} \"{1}\" is not among the credentials that systemd gave: add `LoadCredential={1}:FILE` to visiond's unit \
         (`systemctl edit visiond`), then restart it"
    )]
    Unknown(&'static str, String),
    /// A file.
    #[error("the {what} {path} cannot be read: {reason}")]
    Unreadable {
        /// The key that names it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Something else is in it.
    #[error("the login {0} must be one line, `user:password`")]
    Shape(PathBuf),
    /// It is no text.
    #[error("the credentials {0} are no text: name a file that `nsc generate creds` made")]
    Binary(PathBuf),
    /// No secret that is worth its name.
    #[error(
        "the token {0} must be one line of 16 to 256 letters, digits and signs: make one with \
         `head -c 24 /dev/urandom | base64`"
    )]
    Weak(PathBuf),
}

/// A user's name and password. Its `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(***)")
    }
}

impl Login {
    /// Reads `name`: a credential of systemd's, or, with a slash in it, a file.
    pub fn read(name: &Path) -> Result<Self, CredentialError> {
        Self::read_from(name, env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).as_deref())
    }

    fn read_from(name: &Path, credentials: Option<&Path>) -> Result<Self, CredentialError> {
        let (path, line) = line_of("login", name, credentials, CredentialError::Shape)?;
        match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !line.contains(char::is_control) => {
                Ok(Self { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Err(CredentialError::Shape(path)),
        }
    }

    /// The user, and the password.
    pub fn into_parts(self) -> (String, String) {
        (self.user, self.password)
    }

    /// `url` with this login in it, escaped as URLs want it. What is no URL stays as it is.
    pub fn into_url(self, url: &str) -> String {
        match url.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}:{}@{rest}", escaped(&self.user), escaped(&self.password)),
            None => url.to_owned(),
        }
    }
}

/// A secret of several lines. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Secret {
    /// Reads the `name` that stands behind `key`: a credential of systemd's, or, with a slash in it, a file.
    pub fn read(key: &'static str, name: &Path) -> Result<Self, CredentialError> {
        let credentials = env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let (_, text) = text_of(key, name, credentials.as_deref(), CredentialError::Binary)?;
        Ok(Self(text))
    }

    /// The secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A secret that whoever asks must know. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(***)")
    }
}

impl Token {
    /// Reads `name`: a credential of systemd's, or, with a slash in it, a file.
    pub fn read(name: &Path) -> Result<Self, CredentialError> {
        Self::read_from(name, env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).as_deref())
    }

    fn read_from(name: &Path, credentials: Option<&Path>) -> Result<Self, CredentialError> {
        let (path, line) = line_of("token", name, credentials, CredentialError::Weak)?;
        // As a header's value it has no other characters.
        let strong = (16..=256).contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic());
        if strong { Ok(Self(line)) } else { Err(CredentialError::Weak(path)) }
    }

    /// The secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As `text_of`, without the end of the line.
fn line_of(
    key: &'static str,
    name: &Path,
    credentials: Option<&Path>,
    odd: fn(PathBuf) -> CredentialError,
) -> Result<(PathBuf, String), CredentialError> {
    let (path, text) = text_of(key, name, credentials, odd)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line).to_owned();
    Ok((path, line))
}

/// The file of the secret that `key` names, and what is in it; `odd` is what to say of what is no text.
fn text_of(
    key: &'static str,
    name: &Path,
    credentials: Option<&Path>,
    odd: fn(PathBuf) -> CredentialError,
) -> Result<(PathBuf, String), CredentialError> {
    let is_file = name.components().count() > 1;
    let path = match credentials {
        _ if is_file => name.to_owned(),
        Some(folder) => folder.join(name),
        None => return Err(CredentialError::None(key, name.display().to_string())),
    };
    let text = read(key, &path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !is_file => CredentialError::Unknown(key, name.display().to_string()),
        io::ErrorKind::InvalidData => odd(path.clone()),
        _ => CredentialError::Unreadable { what: key, path: path.clone(), reason: error.to_string() },
    })?;
    Ok((path, text))
}

fn read(key: &str, path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if found.permissions().mode() & 0o004 != 0 && is_first_time(path) {
        log::warn!("every user of this machine may read the {key} {}: chmod 640, group visiond", path.display());
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether this is asked for the first time: a login is read at each connection.
fn is_first_time(path: &Path) -> bool {
    static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // A set that is only added to is good as it is, whatever panicked.
    TOLD.lock().insert(path.to_owned())
}

/// Percent-encoded, but for what RFC 3986 calls unreserved.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
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
        assert_eq!(format!("{login:?}"), "Login(***)");
        let url = login.clone().into_url("rtsp://camera:554/1?x=@");
        assert_eq!(url, "rtsp://admin:p%40ss%3Aw%2F%C3%B6%20rd%25@camera:554/1?x=@");
        assert_eq!(Login::read_from(&folder.path().join("gate"), None).unwrap(), login, "a file by its path");
        assert_eq!(login.into_url("/film.mp4"), "/film.mp4");
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
            error("", "gate", false).contains("there are none here: give visiond's unit `LoadCredential=gate:FILE`")
        );
        assert!(error("", "door", true).starts_with("the login \"door\" is not among the credentials"));
        assert!(error("", "DIR/door", true).starts_with("the login DIR/door cannot be read: No such file"));
        for shape in ["", "secret", ":secret", "user:sec\nret", "user:sec\u{7}ret\n"] {
            assert_eq!(error(shape, "gate", true), "the login DIR/gate must be one line, `user:password`");
        }
    }

    #[test]
    fn a_token_is_one_line_that_cannot_be_guessed() {
        let token = |text: &str| {
            let folder = folder_with(text);
            Token::read_from(Path::new("gate"), Some(folder.path())).map_err(|error| error.to_string())
        };
        let good = token("0123456789abcdef\r\n").unwrap();
        assert_eq!((good.as_str(), format!("{good:?}").as_str()), ("0123456789abcdef", "Token(***)"));
        for weak in ["", "short", "0123456789abcde f", "0123456789abcdef\nmore", &"x".repeat(257)] {
            let error = token(weak).unwrap_err();
            assert!(error.contains("must be one line of 16 to 256"), "{error}");
            assert!(weak.is_empty() || !error.contains(weak), "{error}");
        }
        let missing = Token::read_from(Path::new("door"), None).unwrap_err().to_string();
        assert!(missing.starts_with("the token \"door\" is a credential of systemd's"), "{missing}");
    }
}
