//! Bundles whose engine is built on the device, on a GPU and a TensorRT made for the test (`built_bundles/`): a driver of malloc and
//! memcpy, and a builder that makes the same engine of every model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use visiond_tests::{assert_no_panic, command, json_lines, root, stderr, wait_until};

use crate::bundles::{Desk, refused};

const MODEL: i32 = 4;

/// An engine with the shapes of the tiny network.
const PLAN: &str = "tensor picture 1 0 0 1 3 64 128\ntensor output 2 0 0 1 12 8";

/// A device with a GPU.
pub struct Device {
    pub desk: Desk,
}

impl Device {
    pub fn new() -> Self {
        let device = Self { desk: Desk::new() };
        device.compile("libcuda.so.1", &["-DWITH_KERNELS"], &[Path::new("kernels/src/cuda/tests/stub_driver.c")]);
        device.install_tensorrt(100_300);
        fs::create_dir(device.desk.path("stub")).unwrap();
        fs::write(device.desk.path("stub/plan"), PLAN).unwrap();
        device
    }

    /// Compiles sources into a library in the folder `lib`.
    fn compile(&self, library: &str, options: &[&str], sources: &[&Path]) {
        let folder = self.desk.path("lib");
        fs::create_dir_all(&folder).unwrap();
        let text: String = sources.iter().map(|path| fs::read_to_string(root().join(path)).unwrap()).collect();
        let source = folder.join(format!("{library}.c"));
        fs::write(&source, format!("#define _GNU_SOURCE\n{text}")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(folder.join(library)).args(options).arg(source);
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// Installs the TensorRT of this number, in place of another one.
    fn install_tensorrt(&self, number: u32) {
        let folder = Path::new("tests/e2e/built_bundles");
        let stub = Path::new("engine/src/tensorrt/tests/stub/nvinfer.c");
        for library in ["libnvinfer.so.10", "libnvonnxparser.so.10"] {
            let sources = [&folder.join("slots.h"), stub, &folder.join("builder.c")];
            self.compile(library, &[&format!("-DVERSION={number}")], &sources);
        }
    }

    /// Returns `visiond ARGS` on this device, with the folder in the place of DIR.
    fn command(&self, args: &[&str]) -> Command {
        let folder = self.desk.path("");
        let mut command = command();
        command.args(args.iter().map(|arg| arg.replace("DIR", folder.to_str().unwrap().trim_end_matches('/'))));
        command.env("LD_LIBRARY_PATH", self.desk.path("lib")).env("STUB_BUILD", self.desk.path("stub"));
        command.env("XDG_CACHE_HOME", self.desk.path("cache")).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        assert_no_panic(&stderr(&output));
        output
    }

    fn install(&self, version: &str, more: &[&str]) -> Output {
        let bundle = format!("DIR/street-{version}.visiond");
        let args = ["bundle", "install", &bundle, "--key", "DIR/team.pub", "--store", "DIR/models"];
        self.run(&[&args, more].concat())
    }

    /// Begins to follow the folder where versions are published, without a daemon.
    fn follow(&self) -> Command {
        let args = ["bundle", "follow", "street", "--once", "--key", "DIR/team.pub", "--store", "DIR/models"];
        self.command(&[&args[..], &["--source", "DIR/published", "--url", "unix:DIR/no.sock"]].concat())
    }

    /// Where the model of the version in use leads.
    fn model(&self) -> PathBuf {
        fs::read_link(self.desk.path("models/street/current/model")).unwrap()
    }

    /// What the builder said of each build.
    fn builds(&self) -> Vec<String> {
        let said = fs::read_to_string(self.desk.path("stub/said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }
}

/// Makes and signs a bundle of the network, without pictures: the stub's engines detect nothing.
fn make(desk: &Desk, version: &str, more: &[&str]) {
    let out = format!("DIR/street-{version}.visiond");
    let args = ["make", "DIR/tiny.onnx", "--name", "street", "--version", version, "-o", &out];
    desk.succeed(&[&args, more].concat());
    desk.succeed(&["sign", &out, "--key", "DIR/team.key"]);
}

#[test]
fn a_device_builds_the_engine_of_a_bundle_while_nothing_else_wants_the_cores() {
    let device = Device::new();
    fs::write(device.desk.path("10.3.0-sm87-stub.timing"), "measured on another device").unwrap();
    make(&device.desk, "1", &["--build", "--fp16 --workspace-mb 512", "--timing-cache", "DIR/10.3.0-sm87-stub.timing"]);
    let output = device.install("1", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("street 1: builds an engine for this machine's GPU"), "{}", stderr(&output));
    assert_eq!(device.model(), Path::new("built/model.engine"));
    assert_eq!(device.builds(), ["nice 19, policy 5, limited 1, timings 1"]);
    let record = fs::read(device.desk.path("models/street/current/model.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["options"], serde_json::json!(["--fp16", "--workspace-mb=512"]));
    assert_eq!((&record["onnx"]["path"], &record["gpu"]), (&"tiny.onnx".into(), &"Stub".into()));
    let store = device.desk.path("models");
    assert_eq!(record["rebuild"], format!("visiond bundle rebuild street --store {}", store.display()));
    let inspected = device.run(&["bundle", "inspect", "--json", "DIR/street-1.visiond"]);
    let build = &json_lines(&inspected.stdout.iter().filter(|byte| **byte != b'\n').copied().collect::<Vec<_>>())[0];
    assert_eq!(build["manifest"]["model"][0]["build"]["flags"], serde_json::json!(["--fp16", "--workspace-mb=512"]));
}

#[test]
fn a_device_without_a_gpu_uses_the_onnx_model_unless_the_bundle_forbids_it() {
    let desk = Desk::new();
    desk.make("1", &["--build", "--fp16"]);
    let output = desk.install("1", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let wanted = "tiny.onnx: this machine has no GPU to build an engine for, so the ONNX model is used";
    assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    assert_eq!(fs::read_link(desk.path("models/street/current/model")).unwrap(), Path::new("tiny.onnx"));
    desk.make("2", &["--build", "", "--fallback", "never"]);
    refused(&desk.install("2", &[]), MODEL, "this machine has no GPU that `visiond probe` finds");
    assert_eq!(desk.versions(), [Some(1), None]);
}

#[test]
fn a_gpu_that_cannot_build_refuses_the_version_unless_the_bundle_allows_the_onnx_model() {
    let device = Device::new();
    fs::write(device.desk.path("stub/refuse"), "").unwrap();
    make(&device.desk, "1", &["--build", "--fp16"]);
    refused(&device.install("1", &[]), MODEL, "no engine of tiny.onnx can be built: ");
    assert!(!device.desk.path("models/street/current").exists());
    make(&device.desk, "2", &["--build", "--fp16", "--fallback", "always"]);
    // The engine itself may also be of no use.
    for plan in [PLAN, "refuse the plan is of no use"] {
        fs::write(device.desk.path("stub/plan"), plan).unwrap();
        let output = device.install("2", &["--again"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let wanted = "tiny.onnx: no engine can be used, so the ONNX model is: ";
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
        assert_eq!(device.model(), Path::new("tiny.onnx"));
        assert!(!device.desk.path("models/street/current/built").exists(), "no engine is left");
        let _ = fs::remove_file(device.desk.path("stub/refuse"));
    }
    fs::write(device.desk.path("stub/wait"), "").unwrap();
    let slow = device.install("2", &["--again", "--build-timeout", "1s"]);
    let wanted = "it took more than 1 s to build an engine of the model: allow more with --build-timeout";
    assert!(slow.status.success() && stderr(&slow).contains(wanted), "{}", stderr(&slow));
}

#[test]
fn a_build_that_is_killed_is_begun_again_and_a_half_written_engine_is_never_used() {
    let device = Device::new();
    make(&device.desk, "1", &["--build", ""]);
    device.desk.succeed(&["publish", "DIR/street-1.visiond", "DIR/published"]);
    fs::write(device.desk.path("stub/wait"), "").unwrap();
    let mut following = device.follow().stderr(Stdio::null()).spawn().unwrap();
    let state = || fs::read_to_string(device.desk.path("models/street/rollout.toml")).unwrap_or_default();
    wait_until("the build", || state().contains("step = \"building\""));
    let built = device.desk.path("models/street/candidate/built");
    wait_until("the folder of the engine", || built.exists());
    following.kill().unwrap();
    following.wait().unwrap();
    assert!(!device.desk.path("models/street/current").exists());
    // What a write that was cut would leave.
    fs::write(built.join("model.engine"), "ftrt").unwrap();
    fs::remove_file(device.desk.path("stub/wait")).unwrap();
    // A process that was just being started keeps the lock of the killed one until it runs.
    let mut output = None;
    wait_until("the lock", || {
        let followed = device.follow().output().unwrap();
        let is_free = !stderr(&followed).contains("another `visiond bundle follow` uses");
        output = Some(followed);
        is_free
    });
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(device.model(), Path::new("built/model.engine"));
    let engine = fs::read(device.desk.path("models/street/current/built/model.engine")).unwrap();
    assert_eq!(engine.len(), 64 + PLAN.len());
    assert_eq!(device.builds().len(), 1, "the first build ended with its parent");
    assert!(state().contains("step = \"up_to_date\""), "{}", state());
}

#[test]
fn after_an_update_of_tensorrt_the_engine_is_built_again_and_the_error_says_how() {
    let device = Device::new();
    make(&device.desk, "1", &["--build", ""]);
    assert!(device.install("1", &[]).status.success());
    device.install_tensorrt(100_301);
    let bench = ["bench", "--model", "DIR/models/street/current/model", "--frames", "1", "--warmup", "0"];
    let old = device.run(&bench);
    refused(&old, MODEL, "visiond bundle rebuild street --store ");
    fs::write(device.desk.path("stub/refuse"), "").unwrap();
    let rebuild = ["bundle", "rebuild", "street", "--store", "DIR/models"];
    refused(&device.run(&rebuild), MODEL, "no engine of tiny.onnx can be built: ");
    assert_eq!(fs::read_link(device.desk.path("models/street/current")).unwrap(), Path::new("1"));
    fs::remove_file(device.desk.path("stub/refuse")).unwrap();
    let output = device.run(&rebuild);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read_link(device.desk.path("models/street/current")).unwrap(), Path::new("1.2"));
    assert_eq!(device.desk.versions(), [Some(1), None]);
    let new = device.run(&bench);
    assert!(new.status.success(), "{}", stderr(&new));
    refused(&device.run(&["bundle", "rebuild", "other", "--store", "DIR/models"]), 1, "no bundle named other is");
}

#[test]
fn flags_that_a_device_could_not_use_are_refused_where_the_bundle_is_made() {
    let desk = Desk::new();
    for (flags, words) in [
        ("--fp17", "unexpected argument '--fp17'"),
        ("--fp16 --bf16", "cannot be used with"),
        ("--fp16 -f", "shape the engine, not \"-f\""),
        ("--output x.engine", "must have flags of `visiond build` that shape the engine, not \"--output=x.engine\""),
    ] {
        let made =
            desk.bundle(&["make", "DIR/tiny.onnx", "--name", "a", "--version", "1", "-o", "DIR/a", "--build", flags]);
        refused(&made, 2, words);
    }
    let never = ["make", "DIR/tiny.toml", "--name", "a", "--version", "1", "-o", "DIR/a", "--build", "--fp16"];
    refused(&desk.bundle(&never), 2, "--build requires an .onnx model: name one");
}
