//! `[http]`: the live page, the API and the metrics.

use std::path::PathBuf;

use crate::kinds::{address, credential, flag, host, list, mode, real, whole};
use crate::table_macros::section;

pub use crate::kinds::Address;

section! {
    /// The table `[http]`.
    pub struct HttpConfig {
        /// Addresses to listen on: "127.0.0.1:8790" or "unix:/run/visiond/http.sock". Port 0 selects any free port, which the log
        /// reports. Empty: `http.sock` in the folder that systemd created in /run; for a daemon started by hand,
        /// `visiond/http.sock` in `$XDG_RUNTIME_DIR`, if that is the user's own folder and no other daemon has the socket;
        /// otherwise none. Sockets from systemd are always served. An address that is reachable from the network requires
        /// `token`.
        listen: Vec<Address> as list(address()) => default(Vec::new()),
        /// The secret that clients must send, except over Unix sockets, where file permissions decide: the name of a systemd
        /// credential (`LoadCredential=` in the unit), or the path, with a slash, of a file with one line of at least 16
        /// characters. Without it, every client has access.
        token: Option<PathBuf> as credential() => optional(r#""http-token""#),
        /// Permissions of Unix sockets, in octal: who may connect.
        socket_mode: u32 as mode() => default(0o660),
        /// Maximum number of TCP connections; Unix sockets have a separate limit of the same size. Further clients are asked to
        /// retry.
        max_connections: usize as whole(1..=65_536) => default(1024),
        /// Maximum number of live images per second for each camera.
        max_fps: f64 as real(0.1..=120.0) => default(10.0),
        /// Host names, other than `localhost`, that browsers may use for a loopback address without a token, such as a proxy's.
        allow_hosts: Vec<String> as list(host()) => default(Vec::new()),
        /// Let clients change the masks, lines and zones of cameras: visiond writes them into the configuration file and reloads it.
        /// Requires `token`, and that visiond may write the file and its folder.
        allow_changes: bool as flag() => default(false),
    }
}
