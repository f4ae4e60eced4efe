//! The GPU's candidate filter, on the processor, against the heads: equal to the last bit, whatever the outputs hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../tests/common/filter_kernel.rs"]
mod filter_kernel;

use proptest::prelude::*;
use visiond_kernels::filter::CAPACITY;
use visiond_kernels::tensor::{DType, TensorRef};

use super::{right_outputs, shapes_of, specs, tensor, thresholds, values};
use crate::backend::Dim;
use crate::backend::TensorInfo;
use crate::heads::spec::*;
use crate::heads::*;

/// A model's synthetic outputs.
pub(super) struct MadeUpModel {
    pub(super) infos: Vec<TensorInfo>,
    shapes: Vec<Vec<usize>>,
    bytes: Vec<Vec<u8>>,
}

impl MadeUpModel {
    pub(super) fn new(infos: Vec<TensorInfo>, mut value: impl FnMut() -> f32) -> Self {
        let shapes = shapes_of(&infos);
        let fill = |(info, shape): (&TensorInfo, &Vec<usize>)| {
            let count = shape.iter().product();
            let mut bytes = Vec::with_capacity(count * info.dtype.size_bytes());
            for _ in 0..count {
                let value = value();
                match info.dtype {
                    DType::F16 => bytes.extend(half::f16::from_f32(value).to_ne_bytes()),
                    DType::I64 => bytes.extend((value as i64).to_ne_bytes()),
                    _ => bytes.extend(value.to_ne_bytes()),
                }
            }
            bytes
        };
        let bytes = infos.iter().zip(&shapes).map(fill).collect();
        Self { infos, shapes, bytes }
    }

    pub(super) fn decode(
        &self,
        head: &mut dyn Head,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Result<Decoded, HeadError> {
        let named: Vec<NamedOutput<'_>> = self
            .infos
            .iter()
            .zip(&self.shapes)
            .zip(&self.bytes)
            .map(|((info, shape), bytes)| NamedOutput {
                name: &info.name,
                tensor: TensorRef::new(info.dtype, shape, bytes).unwrap(),
            })
            .collect();
        let mut out = Decoded::default();
        head.decode(&HeadInput { outputs: &named, input_size, score_threshold, mapping: None }, &mut out)?;
        Ok(out)
    }

    /// `None` where the head has no filter.
    pub(super) fn filter(
        &self,
        head: &mut dyn Head,
        input_size: (u32, u32),
        score_threshold: f32,
        last_first: bool,
    ) -> Option<Result<Decoded, HeadError>> {
        let spec = head.filter(&self.infos, input_size, score_threshold)?;
        let outputs: Vec<_> = self
            .infos
            .iter()
            .zip(&self.bytes)
            .map(|(info, bytes)| filter_kernel::Output { dtype: info.dtype, bytes })
            .collect();
        let results = filter_kernel::run(&spec, &outputs, last_first);
        let mut out = Decoded::default();
        Some(head.decode_filtered(&results.frame(1), &mut out).map(|()| out))
    }
}

/// Pseudo-random numbers, the same every time.
pub(super) fn noise(seed: u64, range: std::ops::Range<f32>) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        range.start + (state >> 40) as f32 / (1 << 24) as f32 * (range.end - range.start)
    }
}

pub(super) fn assert_same(found: &Decoded, wanted: &Decoded, what: &str) {
    assert_eq!(found.lost, 0, "{what}");
    assert_eq!(found.candidates, wanted.candidates, "{what}");
    for candidate in &wanted.candidates {
        assert_eq!(found.oriented(candidate), wanted.oriented(candidate), "{what}");
        assert_eq!(found.keypoints_of(candidate.row), wanted.keypoints_of(candidate.row), "{what}");
    }
}

const V8: HeadSpec = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false };

fn half(infos: Vec<TensorInfo>) -> Vec<TensorInfo> {
    infos.into_iter().map(|info| TensorInfo { dtype: DType::F16, ..info }).collect()
}

#[test]
fn models_of_real_size_give_the_same_candidates_in_f32_and_f16() {
    let nanodet = |sigmoid, multi_label| {
        let strides = vec![8, 16, 32];
        HeadSpec::Nanodet(NanodetSpec { strides, reg_max: 10, sigmoid, cell_centre: true, multi_label })
    };
    let pose = HeadSpec::Yolov8 { keypoints: Some(Keypoints { count: 17, scored: true }), masks: 0, oriented: false };
    let turned = HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: true };
    let turned_rows =
        HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: true, rows: RowsSpec::default() };
    let points_of_v5 = |count, scored| HeadSpec::Yolov5 { keypoints: Some(Keypoints { count, scored }), masks: 0 };
    let raw = HeadSpec::Yolox(YoloxSpec { decoded: false, strides: vec![8, 16, 32] });
    let softmax = |activation| {
        HeadSpec::Ssd(BoxesSpec {
            activation: Some(activation),
            background: Some(Background::First),
            ..BoxesSpec::default()
        })
    };
    let pair = |n, width| vec![tensor("scores", &[1, n, width]), tensor("boxes", &[1, n, 4])];
    let transposed = vec![tensor("scores", &[1, 21, 3000]), tensor("boxes", &[1, 3000, 1, 4])];
    let peaks = |style| HeadSpec::Heatmap(HeatmapSpec { style, stride: 4, sigmoid: true, ..HeatmapSpec::default() });
    let sides = vec![tensor("hm", &[1, 20, 40, 48]), tensor("wh", &[1, 4, 40, 48])];
    let maps = vec![tensor("hm", &[1, 20, 40, 48]), tensor("wh", &[1, 2, 40, 48]), tensor("reg", &[1, 2, 40, 48])];
    let grids = [1, 4, 10].into_iter().flat_map(|width| [3200, 800, 200].map(|rows| tensor("o", &[rows, width])));
    let scrfd: Vec<TensorInfo> = grids.collect();
    let grids = |activation, style| {
        let anchors = (1..10).map(|n| [12.0 * n as f32, 9.0 * n as f32]).collect();
        HeadSpec::Darknet(DarknetSpec { anchors, scale_x_y: vec![1.05, 1.1, 1.2], activation, style })
    };
    let planes = [40, 20, 10].map(|side| tensor("o", &[1, 75, side, side])).to_vec();
    let layers = [40, 20, 10].map(|side| tensor("o", &[1, 3, side, side, 25])).to_vec();
    let cases = [
        ("nanodet", nanodet(false, true), vec![tensor("o", &[1, 3549, 124])], 416, 80, 0.0..1.0, 0.999),
        ("nanodet's best class", nanodet(false, false), vec![tensor("o", &[1, 3549, 124])], 416, 80, 0.0..1.0, 0.99),
        ("nanodet's logits", nanodet(true, true), vec![tensor("o", &[1, 3549, 124])], 416, 80, -9.0..6.0, 0.997),
        ("yolov8", V8, vec![tensor("o", &[1, 84, 8400])], 640, 80, 0.0..1.0, 0.999),
        ("yolov8, turned", V8, vec![tensor("o", &[1, 8400, 84])], 640, 80, 0.0..1.0, 0.999),
        ("pose", pose, vec![tensor("o", &[1, 56, 2100])], 320, 1, 0.0..1.0, 0.9),
        ("oriented", turned, vec![tensor("o", &[1, 20, 8400])], 640, 15, 0.0..1.0, 0.99),
        ("oriented rows", turned_rows, vec![tensor("o", &[1, 300, 7])], 640, 15, 0.0..1.0, 0.5),
        (
            "yolov5",
            HeadSpec::Yolov5 { keypoints: None, masks: 0 },
            vec![tensor("o", &[1, 6300, 85])],
            320,
            80,
            0.0..1.0,
            0.95,
        ),
        ("yolov5 face", points_of_v5(5, false), vec![tensor("o", &[1, 6300, 16])], 320, 1, 0.0..1.0, 0.7),
        ("yolov7 pose", points_of_v5(17, true), vec![tensor("o", &[1, 6375, 57])], 320, 1, 0.0..1.0, 0.7),
        ("scrfd", HeadSpec::Faces(FacesSpec::default()), scrfd, 320, 1, 0.0..1.0, 0.95),
        ("yolov3", grids(Activation::Sigmoid, GridStyle::Darknet), planes, 320, 20, -8.0..6.0, 0.97),
        (
            "yolov2",
            grids(Activation::Softmax, GridStyle::Darknet),
            vec![tensor("o", &[1, 225, 40, 40])],
            320,
            20,
            -6.0..6.0,
            0.6,
        ),
        ("yolov7's layers", grids(Activation::Sigmoid, GridStyle::Yolov5), layers, 320, 20, -8.0..6.0, 0.97),
        ("yolox", raw, vec![tensor("o", &[1, 2100, 85])], 320, 80, 0.0..1.0, 0.9),
        ("softmax", softmax(Activation::Softmax), pair(3000, 21), 320, 20, -8.0..8.0, 0.5),
        ("every class", softmax(Activation::Sigmoid), pair(3000, 21), 320, 20, -8.0..6.0, 0.995),
        ("transposed", softmax(Activation::Softmax), transposed, 320, 20, -8.0..8.0, 0.5),
        ("detr", HeadSpec::Detr(BoxesSpec::default()), pair(300, 91), 640, 91, -8.0..3.0, 0.9),
        ("peaks", peaks(HeatmapStyle::CenterNet), maps, 192, 20, -8.0..3.0, 0.7),
        ("peaks and sides", peaks(HeatmapStyle::TtfNet), sides, 192, 20, -8.0..3.0, 0.7),
    ];
    for (name, spec, infos, side, classes, range, threshold) in cases {
        for infos in [infos.clone(), half(infos)] {
            let size = (side, if name.starts_with("peaks") { 160 } else { side });
            let mut number = noise(7, range.clone());
            let mut at = 0;
            let model = MadeUpModel::new(infos, || {
                at += 1;
                // The class is a whole number.
                if name == "oriented rows" && at % 7 == 6 { (15.0 * number()).floor() } else { number() }
            });
            let mut head = build(&spec, &model.infos, size, classes).unwrap_or_else(|error| panic!("{error}"));
            let wanted = model.decode(head.as_mut(), size, threshold).unwrap();
            let found = model.filter(head.as_mut(), size, threshold, false).unwrap().unwrap();
            let count = wanted.candidates.len();
            assert!((10..CAPACITY).contains(&count), "{name} has {count} candidates");
            assert_same(&found, &wanted, name);
        }
    }
}

#[test]
fn what_there_is_no_room_for_is_counted_and_the_rest_is_sound() {
    let infos = vec![tensor("o", &[1, 84, 8400])];
    let model = MadeUpModel::new(infos, noise(1, 0.0..1.0));
    let mut head = build(&V8, &model.infos, (640, 640), 80).unwrap_or_else(|error| panic!("{error}"));
    let all = model.decode(head.as_mut(), (640, 640), 0.1).unwrap().candidates;
    for last_first in [false, true] {
        let found = model.filter(head.as_mut(), (640, 640), 0.1, last_first).unwrap().unwrap();
        assert_eq!((found.candidates.len(), found.lost), (CAPACITY, all.len() - CAPACITY));
        assert!(found.candidates.windows(2).all(|pair| pair[0].row < pair[1].row));
        assert!(found.candidates.iter().all(|candidate| all[candidate.row as usize] == *candidate));
    }
}

#[test]
fn outputs_of_no_known_shape_have_no_filter() {
    let unknown = TensorInfo {
        shape: Some(vec![Dim::Fixed(1), Dim::Fixed(84), Dim::Dynamic("n".to_owned())]),
        ..tensor("o", &[])
    };
    let head = build(&V8, std::slice::from_ref(&unknown), (640, 640), 80).unwrap_or_else(|error| panic!("{error}"));
    assert!(head.filter(&[unknown], (640, 640), 0.3).is_none());
    assert!(head.filter(&[tensor("o", &[1, 84, 8400])], (640, 640), 0.3).is_some());
    assert!(head.filter(&[tensor("o", &[1, 85, 8400])], (640, 640), 0.3).is_none());
    // The filter splits a batch itself.
    assert_eq!(
        head.filter(&[tensor("o", &[8, 84, 8400])], (640, 640), 0.3),
        head.filter(&[tensor("o", &[1, 84, 8400])], (640, 640), 0.3)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_head_and_its_filter_find_the_same_in_garbage(
        spec in specs(),
        classes in 1..4_usize,
        rows in 0..9_usize,
        size in (0..70_u32, 0..70_u32),
        variant in 0..4_usize,
        values in prop::collection::vec(values(), 1..200),
        score_threshold in thresholds(),
        half in any::<bool>(),
        last_first in any::<bool>(),
    ) {
        let mut infos = right_outputs(&spec, classes, rows, size, variant);
        for info in infos.iter_mut().filter(|info| half && info.dtype == DType::F32) {
            info.dtype = DType::F16;
        }
        let mut left = values.iter().cycle();
        let model = MadeUpModel::new(infos, || *left.next().unwrap());
        if let Ok(mut head) = build(&spec, &model.infos, size, classes) {
            let wanted = model.decode(head.as_mut(), size, score_threshold);
            if let Some(found) = model.filter(head.as_mut(), size, score_threshold, last_first) {
                let (found, wanted) = match (found, wanted) {
                    (Ok(found), Ok(wanted)) => (found, wanted),
                    // Both report the same row; what to write may differ, since only one has all rows.
                    (found, wanted) => {
                        let row = |result: Result<Decoded, HeadError>| {
                            let text = result.err().map(|error| error.to_string()).unwrap_or_default();
                            text.split_once("; the model has").map_or(text.clone(), |(problem, _)| problem.to_owned())
                        };
                        assert_eq!(row(found), row(wanted));
                        return Ok(());
                    }
                };
                let count = wanted.candidates.len();
                if count > CAPACITY {
                    assert_eq!(found.candidates.len() + found.lost, count, "{}", spec.family().name());
                } else {
                    assert_same(&found, &wanted, spec.family().name());
                }
            }
        }
    }
}
