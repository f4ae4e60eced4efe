use proptest::prelude::*;
use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::*;

fn turned(center: [f32; 2], size: [f32; 2], angle: f32) -> OrientedBox {
    OrientedBox { center, size, angle }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn corners_go_clockwise_from_the_bottom_right() {
    let flat = turned([10.0, 20.0], [4.0, 2.0], 0.0);
    assert_eq!(flat.corners(), [[12.0, 21.0], [8.0, 21.0], [8.0, 19.0], [12.0, 19.0]]);
    assert_eq!(flat.bounds(), [8.0, 19.0, 12.0, 21.0]);
    // A quarter of a turn takes the right side down.
    let upright = OrientedBox { angle: FRAC_PI_2, ..flat };
    assert_eq!(upright.corners(), [[9.0, 22.0], [9.0, 18.0], [11.0, 18.0], [11.0, 22.0]]);
    assert_eq!(OrientedBox::from_upright([8.0, 19.0, 12.0, 21.0], 0.0), flat);
}

#[test]
fn a_regularized_box_is_the_same_box_with_an_angle_below_a_quarter() {
    let side = |angle: f32| {
        let found = turned([0.0; 2], [4.0, 2.0], angle).regularized();
        (found.size, (found.angle * 1e3).round() / 1e3)
    };
    assert_eq!(side(0.0), ([4.0, 2.0], 0.0));
    assert_eq!(side(FRAC_PI_2), ([2.0, 4.0], 0.0));
    assert_eq!(side(-FRAC_PI_4), ([2.0, 4.0], 0.785));
    assert_eq!(side(0.75 * PI), ([2.0, 4.0], 0.785));
    assert_eq!(side(PI + 0.3), ([4.0, 2.0], 0.3));
    // Rounds to a whole quarter, which is the next one's 0.
    assert_eq!(side(-1e-10), ([4.0, 2.0], 0.0));
    assert_eq!(turned([0.0; 2], [-4.0, 2.0], 0.0).regularized().size, [4.0, 2.0]);
}

#[test]
fn the_overlap_of_two_rectangles_is_exact() {
    let square = turned([0.0; 2], [2.0, 2.0], 0.0);
    assert!(close(oriented_iou(&square, &square), 1.0));
    assert!(close(oriented_iou(&square, &turned([1.0, 0.0], [2.0, 2.0], 0.0)), 1.0 / 3.0));
    // The octagon of a square and itself turned by an eighth: 8 * (sqrt(2) - 1) of 4 + 4 - that.
    let octagon = 8.0 * (2.0_f64.sqrt() - 1.0);
    let diamond = OrientedBox { angle: FRAC_PI_4, ..square };
    assert!(close(oriented_iou(&square, &diamond), octagon / (8.0 - octagon)));
    // A long box across another.
    let cross = oriented_iou(&turned([5.0, 5.0], [10.0, 1.0], 0.4), &turned([5.0, 5.0], [10.0, 1.0], 0.4 + FRAC_PI_2));
    assert!(close(cross, 1.0 / 19.0));
    assert_eq!(oriented_iou(&square, &turned([9.0, 0.0], [2.0, 2.0], 1.0)), 0.0);
    assert_eq!(oriented_iou(&square, &OrientedBox::default()), 0.0);
}

/// Any number, mostly one that boxes have.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![4 => -100.0_f32..100.0, 1 => any::<f32>()]
}

fn any_box() -> impl Strategy<Value = OrientedBox> {
    [number(), number(), number(), number(), number()].prop_map(|[x, y, w, h, a]| turned([x, y], [w, h], a))
}

fn usual_box() -> impl Strategy<Value = OrientedBox> {
    (-50.0_f32..50.0, -50.0_f32..50.0, 0.5_f32..80.0, 0.5_f32..80.0, -7.0_f32..7.0)
        .prop_map(|(x, y, w, h, a)| turned([x, y], [w, h], a))
}

proptest! {
    #[test]
    fn no_numbers_make_it_panic(a in any_box(), b in any_box()) {
        prop_assert!((0.0..=1.0).contains(&oriented_iou(&a, &b)));
        let similar = probiou(&a, &b);
        prop_assert!(similar.is_nan() || (-1e-6..=1.0).contains(&similar), "{similar}");
        prop_assert!(!(a.is_finite() && b.is_finite() && similar.is_nan()));
        let regular = a.regularized();
        prop_assert!(!a.is_finite() || (0.0..FRAC_PI_2).contains(&regular.angle), "{regular:?}");
        let [x1, _, x2, _] = a.bounds();
        prop_assert!(!a.is_finite() || x1 <= x2);
    }

    #[test]
    fn overlaps_are_symmetric_and_of_a_box_with_itself_1(a in usual_box(), b in usual_box()) {
        prop_assert!(close(oriented_iou(&a, &b), oriented_iou(&b, &a)));
        prop_assert!(close(probiou(&a, &b), probiou(&b, &a)));
        prop_assert!(close(oriented_iou(&a, &a), 1.0));
        // The epsilon of probiou takes a thousandth.
        prop_assert!(probiou(&a, &a) > 0.999);
    }

    #[test]
    fn a_regularized_box_covers_the_same_pixels(a in usual_box()) {
        let regular = a.regularized();
        prop_assert!(oriented_iou(&a, &regular) > 1.0 - 1e-4);
        for (old, new) in a.bounds().iter().zip(regular.bounds()) {
            prop_assert!((old - new).abs() < 1e-3);
        }
    }

    #[test]
    fn upright_boxes_overlap_as_those_without_an_angle(a in usual_box(), b in usual_box()) {
        let (a, b) = (OrientedBox { angle: 0.0, ..a }, OrientedBox { angle: 0.0, ..b });
        let upright = crate::nms::iou(a.bounds(), b.bounds());
        prop_assert!((oriented_iou(&a, &b) - f64::from(upright)).abs() < 1e-4);
    }
}
