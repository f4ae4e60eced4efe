//! Temperatures before and under load, and throttling by heat or by the power supply.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use visiond_kernels::cuda::Device;
use visiond_system::board;
use visiond_system::thermal::{Files, Look, new_alarms};

use super::checks::AreaTest;
use super::gpu;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Loads every core and the GPU, if there is one, for `time`.
pub fn run(test: &mut AreaTest, time: Duration) {
    let mut files = Files::search(&board::root());
    let before = files.look();
    if before.temperatures.is_empty() {
        return test.skip("temperatures", "there is no thermal zone in /sys/class/thermal");
    }
    let began = Instant::now();
    let until = began + time;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut looks = Vec::new();
    let (core_runs, gpu_runs) = thread::scope(|scope| {
        let cores: Vec<_> = (0..cores).map(|_| scope.spawn(|| gpu::load_core(until))).collect();
        let on_gpu = Device::count().is_ok_and(|count| count > 0).then(|| scope.spawn(|| gpu::load(until)));
        while Instant::now() < until {
            thread::sleep(INTERVAL.min(until.saturating_duration_since(Instant::now())));
            looks.push(files.look());
            test.say(&format!("{} of {} s under load", began.elapsed().as_secs(), time.as_secs()));
        }
        // The panic hook has already reported the panicked thread.
        let core_runs: Vec<_> = cores.into_iter().filter_map(|core| core.join().ok()).collect();
        (core_runs, on_gpu.and_then(|thread| thread.join().ok()))
    });
    let seconds = time.as_secs_f64();
    let per_s = core_runs.iter().flatten().sum::<u64>() as f64 / seconds;
    let on_gpu = match &gpu_runs {
        None => "no GPU".to_owned(),
        Some(Ok(runs)) => format!("{:.0} on the GPU", *runs as f64 / seconds),
        Some(Err(error)) => format!("the GPU failed: {error}"),
    };
    let seen = format!("{seconds} s: {per_s:.0} frames/s preprocessed on {cores} cores, {on_gpu}");
    let passed = core_runs.iter().chain(&gpu_runs).all(Result::is_ok);
    test.verdict("load", "every frame preprocessed", seen, passed);
    test.figures([("frames_per_s", per_s)]);
    report(test, &before, &looks);
}

/// Adds the rows about the readings before and during the load.
fn report(test: &mut AreaTest, before: &Look, looks: &[Look]) {
    for (zone, idle) in &before.temperatures {
        let readings = looks.iter().flat_map(|look| &look.temperatures).filter(|(other, _)| other == zone);
        let loaded = readings.map(|(_, degrees)| *degrees).reduce(f64::max).unwrap_or(*idle);
        test.info(format!("zone {zone}"), format!("{idle:.0} °C before, at most {loaded:.0} °C under load"));
        test.figures([("before_c", *idle), ("loaded_c", loaded)]);
    }
    if let Some(mode) = &before.power_mode {
        test.info("power mode", mode);
    }
    let mut signs: BTreeSet<String> = looks.iter().flat_map(|look| look.cooled.clone()).collect();
    signs.extend(looks.last().map(|last| new_alarms(&before.alarms, &last.alarms)).into_iter().flatten());
    let throttled = format!("throttled: {}", signs.iter().cloned().collect::<Vec<_>>().join(", "));
    let seen = if signs.is_empty() { "not throttled" } else { &throttled };
    test.verdict("throttling", "none by heat or supply", seen, signs.is_empty());
}

#[cfg(test)]
mod tests {
    use super::super::checks::{Area, Outcome};
    use super::*;

    fn look(cpu: f64, cooled: &[&str], alarms: u64) -> Look {
        Look {
            temperatures: vec![("cpu".to_owned(), cpu)],
            cooled: cooled.iter().map(|name| (*name).to_owned()).collect(),
            alarms: vec![("oc3".to_owned(), alarms)],
            ..Look::default()
        }
    }

    fn rows(before: &Look, looks: &[Look]) -> Vec<String> {
        let mut test = AreaTest::new(Area::Heat, true, Instant::now());
        report(&mut test, before, looks);
        let passed = test.rows.last().map(|row| row.outcome == Outcome::Pass);
        let mut lines: Vec<_> = test.rows.iter().map(|row| format!("{}: {}", row.check, row.seen)).collect();
        lines.push(format!("{passed:?}"));
        lines
    }

    #[test]
    fn a_zone_is_shown_before_the_load_and_at_its_hottest() {
        let cool = rows(&look(40.2, &[], 3), &[look(55.0, &[], 3), look(71.6, &[], 3), look(70.0, &[], 3)]);
        assert_eq!(
            cool,
            ["zone cpu: 40 °C before, at most 72 °C under load", "throttling: not throttled", "Some(true)"]
        );
    }

    #[test]
    fn throttling_by_heat_or_supply_fails() {
        let hot = rows(&look(40.0, &[], 3), &[look(95.0, &["cpu", "gpu"], 3), look(96.0, &["gpu"], 4)]);
        assert_eq!(hot[1..], ["throttling: throttled: cpu, gpu, oc3", "Some(false)"]);
    }
}
