#![allow(clippy::unwrap_used)]

use image::Rgb;
use visiond_flow::message::KeypointMessage;

use super::*;

fn detection(class_id: u32, label: &str, score: f32, [x, y, width, height]: [f32; 4]) -> DetectionMessage {
    let bounds = Some(BoxMessage { x, y, width, height });
    DetectionMessage { class_id, label: label.into(), score, bounds, ..DetectionMessage::default() }
}

fn labels(size: (u32, u32), detections: &[DetectionMessage]) -> Vec<Label> {
    let picture = RgbImage::new(size.0, size.1);
    Style::of(&picture).place_labels(&picture, detections)
}

#[test]
fn labels_stay_inside_whatever_the_box() {
    for size in [(1, 1), (20, 10), (160, 120), (768, 576), (3840, 2160)] {
        let (w, h) = (size.0 as f32, size.1 as f32);
        let boxes = [[0.0, 0.0, w, h], [w - 3.0, h - 3.0, 3.0, 3.0], [0.0, 0.0, 1.0, 1.0], [w / 2.0, 0.0, 0.0, 0.0]];
        let detections = boxes.map(|bounds| detection(3, "motorcycle", 0.5, bounds));
        for label in labels(size, &detections) {
            let Rect { left, top, right, .. } = label.rect;
            assert!(left >= 0 && top >= 0 && right <= size.0 as i32, "{:?} in {size:?}", label.rect);
            assert!(size.1 < 20 || label.rect.bottom <= size.1 as i32, "{:?} in {size:?}", label.rect);
        }
        draw(&mut RgbImage::new(size.0, size.1), &detections);
    }
}

#[test]
fn labels_do_not_cover_each_other_where_there_is_room() {
    let detections: Vec<_> =
        (0..6).map(|i| detection(i, "person", 0.9, [200.0 + 12.0 * i as f32, 200.0, 120.0, 200.0])).collect();
    let labels = labels((768, 576), &detections);
    for (i, a) in labels.iter().enumerate() {
        for b in &labels[i + 1..] {
            assert_eq!(a.rect.overlap(&b.rect), 0, "{:?} {:?}", a.rect, b.rect);
        }
    }
}

#[test]
fn a_box_is_drawn_on_its_edge_in_its_classes_colour() {
    let mut picture = RgbImage::new(320, 240);
    draw(&mut picture, &[detection(5, "bus", 0.8, [100.0, 100.0, 60.0, 80.0])]);
    let color = Rgb(class_color(5));
    assert_eq!(*picture.get_pixel(100, 150), color);
    assert_eq!(*picture.get_pixel(159, 150), color);
    assert_eq!(*picture.get_pixel(130, 179), color);
    assert_eq!(*picture.get_pixel(130, 150), Rgb([0; 3]));
}

#[test]
fn a_mask_covers_the_pixels_inside_its_rings_but_for_its_holes() {
    let mut one = detection(4, "car", 0.8, [8.0, 8.0, 30.0, 20.0]);
    one.bounds = None;
    // A ring of 20x10 pixels with a hole of 4x2, and one that reaches out of the picture.
    let outer = vec![10, 10, 30, 10, 30, 20, 10, 20];
    let hole = vec![18, 14, 18, 16, 22, 16, 22, 14];
    one.segments = Some(vec![outer, hole, vec![60, 60, 900, 60, 900, 9_000, 60, 9_000], Vec::new(), vec![1, 1]]);
    let mut picture = RgbImage::new(64, 64);
    fill_rings(&mut picture, one.segments.as_deref().unwrap(), [255; 3], 1.0);
    let white = picture.pixels().filter(|pixel| **pixel == Rgb([255; 3])).count();
    assert_eq!(white, 20 * 10 - 4 * 2 + 4 * 4);
    assert_eq!(*picture.get_pixel(29, 19), Rgb([255; 3]));
    assert_eq!(*picture.get_pixel(18, 14), Rgb([0; 3]));
    let mut picture = RgbImage::new(64, 64);
    draw(&mut picture, &[one]);
    assert_ne!(*picture.get_pixel(28, 18), Rgb([0; 3]));
    assert_eq!(*picture.get_pixel(20, 15), Rgb([0; 3]));
}

#[test]
fn boxes_and_points_outside_the_picture_are_cut_off() {
    let mut one = detection(1, "person", 0.8, [-50.0, -50.0, 500.0, 500.0]);
    let point = |x, y, score| KeypointMessage { x, y, score };
    one.keypoints = vec![point(-100.0, 5.0, None), point(1e9, 1e9, Some(0.9)), point(20.0, 20.0, Some(0.1))];
    let mut picture = RgbImage::new(64, 64);
    draw(&mut picture, &[one]);
    assert_eq!(*picture.get_pixel(20, 50), Rgb([0; 3]));
}

#[test]
fn a_classifiers_labels_stand_one_below_the_other() {
    let one = |label: &str| DetectionMessage { bounds: None, ..detection(0, label, 0.5, [0.0; 4]) };
    let labels = labels((320, 240), &[one("cat"), one("dog"), one("mouse")]);
    assert_eq!(labels.iter().map(|label| label.rect.left).collect::<Vec<_>>(), [0, 0, 0]);
    assert!(labels.windows(2).all(|pair| pair[1].rect.top >= pair[0].rect.bottom));
}
