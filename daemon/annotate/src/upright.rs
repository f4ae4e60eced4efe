//! Results in the pixels of a picture that is turned and mirrored as the model sees it.

use std::borrow::Cow;

use visiond_kernels::view::Orientation;
use visiond_message::{BoxMessage, Message};

/// Returns a message whose frame, and what is drawn of its detections, are in pixels of the picture that `seen` makes of the whole frame.
///
/// Boxes, oriented boxes, keypoints and outlines move; nothing else does. Copies nothing if the picture is the frame.
pub fn upright(message: &Message, seen: Orientation) -> Cow<'_, Message> {
    if seen == Orientation::UPRIGHT {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    let frame = (message.frame.width, message.frame.height);
    (message.frame.width, message.frame.height) = seen.size_of(frame);
    let moved = |point| seen.point_to_picture((frame.0 as f32, frame.1 as f32), point);
    for detection in &mut message.detections {
        if let Some(bounds) = &mut detection.bounds {
            *bounds = upright_box(bounds, (frame.0 as f32, frame.1 as f32), seen);
        }
        let corners = detection.oriented.iter_mut().flat_map(|oriented| &mut oriented.corners);
        corners.for_each(|corner| *corner = moved((*corner).into()).into());
        for point in &mut detection.keypoints {
            (point.x, point.y) = moved((point.x, point.y));
        }
        for point in detection.segments.iter_mut().flatten().flat_map(|ring| ring.chunks_exact_mut(2)) {
            (point[0], point[1]) = moved((point[0], point[1]));
        }
    }
    Cow::Owned(message)
}

/// Returns a box of a frame of this size in pixels of the picture.
pub fn upright_box(bounds: &BoxMessage, frame: (f32, f32), seen: Orientation) -> BoxMessage {
    if seen == Orientation::UPRIGHT {
        return *bounds;
    }
    let (ax, ay) = seen.point_to_picture(frame, (bounds.x, bounds.y));
    let (bx, by) = seen.point_to_picture(frame, (bounds.x + bounds.width, bounds.y + bounds.height));
    BoxMessage { x: ax.min(bx), y: ay.min(by), width: (ax - bx).abs(), height: (ay - by).abs() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_message::testing::door_message;
    use visiond_message::{KeypointMessage, OrientedMessage};

    use super::*;

    #[test]
    fn everything_that_is_drawn_moves_with_the_picture() {
        let mut message = Message::clone(&door_message(1, 1));
        (message.frame.width, message.frame.height) = (640, 480);
        let detection = &mut message.detections[0];
        detection.bounds = Some(BoxMessage { x: 100.0, y: 30.0, width: 20.0, height: 50.0 });
        let corners = [[100.0, 30.0], [120.0, 30.0], [120.0, 80.0], [100.0, 80.0]];
        detection.oriented =
            Some(OrientedMessage { x: 110.0, y: 55.0, width: 20.0, height: 50.0, angle: 0.0, corners });
        detection.keypoints = vec![KeypointMessage { name: None, x: 110.0, y: 40.0, score: None }];
        detection.segments = Some(vec![vec![100.0, 30.0, 120.0, 30.0, 120.0, 80.0]]);
        assert!(matches!(upright(&message, Orientation::UPRIGHT), Cow::Borrowed(_)));
        let turned = upright(&message, Orientation::UPRIGHT.turned(1));
        let found = &turned.detections[0];
        assert_eq!((turned.frame.width, turned.frame.height), (480, 640));
        assert_eq!(found.bounds, Some(BoxMessage { x: 400.0, y: 100.0, width: 50.0, height: 20.0 }));
        assert_eq!(found.oriented.as_ref().unwrap().corners[0], [450.0, 100.0]);
        assert_eq!((found.keypoints[0].x, found.keypoints[0].y), (440.0, 110.0));
        assert_eq!(found.segments.as_ref().unwrap()[0], [450.0, 100.0, 450.0, 120.0, 400.0, 120.0]);
    }
}
