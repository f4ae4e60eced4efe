//! What operators do about a store, a record or servers that have lost something.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use visiond_tests::nats::NatsServer;
use visiond_tests::{stderr, wait_until_or_show};

use super::{FAILURE, INPUT, NORTH, Office, QUICK};
use crate::bundles::refused;
use crate::nats_stores::python;

impl Office {
    /// Removes the chunks of an object from the store.
    fn lose(&self, object: &str) {
        let program = "
    store = await js.object_store('visiond-bundles')
    nuid = (await store.get_info('OBJECT')).nuid
    await js.purge_stream('OBJ_visiond-bundles', subject=f'$O.visiond-bundles.C.{nuid}')";
        python(self.server.port, &program.replace("OBJECT", object));
    }

    /// Replaces a record.
    fn write(&self, key: &str, value: &str) {
        let program = "
    desired = await js.key_value('visiond-desired')
    await desired.put('KEY', b'VALUE')";
        python(self.server.port, &program.replace("KEY", key).replace("VALUE", value));
    }

    /// Copies the store of the server, which must not run, into a backup or back.
    fn copy(&self, from: &str, to: &str) {
        let mut copy = Command::new("cp");
        copy.args(["-a", "--"]).arg(self.server.path(from)).arg(self.server.path(to)).stdin(Stdio::null());
        assert!(copy.status().unwrap().success(), "cp {from} {to}");
    }
}

#[test]
fn a_push_repairs_a_version_whose_file_or_index_lost_its_chunks() {
    let office = Office::new();
    let _device = office.device("gate-0", &[]);
    office.wait("the device", || office.reported().len() == 1);
    let rollout = [&["rollout", "street", "1", "--waves", "100"], &QUICK[..]].concat();
    let push = ["push", "DIR/street-1.visiond"];
    for object in ["street/1.visiond", "street/1.toml"] {
        office.lose(object);
        refused(&office.fleet(&rollout), INPUT, "or not all of it: put it there with `visiond fleet push`");
        let said = stderr(&office.succeed(&push));
        assert!(said.contains("street 1 is in the store"), "{object}: {said}");
        let said = stderr(&office.succeed(&push));
        assert!(said.contains("street 1 is already there"), "{object}: {said}");
        office.lose(object);
        let said = stderr(&office.succeed(&[&push[..], &["--again"]].concat()));
        assert!(said.contains("street 1 is in the store"), "{object}: {said}");
    }
    let said = stderr(&office.succeed(&[&push[..], &["--again"]].concat()));
    assert!(said.contains("street 1 is in the store"), "{said}");
    office.succeed(&rollout);
    assert_eq!(office.versions(), [Some(1)]);
}

#[test]
fn a_broken_record_hides_no_bundle_from_the_list_and_keeps_its_versions() {
    let office = Office::new();
    office.write("group.north.street", "{}");
    let listed = office.succeed(&["bundles"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("street"), "{listed:?}");
    assert!(stderr(&listed).contains("group.north.street is not a record"), "{}", stderr(&listed));
    let delete = ["delete", "street", "1"];
    refused(&office.fleet(&delete), INPUT, "cannot find out what uses street 1: group.north.street is not a record");
    office.succeed(&[&delete[..], &["--force"]].concat());
    // A record of another bundle does not matter.
    office.write("group.north.street", "{}");
    refused(&office.fleet(&["delete", "yard", "1"]), INPUT, "yard 1 is not in the fleet's store");
}

#[test]
fn a_rollout_goes_on_after_the_servers_came_back_from_a_backup_and_ends_if_they_came_back_empty() {
    let mut office = Office::new();
    office.succeed(&[&["rollout", "street", "1", "--allow-empty", "--no-wait"], &NORTH[..]].concat());
    office.server.kill();
    office.copy("store", "backup");
    office.server.resume();
    for _ in 0..4 {
        office.succeed(&[&["pause", "street"], &NORTH[..]].concat());
        office.succeed(&[&["resume", "street", "--no-wait"], &NORTH[..]].concat());
    }
    let log = office.desk.path("resume.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let resume = |office: &Office| {
        let mut resume = office.command(&[&["resume", "street"], &NORTH[..]].concat());
        resume.stderr(File::create(&log).unwrap()).spawn().unwrap()
    };
    let restore = |server: &mut NatsServer| {
        server.kill();
        fs::remove_dir_all(server.path("store")).unwrap();
    };
    let mut resumed = resume(&office);
    wait_until_or_show("the rollout", || said().contains("street 1: wave 1 of 3"), said);
    restore(&mut office.server);
    office.copy("backup", "store");
    office.server.resume();
    office.succeed(&[&["pause", "street"], &NORTH[..]].concat());
    wait_until_or_show("its end", || resumed.try_wait().unwrap().is_some(), said);
    assert_eq!(resumed.wait().unwrap().code(), Some(FAILURE), "{}", said());
    for words in ["group.north.street is older than it was", "paused: by "] {
        assert!(said().contains(words), "{words}: {}", said());
    }
    let mut resumed = resume(&office);
    wait_until_or_show("the rollout", || said().contains("street 1: wave 1 of 3"), said);
    restore(&mut office.server);
    office.server.resume();
    office.succeed(&["init"]);
    wait_until_or_show("its end", || resumed.try_wait().unwrap().is_some(), said);
    assert_eq!(resumed.wait().unwrap().code(), Some(INPUT), "{}", said());
    assert!(said().contains("north has no version of street: begin with"), "{}", said());
}
