//! A daemon that a user starts by hand, without `[http]` and without systemd: the commands find it.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Output, Stdio};

use visiond_tests::web::Place;
use visiond_tests::{Daemon, command, root, stderr};

fn config() -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[[model]]\nname = \"tiny\"\npath = \"{}\"\n[[camera]]\nname = \"bars\"\n\
         source = {{ type = \"pattern\", width = 64, height = 48, fps = 20.0 }}\n[[sink]]\ntype = \"file\"\n\
         path = \"{{dir}}/out.jsonl\"\n",
        tiny.display()
    )
}

/// A daemon of the user with this runtime folder. It is running when this returns.
fn start(runtime: &Path) -> Daemon {
    let mut daemon = Daemon::start_with(&config(), |command| {
        command.env("XDG_RUNTIME_DIR", runtime);
    });
    daemon.wait_until("messages and a line about HTTP", |daemon| {
        daemon.count("out.jsonl") > 0 && daemon.log().contains("http: ")
    });
    daemon
}

/// Runs a command of the same user, in a folder without a configuration.
fn ask(runtime: &Path, args: &[&str]) -> Output {
    let mut command = command();
    command.args(args).env("XDG_RUNTIME_DIR", runtime).current_dir(runtime).stdin(Stdio::null());
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_commands_find_a_daemon_that_was_started_by_hand() {
    let runtime = tempfile::tempdir().unwrap();
    let daemon = start(runtime.path());
    let socket = runtime.path().join("visiond/http.sock");
    assert!(daemon.log().contains(&format!("http: serving at unix:{}", socket.display())), "{}", daemon.log());
    let folder = std::fs::metadata(runtime.path().join("visiond")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700, "for this user only");

    assert!(stdout(&ask(runtime.path(), &["top", "--once"])).contains("\nbars"));
    assert!(stdout(&ask(runtime.path(), &["reload"])).contains("nothing has changed"));
    let trace = daemon.path("trace.json");
    stdout(&ask(runtime.path(), &["trace", "--seconds", "1", "-o", trace.to_str().unwrap()]));
    assert!(std::fs::read_to_string(&trace).unwrap().contains("traceEvents"));
    let config = daemon.path("visiond.toml");
    let check = ask(runtime.path(), &["check", "--against-running", config.to_str().unwrap()]);
    assert!(stdout(&check).contains("a reload would change nothing"));

    assert_eq!(daemon.terminate().status.code(), Some(0));
    assert!(!socket.exists(), "it is removed");
}

#[test]
fn a_second_daemon_of_a_user_runs_without_the_socket_and_leaves_it_to_the_first() {
    let runtime = tempfile::tempdir().unwrap();
    let first = start(runtime.path());
    let second = start(runtime.path());
    assert_eq!(second.log().matches("http: listening nowhere").count(), 1, "{}", second.log());
    assert!(second.log().contains("is served by another process"), "{}", second.log());
    let ended = second.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);

    let socket = Place::Unix(runtime.path().join("visiond/http.sock"));
    let status = socket.get("/api/v1/status").json();
    assert_eq!(status["config"], first.path("visiond.toml").to_str().unwrap(), "{status}");
}

#[test]
fn a_stale_socket_hides_neither_the_service_nor_the_next_daemon() {
    let runtime = tempfile::tempdir().unwrap();
    let killed = start(runtime.path());
    killed.signal(libc::SIGKILL);
    let _killed = killed.finish();
    let socket = runtime.path().join("visiond/http.sock");
    assert!(std::fs::symlink_metadata(&socket).unwrap().file_type().is_socket(), "the file stays");
    let top = ask(runtime.path(), &["top", "--once"]);
    assert!(stderr(&top).contains("unix:/run/visiond/http.sock"), "{}", stderr(&top));

    let _next = start(runtime.path());
    UnixStream::connect(&socket).unwrap();
    assert!(stdout(&ask(runtime.path(), &["top", "--once"])).contains("\nbars"));
}

#[test]
fn a_named_configuration_finds_only_the_daemon_that_runs_it() {
    let runtime = tempfile::tempdir().unwrap();
    let daemon = start(runtime.path());
    let own = daemon.path("visiond.toml");
    let (other, link) = (runtime.path().join("other.toml"), runtime.path().join("link.toml"));
    std::fs::copy(&own, &other).unwrap();
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for own in [&own, &link] {
        assert!(stdout(&ask(runtime.path(), &["top", "--once", own.to_str().unwrap()])).contains("\nbars"));
    }
    let other = other.to_str().unwrap();
    for args in [&["top", "--once", other][..], &["trace", "--seconds", "1", "-o", "-", other], &["reload", other]] {
        let asked = ask(runtime.path(), args);
        assert!(!asked.status.success(), "{args:?}");
        assert!(stderr(&asked).contains("unix:/run/visiond/http.sock"), "{}", stderr(&asked));
    }
    let check = ask(runtime.path(), &["check", "--against-running", other]);
    assert!(stdout(&check).contains("a reload would change nothing"), "a draft");
}

#[test]
fn a_daemon_waits_for_no_lock_and_follows_no_link_to_its_socket() {
    let runtime = tempfile::tempdir().unwrap();
    let folder = runtime.path().join("visiond");
    std::fs::create_dir(&folder).unwrap();
    let locked = std::fs::File::open(&folder).unwrap();
    locked.lock().unwrap();
    let daemon = start(runtime.path());
    assert!(daemon.log().contains("another daemon of this user is starting"), "{}", daemon.log());
    assert_eq!(daemon.terminate().status.code(), Some(0));

    let runtime = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    std::fs::set_permissions(target.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(target.path(), runtime.path().join("visiond")).unwrap();
    let daemon = start(runtime.path());
    assert!(daemon.log().contains("visiond is a file or a link: remove it"), "{}", daemon.log());
    assert_eq!(target.path().metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(target.path().read_dir().unwrap().count(), 0);
}

#[test]
fn without_a_folder_that_is_the_users_alone_the_log_says_that_it_listens_nowhere() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::set_permissions(shared.path(), PermissionsExt::from_mode(0o777)).unwrap();
    for runtime in [shared.path(), Path::new("/nowhere"), Path::new("")] {
        let daemon = start(runtime);
        assert!(daemon.log().contains("http: listening nowhere; set [http] `listen`"), "{}", daemon.log());
        assert_eq!(daemon.terminate().status.code(), Some(0));
    }
    assert!(!shared.path().join("visiond").exists());
}
