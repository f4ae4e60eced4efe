//! `visiond probe`: shows the hardware and software of this machine, and what visiond would choose.

mod discover;
pub(super) mod gpu;
mod http;
mod network;
mod rtsp;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use visiond_capture::Buffers;
use visiond_config::types::{BufferConfig, CameraName};
use visiond_engine::tensorrt;
use visiond_ground::jetson::is_jetson;
use visiond_kernels::buffer::MemoryKind;
use visiond_kernels::cuda::Device;
use visiond_system::board::{self, Board};
use visiond_system::child_process::isolate;
use visiond_system::confinement;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::find_program::find_program;

use crate::cameras::{self, Camera};
use crate::output::{labelled, print_report};
use crate::sample_model;
use crate::value_parsers::duration;
use crate::version::{EngineFacts, TENSORRT, engines};
use gpu::Gpus;

/// Show backends, GPUs, ffmpeg and cameras of this machine, and what visiond would choose
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Show only this camera, with every size and rate; named as by a configuration's `device`
    #[arg(short, long, value_name = "CAMERA")]
    camera: Option<CameraName>,

    #[command(flatten)]
    network: network::NetworkArgs,

    /// Search the local networks for ONVIF cameras: asks by multicast, then queries the streams of each camera that answers,
    /// without a password
    #[arg(long, conflicts_with_all = ["camera", "network"])]
    discover: bool,

    /// How long --discover waits for answers; Ctrl-C ends the wait
    #[arg(long, value_name = "TIME", default_value = "4s", requires = "discover", value_parser = duration)]
    wait: Duration,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Print whether there is a GPU that CUDA can use (used by the parent process)
    #[arg(long, hide = true, conflicts_with_all = ["camera", "network", "discover"])]
    has_gpu: bool,
}

const AFTER_HELP: &str = "\
Examples:
  visiond probe
  visiond probe --json | jq '.cameras[].device'
  visiond probe --camera /dev/video0   list every size and rate of a camera
  visiond probe --discover             search the networks for ONVIF cameras
  visiond probe --rtsp rtsp://192.168.1.20/stream1 --login ./gate.login
  visiond probe --rtsp rtsps://192.168.1.20/stream1 --insecure
  visiond probe --http http://192.168.1.30/video.mjpg

Exit status: 0; with --camera, --rtsp or --http 5 if that camera cannot be used, with --discover 5 without a network.";

/// The report, printed as JSON or text.
#[derive(Debug, Serialize)]
struct ProbeReport {
    version: &'static str,
    machine: ProbedMachine,
    engines: Vec<EngineFacts>,
    gpu: Gpus,
    programs: Vec<ExternalProgram>,
    /// The sandbox that confines ffmpeg.
    confinement: confinement::Available,
    systemd: bool,
    cameras: Vec<Camera>,
    chosen: Defaults,
}

#[derive(Debug, Serialize)]
struct ProbedMachine {
    arch: &'static str,
    #[serde(flatten)]
    board: Board,
    /// Number of cores that this process may use.
    cores: usize,
}

/// A program that visiond may start.
#[derive(Debug, Serialize)]
struct ExternalProgram {
    name: &'static str,
    path: Option<PathBuf>,
    /// The first line of its version output.
    version: Option<String>,
    /// How to install it if it is missing.
    remedy: Option<&'static str>,
}

/// The choices that visiond would make without further settings.
#[derive(Debug, Serialize)]
struct Defaults {
    /// The backend for `.onnx` files.
    engine: &'static str,
    /// The backend for `.engine` files, if a GPU and TensorRT are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    prebuilt: Option<&'static str>,
    /// The memory kind of frames for the faster of the two.
    memory: &'static str,
    /// The path of the sample model, if found.
    model: Option<PathBuf>,
    /// The configuration of the first camera, as TOML.
    camera: Option<String>,
}

const INSTALL_FFMPEG: &str = "install it for video files and streams (Debian and Ubuntu: apt install ffmpeg)";

const INSTALL_GSTREAMER: &str = "install it to decode RTSP cameras with the board's engine (apt install gstreamer1.0-tools \
                                 gstreamer1.0-plugins-bad)";

/// Prints the findings.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    if let Some(url) = &args.network.rtsp {
        return rtsp::run(url, &args.network, args.json);
    }
    if let Some(url) = &args.network.http {
        return http::run(url, &args.network, args.json);
    }
    if args.discover {
        return discover::run(args.wait, args.json);
    }
    if args.has_gpu {
        return gpu::print_whether_there_is_one();
    }
    let root = board::root();
    let mut engines = engines();
    let gpu = Gpus::find(&root);
    // Loading the plugins runs TensorRT's code, so do it only if a GPU is open.
    if gpu.available
        && let Some(found) = engines.iter_mut().find(|engine| engine.name == TENSORRT)
        && let Ok(library) = tensorrt::Library::get(None)
    {
        let _ = write!(found.description, ", {}", library.plugins());
    }
    let buffers = buffers(&engines, &gpu);
    if let Some(name) = &args.camera {
        return run_camera(name, &buffers, args.json);
    }
    let cameras = cameras::all(&buffers);
    // `auto` takes the first available one; rten is always available.
    let there = |engine: &&EngineFacts| engine.available;
    let engine = engines.iter().filter(there).find(|engine| engine.name != TENSORRT).map_or("rten", |found| found.name);
    let prebuilt = engines
        .iter()
        .find(|engine| engine.name == TENSORRT)
        .filter(there)
        .and(gpu.devices.first())
        .map(|gpu| gpu.frames);
    let report = ProbeReport {
        version: env!("CARGO_PKG_VERSION"),
        machine: ProbedMachine {
            arch: std::env::consts::ARCH,
            board: Board::read(&root),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        },
        programs: programs(&root),
        confinement: confinement::available(),
        systemd: Path::new("/run/systemd/system").is_dir(),
        chosen: Defaults {
            engine,
            prebuilt: prebuilt.map(|_| TENSORRT),
            memory: prebuilt.unwrap_or(MemoryKind::Host.name()),
            model: sample_model::path().ok(),
            camera: cameras.iter().find(|camera| camera.error.is_none()).and_then(|camera| camera.toml.clone()),
        },
        engines,
        gpu,
        cameras,
    };
    print_report(args.json, &report, text)
}

/// Returns the buffers that frames would use: memory that the GPU sees, if TensorRT can run there.
fn buffers(engines: &[EngineFacts], gpu: &Gpus) -> Buffers {
    let runs = engines.iter().any(|engine| engine.name == TENSORRT && engine.available);
    let index = gpu.devices.first().filter(|_| runs).map(|gpu| gpu.index);
    let device = index.and_then(|index| Device::open(index).ok());
    Buffers::new(&BufferConfig::default(), device.as_ref()).unwrap_or_default()
}

/// Prints the description of one camera.
fn run_camera(name: &CameraName, buffers: &Buffers, json: bool) -> Result<Exit, ExitError> {
    let camera = cameras::one(name, buffers).map_err(|error| ExitError::new(Exit::Input, error))?;
    print_report(json, &camera, |camera| {
        let lines = camera.lines(true).into_iter().map(|(head, text)| labelled(head, &text));
        lines.chain(camera.toml.iter().map(|toml| format!("\nConfiguration of this camera:\n\n{toml}"))).collect()
    })?;
    Ok(if camera.error.is_some() { Exit::Input } else { Exit::Success })
}

/// Finds ffmpeg, ffprobe and, on a Jetson, GStreamer.
fn programs(root: &Path) -> Vec<ExternalProgram> {
    let program = |name| external(name, name, "-version", INSTALL_FFMPEG);
    let mut programs = vec![program("ffmpeg"), program("ffprobe")];
    if is_jetson(root) {
        programs.push(external("gstreamer", "gst-launch-1.0", "--version", INSTALL_GSTREAMER));
    }
    programs
}

fn external(name: &'static str, program: &str, option: &str, remedy: &'static str) -> ExternalProgram {
    let path = find_program(Path::new(program));
    let version = path.as_ref().and_then(|path| {
        let mut command = Command::new(path);
        isolate(&mut command);
        let output = command.arg(option).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
    });
    let remedy = path.is_none().then_some(remedy);
    ExternalProgram { name, path, version, remedy }
}

fn text(report: &ProbeReport) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| out += &labelled(name, value);
    let ProbedMachine { arch, board, cores } = &report.machine;
    line("visiond", report.version);
    if let Some(name) = &board.name {
        line("machine", name);
    }
    let gib = |bytes: u64| format!(", {:.1} GiB of memory", bytes as f64 / 1_073_741_824.0);
    let memory = board.memory_bytes.map_or_else(String::new, gib);
    line("processor", &format!("{arch}, {}{memory}", visiond_config::diagnostics::count(*cores, "core")));
    let release = board.release().map_or_else(String::new, |release| format!("{release}, "));
    line("system", &format!("{release}{}, Linux {}", board.system, board.kernel));
    line("systemd", if report.systemd { "running" } else { "not running" });
    for engine in &report.engines {
        let state = if engine.available { "" } else { "not available: " };
        line(engine.name, &format!("{state}{}", engine.description));
    }
    for gpu in report.gpu.lines() {
        line("gpu", &gpu);
    }
    for decoder in report.gpu.decoder_lines() {
        line("nvdec", &decoder);
    }
    for program in &report.programs {
        let missing = || format!("missing: {}", program.remedy.unwrap_or_default());
        let found = program.path.as_ref().map(|path| {
            let version = program.version.as_deref().unwrap_or("unknown version");
            format!("{version} ({})", path.display())
        });
        line(program.name, &found.unwrap_or_else(missing));
    }
    line("confinement", &format!("ffmpeg runs confined by {}", report.confinement));
    for (head, text) in report.cameras.iter().flat_map(|camera| camera.lines(false)) {
        line(head, &text);
    }
    if report.cameras.is_empty() {
        line("cameras", "no V4L2 camera; video files, streams, programs and image folders also work as sources");
    }
    let model = report.chosen.model.as_ref().map_or("none found".to_owned(), |path| path.display().to_string());
    let Defaults { engine, prebuilt, memory, .. } = &report.chosen;
    let frames = |memory: &str| format!("frames in {memory} memory");
    if let Some(prebuilt) = prebuilt {
        let why = report
            .gpu
            .devices
            .first()
            .and_then(|gpu| gpu.why.as_ref())
            .map_or(String::new(), |why| format!(" ({why})"));
        line("would run", &format!(".engine files with {prebuilt}, {}{why}", frames(memory)));
    }
    let slower = if *engine == "rten" { ", two to five times slower than ONNX Runtime" } else { "" };
    line("would run", &format!(".onnx files with {engine}{slower}, {}", frames(MemoryKind::Host.name())));
    line("sample", &model);
    if let Some(snippet) = &report.chosen.camera {
        let _ = write!(out, "\nConfiguration of the first camera:\n\n{snippet}");
    }
    if report.cameras.is_empty() {
        let _ = write!(out, "\n{OTHER_SOURCES}\n\n{}", configuration_without_camera(report.chosen.model.as_deref()));
    }
    out
}

const OTHER_SOURCES: &str = "\
Without a V4L2 camera:

  visiond probe --discover                    search the networks for ONVIF cameras
  visiond probe --rtsp rtsp://ADDRESS/STREAM  ask a network camera, and print its configuration
  visiond probe --http http://ADDRESS/PATH    the same for MJPEG and snapshots over HTTP
  visiond detect FILE                         detect objects in a picture or video

Configuration that runs without a camera (`visiond run FILE`):";

/// Returns a complete configuration with the test pattern as its camera.
fn configuration_without_camera(model: Option<&Path>) -> String {
    let (path, comment) = match model {
        // A path in a configuration is relative to that file's folder.
        Some(path) => (std::path::absolute(path).unwrap_or_else(|_| path.to_owned()), ""),
        None => ("model.onnx".into(), "   # the sample model is not installed: name one of yours"),
    };
    format!(
        "[[model]]\nname = \"objects\"\npath = {}{comment}\n\n\
         [[camera]]\nname = \"camera\"\nsource = {{ type = \"pattern\" }}   # or {{ type = \"video\", url = \"FILE\" }}\n\n\
         [[sink]]\ntype = \"stdout\"\n",
        visiond_config::quote(&path.display().to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jetsons_text_and_json_have_its_jetpack() {
        let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards/orin-nano-36.4.3");
        let facts = ProbeReport {
            version: "0",
            machine: ProbedMachine { arch: "aarch64", board: Board::read(&board), cores: 6 },
            engines: Vec::new(),
            gpu: Gpus::find(&board),
            programs: Vec::new(),
            confinement: confinement::Available { seccomp: true, landlock: 7 },
            systemd: true,
            cameras: Vec::new(),
            chosen: Defaults { engine: "rten", prebuilt: None, memory: "host", model: None, camera: None },
        };
        let text = text(&facts);
        let machine = "machine      NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\n";
        let system = "system       JetPack 6.2 (L4T 36.4.3), Ubuntu 22.04 LTS, Linux 5.15.148-tegra\n";
        assert!(text.contains(machine) && text.contains(system), "{text}");
        assert!(
            text.contains("visiond probe --discover  ") && text.ends_with("[[sink]]\ntype = \"stdout\"\n"),
            "{text}"
        );
        let names = |root| programs(root).iter().map(|program| program.name).collect::<Vec<_>>();
        assert_eq!(names(&board), ["ffmpeg", "ffprobe", "gstreamer"]);
        assert_eq!(names(Path::new("/nonexistent")), ["ffmpeg", "ffprobe"]);
        let json = serde_json::to_value(&facts.machine).unwrap();
        assert_eq!((&json["l4t"], &json["jetpack"], &json["cores"]), (&"36.4.3".into(), &"6.2".into(), &6.into()));
    }

    #[test]
    fn without_a_camera_the_text_ends_with_a_configuration_that_runs() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models/nanodet-g-416.onnx");
        for model in [Some(sample.as_path()), None] {
            let snippet = configuration_without_camera(model);
            let config = match visiond_config::types::Config::parse(&snippet, Path::new("/etc/visiond.toml")) {
                Ok(config) => config,
                Err(errors) => panic!("{errors}"),
            };
            assert_eq!((config.models.len(), config.cameras.len(), config.sinks.len()), (1, 1, 1));
            assert_eq!(config.models[0].path.is_file(), model.is_some(), "{snippet}");
        }
    }

    #[test]
    fn a_program_that_is_missing_has_a_remedy() {
        let missing = external("none", "no-such-program-here", "-version", INSTALL_FFMPEG);
        assert_eq!((missing.path, missing.remedy), (None, Some(INSTALL_FFMPEG)));
    }

    #[test]
    fn the_report_has_a_line_for_each_backend_program_camera_and_choice() {
        let backend = |name, available, description: &str| EngineFacts {
            name,
            available,
            description: description.to_owned(),
            path: None,
            version: None,
        };
        let program = |name, path: Option<&str>, version: Option<&str>| ExternalProgram {
            name,
            path: path.map(PathBuf::from),
            version: version.map(str::to_owned),
            remedy: path.is_none().then_some(INSTALL_FFMPEG),
        };
        let board = Board {
            name: None,
            system: "Debian 12".to_owned(),
            kernel: "6.1".to_owned(),
            l4t: None,
            jetpack: None,
            memory_bytes: Some(3 << 29),
        };
        let mut camera = Camera::default();
        (camera.device, camera.error) = ("/dev/video0".into(), Some("is busy".to_owned()));
        let mut facts = ProbeReport {
            version: "1.2.3",
            machine: ProbedMachine { arch: "x86_64", board, cores: 1 },
            engines: vec![backend(TENSORRT, false, "no library"), backend("onnxruntime", true, "ONNX Runtime 1.20")],
            gpu: Gpus {
                available: false,
                reason: Some("no driver".to_owned()),
                driver: None,
                cuda: None,
                devices: Vec::new(),
            },
            programs: vec![
                program("ffmpeg", Some("/usr/bin/ffmpeg"), Some("ffmpeg 7.1")),
                program("old", Some("/bin/old"), None),
                program("ffprobe", None, None),
            ],
            confinement: confinement::Available { seccomp: false, landlock: 0 },
            systemd: false,
            cameras: vec![camera],
            chosen: Defaults {
                engine: "onnxruntime",
                prebuilt: Some(TENSORRT),
                memory: "mapped",
                model: Some("/models/n.onnx".into()),
                camera: Some("[[camera]]\n".to_owned()),
            },
        };
        let expected = format!(
            "\
visiond      1.2.3
processor    x86_64, 1 core, 1.5 GiB of memory
system       Debian 12, Linux 6.1
systemd      not running
tensorrt     not available: no library
onnxruntime  ONNX Runtime 1.20
gpu          not available: no driver
ffmpeg       ffmpeg 7.1 (/usr/bin/ffmpeg)
old          unknown version (/bin/old)
ffprobe      missing: {INSTALL_FFMPEG}
confinement  ffmpeg runs confined by nothing: this kernel has neither seccomp nor Landlock
camera       /dev/video0 is busy
would run    .engine files with tensorrt, frames in mapped memory
would run    .onnx files with onnxruntime, frames in host memory
sample       /models/n.onnx

Configuration of the first camera:

[[camera]]
"
        );
        assert_eq!(text(&facts), expected);
        (facts.chosen.engine, facts.chosen.prebuilt, facts.chosen.model) = ("rten", None, None);
        let text = text(&facts);
        let slower =
            "would run    .onnx files with rten, two to five times slower than ONNX Runtime, frames in host memory\n";
        assert!(text.contains(&format!("{slower}sample       none found\n")) && !text.contains(".engine"), "{text}");
    }
}
