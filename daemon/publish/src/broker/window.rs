//! The messages in flight: sent, or next to be sent, and not yet acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{QueuedMessage, WINDOW, WINDOW_BYTES};

#[derive(Debug, Default)]
pub struct Window {
    /// Numbers rise. The first is never acknowledged.
    entries: VecDeque<InFlight>,
    /// Entries before this one were acknowledged or sent.
    next: usize,
}

#[derive(Debug)]
struct InFlight {
    message: Arc<QueuedMessage>,
    acknowledged: bool,
    /// Sent over this connection.
    on_its_way: bool,
    /// Sent before, over this connection or an earlier one.
    sent: bool,
}

impl Window {
    /// Adds a message, which usually has a larger number than all others.
    pub fn push(&mut self, message: Arc<QueuedMessage>) {
        let place = match self.entries.back() {
            Some(last) if last.message.number > message.number => {
                self.place(message.number).unwrap_or_else(|place| place)
            }
            _ => self.entries.len(),
        };
        self.entries.insert(place, InFlight { message, acknowledged: false, on_its_way: false, sent: false });
        self.next = self.next.min(place);
    }

    /// Returns the number of entries, including those that were acknowledged out of turn.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many more messages it has room for.
    pub fn room(&self) -> usize {
        let bytes: usize = self.entries.iter().map(|entry| entry.message.line.len()).sum();
        if bytes < WINDOW_BYTES { WINDOW.saturating_sub(self.entries.len()) } else { 0 }
    }

    /// Returns how many more messages of refused cameras it has room for. They take at most half of it, so that a camera that
    /// is accepted again does not hold up the others until its backlog is sent.
    pub fn room_for_refused(&self, is_refused: impl Fn(&str) -> bool) -> usize {
        let theirs = self.entries.iter().filter(|entry| is_refused(&entry.message.camera));
        let (messages, bytes) =
            theirs.fold((0, 0), |(messages, bytes), entry| (messages + 1, bytes + entry.message.line.len()));
        if bytes < WINDOW_BYTES / 2 { self.room().min((WINDOW / 2).saturating_sub(messages)) } else { 0 }
    }

    pub fn outstanding(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.acknowledged).count()
    }

    /// Returns the smallest number that is not acknowledged.
    pub fn first_number(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.message.number)
    }

    /// Whether a message that was sent over this connection is unacknowledged.
    pub fn awaits(&self) -> bool {
        self.entries.iter().any(|entry| entry.on_its_way && !entry.acknowledged)
    }

    /// Starts over on a new connection: every unacknowledged message will be sent again.
    pub fn rewind(&mut self) {
        self.next = 0;
        self.entries.iter_mut().for_each(|entry| entry.on_its_way = false);
    }

    pub fn next(&mut self) -> Option<Arc<QueuedMessage>> {
        while self.entries.get(self.next).is_some_and(|entry| entry.acknowledged || entry.on_its_way) {
            self.next += 1;
        }
        self.entries.get(self.next).map(|entry| Arc::clone(&entry.message))
    }

    /// Marks the message from [`Window::next`] as sent; returns whether it had been sent before.
    pub fn sent(&mut self) -> bool {
        let Some(entry) = self.entries.get_mut(self.next) else { return false };
        self.next += 1;
        entry.on_its_way = true;
        std::mem::replace(&mut entry.sent, true)
    }

    /// Acknowledges the message of this number; returns `false` if it was acknowledged before or is unknown.
    pub fn acknowledge(&mut self, number: u64) -> bool {
        let Some(entry) = self.place(number).ok().and_then(|at| self.entries.get_mut(at)) else { return false };
        let is_news = !std::mem::replace(&mut entry.acknowledged, true);
        self.drop_acknowledged();
        is_news
    }

    /// Takes out the message of this number, which the broker refuses, and the unsent ones of its camera.
    pub fn take_refused(&mut self, number: u64) -> Vec<Arc<QueuedMessage>> {
        let refused =
            self.place(number).ok().filter(|at| self.entries.get(*at).is_some_and(|entry| !entry.acknowledged));
        let Some(first) = refused.and_then(|at| self.entries.remove(at)) else { return Vec::new() };
        let camera = Arc::clone(&first.message.camera);
        let mut taken = vec![first.message];
        self.entries.retain(|entry| {
            let stays = entry.acknowledged || entry.on_its_way || entry.message.camera != camera;
            if !stays {
                taken.push(Arc::clone(&entry.message));
            }
            stays
        });
        self.next = 0;
        self.drop_acknowledged();
        taken
    }

    fn place(&self, number: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.message.number)
    }

    fn drop_acknowledged(&mut self) {
        while self.entries.pop_front_if(|first| first.acknowledged).is_some() {
            self.next = self.next.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(numbers: std::ops::Range<u64>) -> Window {
        let mut window = Window::default();
        numbers.for_each(|number| window.push(message(number, "")));
        window
    }

    fn message(number: u64, camera: &str) -> Arc<QueuedMessage> {
        Arc::new(QueuedMessage { number, id: "".into(), camera: camera.into(), line: Default::default() })
    }

    fn send_all(window: &mut Window) -> Vec<(u64, bool)> {
        let mut sent = Vec::new();
        while let Some(message) = window.next() {
            sent.push((message.number, window.sent()));
        }
        sent
    }

    #[test]
    fn acknowledgements_may_come_in_any_order_and_count_once() {
        let mut window = window(10..14);
        assert_eq!(send_all(&mut window), [(10, false), (11, false), (12, false), (13, false)]);
        assert!(window.acknowledge(12) && !window.acknowledge(12) && window.acknowledge(11));
        assert_eq!((window.len(), window.outstanding(), window.first_number()), (4, 2, Some(10)));
        assert!(window.acknowledge(10) && !window.acknowledge(10) && !window.acknowledge(99));
        assert_eq!((window.awaits(), window.first_number()), (true, Some(13)));
        assert!(window.acknowledge(13));
        assert!(window.len() == 0 && !window.awaits());
    }

    #[test]
    fn refused_cameras_get_half_of_it_at_most() {
        let mut window = Window::default();
        let room = |window: &Window| window.room_for_refused(|camera| camera == "yard");
        for number in 0..WINDOW as u64 / 2 {
            assert_eq!(room(&window), WINDOW / 2 - number as usize);
            window.push(message(number, "yard"));
        }
        assert_eq!((room(&window), window.room()), (0, WINDOW / 2));
        // A full window has no room for messages of refused cameras, but may already hold some.
        let mut window = window_of("door", WINDOW - 1);
        assert_eq!(room(&window), 1);
        window.push(message(WINDOW as u64, "door"));
        assert_eq!(room(&window), 0);
        // Half of the bytes.
        let mut window = Window::default();
        let large = |camera: &str, number| {
            let line = vec![b'x'; WINDOW_BYTES / 2].into();
            Arc::new(QueuedMessage { line, ..Arc::unwrap_or_clone(message(number, camera)) })
        };
        window.push(large("door", 1));
        assert_eq!(room(&window), WINDOW / 2);
        let mut window = Window::default();
        window.push(large("yard", 1));
        assert_eq!((room(&window), window.room()), (0, WINDOW - 1));
    }

    fn window_of(camera: &str, messages: usize) -> Window {
        let mut window = Window::default();
        (0..messages as u64).for_each(|number| window.push(message(number, camera)));
        window
    }

    #[test]
    fn another_connection_gets_what_is_not_acknowledged_in_order_and_then_the_rest() {
        let mut window = window(0..4);
        for _ in 0..3 {
            window.next();
            window.sent();
        }
        window.acknowledge(1);
        window.rewind();
        assert!(!window.awaits());
        assert_eq!(send_all(&mut window), [(0, true), (2, true), (3, false)]);
        // An acknowledgement that arrives before its message is sent again.
        window.rewind();
        window.acknowledge(0);
        assert_eq!(send_all(&mut window), [(2, true), (3, true)]);
    }

    #[test]
    fn a_refused_message_leaves_with_those_of_its_camera_that_are_not_on_their_way() {
        let mut window = Window::default();
        for (number, camera) in [(1, "door"), (2, "yard"), (3, "yard"), (4, "door"), (5, "yard"), (6, "door")] {
            window.push(message(number, camera));
        }
        for _ in 0..3 {
            window.next();
            window.sent();
        }
        window.acknowledge(1);
        let numbers = |taken: Vec<Arc<QueuedMessage>>| taken.iter().map(|message| message.number).collect::<Vec<_>>();
        assert_eq!((numbers(window.take_refused(2)), window.first_number()), (vec![2, 5], Some(3)));
        assert_eq!(send_all(&mut window), [(4, false), (6, false)]);
        assert_eq!(numbers(window.take_refused(3)), [3]);
        assert!(window.take_refused(3).is_empty() && window.take_refused(1).is_empty());
        // One is tried again.
        window.push(message(2, "yard"));
        assert_eq!((send_all(&mut window), window.first_number()), (vec![(2, false)], Some(2)));
        assert!(window.acknowledge(4) && window.acknowledge(2) && window.acknowledge(6) && window.len() == 0);
    }
}
