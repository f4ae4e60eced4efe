//! poll(2) for the sinks that must not wait in a write.

use std::io;
use std::time::Duration;

/// Waits until one of `entries` is ready or `timeout` is over (`None`: forever); their `revents` hold the result.
pub fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up, so that a short wait does not become a spin.
    let timeout_ms = timeout.map_or(-1, |t| t.as_micros().div_ceil(1000).min(i32::MAX as u128) as libc::c_int);
    // SAFETY: the pointer and the length are those of one slice of `pollfd`, borrowed for the whole call.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        // poll(2) leaves `revents` undefined after an error; an interrupted wait found nothing.
        entries.iter_mut().for_each(|entry| entry.revents = 0);
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

pub fn entry(fd: &impl std::os::fd::AsRawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}
