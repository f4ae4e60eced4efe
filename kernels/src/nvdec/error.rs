//! Why the GPU cannot decode a video.

use super::kind::VideoKind;
use crate::cuda::CudaError;

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
    #[error("the GPU's video engine does not decode {0}: set the camera to 8 bits of 4:2:0")]
    Kind(VideoKind),
    /// The library reports a chroma format that is not in NVIDIA's headers.
    #[error("the video has a sampling of chroma that is unknown here ({0}): set the camera to 4:2:0")]
    Chroma(i32),
    /// The picture is too small or too large.
    #[error(
        "the GPU's video engine decodes {kind} from {least} to {most}, and the video has {width}x{height}: set the camera to another \
         size"
    )]
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
    /// The parser found no format in the data at the decoder's start.
    #[error("NVDEC finds no picture in the stream's first key frame: restart the camera, or set it to another codec")]
    NoPicture,
    /// A coded unit has more pictures than this.
    #[error("a unit of the stream has more than {0} pictures: restart the camera, or set `decoder` to \"ffmpeg\"")]
    ManyPictures(u32),
    /// The caller rejects pictures of this size, with the reason.
    #[error("{0}")]
    Refused(String),
    /// The stream's parameters differ from those that the decoder was created for.
    #[error("the stream has other parameters now: the decoder must be made again")]
    OtherParameters,
    /// A call of the library failed; the results are CUDA's.
    #[error("{} failed ({}){}", .0.call, .0.code, remedy(.0.code))]
    Call(#[source] CudaError),
    /// A call of CUDA failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Our own code failed while the library called it.
    #[error("visiond failed in a callback of the video parser: please report this")]
    Callback,
}

/// Returns the remedy for a result, if known.
fn remedy(code: u32) -> &'static str {
    match code {
        2 => ": the GPU has too little memory for another decoder",
        100 | 101 => ": no video engine is free",
        _ => "",
    }
}
