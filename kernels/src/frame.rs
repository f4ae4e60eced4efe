//! The layout of a frame's bytes: pixel format, size, planes, pitches, colours.

use crate::buffer::UnifiedBuffer;
use crate::color::{ColorDescription, GreyLevels, LevelMap};
use crate::cuda::{CudaError, CudaStream, DeviceAddress};
use crate::nvdec::Surface;
pub use crate::pixel_format::{BayerDepth, BayerOrder, PixelFormat};
use crate::view::{Orientation, View};

/// The maximum number of planes of a format.
pub const MAX_PLANES: usize = 3;

/// The maximum width or height of a frame, in pixels. Coordinates up to this are exact in f32.
pub const MAX_SIDE: u32 = 16_384;

/// The maximum offset of a plane, and the maximum size of a plane, in bytes. No real frame comes near, and the sum of both for
/// every plane is far from overflowing.
const MAX_BYTES: usize = 1 << 40;

/// Bytes do not fit the description of a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

/// A frame in the GPU's memory cannot be copied to the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameCopyError {
    /// The CUDA call failed.
    #[error("cannot copy a frame from the GPU, restart visiond if it stays: {0}")]
    Cuda(#[from] CudaError),
    /// The copy does not fit the frame's layout.
    #[error(transparent)]
    Layout(#[from] FrameError),
}

/// The position of a plane in a frame's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PlaneLayout {
    /// The offset of the first byte.
    pub offset_bytes: usize,
    /// The distance between the first bytes of two rows.
    pub pitch_bytes: usize,
}

/// The layout of a frame in one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameLayout {
    format: PixelFormat,
    width: u32,
    height: u32,
    planes: [PlaneLayout; MAX_PLANES],
    color: ColorDescription,
}

impl FrameLayout {
    /// Makes a layout with consecutive planes and rows without padding.
    pub fn packed(format: PixelFormat, width: u32, height: u32, color: ColorDescription) -> Result<Self, FrameError> {
        let pitches: [usize; MAX_PLANES] = std::array::from_fn(|plane| format.row_bytes(plane, width));
        Self::with_pitches(format, width, height, &pitches[..format.plane_count()], color)
    }

    /// Makes a layout with consecutive planes and rows `pitches_bytes` apart, as for a V4L2 driver with one buffer for all
    /// planes.
    pub fn with_pitches(
        format: PixelFormat,
        width: u32,
        height: u32,
        pitches_bytes: &[usize],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_planes(format, width, height, pitches_bytes.iter().copied())?;
        let mut planes = [PlaneLayout::default(); MAX_PLANES];
        // Three planes within the limits of `check_planes` are far from overflowing.
        let mut offset_bytes = 0;
        for (plane, &pitch_bytes) in pitches_bytes.iter().enumerate() {
            planes[plane] = PlaneLayout { offset_bytes, pitch_bytes };
            offset_bytes += pitch_bytes * format.plane_rows(plane, height);
        }
        Ok(Self { format, width, height, planes, color })
    }

    /// Makes a layout with planes at any offsets and in any order, as for a V4L2 driver with one buffer per plane.
    pub fn with_planes(
        format: PixelFormat,
        width: u32,
        height: u32,
        planes: &[PlaneLayout],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_planes(format, width, height, planes.iter().map(|plane| plane.pitch_bytes))?;
        if let Some(plane) = planes.iter().find(|plane| plane.offset_bytes > MAX_BYTES) {
            return Err(FrameError(format!(
                "a plane {} bytes into the frame is out of range: the offset must be at most {MAX_BYTES} bytes",
                plane.offset_bytes
            )));
        }
        let mut kept = [PlaneLayout::default(); MAX_PLANES];
        kept[..planes.len()].copy_from_slice(planes);
        Ok(Self { format, width, height, planes: kept, color })
    }

    /// Returns the pixel format.
    pub fn format(&self) -> PixelFormat {
        self.format
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the colours.
    pub fn color(&self) -> ColorDescription {
        self.color
    }

    /// Returns the planes.
    pub fn planes(&self) -> &[PlaneLayout] {
        &self.planes[..self.format.plane_count()]
    }

    /// Returns the offset of the end of the last plane, including row padding.
    pub fn size_bytes(&self) -> usize {
        let end = |(index, plane): (usize, &PlaneLayout)| {
            plane.offset_bytes + plane.pitch_bytes * self.format.plane_rows(index, self.height)
        };
        self.planes().iter().enumerate().map(end).max().unwrap_or(0)
    }

    /// Returns [`size_bytes`](Self::size_bytes) without the padding after each plane's last row: the minimum for a complete
    /// frame.
    pub fn needed_bytes(&self) -> usize {
        (0..self.planes().len()).map(|plane| self.plane_end_bytes(plane)).max().unwrap_or(0)
    }

    /// Returns the offset after a plane's last pixel. `plane` must be one of the format's.
    pub fn plane_end_bytes(&self, plane: usize) -> usize {
        let PlaneLayout { offset_bytes, pitch_bytes } = self.planes[plane];
        let rows = self.format.plane_rows(plane, self.height);
        offset_bytes + pitch_bytes * (rows - 1) + self.format.row_bytes(plane, self.width)
    }

    /// Returns a view of the frame in `bytes`, which may be longer.
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

    /// Does the same as [`view`](Self::view), with the addresses of the bytes on the GPU if it can access them.
    pub fn view_of<'a>(&self, buffer: &'a UnifiedBuffer) -> Result<FrameView<'a>, FrameError> {
        let mut view = self.view_at(buffer.as_slice(), buffer.device_address())?;
        view.buffer = Some(buffer);
        Ok(view)
    }

    /// Returns a view of a picture in the GPU's memory, without bytes for the host: see [`FrameView::on_host`]. Work on a stream
    /// may read it after [`FrameView::attach`].
    pub fn view_on_gpu<'a>(&self, surface: &'a Surface) -> FrameView<'a> {
        let mut planes = [Plane::default(); MAX_PLANES];
        for (plane, &PlaneLayout { offset_bytes, pitch_bytes }) in planes.iter_mut().zip(self.planes()) {
            *plane = Plane { bytes: &[], pitch_bytes, device: Some(surface.address().offset(offset_bytes)) };
        }
        let Self { format, width, height, color, .. } = *self;
        let view = View::whole((width, height));
        FrameView { format, width, height, planes, color, view, buffer: None, surface: Some((surface, *self)) }
    }

    /// Does the same as [`view`](Self::view), for bytes that start at `device` on the GPU.
    pub fn view_at<'a>(&self, bytes: &'a [u8], device: Option<DeviceAddress>) -> Result<FrameView<'a>, FrameError> {
        let mut view = self.view(bytes)?;
        for (plane, layout) in view.planes.iter_mut().zip(self.planes()) {
            plane.device = device.map(|first| first.offset(layout.offset_bytes));
        }
        Ok(view)
    }
}

/// The bytes of one plane.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plane<'a> {
    /// The bytes from the first row on; the last row need not be padded to the pitch.
    pub bytes: &'a [u8],
    /// The distance between the first bytes of two rows.
    pub pitch_bytes: usize,
    /// The address of the first byte on the GPU, if it can access it.
    pub device: Option<DeviceAddress>,
}

impl<'a> Plane<'a> {
    /// Returns the bytes of row `y` from its first pixel on. `y` must be a row of the plane.
    pub fn row(&self, y: usize) -> &'a [u8] {
        let start = y * self.pitch_bytes;
        &self.bytes[start..self.bytes.len().min(start + self.pitch_bytes)]
    }
}

/// A frame to read. The lengths of its planes were checked against its size.
#[derive(Debug, Clone, Copy)]
pub struct FrameView<'a> {
    format: PixelFormat,
    width: u32,
    height: u32,
    planes: [Plane<'a>; MAX_PLANES],
    color: ColorDescription,
    /// The part of the frame that the planes are, and how it is to be seen.
    view: View,
    /// The buffer that contains all planes, if known.
    buffer: Option<&'a UnifiedBuffer>,
    /// The surface in the GPU's memory that contains all planes, which then have no bytes for the host, and their layout in it.
    surface: Option<(&'a Surface, FrameLayout)>,
}

impl<'a> FrameView<'a> {
    /// Makes a view of planes that may be in different buffers.
    pub fn new(
        format: PixelFormat,
        width: u32,
        height: u32,
        planes: &[Plane<'a>],
        color: ColorDescription,
    ) -> Result<Self, FrameError> {
        check_planes(format, width, height, planes.iter().map(|plane| plane.pitch_bytes))?;
        for (i, plane) in planes.iter().enumerate() {
            let needed = plane.pitch_bytes * (format.plane_rows(i, height) - 1) + format.row_bytes(i, width);
            let found = plane.bytes.len();
            if found < needed {
                return Err(FrameError(format!(
                    "plane {i} of a {width}x{height} {format} frame needs {needed} bytes but has {found}: the frame is truncated"
                )));
            }
        }
        let mut kept = [Plane::default(); MAX_PLANES];
        kept[..planes.len()].copy_from_slice(planes);
        let view = View::whole((width, height));
        Ok(Self { format, width, height, planes: kept, color, view, buffer: None, surface: None })
    }

    /// Returns the pixel format.
    pub fn format(&self) -> PixelFormat {
        self.format
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the colours.
    pub fn color(&self) -> ColorDescription {
        self.color
    }

    /// Returns this frame as the preprocess is to see it; copies nothing. Everything else sees the part of the frame that the view
    /// has, unturned.
    ///
    /// # Errors
    /// The view is not one of a frame of this size, or this is a view already.
    pub fn viewed(&self, view: View) -> Result<Self, FrameError> {
        let size = (self.width, self.height);
        if view.frame_size() != size || !self.view.is_whole() {
            let of = view.frame_size();
            return Err(FrameError(format!(
                "cannot apply a view of {of:?} pixels to a frame of {size:?}: use a view of this size, and a whole frame"
            )));
        }
        let [x, y, width, height] = view.crop();
        let mut planes = self.planes;
        for (index, plane) in planes.iter_mut().enumerate().take(self.format.plane_count()) {
            // Both are even, so that chroma and mosaics begin there.
            let row = if index == 0 { y as usize } else { y as usize / self.format.rows_per_chroma_row() };
            let offset = row * plane.pitch_bytes + self.format.row_bytes(index, x);
            plane.bytes = plane.bytes.get(offset..).unwrap_or(&[]);
            plane.device = plane.device.map(|first| first.offset(offset));
        }
        Ok(Self { width, height, planes, view, ..*self })
    }

    /// Returns this frame turned and mirrored, for the preprocess: see [`FrameView::viewed`].
    ///
    /// # Errors
    /// This is a view already.
    pub fn turned(&self, orientation: Orientation) -> Result<Self, FrameError> {
        let view = View::new((self.width, self.height), [0, 0, self.width, self.height], orientation);
        view.map_or(Ok(*self), |view| self.viewed(view))
    }

    /// Returns the part of the frame that this is, and how it is seen.
    pub fn view(&self) -> View {
        self.view
    }

    /// Returns the map from the samples of a grey frame to bytes.
    pub(crate) fn level_map(&self) -> LevelMap {
        let bits = self.format.sample_depth().unwrap_or_default().bits();
        self.color.levels.unwrap_or(GreyLevels::full(bits)).map()
    }

    /// Whether the host can read the bytes. If not, only work on the GPU can, and [`on_host`](Self::on_host).
    pub fn is_on_host(&self) -> bool {
        self.surface.is_none()
    }

    /// Returns a view that the host can read: this one, or one of a copy that is made in `copy`.
    ///
    /// # Errors
    /// CUDA cannot copy from the GPU.
    pub fn on_host<'b>(&self, copy: &'b mut Vec<u8>) -> Result<FrameView<'b>, FrameCopyError>
    where
        'a: 'b,
    {
        let Some((surface, layout)) = self.surface else { return Ok(*self) };
        surface.copy_to(copy)?;
        Ok(layout.view(copy)?.viewed(self.view)?)
    }

    /// Returns the planes.
    pub fn planes(&self) -> &[Plane<'a>] {
        &self.planes[..self.format.plane_count()]
    }

    /// Whether GPU work on the frame must be between [`attach`](Self::attach) and [`detach`](Self::detach): see
    /// [`UnifiedBuffer::needs_attaching`].
    pub fn needs_attaching(&self) -> bool {
        self.buffer.is_some_and(UnifiedBuffer::needs_attaching)
    }

    /// Attaches the frame's bytes to `stream`, for work that is queued from now on, and makes that work wait until they are there;
    /// does nothing if neither is needed.
    ///
    /// # Safety
    /// As [`UnifiedBuffer::attach`]: the host does not access the bytes until they were detached.
    pub unsafe fn attach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        if let Some((surface, _)) = self.surface {
            surface.await_on(stream)?;
        }
        // SAFETY: the caller's promise.
        self.buffer.map_or(Ok(()), |buffer| unsafe { buffer.attach(stream) })
    }

    /// Returns the frame's bytes to the host when `stream` reaches this point; does nothing if they were not attached.
    pub fn detach(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.buffer.map_or(Ok(()), |buffer| buffer.detach(stream))
    }
}

/// Checks the size, the number of planes and their pitches.
fn check_planes(
    format: PixelFormat,
    width: u32,
    height: u32,
    pitches_bytes: impl ExactSizeIterator<Item = usize>,
) -> Result<(), FrameError> {
    let (sides, expected, found) = (1..=MAX_SIDE, format.plane_count(), pitches_bytes.len());
    if !sides.contains(&width) || !sides.contains(&height) {
        return Err(FrameError(format!(
            "a frame of {width}x{height} is out of range: each side must be 1 to {MAX_SIDE} pixels"
        )));
    }
    if found != expected {
        return Err(FrameError(format!("{format} has {expected} planes, not {found}")));
    }
    for (plane, pitch) in pitches_bytes.enumerate() {
        let row = format.row_bytes(plane, width);
        if pitch < row {
            return Err(FrameError(format!(
                "{format} {width} pixels wide needs a pitch of at least {row} bytes in plane {plane}, not {pitch}"
            )));
        }
        let most = MAX_BYTES / format.plane_rows(plane, height);
        if pitch > most {
            return Err(FrameError(format!(
                "a pitch of {pitch} bytes in plane {plane} is out of range: it must be at most {most} bytes"
            )));
        }
    }
    Ok(())
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
        assert!(error.contains("plane 1") && error.contains("needs 8 bytes but has 7"), "{error}");
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
        assert!(of(&[at(0, 8), at(100, 4)]).unwrap_err().to_string().contains("3 planes, not 2"));
        assert!(of(&[at(0, 8), at(100, 1), at(200, 4)]).unwrap_err().to_string().contains("plane 1"));
    }

    #[test]
    fn what_would_overflow_is_refused() {
        let color = ColorDescription::default();
        for side in [0, MAX_SIDE + 1, 65_500, 99_999_999, u32::MAX] {
            for (width, height) in [(side, 4), (4, side), (side, side)] {
                let error = FrameLayout::packed(PixelFormat::I420, width, height, color).unwrap_err().to_string();
                assert!(error.contains("each side must be 1 to 16384 pixels"), "{error}");
            }
        }
        for pitch in [MAX_BYTES, usize::MAX / 4, usize::MAX] {
            let bytes = [0; 64];
            let plane = Plane { bytes: &bytes, pitch_bytes: pitch, device: None };
            assert!(FrameLayout::with_pitches(PixelFormat::Nv12, 4, 4, &[8, pitch], color).is_err());
            assert!(FrameView::new(PixelFormat::Grey, 4, 4, &[plane], color).is_err());
            let place = PlaneLayout { offset_bytes: 0, pitch_bytes: pitch };
            assert!(FrameLayout::with_planes(PixelFormat::Grey, 4, 4, &[place], color).is_err());
        }
        for offset_bytes in [MAX_BYTES + 1, usize::MAX] {
            let place = PlaneLayout { offset_bytes, pitch_bytes: 4 };
            assert!(FrameLayout::with_planes(PixelFormat::Grey, 4, 4, &[place], color).is_err());
        }
    }

    #[test]
    fn the_last_row_needs_no_padding() {
        let layout = FrameLayout::with_pitches(PixelFormat::Grey, 3, 2, &[8], ColorDescription::default()).unwrap();
        assert!(layout.view(&[0; 11]).is_ok());
        assert!(layout.view(&[0; 10]).is_err());
    }
}
