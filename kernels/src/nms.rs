//! Non-maximum suppression: of boxes that show the same object, keeps the best.
//!
//! Greedy, as in torchvision and OpenCV: visits candidates by falling score (lower index first for equal scores) and removes
//! those that overlap a kept one by more than the threshold. Boxes are (x1, y1, x2, y2) in any common unit.

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
}

/// Suppression with reusable memory: it allocates nothing after its busiest frame.
#[derive(Debug, Default)]
pub struct Nms {
    /// Score and index of each candidate in one number that sorts best first: see [`sort_key`].
    keys: Vec<u64>,
    kept: Vec<Candidate>,
    /// The boxes of `kept`, arranged for comparison.
    blocks: Vec<Block>,
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
        self.rank(candidates, options.score_threshold);
        for &key in &self.keys {
            if self.kept.len() >= options.max_detections {
                break;
            }
            let candidate = candidates[index_of(key)];
            if !self.blocks.iter().any(|block| block.suppresses(&candidate, options)) {
                let column = self.kept.len() % WIDTH;
                if column == 0 {
                    self.blocks.push(Block::default());
                }
                if let Some(block) = self.blocks.last_mut() {
                    block.set(column, &candidate);
                }
                self.kept.push(candidate);
            }
        }
        candidates.clear();
        candidates.extend_from_slice(&self.kept);
    }

    /// Keeps the best `limit` candidates of at least `score_threshold`, best first, without suppression: for models that end in
    /// their own. Removes what is not finite, like [`Nms::run`].
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
    fn set(&mut self, column: usize, candidate: &Candidate) {
        for (edge, value) in self.edges.iter_mut().zip(candidate.box_in_input) {
            edge[column] = value;
        }
        self.area[column] = area(candidate.box_in_input);
        self.class_id[column] = candidate.class_id;
    }

    /// Whether any of the boxes overlaps the candidate's by more than the threshold: [`iou`] of finite boxes, without branches.
    #[inline]
    fn suppresses(&self, candidate: &Candidate, options: &NmsOptions) -> bool {
        let [x1, y1, x2, y2] = candidate.box_in_input;
        let own_area = area(candidate.box_in_input);
        // One instruction each; `f32::min` and `f32::max` are not, because they handle NaN.
        let least = |a: f32, b: f32| if a < b { a } else { b };
        let greatest = |a: f32, b: f32| if a > b { a } else { b };
        let mut any = false;
        for column in 0..WIDTH {
            let width = greatest(least(self.edges[2][column], x2) - greatest(self.edges[0][column], x1), 0.0);
            let height = greatest(least(self.edges[3][column], y2) - greatest(self.edges[1][column], y1), 0.0);
            let shared = width * height;
            let union = self.area[column] + own_area - shared;
            let overlap = shared / union > options.iou_threshold;
            let compared = options.class_agnostic | (self.class_id[column] == candidate.class_id);
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

    const OPTIONS: NmsOptions =
        NmsOptions { iou_threshold: 0.5, score_threshold: 0.1, max_detections: 100, class_agnostic: false };

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
        (0.0_f32..1.0, 0.0_f32..0.6, prop_oneof![Just(usize::MAX), 0_usize..20], any::<bool>()).prop_map(
            |(iou_threshold, score_threshold, max_detections, class_agnostic)| NmsOptions {
                iou_threshold,
                score_threshold,
                max_detections,
                class_agnostic,
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
            if kept.len() < options.max_detections && !kept.iter().any(|better| meet(better, &candidate, options)) {
                kept.push(candidate);
            }
        }
        kept
    }

    fn meet(a: &Candidate, b: &Candidate, options: &NmsOptions) -> bool {
        (options.class_agnostic || a.class_id == b.class_id)
            && iou(a.box_in_input, b.box_in_input) > options.iou_threshold
    }

    proptest! {
        #[test]
        fn eight_at_a_time_is_one_after_another(all in candidates(), options in options()) {
            let mut kept = all.clone();
            nms(&mut kept, &options);
            prop_assert_eq!(kept, plainly(&all, &options));
        }

        #[test]
        fn survivors_are_candidates_in_order_and_do_not_overlap(all in candidates(), options in options()) {
            let mut kept = all.clone();
            nms(&mut kept, &options);
            prop_assert!(kept.len() <= options.max_detections);
            for (i, k) in kept.iter().enumerate() {
                prop_assert_eq!(&all[k.row as usize], k);
                prop_assert!(k.score >= options.score_threshold);
                prop_assert!(kept[..i].iter().all(|better| !meet(better, k, &options)));
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
                        || kept.iter().filter(better).any(|k| meet(k, c, &options)),
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
