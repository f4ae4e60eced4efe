//! What a frame's bytes mean: pixel format, size, planes, pitches, colours.

use crate::buffer::UnifiedBuffer;
use crate::color::ColorDescription;
use crate::cuda::{CudaError, CudaStream, DeviceAddress};
pub use crate::pixel_format::{BayerDepth, BayerOrder, PixelFormat};

/// The most planes a format has.
pub const MAX_PLANES: usize = 3;

/// The largest width or height of a frame, in pixels. Coordinates are exact in f32 up to here.
pub const MAX_SIDE: u32 = 16_384;

/// A frame's bytes are not what its description says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Width or height out of range.
    #[error("a frame of {width}x{height} is out of range: each side must be 1 to {MAX_SIDE} pixels")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The number of planes is not the format's.
    #[error("{format} has {expected} planes, {found} were given")]
    Planes {
        /// Pixel format.
        format: PixelFormat,
        /// The format's planes.
        expected: usize,
        /// Planes given.
        found: usize,
    },
    /// A pitch is shorter than a row.
    #[error(
        "{format} {width} pixels wide needs a pitch of at least {row_bytes} bytes in plane {plane}, not {pitch_bytes}"
    )]
    Pitch {
        /// Pixel format.
        format: PixelFormat,
        /// Width in pixels.
        width: u32,
        /// Which plane.
        plane: usize,
        /// Bytes of a row's pixels.
        row_bytes: usize,
        /// Pitch given.
        pitch_bytes: usize,
    },
    /// A plane has too few bytes.
    #[error(
        "plane {plane} of a {width}x{height} {format} frame needs {expected} bytes, {found} are there: the frame was cut off"
    )]
    Short {
        /// Pixel format.
        format: PixelFormat,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Which plane.
        plane: usize,
        /// Bytes needed.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
}

/// Where a plane stands in a frame's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PlaneLayout {
    /// First byte.
    pub offset_bytes: usize,
    /// From one row's first byte to the next row's.
    pub pitch_bytes: usize,
}

/// A frame's shape in one buffer: all but the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameLayout {
    format: PixelFormat,
    width: u32,
    height: u32,
    planes: [PlaneLayout; MAX_PLANES],
    color: ColorDescription,
}

impl FrameLayout {
    /// Planes one behind the other, rows without padding.
    pub fn packed(format: PixelFormat, width: u32, height: u32, color: ColorDescription) -> Result<Self, FrameError> {
        let pitches: [usize; MAX_PLANES] = std::array::from_fn(|plane| format.row_bytes(plane, width));
        Self::with_pitches(format, width, height, &pitches[..format.plane_count()], color)
    }

    /// Planes one behind the other, rows `pitches_bytes` apart, as a V4L2 driver with one buffer for all planes has them.
    pub fn with_pitches(
        format: PixelFormat,
        width: u32,
        height: u32,
        pitches_bytes: &[usize],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_size(width, height)?;
        let expected = format.plane_count();
        if pitches_bytes.len() != expected {
            return Err(FrameError::Planes { format, expected, found: pitches_bytes.len() });
        }
        let mut planes = [PlaneLayout::default(); MAX_PLANES];
        let mut offset_bytes = 0;
        for (plane, &pitch_bytes) in pitches_bytes.iter().enumerate() {
            check_pitch(format, width, plane, pitch_bytes)?;
            planes[plane] = PlaneLayout { offset_bytes, pitch_bytes };
            offset_bytes += pitch_bytes * format.plane_rows(plane, height);
        }
        Ok(Self { format, width, height, planes, color })
    }

    /// Each plane where it stands, in any order and with any room between, as a V4L2 driver with a buffer for each plane
    /// has them.
    pub fn with_planes(
        format: PixelFormat,
        width: u32,
        height: u32,
        planes: &[PlaneLayout],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_size(width, height)?;
        let expected = format.plane_count();
        if planes.len() != expected {
            return Err(FrameError::Planes { format, expected, found: planes.len() });
        }
        let mut kept = [PlaneLayout::default(); MAX_PLANES];
        for (index, plane) in planes.iter().enumerate() {
            check_pitch(format, width, index, plane.pitch_bytes)?;
            kept[index] = *plane;
        }
        Ok(Self { format, width, height, planes: kept, color })
    }

    /// Pixel format.
    pub fn format(&self) -> PixelFormat {
        self.format
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Colours.
    pub fn color(&self) -> ColorDescription {
        self.color
    }

    /// The planes.
    pub fn planes(&self) -> &[PlaneLayout] {
        &self.planes[..self.format.plane_count()]
    }

    /// Bytes up to the end of the plane that ends last, row padding included.
    pub fn size_bytes(&self) -> usize {
        let end = |(index, plane): (usize, &PlaneLayout)| {
            plane.offset_bytes + plane.pitch_bytes * self.format.plane_rows(index, self.height)
        };
        self.planes().iter().enumerate().map(end).max().unwrap_or(0)
    }

    /// As [`size_bytes`](Self::size_bytes), without the padding behind each plane's last row: bytes that a whole frame has
    /// at least.
    pub fn needed_bytes(&self) -> usize {
        (0..self.planes().len()).map(|plane| self.plane_end_bytes(plane)).max().unwrap_or(0)
    }

    /// Where a plane's last pixel ends. `plane` must be one of the format's.
    pub fn plane_end_bytes(&self, plane: usize) -> usize {
        let PlaneLayout { offset_bytes, pitch_bytes } = self.planes[plane];
        let rows = self.format.plane_rows(plane, self.height);
        offset_bytes + pitch_bytes * (rows - 1) + self.format.row_bytes(plane, self.width)
    }

    /// The frame that `bytes` holds. Fails when they are too few; more are allowed.
    pub fn view<'a>(&self, bytes: &'a [u8]) -> Result<FrameView<'a>, FrameError> {
        let mut planes = [Plane::default(); MAX_PLANES];
        for (i, layout) in self.planes().iter().enumerate() {
            planes[i] = Plane {
                bytes: bytes.get(layout.offset_bytes..).unwrap_or(&[]),
                pitch_bytes: layout.pitch_bytes,
                device: None,
            };
        }
        FrameView::new(self.format, self.width, self.height, &planes[..self.format.plane_count()], self.color)
    }

    /// As [`view`](Self::view), with the addresses under which the GPU sees the same bytes, where it does.
    pub fn view_of<'a>(&self, buffer: &'a UnifiedBuffer) -> Result<FrameView<'a>, FrameError> {
        let mut view = self.view_at(buffer.as_slice(), buffer.device_address())?;
        view.buffer = Some(buffer);
        Ok(view)
    }

    /// As [`view`](Self::view), of bytes whose first the GPU sees at `device`.
    pub fn view_at<'a>(&self, bytes: &'a [u8], device: Option<DeviceAddress>) -> Result<FrameView<'a>, FrameError> {
        let mut view = self.view(bytes)?;
        for (plane, layout) in view.planes.iter_mut().zip(self.planes()) {
            plane.device = device.map(|first| first.offset(layout.offset_bytes));
        }
        Ok(view)
    }
}

/// One plane's bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plane<'a> {
    /// From the plane's first row on; the last row need not be padded to the pitch.
    pub bytes: &'a [u8],
    /// From one row's first byte to the next row's.
    pub pitch_bytes: usize,
    /// Where the GPU sees the plane's first byte; none where it does not.
    pub device: Option<DeviceAddress>,
}

impl<'a> Plane<'a> {
    /// Row `y`'s bytes from its first pixel on, without the rows behind it. `y` must be a row of the plane.
    pub fn row(&self, y: usize) -> &'a [u8] {
        let start = y * self.pitch_bytes;
        &self.bytes[start..self.bytes.len().min(start + self.pitch_bytes)]
    }
}

/// A frame to read. Its planes are as long as its size says: that was checked when it was made.
#[derive(Debug, Clone, Copy)]
pub struct FrameView<'a> {
    format: PixelFormat,
    width: u32,
    height: u32,
    planes: [Plane<'a>; MAX_PLANES],
    color: ColorDescription,
    /// The buffer that all planes stand in, where it was told.
    buffer: Option<&'a UnifiedBuffer>,
}

impl<'a> FrameView<'a> {
    /// A view over planes that may stand in different buffers.
    pub fn new(
        format: PixelFormat,
        width: u32,
        height: u32,
        planes: &[Plane<'a>],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_size(width, height)?;
        let expected = format.plane_count();
        if planes.len() != expected {
            return Err(FrameError::Planes { format, expected, found: planes.len() });
        }
        let mut kept = [Plane::default(); MAX_PLANES];
        for (i, plane) in planes.iter().enumerate() {
            check_pitch(format, width, i, plane.pitch_bytes)?;
            let needed = plane.pitch_bytes * (format.plane_rows(i, height) - 1) + format.row_bytes(i, width);
            if plane.bytes.len() < needed {
                let found = plane.bytes.len();
                return Err(FrameError::Short { format, width, height, plane: i, expected: needed, found });
            }
            kept[i] = *plane;
        }
        Ok(Self { format, width, height, planes: kept, color, buffer: None })
    }

    /// Pixel format.
    pub fn format(&self) -> PixelFormat {
        self.format
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Colours.
    pub fn color(&self) -> ColorDescription {
        self.color
    }

    /// The planes.
    pub fn planes(&self) -> &[Plane<'a>] {
        &self.planes[..self.format.plane_count()]
    }

    /// Whether GPU work on the frame must stand between [`attach`](Self::attach) and [`detach`](Self::detach): see
    /// [`UnifiedBuffer::needs_attaching`].
    pub fn needs_attaching(&self) -> bool {
        self.buffer.is_some_and(UnifiedBuffer::needs_attaching)
    }

    /// Lends the frame's bytes to the work that is queued on `stream` from now on; nothing where that is not needed.
    ///
    /// # Safety
    /// As [`UnifiedBuffer::attach`]: the host keeps off the bytes until they were given back.
    pub unsafe fn attach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.buffer.map_or(Ok(()), |buffer| unsafe { buffer.attach(stream) })
    }

    /// Gives the frame's bytes back to the host once `stream` has come here; nothing where they were not lent.
    pub fn detach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.buffer.map_or(Ok(()), |buffer| buffer.detach(stream))
    }
}

fn check_size(width: u32, height: u32) -> Result<(), FrameError> {
    let fits = |side: u32| (1..=MAX_SIDE).contains(&side);
    if fits(width) && fits(height) { Ok(()) } else { Err(FrameError::Size { width, height }) }
}

fn check_pitch(format: PixelFormat, width: u32, plane: usize, pitch_bytes: usize) -> Result<(), FrameError> {
    let row_bytes = format.row_bytes(plane, width);
    if pitch_bytes >= row_bytes {
        Ok(())
    } else {
        Err(FrameError::Pitch { format, width, plane, row_bytes, pitch_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sizes_round_chroma_up() {
        let layout = FrameLayout::packed(PixelFormat::I420, 5, 3, ColorDescription::default()).unwrap();
        assert_eq!(layout.size_bytes(), 15 + 6 + 6);
        let layout = FrameLayout::packed(PixelFormat::Yuyv, 5, 3, ColorDescription::default()).unwrap();
        assert_eq!(layout.size_bytes(), 36);
    }

    #[test]
    fn a_short_frame_is_refused_with_its_numbers() {
        let layout = FrameLayout::packed(PixelFormat::Nv12, 4, 4, ColorDescription::default()).unwrap();
        assert!(layout.view(&[0; 24]).is_ok());
        let error = layout.view(&[0; 23]).unwrap_err().to_string();
        assert!(error.contains("plane 1") && error.contains("needs 8 bytes, 7 are there"), "{error}");
    }

    #[test]
    fn each_plane_has_the_gpus_address_of_its_own_first_byte() {
        let layout = FrameLayout::packed(PixelFormat::Nv12, 4, 4, ColorDescription::default()).unwrap();
        let view = layout.view_at(&[0; 24], Some(DeviceAddress(0x1000))).unwrap();
        let addresses: Vec<_> = view.planes().iter().map(|plane| plane.device).collect();
        assert_eq!(addresses, [Some(DeviceAddress(0x1000)), Some(DeviceAddress(0x1010))]);
        let buffer = UnifiedBuffer::host(24).unwrap();
        let view = layout.view_of(&buffer).unwrap();
        assert!(view.planes().iter().all(|plane| plane.device.is_none()) && !view.needs_attaching());
    }

    #[test]
    fn planes_may_stand_in_any_order_with_room_between() {
        let at = |offset_bytes, pitch_bytes| PlaneLayout { offset_bytes, pitch_bytes };
        let of = |planes: &[PlaneLayout]| {
            FrameLayout::with_planes(PixelFormat::I420, 4, 4, planes, ColorDescription::default())
        };
        // Cr before Cb, as in YV12, and a page for each.
        let layout = of(&[at(0, 8), at(200, 4), at(100, 4)]).unwrap();
        assert_eq!((layout.size_bytes(), layout.needed_bytes()), (208, 206));
        let bytes: Vec<u8> = (0..=255).collect();
        let view = layout.view(&bytes[..206]).unwrap();
        assert_eq!([view.planes()[1].bytes[0], view.planes()[2].bytes[0]], [200, 100]);
        assert!(layout.view(&bytes[..205]).is_err());
        assert!(of(&[at(0, 8), at(100, 4)]).unwrap_err().to_string().contains("3 planes, 2 were given"));
        assert!(of(&[at(0, 8), at(100, 1), at(200, 4)]).unwrap_err().to_string().contains("plane 1"));
    }

    #[test]
    fn the_last_row_needs_no_padding() {
        let layout = FrameLayout::with_pitches(PixelFormat::Grey, 3, 2, &[8], ColorDescription::default()).unwrap();
        assert!(layout.view(&[0; 11]).is_ok());
        assert!(layout.view(&[0; 10]).is_err());
    }
}
