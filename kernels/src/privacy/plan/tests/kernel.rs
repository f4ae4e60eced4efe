//! The CUDA kernels, compiled for the processor, against the writes in Rust: every byte is equal.

use std::path::Path;
use std::process::Command;

use libloading::Library;

use super::{mask, noise, padded};
use crate::frame::PixelFormat;
use crate::privacy::launch::{Argument, BlankLaunch};
use crate::privacy::{Fill, MaskPlan};

fn library() -> Library {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/host/privacy.cpp");
    let file = std::env::temp_dir().join(format!("visiond-privacy-{}.so", std::process::id()));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o"];
    let output = Command::new(&compiler).args(options).arg(&file).arg(source).output();
    let output = output.unwrap_or_else(|error| panic!("{compiler}: {error}: run tests/setup"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: just compiled of our own sources, which have no initialisers that do anything.
    let library = unsafe { Library::new(&file) }.unwrap();
    std::fs::remove_file(&file).unwrap();
    library
}

/// Blanks `bytes` with the kernels. Every access is checked to lie in its memory.
fn on_kernel(library: &Library, plan: &MaskPlan, bytes: &[u8], last_first: bool) -> Vec<u8> {
    type Allow = unsafe extern "C" fn(u64, u64, *mut u8);
    type Run = unsafe extern "C" fn(*const Argument, u32, bool);
    let launch = BlankLaunch::new(plan).unwrap();
    // Words of 16 bytes, so that both are aligned as a GPU's memory is.
    let mut table = vec![0_u128; launch.table_bytes().div_ceil(16)];
    let mut frame = vec![0_u128; bytes.len().div_ceil(16)];
    // SAFETY: every bit pattern is a valid byte, and the slices are as long as the vectors, which they borrow.
    let [table_bytes, frame_bytes] = [&mut table, &mut frame]
        .map(|words| unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 16) });
    launch.write_table(table_bytes);
    frame_bytes[..bytes.len()].copy_from_slice(bytes);
    let [table_at, frame_at] = [&*table_bytes, &*frame_bytes].map(|bytes| bytes.as_ptr() as u64);
    let (mut table_writes, mut frame_writes) = (vec![0_u8; table_bytes.len()], vec![0_u8; bytes.len()]);
    let [mosaics, colors] = launch.arguments(table_at, frame_at);
    let [tiles, mosaic_runs, color_runs] = launch.blocks();
    // SAFETY: the functions have these signatures in cuda/host; what they are given outlives the calls, and is as long as it is said
    // to be.
    let faults = unsafe {
        library.get::<unsafe extern "C" fn()>(b"forget_memory\0").unwrap()();
        let allow = library.get::<Allow>(b"allow\0").unwrap();
        allow(table_at, table_writes.len() as u64, table_writes.as_mut_ptr());
        allow(frame_at, frame_writes.len() as u64, frame_writes.as_mut_ptr());
        let (means, blank) =
            (library.get::<Run>(b"means_on_host\0").unwrap(), library.get::<Run>(b"blank_on_host\0").unwrap());
        blank(&raw const colors, color_runs, last_first);
        means(&raw const mosaics, tiles, last_first);
        blank(&raw const mosaics, mosaic_runs, last_first);
        library.get::<unsafe extern "C" fn() -> u64>(b"fault_count\0").unwrap()()
    };
    assert_eq!(faults, 0, "the kernels read or write outside their memory");
    frame_bytes[..bytes.len()].to_vec()
}

#[test]
fn the_kernels_write_the_same_bytes_as_the_cpu() {
    let library = library();
    let areas = [
        (vec![[0.1, 0.1], [0.6, 0.2], [0.4, 0.9]], Fill::Mosaic),
        (vec![[0.5, 0.5], [1.0, 0.4], [0.95, 1.0]], Fill::Color([200, 30, 90])),
        (vec![[0.0, 0.0], [0.2, 0.0], [0.0, 0.2]], Fill::Color([0, 0, 0])),
        // A second mosaic in blocks of the first, and a colour over another.
        (vec![[0.2, 0.1], [0.9, 0.15], [0.5, 1.0]], Fill::Mosaic),
        (vec![[0.6, 0.5], [1.0, 0.6], [0.7, 1.0]], Fill::Color([0, 255, 0])),
    ];
    let masks: Vec<_> = areas.iter().map(|(corners, fill)| mask(corners, *fill)).collect();
    for (format, width, height) in [
        (PixelFormat::Nv12, 322, 182),
        (PixelFormat::P010, 322, 182),
        (PixelFormat::Nv12, 7, 5),
        (PixelFormat::P010, 4, 2),
    ] {
        // A surface's rows begin at multiples of 512 bytes.
        let layout = padded(
            format,
            width,
            height,
            format.row_bytes(0, width).next_multiple_of(512) - format.row_bytes(0, width),
        );
        let bytes = noise(&layout);
        for count in 0..=masks.len() {
            let mut plan = MaskPlan::new(&masks[..count], &layout);
            let mut expected = bytes.clone();
            assert!(plan.apply(&mut expected));
            for last_first in [false, true] {
                let found = on_kernel(&library, &plan, &bytes, last_first);
                let differing = expected.iter().zip(&found).filter(|(a, b)| a != b).count();
                assert_eq!(differing, 0, "{format} {width}x{height}, {count} masks");
            }
        }
    }
    assert!(BlankLaunch::new(&MaskPlan::new(&masks, &padded(PixelFormat::Bgr, 8, 8, 0))).is_none());
}
