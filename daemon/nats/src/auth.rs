//! How the device authenticates to a NATS server.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use visiond_system::credentials::{Login, Secret};
use visiond_system::setting_error::SettingError;

use crate::protocol::Proof;

/// How the device authenticates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoginSource {
    /// Not at all, or with its certificate.
    #[default]
    Nothing,
    /// A file or a systemd credential with `user:password`.
    LoginFile(PathBuf),
    /// A credentials file (.creds), or a systemd credential with its contents.
    CredentialsFile(PathBuf),
    /// A file with the seed of an nkey.
    NkeyFile(PathBuf),
    /// User and password.
    Login(Login),
    /// A token.
    Token(Secret),
}

/// The credentials that the device presents to the server.
#[derive(Clone)]
pub enum ClientAuth {
    /// None, or its certificate.
    Nothing,
    /// User and password.
    Login(String, String),
    /// A token.
    Token(String),
    /// The JWT of a credentials file, and the seed that signs for it.
    Credentials {
        /// What the server reads.
        jwt: String,
        /// What signs.
        seed: String,
    },
    /// The seed of an nkey that the server knows.
    Nkey(String),
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ClientAuth {
    /// Reads the files that `source` names. This happens for each connection, so that renewed credentials take effect.
    ///
    /// # Errors
    /// If a file cannot be read, or holds no credentials.
    pub fn read(source: &LoginSource) -> Result<Self, SettingError> {
        let key = "credentials";
        Ok(match source {
            LoginSource::Nothing => Self::Nothing,
            LoginSource::CredentialsFile(name) => {
                let text = Secret::read(key, name).map_err(|error| SettingError::of_secret(key, &error))?;
                parse(text.as_str()).ok_or_else(|| {
                    let path = name.display();
                    let reason = format!("{path} holds no NATS credentials: make them with `nsc generate creds`");
                    SettingError::certain(key, reason)
                })?
            }
            LoginSource::NkeyFile(name) => {
                let text = Secret::read(key, name).map_err(|error| SettingError::of_secret(key, &error))?;
                let seed = text.as_str().lines().map(str::trim).find(|line| line.starts_with('S'));
                let seed = seed.filter(|seed| KeyPair::from_seed(seed).is_ok()).ok_or_else(|| {
                    let path = name.display();
                    SettingError::certain(key, format!("{path} holds no seed of an nkey: make one with `nk -gen user`"))
                })?;
                Self::Nkey(seed.to_owned())
            }
            LoginSource::LoginFile(name) => {
                let login = Login::read(name).map_err(|error| SettingError::of_secret("login", &error))?;
                let (user, password) = login.into_parts();
                Self::Login(user, password)
            }
            LoginSource::Login(login) => {
                let (user, password) = login.clone().into_parts();
                Self::Login(user, password)
            }
            LoginSource::Token(token) => Self::Token(token.as_str().to_owned()),
        })
    }

    /// Answers the server's challenge at the start of a connection.
    ///
    /// # Errors
    /// If the seed cannot sign.
    pub fn answer(&self, nonce: &str) -> Result<Proof, String> {
        Ok(match self {
            Self::Nothing => Proof::default(),
            Self::Login(user, password) => {
                Proof { user: Some(user.clone()), pass: Some(password.clone()), ..Proof::default() }
            }
            Self::Token(token) => Proof { auth_token: Some(token.clone()), ..Proof::default() },
            Self::Credentials { jwt, seed } => {
                Proof { jwt: Some(jwt.clone()), sig: Some(sign(seed, nonce)?.0), ..Proof::default() }
            }
            Self::Nkey(seed) => {
                let (sig, nkey) = sign(seed, nonce)?;
                Proof { nkey: Some(nkey), sig: Some(sig), ..Proof::default() }
            }
        })
    }

    /// Returns what to do when the server rejects the authentication.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Nothing => "requires authentication: set `login` or `credentials`",
            Self::Login(..) => "rejects this user and password: check `login`",
            Self::Token(_) => "rejects this token: check NATS_TOKEN and the user in the URL",
            Self::Credentials { .. } => "rejects these credentials: check `credentials`",
            Self::Nkey(_) => "rejects this nkey: check NATS_NKEY, and add its public key to the server",
        }
    }
}

/// Signs a server's nonce; returns the signature in Base64 and the public key.
fn sign(seed: &str, nonce: &str) -> Result<(String, String), String> {
    let signed = KeyPair::from_seed(seed).and_then(|pair| Ok((pair.sign(nonce.as_bytes())?, pair.public_key())));
    // The error of the seed is not shown: its text might contain a part of the seed.
    let (signed, key) = signed.map_err(|_| "the seed cannot sign".to_owned())?;
    Ok((URL_SAFE_NO_PAD.encode(signed), key))
}

/// Parses JWT and seed of a credentials file: each is the first line after its `-----BEGIN ...` line.
fn parse(text: &str) -> Option<ClientAuth> {
    let part = |title: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN") && line.contains(title))?;
        lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-')).map(str::to_owned)
    };
    let (jwt, seed) = (part("JWT")?, part("SEED")?);
    // Checked here, before the server asks.
    KeyPair::from_seed(&seed).ok()?;
    Some(ClientAuth::Credentials { jwt, seed })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_credentials_file_is_read_and_signs() {
        let pair = KeyPair::new_user();
        let seed = pair.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\r\neyJ0.x-y_z\r\n------END NATS USER JWT------\r\n\r\n***\r\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\r\n"
        );
        let auth = parse(&text).unwrap().answer("nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("eyJ0.x-y_z"));
        pair.verify(b"nonce", &URL_SAFE_NO_PAD.decode(auth.sig.unwrap()).unwrap()).unwrap();
        for cut in ["", "user:password", &text[..40], &text.replace(&seed, "SUAX")] {
            assert!(parse(cut).is_none(), "{cut}");
        }
    }
}
