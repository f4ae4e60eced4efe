//! The messages in flight: sent, or next to be sent, and not yet acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;

use super::QueuedMessage;

#[derive(Debug, Default)]
pub struct Window {
    /// Numbers rise. The first is never acknowledged.
    entries: VecDeque<InFlight>,
    /// Entries before this one were sent over the current connection.
    next: usize,
}

#[derive(Debug)]
struct InFlight {
    message: Arc<QueuedMessage>,
    acknowledged: bool,
    /// Sent before, over this connection or an earlier one.
    sent: bool,
}

impl Window {
    pub fn push(&mut self, message: QueuedMessage) {
        debug_assert!(self.entries.back().is_none_or(|last| last.message.number < message.number));
        self.entries.push_back(InFlight { message: Arc::new(message), acknowledged: false, sent: false });
    }

    /// Returns the number of entries, including those that were acknowledged out of turn.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn outstanding(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.acknowledged).count()
    }

    /// Whether a message that was sent over this connection is unacknowledged.
    pub fn awaits(&self) -> bool {
        self.next > 0
    }

    /// Starts over on a new connection: every unacknowledged message is sent again.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    pub fn next(&mut self) -> Option<Arc<QueuedMessage>> {
        while self.entries.get(self.next).is_some_and(|entry| entry.acknowledged) {
            self.next += 1;
        }
        self.entries.get(self.next).map(|entry| Arc::clone(&entry.message))
    }

    /// Marks the message from [`Window::next`] as sent; returns whether it had been sent before.
    pub fn sent(&mut self) -> bool {
        let Some(entry) = self.entries.get_mut(self.next) else { return false };
        self.next += 1;
        std::mem::replace(&mut entry.sent, true)
    }

    /// Acknowledges the message of this number; returns `None` if it was acknowledged before or is unknown, otherwise the number
    /// up to which everything is acknowledged now, if that number has risen.
    pub fn acknowledge(&mut self, number: u64) -> Option<Option<u64>> {
        let at = self.entries.binary_search_by_key(&number, |entry| entry.message.number).ok()?;
        let entry = self.entries.get_mut(at)?;
        if std::mem::replace(&mut entry.acknowledged, true) {
            return None;
        }
        let mut through = None;
        while let Some(first) = self.entries.front().filter(|first| first.acknowledged) {
            through = Some(first.message.number);
            self.entries.pop_front();
            self.next = self.next.saturating_sub(1);
        }
        Some(through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(numbers: std::ops::Range<u64>) -> Window {
        let mut window = Window::default();
        for number in numbers {
            window.push(QueuedMessage { number, id: "".into(), camera: "".into(), line: Default::default() });
        }
        window
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
        assert_eq!(window.acknowledge(12), Some(None));
        assert_eq!(window.acknowledge(12), None);
        assert_eq!(window.acknowledge(11), Some(None));
        assert_eq!((window.len(), window.outstanding()), (4, 2));
        assert_eq!(window.acknowledge(10), Some(Some(12)));
        assert_eq!(window.acknowledge(10), None);
        assert_eq!(window.acknowledge(99), None);
        assert!(window.awaits());
        assert_eq!(window.acknowledge(13), Some(Some(13)));
        assert!(window.len() == 0 && !window.awaits());
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
        assert_eq!(send_all(&mut window), [(0, true), (2, true), (3, false)]);
        // An acknowledgement that arrives before its message is sent again.
        window.rewind();
        window.acknowledge(0);
        assert_eq!(send_all(&mut window), [(2, true), (3, true)]);
    }
}
