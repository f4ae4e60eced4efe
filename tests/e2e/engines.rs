//! Files that are not an engine for this machine: one line each, which names the file's kind and the remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use visiond_tests::{assert_no_panic, model, picture, root, visiond};

const MODEL: i32 = 4;

/// The header of a plan of TensorRT for RTX: version, GPUs, size.
pub fn plan(version: [u8; 4], gpus: u64) -> Vec<u8> {
    let mut plan = vec![0x5a; 4096];
    plan[..4].copy_from_slice(b"vtrt");
    plan[4..8].fill(0);
    plan[8..16].copy_from_slice(&1u64.to_le_bytes());
    plan[16..24].copy_from_slice(&4096u64.to_le_bytes());
    plan[24..28].copy_from_slice(&version);
    plan[28..32].fill(0);
    plan[32..40].copy_from_slice(&gpus.to_le_bytes());
    plan
}

/// The error of `visiond detect` for an engine file with these bytes: one line that names it. The exit status must be that
/// for models.
fn refusal(bytes: &[u8], adapt: impl FnOnce(&mut Command, &Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("forklifts.engine");
    fs::write(&path, bytes).unwrap();
    let mut command = Command::new(visiond());
    command.arg("detect").arg("--model").arg(&path).arg("--card").arg(root().join("config/models/nanodet-g-416.toml"));
    command.arg(picture("chelsea.png")).stdin(Stdio::null());
    adapt(&mut command, &path);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_no_panic(&said);
    assert_eq!(output.status.code(), Some(MODEL), "{said}");
    let sentences: Vec<&str> = said.lines().filter(|line| line.contains("forklifts.engine")).collect();
    assert_eq!(sentences.len(), 1, "one line names the file:\n{said}");
    sentences[0].to_owned()
}

fn refusal_of(bytes: &[u8]) -> String {
    refusal(bytes, |_, _| {})
}

fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

#[test]
fn garbage_is_refused_as_not_an_engine() {
    assert_says(&refusal_of(&[0xa7; 10_000]), &["is not a TensorRT engine", "visiond build"]);
    assert_says(&refusal_of(b"version https://git-lfs.github.com/spec/v1\n"), &["visiond build"]);
}

#[test]
fn an_empty_file_is_refused_as_empty() {
    assert_says(&refusal_of(b""), &["empty", "copy it again", "visiond build"]);
}

#[test]
fn a_truncated_plan_is_detected_by_its_header() {
    let plan = plan([1, 6, 1, 120], 0x3f);
    assert_says(&refusal_of(&plan[..2000]), &["2000 of 4096 bytes", "copy it again"]);
    assert_says(&refusal_of(&plan[..20]), &["visiond build"]);
}

#[test]
fn an_onnx_file_with_an_engines_name_is_recognised() {
    assert_says(&refusal_of(&fs::read(model()).unwrap()), &["ONNX", ".onnx", "visiond build"]);
}

#[test]
fn the_error_about_a_foreign_plan_names_what_built_it() {
    // Without a GPU, the error says so; with one, it names the version or the GPU.
    assert_says(&refusal_of(&plan([1, 5, 0, 0], 0x3f)), &["1.5.0"]);
    assert_says(&refusal_of(&plan([1, 6, 1, 120], 1)), &["1.6.1"]);
}

#[test]
fn an_unreadable_file_is_refused_with_that_reason() {
    let said = refusal(&plan([1, 6, 1, 120], 0x3f), |command, path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        // SAFETY: geteuid takes and touches nothing.
        if unsafe { libc::geteuid() } == 0 {
            // Root may read everything: run as the user `nobody`, with a copy of the binary that this user can execute.
            let binary = path.with_file_name("visiond");
            fs::copy(visiond(), &binary).unwrap();
            let card = path.with_file_name("card.toml");
            fs::copy(root().join("config/models/nanodet-g-416.toml"), &card).unwrap();
            let mut other = Command::new(binary);
            other.arg("detect").arg("--model").arg(path).arg("--card").arg(card).arg(path).stdin(Stdio::null());
            other.uid(65534).gid(65534).env("HOME", "/nonexistent");
            *command = other;
        }
    });
    assert_says(&said, &["Permission denied"]);
}
