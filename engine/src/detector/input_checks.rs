//! Finds contradictions between a card's `[input]` and `[extra_inputs]` and the model's declared inputs.
//!
//! Each is one sentence: the card's value, the model's, the correction. `model_inputs` decides how inputs are filled; this
//! module checks whether that can be right.

use visiond_kernels::placement::{Fit, Resize};
use visiond_kernels::preprocess::{ChannelOrder, TensorLayout};
use visiond_kernels::tensor::DType;

use super::error::DetectorError;
use crate::backend::TensorInfo;
use crate::card::{Card, ExtraInput};
use crate::heads::HeadSpec;

/// How many values a byte input must be able to distinguish: a card that scales pixels to 0 to 1 leaves two.
const LEAST_LEVELS: f32 = 16.0;

/// A declared side below this may come from the example at export: a run shows whether it is fixed.
pub(super) const LEAST_FIXED_SIDE: usize = 64;

/// The backbones of detectors halve the image five times, so their sums fit at multiples of this.
const USUAL_STRIDE: usize = 32;

/// The largest f16.
const F16_MAX: f64 = 65_504.0;

/// Checks the image size against the sides that the model fixes (width, height), and against the head's grid for open sides.
pub(super) fn size(
    card: &Card,
    info: &TensorInfo,
    (width, height): (usize, usize),
    declared: [Option<usize>; 2],
) -> Result<(), DetectorError> {
    let sides = [width, height];
    let fixed: Vec<usize> = sides.iter().zip(declared).map(|(side, fixed)| fixed.unwrap_or(*side)).collect();
    if fixed != sides {
        let [w, h] = [fixed[0], fixed[1]];
        let text = format!(
            "`size` is {width}x{height}, but the model fixes its input `{info}`: write `size = [{w}, {h}]`, or remove it; to run \
             the model at another size, set `input_shapes` in its [[model]]"
        );
        return Err(DetectorError::at(card, "input.size", text));
    }
    let Some(stride) = grid_stride(&card.head) else { return Ok(()) };
    let right = nearest_sides(sides, declared, stride);
    if right != sides {
        let family = card.head.family().name();
        let text = format!(
            "`size` is {width}x{height}, but the grids of family `{family}` need sides that are multiples of {stride}: write \
             `size = [{}, {}]`",
            right[0], right[1]
        );
        return Err(DetectorError::at(card, "input.size", text));
    }
    Ok(())
}

/// Returns the fixed sides, and for the others the nearest multiples of `stride`.
fn nearest_sides(sides: [usize; 2], fixed: [Option<usize>; 2], stride: usize) -> [usize; 2] {
    let nearest = |side: usize| ((side + stride / 2) / stride).max(1) * stride;
    [0, 1].map(|axis| fixed[axis].unwrap_or_else(|| nearest(sides[axis])))
}

/// Returns a size to try after a run at the card's size failed, and the message if it succeeds: the declared size, otherwise the
/// nearest multiples of 32. `None` if there is no other. `declared` has width and height.
pub(super) fn other_size(
    card: &Card,
    info: &TensorInfo,
    declared: [Option<usize>; 2],
) -> Option<((u32, u32), DetectorError)> {
    let (width, height) = card.input.size?;
    let sides = [width as usize, height as usize];
    let right = nearest_sides(sides, declared, USUAL_STRIDE);
    let [w, h] = right;
    let text = if (0..2).any(|axis| declared[axis].is_some_and(|side| side != sides[axis])) {
        format!(
            "`size` is {width}x{height}, but the model runs only at the size of its input `{info}`: write `size = [{w}, {h}]`, \
             or remove it"
        )
    } else {
        format!(
            "`size` is {width}x{height}, at which the model cannot run; its sides must be multiples of {USUAL_STRIDE}: write \
             `size = [{w}, {h}]`"
        )
    };
    let size = (u32::try_from(w).ok()?, u32::try_from(h).ok()?);
    (right != sides).then(|| (size, DetectorError::at(card, "input.size", text)))
}

/// Returns the number that the sides of an open input must be multiples of; `None` if it is unknown.
///
/// The grids of YOLO are halved five times, regardless of later layers. NanoDet's fourth grid of stride 64 rounds up.
fn grid_stride(head: &HeadSpec) -> Option<usize> {
    const USUAL: u32 = USUAL_STRIDE as u32;
    let coarsest = |strides: &[u32]| strides.iter().copied().max().filter(|stride| *stride > 0);
    let stride = match head {
        HeadSpec::Yolov5 { .. } | HeadSpec::Yolov8 { .. } | HeadSpec::YoloNms { .. } => USUAL,
        HeadSpec::Yolox(spec) if spec.decoded => USUAL,
        HeadSpec::Yolox(spec) => coarsest(&spec.strides)?,
        HeadSpec::Nanodet(spec) => coarsest(&spec.strides)?.min(USUAL),
        HeadSpec::Darknet(_) | HeadSpec::Semantic { .. } | HeadSpec::DbText(_) | HeadSpec::Faces(_) => USUAL,
        HeadSpec::Heatmap(spec) => spec.stride.max(1),
        HeadSpec::Ssd(_)
        | HeadSpec::Detr(_)
        | HeadSpec::Blazeface(_)
        | HeadSpec::Fomo
        | HeadSpec::Movenet
        | HeadSpec::Pose
        | HeadSpec::Classifier { .. }
        | HeadSpec::Attributes(_)
        | HeadSpec::Embedding { .. }
        | HeadSpec::Depth(_) => return None,
    };
    Some(stride as usize)
}

/// Checks that the image that is resized before the crop is large enough for the input.
pub(super) fn resize(card: &Card, (width, height): (u32, u32)) -> Result<(), DetectorError> {
    let Fit::ResizeCrop(resize) = card.input.placement.fit else { return Ok(()) };
    let (resized, remedy) = match resize {
        Resize::ShortSide(side) => ((side, side), format!("`resize = {}`", side.max(width).max(height))),
        Resize::Stretch(w, h) => ((w, h), format!("`resize = [{}, {}]`", w.max(width), h.max(height))),
        Resize::Fraction(_) => return Ok(()),
    };
    if resized.0 >= width && resized.1 >= height {
        return Ok(());
    }
    let key = if card.places.has("input.resize") { "input.resize" } else { "input.preprocess" };
    let text = format!(
        "the picture is resized to {}x{}, but the input that is cut out of it is {width}x{height}: write {remedy} under [input], \
         or another `fit`",
        resized.0, resized.1
    );
    Err(DetectorError::at(card, key, text))
}

/// Checks order and layout against the channels that the model declares at `axis`; `other` is the axis of the other layout.
pub(super) fn channels(
    card: &Card,
    info: &TensorInfo,
    layout: TensorLayout,
    axis: usize,
    other: usize,
) -> Result<(), DetectorError> {
    let channels = card.input.order.channels();
    let declared = |axis: usize| info.shape.as_ref().and_then(|dims| dims[axis].fixed());
    let Some(found) = declared(axis).filter(|found| *found != channels) else { return Ok(()) };
    let (name, right, place) = match layout {
        TensorLayout::Nchw => ("nchw", "nhwc", "last"),
        TensorLayout::Nhwc => ("nhwc", "nchw", "first"),
    };
    if card.input.layout.is_some() && declared(other).is_some_and(|channels| matches!(channels, 1 | 3)) {
        let text = format!(
            "`layout` is `{name}`, but the input `{info}` has its channels {place}: write `layout = \"{right}\"`, or remove it"
        );
        return Err(DetectorError::at(card, "input.layout", text));
    }
    let remedy = match found {
        1 => "write `order = \"grey\"` under [input]",
        3 => "write `order = \"rgb\"` or `order = \"bgr\"` under [input]",
        _ => "export the model for pictures of three channels or one",
    };
    let noun = |count: usize| if count == 1 { "1 channel".to_owned() } else { format!("{count} channels") };
    let order = match card.input.order {
        ChannelOrder::Rgb => "rgb",
        ChannelOrder::Bgr => "bgr",
        ChannelOrder::Grey => "grey",
    };
    let text =
        format!("`order` is `{order}`, {}, but the input `{info}` has {}: {remedy}", noun(channels), noun(found));
    Err(DetectorError::at(card, "input.order", text))
}

/// Checks that the pixels of an integer input are not scaled until hardly any of them differ.
pub(super) fn levels(card: &Card, info: &TensorInfo) -> Result<(), DetectorError> {
    let input = &card.input;
    let channels = input.order.channels();
    let levels = |std: &f32| (255.0 * input.scale / std).abs();
    let too_few = input.std.iter().take(channels).any(|std| levels(std) < LEAST_LEVELS);
    if !info.dtype.is_integer() || !too_few {
        return Ok(());
    }
    let key = if levels(&1.0) < LEAST_LEVELS { "input.scale" } else { "input.std" };
    let text = format!(
        "the input `{info}` takes whole numbers, but scale {} and std {} leave {:.0} of 255 steps between black and white: write \
         `scale = 1`, `mean = 0` and `std = 1` under [input]",
        input.scale,
        input.std[0],
        levels(&input.std[0])
    );
    Err(DetectorError::at(card, key, text))
}

/// Returns the error for an input without values.
pub(super) fn missing(card: &Card, info: &TensorInfo) -> DetectorError {
    let text = format!(
        "the model also needs the input `{info}`: write its values under [extra_inputs], as in {}",
        example(info)
    );
    DetectorError::at(card, "extra_inputs", text)
}

/// More numbers than a card lists.
const MOST_LISTED: usize = 64;

/// A NumPy file, as an example.
const FILE: &str = "numbers.npy";

/// Returns the card's possible values for an extra input.
pub(super) fn example(info: &TensorInfo) -> String {
    let dims = info.shape.as_deref().unwrap_or(&[]);
    // The first dimension is the batch.
    let each = if dims.len() > 1 { &dims[1..] } else { dims };
    let count: usize = each.iter().map(|dim| dim.fixed().unwrap_or(1)).product();
    let name = &info.name;
    match count {
        2 => format!("`{name} = \"input-size\"`"),
        1 => format!("`{name} = 1`"),
        count if count > MOST_LISTED => format!("`{name} = \"{FILE}\"`, a file of NumPy beside the card"),
        count => format!("`{name} = [...]` of {count} numbers"),
    }
}

/// Checks that the type of an extra input can hold its values.
pub(super) fn extra_type(
    card: &Card,
    info: &TensorInfo,
    fill: &ExtraInput,
    size: (u32, u32),
) -> Result<(), DetectorError> {
    let values = fill.values(size);
    let whole = |value: f64, least: f64, most: f64| value.fract() == 0.0 && (least..=most).contains(&value);
    let (holds, wanted): (&dyn Fn(f64) -> bool, _) = match info.dtype {
        DType::U8 => (&|v| whole(v, 0.0, 255.0), "whole numbers from 0 to 255"),
        DType::I8 => (&|v| whole(v, -128.0, 127.0), "whole numbers from -128 to 127"),
        DType::I32 => (&|v| whole(v, i32::MIN.into(), i32::MAX.into()), "whole numbers"),
        DType::I64 => (&|v| whole(v, i64::MIN as f64, i64::MAX as f64), "whole numbers"),
        DType::Bool => (&|v| v == 0.0 || v == 1.0, "0 or 1"),
        DType::F16 => (&|v| v.abs() <= F16_MAX, "numbers from -65504 to 65504"),
        _ => return Ok(()),
    };
    let Some(value) = values.iter().find(|value| !holds(**value)) else { return Ok(()) };
    let text = format!("the card gives {value} for the input `{info}`, which takes {wanted}: write {wanted} there");
    Err(DetectorError::at(card, &format!("extra_inputs.{}", info.name), text))
}
