//! Row "Filter": compares the candidate filter on the GPU with the heads on the CPU, on made-up outputs of the sizes of real
//! models, and measures it, and suppression on the CPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use half::f16;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::spec::{
    Activation, Background, BlazefaceSpec, BoxUnit, BoxesSpec, DarknetSpec, FacesSpec, GridStyle, HeatmapSpec,
    HeatmapStyle, Keypoints, NanodetSpec, RowsSpec, YoloxSpec,
};
use visiond_engine::heads::{self, Decoded, Head, HeadInput, HeadSpec, NamedOutput};
use visiond_kernels::cuda::{CudaStream, Device, DeviceAddress, DeviceBuffer, Event};
use visiond_kernels::filter::{CudaFilter, FilterError};
use visiond_kernels::nms::{Candidate, Nms, NmsOptions, Overlap};
use visiond_kernels::tensor::{DType, TensorRef};

use crate::measure::{Noise, Samples};
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Filter";
/// Frames of a compared launch.
const FRAMES: usize = 3;
/// Launches of a timed graph.
const LAUNCHES: usize = 50;
/// The allowed difference between CUDA's exp and the C library's, in boxes of up to a thousand pixels and in scores.
const BOX_PIXELS: f32 = 2e-3;
const SCORE: f32 = 2e-6;

/// The outputs of a model.
struct Case {
    name: &'static str,
    spec: HeadSpec,
    outputs: Vec<(&'static str, Vec<usize>)>,
    size: (u32, u32),
    classes: usize,
    /// The range of the raw numbers.
    range: (f32, f32),
    threshold: f32,
}

/// Outputs of several frames, and their copy on the GPU.
struct Outputs {
    infos: Vec<TensorInfo>,
    shapes: Vec<Vec<usize>>,
    bytes: Vec<Vec<u8>>,
    buffers: Vec<DeviceBuffer>,
}

impl Outputs {
    fn new(device: &Arc<Device>, case: &Case, dtype: DType, mut value: impl FnMut() -> f32) -> Result<Self, Failure> {
        let stream = CudaStream::new(device)?;
        let mut made = Self { infos: Vec::new(), shapes: Vec::new(), bytes: Vec::new(), buffers: Vec::new() };
        for (name, shape) in &case.outputs {
            let count = FRAMES * shape.iter().product::<usize>();
            let mut bytes = Vec::with_capacity(count * dtype.size_bytes());
            for _ in 0..count {
                match dtype {
                    DType::F16 => bytes.extend(f16::from_f32(value()).to_ne_bytes()),
                    _ => bytes.extend(value().to_ne_bytes()),
                }
            }
            let buffer = DeviceBuffer::new(device, bytes.len())?;
            // SAFETY: the buffer is as long as the bytes; both outlive the work, which is waited for below.
            unsafe { stream.copy_to_device(&bytes, buffer.address()) }?;
            stream.synchronize()?;
            let dims = shape.iter().map(|&n| Dim::Fixed(n)).collect();
            made.infos.push(TensorInfo { name: (*name).to_owned(), dtype, shape: Some(dims) });
            made.shapes.push(shape.clone());
            made.bytes.push(bytes);
            made.buffers.push(buffer);
        }
        Ok(made)
    }

    fn addresses(&self) -> Vec<(DeviceAddress, DType)> {
        self.buffers.iter().zip(&self.infos).map(|(buffer, info)| (buffer.address(), info.dtype)).collect()
    }

    /// Returns the head's candidates of a frame.
    fn decode(&self, head: &mut dyn Head, case: &Case, frame: usize) -> Result<Decoded, Failure> {
        let mut named = Vec::new();
        for ((info, shape), bytes) in self.infos.iter().zip(&self.shapes).zip(&self.bytes) {
            let each = bytes.len() / FRAMES;
            let tensor = TensorRef::new(info.dtype, shape, &bytes[frame * each..(frame + 1) * each])?;
            named.push(NamedOutput { name: &info.name, tensor });
        }
        let mut out = Decoded::default();
        let input =
            HeadInput { outputs: &named, input_size: case.size, score_threshold: case.threshold, mapping: None };
        head.decode(&input, &mut out)?;
        Ok(out)
    }
}

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    start(&device, report)?;
    let cases = cases();
    let cases = if setup.arguments.quick { &cases[..4] } else { &cases[..] };
    for case in cases {
        for dtype in [DType::F32, DType::F16] {
            compare(&device, case, dtype, report)?;
        }
    }
    overflow(&device, report)?;
    contradictions(&device, report)?;
    if !setup.arguments.quick {
        times(&device, report)?;
        suppression(report);
    }
    Ok(())
}

/// Measures the creation of a filter, which compiles its kernel unless the driver has cached it.
fn start(device: &Arc<Device>, report: &mut Report) -> Result<(), Failure> {
    let case = nanodet();
    let outputs = Outputs::new(device, &case, DType::F32, || 0.0)?;
    let head = head_of(&case, &outputs)?;
    let mut took = Vec::new();
    let mut filters = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        filters.push(filter_of(device, &case, head.as_ref(), &outputs)?);
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report.note(ROW, "making a filter, and a second one", format!("{:.1} ms, {:.1} ms", took[0], took[1]));
    Ok(())
}

fn head_of(case: &Case, outputs: &Outputs) -> Result<Box<dyn Head>, Failure> {
    Ok(heads::build(&case.spec, &outputs.infos, case.size, case.classes)?)
}

fn filter_of(device: &Arc<Device>, case: &Case, head: &dyn Head, outputs: &Outputs) -> Result<CudaFilter, Failure> {
    let spec = head.filter(&outputs.infos, case.size, case.threshold);
    let spec = spec.ok_or_else(|| Failure::Broken(format!("{} has no filter", case.name)))?;
    Ok(CudaFilter::new(&spec, device, FRAMES)?)
}

fn compare(device: &Arc<Device>, case: &Case, dtype: DType, report: &mut Report) -> Result<(), Failure> {
    let mut noise = Noise::new(11);
    let (low, high) = case.range;
    let value = || low + (noise.number() >> 40) as f32 / (1 << 24) as f32 * (high - low);
    let outputs = Outputs::new(device, case, dtype, value)?;
    let mut head = head_of(case, &outputs)?;
    let mut filter = filter_of(device, case, head.as_ref(), &outputs)?;
    let stream = CudaStream::new(device)?;
    let addresses = outputs.addresses();
    // Twice, and by a graph: the second launch starts with the counters that the first left.
    let (mut graph, ()) = stream.capture(|stream| {
        // SAFETY: the buffers hold `FRAMES` frames of the spec's outputs, and are kept until the work is done below.
        unsafe { filter.enqueue(&addresses, FRAMES, stream) }
    })?;
    for _ in 0..2 {
        // SAFETY: everything that was recorded is alive; the launch is waited for.
        unsafe { graph.launch(&stream) }?;
        stream.synchronize()?;
    }
    let mut found = Decoded::default();
    let (mut count, mut worst_box, mut worst_score, mut differences) = (0, 0.0_f32, 0.0_f32, 0);
    for frame in 0..FRAMES {
        let wanted = outputs.decode(head.as_mut(), case, frame)?;
        let list = filter.candidates(frame).ok_or_else(|| Failure::Broken("a frame is missing".to_owned()))?;
        head.decode_filtered(&list, &mut found)?;
        count += wanted.candidates.len();
        differences += found.lost;
        let by_place = |list: &[Candidate]| -> BTreeMap<(u32, u32), Candidate> {
            list.iter().map(|c| ((c.row, c.class_id), *c)).collect()
        };
        let (of_found, of_wanted) = (by_place(&found.candidates), by_place(&wanted.candidates));
        let near = |score: f32| (score - case.threshold).abs() <= SCORE;
        for candidate in &wanted.candidates {
            let Some(seen) = of_found.get(&(candidate.row, candidate.class_id)) else {
                differences += usize::from(!near(candidate.score));
                continue;
            };
            worst_score = worst_score.max((seen.score - candidate.score).abs());
            let size = candidate.box_in_input.iter().fold(1000.0_f32, |size, edge| size.max(edge.abs()));
            for (a, b) in seen.box_in_input.iter().zip(candidate.box_in_input) {
                worst_box = worst_box.max((a - b).abs() / size * 1000.0);
            }
            let (a, b) = (found.keypoints_of(candidate.row), wanted.keypoints_of(candidate.row));
            let same = a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| (a.x - b.x).abs() <= BOX_PIXELS && (a.y - b.y).abs() <= BOX_PIXELS);
            differences += usize::from(!same);
        }
        differences += of_found.iter().filter(|(place, c)| !of_wanted.contains_key(place) && !near(c.score)).count();
    }
    report.figure(
        ROW,
        &format!("{} {dtype}", case.name),
        format!("the head's candidates, boxes within {BOX_PIXELS} of 1000 pixels, scores within {SCORE}"),
        format!(
            "{count} candidates, {differences} differ; boxes within {worst_box:.1e}, scores within {worst_score:.1e}"
        ),
        count > 0 && differences == 0 && worst_box <= BOX_PIXELS && worst_score <= SCORE,
    );
    Ok(())
}

/// More candidates than fit.
fn overflow(device: &Arc<Device>, report: &mut Report) -> Result<(), Failure> {
    let case = Case { threshold: 0.1, ..yolov8() };
    let mut noise = Noise::new(3);
    let value = || (noise.number() >> 40) as f32 / (1 << 24) as f32;
    let outputs = Outputs::new(device, &case, DType::F32, value)?;
    let mut head = head_of(&case, &outputs)?;
    let all = outputs.decode(head.as_mut(), &case, 0)?.candidates;
    let mut filter = filter_of(device, &case, head.as_ref(), &outputs)?;
    let stream = CudaStream::new(device)?;
    // SAFETY: as in `compare`.
    unsafe { filter.enqueue(&outputs.addresses(), FRAMES, &stream) }?;
    stream.synchronize()?;
    let list = filter.candidates(0).ok_or_else(|| Failure::Broken("a frame is missing".to_owned()))?;
    let mut found = Decoded::default();
    head.decode_filtered(&list, &mut found)?;
    let sound = found.candidates.iter().all(|c| all.get(c.row as usize) == Some(c));
    report.figure(
        ROW,
        "more than there is room for",
        "counted, the rest sound",
        format!("{} of {} kept, {} counted as lost", found.candidates.len(), all.len(), found.lost),
        sound && found.candidates.len() + found.lost == all.len() && found.lost > 0,
    );
    Ok(())
}

/// Rows that the model has chosen: one of them contradicts the card, as the head and the filter's reader both report.
fn contradictions(device: &Arc<Device>, report: &mut Report) -> Result<(), Failure> {
    const ROWS: usize = 300;
    const ODD: [[f32; 6]; 8] = [
        [10.0, 10.0, 50.0, 50.0, 300.0, 1.0],
        [10.0, 10.0, 50.0, 50.0, f32::NAN, 1.0],
        [10.0, 10.0, 50.0, 50.0, 0.5, 80.0],
        [10.0, 10.0, 50.0, 50.0, 0.0, 0.92],
        [10.0, 10.0, 50.0, 50.0, 0.5, -1.0],
        [10.0, 10.0, 50.0, 50.0, 0.5, f32::NAN],
        [10.0, 10.0, 5.0, 50.0, 0.5, 1.0],
        [10.0, f32::INFINITY, 50.0, 50.0, 0.5, 1.0],
    ];
    let spec = HeadSpec::YoloNms { keypoints: None, unit: BoxUnit::Pixels, oriented: false, rows: RowsSpec::default() };
    let outputs = vec![("output", vec![1, ROWS, 6])];
    let (size, range) = ((640, 640), (0.0, 1.0));
    let case = Case { name: "rows", spec, outputs, size, classes: 80, range, threshold: 0.25 };
    let problem =
        |text: String| text.split_once("; the model has").map_or(text.clone(), |(problem, _)| problem.to_owned());
    let mut same = 0;
    for (index, odd) in ODD.into_iter().enumerate() {
        let place = 37 * index;
        let mut at = 0;
        let value = || {
            let (row, column) = (at / 6 % ROWS, at % 6);
            at += 1;
            if row == place { odd[column] } else { [100.0, 120.0, 220.0, 260.0, 0.9, (row % 80) as f32][column] }
        };
        let outputs = Outputs::new(device, &case, DType::F32, value)?;
        let mut head = head_of(&case, &outputs)?;
        let mut filter = filter_of(device, &case, head.as_ref(), &outputs)?;
        let stream = CudaStream::new(device)?;
        // SAFETY: as in `compare`.
        unsafe { filter.enqueue(&outputs.addresses(), FRAMES, &stream) }?;
        stream.synchronize()?;
        let list = filter.candidates(1).ok_or_else(|| Failure::Broken("a frame is missing".to_owned()))?;
        let seen = head.decode_filtered(&list, &mut Decoded::default()).map_err(|error| problem(error.to_string()));
        let row = format!("row {place} of");
        let wanted = match outputs.decode(head.as_mut(), &case, 1) {
            Err(Failure::Broken(text)) => Err(problem(text)),
            _ => Ok(()),
        };
        same += usize::from(seen == wanted && seen.is_err_and(|text| text.contains(&row)));
    }
    let wanted = "the head's error, with the row";
    report.figure(ROW, "rows that contradict the card", wanted, format!("{same} of {}", ODD.len()), same == ODD.len());
    Ok(())
}

/// Measures a launch on the GPU, and reading its list on the CPU.
fn times(device: &Arc<Device>, report: &mut Report) -> Result<(), Failure> {
    for (case, dtype, passing) in [
        (nanodet(), DType::F32, 60),
        (nanodet(), DType::F16, 60),
        (yolov8(), DType::F32, 60),
        (yolov8(), DType::F16, 60),
        (yolov8(), DType::F16, 1000),
    ] {
        // One in this many numbers passes; the others are far below.
        let rows = if case.outputs[0].1[2] > 1000 { 8400 } else { 3549 };
        let one_in = (rows * case.classes / passing) as u64;
        let mut noise = Noise::new(5);
        let value = || if noise.number().is_multiple_of(one_in) { 0.9 } else { 0.05 };
        let outputs = Outputs::new(device, &case, dtype, value)?;
        let mut head = head_of(&case, &outputs)?;
        let mut filter = filter_of(device, &case, head.as_ref(), &outputs)?;
        let stream = CudaStream::new(device)?;
        let addresses = outputs.addresses();
        for frames in [1, FRAMES] {
            let (mut graph, ()) = stream.capture(|stream| {
                for _ in 0..LAUNCHES {
                    // SAFETY: as in `compare`; launches of one stream follow one another.
                    unsafe { filter.enqueue(&addresses, frames, stream) }?;
                }
                Ok::<(), FilterError>(())
            })?;
            let (begin, end) = (Event::new(device)?, Event::new(device)?);
            let mut samples = Vec::new();
            for _ in 0..20 {
                begin.record(&stream)?;
                // SAFETY: as in `compare`.
                unsafe { graph.launch(&stream) }?;
                end.record(&stream)?;
                end.wait()?;
                samples.push(end.elapsed_us(&begin)? / LAUNCHES as f64);
            }
            let samples = Samples::new(samples);
            let mut found = Decoded::default();
            let mut reading = Vec::new();
            for _ in 0..200 {
                let began = Instant::now();
                if let Some(list) = filter.candidates(0) {
                    head.decode_filtered(&list, &mut found)?;
                }
                reading.push(began.elapsed().as_secs_f64() * 1e6);
            }
            let reading = Samples::new(reading);
            let megabytes = outputs.bytes.iter().map(Vec::len).sum::<usize>() as f64 / FRAMES as f64 / 1e6;
            report.note(
                ROW,
                &format!("{} {dtype}, {frames} frame(s), {} candidates", case.name, found.candidates.len()),
                format!(
                    "{:.1} us a launch in a graph (least {:.1}), {megabytes:.1} MB of outputs a frame; {:.1} us to read one frame's list",
                    samples.median(),
                    samples.best(),
                    reading.median()
                ),
            );
        }
    }
    Ok(())
}

/// Measures suppression on this machine's CPU.
fn suppression(report: &mut Report) {
    let mut noise = Noise::new(9);
    let mut part = move || (noise.number() >> 40) as f32 / (1 << 24) as f32;
    let options = NmsOptions {
        iou_threshold: 0.6,
        score_threshold: 0.3,
        max_detections: 300,
        class_agnostic: false,
        overlap: Overlap::Points,
    };
    for (what, objects, boxes_each, classes, wanted_us) in [
        ("typical: 60 candidates of 8 things", 8, 8, 80.0, Some(30.0)),
        ("crowd: 1000 candidates of 100 things of one class", 100, 10, 1.0, None),
        ("worst: 1000 candidates of one class, none of which overlap", 1000, 1, 1.0, None),
    ] {
        let mut all = Vec::new();
        for object in 0..objects {
            let (x, y) = ((object % 40) as f32 * 60.0, (object / 40) as f32 * 60.0);
            let class_id = (part() * classes) as u32;
            for _ in 0..boxes_each {
                let (dx, dy) = (part() * 3.0, part() * 3.0);
                let box_in_input = [x + dx, y + dy, x + dx + 50.0, y + dy + 50.0];
                let (score, row) = (0.4 + 0.6 * part(), all.len() as u32);
                all.push(Candidate { box_in_input, score, class_id, row });
            }
        }
        let (mut nms, mut left, mut samples) = (Nms::default(), Vec::new(), Vec::new());
        for _ in 0..300 {
            left.clear();
            left.extend_from_slice(&all);
            let began = Instant::now();
            nms.run(&mut left, &options);
            samples.push(began.elapsed().as_secs_f64() * 1e6);
        }
        let samples = Samples::new(samples);
        let seen = format!("{:.1} us, {} left", samples.median(), left.len());
        let what = format!("suppression on the CPU, {what}");
        match wanted_us {
            Some(most) => report.figure(ROW, &what, format!("<= {most} us"), seen, samples.median() <= most),
            None => report.note(ROW, &what, seen),
        }
    }
}

fn nanodet() -> Case {
    let strides = vec![8, 16, 32];
    let spec = NanodetSpec { strides, reg_max: 10, sigmoid: false, cell_centre: true, multi_label: true };
    Case {
        name: "nanodet 416",
        spec: HeadSpec::Nanodet(spec),
        outputs: vec![("output", vec![1, 3549, 124])],
        size: (416, 416),
        classes: 80,
        range: (0.0, 1.0),
        threshold: 0.4,
    }
}

fn yolov8() -> Case {
    Case {
        name: "yolov8 640",
        spec: HeadSpec::Yolov8 { keypoints: None, masks: 0, oriented: false },
        outputs: vec![("output", vec![1, 84, 8400])],
        size: (640, 640),
        classes: 80,
        range: (0.0, 1.0),
        threshold: 0.25,
    }
}

fn cases() -> Vec<Case> {
    let pose = HeadSpec::Yolov8 { keypoints: Some(Keypoints { count: 17, scored: true }), masks: 0, oriented: false };
    let strides = vec![8, 16, 32];
    let logits = NanodetSpec { strides, reg_max: 10, sigmoid: true, cell_centre: false, multi_label: false };
    let ssd = |activation| {
        HeadSpec::Ssd(BoxesSpec {
            activation: Some(activation),
            background: Some(Background::First),
            ..BoxesSpec::default()
        })
    };
    let pair = |n, width| vec![("scores", vec![1, n, width]), ("boxes", vec![1, n, 4])];
    let map = |style| {
        let (heat, size, offset, landmarks) = (None, None, None, None);
        HeadSpec::Heatmap(HeatmapSpec { style, stride: 4, sigmoid: true, heat, size, offset, landmarks })
    };
    let maps = |classes| {
        vec![
            ("hm", vec![1, classes, 96, 128]),
            ("wh", vec![1, 2, 96, 128]),
            ("reg", vec![1, 2, 96, 128]),
            ("landmarks", vec![1, 10, 96, 128]),
        ]
    };
    let case = |name, spec, outputs, size, classes, range, threshold| Case {
        name,
        spec,
        outputs,
        size: (size, size),
        classes,
        range,
        threshold,
    };
    let face = HeadSpec::Yolov5 { keypoints: Some(Keypoints { count: 5, scored: false }), masks: 0 };
    let yolox = HeadSpec::Yolox(YoloxSpec { decoded: false, strides: vec![8, 16, 32] });
    let faces = vec![("scores", vec![1, 896, 1]), ("boxes", vec![1, 896, 16])];
    let grids = [1, 4, 10].into_iter().flat_map(|width| [12_800, 3200, 800].map(|rows| ("o", vec![rows, width])));
    let scrfd: Vec<_> = grids.collect();
    let cells = |activation, style| {
        let anchors = (1..10).map(|n| [24.0 * n as f32, 18.0 * n as f32]).collect();
        HeadSpec::Darknet(DarknetSpec { anchors, scale_x_y: vec![1.05, 1.1, 1.2], activation, style })
    };
    let yolov3 = cells(Activation::Sigmoid, GridStyle::Darknet);
    let yolov2 = cells(Activation::Softmax, GridStyle::Darknet);
    let yolov7 = cells(Activation::Sigmoid, GridStyle::Yolov5);
    let planes = [52, 26, 13].map(|side| ("o", vec![1, 255, side, side])).to_vec();
    let layers = [80, 40, 20].map(|side| ("o", vec![1, 3, side, side, 85])).to_vec();
    let of_512 = |case: Case| Case { size: (512, 384), ..case };
    vec![
        Case { threshold: 0.99, ..nanodet() },
        Case { threshold: 0.999, ..yolov8() },
        case("yolov8 pose", pose, vec![("o", vec![1, 56, 8400])], 640, 1, (0.0, 1.0), 0.9),
        case("every class, softmax", ssd(Activation::Softmax), pair(3000, 21), 320, 20, (-8.0, 8.0), 0.5),
        case("nanodet's logits", HeadSpec::Nanodet(logits), nanodet().outputs, 416, 80, (-9.0, 6.0), 0.997),
        case(
            "yolov5",
            HeadSpec::Yolov5 { keypoints: None, masks: 0 },
            vec![("o", vec![1, 25_200, 85])],
            640,
            80,
            (0.0, 1.0),
            0.95,
        ),
        case("yolov5 face", face, vec![("o", vec![1, 25_200, 16])], 640, 1, (0.0, 1.0), 0.7),
        case("yolox", yolox, vec![("o", vec![1, 8400, 85])], 640, 80, (0.0, 1.0), 0.95),
        case("every class, sigmoid", ssd(Activation::Sigmoid), pair(3000, 21), 320, 20, (-8.0, 6.0), 0.995),
        case("detr", HeadSpec::Detr(BoxesSpec::default()), pair(300, 91), 640, 91, (-8.0, 3.0), 0.95),
        case("yolov3's grids", yolov3, planes, 416, 80, (-8.0, 6.0), 0.991),
        case("yolov2's grid", yolov2, vec![("o", vec![1, 225, 26, 26])], 416, 20, (-6.0, 6.0), 0.7),
        case("yolov7's layers", yolov7, layers, 640, 80, (-8.0, 6.0), 0.99),
        case("scrfd", HeadSpec::Faces(FacesSpec::default()), scrfd, 640, 1, (0.0, 1.0), 0.97),
        case("blazeface", HeadSpec::Blazeface(BlazefaceSpec::default()), faces, 128, 1, (-4.0, 4.0), 0.9),
        of_512(case("peaks", map(HeatmapStyle::CenterNet), maps(20), 0, 20, (-8.0, 3.0), 0.948)),
        of_512(case("faces", map(HeatmapStyle::CenterFace), maps(1), 0, 1, (-8.0, 3.0), 0.9)),
    ]
}
