//! Detectors on both backends: the sample model against golden data, and small models for features that it lacks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::*;
use rten_onnx::onnx::{DataType, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use visiond_engine::card::Card;
use visiond_engine::detector::{Detection, Detector, DetectorError, DetectorOptions, RunId};
use visiond_engine::engine::{Backend, Engine, EngineOptions};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::nms::iou;
use visiond_kernels::view::{Orientation, View};

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Looks at an RGB image.
fn look_at(detector: &mut Detector, width: u32, height: u32, rgb: &[u8]) -> Vec<Detection> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default()).unwrap();
    let run_id = detector.begin(&[layout.view(rgb).unwrap()]).unwrap();
    detector.finish(run_id).unwrap();
    detections(detector, run_id, 0)
}

/// Runs images of one shade each, 8 pixels wide and 4 high.
fn run_shades(detector: &mut Detector, shades: &[u8]) -> Result<RunId, DetectorError> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, 8, 4, ColorDescription::default()).unwrap();
    let pictures: Vec<_> = shades.iter().map(|&shade| [shade; 8 * 4 * 3]).collect();
    let views: Vec<_> = pictures.iter().map(|rgb| layout.view(rgb).unwrap()).collect();
    let run_id = detector.begin(&views)?;
    detector.finish(run_id)?;
    Ok(run_id)
}

/// Returns the detections in one image of one shade.
fn look_at_shade(detector: &mut Detector, shade: u8) -> Vec<Detection> {
    let run_id = run_shades(detector, &[shade]).unwrap();
    detections(detector, run_id, 0)
}

fn detections(detector: &mut Detector, run_id: RunId, slot: usize) -> Vec<Detection> {
    // The list's previous contents must be removed.
    let stale = Detection { class_id: 99, score: 1.0, ..Detection::default() };
    let mut out = vec![stale];
    detector.detections(run_id, slot, &mut out).unwrap();
    out
}

#[test]
fn the_sample_network_sees_what_opencv_and_onnxruntime_see() {
    let golden = std::fs::read_to_string(repository("tests/golden/nanodet.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&golden).unwrap();
    let model = repository("config/models/nanodet-g-416.onnx");
    for backend in backends() {
        let engine = load(backend, &model);
        let card = Card::for_model(&model, None, engine.metadata(), engine.inputs(), engine.outputs()).unwrap();
        let limits = DetectorOptions { score_threshold: Some(0.3), ..DetectorOptions::default() };
        let mut detector = Detector::new(&engine, &card, &limits).unwrap();
        assert_eq!((detector.batch(), &*detector.label(15), &*detector.label(99)), (1, "cat", "99"));
        for picture in ["astronaut.png", "chelsea.png", "coffee.png"] {
            let rgb = image::open(repository("tests/media").join(picture)).unwrap().into_rgb8();
            let found = look_at(&mut detector, rgb.width(), rgb.height(), &rgb);
            let expected: Vec<Vec<f32>> = serde_json::from_value(golden["files"][picture][0].clone()).unwrap();
            let same = |e: &Vec<f32>, f: &Detection| {
                f.class_id as f32 == e[0]
                    && (f.score - e[1]).abs() < 0.01
                    && iou(f.box_in_source.unwrap(), [e[2], e[3], e[4], e[5]]) > 0.98
            };
            for e in expected.iter().filter(|e| e[1] >= 0.3) {
                assert!(found.iter().any(|f| same(e, f)), "{backend}, {picture}: {e:?} is not in {found:?}");
            }
            for f in &found {
                assert!(
                    f.score >= 0.3 && expected.iter().any(|e| same(e, f)),
                    "{backend}, {picture}: {f:?} is too many"
                );
            }
            assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
        }
    }
}

/// Nodes that make `score` [N, 1, 1] of the brightness (0 to 1) of `x`, four-dimensional, in 0..=1.
#[test]
fn a_turned_and_cropped_camera_has_the_detections_of_the_upright_picture_in_its_own_pixels() {
    let model = repository("config/models/nanodet-g-416.onnx");
    let rgb = image::open(repository("tests/media/chelsea.png")).unwrap().into_rgb8();
    let (backend, engine) = backends().into_iter().map(|backend| (backend, load(backend, &model))).next().unwrap();
    let card = Card::for_model(&model, None, engine.metadata(), engine.inputs(), engine.outputs()).unwrap();
    let mut detector = Detector::new(&engine, &card, &DetectorOptions::default()).unwrap();
    let upright = look_at(&mut detector, rgb.width(), rgb.height(), &rgb);
    assert!(!upright.is_empty());
    for orientation in Orientation::all() {
        // The camera's frame, with the picture 20 columns from the left and 6 rows from the top of something else.
        let (width, height) = orientation.size_of(rgb.dimensions());
        let size = (width + 31, height + 9);
        let view = View::new(size, [20, 6, width, height], orientation).unwrap();
        // The picture's size is odd: the crop takes a further column or row.
        let (seen_width, seen_height) = view.picture_size();
        let shown = image::imageops::crop_imm(&rgb, 0, 0, seen_width.min(rgb.width()), seen_height.min(rgb.height()));
        let mut seen = image::RgbImage::new(seen_width, seen_height);
        image::imageops::replace(&mut seen, &shown.to_image(), 0, 0);
        let mut frame = image::RgbImage::from_pixel(size.0, size.1, image::Rgb([200, 30, 90]));
        for (x, y, pixel) in seen.enumerate_pixels() {
            let (x, y) = view.point_to_frame(f64::from(x) + 0.5, f64::from(y) + 0.5);
            frame.put_pixel(x as u32, y as u32, *pixel);
        }
        let wanted = look_at(&mut detector, seen_width, seen_height, &seen);
        let layout = FrameLayout::packed(PixelFormat::Rgb, size.0, size.1, ColorDescription::default()).unwrap();
        let run_id = detector.begin(&[layout.view(&frame).unwrap().viewed(view).unwrap()]).unwrap();
        detector.finish(run_id).unwrap();
        let found = detections(&mut detector, run_id, 0);
        let in_frame = |one: &Detection| Detection {
            box_in_source: one.box_in_source.map(|corners| view.box_to_frame(corners)),
            ..one.clone()
        };
        assert_eq!(found, wanted.iter().map(in_frame).collect::<Vec<_>>(), "{backend} {orientation:?}");
        assert_eq!(found.len(), upright.len(), "{orientation:?}");
    }
}

fn brightness(x: &str) -> Vec<NodeProto> {
    let mut mean = node("ReduceMean", &[x], &["mean"]);
    mean.attribute = vec![ints("axes", &[1, 2, 3]), int("keepdims", 1)];
    vec![mean, node("Reshape", &["mean", "to_rows"], &["score"])]
}

fn to_rows() -> TensorProto {
    TensorProto {
        name: Some("to_rows".to_owned()),
        dims: vec![3],
        data_type: Some(DataType::INT64),
        int64_data: vec![-1, 1, 1],
        ..TensorProto::default()
    }
}

/// A model that sees a frame's brightness as the score of three boxes in a 4x4 input: two that overlap in the left half,
/// and one that lies in the padding of a wide frame. A second class gets half of the score.
fn sees_brightness(input: ValueInfoProto, batch: fn() -> D) -> ModelProto {
    let mut nodes = brightness("x");
    nodes.push(node("Mul", &["score", "zero"], &["nothing"]));
    nodes.push(node("Add", &["nothing", "places"], &["boxes"]));
    nodes.push(node("Mul", &["score", "strengths"], &["scores"]));
    let outputs = vec![
        value("boxes", DataType::FLOAT, Some(vec![batch(), D::Is(3), D::Is(4)])),
        value("scores", DataType::FLOAT, Some(vec![batch(), D::Is(3), D::Is(2)])),
    ];
    let mut graph = graph(nodes, vec![input], outputs);
    let places = [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 1.9, 3.0, 0.0, 0.0, 4.0, 0.5];
    graph.initializer = vec![
        to_rows(),
        weights("zero", &[1], &[0.0]),
        weights("places", &[1, 3, 4], &places),
        weights("strengths", &[1, 3, 2], &[1.0, 0.5, 0.9, 0.0, 1.0, 0.0]),
    ];
    model(graph)
}

fn card(more: &str) -> Card {
    let text = format!(
        "{more}\n[head]\nfamily = \"ssd\"\nunit = \"pixels\"\n[detect]\nscore_threshold = 0.1\niou_threshold = 0.5\n\
         [classes]\nnames = [\"lamp\", \"candle\"]\n"
    );
    Card::from_toml(&text, Path::new("test.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// The padding is black, so that the image's shade is half of what the model sees.
const LETTERBOX: &str = "[input]\nfit = \"letterbox\"\npad = 0\n";

fn images(batch: D) -> ValueInfoProto {
    value("x", DataType::FLOAT, Some(vec![batch, D::Is(3), D::Is(4), D::Is(4)]))
}

#[test]
fn boxes_come_back_into_the_frame_suppressed_and_clipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &sees_brightness(images(D::Is(1)), || D::Is(1)));
    for backend in backends() {
        let engine = load(backend, &path);
        let mut detector = Detector::new(&engine, &card(LETTERBOX), &DetectorOptions::default()).unwrap();
        let found = look_at_shade(&mut detector, 204);
        // A score of 0.4 at the left half; the box in the padding has no part in the frame, the third is suppressed.
        let seen: Vec<_> = found.iter().map(|d| (d.class_id, d.box_in_source.unwrap())).collect();
        assert_eq!(seen, [(0, [0.0, 0.0, 4.0, 4.0]), (1, [0.0, 0.0, 4.0, 4.0])]);
        assert!((found[0].score - 0.4).abs() < 1e-5 && (found[1].score - 0.2).abs() < 1e-5, "{found:?}");

        let limits = DetectorOptions { score_threshold: Some(0.3), ..DetectorOptions::default() };
        let mut detector = Detector::new(&engine, &card(LETTERBOX), &limits).unwrap();
        assert_eq!(look_at_shade(&mut detector, 204).len(), 1);

        let limits = DetectorOptions {
            iou_threshold: Some(0.99),
            classes: vec!["lamp".to_owned()],
            ..DetectorOptions::default()
        };
        let mut detector = Detector::new(&engine, &card(LETTERBOX), &limits).unwrap();
        let found = look_at_shade(&mut detector, 204);
        assert!(found.len() == 2 && found.iter().all(|d| d.class_id == 0), "{found:?}");
    }
}

/// A head with suppression after it and one without: both have the limits of the card, or else of the options.
#[test]
fn the_limits_of_score_and_number_hold() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &sees_brightness(images(D::Is(1)), || D::Is(1)));
    for backend in backends() {
        let engine = load(backend, &path);
        for family in ["ssd", "detr"] {
            let mut card = card("[input]\nfit = \"stretch\"\n");
            let text = format!("[head]\nfamily = \"{family}\"\nunit = \"pixels\"\nformat = \"xyxy\"\n");
            card.head = Card::from_toml(&text, Path::new("head.toml")).unwrap().head;
            let look = |card: &Card, limits: DetectorOptions| {
                look_at_shade(&mut Detector::new(&engine, card, &limits).unwrap(), 102)
            };
            let all = look(&card, DetectorOptions::default());
            assert!(all.len() >= 3, "{backend}, {family}: {all:?}");
            let best = all[0].score;
            let count = |score: f32| all.iter().filter(|found| found.score >= score).count();
            for most in 1..=2 {
                let limited = look(&card, DetectorOptions { max_detections: Some(most), ..DetectorOptions::default() });
                assert_eq!(limited, all[..most], "{backend}, {family}");
            }
            // A score that is exactly the threshold stays.
            for threshold in [best, best.next_up(), all[2].score, all[2].score.next_up()] {
                let limits = DetectorOptions { score_threshold: Some(threshold), ..DetectorOptions::default() };
                assert_eq!(look(&card, limits).len(), count(threshold), "{backend}, {family}, {threshold}");
            }
            card.max_detections = 1;
            assert_eq!(look(&card, DetectorOptions::default()), all[..1], "{backend}, {family}");
            card.score_threshold = best.next_up();
            assert_eq!(look(&card, DetectorOptions::default()), [], "{backend}, {family}");
        }
    }
}

#[test]
fn each_slot_of_a_batch_has_its_own_result() {
    let directory = tempfile::tempdir().unwrap();
    let open: fn() -> D = || D::Named("batch");
    let fixed: fn() -> D = || D::Is(3);
    for (name, batch) in [("open.onnx", open), ("fixed.onnx", fixed)] {
        let path = write(directory.path(), name, &sees_brightness(images(batch()), batch));
        for backend in backends() {
            let engine = load(backend, &path);
            let limits = DetectorOptions { max_batch: 3, ..DetectorOptions::default() };
            let mut detector = Detector::new(&engine, &card(LETTERBOX), &limits).unwrap();
            assert_eq!(detector.batch(), 3);
            for frames in [3, 1, 2, 3] {
                let shades: Vec<_> = (0..frames).map(|slot| 102 + 51 * slot as u8).collect();
                let run_id = run_shades(&mut detector, &shades).unwrap();
                for slot in 0..frames {
                    let found = detections(&mut detector, run_id, slot);
                    let expected = 0.2 + 0.1 * slot as f32;
                    assert!(
                        (found[0].score - expected).abs() < 1e-5,
                        "{backend}, {name}, slot {slot} of {frames}: {found:?}"
                    );
                }
                assert!(detector.detections(run_id, frames, &mut Vec::new()).is_err());
            }
            let error = run_shades(&mut detector, &[9; 4]).unwrap_err();
            assert!(matches!(error, DetectorError::Frames { found: 4, most: 3 }), "{error}");
        }
    }
}

#[test]
fn a_run_is_begun_finished_and_read_in_this_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &sees_brightness(images(D::Named("n")), || D::Named("n")));
    let engine = load(Backend::Rten, &path);
    let mut detector =
        Detector::new(&engine, &card(LETTERBOX), &DetectorOptions { max_batch: 2, ..DetectorOptions::default() })
            .unwrap();
    assert_eq!(detector.max_in_flight(), 1);
    let layout = FrameLayout::packed(PixelFormat::Rgb, 8, 4, ColorDescription::default()).unwrap();
    let view = layout.view(&[9; 8 * 4 * 3]).unwrap();
    assert!(matches!(detector.begin(&[]), Err(DetectorError::Frames { found: 0, most: 2 })));
    let run_id = detector.begin(&[view]).unwrap();
    assert!(matches!(detector.begin(&[view]), Err(DetectorError::Busy { max_in_flight: 1 })));
    assert!(detector.detections(run_id, 0, &mut Vec::new()).is_err(), "nothing was seen yet");
    detector.finish(run_id).unwrap();
    assert!(matches!(detector.finish(run_id), Err(DetectorError::NotInFlight)));
    detector.detections(run_id, 0, &mut Vec::new()).unwrap();
    let error = detector.detections(run_id, 1, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("slot 1") && error.contains("had no frame there"), "{error}");
}

#[test]
fn whole_numbers_interleaved_are_fed_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    for (kind, name) in [(DataType::UINT8, "u8"), (DataType::INT32, "i32")] {
        let input = value("pixels", kind, Some(vec![D::Is(1), D::Open, D::Open, D::Is(3)]));
        let mut model = sees_brightness(input, || D::Is(1));
        let graph = model.graph.as_mut().unwrap();
        let mut cast = node("Cast", &["pixels"], &["wide"]);
        cast.attribute = vec![int("to", 1)];
        graph.node.splice(0..0, [cast, node("Mul", &["wide", "scale"], &["x"])]);
        graph.initializer.push(weights("scale", &[1], &[1.0 / 255.0]));
        let path = write(directory.path(), &format!("{name}.onnx"), &model);
        for backend in backends() {
            let engine = load(backend, &path);
            let error =
                Detector::new(&engine, &card(LETTERBOX), &DetectorOptions::default()).err().unwrap().to_string();
            let wanted = format!("`pixels {name} [1, ?, ?, 3]` has no fixed size: write width and height");
            assert!(error.contains(&wanted), "{error}");
            let card = card("[input]\nsize = [4, 4]\nfit = \"letterbox\"\npad = 0\nscale = 1\n");
            let mut detector = Detector::new(&engine, &card, &DetectorOptions::default()).unwrap();
            let found = look_at_shade(&mut detector, 204);
            assert!((found[0].score - 0.4).abs() < 1e-5, "{found:?}");
        }
    }
}

#[test]
fn other_inputs_are_filled_by_the_card() {
    let directory = tempfile::tempdir().unwrap();
    // As RT-DETR: the second input holds the size whose pixels the boxes are in.
    let mut nodes = brightness("x");
    let mut cast = node("Cast", &["size"], &["wide"]);
    cast.attribute = vec![int("to", 1)];
    let mut join = node("Concat", &["none", "wide"], &["flat"]);
    join.attribute = vec![int("axis", 1)];
    nodes.extend([
        cast,
        node("Mul", &["wide", "zero"], &["none"]),
        join,
        node("Reshape", &["flat", "to_boxes"], &["boxes"]),
    ]);
    let open = || Some(vec![D::Named("n"), D::Is(1), D::Is(4)]);
    let outputs = vec![
        value("boxes", DataType::FLOAT, open()),
        value("score", DataType::FLOAT, Some(vec![D::Named("n"), D::Is(1), D::Is(1)])),
    ];
    let size = value("size", DataType::INT64, Some(vec![D::Named("n"), D::Is(2)]));
    let picture = value("x", DataType::FLOAT, Some(vec![D::Named("n"), D::Is(3), D::Open, D::Open]));
    let mut graph = graph(nodes, vec![size, picture], outputs);
    let to_boxes = TensorProto { name: Some("to_boxes".to_owned()), int64_data: vec![-1, 1, 4], ..to_rows() };
    graph.initializer = vec![to_rows(), to_boxes, weights("zero", &[1], &[0.0])];
    let path = write(directory.path(), "m.onnx", &model(graph));
    for backend in backends() {
        let engine = load(backend, &path);
        let sized = |more: &str, size: Option<(u32, u32)>| {
            let mut card = card(&format!("[extra_inputs]\n{more}\n[input]\nfit = \"stretch\"\n"));
            card.classes.truncate(1);
            card.input.size = size;
            Detector::new(&engine, &card, &DetectorOptions { max_batch: 2, ..DetectorOptions::default() })
        };
        let new = |more: &str| sized(more, Some((4, 4)));
        for fill in ["size = \"input-size\"", "size = [4, 4]"] {
            let mut detector = new(fill).unwrap();
            for frames in [2, 1] {
                let run_id = run_shades(&mut detector, &vec![255; frames]).unwrap();
                for slot in 0..frames {
                    let found = detections(&mut detector, run_id, slot);
                    assert_eq!(found[0].box_in_source, Some([0.0, 0.0, 8.0, 4.0]), "{backend}, {fill}");
                }
            }
        }
        // Of an input of 8x4, width and height are the whole frame; height and width are a box of 4x8, cut off below.
        for (fill, right) in [("input-size", 8.0), ("input-size-hw", 4.0)] {
            let found = look_at_shade(&mut sized(&format!("size = \"{fill}\""), Some((8, 4))).unwrap(), 255);
            assert_eq!(found[0].box_in_source, Some([0.0, 0.0, right, 4.0]), "{backend}, {fill}");
        }
        let says = |more: &str| new(more).err().unwrap().to_string();
        assert!(says("").contains("also needs the input `size i64 [n, 2]`"), "{}", says(""));
        let error = says("size = [1, 2, 3]");
        assert!(error.contains("gives 3 numbers") && error.contains("size i64 [n, 2]"), "{error}");
        let error = says("size = [1, 2.5]");
        assert!(error.contains("gives 2.5 for the input `size i64 [n, 2]`, which takes whole numbers"), "{error}");
        let error = says("sizes = [4, 4]");
        assert!(error.contains("names the input `sizes`") && error.contains("`size i64 [n, 2]`"), "{error}");
    }
}

/// A model whose one box of the whole image has the brightness and the numbers of its other input as scores: for each frame its
/// own if `by_frame`, otherwise all numbers, of which rows of four are one.
fn sees_numbers(picture: D, numbers: Vec<D>, by_frame: bool) -> ModelProto {
    let axes = if numbers.len() == 1 { vec![] } else { vec![int("keepdims", 0), ints("axes", &[-1])] };
    let mut rows = node(if axes.is_empty() { "Identity" } else { "ReduceMean" }, &["numbers"], &["rows"]);
    rows.attribute = axes;
    let mut nodes = brightness("x");
    let to = if by_frame {
        let mut join = node("Concat", &["score", "strengths"], &["scores"]);
        join.attribute = vec![int("axis", 2)];
        let numbers = if numbers.len() == 2 { "numbers" } else { "rows" };
        nodes.extend([rows, node("Reshape", &[numbers, "to"], &["strengths"]), join]);
        vec![0, 1, -1]
    } else {
        let mut join = node("Concat", &["score", "product"], &["scores"]);
        join.attribute = vec![int("axis", 2)];
        let product = node("Mul", &["score", "strengths"], &["product"]);
        nodes.extend([rows, node("Reshape", &["rows", "to"], &["strengths"]), product, join]);
        vec![1, 1, -1]
    };
    nodes.extend([node("Mul", &["score", "zero"], &["nothing"]), node("Add", &["nothing", "place"], &["boxes"])]);
    let outputs = vec![
        value("boxes", DataType::FLOAT, Some(vec![D::Open, D::Is(1), D::Is(4)])),
        value("scores", DataType::FLOAT, Some(vec![D::Open, D::Is(1), D::Open])),
    ];
    let mut graph = graph(nodes, vec![images(picture), value("numbers", DataType::FLOAT, Some(numbers))], outputs);
    let to = TensorProto { name: Some("to".to_owned()), int64_data: to, ..to_rows() };
    let place = weights("place", &[1, 1, 4], &[0.0, 0.0, 4.0, 4.0]);
    graph.initializer = vec![to_rows(), to, weights("zero", &[1], &[0.0]), place];
    model(graph)
}

/// Writes a file like that of `numpy.save` for rows of four equal numbers.
fn save_rows(path: &Path, dims: &str, rows: &[f32]) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {dims}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(rows.iter().flat_map(|row| [*row; 4]).flat_map(f32::to_le_bytes));
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_input_that_is_no_batch_keeps_its_shape_whatever_the_number_of_frames() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    let rows = directory.path().join("rows.npy");
    const FILE: &str = "\"rows.npy\"";
    let open = || D::Named("b");
    let table = || vec![D::Named("n"), D::Is(4)];
    let stack = || vec![D::Named("b"), D::Named("n"), D::Is(4)];
    // The batch of the image, the other input, whether it has a part for each frame, what fills it, and the runs' frames.
    let cases = [
        ("prompts, one picture", D::Is(1), table(), false, FILE, "(3, 4)", &[0.9, 0.6, 0.3][..], &[1][..]),
        ("prompts", open(), table(), false, FILE, "(3, 4)", &[0.9, 0.6, 0.3], &[4, 1, 2]),
        ("one prompt", open(), table(), false, FILE, "(1, 4)", &[0.9], &[2, 1]),
        ("prompts by frame", open(), stack(), true, FILE, "(1, 3, 4)", &[0.9, 0.6, 0.3], &[2, 1]),
        ("prompts, fixed batch", D::Is(2), table(), false, FILE, "(3, 4)", &[0.9, 0.6, 0.3], &[1, 2]),
        ("a list", open(), vec![D::Named("n")], false, "[0.9, 0.6, 0.3]", "(0, 4)", &[0.9, 0.6, 0.3], &[4, 1]),
        ("values by frame", open(), vec![D::Named("b"), D::Is(2)], true, "[0.9, 0.6]", "(0, 4)", &[0.9, 0.6], &[2, 1]),
        ("fixed batch", D::Is(2), vec![D::Open, D::Is(2)], true, "[0.9, 0.6]", "(0, 4)", &[0.9, 0.6], &[1, 2]),
    ];
    for (case, picture, numbers, by_frame, fill, dims, wanted, runs) in cases {
        std::fs::write(&path, encode(&sees_numbers(picture, numbers, by_frame))).unwrap();
        save_rows(&rows, dims, if fill == FILE { wanted } else { &[] });
        let names: Vec<String> = (0..=wanted.len()).map(|class| format!("\"{class}\"")).collect();
        let text = format!(
            "[input]\nfit = \"stretch\"\n[extra_inputs]\nnumbers = {fill}\n[head]\nfamily = \"ssd\"\nunit = \"pixels\"\n\
             multi_label = true\n[detect]\nscore_threshold = 0.1\n[classes]\nnames = [{}]\n",
            names.join(", ")
        );
        let card = Card::from_toml(&text, &directory.path().join("m.toml")).unwrap_or_else(|error| panic!("{error}"));
        for backend in backends() {
            let max_batch = runs.iter().copied().max().unwrap();
            let options = DetectorOptions { max_batch, ..DetectorOptions::default() };
            let mut detector = Detector::new(&load(backend, &path), &card, &options)
                .unwrap_or_else(|error| panic!("{case}, {backend}: {error}"));
            for &frames in runs {
                let shades = &[255, 204, 153, 230][..frames];
                let run_id = run_shades(&mut detector, shades)
                    .unwrap_or_else(|error| panic!("{case}, {backend}, {frames} frames: {error}"));
                for (slot, shade) in shades.iter().enumerate() {
                    let shade = f32::from(*shade) / 255.0;
                    let factor = if by_frame { 1.0 } else { shade };
                    let wanted: Vec<f32> = [shade].into_iter().chain(wanted.iter().map(|row| row * factor)).collect();
                    let mut found = detections(&mut detector, run_id, slot);
                    found.sort_by_key(|one| one.class_id);
                    let scores: Vec<f32> = found.iter().map(|one| one.score).collect();
                    let same = scores.len() == wanted.len()
                        && scores.iter().zip(&wanted).all(|(score, wanted)| (score - wanted).abs() < 1e-5);
                    assert!(same, "{case}, {backend}, frame {slot} of {frames}: {scores:?}, not {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn a_card_that_does_not_fit_is_told_what_would() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), "m.onnx", &sees_brightness(images(D::Is(1)), || D::Is(1)));
    let engine = load(Backend::Rten, &path);
    let says = |more: &str, classes: &[&str]| {
        let classes = classes.iter().map(|&name| name.to_owned()).collect();
        Detector::new(&engine, &card(more), &DetectorOptions { classes, ..DetectorOptions::default() })
            .err()
            .unwrap()
            .to_string()
    };
    let error = says("[input]\norder = \"grey\"\n", &[]);
    let order = "test.toml:2:9: `order` is `grey`, 1 channel, but the input `x f32 [1, 3, 4, 4]` has 3 channels: write";
    assert!(error.starts_with(order), "{error}");
    let error = says("[input]\nlayout = \"nhwc\"\n", &[]);
    assert!(error.starts_with("test.toml:2:10: `layout` is `nhwc`, but the input"), "{error}");
    let error = says("[input]\nname = \"images\"\n", &[]);
    assert!(error.contains("names the input `images`") && error.contains("`x f32 [1, 3, 4, 4]`"), "{error}");
    assert!(says("", &["lamb"]).contains("did you mean `lamp`?"), "{}", says("", &["lamb"]));
    assert!(says("", &["zebra"]).contains("it has `lamp`, `candle`"), "{}", says("", &["zebra"]));
    assert!(says("", &["0"]).contains("no class `0`"));
}

/// A model that is declared for three images of 4x4, and works with any.
fn of_any_size() -> ModelProto {
    sees_brightness(images(D::Is(3)), || D::Is(3))
}

/// A classifier that flattens its image of 28x28 before a product.
fn flattens() -> ModelProto {
    let shape = TensorProto { name: Some("to_row".to_owned()), dims: vec![2], int64_data: vec![1, -1], ..to_rows() };
    let nodes = vec![node("Reshape", &["x", "to_row"], &["row"]), node("MatMul", &["row", "weights"], &["scores"])];
    let input = value("x", DataType::FLOAT, Some([1, 3, 28, 28].map(D::Is).into()));
    let mut graph = graph(nodes, vec![input], vec![value("scores", DataType::FLOAT, Some(vec![D::Is(1), D::Is(2)]))]);
    graph.initializer = vec![shape, weights("weights", &[3 * 28 * 28, 2], &[0.001; 3 * 28 * 28 * 2])];
    model(graph)
}

/// Makes a detector and runs it once.
fn runs(engine: &Engine, card: &Card) -> bool {
    Detector::new(engine, card, &DetectorOptions::default())
        .and_then(|mut detector| run_shades(&mut detector, &[200]))
        .is_ok()
}

#[test]
fn a_small_declared_size_is_that_of_an_example_if_the_model_runs_at_another() {
    let directory = tempfile::tempdir().unwrap();
    let any = write(directory.path(), "any.onnx", &of_any_size());
    let fixed = write(directory.path(), "fixed.onnx", &flattens());
    for backend in backends() {
        let sized = card("[input]\nsize = [16, 8]\nfit = \"stretch\"\n");
        let engine = load(backend, &any);
        Detector::check_card(&sized, engine.inputs(), engine.outputs()).unwrap();
        let mut detector = Detector::new(&engine, &sized, &DetectorOptions::default()).unwrap();
        assert_eq!((detector.input_size(), detector.batch()), ((16, 8), 1));
        assert!(!look_at_shade(&mut detector, 200).is_empty());

        let engine = load(backend, &fixed);
        let classifier = |size: &str| {
            Card::from_toml(&format!("[input]\nsize = {size}\n[head]\nfamily = \"classifier\"\n"), Path::new("c.toml"))
                .unwrap()
        };
        assert!(runs(&engine, &classifier("28")));
        assert!(!runs(&engine, &classifier("224")));
        let (other, error) = Detector::other_size(&engine, &classifier("224")).unwrap();
        assert!(runs(&engine, &other));
        let says = "c.toml:2:8: `size` is 224x224, but the model runs only at the size of its input `x f32 [1, 3, 28, 28]`: write \
                    `size = [28, 28]`, or remove it";
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(Detector::other_size(&engine, &classifier("28")).is_none());
    }
}

#[test]
fn a_picture_that_is_resized_to_less_than_the_input_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let engine =
        load(Backend::Rten, &write(directory.path(), "m.onnx", &sees_brightness(images(D::Is(1)), || D::Is(1))));
    let says = |lines: &str| {
        let made = Detector::new(&engine, &card(&format!("[input]\n{lines}\n")), &DetectorOptions::default());
        made.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let error = says("fit = \"resize-crop\"\nresize = 3");
    let place =
        "test.toml:3:10: the picture is resized to 3x3, but the input that is cut out of it is 4x4: write `resize = 4`";
    assert!(error.starts_with(place), "{error}");
    assert!(says("fit = \"resize-crop\"\nresize = [5, 3]").contains("write `resize = [5, 4]` under [input]"));
    assert!(
        says("preprocess = \"caffe\"\nsize = 320").starts_with("test.toml:2:14: the picture is resized to 256x256")
    );
    assert_eq!(says("fit = \"resize-crop\"\nresize = [4, 5]"), "");
}

#[test]
fn a_card_of_another_size_is_refused_unless_a_shape_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let input = value("x", DataType::FLOAT, Some([3, 3, 64, 64].map(D::Is).into()));
    let path = write(directory.path(), "m.onnx", &sees_brightness(input, || D::Is(3)));
    for backend in backends() {
        let engine = load(backend, &path);
        let card = card("[input]\nsize = [16, 8]\nfit = \"stretch\"\n");
        let error = Detector::new(&engine, &card, &DetectorOptions::default()).err().unwrap().to_string();
        let size = "`size` is 16x8, but the model fixes its input `x f32 [3, 3, 64, 64]`: write `size = [64, 64]`, or \
             remove it";
        assert!(error.contains(size), "{error}");

        let input_shapes = std::collections::BTreeMap::from([("x".to_owned(), vec![2, 3, 6, 12])]);
        let engine = Engine::load(&path, &EngineOptions { input_shapes, ..options(backend) }).unwrap();
        let detector = Detector::new(&engine, &card, &DetectorOptions::default()).unwrap();
        assert_eq!((detector.input_size(), detector.batch()), ((12, 6), 2));
    }
}
