//! A Jetson's temperatures and throttling: in its status, log and summary, and not on other machines.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use visiond_tests::{Daemon, HANG};

const CONFIG: &str = r#"
[engine]
backend = "rten"
threads = 1

[[model]]
name = "nanodet"
path = "{model}"

[[camera]]
name = "bars"
[camera.source]
type = "pattern"
width = 320
height = 240
fps = 5

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Replaced atomically, because the daemon may read it meanwhile.
    let part = path.with_extension("part");
    fs::write(&part, content).unwrap();
    fs::rename(part, path).unwrap();
}

/// Returns what systemd gets until a status contains `words`.
fn status_with(socket: &UnixDatagram, words: &str) -> String {
    let until = Instant::now() + HANG;
    let mut buffer = [0; 4096];
    while Instant::now() < until {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.contains(words) {
            return text;
        }
    }
    panic!("no status held {words:?} within {} s", HANG.as_secs());
}

#[test]
fn a_jetson_reports_its_temperatures_and_warns_once_when_it_is_throttled() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    put(at, "sys/firmware/devicetree/base/compatible", "nvidia,p3768-0000+p3767-0005\0nvidia,tegra234\0");
    put(at, "sys/class/thermal/thermal_zone0/type", "tj-thermal\n");
    put(at, "sys/class/thermal/thermal_zone0/temp", "52468\n");
    put(at, "sys/class/thermal/cooling_device0/type", "gpu-throttle-alert\n");
    put(at, "sys/class/thermal/cooling_device0/cur_state", "0\n");
    put(at, "sys/class/devfreq/17000000.gpu/device/load", "453\n");
    put(at, "var/lib/nvpmodel/status", "pmode:0002\n");
    put(at, "etc/nvpmodel.conf", "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n");

    let path = at.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let summary = at.join("summary.json");
    let daemon = Daemon::start_with(CONFIG, |command| {
        command.env("NOTIFY_SOCKET", &path).env("VISIOND_SYSTEM_ROOT", at).arg("--summary-json").arg(&summary);
    });
    status_with(&socket, " | tj 52 °C, MAXN_SUPER, GPU 45 %");
    put(at, "sys/class/thermal/thermal_zone0/temp", "99125\n");
    put(at, "sys/class/thermal/cooling_device0/cur_state", "1\n");
    status_with(&socket, " | tj 99 °C, MAXN_SUPER, GPU 45 %, throttled");
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert_eq!(ended.log.matches("the Jetson is throttled by heat (gpu; tj at 99 °C)").count(), 1, "{}", ended.log);
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    assert_eq!(summary["jetson"]["throttled"], 1);
    assert_eq!(summary["jetson"]["power_mode"], "MAXN_SUPER");
    assert_eq!(summary["jetson"]["temperatures_c"]["tj"]["max"], 99.125);
}

#[test]
fn another_machine_has_none_of_it() {
    let root = tempfile::tempdir().unwrap();
    let summary = root.path().join("summary.json");
    let mut daemon = Daemon::start_with(CONFIG, |command| {
        command.env("VISIOND_SYSTEM_ROOT", root.path()).arg("--summary-json").arg(&summary);
    });
    daemon.wait_until("a message", |d| d.count("out.jsonl") > 0);
    let ended = daemon.terminate();
    assert!(!ended.log.contains("Jetson"), "{}", ended.log);
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    assert!(summary.get("jetson").is_none());
}

#[test]
fn a_pc_with_nvidias_driver_reports_the_load_and_the_clock_of_its_gpu() {
    let root = tempfile::tempdir().unwrap();
    let (source, library) = (root.path().join("nvml.c"), root.path().join("libnvidia-ml.so.1"));
    fs::write(&source, include_str!("../../daemon/system/src/thermal/tests/nvml.c")).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(status.success());
    let path = root.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let summary = root.path().join("summary.json");
    let mut daemon = Daemon::start_with(CONFIG, |command| {
        command.env("NOTIFY_SOCKET", &path).env("VISIOND_SYSTEM_ROOT", root.path()).arg("--summary-json").arg(&summary);
        command.env("LD_LIBRARY_PATH", root.path());
    });
    status_with(&socket, " | GPU 97 %");
    // Written by another thread than the status.
    daemon.wait_for_log("GPU 97 % busy");
    let ended = daemon.terminate();
    assert!(ended.log.contains("GPU 97 % busy at 1575 MHz") && !ended.log.contains("Jetson"), "{}", ended.log);
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    assert_eq!(summary["gpu"]["load_now_percent"], 97.0);
    assert_eq!(summary["gpu"]["clock_mhz"], 1575);
    assert!(summary.get("jetson").is_none());
}
