//! The codecs of network cameras.

/// A codec of network cameras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// AVC, by RFC 6184.
    H264,
    /// HEVC, by RFC 7798.
    H265,
    /// By RFC 2435.
    Jpeg,
}

impl Codec {
    /// Returns ffmpeg's name of the codec's bitstream.
    pub const fn demuxer(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "hevc",
            Self::Jpeg => "mjpeg",
        }
    }

    /// Returns the access unit delimiter in Annex B. It ends the previous unit: without it, a decoder notices the end of a
    /// unit only at the next one, a frame interval later.
    pub const fn delimiter(self) -> &'static [u8] {
        match self {
            Self::H264 => &[0, 0, 0, 1, 0x09, 0xF0],
            Self::H265 => &[0, 0, 0, 1, 0x46, 0x01, 0x50],
            // A frame has an end.
            Self::Jpeg => &[],
        }
    }
}
