//! The report archive: a .tar.gz with the report as JSON and as text, and files about the system.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use regex_lite::Regex;
use visiond_system::child_process::isolate;
use visiond_system::exit::{Exit, ExitError};

use super::redact::Redaction;
use super::report::Report;

/// The report in the archive.
const JSON: &str = "report.json";

/// How many of the last lines of the kernel's log to keep.
const LOG_LINES: usize = 3000;

/// The kernel's log covers the whole machine: keep only lines about cameras, GPU, memory and heat.
const RELEVANT: &str = "(?i)nvidia|nvgpu|nvmap|nvhost|host1x|tegra|nvcsi|vi5|rtcpu|capture|v4l|video|uvc|camera|media|imx|ov5|\
                        ov9|max9|gpu|iommu|smmu|thermal|throttl|out of memory|oom|regulator";

/// Creates the file if it does not exist, so that an unwritable path is an error before the tests.
pub fn make(path: &Path) -> Result<(), ExitError> {
    let made = File::options().write(true).create(true).truncate(false).open(path);
    made.map(drop).map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "create its folder, or name another one".to_owned(),
            _ => format!("{error}; name another file"),
        };
        ExitError::new(Exit::Output, format!("cannot write {}: {reason}", path.display()))
    })
}

/// Writes the archive of a redacted report; this function redacts the system's files.
pub fn write(path: &Path, report: &Report, redaction: &Redaction) -> Result<(), ExitError> {
    let written = || {
        let mut archive = tar::Builder::new(GzEncoder::new(File::create(path)?, Compression::default()));
        let mut put = |name: &str, text: &str| {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, Path::new("visiond-selftest").join(name), text.as_bytes())
        };
        put(JSON, &serde_json::to_string_pretty(report)?)?;
        put("table.txt", &report.table())?;
        for (name, text) in texts() {
            put(name, &redaction.text(&text))?;
        }
        archive.into_inner()?.finish()?.sync_all()
    };
    written()
        .map_err(|error: io::Error| ExitError::new(Exit::Output, format!("cannot write {}: {error}", path.display())))
}

/// Reads a report from an archive or from a JSON file.
pub fn read(path: &Path) -> Result<Report, ExitError> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        ExitError::new(Exit::Input, format!("cannot {what} {}: {why}", path.display()))
    };
    let mut json = fs::read(path).map_err(|error| failed("read", &error))?;
    if json.starts_with(&[0x1f, 0x8b]) {
        let why = format!("it has no {JSON}; name an archive that `visiond selftest --report` wrote");
        json = unpack(&json).map_err(|error| failed("read", &error))?.ok_or_else(|| failed("show", &why))?;
    }
    serde_json::from_slice(&json).map_err(|error| {
        failed("show", &format!("not a report of `visiond selftest`: {error}; name one that --report wrote"))
    })
}

/// The report in an archive.
fn unpack(bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    /// Far more than a report needs.
    const MOST: u64 = 64 << 20;
    let mut archive = tar::Archive::new(GzDecoder::new(bytes).take(MOST));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.file_name().is_some_and(|name| name == JSON) {
            let mut json = Vec::new();
            entry.read_to_end(&mut json)?;
            return Ok(Some(json));
        }
    }
    Ok(None)
}

/// Returns the system's files that help to understand a report; leaves out unreadable ones.
fn texts() -> impl Iterator<Item = (&'static str, String)> {
    let read = |path: &str| fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', "\n"));
    // The name shows the board and memory that it is made for.
    let nvpmodel = || fs::canonicalize("/etc/nvpmodel.conf").ok().map(|path| format!("{}\n", path.display()));
    [
        ("kernel.log", kernel_log()),
        ("version.txt", read("/proc/version")),
        ("devices.txt", read("/proc/devices")),
        ("modules.txt", read("/proc/modules").map(|text| modules(&text))),
        ("os-release.txt", read("/etc/os-release")),
        ("device-tree-model.txt", read("/proc/device-tree/model")),
        ("device-tree-compatible.txt", read("/proc/device-tree/compatible")),
        ("nv_tegra_release.txt", read("/etc/nv_tegra_release")),
        ("nvpmodel.txt", nvpmodel()),
        ("nvidia-version.txt", read("/proc/driver/nvidia/version")),
    ]
    .into_iter()
    .filter_map(|(name, text)| Some((name, text?)))
}

/// Keeps names and sizes. Drops the kernel addresses that root sees after them, because a report must not disclose them.
fn modules(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ") + "\n";
    text.lines().map(line).collect()
}

/// The part of the kernel's log that this user may read.
fn kernel_log() -> Option<String> {
    ["dmesg", "journalctl --dmesg --boot --no-pager --output=short-monotonic --no-hostname"].iter().find_map(
        |command| {
            let mut words = command.split(' ');
            let mut command = Command::new(words.next()?);
            isolate(&mut command);
            let output = command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
            let is_usable = output.status.success() && !output.stdout.is_empty();
            is_usable.then(|| relevant(&String::from_utf8_lossy(&output.stdout)))
        },
    )
}

fn relevant(log: &str) -> String {
    let Ok(pattern) = Regex::new(RELEVANT) else { return String::new() };
    let lines: Vec<_> = log.lines().filter(|line| pattern.is_match(line)).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn of_the_kernels_log_only_what_is_about_cameras_and_gpu_is_kept() {
        let log = "[1] tegra-vi: started\n[2] audit: apparmor of maria\n[3] uvcvideo: found\n";
        assert_eq!(relevant(log), "[1] tegra-vi: started\n[3] uvcvideo: found\n");
    }

    #[test]
    fn of_the_modules_no_address_is_kept() {
        let text = "uvcvideo 172032 0 - Live 0xffffffffc0a1b000\nvideodev 303104 3 uvcvideo, Live 0xffffffffc09c0000\n";
        assert_eq!(modules(text), "uvcvideo 172032\nvideodev 303104\n");
    }

    #[test]
    fn a_file_that_is_not_a_report_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert!(read(&path).unwrap_err().message.starts_with(&format!("cannot read {}: No such", path.display())));
        fs::write(&path, "{}").unwrap();
        assert!(read(&path).unwrap_err().message.contains("not a report of `visiond selftest`: missing field"));
        let mut empty = GzEncoder::new(Vec::new(), Compression::default());
        tar::Builder::new(&mut empty).finish().unwrap();
        fs::write(&path, empty.finish().unwrap()).unwrap();
        assert!(read(&path).unwrap_err().message.contains("it has no report.json"));
    }
}
