//! Decides whether the daemon may send systemd its watchdog message: only while no thread hangs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_system::heartbeat::Pulse;
use visiond_system::logging::events;
use visiond_telemetry::metrics::{Activity, CameraMetrics, LaneMetrics, LaneView, Phase, cameras_of};

/// How long opening a camera may take: each control of a USB camera that does not answer blocks for 5 s in the kernel.
const OPENING: Duration = Duration::from_secs(60);

/// Checks every thread twice as often as systemd expects a message, so that one late check does no harm.
#[derive(Debug)]
pub struct Watchdog {
    interval: Duration,
    due: Instant,
    /// Each lane at the last check.
    lanes: Vec<(Arc<LaneMetrics>, Activity, u64)>,
    /// Each camera's thread, and when it last made progress.
    cameras: Vec<(Arc<CameraMetrics>, Pulse, Instant)>,
}

impl Watchdog {
    /// Creates a watchdog for systemd's `timeout`. The first check is due at once.
    pub fn new(timeout: Duration) -> Self {
        Self { interval: timeout / 2, due: Instant::now(), lanes: Vec::new(), cameras: Vec::new() }
    }

    /// Returns when the next check is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Checks every lane and camera: `true` if each made progress since the last check, or is in a declared wait (for a frame,
    /// a pause, or a lossless sink).
    pub fn look(&mut self, now: Instant, views: &[LaneView]) -> bool {
        self.due = now + self.interval;
        let cameras = cameras_of(views);
        let (lanes, alive_lanes): (_, Vec<bool>) = views.iter().map(|view| self.lane(&view.lane)).unzip();
        let (cameras, alive_cameras): (_, Vec<bool>) =
            cameras.iter().map(|known| self.camera(known.camera, now)).unzip();
        (self.lanes, self.cameras) = (lanes, cameras);
        alive_lanes.into_iter().chain(alive_cameras).all(|alive| alive)
    }

    fn lane(&self, lane: &Arc<LaneMetrics>) -> ((Arc<LaneMetrics>, Activity, u64), bool) {
        let now = (lane.activity(), lane.runs.get() + lane.crop_runs.get());
        let before = self.lanes.iter().find(|(seen, ..)| Arc::ptr_eq(seen, lane)).map(|seen| (seen.1, seen.2));
        let hangs = now.0 == Activity::Looking && before == Some(now);
        if hangs {
            let (name, seconds) = (&lane.name, self.interval.as_secs_f64());
            log::error!(message_id = events::HANG, model:% = name; "model {name}: no progress for {seconds:.1} s");
        }
        ((Arc::clone(lane), now.0, now.1), !hangs)
    }

    fn camera(&self, camera: &Arc<CameraMetrics>, now: Instant) -> ((Arc<CameraMetrics>, Pulse, Instant), bool) {
        let (phase, pulse) = (camera.phase(), camera.beat.pulse());
        let before = self.cameras.iter().find(|(seen, ..)| Arc::ptr_eq(seen, camera));
        let since = before.filter(|(_, seen, _)| *seen == pulse).map_or(now, |(_, _, since)| *since);
        let stands = now.duration_since(since);
        let bound = if phase == Phase::Opening { OPENING } else { self.interval };
        let hangs = phase != Phase::Ended && !pulse.waits && stands >= bound;
        if hangs {
            let (name, phase, seconds) = (&camera.name, phase.name(), stands.as_secs_f64());
            log::error!(
                message_id = events::HANG, camera:% = name;
                "camera {name}: hangs while {phase}, no progress for {seconds:.1} s"
            );
        }
        ((Arc::clone(camera), pulse, since), !hangs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lane_that_looks_without_progress_is_no_sign_of_life() {
        let lane = Arc::new(LaneMetrics::new("m".into()));
        let lanes = [LaneView { lane: Arc::clone(&lane), cameras: Vec::new() }];
        let mut watchdog = Watchdog::new(Duration::from_secs(30));
        let now = Instant::now();
        assert!(watchdog.due() <= now);
        for waiting in [Activity::Idle, Activity::Publishing, Activity::Backoff, Activity::Ended] {
            lane.enter(waiting);
            assert!(watchdog.look(now, &lanes) && watchdog.look(now, &lanes), "{waiting:?}");
        }
        lane.enter(Activity::Looking);
        assert!(watchdog.look(now, &lanes), "it has only begun");
        lane.runs.add(1);
        assert!(watchdog.look(now, &lanes), "it made progress");
        assert!(!watchdog.look(now, &lanes), "it hangs");
        assert_eq!(watchdog.due(), now + Duration::from_secs(15));
        lane.runs.add(1);
        assert!(watchdog.look(now, &lanes), "it goes on");
    }

    #[test]
    fn a_camera_that_neither_waits_nor_goes_on_is_no_sign_of_life() {
        let camera = Arc::new(CameraMetrics::new("door".into()));
        let lane = Arc::new(LaneMetrics::new("m".into()));
        let lanes = [LaneView { lane, cameras: vec![Arc::clone(&camera)] }];
        let mut watchdog = Watchdog::new(Duration::from_secs(30));
        let start = Instant::now();
        let mut look = |seconds| watchdog.look(start + Duration::from_secs(seconds), &lanes);
        camera.enter(Phase::Streaming);
        let waiting = camera.beat.wait();
        assert!(look(0) && look(15) && look(300), "a wait has no end");
        drop(waiting);
        assert!(look(315), "it went on");
        assert!(!look(330), "it hangs in a call");
        camera.beat.step();
        assert!(look(345), "it goes on");
        assert!(!look(360));
        camera.beat.step();
        camera.enter(Phase::Opening);
        assert!(look(375) && look(390) && look(420), "opening takes longer");
        assert!(!look(435), "but not for ever");
        camera.enter(Phase::Ended);
        assert!(look(450), "a thread that has ended does not hang");
    }

    #[test]
    fn a_camera_that_comes_with_a_reload_is_not_mistaken_for_another() {
        let view = |camera: &Arc<CameraMetrics>| LaneView {
            lane: Arc::new(LaneMetrics::new("m".into())),
            cameras: vec![Arc::clone(camera)],
        };
        let (old, new) = (Arc::new(CameraMetrics::new("a".into())), Arc::new(CameraMetrics::new("b".into())));
        old.enter(Phase::Streaming);
        new.enter(Phase::Streaming);
        let mut watchdog = Watchdog::new(Duration::from_secs(30));
        let start = Instant::now();
        assert!(watchdog.look(start, &[view(&old)]));
        assert!(watchdog.look(start + Duration::from_secs(15), &[view(&new)]));
    }

    #[test]
    fn thirty_days_of_waits_and_slow_opens_are_signs_of_life_and_each_hang_is_noticed_once_it_lasts() {
        let camera = Arc::new(CameraMetrics::new("door".into()));
        let lane = Arc::new(LaneMetrics::new("m".into()));
        let lanes = [LaneView { lane: Arc::clone(&lane), cameras: vec![Arc::clone(&camera)] }];
        let mut watchdog = Watchdog::new(Duration::from_secs(30));
        let (start, mut hangs) = (Instant::now(), 0);
        for look in 0..30 * 5760_u32 {
            let now = start + Duration::from_secs(15) * look;
            let at = look % 5760;
            // Each day has an hour of waiting, an open that takes 45 s, and a camera and a lane that hang for a minute;
            // otherwise frames.
            let waiting = (at < 240).then(|| camera.beat.wait());
            camera.enter(if (1000..1004).contains(&at) { Phase::Opening } else { Phase::Streaming });
            if !(1001..1004).contains(&at) && !(2001..2005).contains(&at) && at >= 240 {
                camera.beat.step();
            }
            lane.enter(if at < 240 { Activity::Idle } else { Activity::Looking });
            if !(3001..3005).contains(&at) {
                lane.runs.add(1);
            }
            let hangs_now = (2001..2005).contains(&at) || (3001..3005).contains(&at);
            assert_eq!(watchdog.look(now, &lanes), !hangs_now, "{look} {at}");
            hangs += u32::from(hangs_now);
            assert_eq!((watchdog.due(), watchdog.cameras.len()), (now + Duration::from_secs(15), 1));
            drop(waiting);
        }
        assert_eq!(hangs, 30 * 8);
    }
}
