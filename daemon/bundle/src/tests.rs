//! Bundles are made, signed, read, installed; and those of strangers are refused.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::store::{Candidate, Installed, Store};
use super::*;

/// A folder with a model, a key pair, and what is made of them.
struct Desk {
    folder: tempfile::TempDir,
    keys: TrustedKeys,
    secret: String,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("model.onnx"), vec![7; 100_000]).unwrap();
        fs::write(folder.path().join("card.toml"), "[head]\nfamily = \"ultralytics\"\n").unwrap();
        let [public, secret] = generate_key(false).unwrap();
        Self { folder, keys: TrustedKeys::parse([public.as_str()]).unwrap(), secret }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> Store {
        Store::new(self.path("models"))
    }

    fn manifest(version: u64) -> Manifest {
        let mut manifest = Manifest::new("street".to_owned(), version);
        manifest.models = vec![BundleModel::new("model.onnx".to_owned())];
        manifest.card = Some("card.toml".to_owned());
        manifest
    }

    fn sources(&self) -> Sources {
        ["model.onnx", "card.toml"].map(|name| (name.to_owned(), self.path(name))).into()
    }

    /// Makes and signs a bundle.
    fn bundle(&self, version: u64) -> PathBuf {
        let out = self.path(&format!("street-{version}.visiond"));
        write(&out, Self::manifest(version), &self.sources()).unwrap();
        sign(&out, &self.secret).unwrap();
        out
    }

    fn install(&self, path: &Path) -> Result<Installed, BundleError> {
        let switched = self.unpack(path, false)?.accept()?;
        assert!(switched.left.is_none());
        Ok(switched.now.unwrap())
    }

    fn unpack(&self, path: &Path, again: bool) -> Result<Candidate, BundleError> {
        let candidate = self.store().unpack(path, &self.keys, again)?;
        candidate.choose("model.onnx")?;
        Ok(candidate)
    }

    /// Writes a bundle of these entries of an archive, with a valid signature of the first.
    fn archive(&self, manifest: &str, entries: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> PathBuf {
        let key = minisign::SecretKeyBox::from_string(&self.secret).unwrap().into_unencrypted_secret_key().unwrap();
        let signature = minisign::sign(None, &key, Cursor::new(manifest.as_bytes()), Some("street 7"), None).unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        add(&mut archive, MANIFEST, manifest.as_bytes());
        add(&mut archive, SIGNATURE, signature.to_string().as_bytes());
        entries(&mut archive);
        let path = self.path("made.visiond");
        fs::write(&path, compress_to_vec(Cursor::new(archive.into_inner().unwrap()), CompressionLevel::Fastest))
            .unwrap();
        path
    }
}

fn add(archive: &mut tar::Builder<Vec<u8>>, name: &str, contents: &[u8]) {
    add_as(archive, name, contents, tar::EntryType::Regular);
}

/// Adds an entry whose name is written as it is, with dots and slashes.
fn add_as(archive: &mut tar::Builder<Vec<u8>>, name: &str, contents: &[u8], kind: tar::EntryType) {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(contents.len() as u64);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append(&header, contents).unwrap();
}

fn said(error: &BundleError, desk: &Desk) -> String {
    error.to_string().replace(desk.folder.path().to_str().unwrap(), "DIR")
}

#[test]
fn a_bundle_is_made_signed_and_installed_with_its_model_and_card_under_lasting_names() {
    let desk = Desk::new();
    let path = desk.bundle(7);
    let bundle = Bundle::open(&path).unwrap();
    bundle.check_files().unwrap();
    assert_eq!(bundle.manifest().files.iter().map(|it| it.bytes).collect::<Vec<_>>(), [100_000, 30]);
    assert_eq!(Bundle::open_trusted(&path, &desk.keys).unwrap().1.comment, "street 7");
    let installed = desk.install(&path).unwrap();
    assert_eq!(installed.folder, desk.path("models/street/7"));
    let model = desk.store().model("street");
    assert_eq!(fs::read(&model).unwrap(), vec![7; 100_000]);
    assert!(fs::read_to_string(model.with_extension("toml")).unwrap().contains("ultralytics"));
    // Standard programs read it: what is signed is a file of its own.
    assert!(fs::read_to_string(installed.folder.join(SIGNATURE)).unwrap().starts_with("untrusted comment:"));
}

#[test]
fn the_sidecar_of_an_engine_lies_beside_it_under_a_lasting_name_and_goes_with_it() {
    let desk = Desk::new();
    for name in ["orin.engine", "xavier.engine"] {
        fs::write(desk.path(name), name).unwrap();
        fs::write(desk.path(&format!("{name}.json")), format!("of {name}")).unwrap();
    }
    let names = ["orin.engine", "orin.engine.json", "xavier.engine", "xavier.engine.json", "model.onnx"];
    let sources = names.map(|name| (name.to_owned(), desk.path(name))).into();
    let mut manifest = Manifest::new("street".to_owned(), 7);
    manifest.models = [0, 2, 4].map(|at: usize| BundleModel { file: names[at].to_owned(), build: None }).into();
    let out = desk.path("street-7.visiond");
    write(&out, manifest, &sources).unwrap();
    sign(&out, &desk.secret).unwrap();
    let candidate = desk.store().unpack(&out, &desk.keys, false).unwrap();
    for engine in ["orin.engine", "xavier.engine"] {
        let model = candidate.choose(engine).unwrap();
        assert_eq!(fs::read_to_string(&model).unwrap(), engine);
        assert_eq!(fs::read_to_string(model.with_extension("json")).unwrap(), format!("of {engine}"));
    }
    // Another model has none.
    let model = candidate.choose("model.onnx").unwrap();
    assert!(!model.with_extension("json").is_symlink());
    candidate.choose("orin.engine").unwrap();
    candidate.accept().unwrap();
    let model = desk.store().model("street");
    assert_eq!(fs::read_to_string(model.with_extension("json")).unwrap(), "of orin.engine");
    // A file of that name would be in the way.
    let sources =
        vec![("model.onnx".to_owned(), desk.path("model.onnx")), ("model.json".to_owned(), desk.path("model.onnx"))];
    let mut manifest = Manifest::new("street".to_owned(), 8);
    manifest.models = vec![BundleModel { file: "model.onnx".to_owned(), build: None }];
    let error = write(&out, manifest, &sources).unwrap_err();
    assert!(error.to_string().contains("\"model.json\" is a name that visiond uses itself"), "{error}");
}

#[test]
fn the_same_files_give_the_same_bundle() {
    let desk = Desk::new();
    let [a, b] = ["a", "b"].map(|name| desk.path(name));
    for out in [&a, &b] {
        write(out, Desk::manifest(7), &desk.sources()).unwrap();
    }
    assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
    assert_eq!(fs::read_dir(desk.folder.path()).unwrap().count(), 4, "no temporary file is left");
}

#[test]
fn an_older_an_equal_and_a_refused_version_are_installed_only_on_demand() {
    let desk = Desk::new();
    let [six, seven, eight] = [6, 7, 8].map(|version| desk.bundle(version));
    desk.install(&seven).unwrap();
    let error = desk.install(&six).unwrap_err();
    assert!(matches!(error, BundleError::NotNewer { newest: 7, .. }), "{error}");
    let error = desk.install(&seven).unwrap_err();
    assert!(matches!(error, BundleError::Installed { version: 7, .. }), "{error}");
    let another = desk.path("another.visiond");
    write(&another, Manifest { notes: Some("other".to_owned()), ..Desk::manifest(7) }, &desk.sources()).unwrap();
    sign(&another, &desk.secret).unwrap();
    assert!(matches!(desk.install(&another), Err(BundleError::NotNewer { newest: 7, .. })));
    let unpack = |again| desk.unpack(&eight, again);
    unpack(false).unwrap().refuse("boxes differ").unwrap();
    let error = desk.install(&eight).unwrap_err();
    assert!(error.to_string().starts_with("street 8 was refused here before (boxes differ)"), "{error}");
    assert_eq!(desk.store().versions("street").unwrap().current.unwrap().manifest.version, 7);
    unpack(true).unwrap().accept().unwrap();
    let versions = desk.store().versions("street").unwrap();
    assert_eq!(versions.current.unwrap().manifest.version, 8);
    assert_eq!(versions.previous.unwrap().manifest.version, 7);
    assert!(versions.refused.is_empty());
    // The same once more, beside the one that is in use.
    let before = desk.store().versions("street").unwrap().current.unwrap().folder;
    let after = unpack(true).unwrap().accept().unwrap().now.unwrap().folder;
    assert_ne!(before, after);
    assert_eq!(desk.store().versions("street").unwrap().previous.unwrap().manifest.version, 7);
    assert!(!before.exists());
}

#[test]
fn an_engine_that_was_built_here_lies_beside_its_version_until_it_is_built_again_or_another_model_is_chosen() {
    let desk = Desk::new();
    let candidate = desk.store().unpack(&desk.bundle(7), &desk.keys, false).unwrap();
    // What the builder of a user with a strict mask leaves.
    let build = |candidate: &Candidate, contents: &str| {
        let engine = candidate.prepare_engine().unwrap();
        for (path, contents) in [(engine.clone(), contents), (engine.with_extension("engine.json"), "{}")] {
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        candidate.choose_engine().unwrap()
    };
    assert_eq!(fs::read_to_string(build(&candidate, "engine")).unwrap(), "engine");
    let first = candidate.accept().unwrap().now.unwrap();
    assert_eq!(fs::read_link(first.model()).unwrap(), Path::new("built/model.engine"));
    assert_eq!(fs::read_to_string(first.folder.join("model.json")).unwrap(), "{}");
    let mode = first.model().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "the service reads it");
    // Once more, of the same files.
    let again = desk.store().unpack_current("street").unwrap();
    assert_eq!((&again.manifest, &again.signer.comment), (&first.manifest, &"street 7".to_owned()));
    build(&again, "newer");
    assert_eq!(fs::read_to_string(first.model()).unwrap(), "engine", "until the new one is accepted");
    let second = again.accept().unwrap().now.unwrap();
    assert_eq!((second.folder, second.manifest), (desk.path("models/street/7.2"), first.manifest));
    assert_eq!(fs::read_to_string(desk.store().model("street")).unwrap(), "newer");
    assert!(!first.folder.exists() && desk.store().versions("street").unwrap().previous.is_none());
    // The model of the manifest instead.
    let candidate = desk.store().unpack_current("street").unwrap();
    build(&candidate, "of no use");
    candidate.choose("model.onnx").unwrap();
    let third = candidate.accept().unwrap().now.unwrap().folder;
    assert!(!third.join("built").exists() && fs::symlink_metadata(third.join("model.json")).is_err());
    assert_eq!(fs::read(desk.store().model("street")).unwrap(), vec![7; 100_000]);
    assert!(matches!(desk.store().unpack_current("none"), Err(BundleError::NotInstalled { .. })));
    assert!(!desk.path("models/none").exists());
}

#[test]
fn going_back_refuses_the_version_and_leaves_nothing_to_go_back_to() {
    let desk = Desk::new();
    for version in [5, 6, 7] {
        desk.install(&desk.bundle(version)).unwrap();
    }
    assert!(!desk.path("models/street/5").exists(), "two versions are kept");
    assert_eq!(desk.store().roll_back("street", None, "by hand").unwrap().now.unwrap().manifest.version, 6);
    assert!(matches!(desk.store().roll_back("street", None, "by hand"), Err(BundleError::NothingBefore { .. })));
    assert!(matches!(desk.store().roll_back("yard", None, "by hand"), Err(BundleError::NotInstalled { .. })));
    let error = desk.install(&desk.bundle(7)).unwrap_err();
    assert!(matches!(error, BundleError::Refused { version: 7, .. }), "{error}");
    desk.install(&desk.bundle(8)).unwrap();
    fs::write(desk.path("models/README"), "a file of somebody else's").unwrap();
    let list = desk.store().list().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].previous.as_ref().unwrap().manifest.version, 6);
    assert_eq!(list[0].refused[&7], "by hand");
}

#[test]
fn a_bundle_has_settings_or_models_and_the_first_settings_are_left_for_none() {
    let desk = Desk::new();
    fs::write(desk.path("north.toml"), "[log]\nlevel = \"debug\"\n").unwrap();
    let bundle = |version: u64, change: &dyn Fn(&mut Manifest)| {
        let out = desk.path(&format!("north-{version}.visiond"));
        let mut manifest = Manifest::of_settings("north".to_owned(), version);
        change(&mut manifest);
        write(&out, manifest, &vec![(SETTINGS.to_owned(), desk.path("north.toml"))])?;
        sign(&out, &desk.secret).map(|()| out)
    };
    type Change = fn(&mut Manifest);
    let wrong: [(Change, &str); 5] = [
        (|manifest| manifest.format = 1, "a bundle with `settings` must have the format 2"),
        (|manifest| manifest.settings = None, "a bundle of format 2 must have `settings`"),
        (|manifest| manifest.models = vec![BundleModel::new(SETTINGS.to_owned())], "either `settings`, or models"),
        (|manifest| manifest.card = Some(SETTINGS.to_owned()), "either `settings`, or models"),
        (
            |manifest| manifest.settings = Some("other.toml".to_owned()),
            "must have the file \"settings.toml\" and no other",
        ),
    ];
    for (change, words) in wrong {
        let error = bundle(1, &change).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let parsed =
        Manifest::parse(&Manifest::of_settings("north".to_owned(), 1).to_text().replace("format = 2", "format = 3"));
    assert!(parsed.unwrap_err().contains("update visiond"));
    let store = desk.store();
    assert_eq!(store.settings("north").unwrap(), None);
    let first = bundle(1, &|_| {}).unwrap();
    assert!(Bundle::open(&first).unwrap().settings().unwrap().is_some());
    desk.install(&first).unwrap();
    let settings = store.settings("north").unwrap().unwrap();
    assert_eq!((settings.version, &*settings.text), (1, "[log]\nlevel = \"debug\"\n"));
    let left = store.roll_back("north", Some(1), "the reload was rejected").unwrap();
    assert!(left.now.is_none() && left.left.is_none());
    assert_eq!(store.settings("north").unwrap(), None);
    assert!(matches!(desk.install(&first), Err(BundleError::Refused { version: 1, .. })));
    assert_eq!(store.versions("north").unwrap().newest, Some(1));
    desk.install(&bundle(2, &|_| {}).unwrap()).unwrap();
    assert!(store.settings("north").unwrap().is_some());
    desk.install(&desk.bundle(1)).unwrap();
    assert!(matches!(store.settings("street"), Err(BundleError::NoSettings { version: 1, .. })));
}

#[test]
fn a_version_has_what_the_one_before_has_settings_or_a_model() {
    let desk = Desk::new();
    desk.install(&desk.bundle(1)).unwrap();
    fs::write(desk.path(SETTINGS), "").unwrap();
    let path = desk.path("settings.visiond");
    let sources = vec![(SETTINGS.to_owned(), desk.path(SETTINGS))];
    write(&path, Manifest::of_settings("street".to_owned(), 2), &sources).unwrap();
    sign(&path, &desk.secret).unwrap();
    for again in [false, true] {
        let error = desk.store().unpack(&path, &desk.keys, again).unwrap_err();
        assert_eq!(
            error.to_string(),
            "street 2 has settings, and street 1, which is installed, has a model: make it again under another name"
        );
    }
    assert_eq!(desk.store().current("street").unwrap().manifest.version, 1);
}

#[test]
fn a_manifest_that_is_a_fifo_or_never_ends_is_an_error() {
    let desk = Desk::new();
    let manifest = desk.install(&desk.bundle(1)).unwrap().folder.join(MANIFEST);
    let read = || desk.store().current("street").unwrap_err().to_string();
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &manifest).unwrap();
    assert!(read().contains("it is not a regular file"), "{}", read());
    fs::remove_file(&manifest).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &manifest, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    assert!(read().contains("it is not a regular file"), "{}", read());
    fs::remove_file(&manifest).unwrap();
    fs::File::create(&manifest).unwrap().set_len(1 << 40).unwrap();
    assert!(read().contains("it has more than the 4194304 bytes"), "{}", read());
}

#[test]
fn only_the_version_that_is_expected_is_left_and_one_that_is_forgiven_is_tried_again() {
    let desk = Desk::new();
    for version in [5, 6] {
        desk.install(&desk.bundle(version)).unwrap();
    }
    let failed = desk.store().roll_back("street", Some(5), "it is slow");
    assert!(matches!(failed, Err(BundleError::NotCurrent { version: 5, .. })), "{failed:?}");
    assert_eq!(desk.store().versions("street").unwrap().current.unwrap().manifest.version, 6);
    assert!(desk.store().versions("street").unwrap().refused.is_empty());
    desk.store().roll_back("street", Some(6), "the reload was rejected").unwrap();
    desk.store().forgive("street", 6).unwrap();
    assert!(matches!(desk.install(&desk.bundle(4)), Err(BundleError::NotNewer { newest: 5, .. })));
    assert_eq!(desk.install(&desk.bundle(6)).unwrap().manifest.version, 6);
    // The version in use stays the newest.
    desk.store().forgive("street", 6).unwrap();
    assert_eq!(desk.store().versions("street").unwrap().newest, Some(6));
}

#[test]
fn a_cut_lets_no_older_version_in_and_a_version_that_somebody_removed_can_be_left() {
    let desk = Desk::new();
    for version in [1, 3] {
        desk.install(&desk.bundle(version)).unwrap();
    }
    // Cut before the newest version was noted.
    fs::remove_file(desk.path("models/street/newest")).unwrap();
    desk.store().roll_back("street", None, "by hand").unwrap();
    assert!(matches!(desk.install(&desk.bundle(2)), Err(BundleError::NotNewer { newest: 3, .. })));
    desk.install(&desk.bundle(4)).unwrap();
    fs::remove_dir_all(desk.path("models/street/4")).unwrap();
    assert!(desk.store().list().unwrap()[0].current.is_none());
    assert_eq!(desk.store().roll_back("street", None, "it is gone").unwrap().now.unwrap().manifest.version, 1);
    fs::remove_dir_all(desk.path("models/street/1")).unwrap();
    assert_eq!(desk.install(&desk.bundle(5)).unwrap().manifest.version, 5);
}

#[test]
fn root_installs_only_where_nobody_else_can_change_the_store() {
    let desk = Desk::new();
    let bundle = desk.bundle(1);
    let refused = |folder: &Path| {
        let installed = Store::new(folder).unpack(&bundle, &desk.keys, false);
        // Other users install for themselves.
        let is_refused = matches!(installed, Err(BundleError::Foreign(_)));
        assert_eq!(is_refused, rustix::process::geteuid().is_root(), "{}: {installed:?}", folder.display());
    };
    let [real, linked] = ["real", "linked"].map(|name| desk.path(name));
    fs::create_dir_all(real.join("deep")).unwrap();
    std::os::unix::fs::symlink(&real, &linked).unwrap();
    refused(&linked);
    refused(&linked.join("below"));
    if std::os::unix::fs::chown(real.join("deep"), Some(65534), None).is_ok() {
        refused(&real.join("deep"));
        refused(&real.join("deep/below"));
    }
    fs::create_dir(real.join("shared")).unwrap();
    fs::set_permissions(real.join("shared"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    refused(&real.join("shared"));
    // The folder of a bundle that somebody has put there.
    fs::create_dir_all(real.join("store")).unwrap();
    fs::create_dir(real.join("other")).unwrap();
    std::os::unix::fs::symlink(real.join("other"), real.join("store/street")).unwrap();
    refused(&real.join("store"));
    assert!(desk.unpack(&bundle, false).is_ok());
}

#[test]
fn a_bundle_that_is_changed_unsigned_or_signed_by_somebody_else_is_refused() {
    let desk = Desk::new();
    let unsigned = desk.path("unsigned.visiond");
    write(&unsigned, Desk::manifest(7), &desk.sources()).unwrap();
    assert_eq!(
        said(&desk.install(&unsigned).unwrap_err(), &desk),
        "DIR/unsigned.visiond is not signed: sign it with `visiond bundle sign`"
    );
    let [_, other] = generate_key(false).unwrap();
    sign(&unsigned, &other).unwrap();
    let error = said(&desk.install(&unsigned).unwrap_err(), &desk);
    assert!(error.starts_with("DIR/unsigned.visiond is signed by the key "), "{error}");
    // The same signature over another manifest.
    let good = Desk::manifest(7).to_text();
    let path = desk.archive(&good, |_| ());
    let mut archive = tar::Builder::new(Vec::new());
    let signature = Bundle::open(&path).unwrap_err().to_string();
    assert!(signature.contains("which is not among its files"), "{signature}");
    let signed = desk.bundle(7);
    let text = Bundle::open(&signed).unwrap().text().to_owned();
    let signature = fs::read_to_string(desk.install(&signed).unwrap().folder.join(SIGNATURE)).unwrap();
    add(&mut archive, MANIFEST, text.replace("version = 7", "version = 9").as_bytes());
    add(&mut archive, SIGNATURE, signature.as_bytes());
    let forged = desk.path("forged.visiond");
    let packed = compress_to_vec(Cursor::new(archive.into_inner().unwrap()), CompressionLevel::Fastest);
    fs::write(&forged, packed).unwrap();
    let error = desk.install(&forged).unwrap_err();
    assert!(matches!(error, BundleError::Forged { .. }), "{error}");
    assert!(matches!(TrustedKeys::parse([]), Err(BundleError::NoKeys)));
    assert!(matches!(TrustedKeys::parse(["RWQ"]), Err(BundleError::Key(_))));
}

#[test]
fn an_archive_that_lies_writes_nothing_outside_and_nothing_more() {
    let desk = Desk::new();
    let text = Bundle::open(&desk.bundle(7)).unwrap().text().to_owned();
    let (model, card) = (vec![7; 100_000], fs::read(desk.path("card.toml")).unwrap());
    let check = |wanted: &str, entries: &dyn Fn(&mut tar::Builder<Vec<u8>>)| {
        let error = desk.install(&desk.archive(&text, entries)).unwrap_err();
        let error = said(&error, &desk);
        assert!(error.contains(wanted), "{error}");
        assert!(!desk.path("models/street/candidate").exists() && !desk.path("models/street/7").exists());
        assert!(!desk.path("evil").exists() && !desk.path("models/evil").exists());
    };
    check("model.onnx is missing", &|_| ());
    check("\"../../evil\" is where model.onnx should be", &|it| add(it, "../../evil", &model));
    check("there is a link or a folder where model.onnx should be", &|it| {
        add_as(it, "model.onnx", b"", tar::EntryType::Symlink);
    });
    check("there is a link or a folder", &|it| add_as(it, "././@LongLink", &[b'a'; 5000], tar::EntryType::GNULongName));
    check("model.onnx has 99999 bytes instead of 100000", &|it| add(it, "model.onnx", &model[1..]));
    check("the SHA-256 of model.onnx is not the manifest's", &|it| add(it, "model.onnx", &[8; 100_000]));
    check("card.toml is missing", &|it| add(it, "model.onnx", &model));
    // The files are right, and something follows them.
    let good = desk.archive(&text, |it| {
        add(it, "model.onnx", &model);
        add(it, "card.toml", &card);
    });
    let mut bytes = fs::read(&good).unwrap();
    bytes.push(0);
    fs::write(&good, bytes).unwrap();
    let error = said(&desk.install(&good).unwrap_err(), &desk);
    assert!(error.contains("something follows the compressed archive"), "{error}");
    check("it has more files than its manifest lists", &|it| {
        add(it, "model.onnx", &model);
        add(it, "card.toml", &card);
        add(it, "more", b"");
    });
    desk.install(&desk.archive(&text, |it| {
        add(it, "model.onnx", &model);
        add(it, "card.toml", &card);
    }))
    .unwrap();
}

#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    let desk = Desk::new();
    // 8 GiB of zeros as the manifest, in some hundred kilobytes; its header says so.
    let path = desk.path("bomb.visiond");
    let mut header = tar::Header::new_ustar();
    header.set_path(MANIFEST).unwrap();
    header.set_size(8 << 30);
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.extend(vec![0; 1 << 20]);
    fs::write(&path, compress_to_vec(Cursor::new(archive), CompressionLevel::Fastest)).unwrap();
    let error = Bundle::open(&path).unwrap_err().to_string();
    assert!(error.contains("manifest.toml has 8589934592 bytes, and at most 4194304 are allowed"), "{error}");
    // A frame that asks for a window of 2 GiB.
    fs::write(&path, [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0, 0, 0]).unwrap();
    assert!(matches!(Bundle::open(&path), Err(BundleError::Damaged { .. })));
    for other in [&b"PK\x03\x04 a zip file"[..], b"", b"(\xb5"] {
        fs::write(&path, other).unwrap();
        assert!(matches!(Bundle::open(&path), Err(BundleError::NotABundle(_))));
    }
    assert!(matches!(Bundle::open(desk.folder.path()), Err(BundleError::NotABundle(_))));
    assert!(matches!(Bundle::open(&desk.path("none")), Err(BundleError::Io { .. })));
}

#[test]
fn what_a_manifest_may_not_say_is_named_with_its_key() {
    let hash = "0".repeat(64);
    let file = |path: &str| format!("[[file]]\npath = {path:?}\nbytes = 1\nsha256 = \"{hash}\"\n");
    let model = "[[model]]\nfile = \"m.onnx\"\n";
    let start = "format = 1\nname = \"street\"\nversion = 7\n";
    let good = format!("{start}{model}{}", file("m.onnx"));
    Manifest::parse(&good).unwrap();
    let built = |text: &str, keys: &str| text.replace("[[file]]", &format!("[model.build]\n{keys}\n[[file]]"));
    Manifest::parse(&built(&good, "flags = [\"--fp16\", \"--shape=images=1x3x64x64\"]\nfallback = \"never\"")).unwrap();
    let cases = [
        (good.replace("format = 1", "format = 3"), "format 3 is none that visiond"),
        (good.replace("version = 7", "version = 0"), "`version` must be at least 1"),
        (good.replace("version = 7", "version = -1"), "u64"),
        (good.replace("version = 7", "version = 7\nkey = 1"), "unknown field `key`"),
        (good.replace("street", "../etc"), "`name` must be 1 to 64 letters"),
        (good.replace("version = 7", "version = 7\nminimum_visiond = \"new\""), "`minimum_visiond` must be like"),
        (good.replace("version = 7", "version = 7\ncard = \"c.toml\""), "`card` names \"c.toml\", which is not among"),
        (format!("{start}model = []\n{}", file("m.onnx")), "it must have a `[[model]]`"),
        (format!("{good}{}", file("m.onnx")), "must be listed once"),
        (format!("{good}{}", file("m.onnx/a")), "must be a file or a folder, not both"),
        (good.replace(&hash, "12"), "must be 64 hexadecimal digits"),
        (good.replace("bytes = 1", "bytes = 99999999999999"), "at most 10000 files of 64 GiB"),
        (format!("{good}[proof]\nreference = \"m.onnx\"\npictures = []\n"), "`pictures` must name at least one"),
        (format!("{good}[proof]\nreference = \"m.onnx\"\npictures = [\"m.onnx\"]\nmin_iou = 2.0\n"), "between 0 and 1"),
        (format!("{good}[proof]\nreference = \"m.onnx\"\npictures = [\"m.onnx\"]\nmin_iou = nan\n"), "between 0 and 1"),
        (built(&good.replace("m.onnx", "m.engine"), ""), "`build` must be of an .onnx model"),
        (
            built(&good, "flags = [\"--fp16\", \"--tensorrt-library=x.so\"]"),
            "flags of `visiond build` that shape the engine, not",
        ),
        (built(&good, "flags = [\"--fp16\", \"m\"]"), "shape the engine, not \"m\""),
        (built(&good, "fallback = \"sometimes\""), "unknown variant"),
        (built(&good, "timing_caches = [\"m.onnx\"]"), "`timing_caches` must have the names"),
        (built(&good, "timing_caches = [\"t.timing\"]"), "`timing_caches` names \"t.timing\", which is not among"),
        (built(&good, "calibration = [\"m.onnx\"]"), "`calibration` requires `--int8`"),
        (built(&good, "flags = [\"--int8\"]\ncalibration = [\"m.onnx\"]"), "pictures of one folder"),
        (built(&good, "flags = [\"--int8\"]\ncalibration = [\"a/1.jpg\", \"b/1.jpg\"]"), "pictures of one folder"),
    ];
    for (text, wanted) in cases {
        let error = Manifest::parse(&text).unwrap_err();
        assert!(error.contains(wanted), "{error}\n{text}");
    }
    for path in [
        "/etc/passwd",
        "../a",
        "a/../b",
        "a//b",
        "a/",
        "",
        ".hidden",
        "a/.b",
        "-rf",
        "a b",
        "a\\b",
        "ä",
        "./a",
        "model",
        "model.toml/a",
        "manifest.toml",
        "model.json",
        "built/model.engine",
    ] {
        let error = Manifest::parse(&format!("{good}{}", file(path))).unwrap_err();
        assert!(
            error.contains("the name") || error.contains("only the card") || error.contains("visiond uses itself"),
            "{path}: {error}"
        );
    }
    Manifest::parse(&format!("{good}{}", file("pictures/day-1/a_b.jpg"))).unwrap();
}

#[test]
fn a_bundle_for_a_newer_visiond_a_full_disk_and_two_installations_at_once_are_refused() {
    let desk = Desk::new();
    let mut manifest = Desk::manifest(7);
    manifest.minimum_visiond = Some("99.0".to_owned());
    let path = desk.path("new.visiond");
    write(&path, manifest, &desk.sources()).unwrap();
    sign(&path, &desk.secret).unwrap();
    let error = desk.install(&path).unwrap_err().to_string();
    assert!(error.starts_with("street 7 needs visiond 99.0 or newer"), "{error}");
    let path = desk.bundle(7);
    let unpack = || desk.unpack(&path, false);
    let first = unpack().unwrap();
    assert!(matches!(unpack(), Err(BundleError::Busy(_))));
    drop(first);
    // What a cut installation has left is no obstacle.
    fs::create_dir_all(desk.path("models/street/candidate/deep")).unwrap();
    fs::create_dir_all(desk.path("models/street/7")).unwrap();
    fs::write(desk.path("models/street/.current.new"), "").unwrap();
    unpack().unwrap().accept().unwrap();
    // The sizes are the manifest's, and known before anything is written.
    let text =
        Bundle::open(&desk.bundle(8)).unwrap().text().replace("bytes = 100000", &format!("bytes = {}", 60u64 << 30));
    let huge = desk.archive(&text, |_| ());
    let free = rustix::fs::statvfs(desk.folder.path()).unwrap();
    if free.f_bavail * free.f_frsize < 60 << 30 {
        assert!(matches!(desk.install(&huge), Err(BundleError::NoSpace { .. })));
    }
}

#[test]
fn a_file_that_is_no_secret_key_signs_nothing() {
    let desk = Desk::new();
    let path = desk.path("a.visiond");
    write(&path, Desk::manifest(7), &desk.sources()).unwrap();
    let before = fs::read(&path).unwrap();
    // The last is one whose first half does not belong to its second.
    let mut damaged = desk.secret.clone();
    damaged.replace_range(130..134, "AAAA");
    for key in ["", "untrusted comment: x\nRWRTY0Iy", "-----BEGIN PRIVATE KEY-----", &damaged] {
        let error = sign(&path, key).unwrap_err();
        assert!(matches!(error, BundleError::SecretKey(_)), "{error}");
    }
    assert_eq!(fs::read(&path).unwrap(), before, "it stays as it was");
}

#[test]
fn a_key_of_minisign_itself_signs() {
    // Made by `minisign -G -W` of minisign 0.11, which leaves out the checksum.
    const SECRET: &str = "untrusted comment: minisign encrypted secret key\nRWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAKhmz4Y1RVzj9Cy859qthBm+zzNpM5WBI2yICjLqWJiKjEolCXWBk5bocgYokrLy1Qvz2WXZqgswV0cmLJUPV/OW9dJ8GMxlSAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    const PUBLIC: &str = "RWQqGbPhjVFXOLocgYokrLy1Qvz2WXZqgswV0cmLJUPV/OW9dJ8GMxlS";
    let desk = Desk::new();
    let path = desk.path("a.visiond");
    write(&path, Desk::manifest(7), &desk.sources()).unwrap();
    sign(&path, SECRET).unwrap();
    let keys = TrustedKeys::parse([PUBLIC]).unwrap();
    let (_, signer) = Bundle::open_trusted(&path, &keys).unwrap();
    // As `minisign` shows it.
    assert_eq!(signer.id, "3857518DE1B3192A");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens to a bundle's bytes, it is refused or the same, and leaves nothing.
    #[test]
    fn a_damaged_bundle_is_refused_or_the_same(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let desk = Desk::new();
        let path = desk.bundle(7);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        match desk.install(&path) {
            Ok(installed) => {
                prop_assert_eq!(fs::read(installed.folder.join("model.onnx")).unwrap(), vec![7; 100_000]);
            }
            Err(_) => prop_assert!(!desk.path("models/street/7").exists() && !desk.path("models/street/candidate").exists()),
        }
    }
}
