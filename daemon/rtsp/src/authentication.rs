//! Answers to a 401: Digest and Basic authentication, which RTSP has from HTTP (RFC 7616, RFC 7617, RFC 2069).

use std::fmt;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest, Sha256};

/// The longest text of a challenge that is read.
const MOST_BYTES: usize = 8 << 10;

/// Authenticates requests with one login in the way that the server requests. Its `Debug` shows no secret.
///
/// Servers hash the bytes of their realm in any encoding. So texts of challenges have one character per byte here (ISO
/// 8859-1), and so do user and password when they are combined with them.
pub struct Authenticator {
    user: String,
    password: String,
    challenge: Option<Challenge>,
    /// Whether Basic is not allowed.
    is_digest_only: bool,
    /// How many requests the nonce has served.
    nonce_count: u32,
}

/// The authentication that a server requests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Challenge {
    Basic,
    Digest(DigestChallenge),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DigestChallenge {
    algorithm: Algorithm,
    /// As the server sent it, to be repeated.
    algorithm_name: Option<String>,
    is_session: bool,
    realm: String,
    nonce: String,
    opaque: Option<String>,
    protection: Option<Protection>,
}

/// In the order of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Md5,
    Sha256,
}

/// Quality of protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Auth,
    /// Includes the body; no request here has one.
    AuthInt,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Creates an authenticator that sends nothing before the first challenge.
    pub fn new(user: String, password: String) -> Self {
        Self { user, password, challenge: None, is_digest_only: false, nonce_count: 0 }
    }

    /// Answers no more Basic challenges, which would send the password unhashed.
    pub fn require_digest(&mut self) {
        self.is_digest_only = true;
    }

    /// Whether Basic is not allowed.
    pub fn is_digest_only(&self) -> bool {
        self.is_digest_only
    }

    /// Whether requests contain the password unhashed, readable by everyone on the network path if there is no TLS.
    pub fn sends_password(&self) -> bool {
        self.challenge == Some(Challenge::Basic)
    }

    /// Takes the values of the `WWW-Authenticate` headers of a 401, and chooses the strongest that it can answer. Returns
    /// false if it can answer none; then the previous one stays.
    pub fn challenge<'a>(&mut self, values: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let strength = |challenge: &Challenge| match challenge {
            Challenge::Basic => None,
            Challenge::Digest(digest) => Some(digest.algorithm),
        };
        let offered = values.into_iter().flat_map(|value| challenges(&text_of(value)));
        let offered = offered.filter(|challenge| !self.is_digest_only || *challenge != Challenge::Basic);
        let Some(best) = offered.max_by_key(strength) else { return false };
        // A server that supports Digest would not ask for the clear password: this comes from an attacker on the network
        // path.
        if best == Challenge::Basic && matches!(self.challenge, Some(Challenge::Digest(_))) {
            return false;
        }
        // A repeated nonce continues its count; otherwise the request would look like a replay.
        if self.challenge.as_ref() != Some(&best) {
            self.nonce_count = 0;
        }
        self.challenge = Some(best);
        true
    }

    /// Returns the value of the `Authorization` header for a request; `None` before the first challenge. `uri` is the one in
    /// the request line.
    pub fn authorization(&mut self, method: &str, uri: &str) -> Option<Vec<u8>> {
        let digest = match self.challenge.as_ref()? {
            Challenge::Basic => {
                let login = STANDARD.encode(format!("{}:{}", self.user, self.password));
                return Some(format!("Basic {login}").into_bytes());
            }
            Challenge::Digest(digest) => digest,
        };
        self.nonce_count = self.nonce_count.wrapping_add(1);
        // A client nonce protects against servers that choose theirs. The hasher's keys are random.
        let client_nonce = format!("{:016x}", RandomState::new().hash_one((&digest.nonce, self.nonce_count)));
        Some(digest.authorization(&self.user, &self.password, method, uri, self.nonce_count, &client_nonce))
    }
}

/// Returns a text with one character per byte.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Returns the bytes of a text that has one character per byte.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().filter_map(|c| u8::try_from(c).ok()).collect()
}

impl DigestChallenge {
    fn authorization(
        &self,
        user: &str,
        password: &str,
        method: &str,
        uri: &str,
        count: u32,
        client_nonce: &str,
    ) -> Vec<u8> {
        let hash = |parts: &[&str]| self.algorithm.hash(&bytes_of(&parts.join(":")));
        let [user, password, uri] = [user, password, uri].map(|text| text_of(text.as_bytes()));
        let (user, password, uri) = (user.as_str(), password.as_str(), uri.as_str());
        let Self { realm, nonce, .. } = self;
        // The escapes of the quoting are not part of the value.
        let mut secret = hash(&[user, &unescaped(realm), password]);
        if self.is_session {
            secret = hash(&[&secret, nonce, client_nonce]);
        }
        let request = match self.protection {
            Some(Protection::AuthInt) => hash(&[method, uri, &hash(&[""])]),
            Some(Protection::Auth) | None => hash(&[method, uri]),
        };
        let (count, protection) = (format!("{count:08x}"), self.protection.map(Protection::name));
        let response = match protection {
            Some(name) => hash(&[&secret, nonce, &count, client_nonce, name, &request]),
            None => hash(&[&secret, nonce, &request]),
        };
        let user = user.replace('\\', r"\\").replace('"', "\\\"");
        let mut out = format!(
            r#"Digest username="{user}", realm="{realm}", nonce="{nonce}", uri="{uri}", response="{response}""#
        );
        // Writing to a string cannot fail.
        if let Some(name) = &self.algorithm_name {
            let _ = write!(out, ", algorithm={name}");
        }
        if let Some(opaque) = &self.opaque {
            let _ = write!(out, r#", opaque="{opaque}""#);
        }
        if let Some(name) = protection {
            let _ = write!(out, r#", qop={name}, nc={count}, cnonce="{client_nonce}""#);
        } else if self.is_session {
            let _ = write!(out, r#", cnonce="{client_nonce}""#);
        }
        bytes_of(&out)
    }

    /// Returns `None` for a challenge that cannot be answered, such as one whose values would break the lines of a request.
    fn of(parameters: &[(String, String)]) -> Option<Self> {
        if parameters.iter().any(|(_, value)| value.contains(|c: char| c.is_ascii_control())) {
            return None;
        }
        let find = |name: &str| parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
        let algorithm_name = find("algorithm");
        let named = algorithm_name.as_deref().unwrap_or("MD5").to_ascii_lowercase();
        let (named, is_session) = match named.strip_suffix("-sess") {
            Some(base) => (base, true),
            None => (named.as_str(), false),
        };
        let algorithm = match named {
            "md5" | "" => Algorithm::Md5,
            "sha-256" | "sha256" => Algorithm::Sha256,
            _ => return None,
        };
        let offers = |protections: &str, name: &str| {
            protections.split([',', ' ']).any(|one| one.trim().eq_ignore_ascii_case(name))
        };
        let protection = match find("qop") {
            Some(offered) if offers(&offered, "auth") => Some(Protection::Auth),
            Some(offered) if offers(&offered, "auth-int") => Some(Protection::AuthInt),
            _ => None,
        };
        Some(Self {
            algorithm,
            algorithm_name: algorithm_name.filter(|name| !name.is_empty()),
            is_session,
            realm: find("realm").unwrap_or_default(),
            nonce: find("nonce")?,
            opaque: find("opaque"),
            protection,
        })
    }
}

impl Protection {
    const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::AuthInt => "auth-int",
        }
    }
}

impl Algorithm {
    fn hash(self, text: &[u8]) -> String {
        fn hex<D: Digest>(text: &[u8]) -> String {
            D::digest(text).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
        }
        match self {
            Self::Md5 => hex::<Md5>(text),
            Self::Sha256 => hex::<Sha256>(text),
        }
    }
}

/// Returns a quoted text without the escapes in it.
fn unescaped(quoted: &str) -> String {
    let mut is_escaped = false;
    quoted
        .chars()
        .filter(|&c| {
            is_escaped = c == '\\' && !is_escaped;
            !is_escaped
        })
        .collect()
}

/// Returns the challenges of one header that use a supported scheme. Parameters are separated by commas, semicolons or blanks
/// alone; they may lack quotes.
fn challenges(value: &str) -> Vec<Challenge> {
    let mut end = value.len().min(MOST_BYTES);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let mut rest = &value[..end];
    let mut schemes: Vec<(String, Vec<(String, String)>)> = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_separator);
        let end = rest.find(|c: char| c == '=' || is_separator(c)).unwrap_or(rest.len());
        if rest.is_empty() {
            break;
        }
        let (name, behind) = rest.split_at(end);
        match behind.trim_ascii_start().strip_prefix('=') {
            Some(behind) => {
                let (value, behind) = parameter_value(behind.trim_ascii_start());
                if let Some((_, parameters)) = schemes.last_mut() {
                    parameters.push((name.to_ascii_lowercase(), value.to_owned()));
                }
                rest = behind;
            }
            None => {
                schemes.push((name.to_ascii_lowercase(), Vec::new()));
                rest = behind;
            }
        }
    }
    let known = schemes.iter().filter_map(|(scheme, parameters)| match scheme.as_str() {
        "basic" => Some(Challenge::Basic),
        "digest" => DigestChallenge::of(parameters).map(Challenge::Digest),
        _ => None,
    });
    known.collect()
}

/// Whether a character separates parameters.
fn is_separator(c: char) -> bool {
    c == ',' || c == ';' || c.is_ascii_whitespace()
}

/// Returns the value at the start of `text`, quoted or not, and the rest. Escapes within quotes stay.
fn parameter_value(text: &str) -> (&str, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(is_separator).unwrap_or(text.len());
        return text.split_at(end);
    };
    let mut is_escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    match end {
        Some(end) => (&quoted[..end], &quoted[end + 1..]),
        None => (quoted, ""),
    }
}

#[cfg(test)]
mod tests;
