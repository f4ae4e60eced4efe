//! Implements `max_rate`: limits the messages per second of each camera and model, and sends the newest one of each interval.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_message::Published;

#[derive(Debug)]
pub struct CameraRateLimit {
    interval: Duration,
    cameras: Vec<LimitedCamera>,
}

#[derive(Debug)]
struct LimitedCamera {
    topic: Arc<str>,
    /// When the next message is due.
    turn: Instant,
    /// The newest message that waits for its interval.
    held: Option<Arc<Published>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Offered {
    /// The message goes out now; otherwise it waits for its camera's interval.
    pub passes: bool,
    /// The message replaces an older waiting one, which is skipped.
    pub replaces: bool,
}

impl CameraRateLimit {
    pub fn new(rate: f64) -> Self {
        Self { interval: Duration::from_secs_f64(1.0 / rate), cameras: Vec::new() }
    }

    /// Changes the rate; waiting messages keep waiting.
    pub fn set_rate(&mut self, rate: f64) {
        self.interval = Duration::from_secs_f64(1.0 / rate);
    }

    /// Takes a message that arrives `now`.
    ///
    /// A message may come half an interval early, so that a camera whose rate equals the limit loses nothing to jitter. The
    /// following interval is that much longer.
    pub fn offer(&mut self, message: &Arc<Published>, now: Instant) -> Offered {
        let topic = message.topic();
        let Some(camera) = self.cameras.iter_mut().find(|camera| camera.topic == *topic) else {
            self.cameras.push(LimitedCamera { topic: Arc::clone(topic), turn: now + self.interval, held: None });
            return Offered { passes: true, replaces: false };
        };
        let passes = now + self.interval / 2 >= camera.turn;
        if passes {
            camera.turn = camera.turn.max(now) + self.interval;
            return Offered { passes, replaces: camera.held.take().is_some() };
        }
        Offered { passes, replaces: camera.held.replace(Arc::clone(message)).is_some() }
    }

    /// Returns a message that is due `now` and was not replaced by a newer one.
    pub fn due(&mut self, now: Instant) -> Option<Arc<Published>> {
        let camera = self.cameras.iter_mut().find(|camera| camera.held.is_some() && camera.turn <= now)?;
        camera.turn = now + self.interval;
        camera.held.take()
    }

    /// Returns when the next waiting message is due.
    pub fn next_turn(&self) -> Option<Instant> {
        self.cameras.iter().filter(|camera| camera.held.is_some()).map(|camera| camera.turn).min()
    }

    /// Takes all waiting messages at shutdown.
    pub fn rest(&mut self) -> impl Iterator<Item = Arc<Published>> {
        self.cameras.iter_mut().filter_map(|camera| camera.held.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_message::testing::door_message as message;

    const MS: Duration = Duration::from_millis(1);

    /// Returns which frames, taken at these milliseconds, are sent and when, and how many were replaced.
    fn thinned(rate: f64, frames: impl IntoIterator<Item = u32>) -> (Vec<(u32, u64)>, u64) {
        let start = Instant::now();
        let mut rate_limit = CameraRateLimit::new(rate);
        let mut frames = frames.into_iter().enumerate().peekable();
        let (mut out, mut replaced) = (Vec::new(), 0);
        for at in 0..5000 {
            let now = start + MS * at;
            while let Some((number, _)) = frames.next_if(|(_, frame)| *frame == at) {
                let offered = rate_limit.offer(&Arc::new(Published::new(message(number as u64, 0))), now);
                replaced += u64::from(offered.replaces);
                if offered.passes {
                    out.push((at, number as u64));
                }
            }
            while let Some(due) = rate_limit.due(now) {
                out.push((at, due.sequence()));
            }
        }
        assert_eq!(rate_limit.next_turn(), None);
        (out, replaced)
    }

    #[test]
    fn a_faster_camera_is_thinned_to_the_rate_by_its_newest_messages() {
        let (out, replaced) = thinned(2.0, (0..4000).step_by(40));
        assert!((8..=10).contains(&out.len()), "{out:?}");
        assert_eq!(out.len() as u64 + replaced, 100);
        assert!(out.iter().all(|(at, number)| u64::from(*at) - number * 40 < 750), "{out:?}");
        assert_eq!(out.last().map(|(_, number)| *number), Some(99), "the last one is not left out");
        assert!(out.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }

    #[test]
    fn a_camera_of_that_rate_loses_nothing_by_unevenness() {
        let uneven: Vec<_> = (0..100_u32).map(|n| n * 40 + [0, 9, 3, 14][n as usize % 4]).collect();
        let (out, replaced) = thinned(25.0, uneven.iter().copied());
        let at_once: Vec<_> = uneven.into_iter().zip(0..).collect();
        assert_eq!((out, replaced), (at_once, 0), "none waits");
    }

    #[test]
    fn thirty_days_are_thinned_to_the_rate_and_every_message_is_counted() {
        let (mut rate_limit, start) = (CameraRateLimit::new(0.5), Instant::now());
        let (door, gate) = (message(0, 0), visiond_message::testing::message("gate", &[]));
        let cameras = [door, Arc::new(gate)].map(|message| Arc::new(Published::new(message)));
        let (mut offered, mut out, mut replaced) = (0_u64, 0, 0);
        // Two cameras with a message per second each, of which every second one is due; each day has an hour without a
        // camera.
        for second in 0..30 * 86_400_u32 {
            let now = start + Duration::from_secs(1) * second;
            for camera in cameras.iter().filter(|_| second % 86_400 >= 3600) {
                let taken = rate_limit.offer(camera, now);
                offered += 1;
                out += u64::from(taken.passes);
                replaced += u64::from(taken.replaces);
            }
            out += std::iter::from_fn(|| rate_limit.due(now)).count() as u64;
            assert!(rate_limit.next_turn().is_none_or(|turn| turn > now && turn <= now + 4 * Duration::from_secs(1)));
        }
        let held = rate_limit.rest().count() as u64;
        assert_eq!((offered, out + replaced + held), (2 * 30 * 82_800, offered));
        let wanted = 30 * 82_800;
        assert!((wanted - 60..=wanted + 60).contains(&out), "{out} of {wanted}");
        assert_eq!(rate_limit.cameras.len(), 2);
    }

    #[test]
    fn what_comes_last_in_a_burst_goes_out_when_its_turn_comes() {
        let (out, replaced) = thinned(1.0, [100, 120, 140, 160]);
        assert_eq!((out, replaced), (vec![(100, 0), (1100, 3)], 2));
    }
}
