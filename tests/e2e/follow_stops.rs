//! `visiond bundle follow` that is stopped or held up at the wrong moment: the next one continues, and no version is blamed for it.

use std::fs::{self, File};
use std::process::{Child, Output};

use visiond_tests::{Daemon, run, stderr, wait_until};

use crate::bundles::{CONFIG, Desk, refused};
use crate::follow::labels;

const MODEL: i32 = 4;

impl Desk {
    /// Starts to follow, and holds the process that proves version 1. Returns both.
    fn held_proof(&self) -> (Child, i32) {
        let nowhere = format!("unix:{}", self.path("no.sock").display());
        let mut follow = self.following("DIR/published", &["--url", &nowhere, "--once"]).spawn().unwrap();
        let pid = follow.id();
        let mut held = None;
        wait_until("the proof", || {
            assert!(follow.try_wait().unwrap().is_none(), "it ended before it was held");
            held = child_of(pid);
            held.is_some()
        });
        let held = held.unwrap();
        // SAFETY: it sends a signal, to a process that this test has caused.
        unsafe { libc::kill(held, libc::SIGSTOP) };
        (follow, held)
    }

    /// Installs version 1 and follows to version 2, whose label is "snow", until it is watched; then kills the follower. The daemon is
    /// another one after that, for which the next follower goes back.
    fn watched_by_nobody(&self) -> Daemon {
        let daemon = self.start();
        self.relabel("\"white\"", "\"snow\"");
        fs::remove_file(self.path("expected.json")).unwrap();
        self.make("2", &[]);
        self.publish("2");
        let url = format!("unix:{}", daemon.path("http.sock").display());
        let mut follow = self.following("DIR/published", &["--url", &url, "--watch", "20s"]).spawn().unwrap();
        wait_until("the watch", || self.state().0 == "watching");
        end(&mut follow, libc::SIGKILL);
        daemon.terminate();
        let mut other = self.daemon();
        other.wait_until("the second version", |daemon| labels(daemon).contains("snow"));
        other
    }

    fn config(&self) -> String {
        CONFIG.replace("STORE", self.path("models").to_str().unwrap())
    }
}

/// Returns a process that this one has started.
fn child_of(pid: u32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.map_while(Result::ok);
    let of_thread = |thread: fs::DirEntry| {
        let children = fs::read_to_string(thread.path().join("children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(of_thread).next()
}

fn end(child: &mut Child, signal: i32) {
    // SAFETY: it sends a signal, to a child that has not been waited for.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) };
    child.wait().unwrap();
}

fn reload(daemon: &Daemon) -> Output {
    let output = run(["reload".as_ref(), daemon.path("visiond.toml").as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[test]
fn a_proof_that_is_stopped_is_no_attempt_and_one_that_is_killed_is_one() {
    let desk = Desk::new();
    // Each proof takes hundreds of frames.
    desk.make("1", &["--max-latency-p99-ms", "60000"]);
    desk.publish("1");
    let stop_each_proof = |signal| {
        for _ in 0..3 {
            let (mut follow, held) = desk.held_proof();
            end(&mut follow, signal);
            // It is held, so that it need not have got a signal of its parent.
            // SAFETY: as above; without a parent that waits for it, it is gone or still this one.
            unsafe { libc::kill(held, libc::SIGKILL) };
        }
    };
    stop_each_proof(libc::SIGTERM);
    let attempts = desk.path("models/street/follow/attempt.toml");
    assert!(!attempts.exists(), "{}", fs::read_to_string(attempts).unwrap());
    stop_each_proof(libc::SIGKILL);
    let words = "street 1 is refused, and the version in use stays: 3 attempts to prove it did not end";
    refused(&desk.follow_from("DIR/published", &[]), MODEL, words);
    // What was stopped alone is proven the next time.
    fs::remove_dir_all(desk.path("models")).unwrap();
    stop_each_proof(libc::SIGTERM);
    let output = desk.follow_from("DIR/published", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(1), None]);
}

#[test]
fn a_kill_on_the_way_back_does_not_keep_the_bad_version() {
    let desk = Desk::new();
    let mut daemon = desk.watched_by_nobody();
    // Somebody else changes the bundle, so that the way back waits.
    let lock = File::options().write(true).open(desk.path("models/street/.lock")).unwrap();
    lock.lock().unwrap();
    let url = format!("unix:{}", daemon.path("http.sock").display());
    let mut follow = desk.following("DIR/published", &["--url", &url, "--watch", "20s"]).spawn().unwrap();
    let watch = desk.path("models/street/follow/watch.toml");
    wait_until("the verdict", || fs::read_to_string(&watch).unwrap_or_default().contains("[verdict]"));
    end(&mut follow, libc::SIGKILL);
    assert_eq!(desk.versions(), [Some(2), Some(1)]);
    drop(lock);
    // Nothing is wrong with the daemon by now: the verdict is of before.
    let output = desk.follow(&daemon, &["--watch", "20s"]);
    refused(&output, MODEL, "street 2 was left for the version before: the daemon was restarted while the version was");
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "went_back"));
    daemon.wait_until("the first version", |daemon| labels(daemon).contains("white"));
}

#[test]
fn a_reload_that_fails_after_the_way_back_is_tried_again() {
    let desk = Desk::new();
    let mut daemon = desk.watched_by_nobody();
    daemon.rewrite("nonsense = 1\n");
    for _ in 0..2 {
        let output = desk.follow(&daemon, &["--watch", "20s"]);
        assert_eq!(output.status.code(), Some(MODEL), "{}", stderr(&output));
        let (step, reason) = desk.state();
        let words = "the daemon was restarted while the version was watched; the daemon could not be reloaded, and is asked again";
        assert!(step == "went_back" && reason.starts_with(words), "{step}: {reason}");
        assert_eq!(desk.versions(), [Some(1), None]);
        assert!(labels(&daemon).contains("snow"), "the daemon still uses the version");
    }
    daemon.rewrite(&desk.config());
    let output = desk.follow(&daemon, &["--watch", "20s"]);
    assert_eq!(output.status.code(), Some(MODEL), "{}", stderr(&output));
    assert_eq!(desk.state().1, "the daemon was restarted while the version was watched");
    daemon.wait_until("the first version", |daemon| labels(daemon).contains("white"));
}

#[test]
fn the_first_version_of_all_is_installed_while_a_daemon_runs_whose_configuration_waits_for_it() {
    let desk = Desk::new();
    let by_path = format!("path = \"{}\"", desk.path("tiny.onnx").display());
    let mut daemon = Daemon::start(&desk.config().replace("bundle = \"street\"", &by_path));
    daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 0);
    // From now on, a reload would be rejected, for there is no version.
    daemon.rewrite(&desk.config());
    desk.relabel("\"white\"", "\"snow\"");
    desk.make("1", &[]);
    desk.publish("1");
    let output = desk.follow(&daemon, &["--watch", "1h"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let words = "street 1 is installed, not watched: no model of the daemon uses it: set `bundle = \"street\"` of one";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    assert_eq!((desk.versions(), desk.state().0.as_str()), ([Some(1), None], "up_to_date"));
    assert!(labels(&daemon).contains("white"), "nothing was reloaded");
    reload(&daemon);
    daemon.wait_until("the bundle", |daemon| labels(daemon).contains("snow"));
    // The second one is watched.
    desk.make("2", &[]);
    desk.publish("2");
    let output = desk.follow(&daemon, &["--watch", "1s"]);
    assert!(stderr(&output).contains("street 2 is in use, and watched"), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(2), Some(1)]);
}
