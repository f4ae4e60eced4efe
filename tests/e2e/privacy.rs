//! Privacy masks: a colour that only the masked area has is searched in every output of a daemon. Ignore masks and reloads of both.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use visiond_tests::mosquitto::Mosquitto;
use visiond_tests::port::Port;
use visiond_tests::web::Place;
use visiond_tests::{Daemon, root, run, stderr};

use crate::live::{ask, field, head};
use crate::preview::{film, serve};

/// Width and height of the frames.
const SIZE: [usize; 2] = [256, 128];
/// The fifth of eight upright parts is magenta, the others are grey.
const MARKED: std::ops::Range<usize> = 128..160;
/// The area of the marker, in pixels and in fractions.
const OVER_IT: &str =
    "[[camera.privacy]]\npolygon = [[128, 0], [160, 0], [160, 128], [128, 128]]\nframe_size = [256, 128]\n";
const IGNORED: &str = "[[camera.ignore]]\npolygon = [[0.5, 0.9], [0.625, 0.9], [0.625, 1], [0.5, 1]]\n";

/// A frame of NV12, BT.601 in limited range.
fn frame() -> Vec<u8> {
    let is_marked = |x: usize| MARKED.contains(&x);
    let luma = (0..SIZE[1]).flat_map(|_| (0..SIZE[0]).map(|x| if is_marked(x) { 106 } else { 126 }));
    let pair = |pair: usize| if is_marked(2 * pair) { [202, 222] } else { [128, 128] };
    let chroma = (0..SIZE[1] / 2).flat_map(|_| (0..SIZE[0] / 2).flat_map(pair));
    luma.chain(chroma).collect()
}

/// The configuration of a camera whose program repeats the frame; `tables` are those of the camera.
fn config(tables: &str) -> String {
    let [width, height] = SIZE;
    format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\nmax_fps = 20.0\n\
         [[model]]\nname = \"tiny\"\npath = \"{}\"\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n\
         [[camera]]\nname = \"stays\"\nsource = {{ type = \"pattern\", width = 128, height = 64, fps = 20.0 }}\n\
         [[camera]]\nname = \"door\"\n[camera.source]\ntype = \"command\"\ncontainer = \"raw\"\nformat = \"nv12\"\n\
         width = {width}\nheight = {height}\ncolor_matrix = \"bt601\"\ncolor_range = \"limited\"\n\
         command = [\"sh\", \"-c\", \"while :; do cat {{dir}}/frame; sleep 0.02; done\"]\n\
         [camera.annotate]\ndirectory = \"{{dir}}/pictures\"\nevery = 1\nformat = \"png\"\nkeep = 0\n{tables}",
        root().join("tests/vm/tiny.onnx").display(),
    )
}

fn start(tables: &str) -> Daemon {
    start_as(&config(tables))
}

/// Starts a daemon whose camera's program finds the frame.
fn start_as(config: &str) -> Daemon {
    let mut daemon = Daemon::start_with(config, |command| {
        let folder = Path::new(command.get_args().last().unwrap()).parent().unwrap().to_owned();
        fs::write(folder.join("frame"), frame()).unwrap();
    });
    daemon.wait_until("messages and the socket", |daemon| {
        labels(daemon).len() >= 3 && UnixStream::connect(daemon.path("http.sock")).is_ok()
    });
    daemon
}

/// The labels in each message about the door, in order.
fn labels(daemon: &Daemon) -> Vec<Vec<String>> {
    let of_door = daemon.messages("out.jsonl").into_iter().filter(|message| message["camera"] == "door");
    let label = |detection: &Value| detection["label"].as_str().unwrap().to_owned();
    of_door.map(|message| message["detections"].as_array().unwrap().iter().map(label).collect()).collect()
}

/// The share of an image's pixels that are about magenta, decoded by ffmpeg.
fn marked_pixels(image: &[u8]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, image).unwrap();
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-i"]).arg(&path).args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    let decoded = decode.output().unwrap();
    assert!(decoded.status.success() && !decoded.stdout.is_empty(), "{}", stderr(&decoded));
    let pixels = decoded.stdout.chunks_exact(3);
    let (all, is_marked) = (pixels.len(), |rgb: &&[u8]| rgb[0] > 150 && rgb[1] < 100 && rgb[2] > 150);
    pixels.filter(is_marked).count() as f64 / all as f64
}

/// The next `count` images of a stream.
fn stream(daemon: &Daemon, camera: &str, count: usize) -> Vec<Vec<u8>> {
    let mut parts = BufReader::new(ask(daemon, &format!("/cameras/{camera}/stream.mjpeg"), "").chunked());
    let next = |_| {
        let head = head(&mut parts);
        let mut jpeg = vec![0; field(&head, "content-length").unwrap().parse().unwrap()];
        parts.read_exact(&mut jpeg).unwrap();
        parts.read_exact(&mut [0; 2]).unwrap();
        jpeg
    };
    (0..count).map(next).collect()
}

/// Every image that a daemon gives: stored ones, snapshots with and without boxes, the stream, and those of `visiond capture`.
fn images(daemon: &mut Daemon) -> Vec<(String, Vec<u8>)> {
    let mut images = Vec::new();
    for path in ["/cameras/door/snapshot.jpg", "/cameras/door/snapshot.jpg?overlay=1", "/api/v1/cameras/door/snapshot"]
    {
        images.push((path.to_owned(), ask(daemon, path, "").bytes()));
    }
    images.extend(stream(daemon, "door", 3).into_iter().map(|jpeg| ("stream.mjpeg".to_owned(), jpeg)));
    let stored = |daemon: &Daemon| fs::read_dir(daemon.path("pictures")).map_or(0, Iterator::count);
    daemon.wait_until("stored images", |daemon| stored(daemon) >= 5);
    let (config, shots) = (daemon.path("visiond.toml"), daemon.path("shots"));
    let [config, shots] = [&config, &shots].map(|path| path.to_str().unwrap());
    let captured = run(["capture", "--config", config, "--camera", "door", "-n", "2", "-o", shots]);
    assert!(captured.status.success(), "{}", stderr(&captured));
    for folder in ["pictures", "shots"] {
        let files = fs::read_dir(daemon.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        // The newest may not be whole yet under its temporary name.
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "png")).take(5) {
            images.push((file.display().to_string(), fs::read(file).unwrap()));
        }
    }
    images
}

#[test]
fn what_a_mask_covers_is_in_no_message_and_no_image() {
    let mut open = start("");
    assert!(labels(&open).iter().all(|labels| labels.contains(&"magenta".to_owned())), "the model finds the marker");
    for (image, bytes) in images(&mut open) {
        assert!(marked_pixels(&bytes) > 0.05, "{image} does not show the marker without a mask");
    }
    drop(open);
    for (fill, label) in [("", "black"), ("fill = [0, 0, 255]\n", "blue")] {
        let mut masked = start(&format!("{OVER_IT}{fill}"));
        for (image, bytes) in images(&mut masked) {
            assert_eq!(marked_pixels(&bytes), 0.0, "{image} shows the marker");
        }
        let ended = masked.terminate();
        assert!(ended.log.contains("1 privacy mask"), "{}", ended.log);
        assert!(labels(&ended.daemon).iter().all(|labels| labels == &[label]), "the model sees the mask");
    }
}

#[test]
fn a_preview_has_the_masks_of_its_camera() {
    let folder = tempfile::tempdir().unwrap();
    let bar = |width: u32| format!("drawbox=x={}:y=0:w={}:h=ih:color=0xff00ff:t=fill", width / 2, width / 8);
    film(&folder.path().join("main.h264"), (384, 288), "gray", &bar(384));
    film(&folder.path().join("small.h264"), (192, 108), "gray", &bar(192));
    let main = serve(&folder.path().join("main.h264"), 0);
    let port = Port::reserve();
    let _preview = serve(&folder.path().join("small.h264"), port.number);
    fs::write(folder.path().join("login"), "gate:swordfish\n").unwrap();
    let start = |mask: &str| {
        let config = format!(
            "[engine]\nbackend = \"rten\"\nthreads = 1\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\nmax_fps = 20.0\n\
             [[model]]\nname = \"tiny\"\npath = \"{}\"\n[[sink]]\ntype = \"file\"\npath = \"{{dir}}/out.jsonl\"\n\
             [[camera]]\nname = \"gate\"\n[camera.source]\ntype = \"rtsp\"\nurl = \"rtsp://127.0.0.1:{}/main\"\n\
             preview_url = \"rtsp://127.0.0.1:{}/small\"\nlogin = \"{}\"\n{mask}",
            root().join("tests/vm/tiny.onnx").display(),
            main.port,
            port.number,
            folder.path().join("login").display(),
        );
        let mut daemon = Daemon::start(&config);
        daemon.wait_until("messages and the socket", |daemon| {
            daemon.count("out.jsonl") >= 3 && UnixStream::connect(daemon.path("http.sock")).is_ok()
        });
        // Until the preview plays, people see the model's frames.
        let seen = stream(&daemon, "gate", 40);
        let is_small = |jpeg: &&Vec<u8>| visiond_kernels::jpeg::JpegDecoder::new().header(jpeg).unwrap().width == 192;
        let last = seen.iter().rfind(is_small).expect("the preview plays");
        (marked_pixels(last), marked_pixels(&seen[0]))
    };
    assert!(start("").0 > 0.05, "the preview shows the marker");
    // Two pixels more than the marker, whose edges a lossy stream blurs.
    let mask = "[[camera.privacy]]\npolygon = [[0.48, 0], [0.645, 0], [0.645, 1], [0.48, 1]]\n";
    assert_eq!(start(mask), (0.0, 0.0));
}

#[test]
fn a_reload_masks_every_later_frame_and_an_ignored_area_reopens_nothing() {
    let mut daemon = start("");
    daemon.reconfigure(&config(OVER_IT));
    daemon.wait_for_log("camera door opened again");
    daemon
        .wait_until("masked frames", |daemon| labels(daemon).iter().any(|labels| labels.contains(&"black".to_owned())));
    let more = |daemon: &mut Daemon, labels_of: &dyn Fn(&Daemon) -> usize| {
        let before = labels_of(daemon);
        daemon.wait_until("more messages", |daemon| labels_of(daemon) >= before + 10);
    };
    more(&mut daemon, &|daemon| labels(daemon).len());
    let seen = labels(&daemon);
    let first = seen.iter().position(|labels| labels.contains(&"black".to_owned())).unwrap();
    let late = seen[first..].iter().filter(|labels| labels.contains(&"magenta".to_owned())).count();
    assert_eq!(late, 0, "frames without the mask after the first one with it");

    daemon.reconfigure(&config(&format!("{OVER_IT}{IGNORED}")));
    daemon.wait_for_log("ignored areas of camera door added");
    daemon.wait_until("messages without the ignored object", |daemon| labels(daemon).last().is_some_and(Vec::is_empty));
    more(&mut daemon, &|daemon| labels(daemon).len());
    assert!(labels(&daemon).iter().rev().take(10).all(Vec::is_empty));
    let ended = daemon.terminate();
    assert_eq!(ended.log.matches("camera door opened again").count(), 1, "{}", ended.log);
    let stays: Vec<_> = ended.daemon.messages("out.jsonl").into_iter().filter(|m| m["camera"] == "stays").collect();
    assert!(stays.len() >= 10);
    assert!(!ended.log.contains("camera stays opened again"), "{}", ended.log);
}

#[test]
fn once_a_reload_has_answered_no_output_shows_a_frame_without_the_new_mask() {
    // The second model takes so long that each reload finds it at work on a frame with the old masks.
    let slow = |tables: &str| {
        let model = "[[model]]\nname = \"slow\"\npath = \"{model}\"\n";
        let config = config(tables).replace("[[sink]]", &format!("{model}[[sink]]"));
        let config = config.replace("[[camera]]\nname = \"stays\"", "[[camera]]\nname = \"stays\"\nmodel = \"tiny\"");
        config.replace("name = \"door\"\n", "name = \"door\"\nmodels = [\"tiny\", \"slow\"]\n")
    };
    let mut daemon = start_as(&slow(""));
    let of_slow = |daemon: &Daemon| {
        let messages = daemon.messages("out.jsonl");
        messages.iter().filter(|message| message["model"]["name"] == "slow").count()
    };
    daemon.wait_until("a message of the slow model", |daemon| of_slow(daemon) >= 1);
    let place = Place::socket(&mut daemon);
    let stored = |daemon: &Daemon| -> BTreeSet<_> {
        fs::read_dir(daemon.path("pictures")).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let all = [OVER_IT.to_owned(), String::new(), format!("{OVER_IT}fill = [0, 0, 255]\n")];
    // `VISIOND_RELOADS=200` makes it a longer run.
    let reloads = std::env::var("VISIOND_RELOADS").map_or(all.len(), |reloads| reloads.parse().unwrap());
    for masks in all.iter().cycle().take(reloads) {
        // Somebody watches, so that images are waiting.
        drop(stream(&daemon, "door", 2));
        daemon.rewrite(&slow(masks));
        assert_eq!(place.ask("POST", "/api/v1/reload", &[], "").json()["applied"], true);
        let (before, messages) = (stored(&daemon), of_slow(&daemon));
        let mut later = vec![ask(&daemon, "/cameras/door/snapshot.jpg?overlay=1", "").bytes()];
        later.extend(stream(&daemon, "door", 5));
        daemon.wait_until("two runs of the slow model", |daemon| of_slow(daemon) >= messages + 2);
        daemon.wait_until("its image", |daemon| stored(daemon).len() > before.len() + 2);
        let new = stored(&daemon).difference(&before).cloned().collect::<Vec<_>>();
        let whole = new.iter().filter(|path| path.extension().is_some_and(|extension| extension == "png"));
        later.extend(whole.map(|path| fs::read(path).unwrap()));
        let marked = later.iter().filter(|image| marked_pixels(image) > 0.0).count();
        assert_eq!(marked, if masks.is_empty() { later.len() } else { 0 }, "of {} images", later.len());
    }
    let dropped = place.get("/api/v1/cameras/door").json()["dropped"]["unmasked"].as_u64();
    assert!(dropped >= Some(1), "the frames that the slow model had in hand");
}

#[test]
fn the_snapshot_that_a_broker_retains_goes_when_a_mask_is_added() {
    let broker = Mosquitto::start();
    let mqtt = |tables: &str| {
        format!(
            "[device]\nname = \"gate\"\n{}[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://127.0.0.1:{}\"\nsnapshot_interval = \"1h\"\n",
            config(tables),
            broker.port
        )
    };
    let mut daemon = start_as(&mqtt(""));
    let topic = "visiond/gate/cameras/door/snapshot";
    let marked = || broker.retained(topic).last().map(|snapshot| marked_pixels(&snapshot.payload));
    daemon.wait_until("a snapshot", |_| marked().is_some());
    assert!(marked() > Some(0.05));
    daemon.reconfigure(&mqtt(OVER_IT));
    daemon.wait_until("another snapshot an hour before it is due", |_| marked() == Some(0.0));
    // It does not come back.
    daemon.reconfigure(&mqtt(&format!("{OVER_IT}{IGNORED}")));
    daemon.wait_for_log("ignored areas of camera door added");
    assert_eq!(marked(), Some(0.0));
    assert_eq!(daemon.terminate().status.code(), Some(0));
}
