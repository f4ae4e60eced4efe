//! Class names that many models share.

/// Returns the names of a preset's classes, from class 0 on.
pub(super) fn names(preset: &str) -> Option<Vec<String>> {
    let text = match preset {
        "coco80" => COCO80,
        "coco91" => return Some(coco91()),
        "voc20" => VOC20,
        _ => return None,
    };
    Some(text.split(',').map(|name| name.trim().to_owned()).collect())
}

/// The names of the presets.
pub(super) const PRESETS: [&str; 3] = ["coco80", "coco91", "voc20"];

/// COCO's 80 classes in the order of the models' class numbers.
const COCO80: &str = "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, \
    fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, \
    backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, \
    baseball glove, skateboard, surfboard, tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, \
    apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, \
    dining table, toilet, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, \
    refrigerator, book, clock, vase, scissors, teddy bear, hair drier, toothbrush";

/// Pascal VOC's 20 classes.
const VOC20: &str = "aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, \
    motorbike, person, pottedplant, sheep, sofa, train, tvmonitor";

/// COCO's annotation numbers without a class; 0 and these are named "N/A", as in torchvision.
const COCO_GAPS: [usize; 11] = [0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83];

/// Returns COCO's classes by annotation number, 0 to 90.
fn coco91() -> Vec<String> {
    let mut names = COCO80.split(',').map(|name| name.trim().to_owned());
    let name = |number| if COCO_GAPS.contains(&number) { None } else { names.next() };
    (0..91).map(name).map(|name| name.unwrap_or_else(|| "N/A".to_owned())).collect()
}

/// Returns whether these are COCO's 80 classes in the order of the models' class numbers.
pub fn has_coco_classes<T: AsRef<str>>(names: &[T]) -> bool {
    names.iter().map(AsRef::as_ref).eq(COCO80.split(',').map(str::trim))
}

/// Returns the class, 0 to 79, of one of the 80 categories that COCO's annotations number from 1 to 90.
pub fn coco_class(category: u32) -> Option<u32> {
    let number = usize::try_from(category).ok().filter(|number| *number <= 90 && !COCO_GAPS.contains(number))?;
    let gaps = COCO_GAPS.iter().filter(|gap| **gap < number).count();
    u32::try_from(number - gaps).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn presets_have_the_numbers_that_models_use() {
        let coco80 = names("coco80").unwrap();
        assert_eq!((coco80.len(), coco80[0].as_str(), coco80[79].as_str()), (80, "person", "toothbrush"));
        let coco91 = names("coco91").unwrap();
        let at = |number: usize| coco91[number].as_str();
        assert_eq!((coco91.len(), at(0), at(1), at(13), at(90)), (91, "N/A", "person", "stop sign", "toothbrush"));
        assert_eq!((at(44), at(67), at(70), at(84)), ("bottle", "dining table", "toilet", "book"));
        for (number, name) in coco91.iter().enumerate() {
            let class = coco_class(number as u32).map_or("N/A", |class| coco80[class as usize].as_str());
            assert_eq!(name, class, "category {number}");
        }
        assert_eq!(coco_class(91), None);
        assert!(has_coco_classes(&coco80) && !has_coco_classes(&coco80[1..]) && !has_coco_classes(&coco91));
        assert!(PRESETS.iter().all(|preset| names(preset).is_some()));
    }
}
