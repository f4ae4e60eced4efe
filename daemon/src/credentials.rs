//! Secrets that do not stand in the configuration: systemd's credentials, and files.
//!
//! A service finds its credentials as files in the folder $CREDENTIALS_DIRECTORY, which nobody else can read
//! (`LoadCredential=` in its unit, systemd 247 and newer).

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a login at most; what is larger is some other file.
const MAX_BYTES: u64 = 4096;

/// Why a secret cannot be had. The texts never hold any of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Not run by systemd, or by one without credentials.
    #[error(
        "the login \"{0}\" is a credential of systemd's, and there are none here: give visiond's unit \
         `LoadCredential={0}:FILE` (`systemctl edit visiond`), or set `login` to a file's path, with a slash in it"
    )]
    None(String),
    /// There are others.
    #[error(
        "the login \"{0}\" is not among the credentials that systemd gave: add `LoadCredential={0}:FILE` to visiond's unit \
         (`systemctl edit visiond`), then restart it"
    )]
    Unknown(String),
    /// A file.
    #[error("the login {path} cannot be read: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Something else is in it.
    #[error("the login {0} must be one line, `user:password`")]
    Shape(PathBuf),
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
        let is_file = name.components().count() > 1;
        let path = match credentials {
            _ if is_file => name.to_owned(),
            Some(folder) => folder.join(name),
            None => return Err(CredentialError::None(name.display().to_string())),
        };
        let text = read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !is_file => CredentialError::Unknown(name.display().to_string()),
            io::ErrorKind::InvalidData => CredentialError::Shape(path.clone()),
            _ => CredentialError::Unreadable { path: path.clone(), reason: error.to_string() },
        })?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !line.contains(char::is_control) => {
                Ok(Self { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Err(CredentialError::Shape(path)),
        }
    }

    /// `url` with this login in it, escaped as URLs want it. What is no URL stays as it is.
    pub fn into_url(self, url: &str) -> String {
        match url.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}:{}@{rest}", escaped(&self.user), escaped(&self.password)),
            None => url.to_owned(),
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if found.permissions().mode() & 0o004 != 0 {
        log::warn!("every user of this machine may read the login {}: chmod 640, group visiond", path.display());
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
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
}
