//! Which tables are in the GPU's memory, and which a run has to copy there.

use std::ops::Range;

use super::tables::{self, FrameTables};
use crate::preprocess::axis::PlanKey;
use crate::preprocess::spec::PreprocessSpec;

/// The tables of the last frame sizes and orientations, each in a place in the GPU's memory.
///
/// A new size gets the place of the one that was used least recently. Its tables are made here, and the run begins with copying them
/// to their place. The frames of a camera come again with the same size, so theirs are copied once. A model on detections gets new
/// sizes in every run, and copying a few KB for each costs no more than what that run copies anyway.
pub(super) struct TableCache {
    places: Vec<Place>,
    capacity: usize,
    /// The current run; tables that only earlier ones used may be replaced.
    run: u64,
    /// The tables that are new in this run.
    words: Vec<u32>,
}

struct Place {
    tables: FrameTables,
    /// The last run that used it.
    used: u64,
}

/// The tables of one frame.
pub(super) struct Found {
    pub(super) tables: FrameTables,
    /// Counts from 0; it is at most the number of places so far.
    pub(super) place: usize,
    /// Which of the [`new_words`](TableCache::new_words) must be copied to that place: a multiple of 4, or none.
    pub(super) words: Range<usize>,
}

impl TableCache {
    /// Makes one with places for `capacity` tables, at least for those of one run.
    pub(super) fn new(capacity: usize) -> Self {
        Self { places: Vec::with_capacity(capacity), capacity, run: 0, words: Vec::new() }
    }

    /// Begins a run; the one before is done.
    pub(super) fn begin_run(&mut self) {
        self.run += 1;
        self.words.clear();
    }

    /// Returns the tables of a frame size and orientation. Makes them if they have no place.
    pub(super) fn find_or_make(&mut self, spec: &PreprocessSpec, key: PlanKey) -> Found {
        if let Some(place) = self.places.iter().position(|place| place.tables.key == key) {
            self.places[place].used = self.run;
            return Found { tables: self.places[place].tables, place, words: 0..0 };
        }
        let first = self.words.len();
        let tables = tables::make(spec, key, &mut self.words);
        let made = Place { tables, used: self.run };
        let place = if self.places.len() < self.capacity {
            self.places.push(made);
            self.places.len() - 1
        } else {
            // There are at least as many as frames in a run, so the oldest does not belong to this run; none is in flight.
            let oldest = (0..self.places.len()).min_by_key(|&place| self.places[place].used).unwrap_or(0);
            self.places[oldest] = made;
            oldest
        };
        Found { tables, place, words: first..self.words.len() }
    }

    /// Returns the words of all tables that are new in this run.
    pub(super) fn new_words(&self) -> &[u32] {
        &self.words
    }

    /// Forgets all tables, since some may not have been copied.
    pub(super) fn forget(&mut self) {
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preprocess::plan::KEPT_PLANS;
    use crate::tensor::DType;
    use crate::view::Orientation;

    fn key(width: u32, height: u32) -> PlanKey {
        PlanKey { size: (width, height), orientation: Orientation::UPRIGHT }
    }

    /// Runs the cache for frames of these sizes; returns each one's place, and whether its tables are new.
    fn run(cache: &mut TableCache, sizes: &[(u32, u32)]) -> Vec<(usize, bool)> {
        let spec = PreprocessSpec::yolo(224, 224, DType::F16);
        cache.begin_run();
        let found = sizes.iter().map(|&(width, height)| cache.find_or_make(&spec, key(width, height)));
        found.map(|found| (found.place, !found.words.is_empty())).collect()
    }

    #[test]
    fn a_size_that_comes_again_is_not_copied_again() {
        let mut cache = TableCache::new(4);
        assert_eq!(run(&mut cache, &[(1920, 1080), (640, 480), (1920, 1080)]), [(0, true), (1, true), (0, false)]);
        assert_eq!(run(&mut cache, &[(640, 480), (1920, 1080)]), [(1, false), (0, false)]);
        assert!(cache.new_words().is_empty());
    }

    #[test]
    fn a_new_size_takes_the_place_of_the_oldest_and_never_of_one_in_its_run() {
        let mut cache = TableCache::new(3);
        run(&mut cache, &[(10, 10), (20, 20), (30, 30)]);
        run(&mut cache, &[(10, 10)]);
        assert_eq!(run(&mut cache, &[(20, 20), (40, 40), (50, 50)]), [(1, false), (2, true), (0, true)]);
        // All are as old; 50x50 is new again, and takes the place of 40x40.
        assert_eq!(run(&mut cache, &[(10, 10), (20, 20), (50, 50)]), [(0, true), (1, false), (2, true)]);
    }

    #[test]
    fn crops_of_ever_new_sizes_need_no_more_memory() {
        let (spec, crops) = (PreprocessSpec::yolo(224, 224, DType::F16), 20);
        let mut cache = TableCache::new(KEPT_PLANS);
        for round in 0..50 {
            cache.begin_run();
            for crop in 0..crops {
                let found = cache.find_or_make(&spec, key(48 + round, 48 + crop));
                assert!(found.place < KEPT_PLANS);
                // Two columns' and two rows' entries.
                assert_eq!(found.words.len(), 4 * 224);
            }
            assert_eq!(cache.new_words().len(), crops as usize * 4 * 224);
        }
    }

    #[test]
    fn tables_that_were_not_copied_are_made_again() {
        let mut cache = TableCache::new(4);
        assert_eq!(run(&mut cache, &[(1920, 1080)]), [(0, true)]);
        cache.forget();
        assert_eq!(run(&mut cache, &[(640, 480), (1920, 1080)]), [(0, true), (1, true)]);
    }
}
