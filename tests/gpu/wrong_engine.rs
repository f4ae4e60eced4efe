//! Row "Wrong engine": files that are not engines for this machine, each given to `visiond detect` as by a user.
//!
//! Each must give exit status 4 and one sentence that names the kind of file and the command or action that helps, and must
//! not crash. Everything except the file is right: the card, the image, the library.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::measure::Noise;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Wrong engine";
/// Exit status of `visiond` for a model that cannot be used.
const MODEL: i32 = 4;
/// The user `nobody`, who may not read root's files.
const NOBODY: u32 = 65534;

/// A case: its name, the file's bytes, and words that the message must contain (`|` between alternatives).
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    said: &'static [&'static str],
    readable: bool,
}

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let engine = fs::read(setup.engine()?)?;
    let folder = Folder::new()?;
    let visiond = folder.0.join("visiond");
    fs::copy(setup.visiond()?, &visiond)?;
    let card = folder.0.join("card.toml");
    fs::copy(setup.arguments.model.with_extension("toml"), &card)?;
    let picture = folder.0.join("picture.ppm");
    fs::write(&picture, [b"P6 64 64 255\n".as_slice(), &[128; 64 * 64 * 3]].concat())?;

    let patched = |at: usize, bytes: &[u8]| {
        let mut engine = engine.clone();
        engine[at..at + bytes.len()].copy_from_slice(bytes);
        engine
    };
    let mut garbage = vec![0; 100_000];
    Noise::new(1).fill(&mut garbage);
    let case = |name, bytes, said| Case { name, bytes, said, readable: true };
    let cases = [
        case("garbage", garbage, &["not a TensorRT engine", "visiond build"]),
        case("truncated", engine[..engine.len() / 2].to_vec(), &["truncated", "bytes", "copy it again"]),
        case("cut within its header", engine[..20].to_vec(), &["truncated", "copy it again"]),
        // The header's bytes 24 to 27 are the version that built it.
        case("other version", patched(24, &[1, 5, 0, 0]), &["1.5", "1.6", "visiond build"]),
        // Bytes 32 to 39 are the mask of GPUs; bit 0 is SM 7.5.
        case("other GPU", patched(32, &1u64.to_le_bytes()), &["7.5", "9.0|SM|H100|H200", "visiond build"]),
        case("an ONNX renamed", fs::read(&setup.arguments.model)?, &["ONNX", "visiond build"]),
        case("0 bytes", Vec::new(), &["empty", "visiond build"]),
        case(
            "text",
            b"version https://git-lfs.github.com/spec/v1\n".to_vec(),
            &["not a TensorRT engine", "visiond build"],
        ),
        Case { readable: false, ..case("one that the user may not read", engine.clone(), &["ermission denied"]) },
    ];
    for case in cases {
        let path = folder.0.join("wrong.engine");
        fs::write(&path, &case.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(if case.readable { 0o644 } else { 0o000 }))?;
        let mut command = Command::new(&visiond);
        command.arg("detect").arg("--model").arg(&path).arg("--card").arg(&card).arg(&picture);
        // SAFETY: geteuid takes and touches nothing.
        if !case.readable && unsafe { libc::geteuid() } == 0 {
            command.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent");
        }
        let output = command.stdin(Stdio::null()).env("RUST_BACKTRACE", "0").output()?;
        judge(&case, &path, &output, report);
    }
    Ok(())
}

fn judge(case: &Case, path: &Path, output: &Output, report: &mut Report) {
    let said = String::from_utf8_lossy(&output.stderr);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // The message is the line that names the file; log lines above it may say more.
    let sentences: Vec<&str> = said.lines().filter(|line| line.contains(&*name)).collect();
    let sentence = sentences.last().copied().unwrap_or_else(|| said.lines().last().unwrap_or_default());
    let missing = case.said.iter().find(|words| !words.split('|').any(|word| sentence.contains(word)));
    let status = output.status;
    let mut faults = Vec::new();
    if status.code() != Some(MODEL) {
        faults.push(format!("{status}"));
    }
    if sentences.len() != 1 {
        faults.push(format!("{} lines name the file", sentences.len()));
    }
    if let Some(words) = missing {
        faults.push(format!("does not say {words}"));
    }
    if said.contains("panicked") {
        faults.push("panicked".to_owned());
    }
    let text = sentence.replace(&*path.to_string_lossy(), &name);
    let faults = if faults.is_empty() { String::new() } else { format!("[{}] ", faults.join("; ")) };
    let wanted = format!("one sentence, exit {MODEL}");
    report.figure(ROW, case.name, wanted, format!("{faults}{text}"), faults.is_empty());
}

/// A folder that every user may enter; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("visiond-gpu-wrong-{}", std::process::id()));
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
