//! Cascades with fake models, and the crops that they get.

#![allow(clippy::unwrap_used)]

use visiond_frames::clock::SystemClock;
use visiond_frames::frame::FrameFacts;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut};
use visiond_message::{AttributeMessage, Message, Timings};
use visiond_telemetry::metrics::CameraMetrics;
use visiond_tracker::TrackState;

use super::*;
use crate::lane::testing::{self, Act, Fake, facts, frame, pool};

fn settings() -> CropSettings {
    CropSettings { classes: Vec::new(), min_size: None, margin: 0.0, square: false, max_crops: 100, refresh: None }
}

fn at(corners: [f32; 4], score: f32) -> Detection {
    Detection { score, box_in_source: Some(corners), ..Detection::default() }
}

/// A fake model on detections, whose class is the first pixel of its crop.
fn model(name: &str, output: CropOutput, batch: usize, act: fn(u8) -> Act) -> CropModel {
    CropModel {
        metrics: Arc::new(LaneMetrics::new(name.into())),
        facts: facts(name),
        runner: Some(Box::new(Fake::new(batch, 1, act))),
        build: Box::new(move || Ok(Box::new(Fake::new(batch, 1, act)))),
        settings: settings(),
        output,
        models: Vec::new(),
        state: CropState::default(),
    }
}

/// The message of a frame of 4 x 2 pixels, each of value `pixel`, that was recorded at `time`.
fn message(
    cascade: &mut Cascade,
    detections: &[Detection],
    tracks: &[u64],
    pixel: u64,
    time: Duration,
) -> Result<Message, RunError> {
    let camera = testing::camera(&Arc::new(CameraMetrics::new("door".into())));
    let frame = frame(&pool(1), pixel).unwrap();
    let lane = LaneMetrics::new("objects".into());
    let tracks: Vec<_> = tracks.iter().map(|&id| Some(report(id))).collect();
    let facts_of_frame = FrameFacts { recorded_at: Some(time), ..frame.facts() };
    let model = facts("objects");
    let (values, timings) = (&FrameValues::NONE, Timings::default());
    let result = LaneResult { frame: facts_of_frame, model: &model, detections, values, crops: &[], timings };
    let crops = {
        let stop = Stop::new().unwrap();
        let lane = LaneContext { metrics: &lane, clock: &SystemClock, stop: &stop };
        cascade.run(Some(&frame), &camera, &result, &tracks, lane)?
    };
    Ok(camera.join(&LaneResult { crops, ..result }, &tracks, Instant::now()))
}

fn report(id: u64) -> TrackReport {
    TrackReport {
        id,
        state: TrackState::Confirmed,
        age_ms: 0,
        velocity: [0.0; 2],
        class_id: 0,
        smooth: [0.0; 4],
        smooth_oriented: None,
    }
}

/// The labels that `model` gave the detections of a message.
fn labels(message: &Message) -> Vec<Option<String>> {
    let label = |attribute: &AttributeMessage| attribute.text();
    message.detections.iter().map(|one| one.attributes.0.first().map(|(_, attribute)| label(attribute))).collect()
}

#[test]
fn a_crop_has_every_pixel_of_the_extended_box_inside_of_what_the_camera_shows() {
    let labels: Vec<Arc<str>> = vec!["car".into(), "person".into()];
    let area = [0, 0, 640, 480];
    let crop = |settings: &CropSettings, corners| settings.crop_of(&at(corners, 0.5), &labels, area);
    let plain = settings();
    assert_eq!(crop(&plain, [10.5, 20.0, 29.75, 60.0]), Some([10, 20, 20, 40]));
    assert_eq!(crop(&plain, [-5.0, 470.0, 5.0, 500.0]), Some([0, 470, 5, 10]));
    assert_eq!(crop(&plain, [-5.0, 10.0, -1.0, 20.0]), None, "outside");
    assert_eq!(crop(&plain, [5.0, 10.0, 5.0, 20.0]), None, "empty");
    assert_eq!(crop(&plain, [f32::NAN, 10.0, 5.0, 20.0]), None);
    let wide = CropSettings { margin: 0.25, ..settings() };
    assert_eq!(crop(&wide, [100.0, 100.0, 140.0, 200.0]), Some([90, 75, 60, 150]));
    let square = CropSettings { square: true, ..wide.clone() };
    assert_eq!(crop(&square, [100.0, 100.0, 140.0, 200.0]), Some([45, 75, 150, 150]));
    assert_eq!(crop(&square, [0.0, 100.0, 40.0, 200.0]), Some([0, 75, 95, 150]), "clipped, not moved");
    let part = wide.crop_of(&at([100.0, 100.0, 140.0, 200.0], 0.5), &labels, [96, 0, 40, 480]);
    assert_eq!(part, Some([96, 75, 40, 150]), "a camera's own crop");

    let large = CropSettings { min_size: Some(50), ..settings() };
    assert_eq!(crop(&large, [0.0, 0.0, 49.0, 49.0]), None);
    assert_eq!(crop(&large, [0.0, 0.0, 10.0, 50.0]), Some([0, 0, 10, 50]), "the longer side counts");
    let people = CropSettings { classes: vec!["person".to_owned()], ..settings() };
    assert_eq!(crop(&people, [0.0, 0.0, 9.0, 9.0]), None);
    let person = Detection { class_id: 1, ..at([0.0, 0.0, 9.0, 9.0], 0.5) };
    assert!(people.crop_of(&person, &labels, area).is_some());
    let region = Detection { fraction: Some(0.5), ..person };
    assert_eq!(people.crop_of(&region, &labels, area), None, "a class of a map of the frame");
    assert_eq!(plain.crop_of(&Detection::default(), &labels, area), None, "a class of the frame");
}

/// Bytes from a seed, as in tests/golden/crops.py.
fn noise(count: u64, seed: u64) -> Vec<u8> {
    let byte = |index: u64| {
        let z = index.wrapping_add(seed.wrapping_mul(0x1_0000_0001)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (z ^ (z >> 32)) as u8
    };
    (0..count).map(byte).collect()
}

#[test]
fn crops_of_ten_thousand_boxes_are_opencvs_to_the_last_bit() {
    const SIDES: (u32, u32) = (161, 119);
    const SIDE: usize = 24;
    let golden = include_str!("../../../../tests/golden/crops.txt");
    let layout = FrameLayout::packed(PixelFormat::Rgb, SIDES.0, SIDES.1, ColorDescription::default()).unwrap();
    let pixels = noise(u64::from(SIDES.0 * SIDES.1 * 3), 1);
    let frame = layout.view(&pixels).unwrap();
    let spec = PreprocessSpec {
        width: SIDE as u32,
        height: SIDE as u32,
        placement: Fit::Stretch.into(),
        sampling: Sampling::Opencv,
        pad: 0.0,
        order: ChannelOrder::Rgb,
        layout: TensorLayout::Nhwc,
        dtype: DType::U8,
        scale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
    };
    let mut preprocessor = Preprocessor::new(spec).unwrap();
    let words = noise(80_000, 2);
    let mut tensor = vec![0; SIDE * SIDE * 3];
    let (mut check, mut crops, mut lines) = (0_u64, 0, String::new());
    for (index, bytes) in words.chunks_exact(8).enumerate() {
        let word = |at: usize| u32::from(bytes[2 * at]) * 256 + u32::from(bytes[2 * at + 1]);
        let [left, top] =
            [(word(0), SIDES.0), (word(1), SIDES.1)].map(|(word, side)| (word % (4 * (side + 64))) as f32 / 4.0 - 32.0);
        let [width, height] = [word(2), word(3)].map(|word| (word % 384 + 1) as f32 / 4.0);
        let settings = CropSettings { margin: (index % 3) as f64 * 0.125, square: index % 2 == 1, ..settings() };
        let found = at([left, top, left + width, top + height], 0.5);
        let crop = settings.crop_of(&found, &[], [0, 0, SIDES.0, SIDES.1]);
        if let Some(view) = crop.and_then(|crop| View::new(SIDES, crop, Orientation::UPRIGHT)) {
            let mut out = TensorMut::new(DType::U8, &[1, SIDE, SIDE, 3], &mut tensor).unwrap();
            preprocessor.run(&frame.viewed(view).unwrap(), &mut out).unwrap();
            check += (1_u64..).zip(&tensor).map(|(index, &value)| index * u64::from(value)).sum::<u64>();
            crops += 1;
        }
        if index % 100 == 99 {
            lines += &format!("{check} {crops}\n");
            (check, crops) = (0, 0);
        }
    }
    assert_eq!(lines, golden);
}

#[test]
fn models_run_on_the_crops_of_a_frame_together_and_on_detections_of_each_other() {
    let mut bars = model("bars", CropOutput::Detections, 8, |_| Act::See);
    bars.models.push(model("tint", CropOutput::Label, 8, |_| Act::See));
    let (bars_metrics, tint_metrics) = (Arc::clone(&bars.metrics), Arc::clone(&bars.models[0].metrics));
    let kind = model("kind", CropOutput::Label, 2, |_| Act::See);
    let kind_metrics = Arc::clone(&kind.metrics);
    let mut cascade = Cascade::new(vec![bars, kind]);
    let detections = [[0.0, 0.0, 2.0, 1.0], [2.0, 0.0, 4.0, 2.0], [0.0, 0.0, 4.0, 2.0]].map(|corners| at(corners, 0.9));
    let message = message(&mut cascade, &detections, &[], 7, Duration::ZERO).unwrap();
    for detection in &message.detections {
        assert_eq!(detection.attributes.0[0].1.text(), "class 7");
        let [inner] = &detection.detections[..] else { panic!("{detection:?}") };
        assert_eq!((inner.model.as_deref(), &*inner.label), (Some("bars"), "class 7"));
        assert_eq!((&*inner.attributes.0[0].0, inner.attributes.0[0].1.text()), ("tint", "class 7".to_owned()));
    }
    let counts = |metrics: &LaneMetrics| (metrics.runs.get(), metrics.crops.get());
    assert_eq!([counts(&bars_metrics), counts(&tint_metrics), counts(&kind_metrics)], [(1, 3), (1, 3), (2, 3)]);
}

#[test]
fn of_too_many_boxes_the_best_are_looked_at_and_the_others_counted() {
    let many = model("kind", CropOutput::Label, 20, |_| Act::See);
    let metrics = Arc::clone(&many.metrics);
    let mut cascade = Cascade::new(vec![CropModel { settings: CropSettings { max_crops: 30, ..settings() }, ..many }]);
    // Ascending scores.
    let detections: Vec<_> = (0..10_000).map(|n| at([0.0, 0.0, 4.0, 2.0], n as f32 / 10_000.0)).collect();
    let message = message(&mut cascade, &detections, &[], 7, Duration::ZERO).unwrap();
    assert_eq!((metrics.runs.get(), metrics.crops.get(), metrics.crops_left_out.get()), (2, 30, 9_970));
    let labelled: Vec<_> = labels(&message).iter().map(Option::is_some).collect();
    assert!(labelled[..9_970].iter().all(|is| !is) && labelled[9_970..].iter().all(|is| *is));
}

#[test]
fn twenty_tracks_cost_two_runs_a_second_and_always_have_their_label() {
    let kind = model("kind", CropOutput::Label, 20, |_| Act::See);
    let metrics = Arc::clone(&kind.metrics);
    let mut cascade = Cascade::new(vec![kind]);
    // They come over the first second, one after the other, and thirty frames a second last a minute.
    for number in 0..1800_u64 {
        let present = (number + 1).min(20);
        let detections: Vec<_> = (0..present).map(|_| at([0.0, 0.0, 4.0, 2.0], 0.8)).collect();
        let ids: Vec<_> = (1..=present).collect();
        let time = Duration::from_nanos(number * 1_000_000_000 / 30);
        let message = message(&mut cascade, &detections, &ids, 7, time).unwrap();
        assert!(labels(&message).iter().all(|label| label.as_deref() == Some("class 7")), "frame {number}");
    }
    let runs = metrics.runs.get();
    assert!((60..=20 + 2 * 60).contains(&runs), "{runs} runs");
    assert!(metrics.crops.get() <= 20 * (2 * 60 + 1), "{}", metrics.crops.get());
}

#[test]
fn a_track_is_looked_at_again_when_its_time_is_over_it_grows_or_is_seen_better() {
    let kind = model("kind", CropOutput::Label, 1, |_| Act::See);
    let metrics = Arc::clone(&kind.metrics);
    let mut cascade = Cascade::new(vec![kind]);
    let mut runs = |millis, corners, score| {
        let before = metrics.runs.get();
        message(&mut cascade, &[at(corners, score)], &[5], 7, Duration::from_millis(millis)).unwrap();
        metrics.runs.get() - before
    };
    let small = [0.0, 0.0, 2.0, 1.0];
    assert_eq!([runs(0, small, 0.5), runs(900, small, 0.5), runs(1000, small, 0.5)], [1, 0, 1]);
    assert_eq!([runs(1100, [0.0, 0.0, 2.0, 1.4], 0.5), runs(1200, [0.0, 0.0, 2.0, 2.0], 0.5)], [0, 1]);
    assert_eq!([runs(1300, small, 0.54), runs(1400, small, 0.56), runs(1500, small, 0.6)], [0, 1, 0]);
    assert_eq!(runs(10, small, 0.5), 1, "a recording that begins again");
}

#[test]
fn positions_are_found_in_every_frame_unless_the_settings_say_otherwise() {
    for (refresh, wanted) in [(None, 4), (Some(Duration::from_secs(1)), 1)] {
        let bars = model("bars", CropOutput::Detections, 1, |_| Act::See);
        let metrics = Arc::clone(&bars.metrics);
        let mut cascade = Cascade::new(vec![CropModel { settings: CropSettings { refresh, ..settings() }, ..bars }]);
        let found = (0..4).map(|frame| {
            let detections = [at([0.0, 0.0, 4.0, 2.0], 0.8)];
            let message = message(&mut cascade, &detections, &[5], 7, Duration::from_millis(40 * frame)).unwrap();
            message.detections[0].detections.len()
        });
        assert_eq!((found.sum::<usize>(), metrics.runs.get()), (wanted, wanted as u64));
    }
}

#[test]
fn the_label_of_a_track_is_that_of_most_of_its_runs() {
    let kind = model("kind", CropOutput::Label, 1, |_| Act::See);
    let mut cascade = Cascade::new(vec![kind]);
    let mut told = |second: u64, pixel| {
        let detections = [at([0.0, 0.0, 4.0, 2.0], 0.8)];
        let message = message(&mut cascade, &detections, &[5], pixel, Duration::from_secs(second)).unwrap();
        let AttributeMessage::Label(label) = &message.detections[0].attributes.0[0].1 else { panic!("no label") };
        (label.label.to_string(), label.score)
    };
    assert!((0..20).all(|second| told(second, 7) == ("class 7".to_owned(), 0.9)));
    let (label, score) = told(20, 3);
    assert!(label == "class 7" && (0.75..0.85).contains(&score), "{label} {score}");
    // Ten of thirty, but the last.
    let later: Vec<_> = (21..30).map(|second| told(second, 3).0).collect();
    assert!(later[0] == "class 7" && later[8] == "class 3", "{later:?}");
}

#[test]
fn a_model_that_fails_costs_its_results_and_is_loaded_again() {
    let act = |pixel| if pixel == 9 { Act::FailRun } else { Act::See };
    let metrics = LaneMetrics::new("kind".into());
    let kind = CropModel { metrics: Arc::new(metrics), ..model("kind", CropOutput::Label, 1, act) };
    let metrics = Arc::clone(&kind.metrics);
    let mut cascade = Cascade::new(vec![kind]);
    let detections = [at([0.0, 0.0, 4.0, 2.0], 0.8)];
    let mut seen = |pixel| labels(&message(&mut cascade, &detections, &[], pixel, Duration::ZERO).unwrap())[0].clone();
    assert_eq!(seen(7).as_deref(), Some("class 7"));
    assert_eq!([seen(9), seen(9), seen(9)], [None, None, None]);
    assert_eq!((metrics.errors.get(), metrics.rebuilds.get()), (3, 0));
    // After a pause.
    let found =
        std::iter::repeat_with(|| seen(7)).inspect(|_| std::thread::sleep(Duration::from_millis(5))).flatten().next();
    assert_eq!(found.as_deref(), Some("class 7"));
    assert_eq!(metrics.rebuilds.get(), 1);

    let lost = model("kind", CropOutput::Label, 1, |_| Act::LoseGpu);
    let error = message(&mut Cascade::new(vec![lost]), &detections, &[], 7, Duration::ZERO).unwrap_err();
    assert_eq!(error.fault, Fault::GpuLost);
}
