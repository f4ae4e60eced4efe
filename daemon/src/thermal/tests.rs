#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use super::*;

/// A Jetson's files: `content` by path below the root.
fn jetson(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "sys/firmware/devicetree/base/compatible", "nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0");
    files.iter().for_each(|(path, content)| put(root.path(), path, content));
    root
}

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// An Orin Nano with JetPack 6, as far as it matters here.
const ORIN: &[(&str, &str)] = &[
    ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
    ("sys/class/thermal/thermal_zone0/temp", "51406\n"),
    ("sys/class/thermal/thermal_zone1/type", "gpu-thermal\n"),
    ("sys/class/thermal/thermal_zone1/temp", "52250\n"),
    // Its part of the chip is off: EAGAIN there, no number here.
    ("sys/class/thermal/thermal_zone2/type", "cv0-thermal\n"),
    ("sys/class/thermal/thermal_zone2/temp", "\n"),
    ("sys/class/thermal/thermal_zone10/type", "tj-thermal\n"),
    ("sys/class/thermal/thermal_zone10/temp", "52468\n"),
    ("sys/class/thermal/cooling_device0/type", "gpu-throttle-alert\n"),
    ("sys/class/thermal/cooling_device0/cur_state", "0\n"),
    ("sys/class/thermal/cooling_device1/type", "pwm-fan\n"),
    ("sys/class/thermal/cooling_device1/cur_state", "3\n"),
    ("sys/class/thermal/cooling_device2/type", "cpufreq-cpu0\n"),
    ("sys/class/thermal/cooling_device2/cur_state", "0\n"),
    ("sys/class/hwmon/hwmon2/name", "soctherm_oc\n"),
    ("sys/class/hwmon/hwmon2/oc1_event_cnt", "7\n"),
    ("sys/class/hwmon/hwmon2/oc1_throt_en", "1\n"),
    ("sys/class/hwmon/hwmon2/oc2_event_cnt", "0\n"),
    ("sys/class/hwmon/hwmon2/oc2_throt_en", "0\n"),
    ("sys/class/devfreq/17000000.gpu/device/load", "453\n"),
    ("sys/class/devfreq/15340000.vic/device/load", "990\n"),
    ("var/lib/nvpmodel/status", "pmode:0001 fmode:cool\n"),
    (
        "etc/nvpmodel.conf",
        "# < POWER_MODEL ID=1 NAME=COMMENT >\n< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n\
         < POWER_MODEL ID=1 NAME=MAXN_SUPER >\n",
    ),
];

fn seen(root: &Path, now: Instant) -> (Files, Seen) {
    let files = Files::find(root).unwrap();
    let seen = Seen::new(files.look(), now);
    (files, seen)
}

#[test]
fn what_is_no_jetson_is_not_watched() {
    let root = tempfile::tempdir().unwrap();
    assert!(Files::find(root.path()).is_none());
    put(root.path(), "sys/firmware/devicetree/base/compatible", "raspberrypi,4-model-b\0brcm,bcm2711\0");
    assert!(Files::find(root.path()).is_none());
}

#[test]
fn a_jetson_tells_temperatures_power_mode_and_the_gpus_load() {
    let root = jetson(ORIN);
    let (_, seen) = seen(root.path(), Instant::now());
    assert_eq!(seen.short(), "tj 52 °C, MAXN_SUPER, GPU 45 %");
    assert_eq!(seen.line(), "Jetson: cpu 51 °C, gpu 52 °C, tj 52 °C; power mode MAXN_SUPER, GPU 45 % busy");
}

#[test]
fn the_names_of_jetpack_5_are_read_too_and_a_fixed_sensor_is_left_out() {
    let root = jetson(&[
        ("sys/class/thermal/thermal_zone0/type", "CPU-therm\n"),
        ("sys/class/thermal/thermal_zone0/temp", "45500\n"),
        ("sys/class/thermal/thermal_zone1/type", "PMIC-Die\n"),
        ("sys/class/thermal/thermal_zone1/temp", "100000\n"),
        ("sys/class/thermal/thermal_zone2/type", "GPU-therm\n"),
        ("sys/class/thermal/thermal_zone2/temp", "-256000\n"),
        ("sys/class/devfreq/17000000.ga10b/device/load", "0\n"),
        ("var/lib/nvpmodel/status", "pmode:0003"),
    ]);
    let (_, seen) = seen(root.path(), Instant::now());
    assert_eq!(seen.short(), "cpu 46 °C, mode 3, GPU 0 %");
}

#[test]
fn heat_is_told_once_with_a_remedy_and_once_when_it_is_over() {
    let root = jetson(ORIN);
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let (files, mut seen) = seen(root.path(), began);
    assert_eq!(seen.take(files.look(), at(5)), None);
    put(root.path(), "sys/class/thermal/cooling_device0/cur_state", "1\n");
    put(root.path(), "sys/class/thermal/thermal_zone1/temp", "99200\n");
    let Some(Change::Throttled(why)) = seen.take(files.look(), at(10)) else { panic!("not told") };
    assert_eq!(
        why,
        "the Jetson is throttled by heat (gpu; gpu at 99 °C): networks run slower. \
         Cool it better (fan, heat sink, air), or choose a lower power mode: nvpmodel -m"
    );
    assert_eq!(seen.short(), "gpu 99 °C, MAXN_SUPER, GPU 45 %, throttled");
    // It comes and goes: one line for all of it.
    for second in (15..100).step_by(5) {
        put(root.path(), "sys/class/thermal/cooling_device0/cur_state", if second % 2 == 0 { "0\n" } else { "1\n" });
        assert_eq!(seen.take(files.look(), at(second)), None, "at {second} s");
    }
    put(root.path(), "sys/class/thermal/cooling_device0/cur_state", "0\n");
    assert_eq!(seen.take(files.look(), at(154)), None);
    let over = "the Jetson is no longer throttled; it was for 90 s".to_owned();
    assert_eq!(seen.take(files.look(), at(155)), Some(Change::Over(over)));
    let summary = seen.summary(at(160));
    assert_eq!((summary.throttled, summary.throttled_seconds), (1, 90.0));
    assert_eq!(
        summary.line(),
        "Jetson: at most 99 °C (gpu), power mode MAXN_SUPER, GPU 45 % busy, throttled once, for 90 s"
    );
}

#[test]
fn an_alarm_of_the_supply_counts_from_the_start_on_and_only_if_it_throttles() {
    let root = jetson(ORIN);
    let began = Instant::now();
    let (files, mut seen) = seen(root.path(), began);
    put(root.path(), "sys/class/hwmon/hwmon2/oc2_event_cnt", "9\n");
    assert_eq!(seen.take(files.look(), began), None, "oc2 throttles nothing");
    put(root.path(), "sys/class/hwmon/hwmon2/oc1_event_cnt", "8\n");
    let Some(Change::Throttled(why)) = seen.take(files.look(), began) else { panic!("not told") };
    assert!(why.starts_with("the Jetson is throttled by its supply (oc1: "), "{why}");
    assert!(why.ends_with("Give it a stronger supply or a shorter cable, or choose a lower power mode: nvpmodel -m"));
}

#[test]
fn a_jetson_that_is_throttled_at_the_start_has_it_counted() {
    let root = jetson(ORIN);
    put(root.path(), "sys/class/thermal/cooling_device2/cur_state", "2\n");
    let (_, seen) = seen(root.path(), Instant::now());
    assert_eq!(seen.throttled, 1);
    assert_eq!(seen.look.cooled, ["cpufreq-cpu0"]);
}
