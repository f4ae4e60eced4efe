//! What systemd is told: readiness, status, watchdog.
