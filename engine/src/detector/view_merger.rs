//! Merges the detections of several views of a frame, such as its tiles, into those of the frame.
//!
//! Two detections of different views are the same object if they have the same class, share at least half of the smaller one, and
//! either are of similar size or the smaller one ends where its view does. A view sees an object once, so an object has at most one
//! detection of each view; the pairs that overlap the most are joined first. This differs from GREEDYNMM in SAHI's
//! `postprocess/combine.py`, which also joins detections of one view, although the model's own suppression has left both: in a crowd it
//! loses people.
//!
//! An object has the score of its best detection. Box, keypoints, oriented box and mask are those of the best detection that no tile
//! cuts off. If tiles cut off all of them, as a bus on a seam, boxes and masks are joined; keypoints and the oriented box are those of
//! the best one.

use std::cmp::Ordering;

use visiond_kernels::mask::Mask;
use visiond_kernels::oriented::oriented_iou;
use visiond_kernels::view::View;

use super::run::Detection;

/// The least part of the smaller of two boxes that both share: SAHI's default.
const LEAST_SHARED: f64 = 0.5;
/// The least intersection over union of two detections of an object that is whole in both views.
const LEAST_IOU: f64 = 0.2;
/// A box that ends within this part of its tile's side from an edge may be cut off there.
const EDGE: f32 = 0.05;
/// The most detections of a frame that are merged; worse ones are dropped.
const MOST: usize = 4096;
/// The most pairs of a frame that are compared: 6 MB. That is each detection with one of every view.
const MOST_PAIRS: usize = 64 * MOST;

/// Collects the detections of a frame's views, and merges them.
///
/// After the busiest frame, only joined masks allocate.
#[derive(Debug, Default)]
pub struct ViewMerger {
    found: Vec<Detection>,
    /// The view of each detection, and whether that cuts it off.
    origins: Vec<Origin>,
    /// The part of the frame that the first view sees, which is that of all views: left, top, right, bottom.
    outer: [f32; 4],
    /// The number of views so far.
    views: u32,
    /// The words of the masks so far.
    mask_words: usize,
    /// Whether the log has reported that masks did not fit.
    lost_masks: bool,
    order: Vec<u32>,
    pairs: Vec<Pair>,
    objects: Vec<Object>,
}

#[derive(Debug, Clone, Copy)]
struct Origin {
    /// One bit, of its view.
    view: u64,
    is_cut: bool,
}

/// Two detections that may be one object.
#[derive(Debug, Clone, Copy)]
struct Pair {
    iou: f64,
    first: u32,
    second: u32,
    /// The one of the two with the smaller area.
    smaller: u32,
}

/// The object of a detection, in a forest whose roots are objects.
#[derive(Debug, Clone, Copy)]
struct Object {
    parent: u32,
    /// The views of a root's detections.
    views: u64,
    /// Whether tiles cut off all of a root's detections.
    is_cut: bool,
    /// The next detection of the object; the last one's is the first.
    next: u32,
}

impl ViewMerger {
    /// Forgets the views of the previous frame.
    pub fn clear(&mut self) {
        self.found.clear();
        self.origins.clear();
        (self.views, self.mask_words) = (0, 0);
    }

    /// Adds the detections of a view, in pixels of the frame, and leaves `detections` empty. The first view contains the others; a frame
    /// has at most [`MAX_VIEWS`](visiond_kernels::tiling::MAX_VIEWS).
    pub fn add(&mut self, view: &View, detections: &mut Vec<Detection>) {
        let [left, top, width, height] = view.crop().map(|pixels| pixels as f32);
        let seen = [left, top, left + width, top + height];
        if self.views == 0 {
            self.outer = seen;
        }
        let margins = [width, height, width, height].map(|side| side * EDGE);
        let outer = self.outer;
        let is_cut = |detection: &Detection| {
            detection.box_in_source.is_some_and(|corners| {
                (0..4).any(|edge| seen[edge] != outer[edge] && (corners[edge] - seen[edge]).abs() <= margins[edge])
            })
        };
        let view = 1_u64 << (self.views % u64::BITS);
        self.views += 1;
        for mut detection in detections.drain(..) {
            // Together, the masks of a frame's views have the room of one view's.
            if let Some(mask) = &mut detection.mask
                && !mask.fits(&mut self.mask_words)
            {
                self.report_lost_mask();
            }
            self.origins.push(Origin { view, is_cut: is_cut(&detection) });
            self.found.push(detection);
        }
    }

    /// Replaces `out` with the objects of the views that were added, best first, and forgets the views.
    ///
    /// Compares the boxes that overlap horizontally: a frame of 1000 detections in 33 views takes about 1 ms.
    pub fn merge(&mut self, out: &mut Vec<Detection>) {
        out.clear();
        self.rank();
        self.find_pairs();
        self.join();
        self.write(out);
        out.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.clear();
    }

    /// Lists the detections to merge.
    fn rank(&mut self) {
        self.order.clear();
        self.order.extend(0..self.found.len() as u32);
        if self.order.len() > MOST {
            let score = |index: &u32| self.found[*index as usize].score;
            self.order.sort_by(|a, b| score(b).total_cmp(&score(a)));
            self.order.truncate(MOST);
        }
        self.objects.clear();
        self.objects.extend(self.origins.iter().zip(0..).map(|(origin, index)| Object {
            parent: index,
            views: origin.view,
            is_cut: origin.is_cut,
            next: index,
        }));
    }

    /// Finds the pairs of different views that may be one object, the most similar first.
    fn find_pairs(&mut self) {
        let Self { found, origins, order, pairs, .. } = self;
        let corners = |index: u32| found[index as usize].box_in_source;
        let left = |index: &u32| corners(*index).map_or(f32::INFINITY, |[left, ..]| left);
        order.sort_by(|a, b| left(a).total_cmp(&left(b)).then(a.cmp(b)));
        pairs.clear();
        for (at, &first) in order.iter().enumerate() {
            let Some([_, top, right, bottom]) = corners(first) else { break };
            for &second in &order[at + 1..] {
                let Some(other) = corners(second).filter(|other| other[0] < right) else { break };
                let (a, b) = (first as usize, second as usize);
                let may_meet = other[1] < bottom
                    && other[3] > top
                    && origins[a].view != origins[b].view
                    && found[a].class_id == found[b].class_id;
                if may_meet
                    && pairs.len() < MOST_PAIRS
                    && let Some((iou, is_first)) = same_object((&found[a], origins[a]), (&found[b], origins[b]))
                {
                    let smaller = if is_first { first } else { second };
                    pairs.push(Pair { iou, first: first.min(second), second: first.max(second), smaller });
                }
            }
        }
        pairs.sort_by(|a, b| b.iou.total_cmp(&a.iou).then_with(|| (a.first, a.second).cmp(&(b.first, b.second))));
    }

    /// Joins the pairs whose objects have no view in common.
    fn join(&mut self) {
        for &Pair { iou, first, second, smaller } in &self.pairs {
            let (a, b) = (root(&self.objects, first), root(&self.objects, second));
            // A small object that one tile cuts off may be whole in another, which has been joined to it by now.
            let is_part = iou >= LEAST_IOU || self.objects[root(&self.objects, smaller)].is_cut;
            if !is_part || self.objects[a].views & self.objects[b].views != 0 {
                continue;
            }
            let (a, b) = (a.min(b), a.max(b));
            self.objects[a].views |= self.objects[b].views;
            self.objects[a].is_cut &= self.objects[b].is_cut;
            self.objects[b].parent = a as u32;
            // Two rings become one.
            let next = self.objects[a].next;
            self.objects[a].next = self.objects[b].next;
            self.objects[b].next = next;
        }
    }

    fn report_lost_mask(&mut self) {
        if !std::mem::replace(&mut self.lost_masks, true) {
            log::warn!(
                "masks of a frame's tiles did not fit into 64 MiB, and some are empty or cut off: raise score_threshold or lower \
                 max_detections (logged once)"
            );
        }
    }

    /// Appends the objects to `out`.
    fn write(&mut self, out: &mut Vec<Detection>) {
        for at in 0..self.order.len() {
            let first = self.order[at] as usize;
            if self.objects[first].parent as usize != first {
                continue;
            }
            let members = Members { objects: &self.objects, next: Some(first as u32), first: first as u32 };
            let better = |&a: &u32, &b: &u32| {
                let (a, b) = (a as usize, b as usize);
                let whole = self.origins[b].is_cut.cmp(&self.origins[a].is_cut);
                whole.then(self.found[a].score.total_cmp(&self.found[b].score)).then(b.cmp(&a))
            };
            let best = members.clone().max_by(better).unwrap_or(first as u32) as usize;
            let score = members.clone().map(|index| self.found[index as usize].score).fold(f32::MIN, f32::max);
            let mut object = Detection { score, ..std::mem::take(&mut self.found[best]) };
            let mut fits = true;
            if self.origins[best].is_cut && object.oriented.is_none() {
                for index in members.filter(|&index| index as usize != best) {
                    let part = &self.found[index as usize];
                    object.box_in_source = union(object.box_in_source, part.box_in_source);
                    fits &= join_masks(&mut object.mask, part.mask.as_ref(), &mut self.mask_words);
                }
            }
            if !fits {
                self.report_lost_mask();
            }
            out.push(object);
        }
    }
}

/// The detections of an object.
#[derive(Clone)]
struct Members<'a> {
    objects: &'a [Object],
    next: Option<u32>,
    first: u32,
}

impl Iterator for Members<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let here = self.next?;
        let next = self.objects[here as usize].next;
        self.next = (next != self.first).then_some(next);
        Some(here)
    }
}

fn root(objects: &[Object], index: u32) -> usize {
    let mut at = index as usize;
    // A path is at most as long as an object has views.
    while objects[at].parent as usize != at {
        at = objects[at].parent as usize;
    }
    at
}

/// Returns the intersection over union of two detections of different views, if they may be the same object, and whether the first is
/// the smaller one.
fn same_object((a, a_origin): (&Detection, Origin), (b, b_origin): (&Detection, Origin)) -> Option<(f64, bool)> {
    let (iou, areas) = match (&a.oriented, &b.oriented) {
        (Some(a), Some(b)) => (oriented_iou(a, b), [a.area(), b.area()]),
        _ => {
            let (a, b) = (a.box_in_source?.map(f64::from), b.box_in_source?.map(f64::from));
            let areas = [a, b].map(|[x1, y1, x2, y2]| (x2 - x1) * (y2 - y1));
            let sides = [0, 1].map(|axis| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0));
            let shared = sides[0] * sides[1];
            (shared / (areas[0] + areas[1] - shared), areas)
        }
    };
    let shared = iou * (areas[0] + areas[1]) / (1.0 + iou);
    let is_first = areas[0].total_cmp(&areas[1]) != Ordering::Greater;
    let fits = iou >= LEAST_IOU || if is_first { a_origin.is_cut } else { b_origin.is_cut };
    (fits && shared >= LEAST_SHARED * areas[0].min(areas[1])).then_some((iou, is_first))
}

/// Returns the box around two boxes.
fn union(a: Option<[f32; 4]>, b: Option<[f32; 4]>) -> Option<[f32; 4]> {
    let ([ax1, ay1, ax2, ay2], [bx1, by1, bx2, by2]) = (a?, b?);
    Some([ax1.min(bx1), ay1.min(by1), ax2.max(bx2), ay2.max(by2)])
}

/// Adds a part of a mask; returns `false`, and adds nothing, if the masks of the frame would become too large.
fn join_masks(whole: &mut Option<Mask>, part: Option<&Mask>, words: &mut usize) -> bool {
    let (Some(mask), Some(part)) = (&*whole, part) else { return true };
    let mut joined = mask.joined(part);
    let fits = joined.fits(words);
    if fits {
        *whole = Some(joined);
    }
    fits
}

#[cfg(test)]
mod tests;
