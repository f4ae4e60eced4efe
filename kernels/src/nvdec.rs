//! Decoding of H.264 and H.265 by the GPU's video engine, through NVIDIA's NVDECODE API, opened at run time.
//!
//! A [`VideoDecoder`] takes coded pictures and gives [`Picture`]s in the order of their display. A picture's [`Surface`] is NV12,
//! or P016 for more than 8 bits, in the GPU's memory, where the preprocess reads it. The surface goes back to its decoder when it is dropped.
//!
//! `abi` has NVIDIA's structs, `library` the functions; only `decoder` calls them.

mod abi;
mod decoder;
mod library;

use std::fmt;
use std::sync::Arc;

pub use self::decoder::{Accept, Picture, Showing, Surface, VideoDecoder, VideoFormat};
use self::library::Library;
use crate::cuda::{CudaError, Device, DeviceError};

/// A codec that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoCodec {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    H265,
}

impl VideoCodec {
    const fn number(self) -> i32 {
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

/// How a picture's chroma was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chroma {
    /// None: luma alone.
    Monochrome,
    /// Half the rows and columns.
    Yuv420,
    /// Half the columns.
    Yuv422,
    /// Each pixel.
    Yuv444,
}

impl Chroma {
    fn of(number: i32) -> Option<Self> {
        Some(match number {
            abi::CHROMA_MONOCHROME => Self::Monochrome,
            abi::CHROMA_420 => Self::Yuv420,
            abi::CHROMA_422 => Self::Yuv422,
            abi::CHROMA_444 => Self::Yuv444,
            _ => return None,
        })
    }

    const fn number(self) -> i32 {
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

/// A kind of video: what decides whether a decoder takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoKind {
    /// The codec.
    pub codec: VideoCodec,
    /// The sampling of chroma.
    pub chroma: Chroma,
    /// The bits of a sample.
    pub bits: u32,
}

impl VideoKind {
    /// Returns the bytes of a sample in a surface. More than 8 bits stand in the upper bits of two bytes (P016).
    pub const fn sample_bytes(self) -> usize {
        if self.bits > 8 { 2 } else { 1 }
    }

    const fn surface_number(self) -> i32 {
        if self.bits > 8 { abi::SURFACE_P016 } else { abi::SURFACE_NV12 }
    }
}

impl fmt::Display for VideoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bits, {}", self.codec, self.bits, self.chroma)
    }
}

/// What a GPU's video engines decode of one kind of video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoLimits {
    /// The least width and height of the coded picture.
    pub least: (u32, u32),
    /// The largest width and height of the coded picture.
    pub most: (u32, u32),
    /// The most blocks of 16x16 pixels.
    pub most_macroblocks: u32,
    /// The engines that can decode it; 0 if the driver does not say.
    pub engines: u32,
}

/// Returns what the GPU decodes of this kind; `None` if it does not decode it into NV12, or P016 for more than 8 bits.
///
/// # Errors
/// NVIDIA's library is missing, too old or refuses.
pub fn limits(device: &Arc<Device>, kind: VideoKind) -> Result<Option<VideoLimits>, NvdecError> {
    let library = Library::get()?;
    device.bind()?;
    let mut caps = abi::DecodeCaps {
        codec: kind.codec.number(),
        chroma: kind.chroma.number(),
        bit_depth_minus_8: kind.bits.saturating_sub(8),
        ..abi::DecodeCaps::default()
    };
    // SAFETY: `caps` outlives the call; the context is current.
    unsafe { library.decoder_caps(&mut caps) }?;
    let is_supported = caps.is_supported != 0 && caps.output_formats & (1 << kind.surface_number()) != 0;
    Ok(is_supported.then(|| VideoLimits {
        least: (caps.min_width.into(), caps.min_height.into()),
        most: (caps.max_width, caps.max_height),
        most_macroblocks: caps.max_macroblocks,
        engines: caps.decoders.into(),
    }))
}

/// Why the GPU cannot decode a video.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvdecError {
    /// The library is missing.
    #[error(
        "no NVDEC: {reason}; it comes with the driver's video libraries (libnvidia-decode; in a container \
         NVIDIA_DRIVER_CAPABILITIES must name `video`)"
    )]
    NoLibrary {
        /// The loader's own message.
        reason: String,
    },
    /// The library has no such function.
    #[error("no NVDEC: libnvcuvid.so.1 has no {0}: update NVIDIA's driver")]
    TooOld(&'static str),
    /// The GPU does not decode this kind of video.
    #[error("the GPU's video engine does not decode {0}")]
    Kind(VideoKind),
    /// The library reports a sampling of chroma that NVIDIA's headers do not have.
    #[error("the video has a sampling of chroma that is unknown here ({0})")]
    Chroma(i32),
    /// The picture is too small or too large.
    #[error("the GPU's video engine decodes {kind} from {least} to {most}, and the video has {width}x{height}")]
    Size {
        /// The kind of video.
        kind: VideoKind,
        /// The smallest picture.
        least: String,
        /// The largest picture.
        most: String,
        /// The coded width.
        width: u32,
        /// The coded height.
        height: u32,
    },
    /// The parser found no format in the data that a decoder begins with.
    #[error("NVDEC finds no picture in the stream's first key frame")]
    NoPicture,
    /// The caller refuses pictures of this size, and says why.
    #[error("{0}")]
    Refused(String),
    /// The stream has other parameters than the decoder was made for.
    #[error("the stream has other parameters now")]
    OtherParameters,
    /// A call of the library failed.
    #[error("{call} failed ({code}){}", remedy(*.code))]
    Call {
        /// The function.
        call: &'static str,
        /// The result, as in cuda.h.
        code: u32,
    },
    /// A call of CUDA failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The GPU cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Our own code failed while the library called it.
    #[error("visiond failed in a callback of the video parser: please report this")]
    Callback,
}

impl NvdecError {
    /// Whether the process has lost the GPU: see [`CudaError::is_sticky`].
    pub fn is_sticky(&self) -> bool {
        match self {
            Self::Call { code, .. } => CudaError { call: "", code: *code, name: String::new() }.is_sticky(),
            Self::Cuda(error) => error.is_sticky(),
            _ => false,
        }
    }
}

/// Returns what to do about a result, if known.
fn remedy(code: u32) -> &'static str {
    match code {
        2 => ": the GPU has too little memory for another decoder",
        100 | 101 => ": no video engine is free",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
