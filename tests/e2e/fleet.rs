//! `visiond fleet` and devices that follow it, over a real nats-server: waves, thresholds, pauses, pins, the way back.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use serde_json::Value;
use visiond_tests::nats::NatsServer;
use visiond_tests::{assert_no_panic, command, output, stderr, wait_until_or_show};

use crate::bundles::{Desk, refused};

mod damage;
mod permissions;

const FAILURE: i32 = 1;
const MODEL: i32 = 4;
const INPUT: i32 = 5;

/// A desk where bundles are made, and the servers of its fleet.
pub struct Office {
    pub desk: Desk,
    pub server: NatsServer,
}

impl Office {
    fn new() -> Self {
        Self::of(Desk::new())
    }

    /// A fleet with its buckets, and version 1 in the store.
    pub fn of(desk: Desk) -> Self {
        let office = Self { desk, server: NatsServer::start() };
        office.succeed(&["init"]);
        office.desk.make("1", &[]);
        office.succeed(&["push", "DIR/street-1.visiond"]);
        office
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port)
    }

    fn command(&self, args: &[&str]) -> Command {
        let folder = self.desk.path("");
        let mut fleet = command();
        fleet
            .arg("fleet")
            .args(args.iter().map(|arg| arg.replace("DIR", folder.to_str().unwrap().trim_end_matches('/'))));
        fleet.args(["--nats", &self.url()]).stdin(Stdio::null());
        fleet
    }

    /// Runs `visiond fleet ARGS` with the desk's folder in the place of DIR.
    pub fn fleet(&self, args: &[&str]) -> Output {
        let output = output(&mut self.command(args));
        assert_no_panic(&stderr(&output));
        output
    }

    pub fn succeed(&self, args: &[&str]) -> Output {
        let output = self.fleet(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.succeed(args).stdout).unwrap()
    }

    /// Starts a device of the group north, which has no daemon.
    pub fn device(&self, name: &str, more: &[&str]) -> Device {
        self.device_of("north", name, more)
    }

    fn device_of(&self, group: &str, name: &str, more: &[&str]) -> Device {
        self.device_with(group, name, "300ms", more)
    }

    fn device_with(&self, group: &str, name: &str, interval: &str, more: &[&str]) -> Device {
        let store = self.desk.path(name);
        let mut follow = command();
        follow.args(["bundle", "follow", "street", "--group", group, "--device", name, "--interval", interval]);
        follow
            .args(["--source", &self.url(), "--url", "unix:/nowhere/http.sock", "--key"])
            .arg(self.desk.path("team.pub"));
        follow.arg("--store").arg(&store).args(more).stdin(Stdio::null()).stdout(Stdio::null());
        let log = self.desk.path(&format!("{name}.log"));
        follow.stderr(fs::File::options().create(true).append(true).open(&log).unwrap());
        Device(follow.spawn().unwrap())
    }

    fn devices<const N: usize>(&self) -> [Device; N] {
        let devices = std::array::from_fn(|index| self.device(&format!("gate-{index}"), &[]));
        self.wait("all devices to report", || self.reported().len() == N);
        devices
    }

    pub fn reported(&self) -> Vec<Value> {
        self.json(&["devices", "--json"]).as_array().unwrap().clone()
    }

    /// The versions in use, by the names of devices.
    pub fn versions(&self) -> Vec<Option<u64>> {
        let mut devices = self.reported();
        devices.sort_by_key(|device| device["device"].to_string());
        devices.iter().map(|device| device["bundles"][0]["current"].as_u64()).collect()
    }

    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let shown = || format!("{:?}\n{}", self.reported(), self.logs());
        wait_until_or_show(what, is_so, shown);
    }

    fn logs(&self) -> String {
        let logs = fs::read_dir(self.desk.path("")).unwrap().map(|it| it.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    /// Makes and pushes a version whose pictures show something else than its reference says.
    pub fn push_wrong(&self, version: &str) {
        let expected = fs::read_to_string(self.desk.path("expected.json")).unwrap();
        let wrong: String = expected
            .lines()
            .map(|line| {
                let mut frame: Value = serde_json::from_str(line).unwrap();
                frame["detections"].as_array_mut().unwrap().remove(0);
                format!("{frame}\n")
            })
            .collect();
        fs::write(self.desk.path("expected.json"), wrong).unwrap();
        self.desk.make(version, &[]);
        fs::write(self.desk.path("expected.json"), expected).unwrap();
        self.succeed(&["push", &format!("DIR/street-{version}.visiond")]);
    }

    pub fn push(&self, version: &str) {
        self.desk.make(version, &[]);
        self.succeed(&["push", &format!("DIR/street-{version}.visiond")]);
    }

    pub fn status(&self) -> Value {
        self.json(&["status", "--json"])[0].clone()
    }
}

/// A device that follows the fleet; killed when dropped.
pub struct Device(Child);

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const NORTH: [&str; 2] = ["--group", "north"];
const QUICK: [&str; 4] = ["--group", "north", "--soak", "0"];

#[test]
fn a_version_reaches_a_group_wave_by_wave_and_the_group_goes_back() {
    let office = Office::new();
    let _devices = office.devices::<4>();
    let other = office.device_of("south", "other", &[]);
    let output = office.succeed(&[&["rollout", "street", "1", "--waves", "20,50"], &QUICK[..]].concat());
    let said = stderr(&output);
    for words in [
        "street 1 begins in north (devices: 4)",
        "wave 1 of 3 (20 %)",
        "wave 3 of 3 (100 %)",
        "street 1: done: 4 succeeded",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    office.push("2");
    office.succeed(&[&["rollout", "street", "2", "--waves", "50"], &QUICK[..]].concat());
    let status = office.status();
    assert_eq!((&status["version"], &status["before"], &status["progress"]), (&2.into(), &1.into(), &"done".into()));
    assert_eq!(status["devices"]["succeeded"], 4);
    office.wait("the other group's device", || office.reported().len() == 5);
    assert_eq!(office.versions(), [Some(2), Some(2), Some(2), Some(2), None]);
    drop(other);
    let output = office.succeed(&["rollback", "street", "--group", "north", "--reason", "misses bicycles"]);
    assert!(stderr(&output).contains("street 1: done: 4 succeeded"), "{}", stderr(&output));
    assert_eq!(office.versions()[..4], [Some(1); 4]);
    let text = String::from_utf8(office.succeed(&["status"]).stdout).unwrap();
    assert!(text.contains("street in north: rolled back from 2 to 1 by "), "{text}");
    assert!(text.contains(": misses bicycles\n"), "{text}");
    let list = office.desk.succeed(&["list", "--store", "DIR/gate-2"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("2 is refused") && list.contains("rolled the group back: misses bicycles"), "{list}");
    // A version that the group left is not given to it again.
    refused(&office.fleet(&["rollout", "street", "2", "--group", "north"]), MODEL, "is not newer than 2");
    office.push("3");
    office.succeed(&[&["rollout", "street", "3", "--waves", "100"], &QUICK[..]].concat());
    assert_eq!(office.versions()[..4], [Some(3); 4]);
    // A rollout that was given up: nobody goes back to its version, but those that had it before.
    office.push("4");
    office.succeed(&["rollout", "street", "4", "--group", "north", "--waves", "1", "--no-wait"]);
    office.wait("the first device", || office.versions().contains(&Some(4)));
    office.succeed(&["pause", "street", "--group", "north"]);
    office.push("5");
    office.succeed(&[&["rollout", "street", "5", "--waves", "100"], &QUICK[..]].concat());
    assert_eq!(office.status()["before"], 3);
    office.succeed(&["rollback", "street", "--group", "north"]);
    let mut versions = office.versions();
    versions.sort_unstable();
    assert_eq!(versions[1..], [Some(3), Some(3), Some(3), Some(4)]);
}

#[test]
fn devices_that_ask_once_an_hour_hear_of_each_change() {
    let office = Office::new();
    let _devices = ["gate-0", "gate-1"].map(|name| office.device_with("north", name, "1h", &[]));
    office.wait("both devices to report", || office.reported().len() == 2);
    office.succeed(&[&["rollout", "street", "1", "--waves", "50"], &QUICK[..]].concat());
    office.push("2");
    office.succeed(&["pin", "gate-1", "street", "2"]);
    office.wait("the pin", || office.versions() == [Some(1), Some(2)]);
}

#[test]
fn a_bad_version_stops_in_its_first_wave_and_no_device_is_without_a_model() {
    let office = Office::new();
    let _devices = office.devices::<4>();
    office.succeed(&[&["rollout", "street", "1", "--waves", "100"], &QUICK[..]].concat());
    office.push_wrong("2");
    let output = office.fleet(&[&["rollout", "street", "2", "--waves", "25"], &QUICK[..]].concat());
    refused(&output, MODEL, "stopped: 1 of 1 devices failed, more than 5 %");
    assert!(stderr(&output).contains("gate-"), "it names the device: {}", stderr(&output));
    let status = office.status();
    assert_eq!(
        (&status["progress"], &status["failed"][0]["device"]),
        (&"stopped".into(), &status["failed"][0]["device"])
    );
    assert!(
        status["failed"][0]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("something else than its reference")),
        "{status}"
    );
    assert_eq!(office.versions(), [Some(1); 4]);
    let failed = office.json(&["devices", "--failed", "--json"]);
    assert_eq!(failed.as_array().unwrap().len(), 1, "{failed}");
    // The way on is a newer version.
    office.push("3");
    office.succeed(&[&["rollout", "street", "3", "--waves", "25"], &QUICK[..]].concat());
    assert_eq!(office.versions(), [Some(3); 4]);
}

#[test]
fn a_rollout_waits_while_it_is_paused_and_a_pinned_device_takes_no_part() {
    let office = Office::new();
    let _devices = office.devices::<3>();
    office.succeed(&["pin", "gate-1", "street", "--reason", "a camera is being replaced"]);
    office.succeed(&[&["rollout", "street", "1", "--waves", "1", "--no-wait"], &NORTH[..]].concat());
    office.succeed(&[&["pause", "street", "--reason", "lunch"], &NORTH[..]].concat());
    let status = office.status();
    assert_eq!((&status["progress"], &status["wave"]), (&"paused".into(), &1.into()));
    let text = String::from_utf8(office.succeed(&["status"]).stdout).unwrap();
    assert!(text.contains("paused: by ") && text.contains(": lunch"), "{text}");
    office.wait("devices that know of the pause", || {
        let devices = office.reported();
        devices
            .iter()
            .filter(|it| it["bundles"][0]["reason"].to_string().contains("the rollout is paused: by "))
            .count()
            == 2
    });
    refused(
        &office.fleet(&[&["rollout", "street", "1"], &NORTH[..]].concat()),
        MODEL,
        "is not over: go on with `visiond fleet resume",
    );
    // Its first wave lasts for ten minutes: another driver ends it.
    let mut resumed =
        office.command(&[&["resume", "street"], &NORTH[..]].concat()).stderr(Stdio::piped()).spawn().unwrap();
    office.wait("the first wave", || office.versions().iter().flatten().count() == 1);
    refused(
        &office.fleet(&[&["rollout", "street", "1"], &NORTH[..]].concat()),
        MODEL,
        "under way: begin its next waves with `visiond fleet resume",
    );
    office.succeed(&[&["pause", "street"], &NORTH[..]].concat());
    assert_eq!(resumed.wait().unwrap().code(), Some(FAILURE), "it says that somebody paused it");
    office.push("2");
    office.succeed(&[&["rollout", "street", "2", "--waves", "100"], &QUICK[..]].concat());
    assert_eq!(office.versions(), [Some(2), None, Some(2)]);
    assert_eq!(office.status()["devices"]["pinned_or_newer"], 1);
    office.succeed(&["unpin", "gate-1", "street"]);
    office.wait("the device without its pin", || office.versions() == [Some(2); 3]);
    refused(&office.fleet(&["unpin", "gate-1", "street"]), INPUT, "gate-1 has no pin for street");
    office.push("3");
    office.succeed(&["pin", "gate-0", "street", "3"]);
    office.wait("the device with a version of its own", || office.versions() == [Some(3), Some(2), Some(2)]);
    office.succeed(&["pin", "gate-0", "street", "2"]);
    office.wait("the same device, back", || office.versions() == [Some(2); 3]);
    let pins = office.reported().into_iter().map(|it| it["bundles"][0]["pin"]["version"].clone()).collect::<Vec<_>>();
    assert_eq!(pins, [2.into(), Value::Null, Value::Null]);
    // Nobody knows yet what these are.
    let said = stderr(&office.succeed(&["pin", "gate-9", "street", "9"]));
    for words in ["no device gate-9 has reported", "street 9 is not in the fleet's store"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = stderr(&office.succeed(&["pin", "gate-1", "yard"]));
    assert!(said.contains("gate-1 does not follow yard, but street"), "{said}");
    let said = stderr(&office.succeed(&["devices"]));
    assert!(said.contains("gate-9 has a pin for street, but has not reported it"), "{said}");
    refused(
        &office.fleet(&["devices", "--group", "yard"]),
        INPUT,
        "the fleet has no group yard: check the name; it has north",
    );
    refused(
        &office.fleet(&["status", "--group", "yard"]),
        INPUT,
        "the fleet has no group yard: check the name; it has north",
    );
    refused(&office.fleet(&["status", "yard"]), INPUT, "the fleet has no bundle yard: check the name; it has street");
}

#[test]
fn named_devices_get_a_version_first() {
    let office = Office::new();
    let _devices = office.devices::<4>();
    let first = [&["rollout", "street", "1", "--waves", "1", "--no-wait"], &NORTH[..]].concat();
    refused(
        &office.fleet(&[&first[..], &["--first", "gate-2,gate-7"]].concat()),
        INPUT,
        "gate-7 does not follow street in north: check the name with `visiond fleet devices --group north`",
    );
    office.succeed(&[&first[..], &["--first", "gate-2,gate-0"]].concat());
    office.wait("both of them", || office.versions() == [Some(1), None, Some(1), None]);
    let waiting = office.status()["devices"]["waiting"].clone();
    assert_eq!(waiting, 2);
}

#[test]
fn the_store_lists_what_is_used_and_gives_up_what_is_not() {
    let office = Office::new();
    let empty = String::from_utf8(office.succeed(&["bundles"]).stdout).unwrap();
    assert!(empty.contains("street") && !empty.contains("group"), "{empty}");
    let _device = office.device("gate-0", &[]);
    office.wait("the device", || office.reported().len() == 1);
    office.succeed(&[&["rollout", "street", "1", "--waves", "100"], &QUICK[..]].concat());
    office.push("2");
    office.succeed(&[&["rollout", "street", "2", "--waves", "100"], &QUICK[..]].concat());
    office.push("3");
    office.push("4");
    office.succeed(&["pin", "gate-9", "street", "3"]);
    let listed = office.json(&["bundles", "--json"]);
    let versions: Vec<_> = listed.as_array().unwrap().iter().map(|it| it["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [1, 2, 3, 4]);
    assert_eq!((&listed[1]["groups"], &listed[1]["devices"]), (&serde_json::json!(["north"]), &1.into()));
    assert!(listed[3]["bytes"].as_u64().unwrap() > 10_000 && listed[3]["is_complete"] == true, "{listed}");
    let text = String::from_utf8(office.succeed(&["bundles"]).stdout).unwrap();
    assert!(text.contains("group north, 1 device\n") && text.contains("the pin of gate-9"), "{text}");
    for (version, words) in [
        ("1", "group north as the previous version, 1 device as the previous version"),
        ("2", "group north, 1 device: use --force"),
        ("3", "the pin of gate-9"),
    ] {
        refused(&office.fleet(&["delete", "street", version]), MODEL, words);
    }
    office.succeed(&["delete", "street", "4"]);
    refused(
        &office.fleet(&["delete", "street", "4"]),
        INPUT,
        "street 4 is not in the fleet's store: check the version with `visiond fleet bundles`",
    );
    refused(
        &office.fleet(&["rollout", "street", "4", "--group", "north"]),
        INPUT,
        "put it there with `visiond fleet push`",
    );
    office.succeed(&["delete", "street", "1", "--force"]);
    assert_eq!(office.json(&["bundles", "--json"]).as_array().unwrap().len(), 2);
    // Devices keep what they have, and a version may come again.
    office.succeed(&["rollback", "street", "--group", "north"]);
    assert_eq!(office.versions(), [Some(1)]);
    office.succeed(&["push", "DIR/street-4.visiond"]);
}

#[test]
fn buckets_that_others_have_made_are_checked() {
    let office = Office { desk: Desk::new(), server: NatsServer::start() };
    crate::nats_stores::python(
        office.server.port,
        "
    await js.create_key_value(bucket='visiond-desired', direct=True)
    await js.create_key_value(bucket='visiond-reported', direct=True)
    await js.create_object_store('visiond-bundles')",
    );
    let said = stderr(&office.succeed(&["init", "--replicas", "3"]));
    for words in [
        "visiond-reported allows roll-ups",
        "`nats stream edit KV_visiond-reported --no-allow-rollup` forbids them",
        "KV_visiond-desired was there before, with --replicas 1: change it with `nats stream edit KV_visiond-desired --replicas 3`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(stderr(&office.succeed(&["devices"])).contains("visiond-reported allows roll-ups"));
}

#[test]
fn a_device_switches_in_its_maintenance_window_alone() {
    let office = Office::new();
    fs::write(office.desk.path("visiond.toml"), "[device]\nname = \"night\"\ntime_zone = \"UTC\"\n").unwrap();
    let hours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 3600;
    let hour = |ahead: u64| (hours + 24 + ahead - 1) % 24;
    let (closed, open) =
        (format!("{:02}:00-{:02}:00", hour(4), hour(6)), format!("{:02}:00-{:02}:00", hour(0), hour(3)));
    let _device = office.device("night", &["--config", office.desk.path("visiond.toml").to_str().unwrap()]);
    office.wait("the device", || office.reported().len() == 1);
    let rollout = |version: &str, window: &str| {
        office.succeed(
            &[&["rollout", "street", version, "--window", window, "--no-wait", "--waves", "100"], &QUICK[..]].concat(),
        )
    };
    rollout("1", &closed);
    office.wait("the bundle, which is fetched and waits", || {
        let bundle = office.reported()[0]["bundles"][0].clone();
        bundle["step"] == "waiting" && bundle["reason"].as_str().is_some_and(|it| it.contains(&closed))
    });
    assert_eq!(office.versions(), [None]);
    assert!(fs::read_dir(office.desk.path("night/street/follow")).unwrap().count() > 1, "it is there already");
    office.succeed(&[&["pause", "street"], &NORTH[..]].concat());
    office.push("2");
    rollout("2", &open);
    office.wait("the version of the open window", || office.versions() == [Some(2)]);
    refused(&office.fleet(&["rollout", "street", "3", "--window", "at night"]), 2, "22:00-05:00");
}

#[test]
fn servers_that_are_away_delay_nothing_but_news() {
    let mut office = Office::new();
    let _devices = office.devices::<2>();
    office.succeed(&[&["rollout", "street", "1", "--waves", "100"], &QUICK[..]].concat());
    office.server.kill();
    wait_until_or_show(
        "both devices to say it",
        || {
            office.logs().matches("cannot report to the fleet as").count()
                + office.logs().matches("waits for its source").count()
                >= 2
        },
        || office.logs(),
    );
    let output = office.fleet(&["status"]);
    refused(&output, FAILURE, "check that nats-server runs there");
    office.server.resume();
    office.push("2");
    office.succeed(&[&["rollout", "street", "2", "--waves", "100"], &QUICK[..]].concat());
    assert_eq!(office.versions(), [Some(2); 2]);
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let office = Office { desk: Desk::new(), server: NatsServer::start() };
    refused(&office.fleet(&["status"]), INPUT, "visiond fleet init");
    office.succeed(&["init"]);
    office.succeed(&["init"]);
    assert_eq!(String::from_utf8(office.succeed(&["devices"]).stdout).unwrap(), "no device has reported\n");
    assert!(
        String::from_utf8(office.succeed(&["status"]).stdout).unwrap().contains("begin with `visiond fleet rollout`")
    );
    office.desk.make("1", &[]);
    refused(&office.fleet(&["rollout", "street", "1"]), INPUT, "put it there with `visiond fleet push`");
    refused(&office.fleet(&["pause", "street"]), INPUT, "default has no version of street: begin with");
    refused(&office.fleet(&["push", "DIR/tiny.onnx"]), INPUT, "is not a bundle");
    office.succeed(&["push", "DIR/street-1.visiond"]);
    let again = office.succeed(&["push", "DIR/street-1.visiond"]);
    assert!(stderr(&again).contains("street 1 is already there"), "{}", stderr(&again));
    fs::remove_file(office.desk.path("street-1.visiond")).unwrap();
    office.desk.make("1", &["--notes", "others"]);
    refused(&office.fleet(&["push", "DIR/street-1.visiond"]), MODEL, "is there with other contents");
    office.succeed(&["push", "DIR/street-1.visiond", "--again"]);
    for (args, words) in [
        (&["rollout", "street", "0"][..], "a whole number from 1"),
        (&["rollout", "street", "1", "--waves", "0"], "more than 0 %"),
        (&["rollout", "street", "1", "--waves", "5,200"], "from 0 to 100"),
        (&["rollout", "../x", "1"], "a bundle's name must have 1 to 64"),
        (&["rollout", "street", "1", "--group", "a.b"], "1 to 64 letters, digits"),
        (&["init", "--replicas", "7"], "1..=5"),
        (&["rollout", "street", "1", "--offline-after", "1min"], "at least 20min"),
    ] {
        refused(&office.fleet(args), 2, words);
    }
    refused(&office.fleet(&["forget", "gate-9"]), INPUT, "no device gate-9 has reported");
    let device = office.device("gate-9", &[]);
    office.wait("the device", || office.reported().len() == 1);
    drop(device);
    office.succeed(&["forget", "gate-9"]);
    assert!(office.reported().is_empty());
    assert!(Path::new(&office.desk.path("gate-9")).is_dir());
    refused(
        &office.fleet(&["rollout", "street", "1"]),
        INPUT,
        "no device in default follows street: start `visiond bundle follow`",
    );
    office.succeed(&["rollout", "street", "1", "--no-wait", "--allow-empty"]);
    refused(&office.fleet(&["rollback", "street"]), FAILURE, "gave street in default no version before 1");
}
