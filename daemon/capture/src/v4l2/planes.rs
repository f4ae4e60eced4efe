//! Locates the colour planes of a frame in the memory planes that the driver fills.

use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameError, FrameLayout, MAX_PLANES, PixelFormat, PlaneLayout};

use super::device::{MAX_MEMORY_PLANES, PixFormat};
use super::fourcc;

/// An invalid description of frames by the driver.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanesError {
    #[error("{format} has {expected} memory planes, the driver reports {found}")]
    Memories { format: String, expected: usize, found: usize },
    /// The rows are shorter than their pixels, or the size is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The colour planes of a raw frame: in which memory plane each is, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planes {
    format: PixelFormat,
    width: u32,
    height: u32,
    color: ColorDescription,
    memory_count: usize,
    places: [(usize, PlaneLayout); MAX_PLANES],
}

impl Planes {
    /// Describes frames of `format` from the driver's description.
    pub fn new(pix: &PixFormat, format: PixelFormat, color: ColorDescription) -> Result<Self, PlanesError> {
        let arrangement = fourcc::arrangement(pix.fourcc);
        let (expected, found) = (arrangement.memory_plane_count, pix.memory_count);
        if expected != found {
            return Err(PlanesError::Memories { format: fourcc::text(pix.fourcc), expected, found });
        }
        let (width, height) = (pix.width, pix.height);
        // A driver that leaves the field empty has no padding.
        let pitch = |memory: usize, plane: usize| match pix.memories[memory].pitch_bytes {
            0 => format.row_bytes(plane, width),
            pitch_bytes => pitch_bytes as usize,
        };
        let mut places = [(0, PlaneLayout::default()); MAX_PLANES];
        if expected == 1 {
            let pitches = contiguous_pitches(format, width, pitch(0, 0));
            let layout = FrameLayout::with_pitches(format, width, height, &pitches, color)?;
            for (place, plane) in places.iter_mut().zip(layout.planes()) {
                place.1 = *plane;
            }
        } else {
            for (plane, place) in places.iter_mut().enumerate().take(format.plane_count()) {
                *place = (plane, PlaneLayout { offset_bytes: 0, pitch_bytes: pitch(plane, plane) });
            }
        }
        if arrangement.is_cr_first {
            places.swap(1, 2);
        }
        let planes = Self { format, width, height, color, memory_count: expected, places };
        // Checks the pitches, which do not depend on the memory planes' addresses.
        planes.layout(&[0; MAX_MEMORY_PLANES])?;
        Ok(planes)
    }

    /// Returns the layout of a frame whose memory planes start at `starts` in one buffer. Fails for pitches that `new` refuses.
    pub fn layout(&self, starts: &[usize; MAX_MEMORY_PLANES]) -> Result<FrameLayout, FrameError> {
        let planes = self.places.map(|(memory, plane)| PlaneLayout {
            offset_bytes: starts[memory] + plane.offset_bytes,
            pitch_bytes: plane.pitch_bytes,
        });
        let planes = &planes[..self.format.plane_count()];
        FrameLayout::with_planes(self.format, self.width, self.height, planes, self.color)
    }

    pub fn memory_count(&self) -> usize {
        self.memory_count
    }

    /// Returns how many bytes of a memory plane a whole frame needs; the last row of a colour plane needs no padding.
    pub fn needed_bytes(&self, memory: usize) -> usize {
        self.layout(&[0; MAX_MEMORY_PLANES]).map_or(0, |layout| {
            let here = (0..layout.planes().len()).filter(|&plane| self.places[plane].0 == memory);
            here.map(|plane| layout.plane_end_bytes(plane)).max().unwrap_or(0)
        })
    }
}

/// Returns the pitches of all colour planes in one memory plane, from the first one's: V4L2 has one field for all of them.
/// Interleaved chroma has the same pitch, separate chroma planes have half of it.
/// <https://docs.kernel.org/userspace-api/media/v4l/pixfmt-yuv-planar.html>
///
/// NVIDIA's `tegra-video` writes NV16's chroma at half of `sizeimage` (`vi5_setup_surface` in vi5_fops.c). That is the end of
/// the luma as long as the driver's controls `height_align` and `size_align` keep their defaults, which round nothing up
/// (`get_aligned_buffer_size` in channel.c).
fn contiguous_pitches(format: PixelFormat, width: u32, first_bytes: usize) -> Vec<usize> {
    match format {
        // With an odd width, the chroma's rows are a byte longer than the luma's.
        PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 | PixelFormat::P010 => {
            vec![first_bytes, first_bytes.max(format.row_bytes(1, width))]
        }
        PixelFormat::I420 => vec![first_bytes, first_bytes.div_ceil(2), first_bytes.div_ceil(2)],
        _ => vec![first_bytes],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::v4l2::device::MemoryPlaneFormat;

    fn pix(code: &[u8; 4], width: u32, pitches_bytes: &[u32]) -> PixFormat {
        let mut pix = PixFormat { width, height: 4, fourcc: *code, ..PixFormat::default() };
        pix.memory_count = pitches_bytes.len();
        for (memory, &pitch_bytes) in pix.memories.iter_mut().zip(pitches_bytes) {
            *memory = MemoryPlaneFormat { pitch_bytes, size_bytes: 0 };
        }
        pix
    }

    fn places(code: &[u8; 4], format: PixelFormat, pitches: &[u32], starts: [usize; 3]) -> Vec<(usize, usize)> {
        let planes = Planes::new(&pix(code, 600, pitches), format, ColorDescription::default()).unwrap();
        let layout = planes.layout(&starts).unwrap();
        layout.planes().iter().map(|plane| (plane.offset_bytes, plane.pitch_bytes)).collect()
    }

    #[test]
    fn in_one_piece_of_memory_chroma_follows_the_padded_luma() {
        let of = |code, format, pitch| places(code, format, &[pitch], [0; 3]);
        assert_eq!(of(b"NV12", PixelFormat::Nv12, 640), [(0, 640), (640 * 4, 640)]);
        assert_eq!(of(b"NV16", PixelFormat::Nv16, 640), [(0, 640), (640 * 4, 640)]);
        assert_eq!(of(b"YU12", PixelFormat::I420, 640), [(0, 640), (640 * 4, 320), (640 * 5, 320)]);
        assert_eq!(of(b"YUYV", PixelFormat::Yuyv, 1280), [(0, 1280)]);
        assert_eq!(of(b"GREY", PixelFormat::Grey, 0), [(0, 600)]);
    }

    #[test]
    fn with_an_odd_width_a_row_of_chroma_pairs_is_a_byte_longer_than_one_of_luma() {
        for (code, format) in [
            (b"NV12", PixelFormat::Nv12),
            (b"NV21", PixelFormat::Nv21),
            (b"NV16", PixelFormat::Nv16),
            (b"NV61", PixelFormat::Nv61),
        ] {
            for pitch in [0, 599] {
                let odd = Planes::new(&pix(code, 599, &[pitch]), format, ColorDescription::default()).unwrap();
                let layout = odd.layout(&[0; 3]).unwrap();
                let chroma_rows = format.plane_rows(1, 4);
                assert_eq!(layout.planes()[1], PlaneLayout { offset_bytes: 599 * 4, pitch_bytes: 600 }, "{format}");
                assert_eq!(odd.needed_bytes(0), 599 * 4 + 600 * chroma_rows, "{format}");
            }
        }
        let odd = Planes::new(&pix(b"YU12", 599, &[599]), PixelFormat::I420, ColorDescription::default()).unwrap();
        assert_eq!(odd.needed_bytes(0), 599 * 4 + 300 * 2 * 2);
    }

    #[test]
    fn yv12_has_its_chroma_planes_the_other_way_round() {
        assert_eq!(places(b"YV12", PixelFormat::I420, &[640], [0; 3]), [(0, 640), (640 * 5, 320), (640 * 4, 320)]);
        let apart = places(b"YM21", PixelFormat::I420, &[640, 320, 384], [0, 4096, 8192]);
        assert_eq!(apart, [(0, 640), (8192, 384), (4096, 320)]);
    }

    #[test]
    fn planes_of_their_own_stand_where_their_memory_is() {
        assert_eq!(places(b"NM12", PixelFormat::Nv12, &[640, 768], [64, 4096, 0]), [(64, 640), (4096, 768)]);
        let planes = |code, pitches: &[u32]| {
            Planes::new(&pix(code, 600, pitches), PixelFormat::Nv12, ColorDescription::default())
        };
        let apart = planes(b"NM12", &[640, 640]).unwrap();
        assert_eq!([apart.needed_bytes(0), apart.needed_bytes(1)], [640 * 3 + 600, 640 + 600]);
        let together = planes(b"NV12", &[640]).unwrap();
        assert_eq!([together.needed_bytes(0), together.needed_bytes(1)], [640 * 5 + 600, 0]);
        // NV16 has as many rows of chroma as of luma.
        let half = |code, pitches: &[u32]| {
            Planes::new(&pix(code, 600, pitches), PixelFormat::Nv16, ColorDescription::default()).unwrap()
        };
        let apart = half(b"NM16", &[640, 640]);
        assert_eq!([apart.needed_bytes(0), apart.needed_bytes(1)], [640 * 3 + 600, 640 * 3 + 600]);
        assert_eq!(half(b"NV16", &[640]).needed_bytes(0), 640 * 7 + 600);
    }

    #[test]
    fn what_a_driver_describes_wrongly_is_refused() {
        let of = |code, pitches: &[u32]| {
            Planes::new(&pix(code, 600, pitches), PixelFormat::Nv12, ColorDescription::default())
                .unwrap_err()
                .to_string()
        };
        assert!(of(b"NM12", &[640]).contains("NM12 has 2 memory planes, the driver reports 1"));
        assert!(of(b"NV12", &[320]).contains("at least 600 bytes"));
    }
}
