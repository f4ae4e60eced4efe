//! Cameras over HTTP: another visiond acts as the camera and serves its images.

use std::fs;
use std::net::TcpStream;

use serde_json::{Value, json};
use visiond_tests::port::Port;
use visiond_tests::{Daemon, root, run, stderr};

/// A model, and a sink that a test can count.
fn config(more: &str) -> String {
    let tiny = root().join("tests/vm/tiny.onnx");
    format!(
        "[engine]\nthreads = 1\n\n[[model]]\nname = \"tiny\"\npath = \"{}\"\n\n[[sink]]\ntype = \"file\"\npath = \
         \"{{dir}}/out.jsonl\"\n\n{more}",
        tiny.display()
    )
}

#[test]
fn probe_finds_the_type_of_a_url_and_its_configuration_plays() {
    let port = Port::reserve();
    let address = format!("127.0.0.1:{}", port.number);
    let served = format!(
        "[http]\nlisten = [\"{address}\"]\n\n[[camera]]\nname = \"door\"\nsource = {{ type = \"pattern\", width = 320, height = 240, \
         fps = 30 }}\n"
    );
    let mut camera = Daemon::start(&config(&served));
    camera.wait_until("a message and the port", |camera| {
        camera.count("out.jsonl") > 0 && TcpStream::connect(&address).is_ok()
    });
    let mut sources = String::new();
    for (number, (path, kind)) in [("stream.mjpeg", "mjpeg"), ("snapshot.jpg", "snapshot")].into_iter().enumerate() {
        let url = format!("http://{address}/cameras/door/{path}");
        let told = run(["probe", "--json", "--http", &url, "--watch", "5s"]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{}", stderr(&told)));
        assert_eq!(
            (&told["source"], &told["width"], &told["height"]),
            (&json!(kind), &json!(320), &json!(240)),
            "{told}"
        );
        assert_eq!(told["watched"].is_object(), kind == "mjpeg", "{told}");
        sources += &told["toml"].as_str().unwrap().replace("\"camera\"", &format!("\"seen-{number}\""));
    }
    let mut seer = Daemon::start(&config(&sources));
    let has_both = |seer: &Daemon| {
        let messages = seer.messages("out.jsonl");
        ["seen-0", "seen-1"].iter().all(|name| messages.iter().filter(|message| message["camera"] == *name).count() > 1)
    };
    seer.wait_until("messages of both", |seer| has_both(seer));
    let ended = seer.terminate();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.log.contains("camera seen-0: mjpeg http://") && ended.log.contains("jpeg, 320x240"), "{}", ended.log);
    // A page is no camera, and a login is a file.
    let page = run(["probe", "--http", &format!("http://{address}/")]);
    assert_eq!(page.status.code(), Some(5));
    assert!(stderr(&page).contains("a page (HTML"), "{}", stderr(&page));
    let login = run(["probe", "--http", &format!("http://{address}/"), "--login", "admin:haddock"]);
    assert!(login.status.code() == Some(2) && !stderr(&login).contains("haddock"), "{}", stderr(&login));
    assert!(camera.terminate().status.success());
}

#[test]
fn a_login_that_comes_later_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let login = folder.path().join("login");
    // Nothing listens there; the test needs only the logged error.
    let port = Port::reserve();
    let source = format!(
        "[[camera]]\nname = \"gate\"\nsource = {{ type = \"mjpeg\", url = \"http://127.0.0.1:{}/\", login = \"{}\" }}\n",
        port.number,
        login.display()
    );
    let mut daemon = Daemon::start(&config(&source));
    daemon.wait_for_log("camera gate: cannot read the login");
    fs::write(&login, "me:secret\n").unwrap();
    daemon.wait_for_log("cannot connect to 127.0.0.1");
    assert!(daemon.terminate().status.success());
}
