//! Every source: what it copies, and that it frees what it opened.

#![allow(clippy::unwrap_used)]

mod blank;
mod copies;
mod leaks;

use visiond_flow::frame::Frame;
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};

/// Returns a frame's pixels as a model gets them at the same size: blue, green and red, row by row.
pub(crate) fn bgr(frame: &Frame) -> Vec<u8> {
    let (width, height) = (frame.layout.width(), frame.layout.height());
    let spec = PreprocessSpec {
        width,
        height,
        placement: Fit::Stretch.into(),
        sampling: Sampling::Opencv,
        pad: 0.0,
        order: ChannelOrder::Bgr,
        layout: TensorLayout::Nhwc,
        dtype: DType::U8,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    };
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    let mut preprocessor = Preprocessor::new(spec).unwrap();
    let shape = preprocessor.spec().shape();
    let view = frame.layout.view(frame.buffer.as_slice()).unwrap();
    preprocessor.run(&view, &mut TensorMut::new(DType::U8, &shape, &mut pixels).unwrap()).unwrap();
    pixels
}
