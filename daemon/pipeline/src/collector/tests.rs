//! The messages, log lines and frames that a collector passes on.

#![allow(clippy::unwrap_used)]

use visiond_config::types::AnnotateConfig;
use visiond_engine::detector::{Detection, MaskForm};
use visiond_engine::heads::FrameValues;
use visiond_frames::clock::SystemClock;
use visiond_kernels::mask::Mask;
use visiond_kernels::polygon::Polygon;
use visiond_live::{Live, PictureStream};
use visiond_message::Timings;
use visiond_message::status::AnnotateCounts;
use visiond_system::outage::IfUnusable;
use visiond_system::stop::Stop;
use visiond_system::testing::hang;

use super::*;
use crate::lane::testing::{facts, frame, message_channel, outlet, pool};
use crate::lane_result::{MaskFacts, ModelFacts};

fn metrics() -> Arc<CameraMetrics> {
    Arc::new(CameraMetrics::new("door".into()))
}

/// A collector whose messages go nowhere.
fn collector(mask_warnings: &Arc<MaskWarnings>) -> Collector {
    let outlet = outlet(Arc::new(|_| ()), None, Arc::new(SystemClock), &Stop::new().unwrap());
    let view = Live::new().view(&Arc::from("door"));
    Collector::new(metrics(), None, None, view, Delivery::NewestWins, outlet, Arc::clone(mask_warnings))
}

/// The message that `collector` makes of these detections.
fn join(collector: &Collector, model: &ModelFacts, detections: &[Detection]) -> Message {
    let frame = frame(&pool(1), 7).unwrap().facts();
    let (values, timings) = (&FrameValues::NONE, Timings { infer: 5, ..Timings::default() });
    let result = LaneResult { frame, model, detections, values, crops: &[], timings };
    let mut tracks = TrackBuffers::default();
    collector.track(&result, &mut tracks);
    collector.join(&result, tracks.reports(), Instant::now())
}

#[test]
fn messages_are_published_until_their_limit_which_ends_the_run() {
    let (stop, (publish, messages)) = (Stop::new().unwrap(), message_channel());
    let (metrics, view) = (metrics(), Live::new().view(&Arc::from("door")));
    let outlet = outlet(publish, Some(2), Arc::new(SystemClock), &stop);
    let collector =
        Collector::new(Arc::clone(&metrics), None, None, view, Delivery::NewestWins, outlet, Arc::default());
    let model = facts("fake");
    let lane = |has_frame: bool, ends: bool| {
        let lane = LaneMetrics::new("fake".into());
        collector.publish(join(&collector, &model, &[]), None, &[], &lane);
        assert_eq!((lane.had_frame(), stop.is_raised()), (has_frame, ends));
    };
    lane(true, false);
    lane(true, true);
    lane(false, true);
    let published: Vec<_> = messages.try_iter().collect();
    assert_eq!((published.len(), metrics.published()), (2, 2));
    let Message { camera, sequence, timings_us, .. } = &*published[0];
    assert_eq!((&**camera, *sequence, timings_us.infer), ("door", 7, 5));
    assert!(timings_us.total > 0);
}

#[test]
fn large_masks_of_a_camera_are_logged_once_a_minute_also_by_its_next_collector() {
    // A chess board: every edge of every pixel is an edge of its outline.
    let (width, height) = (2048, 1024);
    let row = |row: u32| if row.is_multiple_of(2) { 0x5555_5555 } else { 0xaaaa_aaaa };
    let words = (0..height).flat_map(|y| vec![row(y); width as usize / 32]).collect();
    let noise = Mask { left: 0, top: 0, width, height, words };
    let noise = Detection { score: 0.5, mask: Some(noise), ..Detection::default() };
    let masks = MaskFacts { form: MaskForm::Rle, tolerance_pixels: 1 };
    let model = ModelFacts { masks, ..facts("fake") };
    let object = Detection { mask: None, ..noise.clone() };

    let warnings = Arc::<MaskWarnings>::default();
    let before = collector(&warnings);
    assert_eq!(join(&before, &model, std::slice::from_ref(&object)).truncated_masks(), 0);
    for collector in [&before, &before, &collector(&warnings)] {
        assert_eq!(join(collector, &model, std::slice::from_ref(&noise)).truncated_masks(), 1);
    }
    assert_eq!(warnings.0.lock().pass(Instant::now() + QUIET), Some(2), "the second and third were held back");
}

#[test]
fn frames_go_to_the_annotator_and_to_clients_only_where_there_are_some() {
    let model = facts("fake");
    let publish = |collector: &Collector, sequence| {
        let view = Arc::new(frame(&pool(1), sequence).unwrap());
        collector.publish(join(collector, &model, &[]), Some(view), &[], &LaneMetrics::new("fake".into()));
    };
    let plain = collector(&Arc::default());
    assert!(!plain.wants_view());
    publish(&plain, 1);
    let watch = plain.view.watch(PictureStream::Model, false).unwrap();
    assert!(plain.wants_view(), "a client watches");
    drop(watch);

    for delivery in [Delivery::NewestWins, Delivery::Lossless] {
        let folder = tempfile::tempdir().unwrap();
        let config = AnnotateConfig { directory: folder.path().to_owned(), every: 1, ..AnnotateConfig::default() };
        let annotator = Arc::new(Annotator::start(&config, "door", IfUnusable::Refuse).unwrap());
        let drawing = Collector { annotator: Some(Arc::clone(&annotator)), delivery, ..collector(&Arc::default()) };
        assert!(drawing.wants_view());
        drawing.publish(join(&drawing, &model, &[]), None, &[], &LaneMetrics::new("fake".into()));
        publish(&drawing, 1);
        let AnnotateCounts { written, failed, .. } = annotator.close(hang());
        assert_eq!((written, failed), (1, 0));
    }
}

#[test]
fn a_detection_whose_anchor_is_in_an_ignored_area_is_dropped_before_it_gets_a_track() {
    let left = Polygon::new(&[[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]], None).unwrap();
    let facts_of_frame = FrameFacts { width: 200, height: 100, ..frame(&pool(1), 7).unwrap().facts() };
    let model = facts("fake");
    let seen = |class_id, left, right, bottom: f32| Detection {
        class_id,
        score: 0.9,
        box_in_source: Some([left, bottom - 20.0, right, bottom]),
        ..Detection::default()
    };
    let all = [
        seen(1, 20.0, 60.0, 80.0),
        // Most of it is in the area, but its anchor is not.
        seen(1, 20.0, 190.0, 80.0),
        // It ends at the lower edge of the frame, and so does the area.
        seen(2, 20.0, 60.0, 100.0),
        Detection { class_id: 3, ..Detection::default() },
    ];
    let kept = |classes: &[&str]| {
        let classes = classes.iter().map(|class| (*class).to_owned()).collect();
        let ignored = vec![IgnoredArea { polygon: left.clone(), classes }];
        let tracks = CameraTracks::new(Arc::default());
        let tracking = Some((TrackSettings::default(), Arc::new(Mutex::new(tracks))));
        let collector = Collector { ignored, tracking, ..collector(&Arc::default()) };
        let mut detections = all.to_vec();
        collector.drop_ignored(&facts_of_frame, &model, &mut detections);
        let message = join(&collector, &model, &detections);
        let ids: Vec<_> = message.detections.iter().filter_map(|d| d.track.as_ref()).map(|track| track.id).collect();
        (message.detections.iter().map(|detection| detection.class_id).collect::<Vec<_>>(), ids)
    };
    assert_eq!(kept(&[]), (vec![1, 3], vec![1]), "the first track has the first id");
    assert_eq!(kept(&["class 2", "class 9"]), (vec![1, 1, 3], vec![1, 2]));
}
