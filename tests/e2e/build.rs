//! `visiond build` as a user runs it, with TensorRT for RTX, which builds without a GPU.
//!
//! Tests that need TensorRT are ignored unless `VISIOND_TEST_TENSORRT` names its folder (`tests/setup --test` fetches it).

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use visiond_tests::{assert_no_panic, model, stderr, visiond};

/// A separate folder for models, engines and the cache.
struct Bench {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let libraries = std::env::var_os("VISIOND_TEST_TENSORRT").expect("the folder of libraries");
        let library = Path::new(&libraries).join("rtx-1.6.1/libtensorrt_rtx.so.1");
        assert!(library.is_file(), "{} is missing: run `tests/setup --test`", library.display());
        Self { folder: tempfile::tempdir().unwrap(), library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, model: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(visiond());
        command.arg("build").arg(model).args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("VISIOND_TENSORRT_LIBRARY", &self.library).env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    fn build(&self, model: &Path, args: &[&str]) -> Output {
        let output = self.command(model, args).output().unwrap();
        assert_no_panic(&stderr(&output));
        output
    }

    /// Returns the names in the folder, except the cache.
    fn files(&self) -> Vec<String> {
        let entries = self.folder.path().read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "cache");
        names.sort();
        names
    }
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn an_engine_comes_with_its_sidecar_and_its_card() {
    let bench = Bench::new();
    let output = bench.build(&model(), &["-o", "net.engine"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("TensorRT for RTX 1.6.1") && text.contains("net.engine"), "{text}");
    assert_eq!(bench.files(), ["net.engine", "net.engine.json", "net.toml"]);
    let engine = std::fs::read(bench.path("net.engine")).unwrap();
    assert_eq!((&engine[..4], &engine[24..26]), (&b"vtrt"[..], &[1, 6][..]), "the header says what built it");
    let sidecar: Value = serde_json::from_slice(&std::fs::read(bench.path("net.engine.json")).unwrap()).unwrap();
    assert!(sidecar["onnx"]["sha256"].as_str().unwrap().starts_with("c56a49a7981b"));
    assert_eq!(sidecar["profiles"][0]["images"], "1x3x416x416");
    assert_eq!(sidecar["metadata"]["arch"], "NanoDet-g");
    assert_eq!(sidecar["engine"]["sha256"].as_str().unwrap().len(), 64);
    // The next build does not replace it without --force.
    let output = bench.build(&model(), &["-o", "net.engine"]);
    assert_eq!(output.status.code(), Some(6));
    assert!(stderr(&output).contains("--force"), "{}", stderr(&output));
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn half_precision_makes_a_smaller_engine_and_lists_what_stayed() {
    let bench = Bench::new();
    let size = |name: &str| bench.path(name).metadata().unwrap().len();
    assert!(bench.build(&model(), &["-o", "full.engine"]).status.success());
    let output = bench.build(&model(), &["-o", "half.engine", "--fp16", "--json", "--sm", "86,89"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(size("half.engine") * 4 < size("full.engine") * 3);
    let sidecar: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sidecar["precision"], "80 layers in fp16, 20 in fp32");
    assert_eq!(sidecar["compute_capabilities"], serde_json::json!(["8.6", "8.9"]));
    let output = bench.build(&model(), &["-o", "bf16.engine", "--bf16", "--precision", "type:Conv=fp32"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn an_impossible_build_prints_one_line_and_leaves_no_files() {
    let bench = Bench::new();
    for (args, exit, expected) in [
        (&["--fp16", "--precision", "conv_1=fp32"][..], 4, "no layer is called `conv_1`; similar names: `conv_1"),
        (&["--fp16", "--precision", "type:Softmx=fp32"], 4, "similar names: `type:"),
        (&["--precision", "type:Conv=fp32"], 2, "requires --fp16 or --bf16"),
        (&["--int8"], 2, "the model contains no ranges"),
        (&["--sm", "87"], 2, "not for 8.7"),
        (&["--dla", "0", "--fp16"], 2, "does not support a DLA"),
        (&["--version-compatible"], 2, "no such engines"),
        (&["--shape", "image=1x3x416x416"], 4, "has no input `image`"),
        (&["--shape", "images=1x3x320x320"], 4, "node `add_122_op` (Add)"),
        (&["--profile", "images=1x3x416x416,1x3x416x416,2x3x416x416"], 2, "the model fixes"),
        (&["-o", "nowhere/net.engine"], 6, "nowhere is not a folder"),
    ] {
        let mut args = args.to_vec();
        if !args.contains(&"-o") {
            args.extend(["-o", "net.engine"]);
        }
        let output = bench.build(&model(), &args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {text}");
        assert!(text.lines().last().unwrap().contains(expected), "{args:?}: {text}");
        assert!(bench.files().is_empty(), "{args:?}: {:?}", bench.files());
    }
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn the_error_about_a_broken_model_names_its_node() {
    let bench = Bench::new();
    let broken = bench.path("broken.onnx");
    // Replaces a common operator by an unknown one.
    let mut bytes = std::fs::read(model()).unwrap();
    let at = bytes.windows(7).position(|window| window == b"MaxPool").unwrap();
    bytes[at..at + 7].copy_from_slice(b"MixPool");
    std::fs::write(&broken, &bytes).unwrap();
    let output = bench.build(&broken, &["-o", "net.engine"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("node `") && text.contains("(MixPool)"), "{text}");
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
    let output = bench.build(&broken, &["-o", "net.engine"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("is truncated"), "{}", stderr(&output));
    assert_eq!(bench.files(), ["broken.onnx"]);
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn an_interrupted_build_leaves_nothing_half_written() {
    let bench = Bench::new();
    for milliseconds in [50, 200, 500] {
        let mut child =
            bench.command(&model(), &["-o", "net.engine", "--force"]).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: kill(2) takes two integers; the child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let whole = child.wait().unwrap().success();
        let files = bench.files();
        // Either the signal or the end came first.
        let expected: &[&str] = if whole { &["net.engine", "net.engine.json", "net.toml"] } else { &[] };
        assert!(files == expected || (!whole && files.iter().all(|name| !name.ends_with(".part"))), "{files:?}");
        for name in files {
            std::fs::remove_file(bench.path(&name)).unwrap();
        }
    }
}

#[test]
#[cfg_attr(not(has_tensorrt), ignore = "needs VISIOND_TEST_TENSORRT, the folder that tests/setup --test fills")]
fn a_disk_that_cannot_take_the_engine_is_left_as_it_was() {
    let bench = Bench::new();
    // A file may have at most 2 MB: enough for sidecar and card, too little for the engine.
    let cramped = |args: &[&str]| {
        let command = bench.command(&model(), args);
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$@\"", "sh"]);
        shell.arg(command.get_program()).args(command.get_args()).current_dir(bench.folder.path());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
        shell.output().unwrap()
    };
    let output = cramped(&["-o", "net.engine"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write net.engine"), "{}", stderr(&output));
    assert!(stderr(&output).contains("-o"), "{}", stderr(&output));
    assert!(bench.files().is_empty(), "{:?}", bench.files());

    // The engine that --force would have replaced is whole, with its own sidecar.
    assert!(bench.build(&model(), &["-o", "net.engine"]).status.success());
    let kept = ["net.engine", "net.engine.json", "net.toml"].map(|name| std::fs::read(bench.path(name)).unwrap());
    assert_eq!(cramped(&["-o", "net.engine", "--force", "--fp16"]).status.code(), Some(6));
    assert_eq!(bench.files(), ["net.engine", "net.engine.json", "net.toml"]);
    assert!(["net.engine", "net.engine.json", "net.toml"].map(|name| std::fs::read(bench.path(name)).unwrap()) == kept);
}

#[test]
fn without_tensorrt_it_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(visiond());
    command.arg("build").arg(model()).arg("-o").arg(folder.path().join("net.engine"));
    let output = command.env("VISIOND_TENSORRT_LIBRARY", "/nonexistent/libnvinfer.so.10").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("libnvinfer.so.10"), "{}", stderr(&output));
    assert!(folder.path().read_dir().unwrap().next().is_none());
}
