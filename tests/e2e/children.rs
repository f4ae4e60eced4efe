//! Programs that visiond starts inherit no secret, no descriptor and no variable of the service; ffmpeg may open only its own
//! files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use visiond_tests::{Daemon, wait_until};

/// The variables that systemd passes to the service, and one of the user's.
const VARIABLES: [(&str, &str); 11] = [
    ("CREDENTIALS_DIRECTORY", "/run/credentials/visiond.service"),
    ("NOTIFY_SOCKET", ""),
    ("LISTEN_PID", "1"),
    ("LISTEN_FDS", "1"),
    ("LISTEN_FDNAMES", "http"),
    ("WATCHDOG_PID", "1"),
    ("MEMORY_PRESSURE_WATCH", "/sys/fs/cgroup/memory.pressure"),
    ("JOURNAL_STREAM", "8:1"),
    ("INVOCATION_ID", "0123"),
    ("SYSTEMD_EXEC_PID", "1"),
    ("GST_DEBUG", "0"),
];

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A daemon with these sources and systemd's variables, in whose folder `tools` has a stand-in for ffmpeg.
fn daemon(cameras: &str, script: &str) -> Daemon {
    let tools = tempfile::tempdir().unwrap();
    program(
        &tools.path().join("ffprobe"),
        r#"echo '{"streams":[{"codec_name":"x","width":16,"height":16,"pix_fmt":"yuv420p"}],"format":{"duration":"1"}}'"#,
    );
    program(&tools.path().join("ffmpeg"), script);
    let cameras = cameras.replace("{tools}", tools.path().to_str().unwrap());
    let config = format!(
        "[log]\nlevel = \"debug\"\n[engine]\nbackend = \"rten\"\n[[model]]\nname = \"n\"\npath = \"{{model}}\"\n\
         [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n{cameras}"
    );
    let mut daemon = Daemon::start_with(&config, |command| {
        // The log must not contain its name.
        command.envs(VARIABLES).env_remove("RUST_BACKTRACE");
    });
    daemon.wait_for_log("the program is done");
    // The stand-in must exist until it has run.
    drop(tools);
    daemon
}

/// Prints the descriptors and variables that the program has from visiond.
const REPORT: &str = r#"env | sed 's/^/has variable /' >&2
for descriptor in /proc/$$/fd/*; do echo "has descriptor $descriptor" >&2; done
"#;

fn has_nothing_of_the_service(log: &str) {
    let variables: Vec<_> = log.lines().filter_map(|line| Some(line.split_once("has variable ")?.1)).collect();
    assert!(variables.contains(&"GST_DEBUG=0"), "{log}");
    for (name, _) in &VARIABLES[..10] {
        assert!(!variables.iter().any(|variable| variable.starts_with(name)), "{name} in\n{log}");
    }
    // The shell also has its script and the folder that it lists.
    let descriptors = log.lines().filter(|line| line.contains("has descriptor ")).count();
    assert!((3..=5).contains(&descriptors), "{log}");
}

#[test]
fn a_command_gets_no_variable_and_no_descriptor_of_the_service() {
    let script = format!("{REPORT}echo the program is done >&2; sleep 3600");
    let camera = "[[camera]]\nname = \"c\"\n[camera.source]\ntype = \"command\"\ncommand = [\"{tools}/ffmpeg\"]\n";
    let daemon = daemon(camera, &script);
    has_nothing_of_the_service(&daemon.terminate().log);
}

#[test]
fn what_a_command_has_started_does_not_outlive_a_daemon_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = folder.path().join("numbers");
    let script = format!(
        "sleep 3600 & sh -c 'sleep 3600 & echo $! >>{0}.new; wait' &\necho $! >>{0}.new\n\
         until [ $(wc -l <{0}.new) = 2 ]; do sleep 0.01; done\nmv {0}.new {0}\necho the program is done >&2; wait",
        numbers.display()
    );
    let camera = "[[camera]]\nname = \"c\"\n[camera.source]\ntype = \"command\"\ncommand = [\"{tools}/ffmpeg\"]\n";
    let daemon = daemon(camera, &script);
    let numbers: Vec<u32> = fs::read_to_string(&numbers).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let is_alive = |number: &u32| {
        // A zombie is dead; its parent may not have waited for it yet.
        fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(numbers.len() == 2 && numbers.iter().all(is_alive), "{numbers:?}");
    daemon.signal(libc::SIGKILL);
    wait_until("the end of what the command has started", || !numbers.iter().any(is_alive));
}

#[test]
fn ffmpeg_reads_its_video_and_no_configuration_and_writes_nothing() {
    let script = r#"
for file in {dir}/film.mp4 {dir}/visiond.toml {dir}/out.jsonl; do
  (: <$file) && echo "may read $file" >&2 || echo "may not read $file" >&2
done
(: >$0.new) && echo may write >&2 || echo may not write >&2
echo the program is done >&2
sleep 3600"#;
    let of = |more: &str, log_of: fn(&str)| {
        let folder = tempfile::tempdir().unwrap();
        let film = folder.path().join("film.mp4");
        fs::write(&film, "x").unwrap();
        let dir = folder.path().to_str().unwrap();
        for name in ["visiond.toml", "out.jsonl"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let camera = format!(
            "[[camera]]\nname = \"v\"\n[camera.source]\ntype = \"video\"\nurl = \"{dir}/film.mp4\"\n\
             [ffmpeg]\nprogram = \"{{tools}}/ffmpeg\"\n{more}"
        );
        let daemon = daemon(&camera, &format!("{REPORT}{}", script.replace("{dir}", dir)));
        let log = daemon.terminate().log.replace(dir, "DIR");
        has_nothing_of_the_service(&log);
        log_of(&log);
    };
    of("", |log| {
        let confined =
            log.lines().find(|line| line.contains("ffmpeg: confined by ")).unwrap_or_else(|| panic!("{log}"));
        assert!(log.contains("may read DIR/film.mp4"), "{log}");
        // A kernel without Landlock says so.
        if !confined.contains("no Landlock") && !confined.contains("neither") {
            for denied in ["may not read DIR/visiond.toml", "may not read DIR/out.jsonl", "may not write"] {
                assert!(log.contains(denied), "{denied} is not in\n{log}");
            }
        }
    });
    of("confined = false\n", |log| {
        assert!(log.contains("may read DIR/visiond.toml") && !log.contains("confined by"), "{log}");
    });
}
