//! `[ffmpeg]`: the programs that decode videos and streams.

use std::path::PathBuf;

use super::MIB;
use crate::kinds::{flag, program, size};
use crate::table_macros::section;

section! {
    /// The table `[ffmpeg]`.
    pub struct FfmpegConfig {
        /// The ffmpeg program; ffprobe must be in the same folder.
        program: PathBuf as program() => default(PathBuf::from("ffmpeg")),
        /// Confine ffmpeg and ffprobe: they can read the system files that every user can read, and write nothing. For "rtsp" they
        /// use neither the network nor devices. For "video" they also read the video and files in `input_args`, use the
        /// network for a URL or with `input_args`, and use devices if `input_args` name an accelerator or decoder. Set
        /// `false` if your ffmpeg requires more.
        confined: bool as flag() => default(true),
        /// Maximum memory of each ffmpeg and ffprobe, so that a hostile video cannot use up the memory. 4K takes up to 400
        /// MiB, 8K up to 1 GiB. It has no effect if `confined` is `false` or they use devices.
        max_memory_bytes: u64 as size(16 * MIB..=1 << 40) => default(1 << 30),
    }
}
