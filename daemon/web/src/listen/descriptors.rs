//! Room for connections among the process's descriptors.

use visiond_config::types::HttpConfig;

/// What the daemon itself has open at most: cameras, files, sinks, libraries.
const OWN: u64 = 512;

/// Makes room for `max_connections` beside all else, as far as the system lets it, and tells when it does not: a camera that is
/// opened again must find a descriptor, however many connections there are.
pub fn make_room(config: &HttpConfig) {
    let wanted = config.max_connections as u64 + OWN;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes one rlimit through the pointer, which `limit` is.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 || limit.rlim_cur >= wanted {
        return;
    }
    let room = limit.rlim_max;
    limit.rlim_cur = wanted.min(room);
    // SAFETY: setrlimit(2) reads one rlimit through the pointer, which `limit` is.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if result != 0 || room < wanted {
        log::warn!(
            "http: {} connections need {wanted} descriptors with all else, and the process may have {room}: raise \
             LimitNOFILE= in its unit (`ulimit -Hn` in a shell), or lower max_connections",
            config.max_connections
        );
    }
}
