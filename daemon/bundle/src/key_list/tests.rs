//! Lists of keys follow one another by the signatures of enough keys, and in no other way.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::{FolderSource, generate_key};

/// Key pairs of people, a store, and a folder where lists are published.
struct Desk {
    folder: tempfile::TempDir,
    /// Public and secret keys.
    pairs: &'static [[String; 2]; 5],
}

const NAMES: [&str; 5] = ["anna", "ben", "cleo", "dora", "emil"];

impl Desk {
    fn new() -> Self {
        static PAIRS: LazyLock<[[String; 2]; 5]> = LazyLock::new(|| NAMES.map(|_| generate_key(false).unwrap()));
        Self { folder: tempfile::tempdir().unwrap(), pairs: &PAIRS }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> Store {
        Store::new(self.path("models"))
    }

    fn key(&self, person: usize) -> ListedKey {
        let key = self.pairs[person][0].lines().nth(1).unwrap().to_owned();
        ListedKey { name: NAMES[person].to_owned(), key }
    }

    fn list(&self, version: u64, threshold: usize, people: &[usize], revoked: &[usize]) -> KeyList {
        let keys = |people: &[usize]| people.iter().map(|person| self.key(*person)).collect();
        KeyList { format: 1, version, threshold, keys: keys(people), revoked: keys(revoked) }
    }

    /// Writes a list, and has it signed by these people.
    fn write(&self, list: &KeyList, signers: &[usize]) -> PathBuf {
        let path = self.path(&format!("list-{}.toml", list.version));
        fs::write(&path, toml::to_string(list).unwrap()).unwrap();
        let _ = fs::remove_file(signatures_of(&path));
        for signer in signers {
            sign_key_list(&path, &self.pairs[*signer][1]).unwrap();
        }
        path
    }

    fn install(&self, list: &KeyList, signers: &[usize]) -> Result<KeyList, KeyListError> {
        self.store().install_key_list(&self.write(list, signers))
    }

    fn publish(&self, list: &KeyList, signers: &[usize]) -> Result<KeyList, KeyListError> {
        publish_key_list(&self.write(list, signers), &self.path("published"))
    }

    fn update(&self) -> Result<KeysUpdated, KeyListError> {
        self.store().update_key_list(&mut FolderSource(self.path("published")))
    }

    fn installed(&self) -> Option<u64> {
        self.store().key_list().unwrap().map(|list| list.version)
    }
}

#[test]
fn a_list_is_replaced_only_by_a_newer_one_that_enough_keys_of_it_have_signed() {
    let desk = Desk::new();
    assert_eq!(desk.installed(), None);
    let first = desk.list(1, 2, &[0, 1, 2], &[]);
    let error = desk.install(&first, &[0]).unwrap_err().to_string();
    assert!(error.contains("is signed by 1 of the keys of version 1, and 2 must sign it"), "{error}");
    assert!(error.contains("more of ben, cleo with `visiond bundle sign --keys`"), "{error}");
    // Those who are not in it do not count.
    assert!(matches!(desk.install(&first, &[0, 3, 4]), Err(KeyListError::TooFewSignatures { have: 1, .. })));
    desk.install(&first, &[0, 2]).unwrap();
    // Dora is new, and what she signs counts from the next list on.
    let second = desk.list(2, 2, &[0, 1, 3], &[2]);
    for signers in [&[][..], &[0], &[3], &[0, 3], &[3, 4]] {
        assert!(matches!(desk.install(&second, signers), Err(KeyListError::TooFewSignatures { .. })), "{signers:?}");
        assert_eq!(desk.installed(), Some(1));
    }
    desk.install(&second, &[0, 1]).unwrap();
    let third = desk.list(3, 1, &[3], &[2]);
    assert!(matches!(desk.install(&third, &[2, 3]), Err(KeyListError::TooFewSignatures { have: 1, .. })), "revoked");
    desk.install(&third, &[0, 3]).unwrap();
    assert_eq!(desk.installed(), Some(3));
    // The same one again changes nothing, whoever has signed it.
    desk.install(&third, &[]).unwrap();
    for old in [desk.list(3, 1, &[3, 4], &[2]), desk.list(2, 1, &[3], &[2])] {
        let error = desk.install(&old, &[3]).unwrap_err().to_string();
        assert!(error.contains("which is not newer than version 3 which is installed here"), "{error}");
    }
}

#[test]
fn one_key_counts_once_however_often_it_signs_and_whatever_it_is_called() {
    let desk = Desk::new();
    desk.install(&desk.list(1, 2, &[0, 1], &[]), &[0, 1]).unwrap();
    let path = desk.write(&desk.list(2, 2, &[0, 1], &[]), &[0, 0]);
    let beside = signatures_of(&path);
    assert_eq!(fs::read_to_string(&beside).unwrap().lines().count(), 4, "the second one replaces the first");
    let twice = fs::read_to_string(&beside).unwrap().repeat(2);
    fs::write(&beside, twice).unwrap();
    assert!(matches!(desk.store().install_key_list(&path), Err(KeyListError::TooFewSignatures { have: 1, .. })));
    // The same key under another name, and under another number.
    let mut listed = desk.list(2, 2, &[0, 0], &[]);
    listed.keys[1].name = "other".to_owned();
    assert!(listed.validate().unwrap_err().contains("the key of other must be listed once"));
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let mut bytes = STANDARD.decode(&listed.keys[1].key).unwrap();
    bytes[2] ^= 1;
    listed.keys[1].key = STANDARD.encode(bytes);
    assert!(listed.validate().unwrap_err().contains("the key of other must be listed once"));
}

#[test]
fn a_list_that_would_lock_everybody_out_or_trusts_a_revoked_key_is_refused() {
    let desk = Desk::new();
    for (list, words) in [
        (desk.list(1, 3, &[0, 1], &[]), "`threshold` must be between 1 and its 2 keys, not 3"),
        (desk.list(1, 0, &[0, 1], &[]), "`threshold` must be between 1 and its 2 keys, not 0"),
        (desk.list(1, 1, &[], &[]), "between 1 and its 0 keys"),
        (desk.list(0, 1, &[0], &[]), "`version` must be at least 1"),
        (desk.list(1, 1, &[0], &[0]), "the name \"anna\" must be used once"),
        (KeyList { format: 2, ..desk.list(1, 1, &[0], &[]) }, "reads format 1, not 2"),
    ] {
        let error = desk.store().install_key_list(&desk.write(&list, &[])).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("is no valid list of keys"), "{error}");
    }
    desk.install(&desk.list(1, 1, &[0, 1], &[2]), &[0]).unwrap();
    for list in [desk.list(2, 1, &[0, 1], &[]), desk.list(2, 1, &[0, 2], &[1])] {
        let error = desk.install(&list, &[0]).unwrap_err().to_string();
        assert!(error.contains("must have the key of cleo in `revoked`, as version 1 has"), "{error}");
    }
    assert_eq!(desk.installed(), Some(1));
}

#[test]
fn a_bundle_of_a_revoked_key_is_refused_even_if_the_key_is_named() {
    let desk = Desk::new();
    let list = desk.list(1, 1, &[0], &[1]);
    let path = desk.path("some.visiond");
    let signed = |person: usize| sign_text(&desk.pairs[person][1], b"text", "street 1").unwrap();
    let named = |person: usize| TrustedKeys::parse([desk.pairs[person][0].as_str()]).unwrap();
    list.trusted().verify(&path, b"text", &signed(0)).unwrap();
    let error = list.trusted().verify(&path, b"text", &signed(1)).unwrap_err();
    assert!(error.to_string().contains("of ben, which is revoked: ask its maker"), "{error}");
    assert!(matches!(list.trusted().verify(&path, b"text", &signed(2)), Err(BundleError::Untrusted { .. })));
    named(1).verify(&path, b"text", &signed(1)).unwrap();
    let error = list.without_revoked(named(1)).verify(&path, b"text", &signed(1)).unwrap_err();
    assert!(matches!(error, BundleError::Revoked { .. }), "{error}");
}

#[test]
fn a_device_that_was_away_follows_the_lists_one_after_another() {
    let desk = Desk::new();
    assert!(desk.update().unwrap().list.is_none(), "the first one is installed by hand");
    desk.publish(&desk.list(1, 2, &[0, 1], &[]), &[0, 1]).unwrap();
    assert!(desk.update().unwrap().list.is_none() && desk.installed().is_none());
    desk.install(&desk.list(1, 2, &[0, 1], &[]), &[0, 1]).unwrap();
    assert!(desk.update().unwrap().list.is_none());
    let error = desk.publish(&desk.list(2, 2, &[1, 2], &[]), &[1, 2]).unwrap_err();
    assert!(matches!(error, KeyListError::TooFewSignatures { have: 1, .. }), "{error}");
    desk.publish(&desk.list(2, 2, &[1, 2], &[0]), &[0, 1]).unwrap();
    desk.publish(&desk.list(5, 2, &[2, 3], &[0]), &[1, 2]).unwrap();
    desk.publish(&desk.list(6, 1, &[4], &[0]), &[2, 3]).unwrap();
    let error = desk.publish(&desk.list(4, 1, &[4], &[0]), &[4]).unwrap_err().to_string();
    assert!(error.contains("is not newer than version 6 which is published there"), "{error}");
    // None of the newest list's signers is known to the device at first.
    let updated = desk.update().unwrap();
    assert!(updated.refused.is_none() && updated.list.unwrap().version == 6);
    assert_eq!(desk.installed(), Some(6));
    // A source that has lost the way there changes nothing, and neither does an older one.
    desk.publish(&desk.list(7, 1, &[3], &[0]), &[4]).unwrap();
    desk.publish(&desk.list(8, 1, &[2], &[0]), &[3]).unwrap();
    fs::remove_file(desk.path("published/keys-7.toml")).unwrap();
    let updated = desk.update().unwrap();
    assert!(matches!(updated.refused, Some(KeyListError::TooFewSignatures { have: 0, .. })), "{updated:?}");
    assert_eq!((updated.list.is_none(), desk.installed()), (true, Some(6)));
    // As much as can be verified is used.
    desk.write(&desk.list(7, 1, &[2], &[0]), &[4]);
    for (from, to) in [("list-7.toml", "keys-7.toml"), ("list-7.toml.minisig", "keys-7.toml.minisig")] {
        fs::copy(desk.path(from), desk.path("published").join(to)).unwrap();
    }
    let updated = desk.update().unwrap();
    assert_eq!(updated.list.map(|list| list.version), Some(7));
    assert!(matches!(updated.refused, Some(KeyListError::TooFewSignatures { have: 0, .. })));
    // A source that is far ahead costs no million requests.
    fs::write(desk.path("published/keys.toml"), toml::to_string(&desk.list(1_000_000, 1, &[0], &[])).unwrap()).unwrap();
    assert!(matches!(desk.update(), Err(KeyListError::TooFarAhead { version: 7, newest: 1_000_000 })));
}

#[test]
fn an_installed_list_that_is_damaged_trusts_nothing() {
    let desk = Desk::new();
    desk.install(&desk.list(1, 1, &[0], &[]), &[0]).unwrap();
    let path = desk.path("models").join(KEY_LIST);
    for damaged in [&b""[..], b"format = 1", &[0xff; 9], &vec![b'#'; 70_000]] {
        fs::write(&path, damaged).unwrap();
        desk.store().key_list().unwrap_err();
        desk.store().install_key_list(&desk.write(&desk.list(2, 1, &[0], &[]), &[0])).unwrap_err();
    }
}

proptest! {
    // Each case syncs several files.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_list_of_which_any_byte_is_changed_is_refused(at in any::<prop::sample::Index>(), to in any::<u8>(), in_text in any::<bool>()) {
        let desk = Desk::new();
        desk.install(&desk.list(1, 2, &[0, 1], &[]), &[0, 1]).unwrap();
        let path = desk.write(&desk.list(2, 2, &[1, 2], &[0]), &[0, 1]);
        let file = if in_text { path.clone() } else { signatures_of(&path) };
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        fs::write(&file, &bytes).unwrap();
        let installed = desk.store().install_key_list(&path);
        // The first line of a signature is a remark that nothing covers, and how lines end does not matter.
        if in_text {
            prop_assert!(installed.is_err());
        }
        match installed {
            Ok(list) => prop_assert_eq!(list, desk.list(2, 2, &[1, 2], &[0])),
            Err(_) => prop_assert_eq!(desk.installed(), Some(1)),
        }
    }

    #[test]
    fn a_list_is_taken_exactly_if_enough_of_its_keys_have_signed(
        threshold in 1..=4_usize, signers in prop::collection::vec(0..5_usize, 0..8),
    ) {
        let desk = Desk::new();
        let first = desk.list(1, threshold, &[0, 1, 2, 3], &[]);
        desk.install(&first, &[0, 1, 2, 3]).unwrap();
        let counted: BTreeSet<_> = signers.iter().filter(|signer| **signer < 4).collect();
        let taken = desk.install(&desk.list(2, 1, &[4], &[]), &signers).is_ok();
        prop_assert_eq!(taken, counted.len() >= threshold);
    }
}
