//! Turns a frame into a model's input tensor: colour, geometry, scale and layout in one pass.
//!
//! This is the definition that every implementation must match. With [`Sampling::Exact`], each source pixel becomes RGB (its
//! chroma sample replicated, not interpolated; clamped to 0..=255, not rounded); those are sampled bilinearly at half-pixel
//! centres with edges repeated (OpenCV's `INTER_LINEAR`); each channel becomes `(value * scale - mean) / std`, stored as the
//! tensor's type (integers rounded half to even and saturated). Bayer mosaics are demosaiced bilinearly, edges mirrored. In
//! detail:
//! - The repeated edges are the frame's, even if `Fit::Crop` uses only a part of it.
//! - Grey is R = G = B. Its [`ColorDescription`](crate::color::ColorDescription) gives its range: full is unchanged, limited is
//!   expanded from 16..=235; the matrix has no meaning. Grey of more than 8 bits becomes bytes before anything else, by its
//!   [`GreyLevels`](crate::color::GreyLevels).
//! - Luma is computed from each source pixel's RGB, before sampling.
//! - A mosaic's samples are multiplied by `255 / (2^bits - 1)`.
//! - Padding is `(pad * scale - mean) / std`.
//!
//! With [`Sampling::Opencv`] the same steps work on bytes, in OpenCV's fixed point, and each result is rounded as in OpenCV:
//! - YUV: `max(Y - offset, 0)`, `Cb - 128` and `Cr - 128` times coefficients of 20 bits, half added, shifted, saturated. For
//!   BT.601 of limited range they are OpenCV's own; it has no others, so those are rounded from the exact ones.
//! - Grey is unchanged, whatever its range, as in `GRAY2BGR`; luma is `BGR2GRAY`'s, 15 bits.
//! - A mosaic's samples are rounded to 8 bits, its means half up. (OpenCV's own demosaicing differs at the frame's edges.)
//! - `resize`: weights of 11 bits, from positions in f32; columns first, `(a * p + b * q) >> 4`; then rows, `((a * r >> 16) +
//!   (b * s >> 16) + 2) >> 2`. A crop, which OpenCV cannot sample, uses the same formula.
//!
//! The other samplings work on the same bytes: pixels are converted as with [`Sampling::Opencv`]. A row of the frame is filtered
//! first, then columns of filtered rows. Positions are in pixels of the frame and count pixel centres; `step` is frame pixels
//! per resized pixel, and resized pixel `i` is at `(i + 0.5) * step - 0.5` unless stated. What each equals was measured on
//! x86-64 (kernels/tests/framework_golden.rs has cases of all):
//! - [`Sampling::OpencvWarp`]: OpenCV 4's `warpPerspective` (4.5.5 to 4.14, equal bytes). Pixel `i` is at `i * step + from`,
//!   rounded to 1/32 of a pixel, half to even; the two nearest pixels are weighted by that, sums are exact, and the result is
//!   rounded half up. Beyond the frame is padding. OpenCV 5 has no such grid, and other bytes.
//! - [`Sampling::OpencvWarpAffine`]: OpenCV 4's `warpAffine`: `i * step` and `from` are each rounded to 1/1024, their sum half up
//!   to 1/32. Equal bytes, unless the inverse of a matrix errs between two such positions.
//! - [`Sampling::OpencvArea`]: `INTER_AREA` (4.10 to 5.0, equal bytes). If both steps are whole: the sum of the pixels times
//!   `1 / count` in f32, rounded half to even, or half up for 2x2. Else, if both are at least 1: shares of pixels in f32, those
//!   below 1/1000 left out, added in order without fusing, rounded half to even. Else linear in 11 bits as above, with the upper
//!   weight `i + 1 - (low + 1) / step`, or 0 below 0.
//! - [`Sampling::OpencvCubic`]: `INTER_CUBIC`, a = -0.75, positions in f32, weights of 11 bits; sums of columns are exact, those
//!   of rows are in f32, last tap first, rounded half to even. OpenCV without Intel's library is equal but for a few of the last
//!   values of a row (8 in a million). Its packages for x86-64 have that library, which differs by 1 in 4 % of the values.
//! - [`Sampling::PillowBilinear`], [`Sampling::PillowBicubic`] (a = -0.5): Pillow's `resize` (9.5 to 12.3, equal bytes; 13
//!   filters columns first where that is less work). The kernel is widened by the step if that is above 1, cut off at the
//!   frame's edges, normalised, and its weights are rounded to 22 bits. Rows, then columns, are rounded half up and saturated to
//!   bytes. Torchvision's own resize of bytes (transforms v2, 16-bit weights) differs by at most 1, bicubic by 2.
//! - [`Sampling::TorchAntialias`], [`Sampling::TorchAntialiasBicubic`]: the same in f32, not rounded, not saturated: PyTorch's
//!   `interpolate` with `antialias`, within 0.004 levels (2.15), and TensorFlow's `resize` with it, within 0.006 (2.21).
//! - [`Sampling::Torch`]: the two nearest pixels, positions and weights in f32, not rounded: PyTorch's bilinear `interpolate` with
//!   `align_corners` off and TensorFlow's and Keras' `resize`, within 0.0005 levels. [`Sampling::Exact`] differs from them by up to
//!   0.2 levels in large frames, whose positions f32 does not hold.
//! - [`Sampling::TensorflowLegacy`]: pixel `i` is at `i * step`, in f32: `tf.compat.v1.image.resize_bilinear`, within 0.0001
//!   levels.
//!
//! Where [`Placement::pad_first`](crate::placement::Placement::pad_first) is set, or a warp reads beyond the frame, the padding
//! stands in for pixels: as a byte, half to even, except with [`Sampling::Exact`]. Luma is computed first here as well.
//!
//! A cropped, turned or mirrored frame ([`FrameView::viewed`](crate::frame::FrameView::viewed)) has the tensor of a frame that consists
//! of these pixels: pixels are converted as they lie in the camera's frame, chroma included, and then moved. Edges are those of the
//! crop. A mosaic is moved before it is demosaiced. A mirrored frame is read in the other direction; one that is turned by a quarter
//! in strips of columns (`turned`).
//!
//! For each row of the tensor, [`Sampling::Opencv`] and [`Sampling::Exact`] read the one or two rows of the frame that it needs at
//! the columns that it needs (`fetch`), convert and resample them (`convert`, `bayer`) into row buffers that the next row may
//! reuse (`rows`), mix, normalise and store them (`store`). There is no intermediate picture. [`cuda`] does the same on a GPU.
//! 1080p YUYV to 640x640 f32 takes one core of a 2023 Xeon 0.5 ms: fetching 30 %, converting 35 %, storing 16 %, padding 15 %.
//!
//! OpenCV's warps work the same way: an axis-aligned warp also has two taps along each axis. The padding's part in a column is
//! added to each resampled row. 768x576 BGR to 416x416 f32 takes 1.05 times as long as with [`Sampling::Opencv`].
//!
//! The others, padding first, and warps with other samplings have tables of any number of taps (`taps`). They convert all pixels of
//! the rows that they need and filter them several rows at a time (`separable`).

mod axis;
mod bayer;
mod convert;
pub mod cuda;
mod error;
mod fetch;
mod number;
mod plan;
mod preprocessor;
mod rows;
mod separable;
mod simd;
mod spec;
mod store;
mod taps;
#[cfg(test)]
mod tests;
mod turned;

pub use error::PreprocessError;
pub use preprocessor::Preprocessor;
pub use spec::{ChannelOrder, PreprocessSpec, Sampling, TensorLayout};
