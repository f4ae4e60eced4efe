//! The frames of a WebSocket's client, after the request that opens it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use visiond_fuzz::web::{WebDaemon, upgrade};

static DAEMON: LazyLock<WebDaemon> = LazyLock::new(WebDaemon::start);

fuzz_target!(init: visiond_fuzz::answer_trial(), |data: &[u8]| DAEMON.check(&[upgrade(), data].concat()));
