//! Class maps of any numbers, against the definition.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::mask::{ClassMap, ClassMapper, ClassPlanes, ClassScores, Mask};
use crate::placement::{Fit, Mapping};

/// The classes of a frame from the definition: all scores of all pixels, in f64. `None` where the best two are too close.
fn defined(values: &[f32], planes: &ClassPlanes, frame: (u32, u32)) -> Vec<Option<u16>> {
    let tap = |pixel: u32, source: u32, cells: usize| {
        let at = (f64::from(pixel) + 0.5) * cells as f64 / f64::from(source) - 0.5;
        let at = at.clamp(0.0, cells as f64 - 1.0);
        let first = at.floor() as usize;
        (first, (first + 1).min(cells - 1), at - at.floor())
    };
    let cells = planes.width * planes.height;
    let mut classes = Vec::new();
    for y in 0..frame.1 {
        for x in 0..frame.0 {
            let ((x0, x1, wx), (y0, y1, wy)) = (tap(x, frame.0, planes.width), tap(y, frame.1, planes.height));
            let score = |class: usize| {
                let at = |x: usize, y: usize| f64::from(values[class * cells + y * planes.width + x]);
                let line = |y: usize| at(x0, y) * (1.0 - wx) + at(x1, y) * wx;
                line(y0) * (1.0 - wy) + line(y1) * wy
            };
            let mut ranked: Vec<(f64, u16)> = (0..planes.classes).map(|class| (score(class), class as u16)).collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let is_close = ranked.len() > 1 && ranked[0].0 - ranked[1].0 < 1e-4;
            classes.push((!is_close).then_some(ranked[0].1));
        }
    }
    classes
}

fn values() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -4.0..4.0_f32,
        1 => any::<f32>(),
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0, -0.0]),
    ]
}

fn fits() -> impl Strategy<Value = Fit> {
    prop::sample::select(vec![
        Fit::Stretch,
        Fit::Letterbox,
        Fit::LetterboxTopLeft,
        Fit::Crop { fraction: 0.6 },
        Fit::Warp,
        Fit::WarpStretch,
    ])
}

/// Checks that the parts of a map agree with each other.
fn check(map: &mut ClassMap, frame: (u32, u32)) -> Result<(), TestCaseError> {
    let mut counted = std::collections::BTreeMap::<u16, u64>::new();
    for y in 0..frame.1 {
        for x in 0..frame.0 {
            if let Some(class) = map.class_at(x, y) {
                *counted.entry(class).or_default() += 1;
            }
        }
    }
    let regions = map.regions().to_vec();
    let areas: std::collections::BTreeMap<u16, u64> =
        regions.iter().map(|region| (region.class, region.area)).collect();
    prop_assert_eq!(&areas, &counted);
    let mut masks: Vec<Mask> = Vec::new();
    prop_assert_eq!(map.masks(&regions, &mut masks), 0);
    for (region, mask) in regions.iter().zip(&masks) {
        prop_assert_eq!(mask.area(), region.area);
        prop_assert!((0.0..=1.0).contains(&region.score), "{:?}", region);
        prop_assert!(map.fraction(region) > 0.0 && map.fraction(region) <= 1.0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_short_ways_find_what_the_definition_says(
        (width, height) in (1..12_usize, 1..9_usize),
        classes in 1..9_usize,
        frame in (1..60_u32, 1..60_u32),
        numbers in prop::collection::vec(-4.0..4.0_f32, 12 * 9 * 8),
    ) {
        let planes = ClassPlanes { classes, height, width, interleaved: false };
        let mapping = Mapping::new(Fit::Stretch, frame, (width as u32 * 8, height as u32 * 8));
        let mut map = ClassMap::default();
        ClassMapper::new().from_scores(&numbers, &planes, ClassScores::Softmax, &mapping, &mut map);
        for (index, wanted) in (0..).zip(defined(&numbers, &planes, frame)) {
            let (x, y) = (index % frame.0, index / frame.0);
            prop_assert!(wanted.is_none_or(|wanted| map.class_at(x, y) == Some(wanted)), "{} {}", x, y);
        }
        check(&mut map, frame)?;
    }

    #[test]
    fn no_numbers_make_a_map_that_contradicts_itself(
        (width, height) in (0..9_usize, 0..9_usize),
        classes in 0..6_usize,
        interleaved in any::<bool>(),
        frame in (1..40_u32, 1..40_u32),
        input in (1..40_u32, 1..40_u32),
        fit in fits(),
        scores in prop::sample::select(vec![ClassScores::Probabilities, ClassScores::Softmax, ClassScores::Sigmoid]),
        numbers in prop::collection::vec(values(), 0..500),
    ) {
        let mapping = Mapping::new(fit, frame, input);
        let (mut mapper, mut map) = (ClassMapper::new(), ClassMap::default());
        let planes = ClassPlanes { classes, height, width, interleaved };
        for _ in 0..2 {
            mapper.from_scores(&numbers, &planes, scores, &mapping, &mut map);
            check(&mut map, frame)?;
            mapper.from_numbers(&numbers, (width, height), &mapping, &mut map);
            check(&mut map, frame)?;
        }
    }
}

#[test]
fn a_class_between_two_others_is_found_although_it_is_best_in_no_cell() {
    // Class 0 wins on the left, class 1 on the right, class 2 is second in both.
    let values = [4.0, 0.0, 0.0, 4.0, 3.0, 3.0];
    let planes = ClassPlanes { classes: 3, height: 1, width: 2, interleaved: false };
    let (mut mapper, mut map) = (ClassMapper::new(), ClassMap::default());
    let mapping = Mapping::new(Fit::Stretch, (40, 2), (2, 1));
    mapper.from_scores(&values, &planes, ClassScores::Softmax, &mapping, &mut map);
    let found: Vec<_> = map.regions().iter().map(|region| (region.class, region.area, region.bounds)).collect();
    // In cells, the middles of which are 20 pixels apart: 4 (1 - t) > 3 up to t = 1/4.
    assert_eq!(found, [(0, 30, [0, 0, 15, 2]), (1, 30, [25, 0, 40, 2]), (2, 20, [15, 0, 25, 2])]);
    // The probability at its first pixel, at t = 0.275: scores of 2.9, 1.1 and 3.
    let wanted = 1.0 / (1.0 + (-0.1_f32).exp() + (-1.9_f32).exp());
    assert!((map.regions()[2].score - wanted).abs() < 1e-5, "{:?}", map.regions()[2]);
}

#[test]
fn equal_scores_are_of_the_first_class_and_nan_of_none() {
    let planes = |classes| ClassPlanes { classes, height: 2, width: 2, interleaved: false };
    let mapping = Mapping::new(Fit::Stretch, (10, 10), (2, 2));
    let (mut mapper, mut map) = (ClassMapper::new(), ClassMap::default());
    let mut found = |values: &[f32], classes| {
        mapper.from_scores(values, &planes(classes), ClassScores::Softmax, &mapping, &mut map);
        map.regions().iter().map(|region| (region.class, region.area, region.score)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[1.0; 12], 3), [(0, 100, 1.0 / 3.0)]);
    assert_eq!(found(&[[f32::NAN; 4], [-2.0; 4], [-3.0; 4]].concat(), 3)[0].0, 1);
    assert_eq!(found(&[f32::NAN; 8], 2), []);
    assert_eq!(found(&[f32::NEG_INFINITY; 8], 2), []);
}

#[test]
fn a_model_has_at_least_a_cell_and_a_class_and_no_more_than_the_limits() {
    let fit = |classes, height, width, len| ClassPlanes { classes, height, width, interleaved: false }.fit(len);
    assert!(fit(3, 2, 4, 24) && fit(1, 1, 1, 1) && fit(3, 2, 4, usize::MAX));
    assert!(!fit(3, 2, 4, 23));
    let (side, classes) = (ClassPlanes::MAX_SIDE, ClassPlanes::MAX_CLASSES);
    assert!(fit(classes, 1, side, usize::MAX) && fit(1, side, side, usize::MAX));
    for (classes, height, width) in
        [(0, 2, 4), (3, 0, 4), (3, 2, 0), (classes + 1, 1, 1), (1, side + 1, 1), (1, 1, side + 1)]
    {
        assert!(!fit(classes, height, width, usize::MAX), "{classes} {height} {width}");
    }
}

#[test]
fn classes_that_can_be_the_best_nowhere_between_cells_cost_nothing_there() {
    let mapping = Mapping::new(Fit::Stretch, (40, 2), (2, 1));
    let compared = |hopeless: usize| {
        let values = [&[4.0, 0.0, 0.0, 4.0][..], &vec![-1.0; 2 * hopeless]].concat();
        let planes = ClassPlanes { classes: 2 + hopeless, height: 1, width: 2, interleaved: false };
        let (mut mapper, mut map) = (ClassMapper::new(), ClassMap::default());
        mapper.from_scores(&values, &planes, ClassScores::Softmax, &mapping, &mut map);
        assert_eq!(map.regions().len(), 2);
        mapper.compared
    };
    assert!(compared(0) > 0);
    assert_eq!(compared(50), compared(0));
}

#[test]
fn the_score_of_a_class_is_its_probability() {
    let planes = ClassPlanes { classes: 2, height: 1, width: 1, interleaved: false };
    let mapping = Mapping::new(Fit::Stretch, (3, 3), (1, 1));
    let score = |values: [f32; 2], scores| {
        let mut map = ClassMap::default();
        ClassMapper::new().from_scores(&values, &planes, scores, &mapping, &mut map);
        map.regions()[0].score
    };
    for (values, scores, wanted) in [
        ([0.25, 0.125], ClassScores::Probabilities, 0.25),
        ([2.0, 1.0], ClassScores::Sigmoid, 0.880_797),
        ([-2.0, -3.0], ClassScores::Sigmoid, 0.119_203),
        ([3.0_f32.ln(), 0.0], ClassScores::Softmax, 0.75),
    ] {
        let score = score(values, scores);
        assert!((score - wanted).abs() < 1e-5, "{values:?} {scores:?}: {score}");
    }
}

#[test]
fn class_numbers_are_those_of_the_nearest_cell() {
    let mapping = Mapping::new(Fit::Letterbox, (60, 30), (6, 6));
    let (mut mapper, mut map) = (ClassMapper::new(), ClassMap::default());
    // Lines 0 and 5 of 6 are padding but for a half: 3 of 6 lines show the frame, from 1.5 on.
    let values: Vec<f32> = (0..36_u8).map(|cell| f32::from(cell / 6 * 10 + cell % 6)).collect();
    mapper.from_numbers(&values, (6, 6), &mapping, &mut map);
    let placed = mapping.placed();
    assert_eq!(placed, [0, 1, 6, 3]);
    for (x, y, class) in [(0, 0, 10), (59, 0, 15), (9, 9, 10), (10, 10, 21), (59, 29, 35)] {
        assert_eq!(map.class_at(x, y), Some(class), "{x} {y}");
    }
    assert_eq!(map.regions().len(), 18);
    assert!(map.regions().iter().all(|region| region.area == 100 && region.score == 1.0));
    // Numbers of no class.
    let odd = [f32::NAN, -1.0, 65_534.0, f32::INFINITY, 0.4, 65_533.0];
    let values: Vec<f32> = odd.into_iter().cycle().take(36).collect();
    mapper.from_numbers(&values, (6, 6), &mapping, &mut map);
    let classes: Vec<_> = map.regions().iter().map(|region| (region.class, region.area)).collect();
    assert_eq!(classes, [(0, 300), (65_533, 300)]);
}

#[test]
fn masks_beyond_the_limit_are_empty() {
    // Two classes that alternate: the masks of both are as large as the frame.
    let side = 16_384_u32;
    let mapping = Mapping::new(Fit::Stretch, (side, side), (2, 2));
    let (mut mapper, mut map, mut masks) = (ClassMapper::new(), ClassMap::default(), Vec::new());
    mapper.from_numbers(&[0.0, 1.0, 2.0, 0.0], (2, 2), &mapping, &mut map);
    let regions = map.regions().to_vec();
    // 32 MiB of class 0, and 8 of each of the others.
    assert_eq!(map.masks(&regions, &mut masks), 0);
    let twice = [regions[0], regions[1], regions[1], regions[1], regions[1], regions[2]];
    assert_eq!(map.masks(&twice, &mut masks), 1);
    assert_eq!((masks[0].area(), masks[5].area()), (u64::from(side) * u64::from(side) / 2, 0));
}

#[test]
fn the_short_exp_is_the_long_one() {
    for step in 0..=8700 {
        let x = -f64::from(step) / 100.0;
        let (short, long) = (f64::from(super::exp(x as f32)), f64::from(x as f32).exp());
        assert!((short / long - 1.0).abs() < 2e-5, "{x}: {short} {long}");
    }
    assert_eq!(super::exp(0.0), 1.0);
    assert!(super::exp(f32::NEG_INFINITY) < 1e-37 && super::exp(f32::NAN) < 1e-37);
}
