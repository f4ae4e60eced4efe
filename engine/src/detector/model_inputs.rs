//! Decides how the model's inputs are filled: which input takes the image, at which size and in which layout, and the values
//! of the others.

use std::collections::BTreeMap;

use half::f16;
use visiond_ground::nearest::nearest;
use visiond_kernels::preprocess::{PreprocessSpec, TensorLayout};
use visiond_kernels::tensor::{DType, ShapeText, TensorMut};

use super::error::DetectorError;
use super::input_checks;
use crate::backend::{Dim, TensorInfo, dims_text};
use crate::card::{Card, ExtraInput};

/// Channel counts to look for if the card's does not decide between the layouts.
const COLOURS: [usize; 2] = [3, 1];

/// How the model's inputs are filled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ModelInputs {
    /// The index of the input that takes the image.
    pub(super) picture: usize,
    /// How frames are preprocessed.
    pub(super) spec: PreprocessSpec,
    /// The maximum number of frames in a run.
    pub(super) batch: usize,
    /// The shape of every input in a run of `batch` frames.
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
    /// The indices of inputs whose first dimension is the number of frames in a run: `batch` in `shapes`, and smaller in smaller
    /// runs. Empty if the image is not among them.
    pub(super) open_batch: Vec<usize>,
    /// Whether the image's tensor has a batch dimension.
    pub(super) has_batch_dim: bool,
    /// Whether the card's size replaces a declared one; then the declared shapes of the outputs are void.
    pub(super) replaces_size: bool,
}

/// Which input sizes are settled, regardless of the card.
#[derive(Clone, Copy)]
pub(super) struct SettledSizes<'a> {
    /// Whether the user asked for an input's declared size, which then overrides the card's.
    pub(super) asked: &'a dyn Fn(&str) -> bool,
    /// Whether the model is an engine, which runs only at the sizes of its profiles.
    pub(super) is_engine: bool,
}

/// Decides how the inputs are filled.
pub(super) fn plan(
    inputs: &[TensorInfo],
    card: &Card,
    max_batch: usize,
    settled: SettledSizes<'_>,
) -> Result<ModelInputs, DetectorError> {
    let picture = picture_input(inputs, card)?;
    let info = &inputs[picture];
    let layout = layout(info, card);
    let (has_batch_dim, width_axis, height_axis) = axes(info, layout, card)?;
    let declared = |axis: usize| info.shape.as_ref().and_then(|dims| dims[axis].fixed());
    let declared_size = declared(width_axis).zip(declared(height_axis));
    let card_size = card.input.size.map(|(width, height)| (width as usize, height as usize));
    let asked = (settled.asked)(&info.name);
    let size = if asked { declared_size.or(card_size) } else { card_size.or(declared_size) };
    let (width, height) = size.ok_or_else(|| {
        let (width, height) = card.head.usual_size();
        let text = format!(
            "the input `{info}` has no fixed size: write width and height under [input], as in `size = [{width}, {height}]`"
        );
        DetectorError::at(card, "input", text)
    })?;
    let is_settled =
        |side: usize, wanted: usize| settled.is_engine || side >= input_checks::LEAST_FIXED_SIDE || side == wanted;
    let fixed = |axis: usize, wanted: usize| declared(axis).filter(|side| is_settled(*side, wanted));
    if !asked {
        let fixed = [fixed(width_axis, width), fixed(height_axis, height)];
        input_checks::size(card, info, (width, height), fixed)?;
    }
    let other = |axis: usize, side: usize| declared(axis).is_some_and(|declared| declared != side);
    let replaces_size = other(width_axis, width) || other(height_axis, height);
    let side = |pixels: usize| u32::try_from(pixels).unwrap_or(u32::MAX);
    input_checks::resize(card, (side(width), side(height)))?;
    input_checks::levels(card, info)?;
    let max_batch = max_batch.max(1);
    let batch = match has_batch_dim.then(|| declared(0)) {
        // A batch that was declared with such a size also comes from an example.
        _ if replaces_size => 1,
        None => 1,
        Some(Some(fixed)) => fixed,
        Some(None) => max_batch,
    };
    let spec = PreprocessSpec {
        width: side(width),
        height: side(height),
        placement: card.input.placement,
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
    let run = Batch { frames: batch, is_open: has_batch_dim && declared(0).is_none() };
    let mut open_batch = Vec::new();
    if run.is_open {
        open_batch.push(picture);
    }
    for (index, extra) in inputs.iter().enumerate().filter(|(index, _)| *index != picture) {
        let fill = card.extra_inputs.get(&extra.name).ok_or_else(|| input_checks::missing(card, extra))?;
        input_checks::extra_type(card, extra, fill, (side(width), side(height)))?;
        let sides = PictureSides { info, axes: [height_axis, width_axis], pixels: [height, width] };
        let (shape, has_frames) = extra_shape(&sides.settle(extra), fill, run, card)?;
        shapes.insert(extra.name.clone(), shape);
        if run.is_open && has_frames {
            open_batch.push(index);
        }
    }
    Ok(ModelInputs { picture, spec, batch, shapes, open_batch, has_batch_dim, replaces_size })
}

/// Does [`input_checks::other_size`] for the input that takes the image.
pub(super) fn other_size(
    inputs: &[TensorInfo],
    card: &Card,
    settled: SettledSizes<'_>,
) -> Option<((u32, u32), DetectorError)> {
    let info = &inputs[picture_input(inputs, card).ok()?];
    let (_, width_axis, height_axis) = axes(info, layout(info, card), card).ok()?;
    let declared = |axis: usize| info.shape.as_ref().and_then(|dims| dims[axis].fixed());
    let is_free = !(settled.asked)(&info.name) && !settled.is_engine;
    is_free.then(|| input_checks::other_size(card, info, [declared(width_axis), declared(height_axis)]))?
}

fn picture_input(inputs: &[TensorInfo], card: &Card) -> Result<usize, DetectorError> {
    let listed = || inputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
    let extra = card.extra_inputs.keys().map(|name| (format!("extra_inputs.{name}"), name));
    let named = card.input.name.iter().map(|name| ("input.name".to_owned(), name)).chain(extra);
    for (key, name) in named {
        if !inputs.iter().any(|info| info.name == *name) {
            let remedy = match nearest(name, inputs.iter().map(|info| info.name.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write one of them, or remove it".to_owned(),
            };
            let text = format!("the card names the input `{name}`, but the model has {}: {remedy}", listed());
            return Err(DetectorError::at(card, &key, text));
        }
    }
    if let Some(index) = card.input.name.as_ref().and_then(|name| inputs.iter().position(|info| info.name == *name)) {
        let name = &inputs[index].name;
        if card.extra_inputs.contains_key(name) {
            let text = format!("the input `{name}` takes the picture, as `name` says: remove it from [extra_inputs]");
            return Err(DetectorError::at(card, &format!("extra_inputs.{name}"), text));
        }
        return Ok(index);
    }
    let rank = |info: &TensorInfo| info.shape.as_ref().map_or(4, Vec::len);
    let free = || inputs.iter().enumerate().filter(|(_, info)| !card.extra_inputs.contains_key(&info.name));
    let only = |wanted: usize| {
        let mut fitting = free().filter(|(_, info)| rank(info) == wanted);
        fitting.next().filter(|_| fitting.next().is_none()).map(|(index, _)| index)
    };
    only(4).or_else(|| only(3)).ok_or_else(|| {
        let text = format!(
            "cannot tell which input takes the image: the model has {}; set `name` under [input], and keep that input out of \
             [extra_inputs]",
            listed()
        );
        DetectorError::at(card, "extra_inputs", text)
    })
}

/// Returns the layout: the card's, otherwise the one that the position of 3 or 1 channels in the declared shape suggests.
fn layout(info: &TensorInfo, card: &Card) -> TensorLayout {
    if let Some(layout) = card.input.layout {
        return layout;
    }
    let Some(dims) = &info.shape else { return TensorLayout::Nchw };
    let channels = card.input.order.channels();
    let Some(first) = dims.len().checked_sub(3) else { return TensorLayout::Nchw };
    let is = |axis: usize, wanted: usize| dims[axis].fixed() == Some(wanted);
    for wanted in std::iter::once(channels).chain(COLOURS) {
        if is(first, wanted) {
            return TensorLayout::Nchw;
        }
        if is(first + 2, wanted) {
            return TensorLayout::Nhwc;
        }
    }
    TensorLayout::Nchw
}

/// Returns whether there is a batch dimension and the axes of width and height; rejects a shape that does not fit an image.
fn axes(info: &TensorInfo, layout: TensorLayout, card: &Card) -> Result<(bool, usize, usize), DetectorError> {
    let rank = info.shape.as_ref().map_or(4, Vec::len);
    if !info.dtype.holds_pixels() || (rank != 4 && rank != 3) {
        let text = format!(
            "the input `{info}` takes no image, which is f32, f16, u8, i8 or i32 of the shape [batch, channels, height, width] or \
             [batch, height, width, channels]: correct `name` under [input], or use another model"
        );
        return Err(DetectorError::at(card, "input.name", text));
    }
    let first = rank - 3;
    let (channel_axis, height, width) = match layout {
        TensorLayout::Nchw => (first, first + 1, first + 2),
        TensorLayout::Nhwc => (first + 2, first, first + 1),
    };
    input_checks::channels(card, info, layout, channel_axis, first + if channel_axis == first { 2 } else { 0 })?;
    Ok((rank == 4, width, height))
}

/// The sides of the image, which other inputs may share.
struct PictureSides<'a> {
    info: &'a TensorInfo,
    /// The axes of height and width.
    axes: [usize; 2],
    pixels: [usize; 2],
}

impl PictureSides<'_> {
    /// Returns an input whose open dimensions take the image's sides if they have the same names, such as the mask
    /// `[batch_size, height, width]` of Hugging Face's DETR.
    fn settle(&self, extra: &TensorInfo) -> TensorInfo {
        let mut extra = extra.clone();
        let Some(dims) = &self.info.shape else { return extra };
        for dim in extra.shape.iter_mut().flatten().skip(1) {
            let is_same = |axis: usize| matches!((&dims[axis], &*dim), (Dim::Dynamic(side), Dim::Dynamic(name)) if side == name && !name.is_empty());
            if let Some(side) = (0..2).find(|&side| is_same(self.axes[side])) {
                *dim = Dim::Fixed(self.pixels[side]);
            }
        }
        extra
    }
}

/// The batch of the image.
#[derive(Clone, Copy)]
struct Batch {
    /// The maximum number of frames in a run.
    frames: usize,
    /// Whether a run of fewer frames has a smaller batch.
    is_open: bool,
}

/// Returns the shape of an extra input, and whether its first dimension is open and the batch. Another open dimension follows from
/// the card's number of values.
fn extra_shape(
    info: &TensorInfo,
    fill: &ExtraInput,
    run: Batch,
    card: &Card,
) -> Result<(Vec<usize>, bool), DetectorError> {
    let batch = run.frames;
    let given = match fill {
        ExtraInput::Values(values) => values.len(),
        ExtraInput::Array(array) => return array_shape(info, &array.dims, run, card),
        ExtraInput::InputSize | ExtraInput::InputSizeHw => 2,
    };
    let count_error = || {
        let (name, takes) = (&info.name, dims_text(&info.shape));
        let text = format!(
            "the card gives {given} numbers for the input `{info}`, which takes {takes}: write {} under [extra_inputs]",
            input_checks::example(info)
        );
        DetectorError::at(card, &format!("extra_inputs.{name}"), text)
    };
    let Some(dims) = &info.shape else {
        return Ok(if given == 1 { (Vec::new(), false) } else { (vec![batch, given], true) });
    };
    let mut shape: Vec<usize> = dims.iter().map(|dim| dim.fixed().unwrap_or(0)).collect();
    let open: Vec<usize> = (0..dims.len()).filter(|&axis| matches!(dims[axis], Dim::Dynamic(_))).collect();
    // A first open dimension is the batch, unless it is the only dimension and there are several values.
    let has_frames = open.first() == Some(&0) && (dims.len() > 1 || given == 1);
    match open[..] {
        [] => {}
        [0] if has_frames => shape[0] = batch,
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
        // The number of values does not show how several open dimensions share them.
        _ => {
            let text = format!("the input `{info}` has several open dimensions: export the model with fixed sizes");
            return Err(DetectorError::at(card, &format!("extra_inputs.{}", info.name), text));
        }
    }
    let total: usize = shape.iter().product();
    // The values fill the tensor once, or once per frame; one value fills all of it.
    let fits = total > 0 && (given == 1 || total == given || total == given * batch);
    if fits { Ok((shape, has_frames)) } else { Err(count_error()) }
}

/// Returns the shape of an extra input that a file fills, and whether its first dimension is open and the batch. The shape is the
/// file's, but for dimensions of 1 before the others.
fn array_shape(
    info: &TensorInfo,
    dims: &[usize],
    run: Batch,
    card: &Card,
) -> Result<(Vec<usize>, bool), DetectorError> {
    let Some(wanted) = &info.shape else { return Ok((dims.to_vec(), false)) };
    let first = dims.iter().take_while(|dim| **dim == 1).count().min(dims.len().saturating_sub(wanted.len()));
    let missing = wanted.len().saturating_sub(dims.len());
    let mut shape: Vec<usize> = std::iter::repeat_n(1, missing).chain(dims.iter().skip(first).copied()).collect();
    // The numbers of one frame are repeated if the first dimension is the image's batch, open or fixed like it. The first
    // dimension of a table is not a batch: there are as many prompts `[n, 512]` as in the file.
    let is_batch = |dim: &Dim| dim.fixed() == (!run.is_open).then_some(run.frames);
    let has_frames = wanted.len() > 2 && shape.first() == Some(&1) && wanted.first().is_some_and(is_batch);
    if has_frames {
        shape[0] = run.frames;
    }
    let fits = |(dim, found): (&Dim, &usize)| dim.fixed().is_none_or(|fixed| fixed == *found);
    if shape.len() == wanted.len() && wanted.iter().zip(&shape).all(fits) {
        return Ok((shape, has_frames && run.is_open));
    }
    let (name, found) = (&info.name, ShapeText(dims));
    let text = format!(
        "the file that the card names has the shape {found}, but the input `{info}` takes {}: save an array of that shape",
        dims_text(&info.shape)
    );
    Err(DetectorError::at(card, &format!("extra_inputs.{name}"), text))
}

/// Fills an extra input; the card's values are repeated until it is full.
pub(super) fn fill(tensor: &mut TensorMut<'_>, extra: &ExtraInput, input_size: (u32, u32)) {
    let values = extra.values(input_size);
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
            // `DType` may gain variants: a new type keeps the zeros of a new tensor.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_kernels::preprocess::ChannelOrder;
    use visiond_kernels::tensor::TensorRef;

    use super::*;
    use crate::card::NumpyArray;

    /// An input; a dimension of 0 is open.
    fn input(name: &str, dtype: DType, dims: Option<&[usize]>) -> TensorInfo {
        let dim = |&size: &usize| if size == 0 { Dim::Dynamic(String::new()) } else { Dim::Fixed(size) };
        TensorInfo { name: name.to_owned(), dtype, shape: dims.map(|dims| dims.iter().map(dim).collect()) }
    }

    fn card(lines: &str) -> Card {
        Card::from_toml(&format!("{lines}\n[head]\nfamily = \"yolov8\"\n"), Path::new("net.toml")).unwrap()
    }

    /// An ONNX model for which the user asked for no size.
    const FREE: SettledSizes<'_> = SettledSizes { asked: &|_| false, is_engine: false };

    #[test]
    fn the_pictures_layout_and_size_follow_from_its_shape_and_the_card() {
        use TensorLayout::{Nchw, Nhwc};
        let planned = |dims: Option<&[usize]>, lines: &str| {
            let inputs = [input("x", DType::F32, dims)];
            let plan = plan(&inputs, &card(lines), 2, FREE).map_err(|error| error.to_string())?;
            Ok::<_, String>((plan.spec.layout, plan.spec.width, plan.spec.height, plan.batch, plan.shapes["x"].clone()))
        };
        let sized = "[input]\nsize = [64, 32]";
        for (dims, lines, wanted) in [
            (Some(&[1, 3, 4, 6][..]), "", (Nchw, 6, 4, 1, vec![1, 3, 4, 6])),
            (Some(&[1, 4, 6, 3]), "", (Nhwc, 6, 4, 1, vec![1, 4, 6, 3])),
            (Some(&[3, 4, 6]), "", (Nchw, 6, 4, 1, vec![3, 4, 6])),
            (Some(&[4, 6, 3]), "", (Nhwc, 6, 4, 1, vec![4, 6, 3])),
            (Some(&[0, 3, 4, 6]), "", (Nchw, 6, 4, 2, vec![2, 3, 4, 6])),
            (Some(&[5, 3, 4, 6]), "", (Nchw, 6, 4, 5, vec![5, 3, 4, 6])),
            (Some(&[5, 3, 32, 64]), sized, (Nchw, 64, 32, 5, vec![5, 3, 32, 64])),
            // The size of an export example, with its batch.
            (Some(&[5, 3, 32, 32]), sized, (Nchw, 64, 32, 1, vec![1, 3, 32, 64])),
            (Some(&[0, 0, 0, 0]), sized, (Nchw, 64, 32, 2, vec![2, 3, 32, 64])),
            (None, sized, (Nchw, 64, 32, 2, vec![2, 3, 32, 64])),
            (Some(&[1, 3, 3, 3]), "[input]\nlayout = \"nhwc\"", (Nhwc, 3, 3, 1, vec![1, 3, 3, 3])),
            (Some(&[1, 1, 4, 6]), "[input]\norder = \"grey\"", (Nchw, 6, 4, 1, vec![1, 1, 4, 6])),
            (Some(&[1, 4, 6, 1]), "[input]\norder = \"grey\"", (Nhwc, 6, 4, 1, vec![1, 4, 6, 1])),
        ] {
            assert_eq!(planned(dims, lines), Ok(wanted), "{dims:?} {lines}");
        }
        let small = [input("x", DType::F32, Some(&[5, 3, 32, 32]))];
        let engine = plan(&small, &card(sized), 2, SettledSizes { is_engine: true, ..FREE }).unwrap_err().to_string();
        assert!(engine.contains("`size` is 64x32, but the model fixes its input"), "{engine}");
        for (dims, lines, words) in [
            (&[1, 3, 0, 6][..], "", "[input]"),
            (&[1, 3, 64, 96], sized, "`size` is 64x32, but the model fixes its input"),
            (&[1, 3, 64, 6], sized, "`size` is 64x32, but the model fixes its input"),
            (&[1, 3, 4, 6], "[input]\norder = \"grey\"", "`order` is `grey`, 1 channel, but the input"),
            (&[1, 4, 6, 3], "[input]\norder = \"grey\"", "`order` is `grey`, 1 channel, but the input"),
            (&[7, 3, 4, 6, 2], "[input]\nname = \"x\"", "takes no image"),
            (&[4, 6], "", "cannot tell which input takes the image"),
        ] {
            let error = planned(Some(dims), lines).unwrap_err();
            assert!(error.contains(words), "{dims:?} {lines}: {error}");
        }
    }

    #[test]
    fn the_input_of_the_picture_is_named_or_the_only_one_of_its_rank() {
        let (picture, other) =
            (input("x", DType::F32, Some(&[1, 3, 4, 6])), input("y", DType::F32, Some(&[1, 3, 4, 6])));
        let flat = input("n", DType::F32, Some(&[1, 2]));
        let index = |inputs: &[&TensorInfo], lines: &str| {
            let inputs: Vec<_> = inputs.iter().map(|&info| info.clone()).collect();
            picture_input(&inputs, &card(lines)).map_err(|error| error.to_string())
        };
        assert_eq!(index(&[&flat, &picture], ""), Ok(1));
        assert_eq!(index(&[&picture, &other], "[input]\nname = \"y\""), Ok(1));
        assert_eq!(index(&[&picture, &other], "[extra_inputs]\nx = 1"), Ok(1));
        assert!(index(&[&picture, &other], "").unwrap_err().contains("set `name` under [input]"));
        let three = input("t", DType::F32, Some(&[3, 4, 6]));
        assert_eq!(index(&[&flat, &three], ""), Ok(1));
        assert_eq!(index(&[&three, &picture], ""), Ok(1), "four dimensions go before three");
        let integers = input("x", DType::I64, Some(&[1, 3, 4, 6]));
        let error = plan(&[integers], &card(""), 1, FREE).unwrap_err().to_string();
        assert!(error.contains("takes no image, which is f32, f16, u8, i8 or i32"), "{error}");
        assert_eq!(card("[input]\norder = \"grey\"").input.order, ChannelOrder::Grey);
    }

    #[test]
    fn the_values_of_an_extra_input_fill_its_shape_once_or_once_a_frame() {
        // The declared dimensions, the number of values and the frames in a run; then the shape.
        for (dims, given, batch, wanted) in [
            (None, 1, 2, Some(vec![])),
            (None, 2, 3, None),
            (None, 2, 1, None),
            (Some(&[2, 2][..]), 4, 1, Some(vec![2, 2])),
            (Some(&[2, 2]), 3, 1, None),
            (Some(&[2, 2]), 1, 1, Some(vec![2, 2])),
            (Some(&[0, 3, 2]), 1, 2, Some(vec![2, 3, 2])),
            (Some(&[0, 2]), 0, 1, None),
            (Some(&[4]), 2, 2, Some(vec![4])),
            (Some(&[4]), 2, 1, None),
            (Some(&[0]), 1, 3, Some(vec![3])),
            (Some(&[0]), 3, 2, Some(vec![3])),
            (Some(&[0, 2]), 2, 3, Some(vec![3, 2])),
            (Some(&[0, 2]), 3, 3, None),
            (Some(&[2, 0]), 4, 1, Some(vec![2, 2])),
            (Some(&[2, 0]), 3, 1, None),
            (Some(&[0, 0]), 4, 2, Some(vec![2, 4])),
            (Some(&[0, 0, 2]), 6, 2, Some(vec![2, 3, 2])),
            (Some(&[0, 0, 0]), 6, 1, None),
            (Some(&[1]), 0, 1, None),
        ] {
            let values = ExtraInput::Values(vec![0.5; given]);
            let run = Batch { frames: batch, is_open: true };
            let found = extra_shape(&input("n", DType::F32, dims), &values, run, &card("")).ok();
            // Without declared dimensions, several values belong to one frame.
            let wanted = if dims.is_none() && given > 1 { Some(vec![batch, given]) } else { wanted };
            // A list of several values is not a batch.
            let has_frames = match dims {
                None => given > 1,
                Some([0]) => given == 1,
                Some(dims) => dims[0] == 0,
            };
            assert_eq!(found, wanted.map(|shape| (shape, has_frames)), "{dims:?} {given} {batch}");
        }
        let run = Batch { frames: 3, is_open: true };
        let size = extra_shape(&input("n", DType::I64, Some(&[0, 2])), &ExtraInput::InputSize, run, &card(""));
        assert_eq!(size.unwrap(), (vec![3, 2], true));
    }

    #[test]
    fn the_shape_of_a_file_is_that_of_the_input_but_for_leading_ones() {
        // The declared dimensions, the file's, the frames in a run, and whether they are fixed; then the shape, and whether
        // its first dimension counts frames.
        let (fixed, open) = (|frames| Batch { frames, is_open: false }, |frames| Batch { frames, is_open: true });
        for (dims, file, run, wanted) in [
            (Some(&[1, 0, 512][..]), &[1, 3, 512][..], fixed(1), Some((vec![1, 3, 512], false))),
            (Some(&[1, 0, 512]), &[3, 512], open(1), Some((vec![1, 3, 512], false))),
            (Some(&[3, 512]), &[1, 1, 3, 512], open(1), Some((vec![3, 512], false))),
            (Some(&[0, 0, 512]), &[1, 3, 512], open(4), Some((vec![4, 3, 512], true))),
            (Some(&[0, 0, 512]), &[3, 512], open(4), Some((vec![4, 3, 512], true))),
            (Some(&[0, 0, 512]), &[3, 512], fixed(4), Some((vec![1, 3, 512], false))),
            (Some(&[4, 3, 512]), &[3, 512], fixed(4), Some((vec![4, 3, 512], false))),
            (Some(&[4, 3, 512]), &[3, 512], open(4), None),
            (Some(&[0, 3, 512]), &[2, 3, 512], open(1), Some((vec![2, 3, 512], false))),
            (Some(&[0, 3, 512]), &[2, 3, 512], open(4), Some((vec![2, 3, 512], false))),
            // A table has a row for each prompt.
            (Some(&[0, 512]), &[3, 512], open(4), Some((vec![3, 512], false))),
            (Some(&[0, 512]), &[1, 512], open(4), Some((vec![1, 512], false))),
            (Some(&[0, 512]), &[512], open(4), Some((vec![1, 512], false))),
            (Some(&[0]), &[1], open(4), Some((vec![1], false))),
            (Some(&[4, 512]), &[512], fixed(4), None),
            (Some(&[1, 0, 512]), &[1, 3, 256], open(1), None),
            (Some(&[1, 80, 512]), &[1, 3, 512], open(1), None),
            (Some(&[2, 80, 512]), &[80, 512], open(1), None),
            (Some(&[80, 512]), &[2, 80, 512], open(1), None),
            (Some(&[1]), &[], open(1), Some((vec![1], false))),
            (None, &[3, 512], open(2), Some((vec![3, 512], false))),
        ] {
            let values = std::iter::repeat_n(0.5, file.iter().product()).collect();
            let array = ExtraInput::Array(NumpyArray { dims: file.to_vec(), values });
            let found = extra_shape(&input("n", DType::F32, dims), &array, run, &card(""));
            let frames = run.frames;
            assert_eq!(found.as_ref().ok(), wanted.as_ref(), "{dims:?} {file:?} {frames}: {found:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("save an array of that shape"), "{error}");
            }
        }
    }

    #[test]
    fn an_open_dimension_that_has_the_name_of_the_pictures_has_its_size() {
        let open = |name: &str, dtype: DType, dims: &[&str]| {
            let dims = dims.iter().map(|dim| Dim::Dynamic((*dim).to_owned())).collect();
            TensorInfo { name: name.to_owned(), dtype, shape: Some(dims) }
        };
        let picture = open("pixel_values", DType::F32, &["batch_size", "num_channels", "height", "width"]);
        let shape = |dims: &[&str]| {
            let inputs = [picture.clone(), open("pixel_mask", DType::I64, dims)];
            let card = card("[input]\nsize = [64, 32]\n[extra_inputs]\npixel_mask = 1");
            plan(&inputs, &card, 2, FREE).map(|plan| plan.shapes["pixel_mask"].clone()).map_err(|e| e.to_string())
        };
        assert_eq!(shape(&["batch_size", "height", "width"]), Ok(vec![2, 32, 64]));
        let error = shape(&["batch_size", "a", "b"]).unwrap_err();
        assert!(error.contains("export the model with fixed sizes"), "{error}");
    }

    #[test]
    fn every_type_of_an_extra_input_is_filled() {
        let filled = |dtype: DType, extra: &ExtraInput| {
            let mut bytes = vec![0; 4 * dtype.size_bytes()];
            fill(&mut TensorMut::new(dtype, &[4], &mut bytes).unwrap(), extra, (640, 480));
            TensorRef::new(dtype, &[4], &bytes).unwrap().to_f32().to_vec()
        };
        let values = ExtraInput::Values(vec![3.0, 0.0, -2.0]);
        for dtype in [DType::F32, DType::F16, DType::I8, DType::I32, DType::I64] {
            assert_eq!(filled(dtype, &values), [3.0, 0.0, -2.0, 3.0], "{dtype}");
        }
        assert_eq!(filled(DType::U8, &ExtraInput::Values(vec![200.0])), [200.0; 4]);
        assert_eq!(filled(DType::Bool, &values), [1.0, 0.0, 1.0, 1.0]);
        assert_eq!(filled(DType::I64, &ExtraInput::InputSize), [640.0, 480.0, 640.0, 480.0]);
        assert_eq!(filled(DType::F32, &ExtraInput::InputSizeHw), [480.0, 640.0, 480.0, 640.0]);
    }
}
