//! Texts as OpenCV and shapely find them: tests/golden/text_maps.py.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use visiond_kernels::oriented::{OrientedBox, oriented_iou};
use visiond_kernels::text_map::{TextFinder, TextMapOptions};

/// Draws a map: `drawn` of the script.
fn drawn(seed: u32, width: i64, height: i64, shapes: usize) -> Vec<f32> {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from(state >> 8)
    };
    let mut cells = vec![0_i64; (width * height) as usize];
    for _ in 0..shapes {
        let (cx, cy, a, b) = (number() % width, number() % height, number() % 33 - 16, number() % 33 - 16);
        let (half_length, half_width, level) = (number() % (width / 5) + 2, number() % 12 + 1, number() % 200 + 56);
        let square = a * a + b * b;
        for (index, cell) in (0..).zip(&mut cells) {
            let (x, y) = (index % width - cx, index / width - cy);
            let (along, across) = (x * a + y * b, y * a - x * b);
            if along * along <= half_length * half_length * square
                && across * across <= half_width * half_width * square
            {
                *cell = level;
            }
        }
    }
    let noisy =
        |(index, cell): (i64, &i64)| (cell * 16 + (index % width * 7 + index / width * 13) % 16) as f32 / 4096.0;
    (0..).zip(&cells).map(noisy).collect()
}

/// Returns the turned box of four corners in turn.
fn oriented(corners: &[f32]) -> OrientedBox {
    let corner = |i: usize| [corners[2 * i], corners[2 * i + 1]];
    let ([a, b, c], center) = ([corner(0), corner(1), corner(2)], [0, 1].map(|i| (corner(0)[i] + corner(2)[i]) / 2.0));
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    OrientedBox { center, size: [dx.hypot(dy), (c[0] - b[0]).hypot(c[1] - b[1])], angle: dy.atan2(dx) }
}

#[test]
fn texts_are_those_of_opencv_and_shapely() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/text_maps.txt");
    let text = std::fs::read_to_string(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
    let (mut finder, mut found) = (TextFinder::new(), Vec::new());
    let mut lines = text.lines();
    let (mut maps, mut texts) = (0, 0);
    while let Some(line) = lines.next() {
        let fields: Vec<f32> = line.split(' ').map(|field| field.parse().unwrap()).collect();
        let &[width, height, shapes, seed, thresh, box_thresh, unclip_ratio, count] = &fields[..] else {
            panic!("{line}")
        };
        let values = drawn(seed as u32, width as i64, height as i64, shapes as usize);
        let size = (width as usize, height as usize);
        let options = TextMapOptions { thresh, box_thresh, unclip_ratio, max_candidates: 1000, sigmoid: false };
        finder.run(&values, size, &options, &mut found);
        assert_eq!(found.len(), count as usize, "{line}: {found:?}");
        for wanted in lines.by_ref().take(count as usize) {
            let (inside, numbers) = wanted[1..].split_once(' ').unwrap();
            let numbers: Vec<f32> = numbers.split(' ').map(|field| field.parse().unwrap()).collect();
            let wanted_box = oriented(&numbers[1..]);
            let likeness = |i: &usize| oriented_iou(&found[*i].oriented, &wanted_box);
            let best = (0..found.len()).max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap();
            assert!(likeness(&best) > 0.999, "{wanted} in {line}: {:?}", found[best]);
            let apart = (found[best].score - numbers[0]).abs();
            // OpenCV cuts edges that leave the map at its border, and draws the rest in another slope.
            let limit = if inside == "in" { 1e-3 } else { 0.07 };
            assert!(apart < limit, "{apart} of {wanted} in {line}: {:?}", found[best]);
            texts += 1;
        }
        // Logits of the same probabilities give the same texts.
        let logits: Vec<f32> = values.iter().map(|value| (value / (1.0 - value)).ln()).collect();
        let mut again = Vec::new();
        finder.run(&logits, size, &TextMapOptions { sigmoid: true, ..options }, &mut again);
        assert_eq!(again.len(), found.len(), "{line}");
        for (logits, plain) in again.iter().zip(&found) {
            assert!(
                logits.oriented == plain.oriented && (logits.score - plain.score).abs() < 1e-4,
                "{logits:?} {plain:?}"
            );
        }
        maps += 1;
    }
    assert!(maps == 90 && texts > 150, "{maps} {texts}");
}
