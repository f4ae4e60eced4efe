//! How the device authenticates to a NATS server.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use visiond_config::types::NatsSinkConfig;
use visiond_system::credentials::{Login, Secret};

use super::protocol::Proof;
use crate::sink::SinkError;

/// The credentials that the device presents to the server.
#[derive(Clone)]
pub enum ClientAuth {
    Nothing,
    Login(String, String),
    /// The JWT of a credentials file, and the seed that signs for it.
    Credentials {
        jwt: String,
        seed: String,
    },
}

impl ClientAuth {
    /// Reads the files that `config` names. This happens for each connection, so that renewed credentials take effect.
    pub fn read(config: &NatsSinkConfig) -> Result<Self, SinkError> {
        if let Some(name) = &config.credentials {
            let key = "credentials";
            let text = Secret::read(key, name).map_err(|error| SinkError::of_secret(key, &error))?;
            return parse(text.as_str()).ok_or_else(|| {
                let path = name.display();
                let reason = format!("{path} holds no NATS credentials: make them with `nsc generate creds`");
                SinkError::certain(key, reason)
            });
        }
        match &config.login {
            Some(name) => {
                let login = Login::read(name).map_err(|error| SinkError::of_secret("login", &error))?;
                let (user, password) = login.into_parts();
                Ok(Self::Login(user, password))
            }
            None => Ok(Self::Nothing),
        }
    }

    /// Answers the server's challenge at the start of a connection.
    pub fn answer(&self, nonce: &str) -> Result<Proof, String> {
        Ok(match self {
            Self::Nothing => Proof::default(),
            Self::Login(user, password) => {
                Proof { user: Some(user.clone()), pass: Some(password.clone()), ..Proof::default() }
            }
            Self::Credentials { jwt, seed } => {
                let signed = KeyPair::from_seed(seed).and_then(|pair| pair.sign(nonce.as_bytes()));
                // The error of the seed is not shown: its text might contain a part of the seed.
                let signed = signed.map_err(|_| "the seed cannot sign".to_owned())?;
                Proof { jwt: Some(jwt.clone()), sig: Some(URL_SAFE_NO_PAD.encode(signed)), ..Proof::default() }
            }
        })
    }

    /// Returns what to do when the server rejects the authentication.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Nothing => "requires authentication: set `login` or `credentials`",
            Self::Login(..) => "rejects this user and password: check `login`",
            Self::Credentials { .. } => "rejects these credentials: check `credentials`",
        }
    }
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
