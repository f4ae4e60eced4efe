//! The structs and constants of NVIDIA's cuviddec.h and nvcuvid.h that are used here, field by field.
//!
//! Their sizes and offsets are the same in the headers of Video Codec SDK 11.1 and 12.1, compiled for 64-bit Linux, and asserted
//! below. The parameters of a picture (`CUVIDPICPARAMS`, 4280 bytes) go from the parser to the decoder unread.

use std::ffi::{c_int, c_short, c_uint, c_ulong, c_ulonglong, c_void};

pub type ParserHandle = *mut c_void;
pub type DecoderHandle = *mut c_void;

/// `cudaVideoCodec`.
pub const CODEC_H264: c_int = 4;
pub const CODEC_HEVC: c_int = 8;

/// `cudaVideoChromaFormat`.
pub const CHROMA_MONOCHROME: c_int = 0;
pub const CHROMA_420: c_int = 1;
pub const CHROMA_422: c_int = 2;
pub const CHROMA_444: c_int = 3;

/// `cudaVideoSurfaceFormat`.
pub const SURFACE_NV12: c_int = 0;
pub const SURFACE_P016: c_int = 1;

/// `cudaVideoDeinterlaceMode`.
pub const DEINTERLACE_WEAVE: c_int = 0;
pub const DEINTERLACE_ADAPTIVE: c_int = 2;

/// `cudaVideoCreate_PreferCUVID`.
pub const CREATE_PREFER_CUVID: c_ulong = 4;

/// `CUvideopacketflags`.
pub const PACKET_END_OF_STREAM: c_ulong = 0x01;
pub const PACKET_TIMESTAMP: c_ulong = 0x02;
pub const PACKET_END_OF_PICTURE: c_ulong = 0x08;

/// `cuvidDecodeStatus`.
pub const STATUS_IN_PROGRESS: c_int = 1;
pub const STATUS_ERROR: c_int = 8;
pub const STATUS_ERROR_CONCEALED: c_int = 9;

/// `CUVIDDECODECAPS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeCaps {
    pub codec: c_int,
    pub chroma: c_int,
    pub bit_depth_minus_8: c_uint,
    pub reserved1: [c_uint; 3],
    pub is_supported: u8,
    pub decoders: u8,
    pub output_formats: u16,
    pub max_width: c_uint,
    pub max_height: c_uint,
    pub max_macroblocks: c_uint,
    pub min_width: u16,
    pub min_height: u16,
    pub reserved2: [c_uint; 11],
}

/// A rectangle of `CUVIDDECODECREATEINFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ShortRect {
    pub left: c_short,
    pub top: c_short,
    pub right: c_short,
    pub bottom: c_short,
}

/// `CUVIDDECODECREATEINFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CreateInfo {
    pub width: c_ulong,
    pub height: c_ulong,
    pub decode_surfaces: c_ulong,
    pub codec: c_int,
    pub chroma: c_int,
    pub flags: c_ulong,
    pub bit_depth_minus_8: c_ulong,
    pub intra_only: c_ulong,
    pub max_width: c_ulong,
    pub max_height: c_ulong,
    pub reserved1: c_ulong,
    pub display_area: ShortRect,
    pub output_format: c_int,
    pub deinterlace: c_int,
    pub target_width: c_ulong,
    pub target_height: c_ulong,
    pub output_surfaces: c_ulong,
    pub lock: *mut c_void,
    pub target_area: ShortRect,
    pub histogram: c_ulong,
    pub reserved2: [c_ulong; 4],
}

/// `CUVIDPROCPARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MapInfo {
    pub progressive_frame: c_int,
    pub second_field: c_int,
    pub top_field_first: c_int,
    pub unpaired_field: c_int,
    pub reserved1: [c_uint; 2],
    pub raw_input: [c_ulonglong; 2],
    pub raw_output: [c_ulonglong; 2],
    pub stream: *mut c_void,
    pub reserved2: [c_uint; 46],
    pub histogram: *mut c_ulonglong,
    pub reserved3: *mut c_void,
}

/// `CUVIDGETDECODESTATUS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DecodeStatus {
    pub status: c_int,
    pub reserved1: [c_uint; 31],
    pub reserved2: [*mut c_void; 8],
}

/// `CUVIDEOFORMAT`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct VideoFormat {
    pub codec: c_int,
    pub frame_rate: [c_uint; 2],
    pub progressive_sequence: u8,
    pub bit_depth_luma_minus_8: u8,
    pub bit_depth_chroma_minus_8: u8,
    pub min_decode_surfaces: u8,
    pub coded_width: c_uint,
    pub coded_height: c_uint,
    /// Left, top, right, bottom.
    pub display_area: [c_int; 4],
    pub chroma: c_int,
    pub bitrate: c_uint,
    pub aspect_ratio: [c_int; 2],
    /// Bits 0 to 2 the video format, bit 3 the full range.
    pub signal: u8,
    pub primaries: u8,
    pub transfer: u8,
    pub matrix: u8,
    pub sequence_header_bytes: c_uint,
}

/// `CUVIDSOURCEDATAPACKET`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SourcePacket {
    pub flags: c_ulong,
    pub payload_bytes: c_ulong,
    pub payload: *const u8,
    pub timestamp: i64,
}

/// `CUVIDPARSERDISPINFO`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DisplayInfo {
    pub picture_index: c_int,
    pub progressive_frame: c_int,
    pub top_field_first: c_int,
    pub repeat_first_field: c_int,
    pub timestamp: i64,
}

/// The first members of `CUVIDPICPARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PictureStart {
    pub width_in_macroblocks: c_int,
    pub height_in_macroblocks: c_int,
    pub picture_index: c_int,
    pub field_pic_flag: c_int,
    pub bottom_field_flag: c_int,
    pub second_field: c_int,
}

/// `CUVIDPARSERPARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ParserInfo {
    pub codec: c_int,
    pub max_decode_surfaces: c_uint,
    pub clock_rate_hz: c_uint,
    pub error_threshold: c_uint,
    pub max_display_delay: c_uint,
    pub reserved1: [c_uint; 5],
    pub user: *mut c_void,
    pub sequence: Option<unsafe extern "C" fn(*mut c_void, *mut VideoFormat) -> c_int>,
    pub decode: Option<unsafe extern "C" fn(*mut c_void, *mut PictureStart) -> c_int>,
    pub display: Option<unsafe extern "C" fn(*mut c_void, *mut DisplayInfo) -> c_int>,
    pub reserved2: [*mut c_void; 8],
}

/// Asserts a struct's size, and the offsets of some members.
macro_rules! layout {
    ($($name:ident: $size:literal { $($member:ident: $offset:literal),* })*) => {
        $(const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $member) == $offset);)*
        };)*
    };
}

layout! {
    DecodeCaps: 88 { is_supported: 24, output_formats: 26, max_width: 28, max_macroblocks: 36, min_width: 40 }
    CreateInfo: 176 {
        codec: 24, flags: 32, bit_depth_minus_8: 40, display_area: 80, output_format: 88, target_width: 96,
        output_surfaces: 112, lock: 120, target_area: 128
    }
    MapInfo: 264 { raw_input: 24, stream: 56 }
    DecodeStatus: 192 {}
    VideoFormat: 64 {
        progressive_sequence: 12, bit_depth_luma_minus_8: 13, min_decode_surfaces: 15, coded_width: 16,
        display_area: 24, chroma: 40, signal: 56, sequence_header_bytes: 60
    }
    SourcePacket: 32 { payload: 16, timestamp: 24 }
    DisplayInfo: 24 { timestamp: 16 }
    PictureStart: 24 { picture_index: 8, second_field: 20 }
    ParserInfo: 136 { max_display_delay: 16, user: 40, display: 64 }
}
