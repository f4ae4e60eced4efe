//! The part of the HTTP server that a reload changes.

use std::io;

use visiond_config::types::{Address, HttpConfig};
use visiond_system::credentials::CredentialError;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::preflight::{Certainty, Resource};
use visiond_system::unix_socket::SocketError;

/// The part of the HTTP server that a reload changes.
pub trait HttpServer: Send + Sync {
    /// Opens the listeners of `config` that are not open yet.
    ///
    /// The returned function switches to them; until it is called, nothing changes.
    ///
    /// # Errors
    /// The server cannot listen on an address, or the token cannot be read.
    fn prepare(&self, config: &HttpConfig) -> Result<Box<dyn FnOnce() + '_>, HttpError>;
}

/// Why the HTTP server cannot listen as configured.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The token cannot be read.
    #[error("http: {0}")]
    Token(#[from] CredentialError),
    /// systemd passes a socket that other machines can reach, but there is no token.
    #[error(
        "http: systemd passes a socket at {0}, which is reachable from the network: set `http.token`, or make \
         visiond.socket listen on 127.0.0.1"
    )]
    NoToken(Address),
    /// A socket that systemd passes does not work.
    #[error("http: cannot use a socket that systemd passes: {0}")]
    PassedSocket(#[source] io::Error),
    /// A Unix socket cannot be bound; the reason names it.
    #[error("http: {0}")]
    UnixSocket(#[from] SocketError),
    /// A TCP address cannot be bound.
    #[error("http: cannot listen on {address}: {error}{}", remedy(error))]
    Bind {
        /// The address of `[http] listen`.
        address: Address,
        /// The reason.
        error: io::Error,
    },
}

impl HttpError {
    /// Returns whether the service would fail in the same way.
    pub fn certainty(&self) -> Certainty {
        match self {
            Self::Token(error) => error.certainty(),
            Self::UnixSocket(error) => error.certainty(),
            Self::Bind { address: Address::Tcp(address), error } if error.kind() == io::ErrorKind::AddrInUse => {
                Certainty::InUse(Resource::Tcp(*address))
            }
            Self::NoToken(_) | Self::PassedSocket(_) | Self::Bind { .. } => Certainty::Certain,
        }
    }

    /// Returns the exit status of a daemon that cannot start for this reason.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Token(_) | Self::NoToken(_) => Exit::Config,
            Self::PassedSocket(_) | Self::UnixSocket(_) | Self::Bind { .. } => Exit::Output,
        }
    }
}

impl From<HttpError> for ExitError {
    fn from(error: HttpError) -> Self {
        Self::new(error.exit(), error)
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ": another program uses this port; stop it, or set another port in `http.listen`",
        io::ErrorKind::PermissionDenied => ": use a port above 1023",
        io::ErrorKind::AddrNotAvailable => ": no interface of this machine has this address",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_that_cannot_be_listened_on_says_what_to_do() {
        let refused = |kind: io::ErrorKind| {
            let address: Address = Address::Tcp("127.0.0.1:80".parse().unwrap());
            let error = HttpError::Bind { address, error: kind.into() };
            assert_eq!(ExitError::from(HttpError::NoToken(Address::Unix("/a".into()))).exit, Exit::Config);
            (error.to_string(), error.certainty(), error.exit())
        };
        let (text, certainty, exit) = refused(io::ErrorKind::AddrInUse);
        assert!(text.starts_with("http: cannot listen on 127.0.0.1:80: "), "{text}");
        assert!(text.ends_with(": another program uses this port; stop it, or set another port in `http.listen`"));
        assert_eq!(certainty, Certainty::InUse(Resource::Tcp("127.0.0.1:80".parse().unwrap())));
        assert_eq!(exit, Exit::Output);
        let (text, certainty, _) = refused(io::ErrorKind::PermissionDenied);
        assert!(text.ends_with(": use a port above 1023") && certainty == Certainty::Certain, "{text}");
        let (text, ..) = refused(io::ErrorKind::AddrNotAvailable);
        assert!(text.ends_with(": no interface of this machine has this address"), "{text}");
        let (text, ..) = refused(io::ErrorKind::OutOfMemory);
        assert!(text.ends_with("127.0.0.1:80: out of memory"), "{text}");
    }
}
