//! A malicious model changes nothing: it is rejected when it is read, or by the trial in a separate process, which runs out
//! of memory or never ends.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use visiond_tests::onnx::{self, Model};
use visiond_tests::{Daemon, assert_no_panic, backends, command, fill, picture, run, stderr, wait_until};

const MODEL: i32 = 4;

/// The models, and the error text of each.
const HOSTILE: [(&str, Model, &str); 4] = [
    ("nested", Model::Nested(20_000), "nested too deeply to be read safely"),
    ("filled", Model::Filled(1e11), "it needs more memory than 512 MiB and six times its size"),
    ("expanded", Model::Expanded(1e9), "it needs more memory than 512 MiB and six times its size"),
    ("loop", Model::Loop, "it did not load and run once within 2 s"),
];

/// A daemon whose model is called good.onnx.
const CONFIG: &str = r#"
[engine]
backend = "rten"
threads = 1

[http]
listen = ["unix:{dir}/http.sock"]

[[model]]
name = "net"
path = "{dir}/good.onnx"

[[camera]]
name = "bars"
source = { type = "pattern", width = 64, height = 48, fps = 50.0 }

[[sink]]
type = "file"
path = "{dir}/out.jsonl"
"#;

/// Starts a daemon with `config`, with every model in its folder.
fn start(config: &str) -> Daemon {
    Daemon::start_with(config, |command| {
        command.env("A_PASSWORD", "kept-to-visiond");
        let path = command.get_args().last().map(Path::new).unwrap();
        write_models(path.parent().unwrap());
    })
}

/// The configuration with the model `name`. The one that never ends gets less time; the result is the same.
fn with_model(config: &str, name: &str) -> String {
    let limit = if name == "loop" { "\nload_timeout = \"2s\"" } else { "" };
    config.replace("good", name).replace("threads = 1", &format!("threads = 1{limit}"))
}

fn write_models(folder: &Path) {
    onnx::write(folder, "good", Model::Good);
    for (name, model, _) in HOSTILE {
        onnx::write(folder, name, model);
    }
}

/// Asserts that a model is refused with its name and the reason.
fn assert_refused(said: &str, name: &str, reason: &str) {
    assert_no_panic(said);
    assert!(said.contains(&format!("{name}.onnx")), "{name} is not named: {said}");
    assert!(said.contains(reason), "{name}: {said}");
}

fn detect(folder: &Path, name: &str, more: &[&str]) -> Output {
    let model = folder.join(name).with_extension("onnx");
    let mut command = command();
    command.args(["detect", "--json"]).args(more).arg("--model").arg(model);
    if name == "loop" {
        command.args(["--load-timeout", "2s"]);
    }
    command.arg(picture("chelsea.png")).stdin(Stdio::null()).output().unwrap()
}

/// Writes `config` and runs `visiond reload`, which uses HTTP.
fn reload(daemon: &Daemon, config: &str) -> Value {
    let path = daemon.path("visiond.toml");
    std::fs::write(&path, fill(config, daemon.folder.path())).unwrap();
    let output = run(["reload".as_ref(), "--json".as_ref(), path.as_os_str()]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// The processes that try a model for the daemon. One that has just been forked still has the daemon's arguments and environment
/// and does not count.
fn trials(daemon: &Daemon) -> Vec<i32> {
    let arguments = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = arguments(&daemon.pid().to_string());
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let started = |pids: String| -> Vec<i32> {
        let pids = pids.split_whitespace().filter(|pid| arguments(pid) != own);
        pids.map(|pid| pid.parse().unwrap()).collect()
    };
    children.flat_map(started).collect()
}

#[test]
fn the_model_to_which_harm_is_added_is_good() {
    let folder = tempfile::tempdir().unwrap();
    write_models(folder.path());
    for backend in backends() {
        let output = detect(folder.path(), "good", &["--backend", backend]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

#[test]
fn detect_refuses_each_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    write_models(folder.path());
    for backend in backends() {
        for (name, _, reason) in HOSTILE {
            let output = detect(folder.path(), name, &["--backend", backend]);
            let said = stderr(&output);
            assert_refused(&said, name, reason);
            assert_eq!(output.status.code(), Some(MODEL), "{said}");
            assert_eq!(said.matches(".onnx").count(), 1, "the error is printed once: {said}");
        }
    }
}

#[test]
fn inspect_describes_each_and_says_why_it_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    write_models(folder.path());
    for (name, _, reason) in HOSTILE {
        let model = folder.path().join(name).with_extension("onnx");
        let limit = if name == "loop" { "--load-timeout=2s" } else { "--load-timeout=10min" };
        let output = run(["inspect".into(), limit.into(), model]);
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_no_panic(&said);
        assert_eq!(output.status.code(), Some(MODEL), "{name}: {said}");
        assert!(said.contains(reason), "{name}: {said}");
    }
}

#[test]
fn a_start_with_one_of_them_is_refused_as_with_any_wrong_model() {
    for backend in backends() {
        for (name, _, reason) in HOSTILE {
            let config = with_model(CONFIG, name).replace("rten", backend);
            let ended = start(&config).finish();
            assert_eq!(ended.status.code(), Some(MODEL), "{}", ended.log);
            assert_refused(&ended.log, name, reason);
        }
    }
}

#[test]
fn a_reload_with_one_of_them_leaves_everything_as_it_runs() {
    for backend in backends() {
        let config = CONFIG.replace("rten", backend);
        let mut daemon = start(&config);
        daemon.wait_until("detections", |daemon| daemon.count("out.jsonl") > 5);
        for (name, _, reason) in HOSTILE {
            let before = daemon.count("out.jsonl");
            let outcome = reload(&daemon, &with_model(&config, name));
            assert_eq!((outcome["applied"].as_bool(), outcome["exit_status"].as_i64()), (Some(false), Some(4)));
            assert_refused(outcome["error"].as_str().unwrap(), name, reason);
            daemon.wait_until("more detections", |daemon| daemon.count("out.jsonl") > before + 5);
            assert!(trials(&daemon).is_empty(), "no process is left");
        }
        let peak = daemon.memory_kib("VmHWM") / 1024;
        assert!(peak < 512, "{peak} MiB");
        let outcome = reload(&daemon, &config);
        assert_eq!(outcome["applied"], true, "{outcome}");
        let ended = daemon.terminate();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert_eq!(ended.log.matches("configuration rejected;").count(), HOSTILE.len(), "{}", ended.log);
    }
}

#[test]
fn a_trial_that_never_ends_ends_with_the_daemon() {
    let mut daemon = start(CONFIG);
    daemon.wait_until("detections", |daemon| daemon.count("out.jsonl") > 5);
    daemon.reconfigure(&CONFIG.replace("good", "loop").replace("threads", "load_timeout = \"1h\"\nthreads"));
    daemon.wait_until("the trial", |daemon| !trials(daemon).is_empty());
    let trial = trials(&daemon)[0];
    // The owner may not read the process once it has restricted itself.
    if let Ok(environment) = std::fs::read(format!("/proc/{trial}/environ")) {
        assert!(!String::from_utf8_lossy(&environment).contains("kept-to-visiond"));
    }
    let ended = daemon.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!ended.log.contains("shutdown did not finish within 2 s"), "{}", ended.log);
    wait_until("the end of the trial", || !Path::new(&format!("/proc/{trial}")).exists());
}

#[test]
fn a_model_that_needs_more_memory_than_usual_gets_it_where_that_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    onnx::write(folder.path(), "large", Model::Filled(1e8));
    for backend in backends() {
        let with = |limit| detect(folder.path(), "large", &["--backend", backend, "--load-memory", limit]);
        let refused = with("64MiB");
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(MODEL), "{said}");
        assert!(
            said.contains("it needs more memory than 64 MiB and six times its size; if you trust it, raise"),
            "{said}"
        );
        let accepted = with("1GiB");
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    }
}

#[test]
fn a_model_whose_memory_runs_out_at_the_cards_size_is_not_one_of_another_size() {
    let folder = tempfile::tempdir().unwrap();
    let model = onnx::write(folder.path(), "squared", Model::Squared);
    let card = model.with_extension("toml");
    let plain = std::fs::read_to_string(&card).unwrap();
    // The first is not a multiple of 32, which would be rejected for another reason.
    for side in [330, 320] {
        std::fs::write(&card, format!("{plain}[input]\nsize = [{side}, {side}]\n")).unwrap();
        for backend in backends() {
            let refused = detect(folder.path(), "squared", &["--backend", backend]);
            let said = stderr(&refused);
            assert_eq!(refused.status.code(), Some(MODEL), "{said}");
            assert!(said.contains("raise `load_memory_bytes` in [engine], or --load-memory"), "{said}");
            assert!(!said.contains("size = ["), "{said}");
        }
    }
    // The size that the model declares needs little.
    std::fs::write(&card, plain).unwrap();
    for backend in backends() {
        let accepted = detect(folder.path(), "squared", &["--backend", backend]);
        assert_eq!(accepted.status.code(), Some(0), "{}", stderr(&accepted));
    }
}

#[test]
fn the_stacks_of_many_threads_fit_into_the_memory_of_a_trial() {
    let folder = tempfile::tempdir().unwrap();
    let model = onnx::write(folder.path(), "good", Model::Good);
    for backend in backends() {
        let mut command = command();
        // As on a machine with this many cores.
        command.args(["bench", "--frames", "1", "--warmup", "0", "--threads", "160", "--load-memory", "64MiB"]);
        command.args(["--backend", backend, "--model"]).arg(&model).arg("--source").arg(picture("chelsea.png"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}
