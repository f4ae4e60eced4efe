//! Maps of classes as numpy makes them: tests/golden/class_maps.py.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use std::path::Path;

use visiond_kernels::mask::{ClassMap, ClassMapper, ClassPlanes, ClassScores, Mask};
use visiond_kernels::placement::{Fit, Mapping};

/// Returns the scores of the script's `scores`, class by class.
fn scores(seed: u32, classes: usize, width: usize, height: usize) -> Vec<f32> {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    let mut planes = Vec::new();
    for _ in 0..classes {
        let (a, b, c, d) = (number() % 23, number() % 23, number() % 256, number() % 64);
        for y in 0..height {
            for x in 0..width {
                let t = (a * x + b * y + c) % 256;
                planes.push((if t < 128 { t } else { 255 - t } * 2 + d) as f32 / 64.0);
            }
        }
    }
    planes
}

/// Puts the scores of a cell side by side.
fn interleaved(planes: &[f32], classes: usize) -> Vec<f32> {
    let cells = planes.len() / classes;
    (0..cells).flat_map(|cell| (0..classes).map(move |class| planes[class * cells + cell])).collect()
}

#[test]
fn classes_and_scores_are_those_of_numpy() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/class_maps.txt");
    let text = std::fs::read_to_string(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
    let (mut mapper, mut map, mut masks) = (ClassMapper::new(), ClassMap::default(), Vec::new());
    let mut cases = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [fit, .., close, hash, found] = fields[..] else { panic!("{line}") };
        let numbers: Vec<u32> = fields[1..9].iter().map(|field| field.parse().unwrap()).collect();
        let &[frame_w, frame_h, input_w, input_h, width, height, classes, seed] = &numbers[..] else {
            panic!("{line}")
        };
        let fit = match fit {
            "stretch" => Fit::Stretch,
            "letterbox" => Fit::Letterbox,
            "top-left" => Fit::LetterboxTopLeft,
            _ => Fit::Crop { fraction: 1.0 },
        };
        let mapping = Mapping::new(fit, (frame_w, frame_h), (input_w, input_h));
        let (width, height, classes) = (width as usize, height as usize, classes as usize);
        let values = scores(seed, classes, width, height);
        let close: HashSet<u32> = close.split(',').filter_map(|index| index.parse().ok()).collect();
        for interleave in [false, true] {
            let values = if interleave { interleaved(&values, classes) } else { values.clone() };
            let planes = ClassPlanes { classes, height, width, interleaved: interleave };
            mapper.from_scores(&values, &planes, ClassScores::Softmax, &mapping, &mut map);
            let mut state = 0xcbf2_9ce4_8422_2325_u64;
            for index in (0..frame_w * frame_h).filter(|index| !close.contains(index)) {
                let class = map.class_at(index % frame_w, index / frame_w).map_or(255, u64::from);
                state = (state ^ class).wrapping_mul(0x100_0000_01b3);
            }
            assert_eq!(format!("{state:016x}"), hash, "{line}");
            for wanted in found.split(',') {
                let parts: Vec<&str> = wanted.split(':').collect();
                let (class, area): (u16, u64) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
                let region = map.regions().iter().find(|region| region.class == class);
                let found = region.map_or(0, |region| region.area);
                assert!(area.abs_diff(found) <= close.len() as u64, "{found} not {area} pixels of {class} in {line}");
                if let (Some(region), Ok(score)) = (region, parts[2].parse::<f32>()) {
                    assert!((region.score - score).abs() < 1e-4, "{} of {class} in {line}", region.score);
                }
            }
            let regions = map.regions().to_vec();
            assert_eq!(map.masks(&regions, &mut masks), 0);
            for (region, mask) in regions.iter().zip(&masks) {
                assert_eq!(mask.area(), region.area, "{line}");
                // The mask is the rectangle's, with a pixel at each of its sides.
                let tight = Mask::cropped(mask);
                assert_eq!((tight.top, tight.height), (mask.top, mask.height), "{line}");
            }
        }
        cases += 1;
    }
    assert_eq!(cases, 72);
}
