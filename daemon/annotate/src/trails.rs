//! The recent paths of a camera's tracks, from its messages.

use std::collections::{HashMap, VecDeque};

use visiond_kernels::view::Orientation;
use visiond_message::{DetectionMessage, Message};

use super::upright::upright_box;

/// How long a tail is.
const TAIL_NS: u64 = 2_000_000_000;
/// A path ends where its object was unseen for longer than this.
const GAP_NS: u64 = 1_000_000_000;
/// Tracks whose paths are remembered; further ones have no tail.
const MOST_TRACKS: usize = 256;
/// Points of a path, by [`SPACING_NS`].
const MOST_POINTS: usize = 64;
/// The least time between two points, so that those of 2 s, with the present one, are at most so many. Less than that between two
/// frames at 30 frames per second.
const SPACING_NS: u64 = TAIL_NS / (MOST_POINTS as u64 - 2);

/// Remembers where the tracked objects of one camera were in the last 2 s: at most 256 tracks with 64 points each, 260 KB.
///
/// Time is the messages' `monotonic_ns`, so tails on a recording that is read faster than it was made are longer.
#[derive(Debug, Default)]
pub struct Trails {
    paths: HashMap<u64, Path>,
    newest_ns: u64,
    /// How the last message's frame was turned for the picture.
    seen: Orientation,
}

/// The points of a track, oldest first; never empty.
type Path = VecDeque<Point>;

#[derive(Debug, Clone, Copy)]
struct Point {
    monotonic_ns: u64,
    /// Where the bottom centre of the box was, as parts of the picture's width and height.
    anchor: [f32; 2],
}

/// The tail of each detection of a message; empty for those without.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tails(pub(crate) Vec<Vec<TailPoint>>);

/// A point of a tail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TailPoint {
    /// As parts of the picture's width and height.
    pub anchor: [f32; 2],
    /// 0 for the present, 1 for the end of the longest tail.
    pub age: f32,
}

impl Trails {
    /// Adds the places of a message's tracks, in the picture that `seen` makes of the frame. Messages come in their order; the same one may come again, and one that is a little
    /// older than the last is left out.
    ///
    /// A camera without tracks costs one look at each detection.
    pub fn add(&mut self, message: &Message, seen: Orientation) {
        // Those of another model of the camera may be newer, and have no tracks.
        if message.detections.iter().all(|detection| detection.track.is_none()) {
            return;
        }
        let now_ns = message.monotonic_ns;
        if now_ns < self.newest_ns {
            if self.newest_ns - now_ns <= TAIL_NS {
                return;
            }
            // Another recording, or the same from its start.
            self.paths.clear();
        }
        if std::mem::replace(&mut self.seen, seen) != seen {
            self.paths.clear();
        }
        self.newest_ns = now_ns;
        self.paths.retain(|_, path| path.back().is_some_and(|last| now_ns - last.monotonic_ns <= GAP_NS));
        for (id, anchor) in message.detections.iter().filter_map(|detection| anchor_of(message, detection, seen)) {
            if self.paths.len() >= MOST_TRACKS && !self.paths.contains_key(&id) {
                continue;
            }
            let path = self.paths.entry(id).or_default();
            let mut newest = path.iter().rev().map(|point| point.monotonic_ns);
            let (last, before) = (newest.next(), newest.next());
            // The newest point is always the present one; it stays once it is far enough from the one before it.
            let moves = last.zip(before).is_some_and(|(last, before)| last - before < SPACING_NS);
            if moves || last == Some(now_ns) {
                path.pop_back();
            }
            while path.front().is_some_and(|first| now_ns - first.monotonic_ns > TAIL_NS) {
                path.pop_front();
            }
            path.push_back(Point { monotonic_ns: now_ns, anchor });
        }
    }

    /// Returns the tails of a message that was added.
    pub fn tails(&self, message: &Message) -> Tails {
        if self.paths.is_empty() {
            return Tails::default();
        }
        let tail = |detection: &DetectionMessage| {
            let path = detection.track.and_then(|track| self.paths.get(&track.id));
            let points = path.into_iter().flatten().rev();
            let aged = points.filter_map(|point| Some((message.monotonic_ns.checked_sub(point.monotonic_ns)?, point)));
            let recent = aged.take_while(|(age_ns, _)| *age_ns <= TAIL_NS);
            recent
                .map(|(age_ns, point)| TailPoint { anchor: point.anchor, age: age_ns as f32 / TAIL_NS as f32 })
                .collect()
        };
        Tails(message.detections.iter().map(tail).collect())
    }
}

/// Returns a detection's track and its anchor in the picture, if it has a track and a box.
fn anchor_of(message: &Message, detection: &DetectionMessage, seen: Orientation) -> Option<(u64, [f32; 2])> {
    let (track, bounds) = (detection.track?, detection.bounds?);
    let [width, height] = [message.frame.width, message.frame.height].map(|side| side.max(1) as f32);
    let bounds = upright_box(&bounds, (width, height), seen);
    let (width, height) = seen.size_of((width, height));
    Some((track.id, [(bounds.x + bounds.width / 2.0) / width, (bounds.y + bounds.height) / height]))
}

#[cfg(test)]
mod tests;
