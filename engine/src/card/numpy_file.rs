//! Numbers of a NumPy file (`.npy`), which fill an input: the embeddings of prompts, for example.
//!
//! Reads f32 and f16 in little-endian and C order, of any shape. Source: numpy's `lib/format.py`.

use std::path::{Component, Path};
use std::sync::Arc;

use half::f16;

use crate::backend::read_small_file;

/// The first bytes of a file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// More dimensions than an input has.
const MAX_RANK: usize = 8;

/// The numbers of a file, and their shape.
#[derive(Debug, Clone, PartialEq)]
pub struct NumpyArray {
    /// The shape, as it was written.
    pub dims: Vec<usize>,
    /// The numbers in C order.
    pub values: Arc<[f64]>,
}

/// Reads the file of this name in `folder`, the card's. The error is a reason and a remedy.
pub(super) fn read(folder: &Path, name: &str) -> Result<NumpyArray, String> {
    // A card may come from a stranger, so it may only name files beside it.
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(name).components().all(is_inside) {
        return Err("it is not in the folder of the card; copy it there".to_owned());
    }
    let path = folder.join(name);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = |path: &Path| path.canonicalize().map_err(|error| format!("{error}; correct the name"));
    if !real(&path)?.starts_with(real(folder)?) {
        return Err("it is a link that leads out of the folder of the card; copy the file there".to_owned());
    }
    parse(&read_small_file(&path).map_err(|error| error.to_string())?)
}

fn parse(bytes: &[u8]) -> Result<NumpyArray, String> {
    const BROKEN: &str = "it is no file of numpy.save, or not all of it; save it again";
    let broken = || BROKEN.to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(broken)?;
    let (length, rest) = match rest {
        [1, _, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return Err(broken()),
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(broken)?;
    let header = std::str::from_utf8(header).map_err(|_| broken())?;
    let kind = after(header, "descr").and_then(quoted).ok_or_else(broken)?;
    let number: fn(&[u8]) -> f64 = match kind {
        "<f4" => |bytes| bytes.try_into().map_or(0.0, |bytes| f64::from(f32::from_le_bytes(bytes))),
        "<f2" => |bytes| bytes.try_into().map_or(0.0, |bytes| f16::from_le_bytes(bytes).to_f64()),
        _ => {
            let kind: String = kind.chars().take(20).collect();
            return Err(format!("its numbers are {kind:?}; save them as `array.astype(\"float32\")`"));
        }
    };
    let size = if kind == "<f4" { 4 } else { 2 };
    if !after(header, "fortran_order").ok_or_else(broken)?.starts_with("False") {
        return Err("its numbers are in Fortran order; save `numpy.ascontiguousarray(array)`".to_owned());
    }
    let dims = after(header, "shape").and_then(shape).ok_or_else(broken)?;
    let count = dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
    if count.and_then(|count| count.checked_mul(size)) != Some(data.len()) {
        return Err(broken());
    }
    let values: Arc<[f64]> = data.chunks_exact(size).map(number).collect();
    if values.is_empty() {
        return Err("it has no numbers; save those of one class at least".to_owned());
    }
    if !values.iter().all(|value| value.is_finite()) {
        return Err("not all of its numbers are finite; save others".to_owned());
    }
    Ok(NumpyArray { dims, values })
}

/// Returns the text after a key of the header, which is a dictionary as Python prints it.
fn after<'t>(header: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// Returns the quoted text at the start of `text`.
fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split_once('\'').map(|(inside, _)| inside)
}

/// Reads a tuple of whole numbers, such as `(1, 80, 512)`, `(3,)` or `()`.
fn shape(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let numbers = inside.split(',').map(str::trim).filter(|number| !number.is_empty());
    let dims: Option<Vec<usize>> = numbers.take(MAX_RANK + 1).map(|number| number.parse().ok()).collect();
    dims.filter(|dims| dims.len() <= MAX_RANK)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// A file in the format of numpy.save.
    fn file(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
        let header = format!("{header:117}\n");
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn floats(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_of_both_types_and_any_shape_are_read() {
        let data = floats(&[1.0, -2.5, 0.0, 3.0, 4.0, 5.0]);
        for (text, dims) in [("(1, 2, 3)", vec![1, 2, 3]), ("(6,)", vec![6]), ("(2, 3)", vec![2, 3])] {
            let found = parse(&file("<f4", "False", text, &data)).unwrap();
            assert_eq!((found.dims, &found.values[..]), (dims, &[1.0, -2.5, 0.0, 3.0, 4.0, 5.0][..]));
        }
        let one = parse(&file("<f4", "False", "()", &floats(&[7.0]))).unwrap();
        assert_eq!((one.dims, &one.values[..]), (vec![], &[7.0][..]));
        let half: Vec<u8> = [0.5, -65504.0].into_iter().flat_map(|n| f16::from_f64(n).to_le_bytes()).collect();
        assert_eq!(parse(&file("<f2", "False", "(2,)", &half)).unwrap().values[..], [0.5, -65504.0]);
        // Version 2 has a longer length.
        let old = file("<f4", "False", "(1,)", &floats(&[7.0]));
        let (length, rest) = (&old[8..10], &old[10..]);
        let new = [MAGIC, &[2, 0], length, &[0, 0], rest].concat();
        assert_eq!(parse(&new).unwrap().values[..], [7.0]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_to_do() {
        let data = floats(&[1.0, 2.0]);
        for (bytes, words) in [
            (b"PK\x03\x04".to_vec(), "it is no file of numpy.save"),
            (
                file("<f8", "False", "(1,)", &[0; 8]),
                "its numbers are \"<f8\"; save them as `array.astype(\"float32\")`",
            ),
            (file(">f4", "False", "(1,)", &[0; 4]), "its numbers are \">f4\""),
            (file("<f4", "True", "(2,)", &data), "numpy.ascontiguousarray"),
            (file("<f4", "False", "(3,)", &data), "not all of it"),
            (file("<f4", "False", "(1,)", &data), "not all of it"),
            (file("<f4", "False", "(0, 512)", &[]), "it has no numbers"),
            (file("<f4", "False", "(-2,)", &data), "it is no file"),
            (file("<f4", "False", &format!("({})", "1,".repeat(9)), &floats(&[1.0])), "it is no file"),
            (file("<f4", "False", "(99999999999, 99999999999)", &data), "not all of it"),
            (file("<f4", "False", "(2,)", &floats(&[1.0, f32::NAN])), "not all of its numbers are finite"),
        ] {
            let error = parse(&bytes).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_file_outside_of_the_cards_folder_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("cards");
        std::fs::create_dir(&inside).unwrap();
        let bytes = file("<f4", "False", "(1,)", &floats(&[7.0]));
        std::fs::write(folder.path().join("a.npy"), &bytes).unwrap();
        std::fs::write(inside.join("b.npy"), &bytes).unwrap();
        std::os::unix::fs::symlink("../a.npy", inside.join("link.npy")).unwrap();
        assert_eq!(read(&inside, "b.npy").unwrap().values[..], [7.0]);
        assert_eq!(read(&inside, "./b.npy").unwrap().values[..], [7.0]);
        let whole = folder.path().join("a.npy");
        for name in ["../a.npy", whole.to_str().unwrap(), "x/../../a.npy"] {
            assert_eq!(
                read(&inside, name).unwrap_err(),
                "it is not in the folder of the card; copy it there",
                "{name}"
            );
        }
        assert!(read(&inside, "link.npy").unwrap_err().contains("it is a link that leads out"));
        assert!(read(&inside, "c.npy").unwrap_err().contains("No such file"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0..200_usize,
            with in any::<u8>(),
        ) {
            drop(parse(&bytes));
            drop(parse(&[MAGIC, &bytes].concat()));
            let mut damaged = file("<f4", "False", "(1, 2)", &floats(&[1.0, 2.0]));
            if let Some(byte) = damaged.get_mut(at) {
                *byte = with;
            }
            drop(parse(&damaged));
        }
    }
}
