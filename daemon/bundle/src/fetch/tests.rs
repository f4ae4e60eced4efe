//! Bundles are published, and fetched from sources that cut, lie and damage.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::index::{PART_BYTES, publish};
use crate::source::{FolderSource, Piece, Take};
use crate::store::Store;
use crate::{BundleModel, Manifest, generate_key, sign, write};

/// Bytes of two whole parts and a half.
const BYTES: usize = 20 << 20;

/// A source in memory that cuts each answer after some bytes, and counts what it gave.
struct Flaky {
    bytes: Vec<u8>,
    cut_after: usize,
    given: u64,
    /// Which of its bytes is given wrong, and how often.
    wrong: Option<(u64, u32)>,
}

impl Flaky {
    fn new(cut_after: usize) -> Self {
        let bytes = (0..BYTES).map(|at| (at / 1000 + at % 251) as u8).collect();
        Self { bytes, cut_after, given: 0, wrong: None }
    }

    fn index(&self) -> Index {
        let hash = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        Index {
            format: 1,
            name: "street".to_owned(),
            version: 7,
            file: "7.visiond".to_owned(),
            bytes: self.bytes.len() as u64,
            sha256: hash(&self.bytes),
            parts: self.bytes.chunks(PART_BYTES as usize).map(hash).collect(),
        }
    }
}

impl BundleSource for Flaky {
    fn read_small(&mut self, path: &str, _: u64) -> Result<Vec<u8>, SourceError> {
        Err(SourceError::Unreadable { path: path.to_owned(), reason: "there is none".to_owned() })
    }

    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
        let range = range.start as usize..range.end as usize;
        let given = range.start..range.end.min(range.start + self.cut_after);
        let is_cut = given.end < range.end;
        for begin in given.clone().step_by(50_000) {
            let mut piece = self.bytes[begin..given.end.min(begin + 50_000)].to_vec();
            if let Some((at, times @ 1..)) = &mut self.wrong
                && let Some(byte) = (*at as usize).checked_sub(begin).and_then(|at| piece.get_mut(at))
            {
                *byte ^= 1;
                *times -= 1;
            }
            self.given += piece.len() as u64;
            if take(Piece::Bytes(&piece)).is_break() {
                return Ok(());
            }
        }
        let cut = SourceError::Unreadable { path: path.to_owned(), reason: "cut".to_owned() };
        if is_cut { Err(cut) } else { Ok(()) }
    }
}

fn limits() -> FetchLimits {
    FetchLimits { max_rate_bytes_s: None, deadline: Instant::now() + Duration::from_secs(600) }
}

fn store() -> (tempfile::TempDir, Following) {
    let folder = tempfile::tempdir().unwrap();
    let following = Store::new(folder.path().join("models")).follow("street").unwrap();
    (folder, following)
}

#[test]
fn a_fetch_that_is_cut_continues_where_it_was_in_this_process_and_in_the_next() {
    let (_folder, following) = store();
    let mut source = Flaky::new(7_777_777);
    let index = source.index();
    let mut percents = Vec::new();
    // The deadline has passed: one connection at a time, as of a process that ends.
    let over = FetchLimits { deadline: Instant::now(), ..limits() };
    for _ in 0..2 {
        let failed = fetch(&mut source, &index, &following, &over, &mut |percent| {
            percents.push(percent);
            ControlFlow::Continue(())
        });
        assert!(matches!(failed, Err(FetchError::Unfinished { .. })), "{failed:?}");
    }
    let path = fetch(&mut source, &index, &following, &limits(), &mut |percent| {
        percents.push(percent);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(fs::read(&path).unwrap() == source.bytes);
    assert_eq!(source.given, BYTES as u64, "nothing is given twice");
    assert!(percents.is_sorted() && percents.last() == Some(&100), "{percents:?}");
    // What is here is not fetched again, and another version replaces it.
    fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(source.given, BYTES as u64);
    let other = Index { sha256: "0".repeat(64), ..index };
    fetch(&mut source, &other, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(!path.exists() && following.bundle(&other.sha256).exists());
    following.keep_only(None).unwrap();
    assert!(!following.bundle(&other.sha256).exists());
}

#[test]
fn a_part_with_other_contents_is_fetched_once_more_and_then_the_source_is_given_up() {
    let (_folder, following) = store();
    let mut source = Flaky::new(BYTES);
    let index = source.index();
    source.wrong = Some((PART_BYTES + 5, 2));
    let failed = fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(()));
    let Err(FetchError::Source(SourceError::Contents { part: 2, .. })) = failed else { panic!("{failed:?}") };
    assert_eq!(fs::metadata(following.bundle(&index.sha256)).unwrap().len(), PART_BYTES, "the first part stays");
    source.wrong = Some((PART_BYTES + 5, 1));
    let path = fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(fs::read(&path).unwrap() == source.bytes);
    // As a disk that has lost what was not synced.
    let mut damaged = source.bytes.clone();
    damaged[PART_BYTES as usize + 1] ^= 1;
    fs::write(&path, damaged).unwrap();
    source.given = 0;
    fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(fs::read(&path).unwrap() == source.bytes && source.given == BYTES as u64 - PART_BYTES);
    fs::write(&path, [source.bytes.as_slice(), b"more"].concat()).unwrap();
    fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(fs::read(&path).unwrap() == source.bytes, "what is too much is cut off");
}

#[test]
fn a_source_that_gives_nothing_is_given_up_and_one_process_follows_a_bundle() {
    let (folder, following) = store();
    let mut source = Flaky::new(0);
    let index = source.index();
    let failed = fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(failed, Err(FetchError::Source(SourceError::Unreadable { .. }))), "{failed:?}");
    let again = Store::new(folder.path().join("models")).follow("street");
    assert!(matches!(again, Err(BundleError::Followed(_))), "{again:?}");
}

#[test]
fn a_source_that_gives_next_to_nothing_is_given_up() {
    let (_folder, following) = store();
    let mut source = Flaky::new(1_000);
    let index = source.index();
    let failed = fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(failed, Err(FetchError::Source(SourceError::Unreadable { .. }))), "{failed:?}");
    assert_eq!(source.given, 1_000 * u64::from(ATTEMPTS), "what is here stays");
}

#[test]
fn bytes_that_are_skipped_end_at_the_deadline() {
    /// A server without ranges, whose file is endless before what is wanted.
    struct Skipping;
    impl BundleSource for Skipping {
        fn read_small(&mut self, path: &str, _: u64) -> Result<Vec<u8>, SourceError> {
            Err(SourceError::Unreadable { path: path.to_owned(), reason: "there is none".to_owned() })
        }
        fn read_range(&mut self, _: &str, _: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
            while take(Piece::Skipped(1_000)).is_continue() {}
            Ok(())
        }
    }
    let (_folder, following) = store();
    let index = Flaky::new(0).index();
    let over = FetchLimits { max_rate_bytes_s: Some(1_000_000), deadline: Instant::now() };
    let failed = fetch(&mut Skipping, &index, &following, &over, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(failed, Err(FetchError::Unfinished { have: 0, .. })), "{failed:?}");
}

#[test]
fn a_published_bundle_is_fetched_and_older_ones_are_not_published() {
    let (folder, following) = store();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("model.onnx"), vec![7; 100_000]).unwrap();
    let [_, secret] = generate_key(false).unwrap();
    let make = |name: &str, version, notes: &str| {
        let mut manifest = Manifest::new("street".to_owned(), version);
        manifest.models = vec![BundleModel::new("model.onnx".to_owned())];
        manifest.notes = Some(notes.to_owned());
        write(&path(name), manifest, &vec![("model.onnx".to_owned(), path("model.onnx"))]).unwrap();
        path(name)
    };
    let out = path("published");
    let unsigned = make("7", 7, "a");
    assert!(matches!(publish(&unsigned, &out, false), Err(BundleError::Unsigned(_))));
    let signed = |name: &str, version, notes: &str| {
        let path = make(name, version, notes);
        sign(&path, &secret).unwrap();
        path
    };
    let seven = signed("7", 7, "a");
    assert!(!publish(&seven, &out, false).unwrap().is_same);
    assert!(publish(&seven, &out, false).unwrap().is_same);
    for (older, again_as) in [(signed("6", 6, "a"), "6.visiond"), (signed("7b", 7, "b"), "7.2.visiond")] {
        let refused = publish(&older, &out, false);
        assert!(matches!(refused, Err(BundleError::NotNewerThanPublished { .. })), "{refused:?}");
        assert_eq!(publish(&older, &out, true).unwrap().index.file, again_as);
        // The file of the version that was published stays, for devices that fetch it.
        assert_eq!(fs::read(out.join("street/7.visiond")).unwrap(), fs::read(&seven).unwrap());
        fs::remove_file(out.join("street/index.toml")).unwrap();
        fs::remove_file(out.join("street/7.visiond")).unwrap();
        publish(&seven, &out, false).unwrap();
    }
    let newest = signed("8", 8, "a");
    publish(&newest, &out, false).unwrap();
    let left: Vec<_> = fs::read_dir(out.join("street")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
    let mut source = FolderSource(out.clone());
    let index = Index::ask(&mut source, "street").unwrap();
    let fetched = fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(fs::read(fetched).unwrap() == fs::read(newest).unwrap());
    // A file that is shorter than its index says.
    fs::write(out.join("street/8.visiond"), "short").unwrap();
    following.keep_only(None).unwrap();
    let failed =
        fetch(&mut source, &index, &following, &limits(), &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(failed.contains("it ends") && failed.contains("bytes early"), "{failed}");
}

#[test]
fn an_index_is_refused_if_it_is_of_another_bundle_leads_elsewhere_or_contradicts_itself() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("street")).unwrap();
    let ask = |text: &[u8]| {
        fs::write(folder.path().join("street/index.toml"), text).unwrap();
        Index::ask(&mut FolderSource(folder.path().to_owned()), "street").map_err(|error| error.to_string())
    };
    let good = toml::to_string(&Flaky::new(0).index()).unwrap();
    assert!(ask(good.as_bytes()).is_ok());
    for (from, to, words) in [
        ("format = 1", "format = 2", "reads format 1, not 2"),
        ("\"street\"", "\"door\"", "it is of \"door\", not of \"street\""),
        ("\"7.visiond\"", "\"../7.visiond\"", "must be the name of a file beside the index"),
        ("\"7.visiond\"", "\"..\"", "must be the name of a file beside the index"),
        ("\"7.visiond\"", "\"/etc/passwd\"", "must be the name of a file beside the index"),
        ("\"7.visiond\"", "\"7.visiond?a\"", "must be the name of a file beside the index"),
        ("version = 7", "version = 0", "`version` must be at least 1"),
        ("version = 7", "version = -1", "invalid value"),
        ("bytes = 20971520", "bytes = 209715200", "it has 3 parts, and 209715200 bytes have 25"),
        ("bytes = 20971520", "bytes = 99999999999999", "`bytes` must be between"),
        ("sha256 = \"", "sha256 = \"é", "64 hexadecimal digits"),
        ("version = 7", "version = 7\nmore = 1", "unknown field"),
    ] {
        assert!(good.contains(from), "{from}");
        let said = ask(good.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert!(said.contains(words) && said.contains("street/index.toml is no index of bundles"), "{said}");
    }
    assert!(ask(b"\xff").unwrap_err().contains("it is not text"));
    assert!(ask(&vec![b'#'; (1 << 20) + 1]).unwrap_err().contains("it has more than 1048576 bytes"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_is_an_index_that_leads_out_of_its_folder(file in "[./a-z0-9\\\\~-]{0,12}") {
        let index = Index { file: file.clone(), ..Flaky { bytes: vec![1], cut_after: 0, given: 0, wrong: None }.index() };
        struct Fixed(Vec<u8>);
        impl BundleSource for Fixed {
            fn read_small(&mut self, _: &str, _: u64) -> Result<Vec<u8>, SourceError> {
                Ok(self.0.clone())
            }
            fn read_range(&mut self, _: &str, _: Range<u64>, _: &mut Take<'_>) -> Result<(), SourceError> {
                Ok(())
            }
        }
        let text = toml::to_string(&index).unwrap().into_bytes();
        if Index::ask(&mut Fixed(text), "street").is_ok() {
            prop_assert!(!file.contains(['/', '\\']) && !file.starts_with('.') && !file.is_empty());
        }
    }
}
