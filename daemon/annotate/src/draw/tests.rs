#![allow(clippy::unwrap_used)]

use image::Rgb;
use std::sync::Arc;

use visiond_kernels::view::Orientation;

use visiond_message::{KeypointMessage, LabelMessage, MessageModel, TrackMessage, TrackMessageState};

use super::*;

fn detection(class_id: u32, label: &str, score: f32, [x, y, width, height]: [f32; 4]) -> DetectionMessage {
    let bounds = Some(BoxMessage { x, y, width, height });
    DetectionMessage { class_id, label: label.into(), score, bounds, ..DetectionMessage::default() }
}

fn drawn(picture: &mut RgbImage, detections: &[DetectionMessage], skeleton: &[[u32; 2]]) {
    let mut message = visiond_message::testing::message("a", &[]);
    message.detections = detections.to_vec();
    message.model = Arc::new(MessageModel { skeleton: skeleton.to_vec(), ..MessageModel::default() });
    draw(picture, &message);
}

fn point(x: f32, y: f32, score: Option<f32>) -> KeypointMessage {
    KeypointMessage { name: None, x, y, score }
}

/// Gives a detection a track.
fn tracked(detection: DetectionMessage, id: u64) -> DetectionMessage {
    let track = TrackMessage { id, state: TrackMessageState::Confirmed, age_ms: 0, velocity: [0.0, 0.0] };
    DetectionMessage { track: Some(track), ..detection }
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
        drawn(&mut RgbImage::new(size.0, size.1), &detections, &[]);
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
    drawn(&mut picture, &[detection(5, "bus", 0.8, [100.0, 100.0, 60.0, 80.0])], &[]);
    let color = Rgb(class_color(5));
    assert_eq!(*picture.get_pixel(100, 150), color);
    assert_eq!(*picture.get_pixel(159, 150), color);
    assert_eq!(*picture.get_pixel(130, 179), color);
    assert_eq!(*picture.get_pixel(130, 150), Rgb([0; 3]));
}

#[test]
fn on_a_large_picture_the_line_is_wider_and_has_dark_rims() {
    let (white, color, rim) = (Rgb([255; 3]), Rgb(class_color(5)), Rgb([140; 3]));
    let mut picture = RgbImage::from_pixel(1920, 1080, white);
    let boxes = [[100.0, 100.0, 300.0, 400.0], [600.0, 600.0, 6.0, 6.0]];
    drawn(&mut picture, &boxes.map(|bounds| detection(5, "bus", 0.8, bounds)), &[]);
    // Its sides from the outside inwards, away from the label above it.
    let across = [white, rim, color, color, color, rim, white];
    let at = |x: i32, y: i32| *picture.get_pixel(x as u32, y as u32);
    for (step, wanted) in (-2..).zip(across) {
        assert_eq!([at(100 + step, 300), at(399 - step, 300), at(250, 499 - step)], [wanted; 3], "{step}");
    }
    // Nothing of a small box is left inside its line.
    for (x, y) in (600..606).flat_map(|x| (600..606).map(move |y| (x, y))) {
        assert_eq!(at(x, y), color, "{x} {y}");
    }
    assert_eq!([at(599, 603), at(606, 603), at(603, 606)], [rim; 3]);
}

#[test]
fn on_a_picture_of_another_size_everything_is_drawn_at_its_scaled_place() {
    let mut all = detection(5, "bus", 0.8, [100.0, 40.0, 60.0, 80.0]);
    all.segments = Some(vec![vec![104.0, 60.0, 116.0, 60.0, 116.0, 100.0, 104.0, 100.0]]);
    all.keypoints = vec![point(140.0, 80.0, None)];
    let corners = [[200.0, 20.0], [280.0, 20.0], [280.0, 100.0], [200.0, 100.0]];
    let oriented = OrientedMessage { x: 0.0, y: 0.0, width: 0.0, height: 0.0, angle: 0.0, corners };
    let turned = DetectionMessage { oriented: Some(oriented), ..detection(4, "car", 0.9, [200.0, 20.0, 80.0, 80.0]) };
    let mut message = visiond_message::testing::message("a", &[]);
    (message.frame.width, message.frame.height) = (320, 120);
    message.detections = vec![turned, all];
    let mut picture = RgbImage::new(640, 480);
    draw_scaled(&mut picture, &message, &Tails::default());
    let is = |x: u32, y: u32, class_id: u32| *picture.get_pixel(x, y) == Rgb(class_color(class_id));
    // Twice as wide and four times as high.
    assert!(is(200, 400, 5) && is(319, 400, 5) && is(260, 479, 5), "the box");
    assert!(is(280, 320, 5), "the point");
    assert!(is(400, 300, 4) && is(480, 400, 4) && is(560, 300, 4), "the turned box");
    let inside = |x: u32, y: u32| *picture.get_pixel(x, y) != Rgb([0; 3]);
    assert!(inside(220, 300) && !inside(240, 300) && !inside(220, 410), "the mask");
    assert_eq!(message.detections[1].segments.as_ref().unwrap()[0][0], 104.0, "the message stays as it is");
}

#[test]
fn a_mask_covers_the_pixels_inside_its_rings_but_for_its_holes() {
    let mut one = detection(4, "car", 0.8, [8.0, 8.0, 30.0, 20.0]);
    one.bounds = None;
    // A ring of 20x10 pixels with a hole of 4x2, and one that extends beyond the image.
    let outer = vec![10.0, 10.0, 30.0, 10.0, 30.0, 20.0, 10.0, 20.0];
    let hole = vec![18.0, 14.0, 18.0, 16.0, 22.0, 16.0, 22.0, 14.0];
    one.segments =
        Some(vec![outer, hole, vec![60.0, 60.0, 1e9, 60.0, 1e9, 1e9, 60.0, 1e9], Vec::new(), vec![1.0, 1.0]]);
    let mut picture = RgbImage::new(64, 64);
    fill_rings(&mut picture, one.segments.as_deref().unwrap(), [255; 3], 1.0);
    let white = picture.pixels().filter(|pixel| **pixel == Rgb([255; 3])).count();
    assert_eq!(white, 20 * 10 - 4 * 2 + 4 * 4);
    assert_eq!(*picture.get_pixel(29, 19), Rgb([255; 3]));
    assert_eq!(*picture.get_pixel(18, 14), Rgb([0; 3]));
    let mut picture = RgbImage::new(64, 64);
    drawn(&mut picture, &[one], &[]);
    assert_ne!(*picture.get_pixel(28, 18), Rgb([0; 3]));
    assert_eq!(*picture.get_pixel(20, 15), Rgb([0; 3]));
}

#[test]
fn boxes_and_points_outside_the_picture_are_cut_off() {
    let mut one = detection(1, "person", 0.8, [-50.0, -50.0, 500.0, 500.0]);
    one.keypoints = vec![point(-100.0, 5.0, None), point(1e9, 1e9, Some(0.9)), point(20.0, 20.0, Some(0.1))];
    let mut picture = RgbImage::new(64, 64);
    drawn(&mut picture, &[one], &[]);
    assert_eq!(*picture.get_pixel(20, 50), Rgb([0; 3]));
}

#[test]
fn a_classifiers_labels_stand_one_below_the_other() {
    let one = |label: &str| DetectionMessage { bounds: None, ..detection(0, label, 0.5, [0.0; 4]) };
    let labels = labels((320, 240), &[one("cat"), one("dog"), one("mouse")]);
    assert_eq!(labels.iter().map(|label| label.rect.left).collect::<Vec<_>>(), [0, 0, 0]);
    assert!(labels.windows(2).all(|pair| pair[1].rect.top >= pair[0].rect.bottom));
}

#[test]
fn a_turned_box_is_drawn_turned_and_not_upright() {
    // A diamond around (160, 120), half a diagonal of 50.
    let corners = [[160.0, 170.0], [110.0, 120.0], [160.0, 70.0], [210.0, 120.0]];
    let side = 50.0 * 2.0_f32.sqrt();
    let angle = std::f32::consts::FRAC_PI_4;
    let oriented = OrientedMessage { x: 160.0, y: 120.0, width: side, height: side, angle, corners };
    let one = DetectionMessage { oriented: Some(oriented), ..detection(5, "ship", 0.8, [110.0, 70.0, 100.0, 100.0]) };
    let mut picture = RgbImage::new(320, 240);
    drawn(&mut picture, std::slice::from_ref(&one), &[]);
    let is_coloured = |x, y| picture.get_pixel(x, y).0.iter().any(|&byte| byte > 100);
    // The middle of each side.
    for (x, y) in [(135, 145), (135, 95), (185, 95), (185, 145)] {
        assert!((-1..=1).any(|d| is_coloured((x + d) as u32, y)), "{x}, {y}");
    }
    // The sides of the upright box, and the inside.
    for (x, y) in [(110, 160), (200, 169), (209, 80), (160, 120)] {
        assert!(!is_coloured(x, y), "{x}, {y}");
    }
    let far = OrientedMessage { corners: [[3e38, -3e38], [-3e38, 3e38], [5.0, 5.0], [5.0, 5.0]], ..oriented };
    drawn(&mut picture, &[DetectionMessage { oriented: Some(far), ..one }], &[]);
}

/// A body of three points without a box, far from its label in the top left corner.
fn body(points: [KeypointMessage; 3]) -> DetectionMessage {
    DetectionMessage { bounds: None, keypoints: points.into(), ..detection(5, "body", 0.8, [0.0; 4]) }
}

#[test]
fn lines_connect_the_points_that_both_pass() {
    let color = Rgb(class_color(5));
    let points = || [point(100.5, 100.5, Some(0.9)), point(220.5, 100.5, None), point(220.5, 200.5, Some(0.1))];
    let mut picture = RgbImage::from_pixel(320, 240, Rgb([255; 3]));
    drawn(&mut picture, &[body(points())], &[[0, 1], [1, 2], [0, 7]]);
    assert_eq!(*picture.get_pixel(160, 100), color);
    assert!(picture.get_pixel(160, 101).0 < [160; 3], "the rim is dark");
    assert_eq!(*picture.get_pixel(160, 104), Rgb([255; 3]));
    assert_eq!(*picture.get_pixel(220, 150), Rgb([255; 3]), "the third point is a guess");
    let mut dots = RgbImage::from_pixel(320, 240, Rgb([255; 3]));
    drawn(&mut dots, &[body(points())], &[]);
    assert_eq!(*dots.get_pixel(160, 100), Rgb([255; 3]));
}

#[test]
fn lines_grow_with_the_picture() {
    let width = |side: u32| {
        let mut picture = RgbImage::new(side, side);
        let across = side as f32 / 2.0;
        let points = [point(0.1 * across, across, None), point(1.9 * across, across, None), point(0.0, 0.0, None)];
        drawn(&mut picture, &[body(points)], &[[0, 1]]);
        (0..side).filter(|&y| picture.get_pixel(side / 2, y).0 != [0; 3]).count()
    };
    let widths = [320, 960, 2160].map(width);
    assert!(widths[0] <= 2 && (3..=4).contains(&widths[1]) && (7..=8).contains(&widths[2]), "{widths:?}");
}

#[test]
fn a_line_from_far_away_is_drawn_where_it_crosses_the_picture() {
    let color = Rgb(class_color(5));
    for far in [400.0, 1e9, 1e30] {
        for [a, b] in [[-far, far], [far, -far], [160.0, far]] {
            let mut picture = RgbImage::new(320, 240);
            drawn(
                &mut picture,
                &[body([point(a, 150.5, None), point(b, 150.5, None), point(0.0, 0.0, None)])],
                &[[0, 1]],
            );
            assert_eq!(
                [*picture.get_pixel(250, 150), *picture.get_pixel(250, 154)],
                [color, Rgb([0; 3])],
                "{a} to {b}"
            );
            let mut picture = RgbImage::new(320, 240);
            drawn(
                &mut picture,
                &[body([point(200.5, a, None), point(200.5, b, None), point(0.0, 0.0, None)])],
                &[[0, 1]],
            );
            assert_eq!(
                [*picture.get_pixel(200, 200), *picture.get_pixel(205, 200)],
                [color, Rgb([0; 3])],
                "{a} to {b}"
            );
        }
    }
    // Neither crosses it.
    let mut picture = RgbImage::new(320, 240);
    let outside = body([point(-1e30, -1e30, None), point(1e30, -1e30, None), point(f32::MAX, f32::MIN, None)]);
    drawn(&mut picture, &[outside], &[[0, 1], [1, 2]]);
    assert!((30..240).all(|y| (0..320).all(|x| picture.get_pixel(x, y).0 == [0; 3])));
}

proptest::proptest! {
    #[test]
    fn any_line_stays_inside(ends in proptest::array::uniform4(proptest::num::f32::ANY), width in 1..80_u32, radius in 0.1_f32..9.0) {
        let [x1, y1, x2, y2] = ends;
        let mut picture = RgbImage::new(width, 40);
        line(&mut picture, [[x1, y1], [x2, y2]], radius, BLACK, 1.0);
    }

    /// Against the distance of every pixel.
    #[test]
    fn a_line_covers_every_pixel_within_its_radius(ends in proptest::array::uniform4(-60.0_f64..120.0), radius in 0.5_f64..4.0) {
        let [x1, y1, x2, y2] = ends;
        let mut picture = RgbImage::new(60, 40);
        line(&mut picture, [[x1 as f32, y1 as f32], [x2 as f32, y2 as f32]], radius as f32, [255; 3], 1.0);
        for (x, y, pixel) in picture.enumerate_pixels() {
            let (x, y) = (f64::from(x) + 0.5, f64::from(y) + 0.5);
            let (dx, dy) = (x2 - x1, y2 - y1);
            let part = (((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
            let distance = (x - x1 - part * dx).hypot(y - y1 - part * dy);
            let wanted = 255.0 * (radius + 0.5 - distance).clamp(0.0, 1.0);
            proptest::prop_assert!((f64::from(pixel.0[0]) - wanted).abs() < 1.5, "{x} {y}: {pixel:?}, {wanted}");
        }
    }
}

#[test]
fn attributes_are_lines_one_below_the_other_and_stay_inside() {
    let label = |label: &str, score| LabelMessage { label: label.into(), score };
    let attributes = AttributesMessage(vec![
        ("gender".into(), AttributeMessage::Label(label("female", 0.97))),
        ("age".into(), AttributeMessage::Number { value: 31.2 }),
        ("worn".into(), AttributeMessage::Labels { labels: vec![label("hat", 0.9), label("bag", 0.7)] }),
        ("held".into(), AttributeMessage::Labels { labels: Vec::new() }),
        ("x".repeat(256).into(), AttributeMessage::Label(label(&"\u{1b}[31m".repeat(50), 0.5))),
    ]);
    let texts = |size: (u32, u32)| {
        let picture = RgbImage::new(size.0, size.1);
        let mut placed = Vec::new();
        Style::of(&picture).place_attributes(&picture, &attributes, &mut placed);
        for (index, one) in placed.iter().enumerate() {
            let Rect { left, top, right, bottom } = one.rect;
            assert!(left >= 0 && top >= 0 && right <= size.0 as i32, "{:?} in {size:?}", one.rect);
            let room = bottom <= size.1 as i32 && placed.len() as i32 * (bottom - top) <= size.1 as i32;
            assert!(!room || index == 0 || top == placed[index - 1].rect.bottom, "{:?} in {size:?}", one.rect);
        }
        placed.into_iter().map(|one| one.text).collect::<Vec<_>>()
    };
    assert_eq!(texts((640, 480))[..4], ["gender: female 0.97", "age: 31.2", "worn: hat, bag", "held: none"]);
    for size in [(1, 1), (20, 10), (3840, 2160)] {
        assert_eq!(texts(size).len(), 5);
    }
    let mut message = visiond_message::testing::message("a", &[]);
    message.attributes = attributes.clone();
    let mut picture = RgbImage::new(640, 480);
    draw(&mut picture, &message);
    assert!(picture.pixels().any(|pixel| pixel.0 != [0; 3]));
}

#[test]
fn lines_and_letters_grow_with_the_shorter_side() {
    // Sides of 1/320 of it, letters of 2.6 %, an eighth of them around.
    for (size, line, padding, height) in [
        ((1, 1), 1, 2, 13),
        ((320, 240), 1, 2, 13),
        ((640, 480), 2, 2, 13),
        ((480, 640), 2, 2, 13),
        ((1280, 720), 2, 2, 19),
        ((1920, 1080), 3, 4, 29),
        ((3840, 2160), 7, 7, 57),
    ] {
        let style = Style::of(&RgbImage::new(size.0, size.1));
        assert_eq!((style.line, style.padding, style.pen.height()), (line, padding, height), "{size:?}");
    }
}

#[test]
fn labels_of_the_same_box_take_their_places_in_order() {
    let bounds = [200.0, 160.0, 240.0, 160.0];
    let labels = labels((640, 480), &vec![detection(0, "a", 0.5, bounds); 12]);
    let style = Style::of(&RgbImage::new(640, 480));
    let (width, height) = (style.pen.width("a 0.50") + 2 * 2, 13 + 2);
    let at = |left, top| Rect::new(left, top, width, height);
    let expected = [
        // Above, inside above, below, inside below, beside, in the middle.
        at(200, 160 - height),
        at(440 - width, 160 - height),
        at(202, 162),
        at(438 - width, 162),
        at(200, 320),
        at(440 - width, 320),
        at(202, 318 - height),
        at(440, 160),
        at(200 - width, 160),
        at(202, (480 - height) / 2),
        // All have the same cost.
        at(200, 160 - height),
    ];
    assert_eq!(labels.iter().map(|label| label.rect).take(11).collect::<Vec<_>>(), expected);
    // The first place costs twice as much by now.
    assert_eq!(labels[11].rect, expected[1]);
}

#[test]
fn a_label_that_would_leave_the_picture_goes_where_it_moves_least() {
    let style = Style::of(&RgbImage::new(640, 480));
    let (width, height) = (style.pen.width("a 0.50") + 2 * 2, 13 + 2);
    for (bounds, left, top) in [
        // At the upper edge: inside the box.
        ([100.0, 0.0, 200.0, 300.0], 102, 2),
        // The whole image.
        ([0.0, 0.0, 640.0, 480.0], 2, 2),
        // A small one in the corner: below.
        ([0.0, 0.0, 4.0, 4.0], 2, 2),
        // At the right edge, narrower than its label: with its right side.
        ([630.0, 100.0, 10.0, 200.0], 640 - width, 100 - height),
    ] {
        let label = labels((640, 480), &[detection(0, "a", 0.5, bounds)]).remove(0);
        assert_eq!(label.rect, Rect::new(left, top, width, height), "{bounds:?}");
    }
}

#[test]
fn a_label_is_its_text_on_its_classes_colour() {
    let style = Style::of(&RgbImage::new(640, 480));
    let mut picture = RgbImage::new(640, 480);
    let rect = Rect::new(50, 60, style.pen.width("HH") + 2 * style.padding, style.pen.height() + 2);
    style.draw_label(&mut picture, &Label { text: "HH".to_owned(), rect, color: class_color(5) });
    let color = class_color(5);
    let (mut written, mut touched) = (Vec::new(), 0);
    for (x, y, pixel) in picture.enumerate_pixels() {
        let is_inside = (rect.left..rect.right).contains(&(x as i32)) && (rect.top..rect.bottom).contains(&(y as i32));
        assert!(is_inside || pixel.0 == [0; 3], "{x} {y}");
        touched += i32::from(is_inside && pixel.0 != [0; 3]);
        if is_inside && pixel.0 != color {
            written.push((x as i32, y as i32));
        }
    }
    assert!(!written.is_empty() && touched > rect.width() * rect.height() / 2);
    // The letters keep off the edges and are about in the middle: no padding is twice the required one.
    let (first, last) = (written.iter().map(|at| at.0).min().unwrap(), written.iter().map(|at| at.0).max().unwrap());
    let (left, right) = (first - rect.left, rect.right - 1 - last);
    assert!(left >= style.padding && right >= style.padding && left + right <= 4 * style.padding, "{left} {right}");
    let (top, bottom) = (written.iter().map(|at| at.1).min().unwrap(), written.iter().map(|at| at.1).max().unwrap());
    assert!(top > rect.top && bottom < rect.bottom - 1, "{top} {bottom} in {rect:?}");
}

#[test]
fn a_label_is_as_wide_as_its_text_and_no_wider_than_the_picture() {
    let picture = RgbImage::new(100, 240);
    let style = Style::of(&picture);
    let (text, size) = style.fit(&picture, "cat", " 0.50");
    assert_eq!((text.as_str(), size), ("cat 0.50", (style.pen.width("cat 0.50") + 4, 15)));
    let (text, (width, _)) = style.fit(&picture, "a traffic light", " 0.50");
    assert!(text.starts_with("a tr") && text.ends_with("… 0.50") && width <= 100, "{text} {width}");
    // As much as fits with the padding on both sides.
    let whole = style.pen.width("cat 0.50");
    for (room, fits) in [(whole + 4, true), (whole + 3, false)] {
        let (text, (width, _)) = style.fit(&RgbImage::new(room as u32, 240), "cat", " 0.50");
        assert_eq!((text == "cat 0.50", width <= room), (fits, true), "{text}");
    }
    assert_eq!(style.fit(&RgbImage::new(5, 240), "cat", " 0.50").1, (5, 15));
}

#[test]
fn a_box_has_at_least_one_pixel_and_ends_where_its_sides_round_to() {
    let whole = |x, y, width, height| whole_pixels(&BoxMessage { x, y, width, height });
    for (rect, [left, top, right, bottom]) in [
        (whole(1.4, 1.6, 0.2, 0.2), [1, 2, 2, 3]),
        (whole(1.4, 1.6, 3.2, 4.0), [1, 2, 5, 6]),
        (whole(-3.0, -2.5, 1.0, 9.0), [-3, -3, -2, 7]),
        (whole(2.0, 2.0, 1.0, 1.0), [2, 2, 3, 3]),
    ] {
        assert_eq!(rect, Rect { left, top, right, bottom });
    }
}

#[test]
fn the_inner_rim_of_a_box_is_drawn_where_there_is_room_for_it() {
    // On 1080 lines: a line of 3, a rim of 1.
    for (width, height, has_room) in [(8_u16, 8_u16, false), (8, 9, false), (9, 8, false), (9, 9, true)] {
        let mut picture = RgbImage::from_pixel(1920, 1080, Rgb([255; 3]));
        let bounds = [600.0, 600.0, f32::from(width), f32::from(height)];
        drawn(&mut picture, &[detection(5, "bus", 0.8, bounds)], &[]);
        let rim = if has_room { Rgb([140; 3]) } else { Rgb([255; 3]) };
        let corners = [(603, 603), (596 + u32::from(width), 596 + u32::from(height))];
        assert_eq!(corners.map(|(x, y)| *picture.get_pixel(x, y)), [rim; 2], "{width}x{height}");
    }
}

#[test]
fn a_point_is_a_dot_with_a_dark_rim() {
    let (white, color) = (Rgb([255; 3]), Rgb(class_color(5)));
    for (side, radius) in [(320_u32, 2.0_f64), (960, 4.4), (2160, 9.2)] {
        let mut picture = RgbImage::from_pixel(side, side, white);
        let middle = f64::from(side / 2);
        let points =
            [point(middle as f32, middle as f32, Some(0.3)), point(9.0, 9.0, Some(0.29)), point(0.0, 0.0, Some(0.0))];
        drawn(&mut picture, &[body(points)], &[]);
        for (x, y) in (0..30).flat_map(|dx| (0..30).map(move |dy| (side / 2 + dx, side / 2 + dy))) {
            let distance = (f64::from(x) + 0.5 - middle).hypot(f64::from(y) + 0.5 - middle);
            let found = *picture.get_pixel(x, y);
            if distance < radius - 0.5 {
                assert_eq!(found, color, "{side}: {x} {y}");
            } else if (distance - radius - 0.5).abs() < 0.01 {
                assert_eq!(found, Rgb([0; 3]), "{side}: {x} {y}");
            } else if distance > radius + 1.5 {
                assert_eq!(found, white, "{side}: {x} {y}");
            }
        }
    }
}

#[test]
fn lines_of_turned_boxes_and_skeletons_have_rims_that_grow_too() {
    // On 2160 lines: a line of 7, a rim of 2.
    let (white, color, rim) = (Rgb([255; 3]), Rgb(class_color(5)), Rgb([140; 3]));
    let corners = [[1000.5, 1000.5], [1400.5, 1000.5], [1400.5, 1400.5], [1000.5, 1400.5]];
    let oriented = OrientedMessage { x: 1200.5, y: 1200.5, width: 400.0, height: 400.0, angle: 0.0, corners };
    let turned =
        DetectionMessage { oriented: Some(oriented), ..body(std::array::from_fn(|_| point(0.0, 0.0, Some(0.0)))) };
    let skeleton = body([point(1000.5, 1400.5, None), point(1400.5, 1400.5, None), point(0.0, 0.0, Some(0.0))]);
    for one in [turned, skeleton] {
        let mut picture = RgbImage::from_pixel(3840, 2160, white);
        drawn(&mut picture, &[one], &[[0, 1]]);
        let across: Vec<_> = (1394..=1406).map(|y| *picture.get_pixel(1200, y)).collect();
        let line = [[rim; 2].as_slice(), &[color; 7], &[rim; 2]].concat();
        assert_eq!(across, [&[white][..], &line, &[white]].concat());
    }
}

#[test]
fn a_tracked_object_has_its_tracks_colour_and_its_id_in_the_label() {
    let bounds = [100.0, 100.0, 60.0, 80.0];
    let mut one = tracked(detection(5, "person", 0.874, bounds), 17);
    one.segments = Some(vec![vec![110.0, 130.0, 130.0, 130.0, 130.0, 150.0, 110.0, 150.0]]);
    one.keypoints = vec![point(140.5, 160.5, None)];
    let label = labels((320, 240), &[one.clone()]).remove(0);
    assert_eq!((label.text.as_str(), label.color), ("person #17 0.87", color_of(17)));
    // The name is cut, and the id is not.
    let cut = labels((150, 240), &[tracked(detection(5, "a lorry with a trailer", 0.5, bounds), 123_456)]).remove(0);
    assert!(cut.text.starts_with("a") && cut.text.ends_with("… #123456 0.50"), "{}", cut.text);
    let mut picture = RgbImage::new(320, 240);
    drawn(&mut picture, &[one.clone()], &[]);
    let at = |x, y| *picture.get_pixel(x, y);
    assert_eq!([at(100, 150), at(140, 160), at(101, 98)], [Rgb(color_of(17)); 3], "box, point, label");
    let masked = color_of(17).map(|byte| (f32::from(byte) * MASK_COVERAGE).round() as u8);
    assert_eq!(at(120, 140), Rgb(masked));
    // Without a track, all of it has the colour of its class.
    drawn(&mut picture, &[DetectionMessage { track: None, ..one }], &[]);
    assert_eq!(*picture.get_pixel(100, 150), Rgb(class_color(5)));
}

/// A tail of points that are parts of the frame, each this much older than the one before it.
fn tail(step: f32, anchors: &[[f32; 2]]) -> Vec<TailPoint> {
    anchors.iter().enumerate().map(|(at, &anchor)| TailPoint { anchor, age: at as f32 * step }).collect()
}

/// A picture of this size, white, with the box of track 17 at the right side and these points of its tail.
fn with_tail(width: u32, height: u32, tail: Vec<TailPoint>) -> RgbImage {
    let mut message = visiond_message::testing::message("a", &[]);
    (message.frame.width, message.frame.height) = (width, height);
    let (w, h) = (width as f32, height as f32);
    message.detections = vec![tracked(detection(5, "person", 0.5, [0.85 * w, 0.3 * h, 0.1 * w, 0.2 * h]), 17)];
    let mut picture = RgbImage::from_pixel(width, height, Rgb([255; 3]));
    draw_with_tails(&mut picture, &message, &Tails(vec![tail]));
    picture
}

#[test]
fn a_tail_is_a_line_through_its_points_that_gets_thinner_with_age() {
    // Level, then upright: 0.1 of the frame from point to point.
    let anchors = [[0.6, 0.5], [0.5, 0.5], [0.4, 0.5], [0.3, 0.5], [0.3, 0.6], [0.3, 0.7]];
    for (width, height) in [(640, 480), (1280, 720), (1920, 1080), (3840, 2160)] {
        let picture = with_tail(width, height, tail(0.2, &anchors));
        let color = Rgb(color_of(17));
        let is_touched = |x: u32, y: u32| picture.get_pixel(x, y).0 != [255; 3];
        let across = |x: f32| {
            let x = (x * width as f32) as u32;
            (0..height).filter(|&y| is_touched(x, y)).count()
        };
        let widths = [0.55, 0.45, 0.35].map(across);
        assert!(widths[0] > widths[2] && widths.is_sorted_by(|a, b| a >= b), "{width}: {widths:?}");
        let line = Style::of(&picture).line as f32;
        let (most, rim) = (TAIL_WIDTH * line, 2.0 * (line / 3.0).floor().max(1.0));
        assert!((widths[0] as f32 - most - rim).abs() <= 2.0, "{width}: {widths:?}");
        assert_eq!(*picture.get_pixel(width * 55 / 100, height / 2), color, "{width}");
        // The upright part, and nothing beyond its ends.
        assert!(is_touched(width * 3 / 10, height * 65 / 100) && !is_touched(width * 3 / 10, height * 75 / 100));
        assert!(!is_touched(width * 65 / 100, height / 2), "{width}");
        assert!(!is_touched(width / 2, height * 6 / 10), "{width}");
    }
}

#[test]
fn a_tail_of_one_point_or_far_outside_is_not_drawn() {
    let bare = with_tail(320, 240, Vec::new());
    assert_eq!(with_tail(320, 240, tail(0.1, &[[0.5, 0.5]])), bare);
    let far = [[9.0, 9.0], [f32::NAN, 0.5], [f32::MAX, f32::MIN], [f32::INFINITY, 3.0]];
    assert_eq!(with_tail(320, 240, tail(0.1, &far)), bare);
}

#[test]
fn boxes_are_drawn_over_tails_and_the_best_tail_over_the_others() {
    let mut message = visiond_message::testing::message("a", &[]);
    (message.frame.width, message.frame.height) = (320, 240);
    let (best, other) = (tracked(detection(5, "a", 0.9, [250.0, 60.0, 40.0, 60.0]), 17), [100.0, 100.0, 60.0, 80.0]);
    message.detections = vec![best, tracked(detection(5, "a", 0.8, other), 18)];
    let mut picture = RgbImage::new(320, 240);
    let across = tail(0.1, &[[270.0 / 320.0, 120.5 / 240.0], [0.1, 120.5 / 240.0]]);
    let upright = tail(0.1, &[[200.5 / 320.0, 0.9], [200.5 / 320.0, 0.2]]);
    draw_with_tails(&mut picture, &message, &Tails(vec![across, upright]));
    let at = |x, y| *picture.get_pixel(x, y);
    assert_eq!([at(80, 120), at(200, 120)], [Rgb(color_of(17)); 2]);
    assert_eq!([at(200, 80), at(100, 120), at(159, 120)], [Rgb(color_of(18)); 3]);
}

#[test]
fn tails_are_drawn_where_their_objects_were_on_a_picture_of_another_size() {
    let mut message = visiond_message::testing::message("a", &[]);
    (message.frame.width, message.frame.height) = (320, 120);
    message.detections = vec![tracked(detection(5, "bus", 0.8, [200.0, 10.0, 60.0, 40.0]), 17)];
    let mut trails = crate::trails::Trails::default();
    for step in 0..10_u32 {
        message.monotonic_ns = u64::from(step) * 100_000_000;
        message.detections[0].bounds =
            Some(BoxMessage { x: 110.0 + 10.0 * step as f32, y: 10.0, width: 60.0, height: 40.0 });
        trails.add(&message, Orientation::UPRIGHT);
    }
    let mut picture = RgbImage::new(640, 480);
    draw_scaled(&mut picture, &message, &trails.tails(&message));
    // Twice as wide and four times as high: from 280, 200 to 460, 200.
    for x in (290..=450).step_by(10) {
        assert!((197..204).any(|y| *picture.get_pixel(x, y) == Rgb(color_of(17))), "{x}");
        assert!((0..190).chain(210..480).all(|y| x > 390 || picture.get_pixel(x, y).0 == [0; 3]), "{x}");
    }
    assert_eq!(picture.get_pixel(270, 200).0, [0; 3]);
}
