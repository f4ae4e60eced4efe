//! A camera, a GPU and a lane in simulated time, paced by the real pacer.

use super::*;

const MS: u64 = 1_000_000;
/// The time that beginning a run costs the host.
const LAUNCH_NS: u64 = 100_000;
/// The time that reading and publishing a run costs the host.
const PUBLISH_NS: u64 = 150_000;

/// A lane over one camera whose frame `n` comes at `n * interval_ns`, newest wins.
struct World {
    pacer: RunPacer,
    interval_ns: u64,
    now_ns: u64,
    /// Newest frame that was taken, counted from 1.
    taken: u64,
    /// Of each run under way: when its frame was captured, and when it starts and ends on the GPU.
    in_flight: Vec<[u64; 3]>,
    gpu_free_ns: u64,
    gpu_busy_ns: u64,
    /// Ages at the end.
    ages_ns: Vec<u64>,
}

impl World {
    fn new(interval_ns: u64) -> Self {
        let pacer = RunPacer::new(2, false);
        let (taken, in_flight, ages_ns) = (0, Vec::new(), Vec::new());
        Self { pacer, interval_ns, now_ns: 0, taken, in_flight, gpu_free_ns: 0, gpu_busy_ns: 0, ages_ns }
    }

    fn newest(&self) -> u64 {
        self.now_ns / self.interval_ns
    }

    /// Takes one turn of the lane's loop; `run_ns`: the duration of the next run.
    fn turn(&mut self, run_ns: u64) {
        match self.pacer.step(self.now_ns, self.in_flight.len()) {
            NextAction::WaitForFrame => {
                if self.newest() == self.taken {
                    self.now_ns = (self.taken + 1) * self.interval_ns;
                }
                self.begin(run_ns);
            }
            NextAction::BeginAt { at_ns } => {
                self.now_ns = self.now_ns.max(at_ns);
                if self.newest() > self.taken {
                    self.begin(run_ns);
                } else {
                    self.pacer.nothing_waits();
                    self.land();
                }
            }
            NextAction::Finish => self.land(),
        }
    }

    fn begin(&mut self, run_ns: u64) {
        let begun_ns = self.now_ns;
        self.taken = self.newest();
        // The preprocess, a twentieth of the inference, goes on beside the run before.
        let loaded_ns = self.now_ns + LAUNCH_NS + run_ns / 20;
        let start_ns = self.gpu_free_ns.max(loaded_ns);
        self.gpu_free_ns = start_ns + run_ns;
        self.gpu_busy_ns += run_ns;
        self.in_flight.push([self.taken * self.interval_ns, start_ns, self.gpu_free_ns]);
        self.pacer.begun(begun_ns, 1);
        // It returns when the frame was read.
        self.now_ns = loaded_ns;
    }

    fn land(&mut self) {
        let [captured_ns, start_ns, end_ns] = self.in_flight.remove(0);
        self.now_ns = self.now_ns.max(end_ns);
        let waits = self.newest() > self.taken;
        let infer_us = (end_ns - start_ns) / 1_000;
        let timings = RunTimings { launch_us: LAUNCH_NS / 1_000, preprocess_us: infer_us / 20, infer_us };
        self.pacer.finished(self.now_ns, self.in_flight.len(), 1, &timings, waits);
        self.now_ns += PUBLISH_NS;
        self.ages_ns.push(self.now_ns - captured_ns);
    }

    /// 400 turns, after the first 40 have taught the pacer; returns the greatest age and the GPU's load.
    fn run(&mut self, run_ns: impl Fn(u64) -> u64) -> (u64, f64) {
        (0..40).for_each(|n| self.turn(run_ns(n)));
        let (began_ns, busy_ns) = (self.now_ns, self.gpu_busy_ns);
        self.ages_ns.clear();
        (40..440).for_each(|n| self.turn(run_ns(n)));
        let busy = (self.gpu_busy_ns - busy_ns) as f64 / (self.now_ns - began_ns) as f64;
        (self.ages_ns.iter().copied().max().unwrap_or(0), busy)
    }
}

/// Within a hundredth or so, as a GPU's runs of one model are.
fn steady(run_ns: u64) -> impl Fn(u64) -> u64 {
    move |n| run_ns + run_ns * (n * 7 % 5) / 400
}

#[test]
fn a_gpu_that_is_slower_than_its_camera_is_kept_busy_and_frames_do_not_grow_old() {
    for (interval_ns, run_ns) in [(33 * MS, 50 * MS), (33 * MS, 34 * MS), (16 * MS, 120 * MS), (5 * MS, 7 * MS)] {
        let (age_ns, busy) = World::new(interval_ns).run(steady(run_ns));
        assert!(age_ns <= run_ns * 107 / 100 + 2 * interval_ns, "{interval_ns} {run_ns}: {age_ns}");
        assert!(busy > 0.97, "{interval_ns} {run_ns}: {busy}");
    }
}

#[test]
fn a_gpu_that_keeps_up_is_given_each_frame_at_once() {
    for (interval_ns, run_ns) in [(33 * MS, 10 * MS), (33 * MS, 31 * MS), (16 * MS, MS)] {
        let mut world = World::new(interval_ns);
        let (age_ns, _) = world.run(steady(run_ns));
        assert!(age_ns <= run_ns * 107 / 100 + LAUNCH_NS + PUBLISH_NS + MS / 2, "{interval_ns} {run_ns}: {age_ns}");
    }
}

#[test]
fn run_times_that_vary_cost_some_of_the_gpu_and_not_the_frames_age() {
    let run_ns = |n: u64| 40 * MS + n * 7919 % 20 * MS;
    let (age_ns, busy) = World::new(33 * MS).run(run_ns);
    assert!(age_ns <= 60 * MS + 2 * 33 * MS, "{age_ns}");
    assert!(busy > 0.95, "{busy}");
}

#[test]
fn the_next_run_begins_a_lead_before_the_expected_end() {
    let mut pacer = RunPacer::new(2, false);
    let timings = |infer_us| RunTimings { launch_us: 10, preprocess_us: 90, infer_us };
    pacer.begun(0, 1);
    assert_eq!(pacer.step(0, 1), NextAction::Finish, "nothing is known of its time");
    pacer.finished(9 * MS, 0, 1, &timings(8_000), true);
    assert_eq!(pacer.step(9 * MS, 0), NextAction::WaitForFrame);
    pacer.begun(10 * MS, 1);
    // 100 us to load it, and 8 ms less twice an eighth; to load the next 100 us and twice an eighth, and 300 us for waking up.
    let at_ns = 10 * MS + 100_000 + 6 * MS - (125_000 + 300_000);
    assert_eq!(pacer.step(10 * MS, 1), NextAction::BeginAt { at_ns });
    assert_eq!(pacer.step(20 * MS, 1), NextAction::BeginAt { at_ns: 20 * MS }, "not in the past");
    pacer.begun(11 * MS, 1);
    assert_eq!(pacer.step(11 * MS, 2), NextAction::Finish, "no more fit");
    // The second starts when the first has ended: the mean of its time is now 9 ms, the deviation 1.875 ms, that of loading 7/8.
    pacer.finished(20 * MS, 1, 1, &timings(16_000), false);
    let at_ns = 20 * MS + 5_250_000 - (121_875 + 300_000);
    assert_eq!(pacer.step(20 * MS, 1), NextAction::BeginAt { at_ns });
    pacer.begun(20 * MS, 1);
    let at_ns = 20 * MS + 2 * 5_250_000 - (121_875 + 300_000);
    assert_eq!(pacer.step(20 * MS, 1), NextAction::BeginAt { at_ns }, "it waits for the one before it");
    pacer.nothing_waits();
    assert_eq!(pacer.step(20 * MS, 1), NextAction::Finish, "the lane keeps up");
}

#[test]
fn frames_that_must_not_be_lost_are_begun_as_they_come() {
    let mut pacer = RunPacer::new(2, true);
    assert_eq!(pacer.step(7, 0), NextAction::WaitForFrame);
    pacer.begun(7, 1);
    assert_eq!(pacer.step(8, 1), NextAction::BeginAt { at_ns: 8 });
    pacer.begun(8, 1);
    assert_eq!(pacer.step(9, 2), NextAction::Finish);
}

#[test]
fn one_flight_alone_is_waited_for() {
    let mut pacer = RunPacer::new(1, true);
    pacer.begun(0, 1);
    assert_eq!(pacer.step(0, 1), NextAction::Finish);
}

#[test]
fn runs_of_other_sizes_are_not_guessed_from_each_other() {
    let mut pacer = RunPacer::new(2, false);
    let timings = RunTimings { launch_us: 10, preprocess_us: 100, infer_us: 9_900 };
    for _ in 0..50 {
        pacer.begun(0, 1);
        pacer.finished(10 * MS, 0, 1, &timings, true);
    }
    pacer.begun(0, 4);
    assert_eq!(pacer.step(0, 1), NextAction::Finish, "four frames were never timed");
    pacer.begun(100 * MS, 1);
    let NextAction::BeginAt { at_ns } = pacer.step(100 * MS, 1) else { panic!("one frame was") };
    assert!((109 * MS..110 * MS).contains(&at_ns), "{at_ns}");
    pacer.lost();
    assert_eq!(pacer.step(100 * MS, 1), NextAction::Finish);
}
