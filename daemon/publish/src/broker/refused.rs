//! The cameras whose messages the broker refuses for now: a missing permission, no stream for the subject, a quota.
//!
//! Their messages wait here, so that those of other cameras continue. One of them is sent every [`TRY_AGAIN`]. Once the
//! broker accepts it, the others follow in order, and then new ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{SinkConfig, WhenFull};
use visiond_message::camera_of_events;

use super::QueuedMessage;
use crate::queue::limit_bytes;

/// How long to wait before another message of a refused camera is sent.
pub const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Refused cameras and their unsent messages.
#[derive(Debug)]
pub struct RefusedCameras {
    cameras: BTreeMap<Arc<str>, Refused>,
    /// The camera that [`RefusedCameras::due`] chose last, because cameras take turns.
    last: Option<Arc<str>>,
    /// The messages that are not on disk.
    in_memory: Amount,
    most: Amount,
    drops_oldest: bool,
    /// The sink's cameras, as configured; empty: all.
    wanted: Vec<String>,
}

#[derive(Debug)]
struct Refused {
    reason: String,
    /// Numbers rise.
    waiting: VecDeque<Waiting>,
    /// The messages that are not on disk.
    in_memory: Amount,
    /// The number of the message that is sent to find out whether the broker accepts it now.
    trial: Option<u64>,
    next_try: Instant,
    /// The broker accepts this camera's messages again: the waiting ones are sent.
    accepted: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    messages: usize,
    bytes: usize,
}

impl Amount {
    fn add(&mut self, waiting: &Waiting) {
        let (messages, bytes) = waiting.in_memory();
        (self.messages, self.bytes) = (self.messages + messages, self.bytes + bytes);
    }

    fn remove(&mut self, waiting: &Waiting) {
        let (messages, bytes) = waiting.in_memory();
        (self.messages, self.bytes) = (self.messages - messages, self.bytes - bytes);
    }
}

impl Waiting {
    /// Returns 1 and its bytes if it is only in memory.
    fn in_memory(&self) -> (usize, usize) {
        let message = self.message.as_ref().filter(|_| !self.is_on_disk);
        message.map_or((0, 0), |message| (1, message.line.len()))
    }
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// `None` if it is only in the spool.
    message: Option<Arc<QueuedMessage>>,
    is_on_disk: bool,
}

/// A message of a refused camera that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    Send(Arc<QueuedMessage>),
    /// The messages of these numbers, at least the first one, must be read from the spool and passed to
    /// [`RefusedCameras::read_again`].
    Read(Arc<str>, Vec<u64>),
}

impl RefusedCameras {
    /// Creates an empty set with a sink's limits.
    pub fn new(config: &SinkConfig) -> Self {
        let mut this = Self {
            cameras: BTreeMap::new(),
            last: None,
            in_memory: Amount::default(),
            most: Amount::default(),
            drops_oldest: true,
            wanted: Vec::new(),
        };
        this.configure(config);
        this
    }

    /// Applies new limits and forgets cameras that the sink no longer has; returns the numbers of their messages. Messages
    /// that already wait stay within the new limits.
    pub fn configure(&mut self, config: &SinkConfig) -> Vec<u64> {
        self.most = Amount { messages: config.queue.max(1), bytes: limit_bytes(config) };
        // `block` would hold up cameras whose messages the broker accepts.
        self.drops_oldest = config.when_full == WhenFull::DropOldest;
        self.wanted.clone_from(&config.cameras);
        let cameras: Vec<_> = self.cameras.keys().filter(|camera| !self.is_wanted(camera)).cloned().collect();
        cameras.iter().flat_map(|camera| self.forget(camera)).collect()
    }

    /// Whether the sink has the camera of this topic.
    fn is_wanted(&self, topic: &str) -> bool {
        let camera = topic.split_once('/').map_or(topic, |(camera, _)| camera);
        let camera = camera_of_events(camera).unwrap_or(camera);
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == camera)
    }

    /// Forgets a camera; returns the numbers of its messages.
    fn forget(&mut self, camera: &str) -> Vec<u64> {
        let Some(Refused { waiting, .. }) = self.cameras.remove(camera) else { return Vec::new() };
        waiting.iter().for_each(|waiting| self.in_memory.remove(waiting));
        waiting.iter().map(|waiting| waiting.number).collect()
    }

    pub fn contains(&self, camera: &str) -> bool {
        self.cameras.contains_key(camera)
    }

    /// Notes that the broker refuses a camera's messages; returns whether it accepted them before.
    pub fn refuse(&mut self, camera: &Arc<str>, number: u64, reason: &str, now: Instant) -> bool {
        let is_new = !self.cameras.contains_key(camera);
        let refused = self.cameras.entry(Arc::clone(camera)).or_insert_with(|| Refused {
            reason: String::new(),
            waiting: VecDeque::new(),
            in_memory: Amount::default(),
            trial: None,
            next_try: now + TRY_AGAIN,
            accepted: false,
        });
        if refused.accepted || refused.trial == Some(number) {
            (refused.accepted, refused.trial, refused.next_try) = (false, None, now + TRY_AGAIN);
        }
        reason.clone_into(&mut refused.reason);
        is_new
    }

    /// Keeps a message of a refused camera. Returns the numbers of messages that are dropped because too many wait, or
    /// because the sink no longer has the camera.
    pub fn hold(&mut self, message: Arc<QueuedMessage>, is_on_disk: bool) -> Vec<u64> {
        if !self.is_wanted(&message.camera) {
            let mut dropped = self.forget(&message.camera);
            dropped.push(message.number);
            return dropped;
        }
        let Some(refused) = self.cameras.get_mut(&message.camera) else { return Vec::new() };
        let place = refused.waiting.partition_point(|other| other.number < message.number);
        let number = message.number;
        if refused.trial == Some(number) {
            // It was withdrawn, perhaps before it was sent.
            refused.trial = None;
        }
        // The first one also stays in memory, because it is sent repeatedly.
        let message = (place == 0 || !is_on_disk).then_some(message);
        let waiting = Waiting { number, message, is_on_disk };
        refused.in_memory.add(&waiting);
        self.in_memory.add(&waiting);
        refused.waiting.insert(place, waiting);
        let mut dropped = Vec::new();
        while (self.in_memory.messages > self.most.messages || self.in_memory.bytes > self.most.bytes)
            && let Some(number) = self.drop_one()
        {
            dropped.push(number);
        }
        dropped
    }

    /// Drops a message of the camera with the most waiting messages, so that one camera does not push out the others'
    /// messages.
    fn drop_one(&mut self) -> Option<u64> {
        let by_messages = self.in_memory.messages > self.most.messages;
        let amount = |Amount { messages, bytes }: Amount| if by_messages { messages } else { bytes };
        let most = self.cameras.values_mut().max_by_key(|refused| amount(refused.in_memory))?;
        let mut places = most.waiting.iter().enumerate().filter(|(_, waiting)| !waiting.is_on_disk);
        let (place, _) = if self.drops_oldest { places.next() } else { places.next_back() }?;
        let dropped = most.waiting.remove(place)?;
        most.in_memory.remove(&dropped);
        self.in_memory.remove(&dropped);
        Some(dropped.number)
    }

    /// Returns the next message to send, if one is due. Cameras take turns.
    pub fn due(&mut self, now: Instant) -> Option<Due> {
        let is_due = |refused: &Refused| {
            !refused.waiting.is_empty() && (refused.accepted || (refused.trial.is_none() && now >= refused.next_try))
        };
        let due = || self.cameras.iter().filter(|(_, refused)| is_due(refused)).map(|(camera, _)| camera);
        let camera = due().find(|camera| Some(*camera) > self.last.as_ref()).or_else(|| due().next())?;
        let camera = Arc::clone(self.last.insert(Arc::clone(camera)));
        let refused = self.cameras.get_mut(&camera)?;
        let first = refused.waiting.pop_front()?;
        refused.in_memory.remove(&first);
        self.in_memory.remove(&first);
        if let Some(message) = first.message {
            if !refused.accepted {
                refused.trial = Some(message.number);
            }
            return Some(Due::Send(message));
        }
        refused.waiting.push_front(first);
        let numbers = refused.waiting.iter().take_while(|waiting| waiting.message.is_none());
        // A trial needs only one message, so that permanently refused cameras use little memory.
        let most = if refused.accepted { MOST_READ } else { 1 };
        Some(Due::Read(camera, numbers.map(|waiting| waiting.number).take(most).collect()))
    }

    /// Takes the messages that were read from the spool among the first `settled` of a camera. Messages that were not found
    /// are lost; returns their numbers.
    pub fn read_again(&mut self, camera: &str, found: Vec<QueuedMessage>, settled: usize) -> Vec<u64> {
        let Some(refused) = self.cameras.get_mut(camera) else { return Vec::new() };
        let settled = settled.min(refused.waiting.len());
        let lost = refused.waiting.drain(..settled).map(|waiting| waiting.number);
        let lost =
            lost.filter(|number| found.binary_search_by_key(number, |message| message.number).is_err()).collect();
        for message in found.into_iter().rev() {
            let (number, message) = (message.number, Some(Arc::new(message)));
            refused.waiting.push_front(Waiting { number, message, is_on_disk: true });
        }
        lost
    }

    /// Waits before the next trial of a camera whose messages cannot be read from the spool.
    pub fn postpone(&mut self, camera: &str, now: Instant) {
        if let Some(refused) = self.cameras.get_mut(camera) {
            (refused.accepted, refused.next_try) = (false, now + TRY_AGAIN);
        }
    }

    /// Notes that the broker has the message of this number, or can never accept it.
    pub fn done(&mut self, number: u64, is_accepted: bool) {
        let tried = self.cameras.values_mut().find(|refused| refused.trial == Some(number));
        if let Some(refused) = tried {
            (refused.trial, refused.accepted) = (None, is_accepted);
        }
    }

    /// Tries every camera at once, over a new connection.
    pub fn try_all(&mut self, now: Instant) {
        self.cameras.values_mut().for_each(|refused| refused.next_try = now);
    }

    /// Returns the cameras whose messages were all sent again, and forgets them.
    pub fn accepted(&mut self) -> Vec<Arc<str>> {
        let is_over = |refused: &Refused| refused.accepted && refused.waiting.is_empty();
        let over = self.cameras.iter().filter(|(_, refused)| is_over(refused)).map(|(camera, _)| Arc::clone(camera));
        let over: Vec<_> = over.collect();
        over.iter().for_each(|camera| drop(self.cameras.remove(camera)));
        over
    }

    /// Forgets the messages that the spool has dropped, those below `first`; returns their numbers.
    pub fn forget_below(&mut self, first: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        for refused in self.cameras.values_mut() {
            let gone = |waiting: &Waiting| waiting.number < first && waiting.message.is_none();
            // Only the first of them may be in memory.
            if refused.waiting.iter().take(2).any(gone) {
                lost.extend(refused.waiting.iter().filter(|waiting| gone(waiting)).map(|waiting| waiting.number));
                refused.waiting.retain(|waiting| !gone(waiting));
            }
        }
        lost
    }

    /// Returns the smallest waiting number.
    pub fn first_number(&self) -> Option<u64> {
        self.cameras.values().filter_map(|refused| refused.waiting.front()).map(|first| first.number).min()
    }

    /// Returns the number of waiting messages.
    pub fn len(&self) -> usize {
        self.cameras.values().map(|refused| refused.waiting.len()).sum()
    }

    /// Whether so many messages wait that their numbers would use much memory. The rest, and later messages of other cameras,
    /// then stay in the spool.
    pub fn is_full(&self) -> bool {
        self.len() >= MOST_WAITING
    }

    /// Returns why a camera is refused, and how many other refused cameras there are.
    pub fn outage(&self) -> Option<String> {
        let (_, refused) = self.cameras.iter().find(|(_, refused)| !refused.accepted)?;
        let others = self.cameras.values().filter(|refused| !refused.accepted).count() - 1;
        let others = if others > 0 { format!(" (and {others} other cameras)") } else { String::new() };
        Some(format!("{}{others}", refused.reason))
    }
}

/// How many messages may wait, nearly all of them in the spool: 24 MiB of numbers, more than a queue can hold.
const MOST_WAITING: usize = 1 << 20;
/// How many messages are read from the spool at once.
const MOST_READ: usize = 64;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;

    use super::*;
    use crate::broker::window::Window;

    fn message(camera: &str, number: u64) -> Arc<QueuedMessage> {
        let line = Bytes::from_static(b"{}");
        Arc::new(QueuedMessage { number, id: number.to_string().into(), camera: camera.into(), line })
    }

    fn refused(queue: usize, when_full: WhenFull, cameras: &[&str], now: Instant) -> RefusedCameras {
        let mut refused = RefusedCameras::new(&SinkConfig { queue, when_full, ..SinkConfig::default() });
        for camera in cameras {
            assert!(refused.refuse(&(*camera).into(), 0, "no right", now));
        }
        refused
    }

    fn sent(due: Option<Due>) -> u64 {
        let Some(Due::Send(message)) = due else { panic!("{due:?}") };
        message.number
    }

    #[test]
    fn one_message_is_tried_and_the_others_follow_in_order_once_it_is_accepted() {
        let now = Instant::now();
        let mut refused = refused(10, WhenFull::DropOldest, &["door"], now);
        for number in [3, 1, 2] {
            assert!(refused.hold(message("door", number), false).is_empty());
        }
        assert_eq!(refused.due(now), None, "not yet");
        let later = now + TRY_AGAIN;
        assert_eq!((sent(refused.due(later)), refused.due(later)), (1, None), "one alone");
        // Refused again.
        assert!(!refused.refuse(&"door".into(), 1, "no right", later));
        refused.hold(message("door", 1), false);
        assert_eq!((refused.due(later), refused.first_number()), (None, Some(1)));
        assert_eq!(sent(refused.due(later + TRY_AGAIN)), 1);
        refused.done(1, true);
        assert_eq!((sent(refused.due(later)), refused.accepted().len()), (2, 0));
        assert_eq!((sent(refused.due(later)), refused.due(later)), (3, None));
        assert_eq!(refused.accepted(), ["door".into()]);
        assert!(!refused.contains("door") && refused.outage().is_none());
    }

    #[test]
    fn a_trial_that_is_taken_back_before_it_was_sent_is_due_again() {
        let now = Instant::now();
        let mut refused = refused(10, WhenFull::DropOldest, &["door", "yard"], now);
        for (camera, number) in [("door", 1), ("yard", 2)] {
            refused.hold(message(camera, number), false);
        }
        let later = now + TRY_AGAIN;
        let mut window = Window::default();
        window.push(message("yard", 3));
        window.next();
        window.sent();
        while let Some(Due::Send(trial)) = refused.due(later) {
            window.push(trial);
        }
        // The broker refuses messages that were sent before the trials were chosen.
        let taken = window.take_refused(3);
        assert_eq!(taken.iter().map(|message| message.number).collect::<Vec<_>>(), [3, 2]);
        refused.refuse(&"yard".into(), 3, "no right", later);
        taken.into_iter().for_each(|message| assert!(refused.hold(message, false).is_empty()));
        assert_eq!(sent(refused.due(later + TRY_AGAIN)), 2);
    }

    #[test]
    fn cameras_take_turns() {
        let now = Instant::now();
        let mut refused = refused(10, WhenFull::DropOldest, &["door", "gate", "yard"], now);
        for (camera, numbers) in [("door", 10..14), ("gate", 20..22), ("yard", 30..32)] {
            numbers.for_each(|number| drop(refused.hold(message(camera, number), false)));
        }
        let later = now + TRY_AGAIN;
        assert_eq!(sent(refused.due(later)), 10);
        // Its backlog does not precede the others' trials.
        refused.done(10, true);
        assert_eq!([0; 5].map(|_| sent(refused.due(later))), [20, 30, 11, 12, 13]);
        refused.done(30, true);
        assert_eq!((sent(refused.due(later)), refused.due(later)), (31, None));
    }

    #[test]
    fn the_numbers_of_messages_on_disk_are_bounded() {
        let mut refused = refused(10, WhenFull::DropOldest, &["door", "yard"], Instant::now());
        let waiting = (1..MOST_WAITING as u64).map(|number| Waiting { number, message: None, is_on_disk: true });
        refused.cameras.get_mut("door").unwrap().waiting = waiting.collect();
        assert!(!refused.is_full());
        refused.hold(message("yard", MOST_WAITING as u64), true);
        assert!(refused.is_full());
        refused.forget_below(3);
        assert!(!refused.is_full());
    }

    #[test]
    fn a_camera_that_is_not_the_sinks_any_more_is_forgotten() {
        let now = Instant::now();
        let mut refused = refused(2, WhenFull::DropOldest, &["door", "yard"], now);
        for (camera, number, is_on_disk) in [("door", 1, true), ("yard", 2, false), ("door", 3, false)] {
            assert!(refused.hold(message(camera, number), is_on_disk).is_empty());
        }
        let config = |cameras: &[&str]| SinkConfig {
            cameras: cameras.iter().map(|camera| (*camera).to_owned()).collect(),
            queue: 2,
            ..SinkConfig::default()
        };
        assert!(refused.configure(&config(&[])).is_empty());
        assert_eq!(refused.configure(&config(&["yard"])), [1, 3]);
        assert_eq!((refused.len(), refused.first_number(), refused.contains("door")), (1, Some(2), false));
        // Its place in memory is free.
        assert!(refused.hold(message("yard", 4), false).is_empty());
        // A message in flight is refused.
        refused.refuse(&"door".into(), 5, "no right", now);
        assert_eq!((refused.hold(message("door", 5), true), refused.contains("door")), (vec![5], false));
    }

    #[test]
    fn a_noisy_camera_pushes_out_its_own_messages_alone() {
        let now = Instant::now();
        for (when_full, dropped) in [(WhenFull::DropOldest, 10), (WhenFull::DropNewest, 14), (WhenFull::Block, 14)] {
            let mut refused = refused(5, when_full, &["quiet", "noisy"], now);
            assert!(refused.hold(message("quiet", 1), false).is_empty());
            for number in 10..14 {
                assert!(refused.hold(message("noisy", number), false).is_empty());
            }
            assert_eq!((refused.hold(message("noisy", 14), false), refused.len()), (vec![dropped], 5), "{when_full:?}");
        }
    }

    #[test]
    fn what_is_on_disk_waits_there_but_for_the_one_that_is_tried() {
        let now = Instant::now();
        let mut refused = refused(2, WhenFull::DropOldest, &["door"], now);
        for number in 1..=100 {
            assert!(refused.hold(message("door", number), true).is_empty());
        }
        let in_memory = refused.cameras.values().flat_map(|camera| &camera.waiting).filter(|one| one.message.is_some());
        assert_eq!((in_memory.count(), refused.len()), (1, 100));
        let later = now + TRY_AGAIN;
        assert_eq!(sent(refused.due(later)), 1);
        refused.done(1, true);
        let Some(Due::Read(camera, numbers)) = refused.due(later) else { panic!() };
        assert_eq!((&*camera, numbers), ("door", (2..66).collect()));
        // The spool has read four of them, of which one is damaged.
        let found = [2, 4, 5].map(|number| Arc::unwrap_or_clone(message("door", number)));
        assert_eq!(refused.read_again("door", found.to_vec(), 4), [3]);
        assert_eq!([0; 3].map(|_| sent(refused.due(later))), [2, 4, 5]);
        assert_eq!(refused.forget_below(10), (6..10).collect::<Vec<_>>());
        assert_eq!((refused.first_number(), refused.len()), (Some(10), 91));
    }
}
