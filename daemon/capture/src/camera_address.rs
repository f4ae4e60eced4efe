//! The address of a network camera and its login, which comes from the URL or from a file that can change at any time.

use std::collections::BTreeSet;
use std::path::Path;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use url::{Host, Url};
use visiond_config::is_loopback;
use visiond_system::credentials::{CredentialError, Login};

use super::ffprobe::shown;
use super::source::{SourceError, SourceFault};

/// Splits a camera's URL into the URL without a user and the login: that of the file or credential `login`, otherwise the URL's.
///
/// # Errors
/// The URL has no host, or the login cannot be read. A login whose file is missing may appear later.
pub fn camera_address(url: &str, login: Option<&Path>) -> Result<(Url, Option<Login>), SourceError> {
    let (url, in_url) = split(url)?;
    Ok((url, read_login(login)?.or(in_url)))
}

/// Returns why the login cannot be read, without mentioning the URL.
pub fn check_login(login: Option<&Path>) -> Option<SourceFault> {
    let error = Login::read(login?).err()?;
    Some(SourceFault { key: "login", certainty: error.certainty(), error: SourceError::permanent(error.to_string()) })
}

/// Returns why a URL cannot be used; `key` is the key that holds it.
pub fn check_url(key: &'static str, url: &str) -> Option<SourceFault> {
    split(url).err().map(|error| SourceFault::new(key, error))
}

/// Reads the login of the file or credential `login`.
///
/// # Errors
/// The file cannot be read. A missing file may appear later, like a credential that is created during boot.
pub fn read_login(login: Option<&Path>) -> Result<Option<Login>, SourceError> {
    login.map(Login::read).transpose().map_err(|error| match error {
        CredentialError::Unreadable { is_missing: true, .. } => SourceError::transient(error.to_string()),
        error => SourceError::permanent(error.to_string()),
    })
}

/// How many hosts to remember as already warned about.
const MOST_WARNED: usize = 1024;

/// Warns, once per host, that a login is sent unencrypted: `url` has no TLS, and the camera asks for Basic. As with brokers,
/// this machine itself does not count as a network.
pub fn warn_of_clear_login(url: &Url) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let host = url.host_str().unwrap_or_default();
    if !crosses_network(url) || !is_first(&WARNED, host) {
        return;
    }
    log::warn!(
        "user and password for {host} cross the network in clear text, because the camera requests basic authentication: set it to digest, \
         or use {}s:// in `url`",
        url.scheme()
    );
}

fn crosses_network(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name != "localhost" && !name.parse().is_ok_and(is_loopback),
        Some(Host::Ipv4(ip)) => !is_loopback(ip.into()),
        Some(Host::Ipv6(ip)) => !is_loopback(ip.into()),
        None => true,
    }
}

/// Whether the host is new. The set is bounded because a hostile camera may redirect to a new host each time.
fn is_first(warned: &Mutex<BTreeSet<String>>, host: &str) -> bool {
    let mut warned = warned.lock();
    if warned.len() >= MOST_WARNED {
        warned.clear();
    }
    warned.insert(host.to_owned())
}

fn split(text: &str) -> Result<(Url, Option<Login>), SourceError> {
    let wrong = |reason: &str| SourceError::permanent(format!("cannot use {}: {reason}", shown(text)));
    let mut url = Url::parse(text).map_err(|error| wrong(&format!("{error}: write SCHEME://HOST/PATH")))?;
    let no_host = format!("it has no host: write {}://HOST/PATH", url.scheme());
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong(&no_host));
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let login = (!url.username().is_empty())
        .then(|| Login::new(decoded(url.username()), url.password().map(decoded).unwrap_or_default()));
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_err(|()| wrong(&no_host))?;
    Ok((url, login))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    #[test]
    fn a_login_is_taken_out_of_the_url_and_that_of_a_file_goes_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        fs::write(&file, "file:secret").unwrap();
        for (url, plain) in [
            ("http://me:p%40%3Ass@cam/a?b=c", "http://cam/a?b=c"),
            ("rtsps://me:p%40%3Ass@[::1]:322/a", "rtsps://[::1]:322/a"),
        ] {
            let (found, login) = camera_address(url, None).unwrap();
            assert_eq!((found.as_str(), login.unwrap().into_parts()), (plain, ("me".to_owned(), "p@:ss".to_owned())));
            let (found, login) = camera_address(url, Some(&file)).unwrap();
            assert_eq!((found.as_str(), login.unwrap().into_parts().0.as_str()), (plain, "file"));
        }
        assert!(camera_address("rtsp://cam/", None).unwrap().1.is_none());
    }

    #[test]
    fn a_login_in_clear_is_warned_of_once_for_each_host_of_the_network() {
        for (url, wanted) in [
            ("rtsp://cam/", true),
            ("rtsp://192.0.2.7:554/", true),
            ("http://[2001:db8::1]/", true),
            ("rtsp://localhost/", false),
            ("rtsp://127.0.0.1:8554/", false),
            ("http://127.0.0.9/", false),
            ("http://[::1]/", false),
        ] {
            assert_eq!(crosses_network(&Url::parse(url).unwrap()), wanted, "{url}");
        }
        let warned = Mutex::default();
        assert!(is_first(&warned, "cam") && !is_first(&warned, "cam") && is_first(&warned, "gate"));
        (0..2 * MOST_WARNED).for_each(|number| assert!(is_first(&warned, &number.to_string())));
        assert!(warned.lock().len() <= MOST_WARNED);
    }

    #[test]
    fn what_is_no_url_of_a_camera_is_said_without_its_login() {
        for (url, words) in [
            ("http://", "write SCHEME://HOST/PATH"),
            ("rtsp:///path", "it has no host: write rtsp://HOST/PATH"),
            ("rtsp:path", "it has no host: write rtsp://HOST/PATH"),
            ("http://me:hush@cam:99999/", "write SCHEME://HOST/PATH"),
        ] {
            let error = camera_address(url, None).unwrap_err();
            assert!(error.to_string().contains(words) && !error.may_pass(), "{url}: {error}");
            assert!(!error.to_string().contains("hush"), "{error}");
            assert_eq!(check_url("url", url).unwrap().error.message, error.message);
        }
    }

    #[test]
    fn a_login_that_is_missing_may_come_later_and_a_wrong_one_is_final() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        let error = camera_address("http://cam/", Some(&file)).unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("cannot read the login"), "{error}");
        assert!(!check_login(Some(&file)).unwrap().error.may_pass(), "`visiond check` refuses it");
        fs::write(&file, "no password").unwrap();
        assert!(!camera_address("http://cam/", Some(&file)).unwrap_err().may_pass());
        fs::write(&file, "me:secret").unwrap();
        assert!(camera_address("http://cam/", Some(&file)).unwrap().1.is_some() && check_login(Some(&file)).is_none());
    }
}
