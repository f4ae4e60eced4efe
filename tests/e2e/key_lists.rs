//! `visiond bundle ... --keys`: lists of keys, from the first one by hand to one that a device fetches, after which a stolen key
//! installs nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use visiond_tests::{command, stderr};

use crate::bundles::{Desk, refused};

const MODEL: i32 = 4;
const CONFIG: i32 = 3;

impl Desk {
    /// Writes a list of these people's keys, and has it signed.
    fn key_list(&self, version: u64, threshold: usize, people: &[&str], revoked: &[&str], signers: &[&str]) -> String {
        let mut text = format!("format = 1\nversion = {version}\nthreshold = {threshold}\n");
        for (table, names) in [("key", people), ("revoked", revoked)] {
            for name in names {
                let public = fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
                let key = public.lines().nth(1).unwrap();
                text += &format!("\n[[{table}]]\nname = \"{name}\"\nkey = \"{key}\"\n");
            }
        }
        let path = format!("list-{version}.toml");
        fs::write(self.path(&path), text).unwrap();
        let _ = fs::remove_file(self.path(&format!("{path}.minisig")));
        for signer in signers {
            self.succeed(&["sign", "--keys", &format!("DIR/{path}"), "--key", &format!("DIR/{signer}.key")]);
        }
        format!("DIR/{path}")
    }

    /// Makes a bundle that this person signs.
    fn make_of(&self, version: &str, signer: &str) {
        if !self.path(&format!("street-{version}.visiond")).exists() {
            self.make(version, &[]);
        }
        self.succeed(&["sign", &format!("DIR/street-{version}.visiond"), "--key", &format!("DIR/{signer}.key")]);
    }

    fn install_by_list(&self, version: &str, more: &[&str]) -> Output {
        let bundle = format!("DIR/street-{version}.visiond");
        self.bundle(&[&["install", &bundle, "--store", "DIR/models"], more].concat())
    }

    /// Follows once, with the keys of the list, without a daemon.
    fn follow_by_list(&self) -> Output {
        let folder = self.path("").to_str().unwrap().trim_end_matches('/').to_owned();
        let args = ["bundle", "follow", "street", "--once", "--source", "DIR/published", "--store", "DIR/models"];
        let mut follow = command();
        follow.args(args.iter().chain(&["--url", "unix:DIR/no.sock"]).map(|arg| arg.replace("DIR", &folder)));
        follow.stdin(Stdio::null()).output().unwrap()
    }
}

#[test]
fn a_stolen_key_is_revoked_by_the_others_and_installs_nothing_from_then_on() {
    let desk = Desk::new();
    let people = ["anna", "ben", "cleo"];
    for name in people {
        desk.succeed(&["keys", &format!("DIR/{name}"), "--no-password"]);
    }
    // The first list, by hand.
    let first = desk.key_list(1, 2, &people, &[], &["anna"]);
    let install = ["install", "--keys", &first, "--store", "DIR/models"];
    let words = "is signed by 1 of the keys of version 1, and 2 must sign it: have it signed by more of ben, cleo";
    refused(&desk.bundle(&install), MODEL, words);
    desk.succeed(&["sign", "--keys", &first, "--key", "DIR/ben.key"]);
    let shown = desk.succeed(&["inspect", "--keys", &first, "--store", "DIR/models"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("anna, ben: 2 of the 2 that version 1 demands"), "{shown}");
    desk.succeed(&install);
    // Any of its keys signs bundles; another does not, though it was trusted before.
    desk.make("1", &[]);
    refused(&desk.install_by_list("1", &[]), MODEL, "which is not trusted here");
    desk.make_of("1", "anna");
    assert!(desk.install_by_list("1", &[]).status.success());
    desk.succeed(&["verify", "DIR/street-1.visiond", "--store", "DIR/models"]);
    // Anna's key is stolen.
    desk.succeed(&["publish", "--keys", &first, "DIR/published"]);
    desk.make_of("2", "anna");
    desk.succeed(&["publish", "DIR/street-2.visiond", "DIR/published"]);
    let thief = desk.key_list(2, 1, &["anna"], &[], &["anna"]);
    let words = "is signed by 1 of the keys of version 1, and 2 must sign it: have it signed by more of ben, cleo";
    refused(&desk.bundle(&["publish", "--keys", &thief, "DIR/published"]), MODEL, words);
    // The thief can write to the source as well.
    for (from, to) in [("list-2.toml", "keys.toml"), ("list-2.toml.minisig", "keys.toml.minisig")] {
        fs::copy(desk.path(from), desk.path("published").join(to)).unwrap();
    }
    fs::remove_dir_all(desk.path("published/street")).unwrap();
    desk.make_of("1", "anna");
    desk.succeed(&["publish", "DIR/street-1.visiond", "DIR/published"]);
    refused(&desk.follow_by_list(), MODEL, "the list of keys stays: keys.toml is signed by 1 of the keys of version 1");
    assert_eq!(desk.versions(), [Some(1), None]);
    // The others revoke it.
    fs::remove_file(desk.path("published/keys.toml")).unwrap();
    let second = desk.key_list(2, 1, &["ben", "cleo"], &["anna"], &["ben", "cleo"]);
    desk.succeed(&["publish", "--keys", &first, "DIR/published"]);
    desk.succeed(&["publish", "--keys", &second, "DIR/published"]);
    desk.succeed(&["publish", "DIR/street-2.visiond", "DIR/published"]);
    let output = desk.follow_by_list();
    refused(&output, MODEL, "of anna, which is revoked: ask its maker for a bundle that another key has signed");
    assert!(stderr(&output).contains("version 2 of the list of keys is installed"), "{}", stderr(&output));
    refused(&desk.install_by_list("2", &[]), MODEL, "which is revoked");
    refused(&desk.install_by_list("2", &["--key", "DIR/anna.pub"]), MODEL, "which is revoked");
    assert_eq!(desk.versions(), [Some(1), None]);
    desk.make_of("3", "cleo");
    desk.succeed(&["publish", "DIR/street-3.visiond", "DIR/published"]);
    let output = desk.follow_by_list();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(desk.versions(), [Some(3), Some(1)]);
    // Neither an older list, nor one that forgets the revoked key.
    refused(&desk.bundle(&install), MODEL, "is version 1, which is not newer than version 2 which is installed here");
    let forgets = desk.key_list(3, 1, &["anna", "ben"], &[], &["ben"]);
    let words = "must have the key of anna in `revoked`, as version 2 has";
    refused(&desk.bundle(&["install", "--keys", &forgets, "--store", "DIR/models"]), MODEL, words);
    let locked = desk.key_list(3, 3, &["ben", "cleo"], &["anna"], &[]);
    let words = "`threshold` must be between 1 and its 2 keys, not 3";
    refused(&desk.bundle(&["sign", "--keys", &locked, "--key", "DIR/ben.key"]), CONFIG, words);
    // A list that is damaged trusts nobody, rather than everybody.
    fs::write(desk.path("models/keys.toml"), "format = 1").unwrap();
    refused(&desk.install_by_list("3", &["--again"]), CONFIG, "is no valid list of keys");
}

#[test]
fn what_is_published_can_be_read_by_every_user_whatever_the_mask_is() {
    let desk = Desk::new();
    desk.make("1", &[]);
    let list = desk.key_list(1, 1, &["team"], &[], &["team"]);
    let folder = desk.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    let masked = |args: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(visiond_tests::visiond());
        shell.args(args.iter().map(|arg| arg.replace("DIR", &folder))).stdin(Stdio::null());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    masked(&["bundle", "publish", "DIR/street-1.visiond", "DIR/deep/published"]);
    masked(&["bundle", "publish", "--keys", &list, "DIR/deep/keys"]);
    masked(&["bundle", "install", "--keys", &list, "--store", "DIR/models"]);
    masked(&["bundle", "install", "DIR/street-1.visiond", "--store", "DIR/models"]);
    let mode = |name: &str| fs::metadata(desk.path(name)).unwrap().permissions().mode() & 0o777;
    for name in ["deep", "deep/published", "deep/published/street", "deep/keys", "models", "models/street/current/"] {
        assert_eq!(mode(name), 0o755, "{name}");
    }
    let published = ["published/street/index.toml", "published/street/1.visiond", "keys/keys.toml", "keys/keys-1.toml"];
    for name in published.iter().chain(&["keys/keys.toml.minisig", "keys/keys-1.toml.minisig"]) {
        assert_eq!(mode(&format!("deep/{name}")), 0o644, "{name}");
    }
    for name in ["models/keys.toml", "models/street/current/model", "models/street/newest"] {
        assert_eq!(mode(name), 0o644, "{name}");
    }
}
