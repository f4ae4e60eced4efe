//! Non-maximum suppression: of boxes that show the same object, keeps the best.
//!
//! Greedy, as in torchvision and OpenCV: visits candidates by falling score (lower index first for equal scores) and removes
//! those that overlap a kept one by more than the threshold. Boxes are (x1, y1, x2, y2) in any common unit.
//! [`Nms::blend`] averages the boxes of one object instead of dropping all but the best, as MediaPipe does.
//! [`Nms::run_oriented`] is for oriented boxes.

mod oriented;
mod ranked_box;

use self::ranked_box::RankedBox;

/// A box with its score and class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The box x1, y1, x2, y2 in pixels of the model's input.
    pub box_in_input: [f32; 4],
    /// The confidence, 0 to 1.
    pub score: f32,
    /// The class, counted from 0.
    pub class_id: u32,
    /// The row of the raw output that it comes from, to find masks and keypoints again.
    pub row: u32,
}

/// How to measure the overlap of two boxes, and how much is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// Corners are points, and an IoU above the threshold is too much: torchvision, and most other code.
    #[default]
    Points,
    /// Corners are pixels that belong to the box, so that its sides are one pixel longer, and an IoU of the threshold is already
    /// too much: CenterFace. Small boxes overlap more by this measure.
    Pixels,
}

/// Options of the suppression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmsOptions {
    /// IoU with a better box above which a box is removed; 0 to 1.
    pub iou_threshold: f32,
    /// The minimum score.
    pub score_threshold: f32,
    /// The maximum number of boxes that stay.
    pub max_detections: usize,
    /// Whether boxes of different classes suppress each other.
    pub class_agnostic: bool,
    /// How their overlap is measured.
    pub overlap: Overlap,
}

impl NmsOptions {
    /// Returns the corners of a box as points.
    #[inline]
    fn corners(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        match self.overlap {
            Overlap::Points => [x1, y1, x2, y2],
            Overlap::Pixels => [x1, y1, x2 + 1.0, y2 + 1.0],
        }
    }

    /// Returns the IoU above which a box is removed.
    fn limit(&self) -> f32 {
        match self.overlap {
            Overlap::Points => self.iou_threshold,
            Overlap::Pixels => self.iou_threshold.next_down(),
        }
    }

    /// Whether `a` and `b` show the same object.
    fn meet(&self, a: &Candidate, b: &Candidate) -> bool {
        (self.class_agnostic || a.class_id == b.class_id)
            && iou(self.corners(a.box_in_input), self.corners(b.box_in_input)) > self.limit()
    }
}

/// A candidate and the survivor that represents it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// The survivor's index in the result.
    pub survivor: usize,
    /// The unchanged candidate.
    pub candidate: Candidate,
}

/// Returns the mean of a number of every candidate in `group`, weighted by their scores.
pub fn weighted_mean(group: &[Member], number: impl Fn(&Candidate) -> f32) -> f32 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for Member { candidate, .. } in group {
        sum += number(candidate) * candidate.score;
        weights += candidate.score;
    }
    sum / weights
}

/// Suppression with reusable memory: it allocates nothing after its busiest frame.
#[derive(Debug, Default)]
pub struct Nms {
    /// Score and index of each candidate in one number that sorts best first: see [`sort_key`].
    keys: Vec<u64>,
    kept: Vec<Candidate>,
    /// The boxes of `kept`, arranged for comparison.
    blocks: Vec<Block>,
    /// The oriented boxes so far, best first.
    ranked: Vec<RankedBox>,
}

/// The number of boxes in a [`Block`].
const WIDTH: usize = 8;

/// Boxes side by side, so that one is compared with all of them at once. Free entries hold an empty box, which overlaps
/// nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    edges: [[f32; WIDTH]; 4],
    area: [f32; WIDTH],
    class_id: [u32; WIDTH],
}

impl Nms {
    /// Keeps the surviving `candidates`, best first. Removes candidates with a score or box that is not finite.
    ///
    /// Sorts n keys and compares each candidate with the survivors of its class until `max_detections` are found: at most n *
    /// `max_detections` comparisons, eight at a time.
    pub fn run(&mut self, candidates: &mut Vec<Candidate>, options: &NmsOptions) {
        self.choose(candidates, options);
        candidates.clear();
        candidates.extend_from_slice(&self.kept);
    }

    /// Does the same as [`Nms::run`], but gives each survivor the mean of its own box and those that it removed, weighted by
    /// their scores; its score stays. Fills `members` with the candidates of the first survivor, best first, then those of the
    /// second, and so on. A survivor without area has none.
    ///
    /// Compares each candidate with the survivors before its own once more.
    pub fn blend(&mut self, candidates: &mut Vec<Candidate>, options: &NmsOptions, members: &mut Vec<Member>) {
        self.choose(candidates, options);
        members.clear();
        for &key in &self.keys {
            let candidate = candidates[index_of(key)];
            let survivor = self.kept.iter().position(|kept| options.meet(kept, &candidate));
            members.extend(survivor.map(|survivor| Member { survivor, candidate }));
        }
        members.sort_unstable_by_key(|m| (m.survivor, sort_key(m.candidate.score, m.candidate.row as usize)));
        candidates.clear();
        candidates.extend_from_slice(&self.kept);
        for group in members.chunk_by(|a, b| a.survivor == b.survivor) {
            let edge = |edge: usize| weighted_mean(group, |member| member.box_in_input[edge]);
            let mean: [f32; 4] = std::array::from_fn(edge);
            // Garbage may overflow the sum, and scores of 0 have no mean.
            if mean.iter().all(|edge| edge.is_finite()) {
                candidates[group[0].survivor].box_in_input = mean;
            }
        }
    }

    /// Fills `kept` with the survivors, best first.
    fn choose(&mut self, candidates: &[Candidate], options: &NmsOptions) {
        self.rank(candidates, options.score_threshold);
        let limit = options.limit();
        for &key in &self.keys {
            if self.kept.len() >= options.max_detections {
                break;
            }
            let candidate = candidates[index_of(key)];
            let corners = options.corners(candidate.box_in_input);
            if !self.blocks.iter().any(|block| block.suppresses(corners, candidate.class_id, options, limit)) {
                let column = self.kept.len() % WIDTH;
                if column == 0 {
                    self.blocks.push(Block::default());
                }
                if let Some(block) = self.blocks.last_mut() {
                    block.set(column, corners, candidate.class_id);
                }
                self.kept.push(candidate);
            }
        }
    }

    /// Keeps the best `limit` candidates of at least `score_threshold`, best first, without suppression: for models that include
    /// their own. Removes numbers that are not finite, like [`Nms::run`].
    pub fn best(&mut self, candidates: &mut Vec<Candidate>, score_threshold: f32, limit: usize) {
        self.rank(candidates, score_threshold);
        self.kept.extend(self.keys.iter().take(limit).map(|&key| candidates[index_of(key)]));
        candidates.clear();
        candidates.extend_from_slice(&self.kept);
    }

    /// Fills `keys` with the candidates that may survive, best first, and clears `kept`.
    fn rank(&mut self, candidates: &[Candidate], score_threshold: f32) {
        self.keys.clear();
        self.kept.clear();
        self.blocks.clear();
        let sound = |c: &Candidate| {
            c.score >= score_threshold && c.score.is_finite() && c.box_in_input.iter().all(|edge| edge.is_finite())
        };
        self.keys.extend(candidates.iter().enumerate().filter(|(_, c)| sound(c)).map(|(i, c)| sort_key(c.score, i)));
        self.keys.sort_unstable();
    }
}

impl Block {
    fn set(&mut self, column: usize, corners: [f32; 4], class_id: u32) {
        for (edge, value) in self.edges.iter_mut().zip(corners) {
            edge[column] = value;
        }
        self.area[column] = area(corners);
        self.class_id[column] = class_id;
    }

    /// Whether any of the boxes meets one with these corners ([`NmsOptions::meet`]): [`iou`] of finite boxes, without branches.
    #[inline]
    fn suppresses(&self, corners: [f32; 4], class_id: u32, options: &NmsOptions, limit: f32) -> bool {
        let [x1, y1, x2, y2] = corners;
        let own_area = area(corners);
        // One instruction each; `f32::min` and `f32::max` are not, because they handle NaN.
        let least = |a: f32, b: f32| if a < b { a } else { b };
        let greatest = |a: f32, b: f32| if a > b { a } else { b };
        let mut any = false;
        for column in 0..WIDTH {
            let width = greatest(least(self.edges[2][column], x2) - greatest(self.edges[0][column], x1), 0.0);
            let height = greatest(least(self.edges[3][column], y2) - greatest(self.edges[1][column], y1), 0.0);
            let shared = width * height;
            let union = self.area[column] + own_area - shared;
            let overlap = shared / union > limit;
            let compared = options.class_agnostic | (self.class_id[column] == class_id);
            any |= overlap & compared & (union > 0.0);
        }
        any
    }
}

/// Returns the area; 0 for an invalid box.
#[inline]
fn area(r: [f32; 4]) -> f32 {
    (r[2] - r[0]).max(0.0) * (r[3] - r[1]).max(0.0)
}

/// Does the same as [`Nms::run`], for callers that suppress once.
pub fn nms(candidates: &mut Vec<Candidate>, options: &NmsOptions) {
    Nms::default().run(candidates, options);
}

/// Returns a number that is lower for better scores and, among equal scores, for lower indices.
fn sort_key(score: f32, index: usize) -> u64 {
    // -0.0 and 0.0 are the same score.
    let bits = (score + 0.0).to_bits();
    // IEEE 754 bits sort like integers once negative numbers are reversed; reverse all of them to put the best first.
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(!ascending) << 32 | (index as u64 & u64::from(u32::MAX))
}

/// Returns the index in a key of [`sort_key`]. 32 bits are enough: more candidates would take 100 GB.
fn index_of(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

/// Returns the intersection over union of two boxes; 0 if they do not overlap or either is empty.
#[inline]
pub fn iou(a: [f32; 4], b: [f32; 4]) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let shared = width * height;
    let union = area(a) + area(b) - shared;
    if union > 0.0 { shared / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: NmsOptions = NmsOptions {
        iou_threshold: 0.5,
        score_threshold: 0.1,
        max_detections: 100,
        class_agnostic: false,
        overlap: Overlap::Points,
    };

    fn candidate(box_in_input: [f32; 4], score: f32, class_id: u32, row: u32) -> Candidate {
        Candidate { box_in_input, score, class_id, row }
    }

    fn rows(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|c| c.row).collect()
    }

    #[test]
    fn the_better_of_two_that_overlap_stays_and_another_class_is_left_alone() {
        let mut found = vec![
            candidate([0.0, 0.0, 10.0, 10.0], 0.5, 0, 0),
            candidate([1.0, 0.0, 11.0, 10.0], 0.9, 0, 1),
            candidate([1.0, 0.0, 11.0, 10.0], 0.7, 1, 2),
            candidate([50.0, 0.0, 60.0, 10.0], 0.2, 0, 3),
        ];
        let mut agnostic = found.clone();
        nms(&mut found, &OPTIONS);
        assert_eq!(rows(&found), [1, 2, 3]);
        nms(&mut agnostic, &NmsOptions { class_agnostic: true, ..OPTIONS });
        assert_eq!(rows(&agnostic), [1, 3]);
    }

    #[test]
    fn an_overlap_of_exactly_the_threshold_stays_as_in_torchvision() {
        // Half of the second box is the first: IoU is exactly 0.5.
        let pair = vec![candidate([0.0, 0.0, 1.0, 1.0], 0.9, 0, 0), candidate([0.0, 0.0, 2.0, 1.0], 0.8, 0, 1)];
        let mut at = pair.clone();
        nms(&mut at, &OPTIONS);
        assert_eq!(rows(&at), [0, 1]);
        let mut below = pair;
        nms(&mut below, &NmsOptions { iou_threshold: 0.499, ..OPTIONS });
        assert_eq!(rows(&below), [0]);
    }

    #[test]
    fn corners_that_are_pixels_overlap_more_and_at_the_threshold() {
        // 1x1 in 2x1 as points; 2x2 in 3x2 as pixels: IoU 1/2 and 2/3.
        let pair = vec![candidate([0.0, 0.0, 1.0, 1.0], 0.9, 0, 0), candidate([0.0, 0.0, 2.0, 1.0], 0.8, 0, 1)];
        for (iou_threshold, overlap, wanted) in [
            (0.6, Overlap::Points, &[0, 1][..]),
            (0.6, Overlap::Pixels, &[0]),
            (2.0 / 3.0, Overlap::Pixels, &[0]),
            ((2.0_f32 / 3.0).next_up(), Overlap::Pixels, &[0, 1]),
        ] {
            let mut found = pair.clone();
            nms(&mut found, &NmsOptions { iou_threshold, overlap, ..OPTIONS });
            assert_eq!(rows(&found), wanted, "{iou_threshold} {overlap:?}");
        }
    }

    #[test]
    fn a_blended_box_is_the_mean_of_its_object_weighted_by_score() {
        let mut found = vec![
            candidate([2.0, 0.0, 12.0, 10.0], 0.3, 0, 0),
            candidate([0.0, 0.0, 10.0, 10.0], 0.6, 0, 1),
            candidate([50.0, 0.0, 60.0, 10.0], 0.2, 0, 2),
            candidate([2.0, 0.0, 12.0, 10.0], 0.5, 1, 3),
            candidate([90.0, 0.0, 90.0, 10.0], 0.4, 0, 4),
        ];
        let before = found.clone();
        let mut members = Vec::new();
        Nms::default().blend(&mut found, &OPTIONS, &mut members);
        assert_eq!(rows(&found), [1, 3, 4, 2]);
        let [x1, y1, x2, y2] = found[0].box_in_input;
        assert!((x1 - 2.0 / 3.0).abs() < 1e-6 && (x2 - 32.0 / 3.0).abs() < 1e-5 && (y1, y2) == (0.0, 10.0));
        assert_eq!((found[0].score, found[1], found[2]), (0.6, before[3], before[4]));
        let whose: Vec<_> = members.iter().map(|m| (m.survivor, m.candidate.row)).collect();
        assert_eq!(whose, [(0, 1), (0, 0), (1, 3), (3, 2)], "the box without area stands for nothing");
    }

    #[test]
    fn equal_scores_keep_their_order() {
        let mut found: Vec<_> = (0..50)
            .map(|i| {
                candidate(
                    [i as f32 * 20.0, 0.0, i as f32 * 20.0 + 10.0, 10.0],
                    if i % 2 == 0 { 0.0 } else { -0.0 },
                    0,
                    i,
                )
            })
            .collect();
        nms(&mut found, &NmsOptions { score_threshold: -1.0, ..OPTIONS });
        assert_eq!(rows(&found), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn negative_scores_have_their_order_too() {
        let far = |i: u32| [i as f32 * 20.0, 0.0, i as f32 * 20.0 + 10.0, 10.0];
        let scores = [-0.5, 0.25, -0.1, 0.0, -7.0];
        let mut found: Vec<_> = (0..5).map(|i| candidate(far(i), scores[i as usize], 0, i)).collect();
        nms(&mut found, &NmsOptions { score_threshold: -10.0, ..OPTIONS });
        assert_eq!(rows(&found), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn boxes_and_scores_that_are_not_finite_never_survive() {
        let good = [0.0, 0.0, 1.0, 1.0];
        let mut found = vec![
            candidate(good, f32::NAN, 0, 0),
            candidate([f32::NAN, 0.0, 1.0, 1.0], 0.9, 0, 1),
            candidate([0.0, 0.0, f32::INFINITY, 1.0], 0.9, 0, 2),
            candidate(good, f32::INFINITY, 0, 3),
            candidate(good, 0.3, 0, 4),
        ];
        nms(&mut found, &OPTIONS);
        assert_eq!(rows(&found), [4]);
    }

    #[test]
    fn a_blend_that_cannot_be_added_up_leaves_the_survivors_box() {
        // Twice that, by scores of 2, is beyond f32; its area is not.
        let large = [0.0, 0.0, 1.5e38, 1.0];
        let candidates = [candidate(large, 2.0, 0, 0), candidate(large, 2.0, 0, 1)];
        for found in [candidates, candidates.map(|one| Candidate { score: 0.0, ..one })] {
            let mut found = found.to_vec();
            let options = NmsOptions { score_threshold: 0.0, ..OPTIONS };
            Nms::default().blend(&mut found, &options, &mut Vec::new());
            assert!(found.iter().all(|one| one.box_in_input == large), "{found:?}");
        }
    }

    #[test]
    fn the_limits_hold() {
        let far = |i: u32| [i as f32 * 20.0, 0.0, i as f32 * 20.0 + 10.0, 10.0];
        let all: Vec<_> = (0..10).map(|i| candidate(far(i), i as f32 / 10.0, 0, i)).collect();
        let mut found = all.clone();
        nms(&mut found, &NmsOptions { max_detections: 3, ..OPTIONS });
        assert_eq!(rows(&found), [9, 8, 7]);
        let mut found = all.clone();
        nms(&mut found, &NmsOptions { max_detections: 0, ..OPTIONS });
        assert!(found.is_empty());
        let mut found = all.clone();
        Nms::default().best(&mut found, 0.75, 1);
        assert_eq!(rows(&found), [9]);
        let mut found = all;
        Nms::default().best(&mut found, 0.75, 100);
        assert_eq!(rows(&found), [9, 8]);
    }

    #[test]
    fn a_score_of_exactly_the_threshold_stays() {
        let apart = [[0.0, 0.0, 1.0, 1.0], [5.0, 0.0, 6.0, 1.0], [9.0, 0.0, 10.0, 1.0]];
        let scores = [0.3, 0.3_f32.next_up(), 0.3_f32.next_down()];
        let all: Vec<_> = (0..3).map(|i| candidate(apart[i], scores[i], 0, i as u32)).collect();
        let mut found = all.clone();
        nms(&mut found, &NmsOptions { score_threshold: 0.3, ..OPTIONS });
        assert_eq!(rows(&found), [1, 0]);
        let mut found = all;
        Nms::default().best(&mut found, 0.3, 100);
        assert_eq!(rows(&found), [1, 0]);
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let edge = prop_oneof![20 => 0.0_f32..64.0, 1 => Just(f32::NAN), 1 => Just(f32::INFINITY)];
        // Few distinct scores, so that ties happen.
        let score = prop_oneof![20 => (0_u8..20).prop_map(|s| f32::from(s) / 20.0), 1 => Just(f32::NAN)];
        let one = (edge.clone(), edge, 0.0_f32..32.0, 0.0_f32..32.0, score, 0_u32..3);
        prop::collection::vec(one, 0..60).prop_map(|list| {
            let boxed = list.into_iter().enumerate();
            boxed.map(|(row, (x, y, w, h, s, class))| candidate([x, y, x + w, y + h], s, class, row as u32)).collect()
        })
    }

    fn options() -> impl Strategy<Value = NmsOptions> {
        let overlap = prop_oneof![Just(Overlap::Points), Just(Overlap::Pixels)];
        (0.0_f32..1.0, 0.0_f32..0.6, prop_oneof![Just(usize::MAX), 0_usize..20], any::<bool>(), overlap).prop_map(
            |(iou_threshold, score_threshold, max_detections, class_agnostic, overlap)| NmsOptions {
                iou_threshold,
                score_threshold,
                max_detections,
                class_agnostic,
                overlap,
            },
        )
    }

    /// As the module says, one pair after another.
    fn plainly(candidates: &[Candidate], options: &NmsOptions) -> Vec<Candidate> {
        let mut sorted: Vec<_> = candidates
            .iter()
            .filter(|c| c.score >= options.score_threshold && c.box_in_input.iter().all(|edge| edge.is_finite()))
            .copied()
            .collect();
        sorted.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut kept: Vec<Candidate> = Vec::new();
        for candidate in sorted {
            if kept.len() < options.max_detections && !kept.iter().any(|better| options.meet(better, &candidate)) {
                kept.push(candidate);
            }
        }
        kept
    }

    proptest! {
        #[test]
        fn eight_at_a_time_is_one_after_another(all in candidates(), options in options()) {
            let mut kept = all.clone();
            nms(&mut kept, &options);
            prop_assert_eq!(kept, plainly(&all, &options));
        }

        #[test]
        fn blending_keeps_the_same_objects_and_gives_every_member_to_the_first_that_removed_it(
            all in candidates(),
            options in options(),
        ) {
            let (mut kept, mut blended, mut members) = (all.clone(), all, Vec::new());
            nms(&mut kept, &options);
            Nms::default().blend(&mut blended, &options, &mut members);
            prop_assert_eq!(rows(&kept), rows(&blended));
            for Member { survivor, candidate } in members {
                prop_assert!(options.meet(&kept[survivor], &candidate));
                prop_assert!(kept[..survivor].iter().all(|better| !options.meet(better, &candidate)));
            }
        }

        #[test]
        fn survivors_are_candidates_in_order_and_do_not_overlap(all in candidates(), options in options()) {
            let mut kept = all.clone();
            nms(&mut kept, &options);
            prop_assert!(kept.len() <= options.max_detections);
            for (i, k) in kept.iter().enumerate() {
                prop_assert_eq!(&all[k.row as usize], k);
                prop_assert!(k.score >= options.score_threshold);
                prop_assert!(kept[..i].iter().all(|better| !options.meet(better, k)));
                prop_assert!(kept[..i].iter().all(|b| b.score > k.score || (b.score == k.score && b.row < k.row)));
            }
        }

        #[test]
        fn a_removed_box_overlaps_a_better_survivor_or_fell_to_a_limit(all in candidates(), options in options()) {
            let mut kept = all.clone();
            nms(&mut kept, &options);
            let gone = all.iter().filter(|c| kept.iter().all(|k| k.row != c.row));
            for c in gone {
                let sound = c.score.is_finite() && c.box_in_input.iter().all(|v| v.is_finite());
                let better = |k: &&Candidate| k.score > c.score || (k.score == c.score && k.row < c.row);
                prop_assert!(
                    !sound || c.score < options.score_threshold || kept.len() == options.max_detections
                        || kept.iter().filter(better).any(|k| options.meet(k, c)),
                    "{c:?} was removed for no reason"
                );
            }
        }

        #[test]
        fn a_second_time_changes_nothing_and_the_best_always_stays(all in candidates(), options in options()) {
            let mut once = all.clone();
            nms(&mut once, &options);
            let mut twice = once.clone();
            nms(&mut twice, &options);
            prop_assert_eq!(&once, &twice);
            let best = |c: &&Candidate| {
                c.score >= options.score_threshold && c.box_in_input.iter().all(|v| v.is_finite())
            };
            let best = all.iter().filter(best).max_by(|a, b| a.score.total_cmp(&b.score).then(b.row.cmp(&a.row)));
            if options.max_detections > 0 {
                prop_assert_eq!(best, once.first());
            }
        }

        #[test]
        fn class_agnostic_is_one_class_and_class_wise_is_each_class_alone(all in candidates(), options in options()) {
            let options = NmsOptions { max_detections: usize::MAX, ..options };
            let run = |list: &[Candidate], class_agnostic| {
                let mut kept = list.to_vec();
                nms(&mut kept, &NmsOptions { class_agnostic, ..options });
                rows(&kept)
            };
            let one_class: Vec<_> = all.iter().map(|c| Candidate { class_id: 0, ..*c }).collect();
            prop_assert_eq!(run(&all, true), run(&one_class, false));
            let mut alone: Vec<u32> = (0..3)
                .flat_map(|class| run(&all.iter().filter(|c| c.class_id == class).copied().collect::<Vec<_>>(), false))
                .collect();
            let mut together = run(&all, false);
            alone.sort_unstable();
            together.sort_unstable();
            prop_assert_eq!(alone, together);
        }
    }
}
