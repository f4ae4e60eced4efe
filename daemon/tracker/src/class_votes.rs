//! The class of a track, by votes.

/// Classes that a track remembers. A detector that flickers does so between two or three.
const CLASSES: usize = 4;
/// The part of each vote that the next one leaves: the last ten detections decide.
const KEPT: f64 = 0.9;

/// The votes of a track's detections for their classes, by score; older ones count less.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassVotes {
    /// The class, and the weight of its votes; a weight of 0 is no vote.
    votes: [(u32, f64); CLASSES],
}

impl ClassVotes {
    pub(crate) fn new(class_id: u32, score: f64) -> Self {
        let mut votes = Self { votes: [(0, 0.0); CLASSES] };
        votes.vote(class_id, score);
        votes
    }

    /// Adds a vote. One for a class that is not among them takes the place of the weakest.
    pub(crate) fn vote(&mut self, class_id: u32, score: f64) {
        for (_, weight) in &mut self.votes {
            *weight *= KEPT;
        }
        let known = self.votes.iter_mut().find(|(class, weight)| *class == class_id && *weight > 0.0);
        if let Some((_, weight)) = known {
            *weight += score;
        } else if let Some(weakest) = self.votes.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *weakest = (class_id, score);
        }
    }

    /// Returns the class with the most votes.
    pub(crate) fn class_id(&self) -> u32 {
        self.votes.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(class, _)| *class)
    }

    /// Returns the share of a class, 0 to 1.
    pub(crate) fn share(&self, class_id: u32) -> f64 {
        let all: f64 = self.votes.iter().map(|(_, weight)| weight).sum();
        let own: f64 = self.votes.iter().filter(|(class, _)| *class == class_id).map(|(_, weight)| weight).sum();
        if all > 0.0 { own / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_that_of_most_of_the_last_detections() {
        let mut votes = ClassVotes::new(2, 0.9);
        for class in [2, 7, 2, 7, 2] {
            votes.vote(class, 0.8);
        }
        assert_eq!(votes.class_id(), 2);
        assert!(votes.share(2) > votes.share(7) && votes.share(7) > 0.3 && votes.share(3) == 0.0);
        for _ in 0..10 {
            votes.vote(7, 0.8);
        }
        assert_eq!(votes.class_id(), 7);
    }

    #[test]
    fn the_weakest_of_many_classes_is_forgotten() {
        let mut votes = ClassVotes::new(1, 0.9);
        for class in 2..=5 {
            votes.vote(class, 0.9);
        }
        assert_eq!(votes.share(1), 0.0);
        assert_eq!(votes.class_id(), 5);
        assert!((2..=5).map(|class| votes.share(class)).sum::<f64>() > 0.999);
    }
}
