#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use super::*;
use crate::board::Board;

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

/// The files of an Orin Nano with JetPack 6 that matter here.
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

fn seen(root: &Path, now: Instant) -> (Files, Readings) {
    let mut files = Files::find(root).unwrap();
    let seen = Readings::new(true, files.look(), now);
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

/// The facts that visiond finds on a board of tests/boards.
struct ExpectedBoard {
    folder: &'static str,
    board: &'static str,
    release: &'static str,
    /// In degrees Celsius, by zone; those that cannot be read are left out.
    zones: &'static [(&'static str, f64)],
    hottest: &'static str,
    power_mode: &'static str,
    gpu_load: GpuLoad,
    /// Alarms of the supply since the boot.
    alarms: &'static [(&'static str, u64)],
    /// Cooling devices that count as throttling.
    slowed: &'static str,
}

const NO_ALARMS: &[(&str, u64)] = &[("oc1", 0), ("oc2", 0), ("oc3", 0)];

const BOARDS: &[ExpectedBoard] = &[
    ExpectedBoard {
        folder: "agx-orin-35.4.1",
        board: "Jetson AGX Orin Developer Kit",
        release: "JetPack 5.1.2 (L4T 35.4.1)",
        zones: &[
            ("cpu", 42.593),
            ("soc0", 39.375),
            ("soc1", 40.468),
            ("soc2", 39.343),
            ("tj", 42.593),
            ("tboard_tegra", 32.0),
            ("tdiode_tegra", 33.25),
        ],
        hottest: "tj",
        power_mode: "MAXN",
        gpu_load: GpuLoad::Percent(0.0),
        alarms: NO_ALARMS,
        slowed: "cpufreq-0 cpufreq-1 cpufreq-2 cpu gpu cv0 cv1 cv2 soc0 soc1 soc2 devfreq-0",
    },
    ExpectedBoard {
        folder: "agx-orin-36.4.4",
        board: "NVIDIA Jetson AGX Orin Developer Kit",
        release: "JetPack 6.2.1 (L4T 36.4.4)",
        zones: &[("cpu", 52.562), ("soc0", 49.093), ("soc1", 49.656), ("soc2", 48.437), ("tj", 52.562)],
        hottest: "tj",
        power_mode: "MAXN",
        gpu_load: GpuLoad::Percent(0.0),
        alarms: NO_ALARMS,
        slowed: "cpufreq-cpu0 cpufreq-cpu4 cpufreq-cpu8 cpu gpu cv0 cv1 cv2 soc0 soc1 soc2 devfreq-17000000.gpu",
    },
    ExpectedBoard {
        folder: "orin-nano-36.4.3",
        board: "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        release: "JetPack 6.2 (L4T 36.4.3)",
        zones: &[("cpu", 53.968), ("gpu", 53.343), ("soc0", 50.75), ("soc1", 51.656), ("soc2", 52.437), ("tj", 53.968)],
        hottest: "tj",
        power_mode: "25W",
        gpu_load: GpuLoad::Percent(63.0),
        alarms: &[("oc1", 0), ("oc2", 15), ("oc3", 37)],
        slowed: "cpufreq-cpu0 cpufreq-cpu4 cpu gpu cv0 cv1 cv2 soc0 soc1 soc2 devfreq-17000000.gpu",
    },
    ExpectedBoard {
        folder: "orin-nano-39.2.0",
        board: "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        release: "JetPack 7.2 (L4T 39.2.0)",
        zones: &[("cpu", 51.218), ("soc0", 50.125), ("soc1", 50.343), ("soc2", 51.093), ("tj", 51.718)],
        hottest: "tj",
        power_mode: "MAXN_SUPER",
        gpu_load: GpuLoad::Off,
        alarms: NO_ALARMS,
        slowed: "cpufreq-cpu0 cpufreq-cpu4 cpu gpu cv0 cv1 cv2 soc0 soc1 soc2",
    },
    ExpectedBoard {
        folder: "thor-38.4.0",
        board: "NVIDIA Jetson AGX Thor Developer Kit",
        release: "JetPack 7.1 (L4T 38.4.0)",
        zones: &[("cpu", 53.7), ("soc012", 55.1), ("soc345", 53.7), ("tj", 55.1)],
        hottest: "tj",
        power_mode: "MAXN",
        gpu_load: GpuLoad::Unreported,
        alarms: &[("oc1", 0), ("oc2", 0), ("oc3", 179)],
        slowed: "cpufreq-cpu0 cpufreq-cpu2 cpufreq-cpu4 cpufreq-cpu6 cpufreq-cpu8 cpufreq-cpu10 cpufreq-cpu12 \
                 cpu gpu soc012 soc345 devfreq-gpu-gpc-0 devfreq-gpu-nvd-0",
    },
    ExpectedBoard {
        folder: "xavier-nx-35.4.1",
        board: "NVIDIA Jetson Xavier NX Developer Kit",
        release: "JetPack 5.1.2 (L4T 35.4.1)",
        // The power controller's PMIC-Die always reports 100 °C.
        zones: &[("cpu", 33.0), ("gpu", 31.5), ("aux", 31.5), ("ao", 31.0)],
        hottest: "cpu",
        power_mode: "MODE_20W_6CORE",
        gpu_load: GpuLoad::Percent(0.0),
        alarms: &[("oc1", 0), ("oc2", 0), ("oc3", 0), ("oc4", 0), ("oc5", 0), ("oc6", 0)],
        slowed: "cpufreq-0 cpufreq-1 cpufreq-2 cpu gpu aux devfreq-0",
    },
];

fn boards() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards")
}

/// A copy of a board's files that may be changed.
fn copy(board: &str) -> tempfile::TempDir {
    fn copy_folder(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).unwrap() {
            let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
            if from.is_dir() {
                fs::create_dir_all(&to).unwrap();
                copy_folder(&from, &to);
            } else {
                fs::copy(from, to).unwrap();
            }
        }
    }
    let root = tempfile::tempdir().unwrap();
    copy_folder(&boards().join(board), root.path());
    root
}

#[test]
fn every_board_is_read_as_it_says() {
    let mut folders: Vec<_> = fs::read_dir(boards()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    let known: Vec<_> = BOARDS.iter().map(|board| boards().join(board.folder)).collect();
    assert_eq!(folders, known, "a board has no row in BOARDS, or a row no board");
    let pairs = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    for ExpectedBoard { folder, board, release, zones, hottest, power_mode, gpu_load, alarms, slowed } in BOARDS {
        let root = boards().join(folder);
        let there = Board::read(&root);
        assert_eq!((there.name.as_deref(), there.release().as_deref()), (Some(*board), Some(*release)), "{folder}");
        let (_, seen) = seen(&root, Instant::now());
        let zones: Vec<_> = zones.iter().map(|(name, degrees)| ((*name).to_owned(), *degrees)).collect();
        assert_eq!(seen.look.temperatures, zones, "{folder}");
        assert_eq!(seen.hottest_now().map(|(zone, _)| zone), Some(*hottest), "{folder}");
        assert_eq!(seen.look.power_mode.as_deref(), Some(*power_mode), "{folder}");
        assert_eq!(seen.look.gpu_load, *gpu_load, "{folder}");
        assert_eq!(seen.look.alarms, pairs(alarms), "{folder}");
        // Neither the counters' values at the start nor an idle cooling device counts as throttling.
        assert_eq!(seen.throttled, 0, "{folder}");
        let hot = copy(folder);
        for entry in fs::read_dir(hot.path().join("sys/class/thermal")).unwrap() {
            let state = entry.unwrap().path().join("cur_state");
            if state.is_file() {
                fs::write(state, "1\n").unwrap();
            }
        }
        let (_, seen) = self::seen(hot.path(), Instant::now());
        assert_eq!(seen.look.cooled.join(" "), *slowed, "{folder}");
    }
}

#[test]
fn the_gpus_load_and_its_cooling_device_are_found_when_the_gpu_is_first_used() {
    let root = copy("orin-nano-39.2.0");
    let began = Instant::now();
    let (mut files, mut seen) = seen(root.path(), began);
    assert_eq!(
        seen.line(),
        "Jetson: cpu 51 °C, soc0 50 °C, soc1 50 °C, soc2 51 °C, tj 52 °C; power mode MAXN_SUPER, \
         GPU not used since the boot"
    );
    assert_eq!(files.look().gpu_load, GpuLoad::Off);
    // nvgpu's first power-on.
    put(root.path(), "sys/class/devfreq/17000000.gpu/device/load", "453\n");
    assert_eq!(seen.take(files.look(), began), None);
    assert_eq!(seen.short(), "tj 52 °C, MAXN_SUPER, GPU 45 %");
    // The cooling device appears after the node, and here after the look that found the node.
    put(root.path(), "sys/class/thermal/cooling_device12/type", "devfreq-17000000.gpu\n");
    put(root.path(), "sys/class/thermal/cooling_device12/cur_state", "3\n");
    let Some((Level::Warn, why)) = seen.take(files.look(), began) else { panic!("no warning") };
    assert!(why.starts_with("the Jetson is throttled by heat (devfreq-17000000.gpu; "), "{why}");
    // Found once: a zone that appears later is not searched for.
    put(root.path(), "sys/class/thermal/thermal_zone20/type", "late-thermal\n");
    put(root.path(), "sys/class/thermal/thermal_zone20/temp", "20000\n");
    files.look();
    assert!(!files.look().temperatures.iter().any(|(zone, _)| zone == "late"));
}

#[test]
fn an_alarm_of_a_xaviers_supply_counts_too() {
    let root = copy("xavier-nx-35.4.1");
    let (mut files, mut seen) = seen(root.path(), Instant::now());
    put(root.path(), "sys/class/hwmon/hwmon3/oc2_irq_cnt", "1\n");
    let Some((Level::Warn, why)) = seen.take(files.look(), Instant::now()) else { panic!("no warning") };
    assert!(why.starts_with("the Jetson is throttled by its supply (oc2: "), "{why}");
}

#[test]
fn heat_is_told_once_with_a_remedy_and_once_when_it_is_over() {
    let root = jetson(ORIN);
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let (mut files, mut seen) = seen(root.path(), began);
    assert_eq!(seen.take(files.look(), at(5)), None);
    put(root.path(), "sys/class/thermal/cooling_device0/cur_state", "1\n");
    put(root.path(), "sys/class/thermal/thermal_zone1/temp", "99200\n");
    let Some((Level::Warn, why)) = seen.take(files.look(), at(10)) else { panic!("no warning") };
    assert_eq!(
        why,
        "the Jetson is throttled by heat (gpu; gpu at 99 °C): models run slower. \
         Cool it better (fan, heat sink, air), or choose a lower power mode: nvpmodel -m"
    );
    assert_eq!(seen.short(), "gpu 99 °C, MAXN_SUPER, GPU 45 %, throttled");
    // It starts and stops repeatedly: one line for all.
    for second in (15..100).step_by(5) {
        put(root.path(), "sys/class/thermal/cooling_device0/cur_state", if second % 2 == 0 { "0\n" } else { "1\n" });
        assert_eq!(seen.take(files.look(), at(second)), None, "at {second} s");
    }
    put(root.path(), "sys/class/thermal/cooling_device0/cur_state", "0\n");
    assert_eq!(seen.take(files.look(), at(154)), None);
    let over = "the Jetson is no longer throttled; it was for 90 s".to_owned();
    assert_eq!(seen.take(files.look(), at(155)), Some((Level::Info, over)));
    let summary = seen.summary(at(160));
    assert_eq!((summary.throttled, summary.throttled_seconds), (1, 90.0));
    assert_eq!(summary.line(), "Jetson: at most 99 °C (gpu), power mode MAXN_SUPER, throttled once, for 90 s");
    assert_eq!(seen.gpu().line().as_deref(), Some("GPU: 45 % busy"));
}

#[test]
fn an_alarm_of_the_supply_counts_from_the_start_on_and_only_if_it_throttles() {
    let root = jetson(ORIN);
    let began = Instant::now();
    let (mut files, mut seen) = seen(root.path(), began);
    put(root.path(), "sys/class/hwmon/hwmon2/oc2_event_cnt", "9\n");
    assert_eq!(seen.take(files.look(), began), None, "oc2 throttles nothing");
    put(root.path(), "sys/class/hwmon/hwmon2/oc1_event_cnt", "8\n");
    let Some((Level::Warn, why)) = seen.take(files.look(), began) else { panic!("no warning") };
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

/// NVML, made for the test (`tests/nvml.c`), with these definitions.
fn nvml(folder: &Path, definitions: &[&str]) -> PathBuf {
    let (source, library) = (folder.join("nvml.c"), folder.join(nvml::LIBRARY));
    fs::write(&source, include_str!("tests/nvml.c")).unwrap();
    let part = folder.join("part");
    let cc = Command::new("cc").args(["-shared", "-fPIC"]).args(definitions).arg("-o").args([&part, &source]).output();
    let output = cc.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(part, &library).unwrap();
    library
}

fn line(probe: &mut Probe) -> String {
    Readings::new(probe.is_jetson(), probe.look(), Instant::now()).line()
}

#[test]
fn a_thors_load_comes_from_nvml_and_its_clock_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = copy("thor-38.4.0");
    put(root.path(), "sys/class/devfreq/gpu-gpc-0/cur_freq", "1386000000\n");
    let mut probe = Probe::new(root.path(), &nvml(folder.path(), &[])).unwrap();
    assert!(line(&mut probe).ends_with("power mode MAXN, GPU 97 % busy at 1386 MHz"), "{}", line(&mut probe));
    // Without the file, the clock also comes from NVML.
    let root = boards().join("thor-38.4.0");
    let mut probe = Probe::new(&root, &nvml(folder.path(), &[])).unwrap();
    assert!(line(&mut probe).ends_with("GPU 97 % busy at 1575 MHz"), "{}", line(&mut probe));
}

#[test]
fn a_thor_whose_nvml_is_missing_or_does_not_start_says_so_and_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = boards().join("thor-38.4.0");
    let mut probe = Probe::new(&root, &folder.path().join(nvml::LIBRARY)).unwrap();
    assert!(line(&mut probe).ends_with("MAXN, the driver does not report the GPU's load"), "{}", line(&mut probe));
    nvml(folder.path(), &[]);
    assert!(line(&mut probe).ends_with("GPU 97 % busy at 1575 MHz"), "{}", line(&mut probe));
    // NVML_ERROR_DRIVER_NOT_LOADED.
    let folder = tempfile::tempdir().unwrap();
    let mut probe = Probe::new(&root, &nvml(folder.path(), &["-DINIT=9"])).unwrap();
    assert!(line(&mut probe).ends_with("MAXN, the driver does not report the GPU's load"), "{}", line(&mut probe));
}

#[test]
fn an_orin_whose_nvml_supports_nothing_waits_for_the_file_that_the_first_use_of_the_gpu_makes() {
    let folder = tempfile::tempdir().unwrap();
    let root = copy("orin-nano-39.2.0");
    let mut probe = Probe::new(root.path(), &nvml(folder.path(), &["-DANSWER=3"])).unwrap();
    assert!(line(&mut probe).ends_with("MAXN_SUPER, GPU not used since the boot"), "{}", line(&mut probe));
    put(root.path(), "sys/class/devfreq/17000000.gpu/device/load", "453\n");
    put(root.path(), "sys/class/devfreq/17000000.gpu/cur_freq", "624750000\n");
    assert!(line(&mut probe).ends_with("MAXN_SUPER, GPU 45 % busy at 624 MHz"), "{}", line(&mut probe));
}

#[test]
fn a_file_of_the_load_counts_more_than_nvml() {
    let folder = tempfile::tempdir().unwrap();
    let root = jetson(ORIN);
    let mut probe = Probe::new(root.path(), &nvml(folder.path(), &[])).unwrap();
    assert!(line(&mut probe).ends_with("MAXN_SUPER, GPU 45 % busy"), "{}", line(&mut probe));
    assert!(probe.nvml.is_none(), "NVML was opened though nothing needed it");
}

#[test]
fn a_pc_with_nvidias_driver_reports_its_busiest_gpu_and_another_pc_nothing() {
    let (folder, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(Probe::new(root.path(), &folder.path().join(nvml::LIBRARY)).is_none());
    let mut probe = Probe::new(root.path(), &nvml(folder.path(), &[])).unwrap();
    assert_eq!(line(&mut probe), "GPU 97 % busy at 1575 MHz");
    let seen = Readings::new(probe.is_jetson(), probe.look(), Instant::now());
    assert_eq!(seen.short(), "GPU 97 %");
    assert_eq!(seen.gpu().line().as_deref(), Some("GPU: 97 % busy, 1575 MHz at the end"));
    // The module of the kernel is not loaded.
    let folder = tempfile::tempdir().unwrap();
    let mut probe = Probe::new(root.path(), &nvml(folder.path(), &["-DINIT=9"])).unwrap();
    assert_eq!(line(&mut probe), "the GPU's load cannot be read");
}
