//! Raw outputs for every head: shapes that fit and shapes that do not, NaN, infinities, any bytes.
//!
//! The results are finite, pass the threshold, and are inside the frame after mapping.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::spec::{
    Activation, AnchorKind, AttributeKind, AttributeSpec, Background, BlazefaceSpec, BoxFormat, BoxUnit, BoxesSpec,
    Column, DarknetSpec, DbTextSpec, DepthSpec, FacesSpec, FacesStyle, GridStyle, HeadSpec, HeatmapSpec, HeatmapStyle,
    Keypoints, NanodetSpec, Nearer, RowsSpec, YoloxSpec,
};
use visiond_engine::heads::{Decoded, HeadInput, NamedOutput, build};
use visiond_kernels::nms::{Nms, NmsOptions, Overlap};
use visiond_kernels::placement::{Fit, Mapping};
use visiond_kernels::tensor::{DType, TensorRef};

/// The most elements of an output.
const MOST_ELEMENTS: usize = 1 << 14;

const NAMES: [&str; 8] = ["output", "boxes", "scores", "labels", "num_dets", "hm", "wh", "reg"];
const FORMATS: [BoxFormat; 4] = [BoxFormat::Xyxy, BoxFormat::Yxyx, BoxFormat::Cxcywh, BoxFormat::Xywh];
const ACTIVATIONS: [Activation; 3] = [Activation::None, Activation::Sigmoid, Activation::Softmax];
const BACKGROUNDS: [Background; 3] = [Background::None, Background::First, Background::Last];
const UNITS: [BoxUnit; 2] = [BoxUnit::Pixels, BoxUnit::Normalized];

fn option<T>(u: &mut Unstructured<'_>, some: impl FnOnce(&mut Unstructured<'_>) -> Result<T>) -> Result<Option<T>> {
    if u.arbitrary()? { some(u).map(Some) } else { Ok(None) }
}

fn strides(u: &mut Unstructured<'_>) -> Result<Vec<u32>> {
    (0..u.int_in_range(0..=4)?).map(|_| u.int_in_range(0..=64)).collect()
}

fn keypoints(u: &mut Unstructured<'_>) -> Result<Option<Keypoints>> {
    option(u, |u| Ok(Keypoints { count: u.int_in_range(0..=5)?, scored: u.arbitrary()? }))
}

fn boxes(u: &mut Unstructured<'_>) -> Result<BoxesSpec> {
    Ok(BoxesSpec {
        activation: option(u, |u| u.choose(&ACTIVATIONS).copied())?,
        format: option(u, |u| u.choose(&FORMATS).copied())?,
        unit: option(u, |u| u.choose(&UNITS).copied())?,
        background: option(u, |u| u.choose(&BACKGROUNDS).copied())?,
        multi_label: option(u, |u| u.arbitrary())?,
        anchors: option(u, |_| Ok(AnchorKind::EfficientDet))?,
        ..BoxesSpec::default()
    })
}

fn attribute(u: &mut Unstructured<'_>) -> Result<AttributeSpec> {
    let kind = if u.arbitrary()? {
        AttributeKind::Number { scale: f32::from(u.arbitrary::<i8>()?), offset: f32::from(u.arbitrary::<i8>()?) }
    } else {
        AttributeKind::Labels {
            names: (0..u.int_in_range(1..=5)?).map(|label: u8| format!("label {label}")).collect(),
            activation: option(u, |u| u.choose(&ACTIVATIONS).copied())?,
            multi_label: u.arbitrary()?,
        }
    };
    let output = (*u.choose(&NAMES)?).to_owned();
    Ok(AttributeSpec { name: "attribute".to_owned(), output, column: option(u, |u| u.int_in_range(0..=9))?, kind })
}

fn rows(u: &mut Unstructured<'_>) -> Result<RowsSpec> {
    let columns = option(u, |u| {
        use Column::{Batch, Class, Score, Skipped, X1, X2, Y1, Y2};
        let mut columns = vec![X1, Y1, X2, Y2, Score, Class];
        for other in [Batch, Skipped] {
            if u.arbitrary()? {
                columns.push(other);
            }
        }
        columns.rotate_left(u.int_in_range(0..=5)?);
        Ok(columns)
    })?;
    Ok(RowsSpec { columns, nms: u.arbitrary()?, background: *u.choose(&BACKGROUNDS)?, ..RowsSpec::default() })
}

fn spec(u: &mut Unstructured<'_>) -> Result<HeadSpec> {
    Ok(match u.int_in_range(0..=16)? {
        0 => HeadSpec::Yolov5 { keypoints: keypoints(u)?, masks: u.int_in_range(0..=3)? },
        1 => HeadSpec::Yolov8 { keypoints: keypoints(u)?, masks: u.int_in_range(0..=3)?, oriented: u.arbitrary()? },
        2 => HeadSpec::YoloNms {
            keypoints: keypoints(u)?,
            unit: *u.choose(&UNITS)?,
            oriented: u.arbitrary()?,
            rows: rows(u)?,
        },
        3 => HeadSpec::Yolox(YoloxSpec { decoded: u.arbitrary()?, strides: strides(u)? }),
        4 => HeadSpec::Nanodet(NanodetSpec {
            strides: strides(u)?,
            reg_max: u.int_in_range(0..=16)?,
            sigmoid: u.arbitrary()?,
            cell_centre: u.arbitrary()?,
            multi_label: u.arbitrary()?,
        }),
        5 => HeadSpec::Ssd(boxes(u)?),
        6 => HeadSpec::Detr(boxes(u)?),
        7 => HeadSpec::Heatmap(HeatmapSpec {
            style: *u.choose(&[
                HeatmapStyle::CenterFace,
                HeatmapStyle::CenterNet,
                HeatmapStyle::TtfNet,
                HeatmapStyle::DetectNet,
            ])?,
            stride: u.int_in_range(0..=64)?,
            sigmoid: u.arbitrary()?,
            ..HeatmapSpec::default()
        }),
        8 => HeadSpec::Blazeface(BlazefaceSpec { strides: option(u, strides)? }),
        9 if u.arbitrary()? => HeadSpec::Fomo,
        9 if u.arbitrary()? => HeadSpec::Darknet(DarknetSpec {
            anchors: vec![[10.0, 13.0]; u.int_in_range(0..=6)?],
            scale_x_y: vec![1.1; u.int_in_range(0..=3)?],
            activation: *u.choose(&ACTIVATIONS)?,
            style: *u.choose(&[GridStyle::Darknet, GridStyle::Yolov5])?,
        }),
        9 => HeadSpec::Movenet,
        10 => HeadSpec::Semantic {
            activation: option(u, |u| u.choose(&ACTIVATIONS).copied())?,
            background: *u.choose(&BACKGROUNDS)?,
        },
        11 => HeadSpec::DbText(DbTextSpec {
            thresh: f32::from(u.int_in_range(1..=99_u8)?) / 100.0,
            unclip_ratio: f32::from(u.int_in_range(0..=40_u8)?) / 10.0,
            max_candidates: u.int_in_range(1..=1000)?,
            sigmoid: u.arbitrary()?,
        }),
        12 => HeadSpec::Attributes((0..u.int_in_range(0..=3)?).map(|_| attribute(u)).collect::<Result<_>>()?),
        13 => HeadSpec::Embedding { output: None, normalize: u.arbitrary()? },
        14 => HeadSpec::Depth(DepthSpec {
            output: None,
            grid: [u.int_in_range(1..=64)?, u.int_in_range(1..=64)?],
            nearer: if u.arbitrary()? { Nearer::Smaller } else { Nearer::Larger },
        }),
        15 => HeadSpec::Faces(FacesSpec {
            style: *u.choose(&[FacesStyle::Scrfd, FacesStyle::Yunet, FacesStyle::Retinaface])?,
            strides: strides(u)?,
            min_sizes: (0..u.int_in_range(0..=4)?).map(|_| strides(u)).collect::<Result<_>>()?,
        }),
        _ => HeadSpec::Classifier {
            activation: option(u, |u| u.choose(&ACTIVATIONS).copied())?,
            background: *u.choose(&BACKGROUNDS)?,
        },
    })
}

/// An output's declaration and its real shape, which is the declared one more often than not.
fn output(u: &mut Unstructured<'_>) -> Result<(TensorInfo, Vec<usize>)> {
    let rank = u.int_in_range(0..=7)?;
    let shape: Vec<usize> = (0..rank).map(|_| u.int_in_range(0..=99)).collect::<Result<_>>()?;
    let declared = match u.int_in_range(0..=7)? {
        0 => None,
        1 => Some(vec![Dim::Dynamic(String::new()); shape.len()]),
        2 => Some((0..rank).map(|_| u.int_in_range(0..=99).map(Dim::Fixed)).collect::<Result<_>>()?),
        _ => Some(shape.iter().copied().map(Dim::Fixed).collect()),
    };
    let dtype = *u.choose(&[DType::F32, DType::F32, DType::F16, DType::I64, DType::I32, DType::U8])?;
    Ok((TensorInfo { name: (*u.choose(&NAMES)?).to_owned(), dtype, shape: declared }, shape))
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let spec = spec(u)?;
    let outputs = (0..u.int_in_range(1..=6)?).map(|_| output(u)).collect::<Result<Vec<_>>>()?;
    let size = (u.int_in_range(1..=640)?, u.int_in_range(1..=640)?);
    let classes = u.int_in_range(0..=8)?;
    let score_threshold = f32::from(u.arbitrary::<u8>()?) / 255.0;
    let fits = [Fit::Letterbox, Fit::LetterboxTopLeft, Fit::Stretch, Fit::Crop { fraction: 0.875 }];
    let frame = (u.int_in_range(1..=4096)?, u.int_in_range(1..=4096)?);
    let mapping = Mapping::new(*u.choose(&fits)?, frame, size);
    let infos: Vec<_> = outputs.iter().map(|(info, _)| info.clone()).collect();
    let Ok(mut head) = build(&spec, &infos, size, classes) else { return Ok(()) };
    if outputs
        .iter()
        .any(|(_, shape)| shape.iter().try_fold(1, |n: usize, d| n.checked_mul(*d)).is_none_or(|n| n > MOST_ELEMENTS))
    {
        return Ok(());
    }
    // The remaining input, repeated.
    let rest = u.bytes(u.len())?;
    let mut rest = rest.iter().chain([0, 0, 0, 0x3f].iter().take(if rest.is_empty() { 4 } else { 0 })).cycle();
    let bytes: Vec<Vec<u8>> = outputs
        .iter()
        .map(|(info, shape)| {
            rest.by_ref().take(shape.iter().product::<usize>() * info.dtype.size_bytes()).copied().collect()
        })
        .collect();
    let mut named = Vec::new();
    for ((info, shape), bytes) in outputs.iter().zip(&bytes) {
        let Ok(tensor) = TensorRef::new(info.dtype, shape, bytes) else { panic!("{info} of {} bytes", bytes.len()) };
        named.push(NamedOutput { name: &info.name, tensor });
    }
    let _ = head.filter(&infos, size, score_threshold);
    let input = HeadInput { outputs: &named, input_size: size, score_threshold, mapping: Some(mapping) };
    let mut out = Decoded::default();
    if head.decode(&input, &mut out).is_err() {
        return Ok(());
    }
    let options = NmsOptions {
        iou_threshold: 0.5,
        score_threshold,
        max_detections: 50,
        class_agnostic: false,
        overlap: Overlap::default(),
    };
    for candidate in &out.candidates {
        assert!(candidate.box_in_input.iter().all(|edge| edge.is_finite()), "{spec:?} {candidate:?}");
        assert!(candidate.score.is_finite() && candidate.score >= score_threshold, "{spec:?} {candidate:?}");
        for point in out.keypoints_of(candidate.row) {
            assert!(point.x.is_finite() && point.y.is_finite(), "{spec:?} {point:?}");
        }
    }
    head.suppression().run(&mut out, &mut Nms::default(), &options);
    assert!(out.candidates.len() <= options.max_detections);
    assert!(out.candidates.is_sorted_by(|a, b| a.score >= b.score), "{spec:?}");
    for candidate in &out.candidates {
        let [x1, y1, x2, y2] = mapping.box_to_source(candidate.box_in_input);
        let (width, height) = (frame.0 as f32, frame.1 as f32);
        let is_inside =
            [x1, x2].iter().all(|x| (0.0..=width).contains(x)) && [y1, y2].iter().all(|y| (0.0..=height).contains(y));
        assert!(is_inside, "{spec:?} {:?} is {:?} in {frame:?}", candidate.box_in_input, [x1, y1, x2, y2]);
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // Too few bytes for a case.
    let _ = check(&mut Unstructured::new(data));
});
