//! The kernel's arguments: the structs of kernels/cuda/preprocess_job.cuh, field by field.

use std::ops::Range;

use crate::color::{ColorDescription, LevelMap, TruncatedYuvToRgb, YuvArithmetic};
use crate::cuda::DeviceAddress;
use crate::frame::{FrameView, PixelFormat};
use crate::placement::Mapping;
use crate::preprocess::fetch::{WordLayout, words};
use crate::preprocess::number::Number;
use crate::preprocess::spec::{ChannelOrder, PreprocessSpec, Sampling, TensorLayout};
use crate::preprocess::store::Normalisation;
use crate::preprocess::taps::{Finish, Sums};
use crate::tensor::DType;
use crate::view::Orientation;

/// The adjacent pixels that a thread computes: `PIXELS` of the kernel.
pub(super) const PIXELS: u32 = 4;

/// The pixels of the tensor that a block makes where taps grow with the frame: `TILE_COLUMNS` and `TILE_ROWS` of the kernel.
pub(super) const TILE_COLUMNS: u32 = 32;
pub(super) const TILE_ROWS: u32 = 32;

/// The kernels of kernels/cuda/preprocess.cu, in their order there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Two taps, as OpenCV's resize.
    Opencv,
    /// Two taps in floats.
    Exact,
    /// Two taps, as OpenCV's warps.
    Warp,
    /// A few taps.
    Taps,
    /// Taps that grow with the frame, in Pillow's arithmetic.
    Pillow,
    /// Taps that grow with the frame, in floats.
    Antialias,
}

impl Kernel {
    /// Returns the one for a spec.
    pub(super) fn of(spec: &PreprocessSpec) -> Self {
        match spec.sampling {
            Sampling::Opencv if spec.is_plain() => Self::Opencv,
            Sampling::Exact if spec.is_plain() => Self::Exact,
            Sampling::OpencvWarp | Sampling::OpencvWarpAffine => Self::Warp,
            Sampling::PillowBilinear | Sampling::PillowBicubic => Self::Pillow,
            Sampling::TorchAntialias | Sampling::TorchAntialiasBicubic => Self::Antialias,
            _ => Self::Taps,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Opencv => "preprocess",
            Self::Exact => "preprocess_exact",
            Self::Warp => "preprocess_warp",
            Self::Taps => "preprocess_taps",
            Self::Pillow => "preprocess_pillow",
            Self::Antialias => "preprocess_antialias",
        }
    }

    /// Returns the threads per block, as the kernel declares, and the blocks per frame.
    pub(super) fn grid(self, spec: &PreprocessSpec) -> (u32, u32) {
        match self {
            Self::Opencv | Self::Exact | Self::Warp | Self::Taps => {
                (128, (spec.width.div_ceil(PIXELS) * spec.height).div_ceil(128))
            }
            Self::Pillow | Self::Antialias => {
                (256, spec.width.div_ceil(TILE_COLUMNS) * spec.height.div_ceil(TILE_ROWS))
            }
        }
    }
}

const SOURCE_WORDS: u32 = 0;
const SOURCE_SEMIPLANAR: u32 = 1;
const SOURCE_BYTES: u32 = 2;
const SOURCE_MOSAIC: u32 = 3;
const SOURCE_LEVELS: u32 = 4;

const COLOR_YUV: u32 = 0;
const COLOR_RGB: u32 = 1;
const COLOR_GREY: u32 = 2;
const COLOR_YUV_TRUNCATED: u32 = 3;

/// One component of a pixel: the address of the first pixel's, and the distances to the others.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Component {
    address: u64,
    pitch_bytes: u32,
    step_bytes: u32,
    x_shift: u32,
    y_shift: u32,
}

impl Component {
    /// Swaps columns and rows.
    fn transposed(self) -> Self {
        let Self { address, pitch_bytes, step_bytes, x_shift, y_shift } = self;
        Self { address, pitch_bytes: step_bytes, step_bytes: pitch_bytes, x_shift: y_shift, y_shift: x_shift }
    }
}

/// A table of source positions: see [`super::tables`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AxisTable {
    pub(super) entries: u64,
    pub(super) stride: u32,
    pub(super) taps: u32,
}

/// The description of one frame of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    components: [Component; 3],
    columns: AxisTable,
    rows: AxisTable,
    placed: [u32; 4],
    pub(super) source: u32,
    color: u32,
    selectors: [u32; 2],
    part_selectors: [u32; 4],
    coefficients: [u32; 8],
    width: u32,
    height: u32,
    red_x: u32,
    red_y: u32,
    sample_gain: f32,
    sample_bytes: u32,
    rules: SumRules,
    tiles: TileRules,
    mirror: u32,
    mirror_from: u32,
}

/// The tables that a run begins with copying for a frame. Without any, there are no fours.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableCopy {
    from: u64,
    to: u64,
    /// Blocks of 16 bytes.
    fours: u64,
}

impl TableCopy {
    /// Copies `words` of those at `first`.
    pub(super) fn new(words: &Range<usize>, first: DeviceAddress, to: DeviceAddress) -> Self {
        Self { from: first.offset(words.start * 4).0, to: to.0, fours: words.len() as u64 / 4 }
    }

    pub(super) fn to_bytes(self) -> [u8; COPY_BYTES] {
        let Self { from, to, fours } = self;
        let mut bytes = [0; COPY_BYTES];
        for (bytes, field) in bytes.as_chunks_mut::<8>().0.iter_mut().zip([from, to, fours]) {
            *bytes = field.to_ne_bytes();
        }
        bytes
    }
}

/// How to finish the sums of any number of taps.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SumRules {
    arithmetic: u32,
    finish: u32,
    factor: f32,
}

/// The parameters of the tile kernel in addition to the axes' tables.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TileRules {
    /// The first and the last column that taps may reach.
    pub(super) reach: [i32; 2],
    /// The words of a row of tiles in the rows' table.
    pub(super) listed_words: u32,
    /// The most fours of positions that a tile's columns need.
    pub(super) tile_fours: u32,
}

impl SumRules {
    /// Describes the sums of this sampling.
    pub(super) fn new(sums: &Sums, sampling: Sampling) -> Self {
        match *sums {
            Sums::Pillow(_) => Self { arithmetic: 0, ..Self::default() },
            Sums::Linear(_) => Self { arithmetic: 1, ..Self::default() },
            Sums::Float(_, finish) => {
                let (finish, factor) = match finish {
                    Finish::None => (0, 1.0),
                    Finish::HalfEven { factor } => (1, factor),
                    Finish::HalfUp { factor } => (2, factor),
                };
                Self { arithmetic: if sampling == Sampling::Exact { 3 } else { 2 }, finish, factor }
            }
        }
    }
}

/// The arguments of a launch other than its frames.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    out: u64,
    frames: u64,
    width: u32,
    height: u32,
    groups: u32,
    groups_reciprocal: u32,
    dtype: u32,
    planar: u32,
    channels: u32,
    reversed: u32,
    luma: u32,
    aligned: u32,
    gain: [f32; 3],
    bias: [f32; 3],
    pad: [f32; 3],
    pad_level: f32,
}

// The kernel asserts the same sizes.
const _: () = assert!(size_of::<Component>() == 24 && size_of::<AxisTable>() == 16);
const _: () = assert!(size_of::<Frame>() == FRAME_BYTES && size_of::<Job>() == 96);
const _: () = assert!(size_of::<TableCopy>() == COPY_BYTES);

/// The size of a frame's description.
pub(super) const FRAME_BYTES: usize = 248;

/// The size of a [`TableCopy`].
pub(super) const COPY_BYTES: usize = 24;

/// Threads per block, and blocks per frame, of the launch that copies descriptions and tables.
pub(super) const DESCRIBE_GRID: (u32, u32) = (128, 4);

/// The address and pitch of a frame's planes on the GPU.
pub(super) type Planes = [(DeviceAddress, usize); 3];

impl Frame {
    /// Describes a frame; `planes` has the address and the pitch of each plane of the format.
    pub(super) fn new(
        sampling: Sampling,
        frame: &FrameView<'_>,
        planes: &Planes,
        (mapping, rules, tiles): (&Mapping, SumRules, TileRules),
        [columns, rows]: [AxisTable; 2],
    ) -> Self {
        let format = frame.format();
        let color = match format {
            _ if format.is_grey() => COLOR_GREY,
            PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra | PixelFormat::Bayer(..) => {
                COLOR_RGB
            }
            _ if frame.color().arithmetic == YuvArithmetic::Ffmpeg => COLOR_YUV_TRUNCATED,
            _ => COLOR_YUV,
        };
        // The other samplings take bytes, as OpenCV's conversion makes them.
        let mut coefficients = match sampling {
            _ if color == COLOR_YUV_TRUNCATED => truncated(frame.color()),
            Sampling::Exact => f32::coefficients(frame.color(), color == COLOR_GREY),
            _ => u16::coefficients(frame.color(), color == COLOR_GREY),
        };
        if color == COLOR_GREY {
            let LevelMap { gain, bias } = frame.level_map();
            [coefficients[6], coefficients[7]] = [gain, bias].map(f32::to_bits);
        }
        let view = frame.view();
        let ((width, height), Orientation { transposed, mirrored }) = (view.picture_size(), view.orientation());
        let mut described = Self {
            columns,
            rows,
            placed: mapping.placed(),
            rules,
            tiles,
            color,
            coefficients,
            width,
            height,
            mirror: if mirrored[0] { u32::MAX } else { 0 },
            mirror_from: if mirrored[0] { width } else { 0 },
            ..Self::default()
        };
        described.set_source(format, planes, transposed);
        if transposed {
            // The kernel's rows are the frame's columns.
            described.components = described.components.map(Component::transposed);
            std::mem::swap(&mut described.red_x, &mut described.red_y);
        }
        described.set_part_selectors();
        described
    }

    /// Sets the selectors of single components: those of [`Self::selectors`], with zeros in the upper bytes. The two bytes of
    /// semi-planar chroma count from 4 in these.
    fn set_part_selectors(&mut self) {
        let [even, odd] = self.selectors;
        let byte = if self.source == SOURCE_SEMIPLANAR { 3 } else { 7 };
        self.part_selectors = [even, odd, even >> 4, even >> 8].map(|selector| 0x4440 | selector & byte);
    }

    /// Sets how this format's pixels are read. The words of packed 4:2:2 have neighbours of a row, so they are read as bytes if the
    /// picture is transposed.
    fn set_source(&mut self, format: PixelFormat, planes: &Planes, transposed: bool) {
        let component = |plane: usize, offset: u32, step_bytes: u32, (x_shift, y_shift): (u32, u32)| {
            let (address, pitch_bytes) = planes[plane];
            // Pitches were checked to fit.
            let (address, pitch_bytes) = (address.0 + u64::from(offset), pitch_bytes as u32);
            Component { address, pitch_bytes, step_bytes, x_shift, y_shift }
        };
        let aligned = |plane: usize, to: u64| {
            let (address, pitch_bytes) = planes[plane];
            (address.0 | pitch_bytes as u64).is_multiple_of(to)
        };
        let words = words(format);
        let [first, second, third] = [words.first, words.second, words.third].map(|bits| bits / 8);
        // As a shift.
        let chroma_rows = format.rows_per_chroma_row().trailing_zeros();
        let none = Component::default();
        (self.source, self.components) = match format {
            PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy
                if aligned(0, 4) && !transposed =>
            {
                self.selectors = [selector(words), selector(WordLayout { first: words.first + 16, ..words })];
                (SOURCE_WORDS, [component(0, 0, 4, (1, 0)), none, none])
            }
            PixelFormat::Rgba | PixelFormat::Bgra if aligned(0, 4) => {
                self.selectors = [selector(words); 2];
                (SOURCE_WORDS, [component(0, 0, 4, (0, 0)), none, none])
            }
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 if aligned(1, 2) => {
                // Chroma is the second operand, whose bytes count from 4; byte 1 of the first is 0.
                self.selectors[0] = 0x1000 | (third + 3) << 8 | (second + 3) << 4;
                (SOURCE_SEMIPLANAR, [component(0, 0, 1, (0, 0)), component(1, 0, 2, (1, chroma_rows)), none])
            }
            PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Yvyu | PixelFormat::Vyuy => (
                SOURCE_BYTES,
                [component(0, first, 2, (0, 0)), component(0, second, 4, (1, 0)), component(0, third, 4, (1, 0))],
            ),
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::Nv16 | PixelFormat::Nv61 => (
                SOURCE_BYTES,
                [
                    component(0, 0, 1, (0, 0)),
                    component(1, second - 1, 2, (1, chroma_rows)),
                    component(1, third - 1, 2, (1, chroma_rows)),
                ],
            ),
            // The upper byte of each sample.
            PixelFormat::P010 => (
                SOURCE_BYTES,
                [
                    component(0, 1, 2, (0, 0)),
                    component(1, 1, 4, (1, chroma_rows)),
                    component(1, 3, 4, (1, chroma_rows)),
                ],
            ),
            PixelFormat::I420 => (
                SOURCE_BYTES,
                [
                    component(0, 0, 1, (0, 0)),
                    component(1, 0, 1, (1, chroma_rows)),
                    component(2, 0, 1, (1, chroma_rows)),
                ],
            ),
            PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => {
                let step = if matches!(format, PixelFormat::Rgb | PixelFormat::Bgr) { 3 } else { 4 };
                (SOURCE_BYTES, [first, second, third].map(|offset| component(0, offset, step, (0, 0))))
            }
            PixelFormat::Grey => (SOURCE_BYTES, [component(0, 0, 1, (0, 0)), none, none]),
            PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => {
                (SOURCE_LEVELS, [component(0, 0, 2, (0, 0)), none, none])
            }
            PixelFormat::Bayer(order, depth) => {
                let (red_x, red_y) = order.first_red();
                (self.red_x, self.red_y) = (red_x as u32, red_y as u32);
                self.sample_gain = depth.full_scale_gain();
                self.sample_bytes = match depth.sample_bytes() {
                    1 => 1,
                    _ if aligned(0, 2) => 2,
                    _ => 0,
                };
                (SOURCE_MOSAIC, [component(0, 0, depth.sample_bytes() as u32, (0, 0)), none, none])
            }
        };
    }
}

/// Returns `__byte_perm`'s selector for the three components of one word; the fourth byte becomes 0.
fn selector(words: WordLayout) -> u32 {
    0x4000 | (words.third / 8) << 8 | (words.second / 8) << 4 | (words.first / 8)
}

impl Job {
    /// Makes the arguments for a spec; [`Job::at`] adds the addresses.
    pub(super) fn new(spec: &PreprocessSpec) -> Self {
        let Normalisation { gain, bias, pad } = Normalisation::new(spec);
        let groups = spec.width.div_ceil(PIXELS);
        Self {
            out: 0,
            frames: 0,
            width: spec.width,
            height: spec.height,
            groups,
            groups_reciprocal: u32::MAX / groups,
            // The spec was checked to have one of these.
            dtype: match spec.dtype {
                DType::F16 => 1,
                DType::U8 => 2,
                DType::I8 => 3,
                // I32 as well: its values are rounded in place afterwards.
                _ => 0,
            },
            planar: u32::from(spec.layout == TensorLayout::Nchw),
            channels: spec.order.channels() as u32,
            reversed: u32::from(spec.order == ChannelOrder::Bgr),
            luma: u32::from(spec.order == ChannelOrder::Grey),
            aligned: 0,
            gain,
            bias,
            pad,
            pad_level: spec.pad,
        }
    }

    /// Returns the arguments for the frames described at `frames` and the tensor at `out`.
    pub(super) fn at(&self, out: DeviceAddress, frames: DeviceAddress) -> Self {
        let aligned = self.width.is_multiple_of(PIXELS) && out.0.is_multiple_of(16);
        Self { out: out.0, frames: frames.0, aligned: u32::from(aligned), ..*self }
    }
}

/// Returns the coefficients of ffmpeg's arithmetic for the kernel.
fn truncated(color: ColorDescription) -> [u32; 8] {
    let TruncatedYuvToRgb { y_offset, y_gain, r_cr, g_cb, g_cr, b_cb } = color.truncated();
    [y_offset, y_gain, r_cr, g_cb, g_cr, b_cb, 0, 0].map(i32::cast_unsigned)
}
