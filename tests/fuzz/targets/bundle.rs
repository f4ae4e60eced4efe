//! A bundle: an even first byte, the file as it is; an odd one, the archive in it, which is compressed here. And the index of one.
//!
//! Nobody whose key is trusted has signed any. What is compared with the manifest is compared all the same.

#![no_main]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;
use visiond_bundle::{Bundle, FolderSource, Index, PART_BYTES, TrustedKeys};

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.unwrap()
});

/// A public key whose owner signed none of the inputs.
static KEYS: LazyLock<TrustedKeys> =
    LazyLock::new(|| TrustedKeys::parse(["RWRHPtZjmNwsXBYuKvglJA0LlqZx71c7pmRfUfAHz18N1IZep2bqy3rV"]).unwrap());

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    fuzz_index(data);
    let path = FOLDER.path().join("a.visiond");
    let packed = if kind % 2 == 0 { data.to_vec() } else { compress_to_vec(data, CompressionLevel::Fastest) };
    fs::write(&path, packed).unwrap();
    let Ok(bundle) = Bundle::open(&path) else { return };
    let _ = bundle.claimed_signer();
    assert!(Bundle::open_trusted(&path, &KEYS).is_err());
    // An archive has every byte that its manifest says.
    if bundle.check_files().is_ok() && kind % 2 == 1 {
        assert!(bundle.manifest().total_bytes() <= data.len() as u64);
    }
});

/// An index that is accepted leads to a file beside it, and has a hash for each of its parts.
fn fuzz_index(data: &[u8]) {
    let folder = FOLDER.path().join("street");
    let _ = fs::create_dir(&folder);
    fs::write(folder.join("index.toml"), data).unwrap();
    let Ok(index) = Index::ask(&mut FolderSource(FOLDER.path().to_owned()), "street") else { return };
    assert!(!index.file.contains('/') && !index.file.starts_with('.') && index.path().starts_with("street/"));
    assert_eq!(index.parts.len() as u64, index.bytes.div_ceil(PART_BYTES));
}
