//! The formats that the GPU's video engines decode.

use std::sync::Arc;

use super::abi;
use super::error::NvdecError;
use super::kind::{Chroma, VideoKind};
use super::library::Library;
use crate::cuda::Device;

/// The limits of a GPU's video engines for one kind of video.
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

/// Returns the GPU's limits for this kind; `None` if it does not decode it into NV12, or P016 for more than 8 bits.
///
/// # Errors
/// NVIDIA's library is missing, too old or fails.
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
    // Surfaces without chroma would not be NV12.
    let is_supported = kind.chroma != Chroma::Monochrome
        && caps.is_supported != 0
        && caps.output_formats & (1 << kind.surface_number()) != 0;
    Ok(is_supported.then(|| VideoLimits {
        least: (caps.min_width.into(), caps.min_height.into()),
        most: (caps.max_width, caps.max_height),
        most_macroblocks: caps.max_macroblocks,
        engines: caps.decoders.into(),
    }))
}
