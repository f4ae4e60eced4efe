//! The process's limit of open file descriptors (RLIMIT_NOFILE).

use visiond_config::types::HttpConfig;

/// What the daemon itself opens at most: cameras, files, sinks, libraries.
const OWN: u64 = 512;

/// Raises the limit to what `max_connections` and the daemon itself need, and logs a warning if that is not allowed.
///
/// A camera that is opened again must find a descriptor, however many connections there are.
pub fn raise_for(config: &HttpConfig) {
    let needed = config.max_connections as u64 + OWN;
    let Some(mut limit) = limit().filter(|limit| limit.rlim_cur < needed) else { return };
    let allowed = limit.rlim_max;
    limit.rlim_cur = needed.min(allowed);
    // SAFETY: setrlimit(2) reads one rlimit through the pointer, and `limit` is one.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if result != 0 || allowed < needed {
        log::warn!(
            "http: {} connections and the daemon need {needed} file descriptors, but the process may have {allowed}: raise \
             LimitNOFILE= in the unit (`ulimit -Hn` in a shell), or lower max_connections",
            config.max_connections
        );
    }
}

fn limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes one rlimit through the pointer, and `limit` is one.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    (result == 0).then_some(limit)
}
