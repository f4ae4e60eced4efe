//! `visiond check` finds what `visiond run` refuses, in the same words, and changes nothing.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use visiond_tests::{assert_no_panic, fill, stderr, visiond};

/// Runs `visiond COMMAND c.toml` in `folder`, as a user does who is there.
fn in_folder(folder: &Path, command: &str) -> Output {
    let mut visiond = Command::new(visiond());
    visiond.args([command, "c.toml"]).current_dir(folder).stdin(Stdio::null());
    visiond.env_remove("ORT_DYLIB_PATH").env_remove("STATE_DIRECTORY").env_remove("CREDENTIALS_DIRECTORY");
    visiond.output().unwrap()
}

/// Everything that a command printed.
fn said(output: &Output) -> String {
    let said = stderr(output) + &String::from_utf8_lossy(&output.stdout);
    assert_no_panic(&said);
    said
}

const MODEL: &str = "[[model]]\nname = \"n\"\npath = \"{model}\"\n";
const PATTERN: &str = "[[camera]]\nname = \"p\"\n[camera.source]\ntype = \"pattern\"\nmax_frames = 3\n";

#[test]
fn a_library_named_without_a_folder_is_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let library = format!("[engine]\nonnxruntime_library = \"{name}\"\n");
        let text = fill(&(library + MODEL + PATTERN), folder.path());
        std::fs::write(folder.path().join("c.toml"), text).unwrap();
    };
    // The system's loader would find this one.
    write("libc.so.6");
    for command in ["check", "run"] {
        let output = in_folder(folder.path(), command);
        assert_eq!(output.status.code(), Some(if command == "run" { 4 } else { 3 }));
        assert!(said(&output).contains("./libc.so.6: cannot open shared object file"), "{}", said(&output));
    }
    // Run only where tests have ONNX Runtime.
    let Some(library) = std::env::var_os("ORT_DYLIB_PATH") else { return };
    std::os::unix::fs::symlink(library, folder.path().join("ort.so")).unwrap();
    write("ort.so");
    for command in ["check", "run"] {
        let output = in_folder(folder.path(), command);
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn the_effective_configuration_shows_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let write = |more: &str| {
        let text = r#"
[[camera]]
name = "gate"
source = { type = "video", url = "rtsp://admin:hush@192.0.2.1/1", input_args = ["-headers", "Authorization: Basic hush"] }
[[camera]]
name = "yard"
source = { type = "command", command = ["sh", "-c", "exit", "--password", "hush", "token=hush"] }
"#;
        let text = fill(&format!("{MODEL}{text}{more}"), folder.path());
        std::fs::write(folder.path().join("c.toml"), text).unwrap();
    };
    write("");
    let check = |option: &str| {
        let mut check = Command::new(visiond());
        said(&check.args(["check", "--file-only", option, "c.toml"]).current_dir(folder.path()).output().unwrap())
    };
    let shown = check("--effective");
    assert!(shown.contains(r#"url = "rtsp://***@192.0.2.1/1""#) && !shown.contains("hush"), "{shown}");
    // An invalid one is not printed, and neither is the password in the line of its error.
    write("[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://admin:hush@broker\"\n");
    for option in ["--effective", "--json"] {
        let shown = check(option);
        assert!(shown.contains("use `login`") && !shown.contains("hush"), "{shown}");
    }
}
