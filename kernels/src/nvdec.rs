//! Decodes H.264 and H.265 on the GPU's video engine, through NVIDIA's NVDECODE API, opened at run time.
//!
//! A [`VideoDecoder`] takes coded pictures and returns [`Picture`]s in display order. A picture's [`Surface`] is NV12, or P016 for
//! more than 8 bits, in the GPU's memory, where the preprocess reads it. Dropping a surface returns it to its decoder.
//!
//! `abi` has NVIDIA's structs and `library` the functions; only `decoder` calls them.

mod abi;
mod decode_time;
mod decoder;
mod error;
mod kind;
mod library;
mod limits;

pub use self::decoder::{Accept, Picture, Showing, Surface, VideoDecoder, VideoFormat, leave_decoders_to_the_end};
pub use self::error::NvdecError;
pub use self::kind::{Chroma, VideoCodec, VideoKind};
pub use self::limits::{VideoLimits, limits};

#[cfg(test)]
mod tests;
