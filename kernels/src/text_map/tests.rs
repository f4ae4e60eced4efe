//! Maps of any numbers, and maps that are made to take long.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{TextBox, TextFinder, TextMapOptions};

const PADDLE: TextMapOptions =
    TextMapOptions { thresh: 0.3, box_thresh: 0.6, unclip_ratio: 1.5, max_candidates: 1000, sigmoid: false };

fn found(values: &[f32], size: (usize, usize), options: TextMapOptions) -> Vec<TextBox> {
    let mut out = Vec::new();
    TextFinder::new().run(values, size, &options, &mut out);
    out
}

/// A map of 0 with upright rectangles: left, top, right and bottom, all of them inside, and a probability.
fn map((width, height): (usize, usize), rectangles: &[([usize; 4], f32)]) -> Vec<f32> {
    let mut values = vec![0.0; width * height];
    for &([left, top, right, bottom], value) in rectangles {
        for y in top..=bottom {
            values[y * width..][left..=right].fill(value);
        }
    }
    values
}

#[test]
fn an_upright_text_grows_by_its_area_times_the_ratio_over_its_perimeter() {
    let values = map((64, 32), &[([10, 8, 40, 18], 0.75)]);
    let found = found(&values, (64, 32), PADDLE);
    // 30 x 10 between the middles of its outer cells, so 300 * 1.5 / 80 on all sides.
    assert_eq!(found.len(), 1);
    let TextBox { oriented, score } = found[0];
    assert_eq!((oriented.center, oriented.angle, score), ([25.0, 13.0], 0.0, 0.75));
    assert_eq!(oriented.size, [41.25, 21.25]);
}

#[test]
fn cells_that_touch_at_a_corner_are_one_text_and_others_are_not() {
    let two = |gap: usize| map((60, 40), &[([5, 5, 20, 12], 0.9), ([20 + gap, 13, 40, 20], 0.9)]);
    // Their common rectangle is half empty, so the threshold must be low.
    let options = TextMapOptions { box_thresh: 0.3, ..PADDLE };
    assert_eq!(found(&two(1), (60, 40), options).len(), 1);
    assert_eq!(found(&two(2), (60, 40), options).len(), 2);
    // Two arms that only meet in the last line.
    let arms = map((60, 40), &[([5, 5, 9, 30], 0.9), ([30, 5, 34, 30], 0.9), ([5, 26, 34, 30], 0.9)]);
    assert_eq!(found(&arms, (60, 40), options).len(), 1);
}

#[test]
fn small_and_weak_texts_are_left_out_and_the_largest_candidates_stay() {
    let size = (100, 100);
    // 3 cells between the middles are enough, 2 are not.
    assert_eq!(found(&map(size, &[([10, 10, 30, 13], 0.9)]), size, PADDLE).len(), 1);
    assert_eq!(found(&map(size, &[([10, 10, 30, 12], 0.9)]), size, PADDLE).len(), 0);
    // 3 x 3 grows by 9 * 0.5 / 12 on each side to less than 5.
    let square = map(size, &[([10, 10, 13, 13], 0.9)]);
    assert_eq!(found(&square, size, TextMapOptions { unclip_ratio: 0.5, ..PADDLE }).len(), 0);
    assert_eq!(found(&square, size, PADDLE).len(), 1);
    assert_eq!(found(&map(size, &[([10, 10, 30, 20], 0.59)]), size, PADDLE).len(), 0);
    assert_eq!(found(&map(size, &[([10, 10, 30, 20], 0.61)]), size, PADDLE).len(), 1);
    let three = map(size, &[([5, 5, 15, 10], 0.9), ([30, 30, 90, 50], 0.9), ([5, 70, 40, 80], 0.9)]);
    let two = found(&three, size, TextMapOptions { max_candidates: 2, ..PADDLE });
    assert_eq!(two.iter().map(|text| text.oriented.center).collect::<Vec<_>>(), [[60.0, 40.0], [22.5, 75.0]]);
}

#[test]
fn maps_of_very_many_texts_are_read() {
    let side = 960;
    let pattern = |text: fn(usize, usize) -> bool| -> Vec<f32> {
        (0..side * side).map(|cell| if text(cell % side, cell / side) { 1.0 } else { 0.0 }).collect()
    };
    // 230,400 texts of a cell; one text of 460,800 runs; 25,600 texts of 4 x 4; 240 frames around each other; a comb whose
    // teeth meet in the last line.
    assert_eq!(found(&pattern(|x, y| x % 2 == 0 && y % 2 == 0), (side, side), PADDLE).len(), 0);
    let all = TextMapOptions { box_thresh: 0.0, ..PADDLE };
    assert_eq!(found(&pattern(|x, y| (x + y) % 2 == 0), (side, side), all).len(), 1);
    assert_eq!(found(&pattern(|x, y| x % 6 < 4 && y % 6 < 4), (side, side), PADDLE).len(), 1000);
    let frames = pattern(|x, y| x.min(y).min(959 - x).min(959 - y).is_multiple_of(2));
    assert_eq!(found(&frames, (side, side), all).len(), 240);
    assert_eq!(found(&pattern(|x, y| x % 2 == 0 || y == 959), (side, side), all).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_numbers_give_a_text_that_is_not_finite(
        (width, height) in (0..40_usize, 0..40_usize),
        values in prop::collection::vec(prop_oneof![
            4 => 0.0..1.0_f32,
            1 => any::<f32>(),
            1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -0.0]),
        ], 0..1600),
        thresh in 0.0..1.0_f32,
        unclip_ratio in 0.0..5.0_f32,
        max_candidates in 0..6_usize,
        sigmoid in any::<bool>(),
    ) {
        let options = TextMapOptions { thresh, box_thresh: 0.2, unclip_ratio, max_candidates, sigmoid };
        let found = found(&values, (width, height), options);
        prop_assert!(found.len() <= max_candidates);
        for text in found {
            prop_assert!(text.oriented.is_finite() && (0.2..=1.0).contains(&text.score), "{:?}", text);
            prop_assert!(text.oriented.size.iter().all(|side| *side >= 5.0), "{:?}", text);
        }
    }
}
