//! A frame's memory, and the computations on its pixels.
//!
//! - [`buffer`]: the memory that a camera writes and a kernel reads.
//! - [`auto_memory`]: measures which kind of memory suits a GPU.
//! - [`frame`], [`color`]: the layout of a frame: pixel format, planes, pitches, colour matrix and range.
//! - [`view`]: the part of a frame that a model sees, turned and mirrored.
//! - [`tiling`]: cuts the picture that a model sees into tiles.
//! - [`placement`]: places a frame in a model's input, and maps back.
//! - [`preprocess`]: turns a frame into a model's input tensor in one pass.
//! - [`polygon`], [`privacy`]: an area of a frame, and blanking it.
//! - [`cuda`]: one NVIDIA GPU: device, streams, events, graphs, kernels.
//! - [`nvdec`]: decodes video on the GPU's video engine.
//! - [`jpeg`]: decodes and encodes JPEG images.
//! - [`filter`]: finds the candidates in raw outputs on the GPU.
//! - [`nms`]: removes overlapping boxes.
//! - [`oriented`]: oriented boxes.
//! - [`mask`]: the pixels of an object or a class.
//! - [`text_map`]: text boxes in a probability map.
//! - [`nvtx`]: ranges that Nsight Systems shows.
//!
//! This crate does not depend on models or cameras.

pub mod auto_memory;
pub mod buffer;
pub mod color;
pub mod cuda;
pub mod filter;
pub mod frame;
pub mod jpeg;
pub mod mask;
pub mod nms;
pub mod nvdec;
pub mod nvtx;
pub mod oriented;
mod pixel_format;
pub mod placement;
pub mod polygon;
pub mod preprocess;
pub mod privacy;
pub mod tensor;
pub mod text_map;
pub mod tiling;
pub mod view;
