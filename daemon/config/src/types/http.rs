//! `[http]`: the page, the API and the metrics.

use std::path::PathBuf;

use crate::kinds::{address, credential, host, list, mode, real, whole};
use crate::table_macros::section;

pub use crate::kinds::Address;

section! {
    /// `[http]`
    pub struct HttpConfig {
        /// Where it listens: "127.0.0.1:8790" or "unix:/run/visiond/http.sock"; port 0 is any free one, which the
        /// log tells. Empty: the socket `http.sock` in the folder that systemd made for visiond in /run, and nothing where
        /// it did not. Sockets that systemd hands over are served in any case. An address that the network reaches needs a `token`.
        listen: Vec<Address> as list(address()) => default(Vec::new()),
        /// The secret that whoever asks must know, on every address but not on Unix sockets, whose permissions say who may
        /// connect: the name of a credential of systemd's (`LoadCredential=` in the unit), or a file's path with a slash in
        /// it, for one line of 16 characters at least. Without it nothing is asked.
        token: Option<PathBuf> as credential() => optional(r#""http-token""#),
        /// Who may connect to a Unix socket: its permissions, in octal.
        socket_mode: u32 as mode() => default(0o660),
        /// Connections at most; who comes then is told to come again.
        max_connections: usize as whole(1..=65_536) => default(1024),
        /// Pictures a second and camera at most, of those that are watched.
        max_fps: f64 as real(0.1..=120.0) => default(10.0),
        /// Names besides `localhost` by which browsers may ask for a loopback address without a token, such as a proxy's.
        allow_hosts: Vec<String> as list(host()) => default(Vec::new()),
    }
}
