//! How the model's inputs are filled: which input takes the picture, at which size and in which layout, and what the others
//! hold.

use std::collections::BTreeMap;

use half::f16;
use visiond_kernels::preprocess::{PreprocessSpec, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};

use super::error::DetectorError;
use crate::backend::{Dim, TensorInfo, dims_text};
use crate::card::{Card, ExtraInput};

/// Channel counts to look for if the card's does not decide between the layouts.
const COLOURS: [usize; 2] = [3, 1];

/// How the model's inputs are filled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelInputs {
    /// The index of the input that takes the picture.
    pub(super) picture: usize,
    /// How frames are preprocessed.
    pub(super) spec: PreprocessSpec,
    /// The maximum number of frames in a run.
    pub(super) batch: usize,
    /// The shape of every input.
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
    /// The indices of inputs whose first dimension is the batch and may be smaller than `batch`.
    pub(super) open_batch: Vec<usize>,
    /// Whether the picture's tensor has a batch dimension.
    pub(super) has_batch_dim: bool,
}

/// Decides how the inputs are filled. `keep_size` returns whether the user asked for an input's declared size, which then
/// overrides the card's.
pub(super) fn plan(
    inputs: &[TensorInfo],
    card: &Card,
    max_batch: usize,
    keep_size: &dyn Fn(&str) -> bool,
) -> Result<ModelInputs, DetectorError> {
    let picture = picture_input(inputs, card)?;
    let info = &inputs[picture];
    let layout = layout(info, card)?;
    let (has_batch_dim, width_axis, height_axis) = axes(info, layout, card)?;
    let declared = |axis: usize| info.shape.as_ref().and_then(|dims| dims[axis].fixed());
    let declared_size = declared(width_axis).zip(declared(height_axis));
    let card_size = card.input.size.map(|(width, height)| (width as usize, height as usize));
    let size = if keep_size(&info.name) { declared_size.or(card_size) } else { card_size.or(declared_size) };
    let (width, height) = size.ok_or_else(|| {
        let card = &card.origin;
        let text = format!("input `{info}` has no fixed size: set `input.size = [width, height]` in the card ({card})");
        DetectorError::Card(text)
    })?;

    let resized =
        declared(width_axis).is_some_and(|d| d != width) || declared(height_axis).is_some_and(|d| d != height);
    let max_batch = max_batch.max(1);
    let batch = match has_batch_dim.then(|| declared(0)) {
        None => 1,
        // A model that is rewritten to another size need not keep the batch size that it was exported with.
        Some(Some(fixed)) if resized && fixed > 1 => max_batch,
        Some(Some(fixed)) => fixed,
        Some(None) => max_batch,
    };
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    let spec = PreprocessSpec {
        width: side(width),
        height: side(height),
        fit: card.input.fit,
        sampling: card.input.sampling,
        pad: card.input.pad,
        order: card.input.order,
        layout,
        dtype: info.dtype,
        scale: card.input.scale,
        mean: card.input.mean,
        std: card.input.std,
    };
    let mut shape = spec.shape().to_vec();
    if has_batch_dim {
        shape.insert(0, batch);
    }
    let mut shapes = BTreeMap::from([(info.name.clone(), shape)]);
    let mut open_batch = Vec::new();
    if has_batch_dim && declared(0).is_none() {
        open_batch.push(picture);
    }
    for (index, extra) in inputs.iter().enumerate().filter(|(index, _)| *index != picture) {
        let fill = card.extra_inputs.get(&extra.name).ok_or_else(|| {
            DetectorError::Card(format!(
                "the model also needs the input `{extra}`: set what to fill it with under `extra_inputs` in the card ({})",
                card.origin
            ))
        })?;
        shapes.insert(extra.name.clone(), extra_shape(extra, fill, batch, card)?);
        if extra.shape.as_ref().and_then(|dims| dims.first()).is_some_and(|dim| dim.fixed().is_none()) {
            open_batch.push(index);
        }
    }
    Ok(ModelInputs { picture, spec, batch, shapes, open_batch, has_batch_dim })
}

fn picture_input(inputs: &[TensorInfo], card: &Card) -> Result<usize, DetectorError> {
    let listed = || inputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
    let named = card.input.name.iter().chain(card.extra_inputs.keys());
    for name in named {
        if !inputs.iter().any(|info| info.name == *name) {
            let (card, inputs) = (&card.origin, listed());
            let text = format!("the card ({card}) names the input `{name}`, but the model has {inputs}");
            return Err(DetectorError::Card(text));
        }
    }
    if let Some(index) = card.input.name.as_ref().and_then(|name| inputs.iter().position(|info| info.name == *name)) {
        return Ok(index);
    }
    let rank = |info: &TensorInfo| info.shape.as_ref().map_or(4, Vec::len);
    let free = || inputs.iter().enumerate().filter(|(_, info)| !card.extra_inputs.contains_key(&info.name));
    let only = |wanted: usize| {
        let mut fitting = free().filter(|(_, info)| rank(info) == wanted);
        fitting.next().filter(|_| fitting.next().is_none()).map(|(index, _)| index)
    };
    only(4).or_else(|| only(3)).ok_or_else(|| {
        DetectorError::Card(format!(
            "cannot tell which input takes the picture: the model has {}; set `input.name` in the card ({})",
            listed(),
            card.origin
        ))
    })
}

/// Returns the layout: the card's, or else the one that the position of 3 or 1 channels in the declared shape suggests.
fn layout(info: &TensorInfo, card: &Card) -> Result<TensorLayout, DetectorError> {
    if let Some(layout) = card.input.layout {
        return Ok(layout);
    }
    let Some(dims) = &info.shape else { return Ok(TensorLayout::Nchw) };
    let channels = card.input.order.channels();
    let Some(first) = dims.len().checked_sub(3) else { return Ok(TensorLayout::Nchw) };
    let is = |axis: usize, wanted: usize| dims[axis].fixed() == Some(wanted);
    for wanted in std::iter::once(channels).chain(COLOURS) {
        if is(first, wanted) {
            return Ok(TensorLayout::Nchw);
        }
        if is(first + 2, wanted) {
            return Ok(TensorLayout::Nhwc);
        }
    }
    Ok(TensorLayout::Nchw)
}

/// Returns whether there is a batch dimension and the axes of width and height; refuses a shape that does not fit a picture.
fn axes(info: &TensorInfo, layout: TensorLayout, card: &Card) -> Result<(bool, usize, usize), DetectorError> {
    let channels = card.input.order.channels();
    let order = match layout {
        TensorLayout::Nchw => format!("[batch, {channels}, height, width]"),
        TensorLayout::Nhwc => format!("[batch, height, width, {channels}]"),
    };
    let wrong = |wanted: String| {
        DetectorError::Card(format!(
            "input `{info}` does not take a picture as the card ({}) has it: it needs {wanted}; correct `input` in the card, or use \
             another model",
            card.origin
        ))
    };
    if !matches!(info.dtype, DType::F32 | DType::F16 | DType::U8 | DType::I8) {
        return Err(wrong(format!("f32, f16, u8 or i8 in the shape {order}")));
    }
    let rank = info.shape.as_ref().map_or(4, Vec::len);
    if rank != 4 && rank != 3 {
        return Err(wrong(order));
    }
    let first = rank - 3;
    let (channel_axis, height, width) = match layout {
        TensorLayout::Nchw => (first, first + 1, first + 2),
        TensorLayout::Nhwc => (first + 2, first, first + 1),
    };
    let declared = info.shape.as_ref().and_then(|dims| dims[channel_axis].fixed());
    if declared.is_some_and(|found| found != channels) {
        return Err(wrong(format!("{order}: `input.order` in the card has {channels} channels")));
    }
    Ok((rank == 4, width, height))
}

/// Returns the shape of an extra input: the first open dimension is the batch, another follows from the card's number of
/// values.
fn extra_shape(info: &TensorInfo, fill: &ExtraInput, batch: usize, card: &Card) -> Result<Vec<usize>, DetectorError> {
    let given = match fill {
        ExtraInput::Values(values) => values.len(),
        ExtraInput::InputSize | ExtraInput::InputSizeHw => 2,
    };
    let count_error = || {
        let (card, expected) = (&card.origin, dims_text(&info.shape));
        let text = format!(
            "the card ({card}) gives {given} numbers for the input `{info}`, which takes {expected}: correct `extra_inputs`"
        );
        DetectorError::Card(text)
    };
    let Some(dims) = &info.shape else {
        return Ok(if given == 1 { Vec::new() } else { vec![batch, given] });
    };
    let mut shape: Vec<usize> = dims.iter().map(|dim| dim.fixed().unwrap_or(0)).collect();
    let open: Vec<usize> = (0..dims.len()).filter(|&axis| matches!(dims[axis], Dim::Dynamic(_))).collect();
    // A first open dimension is the batch, unless it is the only dimension and there are several values.
    match open[..] {
        [] => {}
        [0] if dims.len() > 1 || given == 1 => shape[0] = batch,
        [0] => shape[0] = given,
        [axis] | [0, axis] => {
            if open.len() == 2 {
                shape[0] = batch;
            }
            let others: usize = shape
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != axis && !(open.len() == 2 && *i == 0))
                .map(|(_, n)| n)
                .product();
            shape[axis] = given.checked_div(others).filter(|n| n * others == given).ok_or_else(count_error)?;
        }
        _ => return Err(count_error()),
    }
    let total: usize = shape.iter().product();
    // The values fill the tensor once, or once per frame.
    if given > 0 && (total == given || total == given * batch) { Ok(shape) } else { Err(count_error()) }
}

/// Fills an extra input; the card's values are repeated until it is full.
pub(super) fn fill(tensor: &mut TensorMut<'_>, extra: &ExtraInput, (width, height): (u32, u32)) {
    let (width, height) = (f64::from(width), f64::from(height));
    let values: &[f64] = match extra {
        ExtraInput::Values(values) => values,
        ExtraInput::InputSize => &[width, height],
        ExtraInput::InputSizeHw => &[height, width],
    };
    let dtype = tensor.dtype();
    let each = tensor.bytes().chunks_exact_mut(dtype.size_bytes()).zip(values.iter().cycle());
    for (bytes, &value) in each {
        match dtype {
            DType::F32 => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
            DType::F16 => bytes.copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
            DType::U8 => bytes[0] = value as u8,
            DType::I8 => bytes[0] = (value as i8) as u8,
            DType::I32 => bytes.copy_from_slice(&(value as i32).to_ne_bytes()),
            DType::I64 => bytes.copy_from_slice(&(value as i64).to_ne_bytes()),
            DType::Bool => bytes[0] = u8::from(value != 0.0),
            // `DType` may grow: a new type keeps the zeros of a new tensor.
            _ => {}
        }
    }
}
