//! The newest events, for clients that connect after them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use visiond_message::{EventMessage, EventTotals, Published};

/// How many events are kept.
pub const RECENT_EVENTS: usize = 200;

/// The newest [`RECENT_EVENTS`] events of all cameras, and the newest totals of each rule.
#[derive(Debug, Default)]
pub struct RecentEvents(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    events: VecDeque<Arc<Published>>,
    totals: HashMap<RuleKey, EventTotals>,
}

/// What a rule counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleKey {
    /// Name of the camera.
    pub camera: Arc<str>,
    /// Name of the line or zone.
    pub rule: Arc<str>,
    /// What is reported of it.
    pub kind: Box<str>,
    /// The side of a line.
    pub to: Option<Arc<str>>,
}

impl RecentEvents {
    /// Adds an event. Returns the one that made room for it, so that the caller can free it later.
    pub(crate) fn add(&self, event: &EventMessage, published: &Arc<Published>) -> Option<Arc<Published>> {
        let EventMessage { camera, rule, kind, to, totals, .. } = event;
        let key = RuleKey { camera: Arc::clone(camera), rule: Arc::clone(rule), kind: kind.clone(), to: to.clone() };
        let mut kept = self.0.lock();
        match totals {
            Some(totals) => kept.totals.insert(key, *totals),
            // A rule that is gone has no totals.
            None => kept.totals.remove(&key),
        };
        let oldest = if kept.events.len() < RECENT_EVENTS { None } else { kept.events.pop_front() };
        kept.events.push_back(Arc::clone(published));
        oldest
    }

    /// Returns the events that `wanted` accepts, the newest first.
    pub fn newest(&self, wanted: impl Fn(&EventMessage) -> bool) -> Vec<Arc<Published>> {
        let kept = self.0.lock();
        kept.events.iter().rev().filter(|published| published.event().is_some_and(&wanted)).cloned().collect()
    }

    /// Returns the newest totals of each rule that had an event, sorted.
    pub fn totals(&self) -> Vec<(RuleKey, EventTotals)> {
        let mut totals: Vec<_> = self.0.lock().totals.iter().map(|(key, totals)| (key.clone(), *totals)).collect();
        totals.sort_by(|(a, _), (b, _)| a.cmp(b));
        totals
    }

    /// Forgets the totals of cameras that do not run.
    pub(crate) fn keep_cameras(&self, running: &HashSet<Arc<str>>) {
        self.0.lock().totals.retain(|key, _| running.contains(&key.camera));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::Broadcast;

    fn event(number: usize, camera: &str, totals: Option<EventTotals>) -> Arc<Published> {
        let event = EventMessage {
            id: number.to_string().into(),
            camera: camera.into(),
            rule: format!("rule {}", number % 3).into(),
            kind: "zone".into(),
            totals,
            ..EventMessage::default()
        };
        Arc::new(Published::of_event(Arc::new(event), None))
    }

    #[test]
    fn a_million_events_take_the_memory_of_two_hundred() {
        let feed = Broadcast::default();
        let first = event(0, "door", None);
        feed.publish(&first);
        for number in 1..1_000_000 {
            let totals = EventTotals { begun: number as u64, inside: Some(1) };
            feed.publish(&event(number, "door", Some(totals)));
        }
        assert_eq!(Arc::strong_count(&first), 1, "an old event is freed");
        let newest = feed.events().newest(|_| true);
        let ids: Vec<_> = newest.iter().map(|published| published.id().to_owned()).collect();
        let wanted: Vec<_> = (999_800..1_000_000).rev().map(|number: usize| number.to_string()).collect();
        assert_eq!(ids, wanted);
        let kept = feed.events().0.lock();
        assert!(kept.events.capacity() < 2 * RECENT_EVENTS && kept.totals.len() == 3, "{kept:?}");
    }

    #[test]
    fn totals_are_those_of_each_rules_last_event_and_go_with_it() {
        let feed = Broadcast::default();
        let totals = |begun| Some(EventTotals { begun, inside: None });
        for (number, camera, begun) in [(0, "door", 1), (3, "door", 2), (1, "yard", 7), (2, "door", 4)] {
            feed.publish(&event(number, camera, totals(begun)));
        }
        let told = || feed.events().totals().iter().map(|(of, totals)| (of.rule.to_string(), totals.begun)).collect();
        let all: Vec<_> = told();
        assert_eq!(all, [("rule 0".into(), 2), ("rule 2".into(), 4), ("rule 1".into(), 7)]);
        feed.publish(&event(2, "door", None));
        feed.events().keep_cameras(&HashSet::from(["door".into()]));
        let left: Vec<_> = told();
        assert_eq!(left, [("rule 0".into(), 2)]);
        assert_eq!(feed.events().newest(|event| *event.camera == *"yard").len(), 1, "what happened stays");
    }
}
