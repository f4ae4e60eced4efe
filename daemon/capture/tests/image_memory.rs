//! Reading an image takes no more memory than its header announces, in any format: an image refused for its memory would have
//! needed it, and one that needs more than the limit is refused.
//!
//! Counts what Rust allocates. libjpeg-turbo allocates by itself; what it needs is in the tests of `visiond_kernels::jpeg`.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::{DynamicImage, GrayImage, ImageBuffer, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use visiond_capture::{Buffers, image_file};

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Bytes of this thread, because the test harness allocates beside it: now, and at most.
    static BYTES: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (now, most) = BYTES.get();
        let now = now.wrapping_add(layout.size());
        BYTES.set((now, most.max(now)));
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let (now, most) = BYTES.get();
        BYTES.set((now.wrapping_sub(layout.size()), most));
        // SAFETY: as in `alloc`; `pointer` came from there.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn load(path: &Path, max_picture_bytes: u64) -> Result<(), String> {
    let buffers = Buffers { max_picture_bytes, ..Buffers::host(1) };
    image_file::load(path, &buffers).map(drop).map_err(|error| error.to_string())
}

/// Returns the most bytes that reading the image takes.
fn measured(path: &Path) -> u64 {
    BYTES.set((0, 0));
    load(path, 1 << 40).unwrap();
    BYTES.get().1 as u64
}

/// The memory for an image of noise in each format, depth and kind.
fn pictures(folder: &Path) -> Vec<PathBuf> {
    const SIDE: u32 = 400;
    let noise = |x: u32, y: u32| (x.wrapping_mul(y ^ 0x5bd1).wrapping_mul(0x9e37_79b9) >> 13) as u8;
    let rgb = RgbImage::from_fn(SIDE, SIDE, |x, y| Rgb([noise(x, y), noise(y, x), 7]));
    let rgba = RgbaImage::from_fn(SIDE, SIDE, |x, y| Rgba([noise(x, y), 1, 2, noise(y, x)]));
    let deep: ImageBuffer<Rgba<u16>, Vec<u16>> =
        ImageBuffer::from_fn(SIDE, SIDE, |x, y| Rgba([u16::from(noise(x, y)) << 8, 1, 2, 3]));
    let grey = GrayImage::from_fn(SIDE, SIDE, |x, y| Luma([noise(x, y)]));
    let kinds: [(&str, DynamicImage); 4] =
        [("rgb", rgb.into()), ("rgba", rgba.into()), ("deep", deep.into()), ("grey", grey.into())];
    let mut paths = Vec::new();
    for (kind, picture) in &kinds {
        for ending in ["png", "bmp", "tiff", "webp", "ppm"] {
            let path = folder.join(format!("{kind}.{ending}"));
            // No format has every kind.
            if picture.save(&path).is_ok() {
                paths.push(path);
            }
        }
    }
    let lossy = ["-c:v", "libwebp", "-lossless", "0"];
    let made: [(&str, &str, &[&str]); 7] = [
        ("one.gif", "rgb.png", &[]),
        ("lossy.webp", "rgb.png", &lossy),
        ("alpha.webp", "rgba.png", &lossy),
        ("interlaced.png", "deep.png", &["-f", "image2", "-flags", "+ildct", "-c:v", "png"]),
        ("packed.tiff", "deep.png", &["-compression_algo", "deflate"]),
        ("lzw.tiff", "rgba.png", &["-compression_algo", "lzw"]),
        ("moving.webp", "%d.png", &["-c:v", "libwebp_anim", "-lossless", "0"]),
    ];
    for (frame, kind) in ["rgba", "rgb"].iter().enumerate() {
        fs::copy(folder.join(format!("{kind}.png")), folder.join(format!("{frame}.png"))).unwrap();
    }
    for (name, input, arguments) in made {
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-y", "-i"]).arg(folder.join(input)).args(arguments).arg(folder.join(name));
        assert!(ffmpeg.status().unwrap().success(), "{name}");
        paths.push(folder.join(name));
    }
    paths
}

#[test]
fn no_picture_takes_more_than_its_header_says() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = pictures(folder.path());
    assert!(pictures.len() > 18, "{}", pictures.len());
    for path in pictures {
        let needed = measured(&path);
        // Some tables and the reader's own buffer.
        let error = load(&path, needed - 100_000).err().unwrap_or_else(|| panic!("{} takes {needed}", path.display()));
        assert!(error.contains("reading it may take"), "{error}");
        load(&path, 5 * needed).unwrap();
    }
}
