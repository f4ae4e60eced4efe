//! HTTP requests, from a client on this machine and from one on the network without the token.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use visiond_fuzz::web::WebDaemon;

static DAEMON: LazyLock<WebDaemon> = LazyLock::new(WebDaemon::start);

fuzz_target!(init: visiond_fuzz::answer_trial(), |data: &[u8]| DAEMON.check(data));
