//! Durable sinks while their brokers and the daemon are killed; the long form is the bench of the same name.

use std::process::Command;

use visiond_tests::{root, visiond};

#[test]
fn every_accepted_message_arrives_in_order_after_any_kill() {
    let bench = root().join("tests/bench/nothing_lost.py");
    let short = ["--seconds", "20", "--broker-kills", "3", "--daemon-kills", "2"];
    let ended = Command::new("python3").arg(bench).arg("--visiond").arg(visiond()).args(short).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{told}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(told.ends_with("nothing lost\n"), "{told}");
}
