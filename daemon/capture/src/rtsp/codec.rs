//! The codecs of network cameras.

/// A codec of network cameras.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    H264,
    H265,
    Jpeg,
}

impl Codec {
    /// Returns the codec by its name in SDP.
    pub fn of_encoding(name: &str) -> Option<Self> {
        match name {
            "h264" => Some(Self::H264),
            "h265" => Some(Self::H265),
            "jpeg" => Some(Self::Jpeg),
            _ => None,
        }
    }

    /// Returns ffmpeg's name of the codec's bitstream.
    pub const fn demuxer(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::H265 => "hevc",
            Self::Jpeg => "mjpeg",
        }
    }

    /// Returns the access unit delimiter in Annex B. It ends the unit before it: without it, a decoder learns that a unit is over
    /// only from the next one, a frame interval later.
    pub const fn delimiter(self) -> &'static [u8] {
        match self {
            Self::H264 => &[0, 0, 0, 1, 0x09, 0xF0],
            Self::H265 => &[0, 0, 0, 1, 0x46, 0x01, 0x50],
            // A picture has an end.
            Self::Jpeg => &[],
        }
    }
}
