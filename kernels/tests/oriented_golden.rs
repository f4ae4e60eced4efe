//! Turned boxes against Ultralytics' formulas and shapely's polygons: tests/golden/oriented.txt, made by oriented.py.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use visiond_kernels::nms::{Candidate, Nms, NmsOptions, Overlap};
use visiond_kernels::oriented::{OrientedBox, oriented_iou, probiou};

fn turned(numbers: &[f64]) -> OrientedBox {
    let [x, y, w, h, angle] = numbers[..5] else { panic!("{numbers:?}") };
    OrientedBox { center: [x as f32, y as f32], size: [w as f32, h as f32], angle: angle as f32 }
}

fn lines() -> Vec<(String, Vec<f64>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/oriented.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (kind, numbers) = line.split_once(' ').unwrap();
        (kind.to_owned(), numbers.split(' ').map(|number| number.parse().unwrap()).collect())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

#[test]
fn pairs_overlap_as_in_ultralytics_and_shapely() {
    let lines = lines();
    let pairs: Vec<_> = lines.iter().filter(|(kind, _)| kind == "pair").map(|(_, numbers)| numbers).collect();
    assert_eq!(pairs.len(), 200);
    for numbers in pairs {
        let (a, b) = (turned(&numbers[..5]), turned(&numbers[5..10]));
        assert!((probiou(&a, &b) - numbers[10]).abs() < 1e-6, "{a:?} {b:?}: {} {}", probiou(&a, &b), numbers[10]);
        assert!((oriented_iou(&a, &b) - numbers[11]).abs() < 1e-6, "{a:?} {b:?}");
        let (found, wanted) = (a.regularized(), turned(&numbers[12..17]));
        assert_eq!((found.center, found.size), (wanted.center, wanted.size));
        assert!((found.angle - wanted.angle).abs() < 1e-6, "{found:?} {wanted:?}");
        for (found, wanted) in a.corners().iter().flatten().zip(&numbers[17..25]) {
            assert!((f64::from(*found) - wanted).abs() < 1e-4, "{a:?}");
        }
    }
}

#[test]
fn the_same_boxes_survive_as_in_ultralytics() {
    let lines = lines();
    let mut nms = Nms::default();
    let mut cases = 0;
    for (start, (_, case)) in lines.iter().enumerate().filter(|(_, (kind, _))| kind == "nms") {
        cases += 1;
        let rows: Vec<_> =
            lines[start + 1..].iter().take_while(|(kind, _)| kind == "box").map(|(_, row)| row).collect();
        let candidate = |(row, numbers): (usize, &&Vec<f64>)| Candidate {
            box_in_input: [0.0; 4],
            score: numbers[5] as f32,
            class_id: numbers[6] as u32,
            row: row as u32,
        };
        let options = NmsOptions {
            iou_threshold: case[0] as f32,
            score_threshold: 0.05,
            max_detections: 1000,
            class_agnostic: case[1] == 1.0,
            overlap: Overlap::Points,
        };
        let all: Vec<Candidate> = rows.iter().enumerate().map(candidate).collect();
        let wanted: Vec<u32> = case[2..].iter().map(|&row| row as u32).collect();
        for limit in [1000, 20] {
            let mut found = all.clone();
            let options = NmsOptions { max_detections: limit, ..options };
            nms.run_oriented(&mut found, |c| Some(turned(rows[c.row as usize])), &options);
            let found: Vec<u32> = found.iter().map(|c| c.row).collect();
            assert_eq!(found, wanted[..limit.min(wanted.len())], "threshold {}", case[0]);
        }
    }
    assert_eq!(cases, 4);
}
