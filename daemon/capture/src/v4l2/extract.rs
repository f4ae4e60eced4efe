//! Turns a filled buffer into a frame's bytes: in place, copied, or decoded.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use v4l::v4l_sys as sys;
use visiond_config::types::IoMode;
use visiond_frames::coded_ring::{CodedFrame, CodedRing};
use visiond_frames::frame::{FrameBytes, FramePool};
use visiond_kernels::frame::{FrameError, FrameLayout};
use visiond_kernels::jpeg::JpegDecoder;

use super::device::MAX_MEMORY_PLANES;
use super::format_negotiation::FrameData;
use super::planes::Planes;
use super::stream::ioctl::Used;
use super::stream::{FilledBuffer, Stream};
use crate::buffers::Buffers;
use crate::source::SourceError;

pub(super) struct FrameExtractor {
    method: ExtractMethod,
    /// The layout of every frame whose pixels start where its memory does.
    layout: FrameLayout,
    copied_bytes: u64,
}

enum ExtractMethod {
    /// The frame stays in the driver's buffer or, with a pool, is copied once.
    Raw(Planes, [usize; MAX_MEMORY_PLANES], Option<FramePool>),
    /// The frame is a JPEG, which is decoded.
    Decoded(FramePool, JpegDecoder),
}

/// Why a buffer has no usable frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("the driver marks it as damaged")]
    Marked,
    #[error("it is empty")]
    Empty,
    #[error("it has {found} bytes of {needed}")]
    Short { found: usize, needed: usize },
    /// The JPEG cannot be decoded.
    #[error("{0}")]
    Undecodable(String),
}

impl Damage {
    /// Returns the error of a camera that has sent nothing but such frames for `timeout`.
    pub fn lasting(&self, device: &Path, timeout: Duration) -> SourceError {
        let why = match self {
            Self::Marked => {
                "the driver marks every frame as damaged: `dmesg` has its reason (on a Jetson, lines with `corr_err` or \
                 `discarding frame`); check the cable, and lanes, clock and mode of the sensor in its device tree"
                    .to_owned()
            }
            Self::Undecodable(_) => {
                format!("no JPEG can be decoded ({self}): check the cable and the USB hub, or set another `format` or size")
            }
            Self::Empty | Self::Short { .. } => {
                format!("every frame is damaged ({self}): check the cable and the USB hub, or set a smaller size or rate")
            }
        };
        let (device, seconds) = (device.display(), timeout.as_secs_f64());
        SourceError::transient(format!("no usable frame from {device} for {seconds} s: {why}"))
    }
}

/// A frame's layout and bytes; `None` if every buffer is in use.
pub(super) type Extracted = Result<Option<(FrameLayout, FrameBytes)>, Damage>;

impl FrameExtractor {
    /// Creates the extractor of frames from `stream`.
    pub fn new(
        data: &FrameData,
        mode: IoMode,
        stream: &Stream,
        buffers: &Buffers,
        device: &Path,
    ) -> Result<Self, SourceError> {
        let wrong = |what: String| SourceError::permanent(format!("{}: {what}", device.display()));
        let described = |error: FrameError| wrong(format!("the driver describes its frames wrongly: {error}"));
        let (method, layout) = match data {
            FrameData::Jpeg(layout) => {
                (ExtractMethod::Decoded(buffers.pool(layout.size_bytes())?, JpegDecoder::new()), *layout)
            }
            FrameData::Raw(planes) => {
                let memory = stream.memory_planes().ok_or_else(|| wrong("the driver has no buffers".to_owned()))?;
                for index in 0..planes.memory_count() {
                    let (found, needed) = (memory.lengths[index], planes.needed_bytes(index));
                    if found < needed {
                        return Err(wrong(format!(
                            "the driver's buffers have {found} bytes, too few for the {needed} bytes of a frame as it describes them"
                        )));
                    }
                }
                let starts = memory.starts;
                let layout = planes.layout(&starts).map_err(described)?;
                let pool = match mode {
                    IoMode::Copy => Some(buffers.pool(layout.size_bytes())?),
                    IoMode::Userptr | IoMode::Mmap => None,
                };
                (ExtractMethod::Raw(*planes, starts, pool), layout)
            }
        };
        Ok(Self { method, layout, copied_bytes: 0 })
    }

    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Returns the frame. Gives the buffer back unless the frame stays in it; the outer error is the driver's if it does not
    /// take the buffer back.
    ///
    /// A JPEG that can be decoded is copied into the ring as well, if there is one, with its time.
    pub fn take(
        &mut self,
        stream: &mut Stream,
        filled: FilledBuffer,
        coded: Option<(&CodedRing, Duration)>,
    ) -> io::Result<Extracted> {
        let taken = match &mut self.method {
            ExtractMethod::Raw(planes, starts, pool) => match (whole(stream, &filled, planes), pool) {
                (Err(damage), _) => Err(damage),
                (Ok(()), None) => {
                    let layout = shifted(planes, starts, &filled.used).unwrap_or(self.layout);
                    return Ok(Ok(stream.lend(filled).map(|lent| (layout, FrameBytes::Driver(lent)))));
                }
                (Ok(()), Some(pool)) => Ok(pool.take().map(|mut buffer| {
                    self.copied_bytes += copy(stream, &filled, planes, starts, buffer.as_mut_slice()) as u64;
                    (self.layout, buffer.into())
                })),
            },
            ExtractMethod::Decoded(pool, jpeg) => match pool.take() {
                Some(mut buffer) => {
                    let decoded =
                        decode(stream.bytes(&filled, 0), filled.flags, &self.layout, jpeg, buffer.as_mut_slice());
                    if let (Ok(()), Some((ring, time))) = (&decoded, coded) {
                        ring.push(CodedFrame::jpeg(Arc::new(stream.bytes(&filled, 0).to_vec()), time));
                    }
                    decoded.map(|()| Some((self.layout, buffer.into())))
                }
                None => Ok(None),
            },
        };
        stream.give_back(filled)?;
        Ok(taken)
    }
}

/// Returns the layout of a frame whose pixels start after the start of its memory; `None` if it does not, or the offset is
/// invalid.
fn shifted(
    planes: &Planes,
    starts: &[usize; MAX_MEMORY_PLANES],
    used: &[Used; MAX_MEMORY_PLANES],
) -> Option<FrameLayout> {
    if used.iter().all(|used| used.start == 0) {
        return None;
    }
    planes.layout(&std::array::from_fn(|memory| starts[memory] + used[memory].start)).ok()
}

/// Checks that a buffer holds a whole raw frame.
fn whole(stream: &Stream, filled: &FilledBuffer, planes: &Planes) -> Result<(), Damage> {
    undamaged(filled.flags)?;
    for memory in 0..planes.memory_count() {
        let (found, needed) = (stream.bytes(filled, memory).len(), planes.needed_bytes(memory));
        if found == 0 {
            return Err(Damage::Empty);
        }
        if found < needed {
            return Err(Damage::Short { found, needed });
        }
    }
    Ok(())
}

/// Copies the memory planes of a whole frame to `starts` in `out`; returns how many bytes they have.
fn copy(
    stream: &Stream,
    filled: &FilledBuffer,
    planes: &Planes,
    starts: &[usize; MAX_MEMORY_PLANES],
    out: &mut [u8],
) -> usize {
    let mut copied = 0;
    for (memory, &start) in starts.iter().enumerate().take(planes.memory_count()) {
        let needed = planes.needed_bytes(memory);
        let from = stream.bytes(filled, memory).get(..needed);
        let to = out.get_mut(start..start + needed);
        if let (Some(from), Some(to)) = (from, to) {
            to.copy_from_slice(from);
            copied += needed;
        }
    }
    copied
}

pub(super) fn decode(
    bytes: &[u8],
    flags: u32,
    layout: &FrameLayout,
    jpeg: &mut JpegDecoder,
    out: &mut [u8],
) -> Result<(), Damage> {
    undamaged(flags)?;
    if bytes.is_empty() {
        return Err(Damage::Empty);
    }
    jpeg.decode_shared(bytes, layout, out).map_err(|error| Damage::Undecodable(error.to_string()))
}

fn undamaged(flags: u32) -> Result<(), Damage> {
    if flags & sys::V4L2_BUF_FLAG_ERROR != 0 { Err(Damage::Marked) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::color::ColorDescription;
    use visiond_kernels::frame::PixelFormat;

    use super::super::device::PixFormat;
    use super::super::stream::tests::{filled, stream};
    use super::*;

    #[test]
    fn a_raw_picture_that_is_marked_empty_or_short_is_damaged() {
        let pix = PixFormat { width: 64, height: 64, fourcc: *b"GREY", memory_count: 1, ..PixFormat::default() };
        let planes = Planes::new(&pix, PixelFormat::Grey, ColorDescription::default()).unwrap();
        // The buffers have 4096 bytes.
        let (stream, mut buffer) = (stream(1), filled(0));
        let damage = |buffer: &FilledBuffer| whole(&stream, buffer, &planes).map_err(|damage| damage.to_string());
        assert_eq!(damage(&buffer), Err("it is empty".to_owned()));
        buffer.used[0] = Used { start: 0, end: 4096 };
        assert_eq!(damage(&buffer), Ok(()));
        buffer.used[0] = Used { start: 0, end: 4095 };
        assert_eq!(damage(&buffer), Err("it has 4095 bytes of 4096".to_owned()));
        buffer.used[0] = Used { start: 1, end: 4096 };
        assert_eq!(damage(&buffer), Err("it has 4095 bytes of 4096".to_owned()));
        buffer.used[0] = Used { start: 0, end: 4096 };
        buffer.flags = sys::V4L2_BUF_FLAG_ERROR | sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
        assert_eq!(damage(&buffer), Err("the driver marks it as damaged".to_owned()));
        buffer.flags = sys::V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
        assert_eq!(damage(&buffer), Ok(()));
    }
}
