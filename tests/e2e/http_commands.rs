//! Commands and changes of masks by HTTP, and edits of the file that are not in force yet.

use std::path::Path;

use serde_json::{Value, json};
use visiond_tests::web::Place;
use visiond_tests::{Daemon, root};

use crate::http::token_file;

/// A daemon whose clients may change its file, in a folder with the token that must live as long.
struct Changeable {
    daemon: Daemon,
    http: Place,
    folder: tempfile::TempDir,
}

impl Changeable {
    fn start(cameras: &str) -> Self {
        let (folder, _) = token_file();
        let mut daemon = Daemon::start(&config(folder.path(), cameras));
        let http = Place::socket(&mut daemon);
        Self { daemon, http, folder }
    }

    fn rewrite(&self, cameras: &str) {
        self.daemon.rewrite(&config(self.folder.path(), cameras));
    }

    /// Asks for new settings below `/api/v1/cameras/`; returns the status of the answer.
    fn set(&self, path: &str, settings: &Value) -> u16 {
        let path = format!("/api/v1/cameras/{path}/settings");
        self.http.ask("POST", &path, &["Content-Type: application/json"], &settings.to_string()).status
    }

    fn enabled(&self, camera: &str) -> bool {
        self.http.get(&format!("/api/v1/cameras/{camera}/settings")).json()["enabled"] == true
    }

    /// Reloads; returns the outcome.
    fn reload(&self) -> Value {
        self.http.ask("POST", "/api/v1/reload", &[], "").json()
    }

    fn end(self) {
        let ended = self.daemon.terminate();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    }
}

fn config(folder: &Path, cameras: &str) -> String {
    let (tiny, token) = (root().join("tests/vm/tiny.onnx"), folder.join("token"));
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\ntoken = \"{}\"\n\
         allow_changes = true\n[[model]]\nname = \"bars\"\npath = \"{}\"\n\
         [[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n{cameras}",
        token.display(),
        tiny.display()
    )
}

const YARD: &str = "[[camera]]\nname = \"yard\"\nsource = { type = \"pattern\", width = 128, height = 64, fps = 20 }\n";

#[test]
fn a_reload_refuses_a_camera_whose_device_a_command_has_given_to_another_one() {
    let cameras = |door: bool, spare: bool| {
        let camera = |name: &str, enabled: bool| {
            format!(
                "[[camera]]\nname = \"{name}\"\nenabled = {enabled}\nsource = {{ type = \"v4l2\", device = \"/dev/video98\" }}\n"
            )
        };
        [camera("door", door), camera("spare", spare), YARD.to_owned()].concat()
    };
    let visiond = Changeable::start(&cameras(true, false));
    let switch = |name: &str, on: bool| visiond.set(name, &json!({ "enabled": on }));
    assert_eq!((switch("spare", true), switch("door", false), switch("spare", true)), (409, 200, 200));
    visiond.rewrite(&cameras(false, false));
    assert_eq!(visiond.reload()["applied"], true);
    visiond.rewrite(&cameras(true, false));
    let refused = visiond.reload();
    let why = "a command has switched camera spare on, which uses the same device as camera door";
    assert!(refused["error"].as_str().is_some_and(|error| error.contains(why)), "{refused}");
    assert!(!visiond.enabled("door") && visiond.enabled("spare"));
    // With the remedy, the same file is accepted.
    assert_eq!(switch("spare", false), 200);
    assert_eq!(visiond.reload()["applied"], true);
    assert!(visiond.enabled("door") && !visiond.enabled("spare"));
    visiond.end();
}

#[test]
fn masks_that_are_in_force_do_not_go_without_a_question_when_the_file_has_lost_them() {
    let mask = |left: f64| format!("[[camera.privacy]]\npolygon = [[{left}, 0.0], [1.0, 0.0], [1.0, 1.0]]\n");
    let door = YARD.replace("yard", "door");
    let both = [&door, &*mask(0.5), YARD, &mask(0.25)].concat();
    let visiond = Changeable::start(&both);
    let put = |uncover: bool| {
        let path = "/api/v1/cameras/door/shapes";
        let version = visiond.http.get(path).header("ETag").unwrap().to_owned();
        let body = json!({ "privacy": [], "ignore": [], "line": [], "zone": [], "uncover": uncover }).to_string();
        let headers = ["Content-Type: application/json", &format!("If-Match: {version}")];
        let answer = visiond.http.ask("PUT", path, &headers, &body);
        (answer.status, answer.json())
    };
    // Both masks are removed from the file, which is not reloaded.
    visiond.rewrite(&[&door, YARD].concat());
    let (status, problem) = put(false);
    assert_eq!(
        (status, &problem["uncovers"], &problem["cameras"]),
        (409, &json!(2), &json!(["door", "yard"])),
        "{problem}"
    );
    // One that is in the file and in force counts once.
    visiond.rewrite(&both);
    let (status, problem) = put(false);
    assert_eq!((status, &problem["uncovers"], &problem["cameras"]), (409, &json!(1), &json!(["door"])), "{problem}");
    assert_eq!(put(true).0, 200);
    assert_eq!(put(false).0, 200, "the door has none left");
    visiond.end();
}
