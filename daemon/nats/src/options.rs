//! Where the servers are, and how to log in.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use visiond_system::broker_tls::{self, TlsFiles};
use visiond_system::credentials::{Login, Secret};
use visiond_system::setting_error::SettingError;

use crate::auth::{ClientAuth, LoginSource};

/// The variable with [`Options::api_prefix`].
const PREFIX_VARIABLE: &str = "NATS_JS_API_PREFIX";

/// How long a [`Client`](crate::Client) repeats a request by default.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The servers, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The servers of one cluster: `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub urls: Vec<String>,
    /// How the device authenticates.
    pub login: LoginSource,
    /// CA certificates that verify the server's; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// This device's certificate, which requires `key`.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key.
    pub key: Option<PathBuf>,
    /// The name of the connection, which the server shows.
    pub name: String,
    /// How long a [`Client`](crate::Client) repeats a request until a server answers it. Less than two minutes: streams remember
    /// that long what they have stored.
    pub patience: Duration,
    /// Where the options come from, for remedies.
    pub origin: Origin,
    /// What the subjects of JetStream's API begin with, where the server gives it to this account under other ones; `None`: `$JS.API`.
    /// See [`check_api_prefix`].
    pub api_prefix: Option<String>,
    /// A word of the subjects that answers go to, after `_INBOX`, so that the server can keep these of one login from all others.
    pub inbox_word: Option<String>,
}

/// What the subjects of JetStream's API begin with, unless the server says otherwise.
const API_PREFIX: &str = "$JS.API";

/// Where the options come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A configuration with the keys `url`, `login`, `credentials`, `ca`, `certificate` and `key`.
    Configuration,
    /// The environment variables of the command-line tool `nats`.
    Environment,
}

impl Options {
    /// Creates the options of a configuration, for servers that let everyone in.
    pub fn new(urls: Vec<String>, name: impl Into<String>) -> Self {
        Self {
            urls,
            login: LoginSource::Nothing,
            ca: None,
            certificate: None,
            key: None,
            name: name.into(),
            patience: PATIENCE,
            origin: Origin::Configuration,
            api_prefix: None,
            inbox_word: None,
        }
    }

    /// Reads the environment variables of the command-line tool `nats`: `NATS_URL` (one or more, separated by commas; they may
    /// contain a user), `NATS_USER` and `NATS_PASSWORD`, `NATS_TOKEN`, `NATS_CREDS`, `NATS_NKEY`, `NATS_CA`, `NATS_CERT` and
    /// `NATS_KEY`; and `NATS_JS_API_PREFIX`, which is the tool's `--js-api-prefix`. `url` replaces `NATS_URL`; without both it is nats://localhost:4222.
    ///
    /// # Errors
    /// If a variable is not text, a URL is not one, or the prefix is none.
    pub fn from_env(url: Option<&str>, name: impl Into<String>) -> Result<Self, SettingError> {
        Self::from_variables(url, name, |variable| env::var_os(variable))
    }

    fn from_variables(
        url: Option<&str>,
        name: impl Into<String>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingError> {
        let set = |key: &'static str| variable(key).filter(|value| !value.is_empty());
        let text = |key: &'static str| match set(key).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(SettingError::certain(key, format!("{key} is not text: set it again"))),
        };
        let path = |key: &'static str| set(key).map(PathBuf::from).map(|path| as_file(&path));
        let urls = match url {
            Some(url) => url.to_owned(),
            None => text("NATS_URL")?.unwrap_or_else(|| "nats://localhost:4222".to_owned()),
        };
        let mut options = Self { origin: Origin::Environment, ..Self::new(Vec::new(), name) };
        for url in urls.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
            let host = match rest.rsplit_once('@') {
                Some((user, host)) => {
                    options.login = match user.split_once(':') {
                        Some((user, password)) => LoginSource::Login(Login::new(unescape(user), unescape(password))),
                        None => LoginSource::Token(Secret::new(unescape(user))),
                    };
                    host
                }
                None => rest,
            };
            options.urls.push(format!("{scheme}://{host}"));
        }
        if options.urls.is_empty() {
            let reason = "no server is named: set NATS_URL to nats://HOST:PORT";
            return Err(SettingError::certain("NATS_URL", reason));
        }
        let (user, password) = (text("NATS_USER")?, text("NATS_PASSWORD")?);
        if let Some(path) = path("NATS_CREDS") {
            options.login = LoginSource::CredentialsFile(path);
        } else if let Some(path) = path("NATS_NKEY") {
            options.login = LoginSource::NkeyFile(path);
        } else if let Some(token) = text("NATS_TOKEN")? {
            options.login = LoginSource::Token(Secret::new(token));
        } else if let Some(user) = user {
            options.login = match password {
                Some(password) => LoginSource::Login(Login::new(user, password)),
                // As the tool does.
                None => LoginSource::Token(Secret::new(user)),
            };
        }
        (options.ca, options.certificate, options.key) = (path("NATS_CA"), path("NATS_CERT"), path("NATS_KEY"));
        options.api_prefix = text(PREFIX_VARIABLE)?;
        if let Some(prefix) = &options.api_prefix {
            check_api_prefix(prefix).map_err(|reason| SettingError::certain(PREFIX_VARIABLE, reason))?;
        }
        Ok(options)
    }

    /// Reads the files that the options name, like each connection; returns what to authenticate with.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn check(&self) -> Result<ClientAuth, SettingError> {
        let encrypted = self.urls.iter().any(|url| url.starts_with("tls:"));
        if encrypted || self.requires_tls() {
            broker_tls::client(&self.tls_files())?;
        }
        ClientAuth::read(&self.login)
    }

    /// Returns whether connections must be encrypted, whatever the URL's scheme.
    pub fn requires_tls(&self) -> bool {
        self.ca.is_some() || self.certificate.is_some()
    }

    /// Returns the files for TLS.
    pub fn tls_files(&self) -> TlsFiles<'_> {
        TlsFiles { ca: self.ca.as_deref(), certificate: self.certificate.as_deref(), key: self.key.as_deref() }
    }

    /// Returns what the subjects of JetStream's API begin with.
    pub fn api_prefix(&self) -> &str {
        self.api_prefix.as_deref().unwrap_or(API_PREFIX)
    }

    /// Returns the servers, for errors.
    pub fn servers(&self) -> String {
        self.urls.join(", ")
    }

    /// Names the variable in place of the configuration's key in a remedy, if the options come from the environment.
    pub fn explain(&self, remedy: String) -> String {
        if self.origin == Origin::Configuration {
            return remedy;
        }
        let variables = [
            ("`login` or `credentials`", "NATS_USER and NATS_PASSWORD, or NATS_CREDS"),
            ("`login`", "NATS_USER and NATS_PASSWORD"),
            ("`credentials`", "NATS_CREDS"),
            ("`ca`", "NATS_CA"),
            ("`certificate`", "NATS_CERT"),
            ("`key`", "NATS_KEY"),
            ("`url`", "NATS_URL"),
        ];
        variables.iter().fold(remedy, |remedy, (key, variable)| remedy.replace(key, variable))
    }
}

/// Checks a prefix of JetStream's API: words with dots between them.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_api_prefix(prefix: &str) -> Result<(), String> {
    let is_fine = |one: char| one.is_ascii_alphanumeric() || "$-_".contains(one);
    if prefix.split('.').all(|word| !word.is_empty() && word.chars().all(is_fine)) {
        return Ok(());
    }
    Err(format!(
        "{prefix:?} is no prefix of JetStream's API: set {PREFIX_VARIABLE} to words with dots between them, such as fleet.API"
    ))
}

/// Returns a path with a slash, so that it does not count as the name of a systemd credential.
fn as_file(path: &Path) -> PathBuf {
    if path.components().count() > 1 { path.to_owned() } else { Path::new(".").join(path) }
}

/// Decodes %XX of a URL.
fn unescape(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn options(url: Option<&str>, variables: &[(&str, &str)]) -> Options {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        Options::from_variables(url, "test", find).unwrap()
    }

    #[test]
    fn the_environment_of_the_command_line_tool_is_understood() {
        let login = |user: &str, password: &str| LoginSource::Login(Login::new(user.to_owned(), password.to_owned()));
        let token = |text: &str| LoginSource::Token(Secret::new(text.to_owned()));
        let file = |name: &str| PathBuf::from(name);
        let plain = options(None, &[]);
        assert_eq!((plain.urls[0].as_str(), plain.login), ("nats://localhost:4222", LoginSource::Nothing));
        for (variables, urls, wanted) in [
            (&[("NATS_URL", "a:1, tls://b")][..], &["nats://a:1", "tls://b"][..], LoginSource::Nothing),
            (&[("NATS_URL", "nats://joe:p%40ss@a")], &["nats://a"], login("joe", "p@ss")),
            (&[("NATS_URL", "nats://secret@a")], &["nats://a"], token("secret")),
            (&[("NATS_USER", "joe"), ("NATS_PASSWORD", "x")], &["nats://localhost:4222"], login("joe", "x")),
            (&[("NATS_USER", "secret")], &["nats://localhost:4222"], token("secret")),
            (&[("NATS_TOKEN", "secret"), ("NATS_USER", "joe")], &["nats://localhost:4222"], token("secret")),
            (&[("NATS_CREDS", "a.creds")], &["nats://localhost:4222"], LoginSource::CredentialsFile(file("./a.creds"))),
            (&[("NATS_NKEY", "/a/b.nk")], &["nats://localhost:4222"], LoginSource::NkeyFile(file("/a/b.nk"))),
        ] {
            let found = options(None, variables);
            assert_eq!((found.urls, found.login), (urls.iter().map(|&url| url.to_owned()).collect(), wanted));
        }
        let tls = options(Some("tls://x"), &[("NATS_CA", "ca"), ("NATS_CERT", "/c"), ("NATS_KEY", "k/k")]);
        assert_eq!(tls.urls, ["tls://x"]);
        assert_eq!((tls.ca, tls.certificate, tls.key), (Some(file("./ca")), Some(file("/c")), Some(file("k/k"))));
        assert_eq!(tls.api_prefix.as_deref(), None);
        let imported = options(None, &[("NATS_JS_API_PREFIX", "fleet.API")]);
        assert_eq!((imported.api_prefix(), plain.api_prefix.as_deref()), ("fleet.API", None));
        for wrong in ["fleet.API.", ".", "a b", "a.>", "*"] {
            let found = Options::from_variables(None, "test", |key| (key == PREFIX_VARIABLE).then(|| wrong.into()));
            assert!(found.unwrap_err().to_string().contains("set NATS_JS_API_PREFIX to words"), "{wrong}");
        }
    }

    #[test]
    fn a_remedy_names_the_variable_that_the_user_has_to_set() {
        let said = "requires authentication: set `login` or `credentials`; check `ca`".to_owned();
        assert_eq!(Options::new(Vec::new(), "x").explain(said.clone()), said);
        assert_eq!(
            options(None, &[]).explain(said),
            "requires authentication: set NATS_USER and NATS_PASSWORD, or NATS_CREDS; check NATS_CA"
        );
    }
}
