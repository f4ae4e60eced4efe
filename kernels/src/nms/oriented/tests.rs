use proptest::prelude::*;

use super::*;
use crate::nms::Overlap;
use crate::oriented::probiou;

const OPTIONS: NmsOptions = NmsOptions {
    iou_threshold: 0.5,
    score_threshold: 0.1,
    max_detections: 300,
    class_agnostic: false,
    overlap: Overlap::Points,
};

fn survivors(boxes: &[(OrientedBox, f32, u32)], options: &NmsOptions) -> Vec<u32> {
    let candidate = |(row, &(_, score, class_id)): (usize, &(OrientedBox, f32, u32))| Candidate {
        box_in_input: [0.0; 4],
        score,
        class_id,
        row: row as u32,
    };
    let mut candidates: Vec<Candidate> = boxes.iter().enumerate().map(candidate).collect();
    Nms::default().run_oriented(&mut candidates, |c| boxes.get(c.row as usize).map(|(turned, ..)| *turned), options);
    candidates.iter().map(|c| c.row).collect()
}

/// As the documentation says, one pair after another.
fn plainly(boxes: &[(OrientedBox, f32, u32)], options: &NmsOptions) -> Vec<u32> {
    let mut order: Vec<usize> =
        (0..boxes.len()).filter(|&i| boxes[i].1 >= options.score_threshold && boxes[i].0.is_finite()).collect();
    order.sort_by(|&a, &b| boxes[b].1.total_cmp(&boxes[a].1));
    let meet = |a: usize, b: usize| {
        (options.class_agnostic || boxes[a].2 == boxes[b].2)
            && probiou(&boxes[a].0, &boxes[b].0) > f64::from(options.iou_threshold)
    };
    let alone = |&place: &usize| order[..place].iter().all(|&better| !meet(better, order[place]));
    (0..order.len()).filter(alone).take(options.max_detections).map(|place| order[place] as u32).collect()
}

fn at(x: f32) -> OrientedBox {
    OrientedBox { center: [x, 0.0], size: [20.0, 10.0], angle: 0.3 }
}

#[test]
fn a_removed_box_removes_others_unlike_in_greedy_suppression() {
    // Neighbours overlap, the ends do not.
    assert!(probiou(&at(0.0), &at(5.0)) > 0.5 && probiou(&at(0.0), &at(10.0)) < 0.5);
    let chain = [(at(0.0), 0.9, 0), (at(5.0), 0.8, 0), (at(10.0), 0.7, 0), (at(40.0), 0.6, 0)];
    assert_eq!(survivors(&chain, &OPTIONS), [0, 3]);
}

#[test]
fn another_class_is_left_alone_unless_told() {
    let pair = [(at(0.0), 0.8, 0), (at(1.0), 0.9, 1), (at(1.0), 0.05, 2)];
    assert_eq!(survivors(&pair, &OPTIONS), [1, 0]);
    assert_eq!(survivors(&pair, &NmsOptions { class_agnostic: true, ..OPTIONS }), [1]);
    assert_eq!(survivors(&pair, &NmsOptions { max_detections: 1, ..OPTIONS }), [1]);
}

#[test]
fn more_candidates_than_the_limit_are_left_out_by_score() {
    let far = |index: usize| {
        let score = 0.2 + 0.5 * index as f32 / (MAX_ORIENTED + 2) as f32;
        (at(1e3 * index as f32), score, 0)
    };
    let all: Vec<_> = (0..MAX_ORIENTED + 2).map(far).collect();
    let found = survivors(&all, &NmsOptions { max_detections: usize::MAX, class_agnostic: true, ..OPTIONS });
    assert_eq!((found.len(), found[0], found[MAX_ORIENTED - 1]), (MAX_ORIENTED, MAX_ORIENTED as u32 + 1, 2));
}

fn boxes() -> impl Strategy<Value = Vec<(OrientedBox, f32, u32)>> {
    let odd = prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::MAX), Just(0.0), Just(1e-40)];
    let place = prop_oneof![30 => 0.0_f32..60.0, 1 => odd.clone()];
    let side = prop_oneof![30 => 0.0_f32..50.0, 2 => odd];
    // Few distinct scores, so that ties happen.
    let one = (place.clone(), place, side.clone(), side, -4.0_f32..4.0, 0_u8..20, 0_u32..3);
    prop::collection::vec(one, 0..50).prop_map(|list| {
        let boxed = |(x, y, w, h, angle, score, class)| {
            (OrientedBox { center: [x, y], size: [w, h], angle }, f32::from(score) / 20.0, class)
        };
        list.into_iter().map(boxed).collect()
    })
}

proptest! {
    #[test]
    fn skipping_what_is_far_apart_changes_nothing(
        all in boxes(), iou_threshold in 0.0_f32..=1.0, max_detections in 0_usize..60, class_agnostic in any::<bool>(),
    ) {
        let options = NmsOptions { iou_threshold, max_detections, class_agnostic, ..OPTIONS };
        prop_assert_eq!(survivors(&all, &options), plainly(&all, &options));
    }
}
