//! The network camera that `visiond probe` queries, and the common parts of the reports on RTSP and HTTP cameras.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use visiond_capture::source::SourceError;
use visiond_config::types::{Fingerprint, RtspTransport};
use visiond_config::{parse_word, quote};
use visiond_system::exit::{Exit, ExitError};

use crate::output::labelled;
use crate::value_parsers::duration;

/// The network camera to query, and its options.
#[derive(Debug, clap::Args)]
pub(super) struct NetworkArgs {
    /// Show only what this network camera offers, and sample its video: rtsp://HOST/PATH, or rtsps:// with TLS
    #[arg(long, value_name = "URL", group = "network", conflicts_with = "camera")]
    pub(super) rtsp: Option<String>,

    /// Identify the content of this camera URL (MJPEG, a snapshot, or other video) and the `type` that reads it: http:// or
    /// https://
    #[arg(long, value_name = "URL", group = "network", conflicts_with = "camera")]
    pub(super) http: Option<String>,

    /// File with user and password for --rtsp or --http: one line, user:password. This keeps them out of the URL, which every user
    /// can see
    #[arg(long, value_name = "FILE", requires = "network", value_hint = clap::ValueHint::FilePath)]
    login: Option<PathBuf>,

    /// PEM file with the CA of a camera with TLS, or with its own certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE", requires = "network", value_hint = clap::ValueHint::FilePath)]
    pub(super) ca: Option<PathBuf>,

    /// Accept only the certificate with this SHA-256, regardless of its issuer
    #[arg(long, value_name = "SHA-256", requires = "network", conflicts_with = "ca", value_parser = fingerprint)]
    pub(super) fingerprint: Option<Fingerprint>,

    /// Accept any certificate, and show its fingerprint
    #[arg(long, requires = "network", conflicts_with_all = ["ca", "fingerprint"])]
    pub(super) insecure: bool,

    /// Transport of the video of --rtsp
    #[arg(long, value_name = "tcp|udp", default_value = "tcp", requires = "rtsp", conflicts_with = "http", value_parser = parse_word::<RtspTransport>)]
    pub(super) transport: RtspTransport,

    /// How long to sample the video of --rtsp or --http: measuring the key-frame interval takes at least two key frames
    #[arg(long, value_name = "TIME", default_value = "6s", requires = "network", value_parser = duration)]
    pub(super) watch: Duration,
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let usual = "write 64 hexadecimal digits, with or without colons";
    Fingerprint::parse(text).ok_or_else(|| Fingerprint::remedy(text).unwrap_or(usual).to_owned())
}

impl NetworkArgs {
    /// Checks that `url` has one of `schemes`; the second is the one with TLS.
    pub(super) fn check_scheme(&self, url: &str, schemes: [&str; 2], example: &str) -> Result<(), ExitError> {
        let [plain, secure] = schemes;
        let usage = |error: String| ExitError::new(Exit::Usage, error);
        let is_encrypted = url.starts_with(secure);
        if url.starts_with(plain) && (self.ca.is_some() || self.fingerprint.is_some() || self.insecure) {
            return Err(usage(format!("--ca, --fingerprint and --insecure are for cameras with TLS: write {secure}")));
        }
        if is_encrypted || url.starts_with(plain) {
            return Ok(());
        }
        let remedy = match url.split_once("://") {
            Some(("rtsp" | "rtsps", _)) => "use --rtsp for this URL".to_owned(),
            Some(("http" | "https", _)) => "use --http for this URL".to_owned(),
            _ => format!("write its URL as {example}"),
        };
        Err(usage(format!("cannot ask the camera: {remedy}")))
    }

    /// Returns the absolute path of the file of --ca as TOML. A relative path would start at the configuration's folder.
    pub(super) fn ca_toml(&self) -> Option<String> {
        let ca = self.ca.as_ref()?;
        let whole = std::path::absolute(ca).unwrap_or_else(|_| ca.clone());
        Some(quote(&whole.display().to_string()))
    }

    /// Returns the absolute path of the file of --login.
    pub(super) fn login_file(&self) -> Result<Option<PathBuf>, ExitError> {
        let Some(file) = &self.login else { return Ok(None) };
        let first = file.to_string_lossy().split('/').next().unwrap_or_default().to_owned();
        if first.contains(':') && !file.exists() {
            let error = "--login takes the path of a file, and this looks like a user and password: write them into a file, one \
                         line `user:password`";
            return Err(ExitError::new(Exit::Usage, error.to_owned()));
        }
        // A name without a slash would be that of a systemd credential.
        let file = std::path::absolute(file).map_err(|error| {
            let error = format!("cannot find the file of --login: {error}: write its whole path");
            ExitError::new(Exit::Input, error)
        })?;
        Ok(Some(file))
    }

    /// Returns whether there is a login, in a file or in `url`.
    pub(super) fn has_login(&self, url: &str) -> bool {
        self.login.is_some() || has_user(url)
    }
}

/// Returns the end of a report: the advice, and the camera's configuration.
pub(super) fn advice_and_snippet(advice: &[String], toml: &str) -> String {
    let lines: String = advice.iter().map(|advice| labelled("advice", advice)).collect();
    format!("{lines}\nConfiguration of this camera:\n\n{toml}")
}

fn has_user(url: &str) -> bool {
    url.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')))
}

/// Returns a source's error with the configuration keys in it replaced by the corresponding options.
pub(super) fn cannot_ask(error: &SourceError) -> ExitError {
    let error = error.to_string();
    let here = match error.as_str() {
        error if error.contains("`login`") => " (for this command: --login FILE)",
        error if error.contains("`fingerprint") => " (for this command: --fingerprint, --ca or --insecure)",
        _ => "",
    };
    ExitError::new(Exit::Input, error + here)
}

/// Returns the start of a camera's configuration: its source, up to the URL.
pub(super) fn source_toml(kind: &str, url: &str, has_secret: bool, has_login: bool) -> String {
    let hidden = if has_secret { "   # replace *** by what is there" } else { "" };
    let mut toml = format!(
        "[[camera]]\nname = \"camera\"\n\n[camera.source]\ntype = {}\nurl = {}{hidden}\n",
        quote(kind),
        quote(url)
    );
    if has_login {
        toml += "login = \"/etc/visiond/camera.login\"   # one line, user:password; readable by visiond alone\n";
    }
    toml
}

/// The certificate that a camera with TLS showed.
#[derive(Debug, Serialize)]
pub(super) struct CertificateReport {
    /// Its fingerprint.
    sha256: String,
    /// Why it was accepted.
    accepted_by: &'static str,
}

impl CertificateReport {
    pub(super) fn new(seen: &str, args: &NetworkArgs) -> Self {
        let accepted_by = match (&args.ca, args.fingerprint, args.insecure) {
            (_, _, true) => "nothing: any would be",
            (_, Some(_), _) => "its fingerprint",
            (Some(_), _, _) => "the file of --ca",
            (None, None, false) => "the system's CAs",
        };
        Self { sha256: seen.to_owned(), accepted_by }
    }

    /// Returns the configuration lines that accept it.
    pub(super) fn toml(&self, args: &NetworkArgs) -> String {
        match args.ca_toml() {
            Some(ca) => format!("ca = {ca}\n"),
            // Pinning the certificate seen here is safer than accepting any.
            None if args.insecure || args.fingerprint.is_some() => format!("fingerprint = {}\n", quote(&self.sha256)),
            None => String::new(),
        }
    }

    pub(super) fn line(&self) -> String {
        labelled("certificate", &format!("accepted by {}; SHA-256 {}", self.accepted_by, self.sha256))
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        /// As in the arguments of `probe` itself.
        #[arg(long)]
        camera: Option<String>,
        #[command(flatten)]
        network: NetworkArgs,
    }

    pub(in super::super) fn args(words: &[&str]) -> Result<NetworkArgs, String> {
        let command = Command::try_parse_from(["probe"].iter().chain(words)).map_err(|error| error.to_string())?;
        assert!(command.camera.is_none());
        Ok(command.network)
    }

    #[test]
    fn options_of_a_network_camera_need_one() {
        for words in [&["--login", "f"][..], &["--insecure"], &["--watch", "1s"], &["--transport", "udp"]] {
            assert!(args(words).unwrap_err().contains("required"), "{words:?}");
        }
        for words in [
            &["--rtsp", "u", "--http", "u"][..],
            &["--http", "u", "--transport", "udp"],
            &["--camera", "a", "--http", "u"],
        ] {
            assert!(args(words).unwrap_err().contains("cannot be used with"), "{words:?}");
        }
        assert!(args(&["--http", "u", "--login", "f", "--insecure", "--watch", "1s"]).is_ok());
        let sha1 = args(&["--http", "u", "--fingerprint", &"ab".repeat(20)]).unwrap_err();
        assert!(sha1.contains("that is a SHA-1") && sha1.contains("-fingerprint -sha256"), "{sha1}");
    }

    #[test]
    fn a_login_in_place_of_its_file_is_said_and_not_shown() {
        let error = args(&["--http", "u", "--login", "admin:hush"]).unwrap().login_file().unwrap_err();
        let error = format!("{error:?}");
        assert!(error.contains("--login takes the path of a file") && !error.contains("hush"), "{error}");
        let file = args(&["--http", "u", "--login", "gate.login"]).unwrap().login_file().unwrap().unwrap();
        assert!(file.is_absolute() && file.ends_with("gate.login"));
    }

    #[test]
    fn a_url_of_another_scheme_names_the_option() {
        let said = |url: &str, words: &[&str]| {
            let args = args(&[&["--http", url], words].concat()).unwrap();
            args.check_scheme(url, ["http://", "https://"], "http://HOST/PATH").map_err(|error| error.message)
        };
        for (url, words, expected) in [
            ("http://h/", &[][..], Ok(())),
            ("https://h/", &["--insecure"], Ok(())),
            ("http://h/", &["--insecure"], Err("write https://")),
            ("rtsps://h/", &["--insecure"], Err("use --rtsp for this URL")),
            ("10.0.0.1/a", &[], Err("write its URL as http://HOST/PATH")),
        ] {
            let found = said(url, words);
            assert_eq!(found.is_ok(), expected.is_ok(), "{url}");
            assert!(found.err().unwrap_or_default().ends_with(expected.err().unwrap_or_default()), "{url}");
        }
    }

    #[test]
    fn a_user_in_the_url_is_seen() {
        assert!(has_user("rtsp://u:p@host/x") && !has_user("rtsp://host/x@y"));
    }

    #[test]
    fn an_error_about_a_key_names_the_option_of_this_command() {
        for (error, end) in [
            ("it wants a password: set `login`", "set `login` (for this command: --login FILE)"),
            ("set `fingerprint = ...`", " (for this command: --fingerprint, --ca or --insecure)"),
            ("connection refused", "connection refused"),
        ] {
            let error = cannot_ask(&SourceError::permanent(error));
            assert!(error.message.ends_with(end) && error.exit == Exit::Input, "{error:?}");
        }
    }

    #[test]
    fn a_certificate_is_pinned_as_it_was_accepted() {
        let pin = "ab".repeat(32);
        for (words, accepted_by, line) in [
            (&["--insecure"][..], "nothing: any would be", "fingerprint = \"AB:CD\"\n"),
            (&["--fingerprint", &pin], "its fingerprint", "fingerprint = \"AB:CD\"\n"),
            (&["--ca", "/c.pem"], "the file of --ca", "ca = \"/c.pem\"\n"),
            (&[], "the system's CAs", ""),
        ] {
            let args = args(&[&["--http", "u"], words].concat()).unwrap();
            let report = CertificateReport::new("AB:CD", &args);
            assert_eq!(report.line(), format!("certificate  accepted by {accepted_by}; SHA-256 AB:CD\n"));
            assert_eq!(report.toml(&args), line);
        }
    }

    #[test]
    fn each_option_of_tls_needs_a_url_with_tls() {
        let pin = "ab".repeat(32);
        for words in [&["--insecure"][..], &["--fingerprint", &pin], &["--ca", "c.pem"]] {
            let args = args(&[&["--http", "u"], words].concat()).unwrap();
            let check = |url| args.check_scheme(url, ["http://", "https://"], "http://HOST/PATH").is_ok();
            assert_eq!([check("https://h/"), check("http://h/")], [true, false], "{words:?}");
        }
    }

    #[test]
    fn a_login_is_known_from_its_file_or_the_url() {
        let has = |words: &[&str], url| args(&[&["--rtsp", "u"], words].concat()).unwrap().has_login(url);
        assert!(has(&["--login", "f"], "rtsp://h/") && has(&[], "rtsp://u:p@h/") && !has(&[], "rtsp://h/"));
        let toml = source_toml("rtsp", "rtsp://h/***", true, false);
        assert!(toml.ends_with("url = \"rtsp://h/***\"   # replace *** by what is there\n"), "{toml}");
        let toml = source_toml("rtsp", "rtsp://h/a", false, true);
        assert!(toml.contains("url = \"rtsp://h/a\"\nlogin = "), "{toml}");
    }
}
