//! Kinds of video: codec, chroma sampling, bit depth.

use std::fmt;

use super::abi;

/// A codec that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoCodec {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    H265,
}

impl VideoCodec {
    pub(super) const fn number(self) -> i32 {
        match self {
            Self::H264 => abi::CODEC_H264,
            Self::H265 => abi::CODEC_HEVC,
        }
    }
}

impl fmt::Display for VideoCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H264 => "H.264",
            Self::H265 => "H.265",
        })
    }
}

/// A picture's chroma sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chroma {
    /// No chroma: luma only.
    Monochrome,
    /// Half the rows and columns.
    Yuv420,
    /// Half the columns.
    Yuv422,
    /// Each pixel.
    Yuv444,
}

impl Chroma {
    pub(super) fn of(number: i32) -> Option<Self> {
        Some(match number {
            abi::CHROMA_MONOCHROME => Self::Monochrome,
            abi::CHROMA_420 => Self::Yuv420,
            abi::CHROMA_422 => Self::Yuv422,
            abi::CHROMA_444 => Self::Yuv444,
            _ => return None,
        })
    }

    pub(super) const fn number(self) -> i32 {
        match self {
            Self::Monochrome => abi::CHROMA_MONOCHROME,
            Self::Yuv420 => abi::CHROMA_420,
            Self::Yuv422 => abi::CHROMA_422,
            Self::Yuv444 => abi::CHROMA_444,
        }
    }
}

impl fmt::Display for Chroma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Monochrome => "4:0:0",
            Self::Yuv420 => "4:2:0",
            Self::Yuv422 => "4:2:2",
            Self::Yuv444 => "4:4:4",
        })
    }
}

/// A kind of video: the properties that decide whether a decoder supports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoKind {
    /// H.264 or H.265.
    pub codec: VideoCodec,
    /// The sampling of chroma.
    pub chroma: Chroma,
    /// The bits of a sample.
    pub bits: u32,
}

impl VideoKind {
    /// Returns the bytes of a sample in a surface. Samples of more than 8 bits are in the upper bits of two bytes (P016).
    pub const fn sample_bytes(self) -> usize {
        if self.bits > 8 { 2 } else { 1 }
    }

    pub(super) const fn surface_number(self) -> i32 {
        if self.bits > 8 { abi::SURFACE_P016 } else { abi::SURFACE_NV12 }
    }
}

impl fmt::Display for VideoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bits, {}", self.codec, self.bits, self.chroma)
    }
}
