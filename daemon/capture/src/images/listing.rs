//! Lists the images of a folder in natural order.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File name extensions to read from a folder, in lower case. The content decides the format.
pub(super) const ENDINGS: [&str; 14] =
    ["png", "jpg", "jpeg", "jpe", "bmp", "dib", "gif", "tif", "tiff", "webp", "pbm", "pgm", "ppm", "pnm"];

/// How many paths to sort between checks of the stop flag.
const SORTED_AT_ONCE: usize = 1024;

/// How many levels of subfolders are read.
pub(super) const MAX_DEPTH: usize = 16;

/// Whether a file of this name is read. Hidden files are not.
pub(super) fn is_image_name(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    !is_hidden(name) && ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Returns a folder's images in natural order.
pub fn images_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    list(folder, false, &mut || false)
}

/// Lists a folder's images in natural order, with `recursive` those of its subfolders as well. Leaves out hidden files and
/// folders, and files that disappear meanwhile. A link to an image counts as an image; with `recursive` only if it leads to a
/// file in the tree. Checks `is_stopping` after each file, and returns early with the images found so far.
pub(super) fn list(folder: &Path, recursive: bool, is_stopping: &mut dyn FnMut() -> bool) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((inner, depth)) = folders.pop() {
        let entries = match fs::read_dir(&inner) {
            Ok(entries) => entries,
            Err(error) if depth == 0 => return Err(error),
            Err(error) => {
                log::warn!("cannot read the images in {}: {error}; they are left out", inner.display());
                continue;
            }
        };
        for entry in entries {
            if is_stopping() {
                return Ok(files);
            }
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && recursive && !is_hidden(&name) {
                if depth < MAX_DEPTH {
                    folders.push((path, depth + 1));
                } else {
                    log::warn!("{}", too_deep(folder, &path));
                }
            } else if is_image_name(&name)
                && fs::metadata(&path).is_ok_and(|metadata| metadata.is_file())
                && (!recursive || !kind.is_symlink() || leads_into(folder, &path))
            {
                files.push(path);
            }
        }
    }
    sort(&mut files, is_stopping);
    Ok(files)
}

/// Returns what to log about a folder below `root` that is left out.
pub(super) fn too_deep(root: &Path, path: &Path) -> String {
    let (root, path) = (root.display(), path.display());
    format!("leaving out {path}: it is more than {MAX_DEPTH} levels below {root}; set `path` to a deeper folder")
}

/// Whether the link at `path` leads to something below `root`.
pub(super) fn leads_into(root: &Path, path: &Path) -> bool {
    fs::canonicalize(root).is_ok_and(|root| fs::canonicalize(path).is_ok_and(|target| target.starts_with(root)))
}

/// Sorts paths in natural order, unless `is_stopping`.
pub(super) fn sort(paths: &mut [PathBuf], is_stopping: &mut dyn FnMut() -> bool) {
    let mut length = SORTED_AT_ONCE;
    loop {
        // Both halves are already sorted, which the sort exploits.
        for part in paths.chunks_mut(length) {
            if is_stopping() {
                return;
            }
            part.sort_by(|a, b| natural(a.as_os_str().as_encoded_bytes(), b.as_os_str().as_encoded_bytes()));
        }
        if length >= paths.len() {
            return;
        }
        length *= 2;
    }
}

/// Compares names with numbers by value: img2 comes before img10. Otherwise compares bytes.
fn natural(a: &[u8], b: &[u8]) -> Ordering {
    /// Bytes as they are; for a number, its length without leading zeros, then its digits.
    fn parts(name: &[u8]) -> impl Iterator<Item = (u8, usize, &[u8])> {
        let chunks = name.chunk_by(|left, right| left.is_ascii_digit() && right.is_ascii_digit());
        chunks.map(|chunk| {
            if !chunk[0].is_ascii_digit() {
                return (chunk[0], 0, &[][..]);
            }
            let zeros = chunk.iter().take_while(|&&digit| digit == b'0').count();
            (b'0', chunk.len() - zeros, &chunk[zeros..])
        })
    }
    // Most names begin alike. A number counts as a whole.
    let alike = a.iter().zip(b).take_while(|(left, right)| left == right).count();
    let digits = a[..alike].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let from = alike - digits;
    parts(&a[from..]).cmp(parts(&b[from..])).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn natural_order_is_a_total_order(a in "[a-c0-9]{0,6}", b in "[a-c0-9]{0,6}", c in "[a-c0-9]{0,6}") {
            let natural = |a: &str, b: &str| natural(a.as_bytes(), b.as_bytes());
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b) == Ordering::Equal, a == b);
            if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
                prop_assert!(natural(&a, &c).is_le());
            }
        }
    }
    #[test]
    fn many_names_are_sorted_in_parts_until_visiond_stops() {
        let names: Vec<_> = (0..5000).map(|n| PathBuf::from(format!("a/img{n}.png"))).collect();
        let mut turned: Vec<_> = names.iter().rev().cloned().collect();
        let mut asked = 0;
        sort(&mut turned, &mut || {
            asked += 1;
            false
        });
        assert!(turned == names && asked >= 5, "{asked}");
        turned.reverse();
        let before = turned.clone();
        sort(&mut turned, &mut || true);
        assert_eq!(turned, before);
    }

    #[test]
    fn a_folders_own_pictures_are_listed_by_their_numbers() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("below"))?;
        for name in ["p10.png", "p2.jpg", ".hidden.png", "note.txt", "below/p1.png"] {
            fs::write(folder.path().join(name), "")?;
        }
        assert_eq!(images_in(folder.path())?, ["p2.jpg", "p10.png"].map(|name| folder.path().join(name)));
        assert!(images_in(&folder.path().join("missing")).is_err());
        Ok(())
    }
}
