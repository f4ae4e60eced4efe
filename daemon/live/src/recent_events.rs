//! The newest events, for clients that connect after them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use visiond_frames::clock::{SystemClock, now};
use visiond_message::{EventMessage, EventPhase, EventTotals, Published};

/// How many events are kept.
pub const RECENT_EVENTS: usize = 200;

/// The newest [`RECENT_EVENTS`] events of all cameras, and the newest totals of each rule.
#[derive(Debug, Default)]
pub struct RecentEvents(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    events: VecDeque<Arc<Published>>,
    /// How many events were added so far.
    added: u64,
    totals: HashMap<RuleKey, EventTotals>,
    /// When the privacy masks of cameras changed last.
    mask_changes: HashMap<Arc<str>, MaskChange>,
}

/// A change of a camera's privacy masks. The ledger may deliver events of earlier frames after it, and a frame's time may be that of another
/// clock, so an event must be later by its number and by its time.
#[derive(Debug)]
struct MaskChange {
    /// The number of events before it.
    added: u64,
    /// Its time, as in [`EventMessage::at`].
    at: String,
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
        kept.added += 1;
        oldest
    }

    /// Returns what `file` finds in the newest message of the event `id` that has it, such as the name of a file.
    ///
    /// `None` if the event began before the privacy masks of its camera changed last, or may have: its files may show what is hidden now.
    pub fn file_of<T>(&self, id: &str, file: impl Fn(&EventMessage) -> Option<T>) -> Option<T> {
        let kept = self.0.lock();
        let numbers = kept.added - kept.events.len() as u64..;
        let events = numbers.zip(kept.events.iter().filter_map(|published| published.event()));
        let mut of_event = events.filter(|(_, event)| *event.event == *id).peekable();
        let (number, oldest) = of_event.peek()?;
        let is_shown = kept.mask_changes.get(&oldest.camera).is_none_or(|change| {
            let is_begin = matches!(oldest.phase, EventPhase::Begin | EventPhase::Moment);
            is_begin && *number >= change.added && oldest.at > change.at
        });
        of_event.filter(|_| is_shown).filter_map(|(_, event)| file(event)).last()
    }

    /// Hides the files of the events that a camera had so far, because its privacy masks have changed.
    pub(crate) fn change_masks(&self, camera: &str) {
        let mut kept = self.0.lock();
        let change = MaskChange { added: kept.added, at: now(&SystemClock).rfc3339() };
        kept.mask_changes.insert(camera.into(), change);
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

    #[test]
    fn files_of_events_before_other_privacy_masks_are_hidden() {
        let recent = RecentEvents::default();
        let message = |id: &str, phase, at: &str, image: Option<&str>| EventMessage {
            event: id.into(),
            camera: "door".into(),
            phase,
            at: at.to_owned(),
            image: image.map(Into::into),
            ..EventMessage::default()
        };
        let add = |event: EventMessage| {
            let event = Arc::new(event);
            recent.add(&event, &Arc::new(Published::of_event(Arc::clone(&event), None)));
        };
        let image = |id: &str| recent.file_of(id, |event| event.image.clone()).map(|name| name.to_string());
        let (past, future) = ("2020-01-01T00:00:00.000000000Z", "2100-01-01T00:00:00.000000000Z");
        add(message("e1", EventPhase::Begin, past, Some("1.jpg")));
        add(message("e2", EventPhase::Begin, past, None));
        add(message("e1", EventPhase::Update, past, None));
        assert_eq!((image("e1"), image("e2"), image("e3")), (Some("1.jpg".to_owned()), None, None));
        recent.change_masks("yard");
        assert!(image("e1").is_some(), "another camera");
        recent.change_masks("door");
        add(message("e1", EventPhase::End, future, Some("1.jpg")));
        add(message("late", EventPhase::Begin, past, Some("2.jpg")));
        add(message("unknown", EventPhase::End, future, Some("3.jpg")));
        add(message("new", EventPhase::Moment, future, Some("4.jpg")));
        let images = ["e1", "late", "unknown", "new"].map(image);
        assert_eq!(images, [None, None, None, Some("4.jpg".to_owned())]);
    }

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
