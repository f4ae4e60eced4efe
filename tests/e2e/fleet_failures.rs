//! What goes wrong on a device of a fleet: its daemon goes on with the old model, and the operators' view has the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use visiond_tests::onnx::{self, Model};
use visiond_tests::{Daemon, skip};

use crate::built_bundles::Device as Gpu;
use crate::bundles::Desk;
use crate::clock::past_clock;
use crate::fleet::Office;
use crate::follow::{Killed, Unmounted, noise};

const QUICK: [&str; 6] = ["--group", "north", "--soak", "0", "--waves", "100"];

/// A library that lets each process that times a model crash while a file is there.
const CRASH: &str = r#"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void crash(void) {
    char line[4096] = "";
    FILE *arguments = fopen("/proc/self/cmdline", "r");
    size_t length = arguments ? fread(line, 1, sizeof line, arguments) : 0;
    if (arguments)
        fclose(arguments);
    size_t program = strnlen(line, length) + 1;
    const char *file = getenv("CRASH_IF");
    if (program < length && !strcmp(line + program, "bench") && file && !access(file, F_OK))
        abort();
}
"#;

/// A fleet, and the daemon of its only device, which begins with version 1.
struct Site {
    office: Office,
    daemon: Daemon,
    /// The version that the device should use.
    good: u64,
}

impl Site {
    fn new(office: Office) -> Self {
        let desk = &office.desk;
        assert!(desk.install("1", &[]).status.success());
        let mut daemon = desk.daemon();
        daemon.wait_until("the first messages", |daemon| daemon.count("out.jsonl") > 10);
        Self { office, daemon, good: 1 }
    }

    /// Starts the device.
    fn follow(&self, adapt: impl FnOnce(&mut Command)) -> Killed {
        let url = format!("unix:{}", self.daemon.path("http.sock").display());
        let more = ["--group", "north", "--device", "gate-7", "--interval", "300ms", "--url", &url];
        let mut follow = self.office.desk.following(&self.office.url(), &more);
        follow.args(["--watch", "1s", "--build-timeout", "1s"]);
        adapt(&mut follow);
        let log = self.office.desk.path("gate-7.log");
        follow.stderr(fs::File::options().create(true).append(true).open(&log).unwrap());
        let device: Child = follow.spawn().unwrap();
        self.office.wait("the device", || self.office.reported().len() == 1);
        Killed(device)
    }

    /// Rolls out a version, which must fail for a reason that the lists have, and leave the good one in use.
    fn fails(&mut self, version: &str, reason: &str) {
        let office = &self.office;
        office.succeed(&[&["rollout", "street", version, "--no-wait"], &QUICK[..]].concat());
        let shown = || office.json(&["devices", "--failed", "--json"])[0]["bundles"][0].clone();
        let is_refused = |bundle: &Value| {
            (&bundle["step"], &bundle["version"]) == (&"refused".into(), &version.parse::<u64>().unwrap().into())
        };
        office.wait(&format!("version {version} to be refused"), || is_refused(&shown()));
        let bundle = shown();
        assert_eq!(bundle["current"], self.good, "{bundle}");
        assert!(bundle["reason"].as_str().is_some_and(|shown| shown.contains(reason)), "{reason}: {bundle}");
        let status = office.status();
        assert_eq!(status["failed"][0]["reason"], bundle["reason"], "{status}");
        // Otherwise the next rollout would have to wait for this one.
        office.succeed(&["pause", "street", "--group", "north"]);
        self.serves();
    }

    /// Waits for more frames, while the good version is the current one.
    fn serves(&mut self) {
        assert_eq!(self.office.desk.versions()[0], Some(self.good));
        let before = self.daemon.count("out.jsonl");
        self.daemon.wait_until("more messages", |daemon| daemon.count("out.jsonl") > before + 5);
    }

    /// Makes a version, and pushes it.
    fn push(&self, version: &str, more: &[&str]) {
        self.office.desk.make(version, more);
        self.office.succeed(&["push", &format!("DIR/street-{version}.visiond")]);
    }
}

/// Compiles a library to preload.
fn preload(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (folder.join(name).with_extension("c"), folder.join(name).with_extension("so"));
    fs::write(&file, source).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status().unwrap();
    assert!(built.success());
    library
}

#[test]
fn a_model_that_is_wrong_slow_crashes_or_needs_too_much_leaves_the_old_one_in_use_and_operators_see_why() {
    let gpu = Gpu::new();
    let office = Office::of(gpu.desk);
    let (crash, library) = (office.desk.path("crash"), preload(&office.desk.path(""), "crash", CRASH));
    let mut site = Site::new(office);
    let (lib, stub) = (site.office.desk.path("lib"), site.office.desk.path("stub"));
    let _device = site.follow(|follow| {
        follow.env("LD_PRELOAD", &library).env("CRASH_IF", &crash);
        follow.env("LD_LIBRARY_PATH", &lib).env("STUB_BUILD", &stub);
    });
    site.office.push_wrong("2");
    site.fails("2", "something else than its reference");

    site.push("3", &["--max-latency-p99-ms", "0.0001"]);
    site.fails("3", "99 of 100 frames take up to");

    site.push("4", &[]);
    fs::write(&crash, "").unwrap();
    site.fails("4", "the process that was to load the model was ended by SIGABRT");
    fs::remove_file(&crash).unwrap();

    // It waits for as long as it may: an hour without the option.
    fs::write(stub.join("wait"), "").unwrap();
    site.push("5", &["--build", "--fp16"]);
    site.fails("5", "it took more than 1 s to build an engine of the model: allow more with --build-timeout");
    fs::remove_file(stub.join("wait")).unwrap();

    site.push("6", &["--max-memory", "1MiB"]);
    site.fails("6", "of memory instead of 1 MiB");

    // One that would take all memory there is.
    onnx::write(&site.office.desk.path(""), "tiny", Model::Filled(1e11));
    site.push("7", &[]);
    site.fails("7", "it needs more memory than");
    let log = site.daemon.terminate().log;
    assert!(!log.contains("reloaded"), "the daemon never got one of them: {log}");
}

#[test]
fn a_full_disk_leaves_the_old_version_in_use_and_operators_see_why() {
    let desk = Desk::new();
    let models = desk.path("models");
    fs::create_dir(&models).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=90m", "none"]).arg(&models).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        skip("this user cannot mount a small disk");
        return;
    }
    let _unmount = Unmounted(models.clone());
    let mut site = Site::new(Office::of(desk));
    let _device = site.follow(|_| ());
    fs::write(site.office.desk.path("weights.bin"), noise(30 << 20)).unwrap();
    site.push("2", &["--with", site.office.desk.path("weights.bin").to_str().unwrap()]);
    site.office.succeed(&[&["rollout", "street", "2", "--no-wait"], &QUICK[..]].concat());
    let shown = || site.office.reported()[0]["bundles"][0].clone();
    site.office.wait("the reason", || {
        let bundle = shown();
        bundle["step"] == "fetching" && bundle["reason"].to_string().contains("MiB are needed in")
    });
    site.serves();
    // A person deletes something: then it goes on by itself.
    let mut larger = Command::new("mount");
    assert!(larger.args(["-o", "remount,size=300m"]).arg(&models).status().unwrap().success());
    site.office.wait("version 2", || site.office.versions() == [Some(2)]);
}

#[test]
fn a_device_whose_clock_is_before_1970_follows_its_fleet_and_refuses_what_is_bad() {
    let office = Office::of(Desk::new());
    let Some(library) = past_clock(&office.desk.path("")) else { return };
    let mut site = Site::new(office);
    let _device = site.follow(|follow| {
        follow.env("LD_PRELOAD", &library);
    });
    site.push("2", &["--expires", "2020-01-01"]);
    site.office.succeed(&[&["rollout", "street", "2"], &QUICK[..]].concat());
    site.good = 2;
    site.serves();
    let log = fs::read_to_string(site.office.desk.path("gate-7.log")).unwrap();
    assert!(log.contains("street 2 stays: watched for 1 s") && !log.contains("panicked"), "{log}");
    // The server's clock says when a device was seen, so it is not offline.
    assert_eq!(site.office.status()["devices"]["succeeded"], 1);
    site.office.push_wrong("3");
    site.fails("3", "something else than its reference");
}
