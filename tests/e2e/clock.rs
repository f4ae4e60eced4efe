//! A wall clock before 1970, as on a board with an empty battery: nothing fails, and the TLS error names the clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use visiond_tests::web::Place;
use visiond_tests::{Daemon, certificates, mosquitto::Mosquitto, root, skip};

/// A library that sets the wall clock of a program to before 1970.
const PRELOAD: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec -= 3000000000L;
    return result;
}
";

/// Compiles it; `None` if that cannot be done here.
pub fn past_clock(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("past.c"), folder.join("past.so"));
    std::fs::write(&source, PRELOAD).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        skip("there is no C compiler (cc)");
    }
    is_built.then_some(library)
}

#[test]
fn with_a_clock_before_1970_cameras_and_sinks_work_and_tls_and_http_name_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = past_clock(folder.path()) else { return };
    let broker = Mosquitto::start_with(|folder| {
        certificates::make(folder, "DNS:localhost");
        let file = |name: &str| folder.join(name).display().to_string();
        format!("allow_anonymous true\ncertfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"))
    });
    let config = format!(
        "[http]\nlisten = [\"127.0.0.1:0\", \"unix:{{dir}}/http.sock\"]\n[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\n\
         name = \"bars\"\npath = \"{}\"\n[[camera]]\nname = \"door\"\nsource = {{ type = \"pattern\", width = 64, height = 64, \
         fps = 10 }}\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n[[sink]]\ntype = \"mqtt\"\n\
         url = \"mqtts://localhost:{}\"\nca = \"{}\"\n",
        root().join("tests/vm/tiny.onnx").display(),
        broker.port,
        broker.path("ca.pem").display()
    );
    let mut daemon = Daemon::start_with(&config, |command| {
        command.env("LD_PRELOAD", &library);
    });
    let place = Place::address(&mut daemon);
    daemon.wait_until("messages", |daemon| daemon.count("out.jsonl") > 5);
    daemon.wait_for_log("this machine's clock says 1970-01-01, which is before visiond was built: set the clock");
    assert_eq!(place.get("/healthz").status, 0, "the header Date cannot show such a time");
    daemon.wait_for_log("http: cannot answer while this machine's clock is before 1970: set the clock");
    let ended = daemon.terminate();
    assert!(ended.status.success() && !ended.log.contains("stopped by a bug"), "{}", ended.log);
}
