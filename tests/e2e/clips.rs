//! Clips of events: of a network camera's own stream, and of masked frames.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use visiond_tests::{Daemon, root, stderr};

use crate::documents::assert_valid;
use crate::live::ask;
use crate::preview::film;
use crate::rtsp::Server;

/// Grey, with a green bar, which the model finds, and a magenta one.
const BARS: &str =
    "drawbox=x=96:y=0:w=48:h=288:color=0x00ff00:t=fill,drawbox=x=192:y=0:w=48:h=288:color=0xff00ff:t=fill";
/// Covers the magenta bar.
const MASK: &str = "[[camera.privacy]]\npolygon = [[0.48, 0], [0.65, 0], [0.65, 1], [0.48, 1]]\n";
/// A visit begins with the first frames, and lasts.
const ZONE: &str = "[camera.track]\nclasses = [\"green\"]\n[[camera.zone]]\nname = \"here\"\nhold = \"10 s\"\n";
const CLIPS: &str =
    "[camera.clips]\ndirectory = \"{dir}/clips\"\nbefore = \"1 s\"\nafter = \"1 s\"\nlongest = \"3 s\"\n";

fn config(cameras: &[(&str, &str, &str)]) -> String {
    let mut config = format!(
        "[engine]\nbackend = \"rten\"\nthreads = 1\n[http]\nlisten = [\"unix:{{dir}}/http.sock\"]\n\
         [[model]]\nname = \"tiny\"\npath = \"{}\"\n\
         [[sink]]\ntype = \"file\"\npath = \"{{dir}}/events.jsonl\"\nmessages = [\"events\"]\n",
        root().join("tests/vm/tiny.onnx").display(),
    );
    for (name, source, tables) in cameras {
        config += &format!("[[camera]]\nname = \"{name}\"\n[camera.source]\n{source}\n{ZONE}{CLIPS}{tables}");
    }
    config
}

/// The stored clips of a camera.
fn clips(daemon: &Daemon, camera: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(daemon.path("clips")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.filter(|path| name(path).starts_with(&format!("{camera}-")) && name(path).ends_with(".mp4")).collect()
}

/// Codec, size and number of frames, all of which can be decoded.
pub fn decoded(clip: &Path) -> (String, usize) {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-i"]).arg(clip);
    // In the clip's own units of time: in those of its frame rate, two frames may have one time.
    decode.args(["-fps_mode", "passthrough", "-enc_time_base", "-1", "-f", "null", "-"]);
    let output = decode.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", clip.display(), stderr(&output));
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-count_frames", "-of", "json", "-show_entries"]);
    probe.arg("stream=codec_name,width,height,nb_read_frames").arg(clip);
    let told: Value = serde_json::from_slice(&probe.output().unwrap().stdout).unwrap();
    let stream = &told["streams"][0];
    let codec = format!("{} {}x{}", stream["codec_name"].as_str().unwrap(), stream["width"], stream["height"]);
    (codec, stream["nb_read_frames"].as_str().unwrap().parse().unwrap())
}

/// The share of pixels of a clip that are about magenta within the magenta bar, away from the boxes that are drawn.
fn marked(clip: &Path) -> f64 {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-i"]).arg(clip).args(["-vf", "crop=24:200:204:60"]);
    let decoded = decode.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]).output().unwrap();
    assert!(decoded.status.success() && !decoded.stdout.is_empty(), "{}", stderr(&decoded));
    let pixels = decoded.stdout.chunks_exact(3);
    let (all, is_marked) = (pixels.len(), |rgb: &&[u8]| rgb[0] > 150 && rgb[1] < 100 && rgb[2] > 150);
    pixels.filter(is_marked).count() as f64 / all as f64
}

/// Streams JPEGs over HTTP to each client, ten per second.
fn mjpeg_camera(jpeg: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move |mut client: TcpStream, jpeg: &[u8]| {
        let _ = client.read(&mut [0; 4096]);
        let mut send = |part: &[u8]| client.write_all(part).is_ok();
        let mut goes_on = send(b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n");
        while goes_on {
            let head = format!("--b\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", jpeg.len());
            goes_on = send(&[head.as_bytes(), jpeg, b"\r\n"].concat());
            thread::sleep(Duration::from_millis(100));
        }
    };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let jpeg = jpeg.clone();
            thread::spawn(move || serve(client, &jpeg));
        }
    });
    format!("type = \"mjpeg\"\nurl = \"http://{address}/\"")
}

#[test]
fn a_clip_is_the_cameras_own_stream_unless_it_has_a_mask() {
    let folder = tempfile::tempdir().unwrap();
    let video = folder.path().join("gate.h264");
    film(&video, (384, 288), "gray", BARS);
    let server = Server::start(&video, &["--fps", "10", "--at-end", "loop"]);
    let rtsp = format!("type = \"rtsp\"\nurl = \"rtsp://127.0.0.1:{}/\"", server.port);
    let picture = folder.path().join("gate.jpg");
    let mut made = Command::new("ffmpeg");
    made.args(["-v", "error", "-i"]).arg(&video).args(["-frames:v", "1"]).arg(&picture);
    assert!(made.status().unwrap().success());
    let mjpeg = mjpeg_camera(fs::read(&picture).unwrap());
    let picture = format!("type = \"images\"\npath = \"{}\"\nrepeat = true\nfps = 10", picture.display());
    let cameras = [
        ("own", &*rtsp, "", "h264 384x288"),
        ("masked", &*rtsp, MASK, "mjpeg 384x288"),
        ("jpeg", &*mjpeg, "", "mjpeg 384x288"),
        ("covered", &*mjpeg, MASK, "mjpeg 384x288"),
        ("drawn", &*picture, "", "mjpeg 384x288"),
    ];
    let mut daemon = Daemon::start(&config(&cameras.map(|(name, source, tables, _)| (name, source, tables))));
    daemon.wait_until("the server", |daemon| UnixStream::connect(daemon.path("http.sock")).is_ok());
    let mut status = Value::Null;
    daemon.wait_until("a clip of each camera", |daemon| {
        status = serde_json::from_slice(&ask(daemon, "/api/v1/status", "").bytes()).unwrap();
        let facts = status["cameras"].as_array().unwrap();
        facts.len() == cameras.len() && facts.iter().all(|camera| camera["clips"]["written"].as_u64() >= Some(1))
    });
    // A slow machine may lose the track, and begin another visit.
    let first = cameras.map(|(name, ..)| clips(&daemon, name)[0].clone());
    let listed: Value = serde_json::from_slice(&ask(&daemon, "/api/v1/events", "").bytes()).unwrap();
    assert_valid(&status);
    let ended = daemon.terminate();
    assert!(ended.status.success(), "{}", ended.log);
    let events = ended.daemon.messages("events.jsonl");
    events.iter().for_each(assert_valid);
    for ((camera, _, mask, codec), clip) in cameras.into_iter().zip(first) {
        let (found, frames) = decoded(&clip);
        assert_eq!(found, codec, "{camera}");
        // How many come in the time of a clip depends on the machine. The tests of the recorder count them.
        assert!(frames >= 2, "{camera}: {frames}\n{}", ended.log);
        // A mask leaves nothing of the bar, in any frame.
        let share = marked(&clip);
        assert!(if mask.is_empty() { share > 0.9 } else { share == 0.0 }, "{camera}: {share}");
        // Begin and end have the name of the file.
        let name = clip.file_name().unwrap().to_str().unwrap();
        let of_clip = |event: &&Value| event["clip"] == name;
        assert_eq!(events.iter().filter(of_clip).count(), 2, "{camera}: {events:?}");
        assert!(listed["events"].as_array().unwrap().iter().any(|event| of_clip(&event)), "{listed}");
        assert!(ended.log.contains("  clips: "), "{}", ended.log);
    }
    let left = fs::read_dir(ended.daemon.path("clips")).unwrap().map(|entry| entry.unwrap().file_name());
    let unfinished: Vec<_> = left.filter(|name| !name.to_str().unwrap().ends_with(".mp4")).collect();
    assert!(unfinished.is_empty() || ended.log.contains("not stored in time"), "{unfinished:?}");
}

/// With H.265 and UDP; and a mask that a reload adds while a clip is under way.
#[test]
fn a_mask_that_a_reload_adds_leaves_nothing_of_a_clip_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let video = folder.path().join("gate.h265");
    let input = "color=gray:size=384x288:rate=10:duration=2";
    let mut made = Command::new("ffmpeg");
    made.args(["-v", "error", "-f", "lavfi", "-i", input, "-vf", BARS, "-pix_fmt", "yuv420p", "-c:v", "libx265"]);
    made.args(["-x265-params", "keyint=10:bframes=0:log-level=error", "-f", "hevc"]).arg(&video);
    assert!(made.status().unwrap().success());
    let server = Server::start(&video, &["--fps", "10", "--at-end", "loop"]);
    let source = format!("type = \"rtsp\"\nurl = \"rtsp://127.0.0.1:{}/\"\ntransport = \"udp\"", server.port);
    let with = |mask: &str, longest: &str| {
        config(&[("gate", &source, mask)]).replace("longest = \"3 s\"", &format!("longest = \"{longest}\""))
    };
    let mut daemon = Daemon::start(&with("", "3 s"));
    daemon.wait_until("a clip", |daemon| !clips(daemon, "gate").is_empty());
    let own = clips(&daemon, "gate")[0].clone();
    let (codec, frames) = decoded(&own);
    assert!(codec == "hevc 384x288" && frames >= 2, "{codec} {frames}");
    let status_of = |daemon: &Daemon, clip: &Path| {
        let event = clip.file_stem().unwrap().to_str().unwrap().strip_prefix("gate-").unwrap();
        ask(daemon, &format!("/api/v1/events/{event}/clip"), "").status
    };
    let shown = |daemon: &Daemon| status_of(daemon, &own);
    assert_eq!(shown(&daemon), 200);
    // It stays while the camera is off, and when it is on again.
    let off = config(&[("gate", &source, ""), ("other", "type = \"pattern\"", "")]);
    daemon.reconfigure(&off.replace("name = \"gate\"\n", "name = \"gate\"\nenabled = false\n"));
    let cameras = |daemon: &Daemon| {
        let status: Value = serde_json::from_slice(&ask(daemon, "/api/v1/status", "").bytes()).unwrap();
        status["cameras"].as_array().unwrap().iter().map(|camera| camera["name"].to_string()).collect::<Vec<_>>()
    };
    daemon.wait_until("the camera to be off", |daemon| cameras(daemon) == ["\"other\""]);
    assert_eq!(shown(&daemon), 200);

    // Longer than the test.
    daemon.reconfigure(&with("", "1 h").replace("\"here\"", "\"there\""));
    let under_way = |daemon: &Daemon| {
        let files = fs::read_dir(daemon.path("clips")).unwrap().map(|entry| entry.unwrap());
        files.filter(|file| file.file_name().to_str().unwrap().starts_with(".gate-")).count()
    };
    daemon.wait_until("a clip under way", |daemon| under_way(daemon) == 1);
    assert_eq!(shown(&daemon), 200);
    daemon.reconfigure(&with(MASK, "3 s").replace("\"here\"", "\"there\""));
    daemon.wait_for_log("privacy mask");
    daemon.wait_until("the clip to be hidden, which has frames without the mask", |daemon| shown(daemon) == 404);
    daemon.wait_until("a masked clip", |daemon| clips(daemon, "gate").len() == 2);
    let masked = clips(&daemon, "gate").into_iter().find(|clip| *clip != own).unwrap();
    assert_eq!(status_of(&daemon, &masked), 200);
    // Also while the camera is off.
    daemon.reconfigure(&off.replace("name = \"gate\"\n", "name = \"gate\"\nenabled = false\n"));
    daemon.wait_until("the camera to be off", |daemon| cameras(daemon) == ["\"other\""]);
    daemon.wait_until("the clip with another mask to be hidden", |daemon| status_of(daemon, &masked) == 404);
    // A mask that comes in the reload that switches the camera off: there will be no frame with it.
    let stored = |daemon: &Daemon| clips(daemon, "gate").into_iter().collect::<BTreeSet<_>>();
    daemon.wait_until("the last clip to be stored", |daemon| under_way(daemon) == 0);
    let before = stored(&daemon);
    daemon.reconfigure(&with("", "1 h").replace("\"here\"", "\"again\""));
    daemon.wait_until("a clip under way once more", |daemon| under_way(daemon) == 1);
    let off = config(&[("gate", &source, MASK), ("other", "type = \"pattern\"", "")]);
    daemon.reconfigure(&off.replace("name = \"gate\"\n", "name = \"gate\"\nenabled = false\n"));
    daemon.wait_until("the camera to be off", |daemon| cameras(daemon) == ["\"other\""]);
    daemon.wait_until("the clip to be gone", |daemon| under_way(daemon) == 0);
    assert_eq!(stored(&daemon), before);
    let ended = daemon.terminate();
    let stored = clips(&ended.daemon, "gate");
    assert!(stored.contains(&own), "stored clips stay");
    for clip in stored.iter().filter(|clip| **clip != own) {
        assert_eq!(decoded(clip).0, "mjpeg 384x288");
        assert_eq!(marked(clip), 0.0, "{} shows what is masked", clip.display());
    }
    let in_time = !ended.log.contains("not stored in time");
    assert!(under_way(&ended.daemon) == 0 || !in_time, "nothing is left of the one under way");
}
