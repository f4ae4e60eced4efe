//! Objects on seams, in several views, and beside each other.

use proptest::prelude::*;
use visiond_kernels::oriented::OrientedBox;
use visiond_kernels::tiling::Tiling;
use visiond_kernels::view::FrameViews;

use super::*;
use crate::detector::Keypoint;

/// Two tiles, 0 to 640 and 512 to 1152, of a frame of 1152x640.
fn views() -> FrameViews {
    let tiling = Some(Tiling::Size { size: 640, overlap: 0.2 });
    FrameViews::new(View::whole((1152, 640)), tiling).unwrap_or_else(|error| panic!("{error}"))
}

fn object(class_id: u32, score: f32, corners: [f32; 4]) -> Detection {
    Detection { class_id, score, box_in_source: Some(corners), ..Detection::default() }
}

/// Merges the detections of the whole frame, the left tile and the right one.
fn merged(found: [Vec<Detection>; 3]) -> Vec<Detection> {
    let (mut merger, mut out) = (ViewMerger::default(), vec![object(9, 1.0, [0.0; 4])]);
    for (index, mut detections) in found.into_iter().enumerate() {
        merger.add(&views().get(index), &mut detections);
        assert!(detections.is_empty());
    }
    merger.merge(&mut out);
    out
}

fn boxes(found: [Vec<Detection>; 3]) -> Vec<(u32, f32, [f32; 4])> {
    merged(found).iter().map(|one| (one.class_id, one.score, one.box_in_source.unwrap_or_default())).collect()
}

#[test]
fn a_bus_on_a_seam_is_one_bus() {
    let (front, back) = (object(5, 0.8, [400.0, 100.0, 638.0, 200.0]), object(5, 0.6, [514.0, 98.0, 740.0, 204.0]));
    let whole = [400.0, 98.0, 740.0, 204.0];
    assert_eq!(boxes([vec![], vec![front.clone()], vec![back.clone()]]), [(5, 0.8, whole)]);
    // The whole frame shows it uncut, and a part has the better score.
    let seen = object(5, 0.5, [395.0, 97.0, 744.0, 206.0]);
    let found = boxes([vec![seen], vec![front.clone()], vec![back.clone()]]);
    assert_eq!(found, [(5, 0.8, [395.0, 97.0, 744.0, 206.0])]);
    // Classes stay apart.
    let found = boxes([vec![], vec![front], vec![Detection { class_id: 7, ..back }]]);
    assert_eq!(found, [(5, 0.8, [400.0, 100.0, 638.0, 200.0]), (7, 0.6, [514.0, 98.0, 740.0, 204.0])]);
}

#[test]
fn an_object_in_both_tiles_has_the_box_of_the_better_one_that_is_not_cut_off() {
    let left = object(0, 0.9, [540.0, 50.0, 634.0, 120.0]);
    let right = object(0, 0.7, [548.0, 52.0, 622.0, 122.0]);
    let coarse = object(0, 0.3, [550.0, 40.0, 630.0, 130.0]);
    let found = boxes([vec![coarse], vec![left], vec![right]]);
    assert_eq!(found, [(0, 0.9, [548.0, 52.0, 622.0, 122.0])]);
    // The edge of the frame cuts off nothing that another view would show.
    let (better, worse) = (object(0, 0.8, [0.0, 0.0, 50.0, 50.0]), object(0, 0.5, [0.0, 0.0, 60.0, 60.0]));
    assert_eq!(boxes([vec![worse], vec![better], vec![]]), [(0, 0.8, [0.0, 0.0, 50.0, 50.0])]);
}

#[test]
fn neighbours_that_a_view_sees_apart_stay_apart() {
    // Two people, one half behind the other: the model's suppression left both, in both views.
    let people = |scores: [f32; 2], shift: f32| {
        vec![
            object(0, scores[0], [100.0 + shift, 100.0, 140.0 + shift, 200.0]),
            object(0, scores[1], [118.0 + shift, 100.0, 158.0 + shift, 200.0]),
        ]
    };
    let found = boxes([people([0.5, 0.4], 3.0), people([0.9, 0.8], 0.0), vec![]]);
    let wanted = [(0, 0.9, [100.0, 100.0, 140.0, 200.0]), (0, 0.8, [118.0, 100.0, 158.0, 200.0])];
    assert_eq!(found, wanted);
    // A child in front of an adult that only the whole frame shows.
    let (adult, child) = (object(0, 0.6, [100.0, 0.0, 400.0, 640.0]), object(0, 0.7, [200.0, 300.0, 260.0, 420.0]));
    assert_eq!(boxes([vec![adult], vec![child], vec![]]).len(), 2);
    // But a part of the adult that ends at its tile's edge is the adult.
    let (adult, part) = (object(0, 0.6, [300.0, 0.0, 800.0, 640.0]), object(0, 0.7, [512.0, 10.0, 600.0, 400.0]));
    assert_eq!(boxes([vec![adult], vec![], vec![part]]), [(0, 0.7, [300.0, 0.0, 800.0, 640.0])]);
}

#[test]
fn a_child_in_front_of_an_adult_stays_a_child_although_one_tile_cuts_it_off() {
    // Only the whole frame shows the adult. The left tile cuts the child off, the right one shows it whole.
    let adult = object(0, 0.9, [300.0, 20.0, 900.0, 620.0]);
    let cut = object(0, 0.6, [590.0, 300.0, 639.0, 400.0]);
    let child = object(0, 0.8, [590.0, 300.0, 650.0, 400.0]);
    let found = boxes([vec![adult], vec![cut], vec![child]]);
    assert_eq!(found, [(0, 0.9, [300.0, 20.0, 900.0, 620.0]), (0, 0.8, [590.0, 300.0, 650.0, 400.0])]);
}

#[test]
fn masks_of_cut_parts_are_joined_and_otherwise_the_better_one_is_kept() {
    let mask = |left: u32, width: u32| Mask {
        left,
        top: 100,
        width,
        height: 2,
        words: (0..2 * width.div_ceil(32)).map(|word| if word == 0 { 1 } else { 0 }).collect(),
    };
    let with = |detection: Detection, mask: Mask| Detection { mask: Some(mask), ..detection };
    let front = with(object(5, 0.8, [500.0, 100.0, 640.0, 102.0]), mask(500, 140));
    let back = with(object(5, 0.6, [512.0, 100.0, 650.0, 102.0]), mask(512, 138));
    let joined = merged([vec![], vec![front.clone()], vec![back.clone()]]).remove(0).mask.unwrap_or_default();
    assert_eq!((joined.left, joined.top, joined.width, joined.height, joined.area()), (500, 100, 150, 2, 2));
    let seen = with(object(5, 0.1, [490.0, 98.0, 660.0, 104.0]), mask(490, 170));
    let kept = merged([vec![seen.clone()], vec![front], vec![back]]).remove(0).mask;
    assert_eq!(kept, seen.mask);
}

#[test]
fn keypoints_and_oriented_boxes_are_those_of_the_better_one() {
    let point = |x: f32| vec![Keypoint { x, y: 5.0, score: None }];
    let turned = |x: f32| Some(OrientedBox { center: [x, 150.0], size: [200.0, 40.0], angle: 0.1 });
    let ship = |score: f32, x: f32, corners: [f32; 4]| Detection {
        oriented: turned(x),
        keypoints: point(x),
        ..object(1, score, corners)
    };
    let left = ship(0.5, 520.0, [420.0, 120.0, 620.0, 180.0]);
    let right = ship(0.9, 560.0, [512.0, 120.0, 660.0, 180.0]);
    let found = merged([vec![], vec![left], vec![right]]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].oriented, &found[0].keypoints), (turned(560.0), &point(560.0)));
    assert_eq!(found[0].box_in_source, Some([512.0, 120.0, 660.0, 180.0]));
    // Crossed boxes share bounds, but little area.
    let cross = |angle: f32| Some(OrientedBox { center: [200.0, 200.0], size: [180.0, 12.0], angle });
    let bounds = [130.0, 130.0, 270.0, 270.0];
    let one = |angle: f32| Detection { oriented: cross(angle), ..object(1, 0.5, bounds) };
    assert_eq!(merged([vec![one(0.785)], vec![one(2.356)], vec![]]).len(), 2);
}

#[test]
fn the_best_4096_detections_of_a_frame_are_merged() {
    let many = |count: usize, score: f32| {
        let at = |index: usize| [(index % 100) as f32 * 6.0 + 1.0, (index / 100) as f32 * 6.0 + 1.0];
        let corners = |[x, y]: [f32; 2]| [x, y, x + 5.0, y + 5.0];
        (0..count).map(|index| object(0, score, corners(at(index)))).collect::<Vec<_>>()
    };
    let found = merged([many(1, 0.1), many(5000, 0.5), vec![]]);
    assert_eq!(found.len(), MOST);
    assert!(found.iter().all(|one| one.score == 0.5));
}

fn detections() -> impl Strategy<Value = Vec<Detection>> {
    let one = (0..2_u32, 0.1..1.0_f32, 0.0..1100.0_f32, 0.0..600.0_f32, 1.0..300.0_f32, 1.0..300.0_f32)
        .prop_map(|(class_id, score, x, y, w, h)| object(class_id, score, [x, y, x + w, y + h]));
    proptest::collection::vec(one, 0..30)
}

proptest! {
    #[test]
    fn what_one_view_sees_apart_stays_apart_and_merging_twice_gives_the_same(
        whole in detections(), left in detections(), right in detections(),
    ) {
        let all: Vec<_> = [&whole, &left, &right].into_iter().flatten().cloned().collect();
        let found = merged([whole.clone(), left.clone(), right.clone()]);
        // Merging only ever joins different views, so the fullest view bounds the objects from below.
        let most = [whole.len(), left.len(), right.len()].into_iter().max().unwrap_or(0);
        prop_assert!((most..=all.len()).contains(&found.len()));
        prop_assert!(found.is_sorted_by(|a, b| a.score >= b.score));
        // Scores are those of detections.
        for object in &found {
            prop_assert!(all.iter().any(|one| one.score == object.score && one.class_id == object.class_id));
        }
        // The same again.
        prop_assert_eq!(merged([whole, left, right]), found);
    }

    #[test]
    fn one_view_stays_as_it_is(whole in detections()) {
        let mut wanted = whole.clone();
        wanted.sort_by(|a, b| b.score.total_cmp(&a.score));
        let found = merged([whole, vec![], vec![]]);
        prop_assert_eq!(found.len(), wanted.len());
        for (a, b) in found.iter().zip(&wanted) {
            prop_assert_eq!(a.score, b.score);
        }
    }
}
