#![allow(clippy::unwrap_used)]

mod blank;
mod reference;
mod roundtrip;

use super::types::SourceConfig;
use super::*;

fn errors(text: &str) -> String {
    Config::parse(text, Path::new("visiond.toml")).unwrap_err().to_string()
}

/// Only the sentences, with line and column.
fn sentences(text: &str) -> Vec<String> {
    let errors = Config::parse(text, Path::new("visiond.toml")).unwrap_err();
    let sentence = |f: &Diagnostic| format!("{}:{} {}", f.line.unwrap_or(0), f.column.unwrap_or(0), f.message);
    errors.findings.iter().map(sentence).collect()
}

const MODEL: &str = "[[model]]\nname = \"n\"\npath = \"n.onnx\"\n";

#[test]
fn ten_errors_are_ten() {
    let text = r#"[log]
level = "loud"
[engine]
backnd = "auto"
threads = -1
[status]
log_interval = 5
[[model]]
name = "nano det"
path = 5
[[camera]]
name = "a"
model = "the other"
[camera.source]
type = "vidio"
[[camera]]
name = "b"
[camera.source]
type = "pattern"
fps = 0
width = "wide"
"#;
    assert_eq!(
        errors(text),
        r#"visiond.toml:2:9: `log.level` must be one of "off", "error", "warn", "info", "debug", "trace", not "loud"
     2 | level = "loud"
       |         ^^^^^^
       = Log level; each level includes those before it. `--log-level`, `-v` and `-q` on the command line override it (default "info")
visiond.toml:4:1: unknown key `engine.backnd`: did you mean `backend`?
     4 | backnd = "auto"
       | ^^^^^^
visiond.toml:5:11: `engine.threads` must be a whole number from 0 to 1024, not -1
     5 | threads = -1
       |           ^^
       = CPU threads of one inference; 0 uses every core. Fewer leave room for decoding and other programs (default 0)
visiond.toml:7:16: `status.log_interval` must be 0 or a duration from "1 s" to "1 d", not 5: write the unit, "5 s" or "5 ms"
     7 | log_interval = 5
       |                ^
       = Interval of the status line in the log; 0: never. The terminal and systemd get one every second (default "1 min")
visiond.toml:9:8: `model.name` must be a name of 1 to 64 letters (a-z, A-Z), digits, - and _, not "nano det": write "nano-det"
     9 | name = "nano det"
       |        ^^^^^^^^^^
       = Name of the model, for cameras and in messages (required)
visiond.toml:10:8: `model.path` must be a path, not 5
    10 | path = 5
       |        ^
       = The model's file: `.onnx` or `.engine`. A model has either this or `bundle` (optional)
visiond.toml:13:9: `camera.model` must be a name of 1 to 64 letters (a-z, A-Z), digits, - and _, not "the other": write "the-other"
    13 | model = "the other"
       |         ^^^^^^^^^^^
       = The `[[model]]` that processes its frames. Optional if there is only one (optional)
visiond.toml:15:8: `camera.source.type` must be one of "v4l2", "rtsp", "mjpeg", "snapshot", "video", "command", "images", "pattern", not "vidio": did you mean "video"?
    15 | type = "vidio"
       |        ^^^^^^^
       = The type, which decides the other keys (required)
visiond.toml:20:7: `camera.source.fps` must be a number from 0.01 to 1000, not 0
    20 | fps = 0
       |       ^
       = Frames per second (default 30)
visiond.toml:21:9: `camera.source.width` must be a whole number from 1 to 16384, not "wide"
    21 | width = "wide"
       |         ^^^^^^
       = Width in pixels (default 1280)
visiond.toml: 10 errors"#
    );
}

#[test]
fn a_syntax_error_hides_only_its_consequences() {
    let text = "[log]\nlevel = \nlevl = 5\n[engine\nthreads = \"x\"\nthreads = 3\nbackend = \"auto\n";
    let found = sentences(text);
    assert!(found.iter().any(|s| s.starts_with("2:") && s.contains("invalid TOML")), "{found:#?}");
    assert!(found.iter().any(|s| s == "3:1 unknown key `log.levl`: did you mean `level`?"), "{found:#?}");
    assert!(found.iter().any(|s| s.starts_with("4:")), "{found:#?}");
    assert!(found.iter().any(|s| s.starts_with("7:")), "{found:#?}");
    // The camera has no model only because the table's header is broken.
    let found =
        sentences("[[model]\nname = \"n\"\npath = \"n\"\n[[camera]]\nname = \"a\"\nsource.type = \"pattern\"\n");
    assert!(found.iter().all(|s| s.starts_with("1:")), "{found:#?}");
}

#[test]
fn every_unknown_key_is_reported() {
    let text = "levl = 1\n[log]\nlevl = 1\ntarge = 2\nnone = 3\n[engin]\nx = 1\n[[model]]\nname = \"n\"\npath = \"n\"\nscor = 1\nnam = 2\n\
                [[camera]]\nname = \"a\"\ncolour = 1\nsource = { type = \"pattern\", wide = 1, high = 2, fpss = 3 }\n";
    let found = sentences(text);
    let unknown: Vec<_> = found.iter().filter_map(|s| s.split_once(" unknown key `")?.1.split_once('`')).collect();
    let mut keys: Vec<_> = unknown.into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    let expected = [
        "camera.colour",
        "camera.source.fpss",
        "camera.source.high",
        "camera.source.wide",
        "engin",
        "levl",
        "log.levl",
        "log.none",
        "log.targe",
        "model.nam",
        "model.scor",
    ];
    assert_eq!(keys, expected, "{found:#?}");
}

#[test]
fn a_key_of_another_type_is_named_with_the_types_that_have_it() {
    let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"rtsp\", url = \"rtsp://h/1\", pace = \"fastest\", inputs = 1 }\n";
    let found = sentences(&format!("{MODEL}{camera}")).join("|");
    let expected = "unknown key `camera.source.pace`: it is a key of `type = \"video\"` and `type = \"command\"`";
    assert!(found.contains(expected), "{found}");
    assert!(found.contains("unknown key `camera.source.inputs`: the keys of `camera.source` are type, url"), "{found}");
}

#[test]
fn smooth_boxes_need_tracks_and_have_their_place() {
    let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"pattern\" }\n";
    for (text, wanted) in [
        ("smooth = true\n", "`smooth` needs tracks, and this camera has none: add the table `[camera.track]`"),
        ("track.smooth = true\n", "unknown key `camera.track.smooth`: `smooth` belongs in `[[camera]]`"),
        ("track = true\n", "`camera.track` must be a table"),
    ] {
        let found = sentences(&format!("{MODEL}{camera}{text}"));
        assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
    }
    let text = format!("{MODEL}{camera}smooth = true\ntrack = {{}}\n");
    assert!(Config::parse(&text, Path::new("visiond.toml")).is_ok());
}

#[test]
fn messages_are_grouped_of_several_models_only() {
    let models = "[[model]]\nname = \"a\"\npath = \"a.onnx\"\n[[model]]\nname = \"b\"\npath = \"b.onnx\"\n";
    let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"pattern\" }\n";
    let one = "`group` joins the messages of several models, and this camera has one: set `models` to several";
    let alone = "`group_timeout` is for grouped messages: set `group = true`";
    for (text, wanted) in [
        ("model = \"a\"\ngroup = true\n", one),
        ("models = [\"a\"]\ngroup = true\n", one),
        ("models = [\"a\", \"b\"]\ngroup_timeout = \"1 s\"\n", alone),
    ] {
        let found = sentences(&format!("{models}{camera}{text}"));
        assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
    }
    let text = format!("{models}{camera}models = [\"a\", \"b\"]\ngroup = true\ngroup_timeout = \"1 s\"\n");
    assert!(Config::parse(&text, Path::new("visiond.toml")).is_ok());
}

#[test]
fn a_view_is_three_keys_that_are_checked() {
    let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"pattern\", width = 640, height = 480 }\n";
    for (text, wanted) in [
        ("rotate = 45\n", "`camera.rotate` must be 90 or 180 or 270, not 45"),
        ("rotate = 0\n", "`camera.rotate` must be 90 or 180 or 270, not 0"),
        ("flip = \"left\"\n", "`camera.flip` must be \"horizontal\" or \"vertical\""),
        ("crop = 0.5\n", "`camera.crop` must be [x, y, width, height], all pixels or all fractions"),
        ("crop = [0, 0, 10]\n", "`camera.crop` must be four numbers, [x, y, width, height], not 3"),
        ("crop = [0, 0, \"a\", 1]\n", "`camera.crop` must be [x, y, width, height]"),
        ("crop = [-2, 0, 10, 10]\n", "`camera.crop` must have no negative number"),
        ("crop = [0.5, 0.5, 0.0, 0.5]\n", "`camera.crop` is empty"),
        ("crop = [0.5, 0.5, 0.6, 0.5]\n", "`camera.crop` reaches beyond the frame: with a decimal point"),
        ("crop = [0, 0, 1, 1]\n", "`camera.crop` is one pixel wide or high: write fractions with a decimal point"),
        ("crop = [0, 0, 20000, 10]\n", "`camera.crop` reaches beyond the largest frame"),
        (
            "crop = [600, 0, 100, 100]\ncrop_frame_size = [640, 480]\n",
            "the crop [600, 0, 100, 100] is empty or reaches beyond the frame of 640x480 pixels",
        ),
        (
            "crop = [0, 0, 100, 100]\n",
            "`crop` is in pixels, which are another part of a frame of another size: set `crop_frame_size",
        ),
        (
            "crop = [0.5, 0, 0.5, 1]\ncrop_frame_size = [640, 480]\n",
            "`crop` is in fractions of any frame: remove `crop_frame_size`",
        ),
        ("crop_frame_size = [640, 480]\n", "`crop_frame_size` needs `crop`"),
        (
            "crop = [0, 0, 10, 10]\ncrop_frame_size = [640]\n",
            "`camera.crop_frame_size` must be [width, height], two whole numbers from 1 to 16384",
        ),
    ] {
        let found = sentences(&format!("{MODEL}{camera}{text}"));
        assert!(found.len() == 1 && found[0].contains(wanted), "{text}: {found:?}");
    }
    let view = |text: &str| {
        let config = Config::parse(&format!("{MODEL}{camera}{text}"), Path::new("visiond.toml")).unwrap();
        let view = config.cameras[0].view().of((640, 480)).unwrap();
        (view.crop(), view.picture_size(), view.point_to_frame(0.0, 0.0))
    };
    assert_eq!(view(""), ([0, 0, 640, 480], (640, 480), (0.0, 0.0)));
    assert_eq!(view("rotate = 90"), ([0, 0, 640, 480], (480, 640), (0.0, 480.0)));
    assert_eq!(view("crop = [0, 0.5, 1, 0.5]\nrotate = 270"), ([0, 240, 640, 240], (240, 640), (640.0, 240.0)));
    let all = view("flip = \"horizontal\"\ncrop = [20, 40, 100, 200]\ncrop_frame_size = [640, 480]\nrotate = 90");
    assert_eq!(all, ([20, 40, 100, 200], (200, 100), (20.0, 40.0)));
    // The same part, where the camera now sends half the size.
    let larger = view("crop = [40, 80, 200, 400]\ncrop_frame_size = [1280, 960]");
    assert_eq!(larger, ([20, 40, 100, 200], (100, 200), (20.0, 40.0)));
}

#[test]
fn amounts_are_accepted_from_the_documented_least_to_the_documented_most() {
    const MIB: u64 = 1 << 20;
    const HOUR_MS: u64 = 3_600_000;
    const SPOOL: &str = "url = \"mqtt://b\"\ndurable = true\nspool_directory = \"s\"\nspool_bytes";
    const TIMEOUT: &str = "[[camera]]\nname = \"a\"\nsource.type = \"video\"\nsource.url = \"u\"\nsource.timeout";
    let sink = |kind: &str, keys: &str| format!("[[sink]]\ntype = \"{kind}\"\n{keys}");
    for (start, least, most, is_zero_accepted, unit) in [
        (sink("mqtt", SPOOL), MIB, 1 << 40, false, "B"),
        (sink("nats", "url = [\"nats://b\"]\nstream_max_bytes"), MIB, 1 << 50, true, "B"),
        (sink("file", "path = \"p\"\nrotate_bytes"), 4096, 1 << 40, true, "B"),
        (sink("unix", "path = \"p\"\nreader_buffer_bytes"), 4096, 1 << 30, false, "B"),
        ("[engine]\ncanary_timeout".to_owned(), 1, HOUR_MS, false, "ms"),
        (TIMEOUT.to_owned(), 100, HOUR_MS, false, "ms"),
    ] {
        let is_refused = |value: u64| {
            // The first line makes every one of them invalid.
            let found = sentences(&format!("log = 1\n{start} = \"{value} {unit}\"\n"));
            assert!(!found.iter().any(|s| s.contains("unknown key")), "{found:#?}");
            found.iter().any(|s| s.contains(" from ") && s.contains(" to "))
        };
        assert!(!is_refused(least) && !is_refused(most), "{start}");
        assert!(is_refused(least - 1) && is_refused(most + 1), "{start}");
        assert_eq!(is_refused(0), !is_zero_accepted, "{start}");
    }
}

#[test]
fn a_key_that_was_removed_says_what_takes_its_place() {
    let text = "[status]\ninterval = \"1 s\"\n[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://h\"\nqos_state = 1\n[[camera]]\nname = \"a\"\n\
                source = { type = \"rtsp\", url = \"rtsp://h/1\", ffmpeg = \"f\", confined = false, max_memory_bytes = \"1 GiB\" }\n";
    let found = sentences(&format!("{MODEL}{text}"));
    for words in [
        "5:1 the key `status.interval` no longer exists: remove it, the status line comes each second",
        "9:1 the key `sink.qos_state` no longer exists: remove it, availability, state and snapshots have QoS 1",
        "the key `camera.source.ffmpeg` no longer exists: set `program` in `[ffmpeg]`",
        "the key `camera.source.confined` no longer exists: set `confined` in `[ffmpeg]`",
        "the key `camera.source.max_memory_bytes` no longer exists: set `max_memory_bytes` in `[ffmpeg]`",
    ] {
        assert!(found.iter().any(|found| found.contains(words)), "{words}: {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn ffmpeg_is_the_same_for_every_camera_and_a_change_opens_those_that_use_it_again() {
    let text = |program: &str| {
        format!(
            "[ffmpeg]\nprogram = \"{program}\"\nconfined = false\nmax_memory_bytes = \"2 GiB\"\n{MODEL}\
             [[camera]]\nname = \"a\"\nsource = {{ type = \"rtsp\", url = \"rtsp://h/1\", preview_url = \"rtsp://h/2\" }}\n\
             [[camera]]\nname = \"b\"\nsource = {{ type = \"video\", url = \"v.mp4\" }}\n\
             [[camera]]\nname = \"c\"\nsource = {{ type = \"pattern\" }}\n"
        )
    };
    let config = |program: &str| Config::parse(&text(program), Path::new("v.toml")).unwrap();
    let one = config("one");
    let [SourceConfig::Rtsp(rtsp), SourceConfig::Video(video), _] = [0, 1, 2].map(|i| &one.cameras[i].source) else {
        panic!("an RTSP camera and a video")
    };
    let Some(SourceConfig::Rtsp(preview)) = one.cameras[0].source.preview() else { panic!("a preview") };
    for ffmpeg in [&rtsp.ffmpeg, &video.ffmpeg, &preview.ffmpeg] {
        assert_eq!(ffmpeg, &one.ffmpeg);
    }
    assert_eq!((one.ffmpeg.confined, one.ffmpeg.max_memory_bytes), (false, 2 << 30));
    let changes = diff::ConfigDiff::between(&one, &config("two"));
    assert_eq!(changes.to_string(), "camera a opened again, camera b opened again");
}

#[test]
fn a_camera_lists_its_models_by_name_or_with_settings() {
    const MODELS: &str =
        "[[model]]\nname = \"people\"\npath = \"p.onnx\"\n[[model]]\nname = \"plates\"\npath = \"q.onnx\"\n";
    let camera = |keys: &str| format!("{MODELS}[[camera]]\nname = \"a\"\nsource = {{ type = \"pattern\" }}\n{keys}\n");
    let models = |keys: &str| {
        let config = Config::parse(&camera(keys), Path::new("v.toml")).unwrap();
        let names: Vec<_> = config.models_of(&config.cameras[0]).map(|(model, _)| model.name.clone()).collect();
        (names, config)
    };
    assert_eq!(models("model = \"plates\"").0, ["plates"]);
    assert_eq!(models("models = [\"plates\"]").0, ["plates"]);
    let (names, by_name) = models("models = [\"plates\", \"people\"]");
    assert_eq!(names, ["plates", "people"], "in the camera's order");
    let tables = "[[camera.models]]\nname = \"plates\"\n[[camera.models]]\nname = \"people\"";
    assert_eq!(by_name, models(tables).1);
    let (_, mixed) =
        models("models = [\"plates\", { name = \"people\", every = 3, min_size = 20, classes = [\"person\"] }]");
    let people = &mixed.cameras[0].models[1];
    assert_eq!((people.every, people.min_size, &*people.classes[0]), (3, Some(20), "person"));
    // A model sees the camera's crop, unless it has its own, and is turned as the camera is.
    let tiled = models(
        "crop = [0.5, 0.0, 0.5, 1.0]\nrotate = 90\nmodels = [\"plates\", { name = \"people\", crop = [0, 0, 640, 360], tiles.size = 320 }]\ncrop_frame_size = [1280, 720]",
    );
    let camera_of = &tiled.1.cameras[0];
    let views: Vec<_> = tiled.1.models_of(camera_of).map(|(_, model)| camera_of.view_of(&model)).collect();
    assert_eq!(views[0], camera_of.view());
    assert_eq!(views[1].orientation, camera_of.view().orientation);
    // The picture is 360 wide and 640 high.
    let parts = views[1].views((1280, 720)).unwrap();
    assert_eq!((parts.len(), parts.get(0).crop()), (7, [0, 0, 640, 360]));

    let fastest = "source = { type = \"images\", path = \"p\" }";
    for (keys, wanted) in [
        (
            "model = \"people\"\nmodels = [\"plates\"]",
            "`model` is one model and `models` are several: keep one of these keys",
        ),
        ("models = []", "`models` names no model: name at least one, or remove it"),
        (
            "models = [\"plates\", \"people\", \"plates\"]",
            "the camera lists model \"plates\" twice: remove one of them",
        ),
        ("models = [\"plate\"]", "no model has the name \"plate\": did you mean \"plates\"?"),
        ("models = \"plates\"", "`camera.models` must be a list of names, or tables with two brackets"),
        ("models = [5]", "`camera.models.name` must be a name"),
        ("models = [{ every = 2 }]", "`[camera.models]` needs the key `name`"),
        ("models = [{ name = \"plates\", evry = 2 }]", "unknown key `camera.models.evry`: did you mean `every`?"),
        (
            "models = [{ name = \"plates\", min_size = 30, max_size = 20 }]",
            "no box has `min_size` 30 and `max_size` 20: raise or remove `max_size`",
        ),
        (
            "models = [{ name = \"plates\", tiles = { size = 640, columns = 2 } }]",
            "`camera.models.tiles`: set either `size`, or `columns` and `rows`",
        ),
        ("models = [{ name = \"plates\", tiles = {} }]", "set either `size`, or `columns` and `rows`"),
        ("models = [{ name = \"plates\", tiles = { rows = 2 } }]", "set either `size`, or `columns` and `rows`"),
        ("models = [{ name = \"plates\", tiles = 640 }]", "`camera.models.tiles` must be a table"),
        (
            "models = [{ name = \"plates\", tiles = { size = 64 } }]",
            "`tiles` cuts 1280x720 pixels into 25 columns and 14 rows, and a frame has at most 63 tiles",
        ),
        (
            "models = [{ name = \"plates\", crop = [1000, 0, 400, 400] }]\ncrop_frame_size = [1280, 720]",
            "the crop [1000, 0, 400, 400] is empty or reaches beyond the frame of 1280x720 pixels",
        ),
        ("", "this camera must name its model: set `model` to one of \"people\", \"plates\", or `models` to several"),
    ] {
        let found = sentences(&camera(keys));
        assert!(found.len() == 1 && found[0].contains(wanted), "{keys}: {found:?}");
    }
    let text =
        camera("models = [{ name = \"plates\", max_fps = 2 }]").replace("source = { type = \"pattern\" }", fastest);
    assert!(sentences(&text)[0].contains("`max_fps` would skip frames of a source that waits for the model"));
    assert!(
        Config::parse(&text.replace("max_fps", "every"), Path::new("v.toml")).is_ok(),
        "every n-th frame of a folder"
    );
}

#[test]
fn a_model_is_a_file_or_a_bundle() {
    let model = |keys: &str| format!("[[model]]\nname = \"n\"\n{keys}\n[bundles]\ndirectory = \"models\"\n");
    let config = Config::parse(&model("bundle = \"street\""), Path::new("/etc/v/visiond.toml")).unwrap();
    assert_eq!(config.models[0].bundle.as_deref(), Some("street"));
    assert_eq!(config.models[0].path, Path::new(""), "only the store knows it");
    assert_eq!(config.bundles.directory.as_deref(), Some(Path::new("/etc/v/models")));
    for (keys, wanted) in [
        ("", "1:1 `[model]` needs the key `path` or `bundle`: name a file, or an installed bundle"),
        (
            "bundle = \"street-3.visiond\"",
            "3:10 `model.bundle` must be a name of 1 to 64 letters (a-z, A-Z), digits, - and _, not \"street-3.visiond\": \
             write \"street\"",
        ),
        ("path = \"a\"\nbundle = \"b\"", "4:10 a model has a `path` or a `bundle`, not both: remove one"),
        (
            "bundle = \"../x\"",
            "3:10 `model.bundle` must be a name of 1 to 64 letters (a-z, A-Z), digits, - and _, not \"../x\": write \"x\"",
        ),
    ] {
        assert_eq!(sentences(&model(keys)), [wanted]);
    }
}

#[test]
fn models_on_detections_are_named_by_no_camera_and_are_no_circle() {
    let file = |models: &[(&str, &str)], camera: &str| {
        let model =
            |(name, keys): &(&str, &str)| format!("[[model]]\nname = \"{name}\"\npath = \"{name}.onnx\"\n{keys}\n");
        let models: String = models.iter().map(model).collect();
        format!("{models}[[camera]]\nname = \"gate\"\nsource = {{ type = \"pattern\" }}\n{camera}\n")
    };
    let (cars, plates, text) = (("cars", ""), ("plates", "on = \"cars\""), ("text", "on = \"plates\""));
    let config = Config::parse(&file(&[text, plates, cars], ""), Path::new("v.toml")).unwrap();
    let mut all = config.clone();
    (all.models[1].margin, all.models[1].refresh) = (0.25, Some(std::time::Duration::from_secs(5)));
    assert_eq!(Config::parse(&all.to_toml(), Path::new("v.toml")).unwrap(), all);
    let names = |models: &[&ModelConfig]| models.iter().map(|model| model.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&config.running_models()), ["cars", "plates", "text"], "the only model on frames needs no name");
    let on = |on: &'static str| ("text", on);
    for (models, camera, wanted) in [
        (vec![cars, ("plates", "on = \"car\"")], "", "no model has the name \"car\": did you mean \"cars\"?"),
        (
            vec![cars, ("plates", "on = \"plates\"")],
            "",
            "model \"plates\" runs on its own detections: name another model",
        ),
        (
            vec![cars, ("plates", "on = \"text\""), on("on = \"plates\"")],
            "",
            "models \"plates\", \"text\" run on each other's detections: remove `on` of one of them",
        ),
        (
            vec![("plates", "on = \"text\""), on("on = \"plates\"")],
            "model = \"plates\"",
            "models \"plates\", \"text\" run on each other's detections: remove `on` of one of them",
        ),
        (
            vec![cars, plates, text, ("digits", "on = \"text\""), ("more", "on = \"digits\"")],
            "",
            "model \"digits\" is on a fourth level, \"cars\", \"plates\", \"text\", \"digits\": at most 3 are possible; remove a level",
        ),
        (
            vec![cars, plates],
            "model = \"plates\"",
            "model \"plates\" runs on the detections of \"cars\", not on frames: name \"cars\", whose detections then have its results",
        ),
        (
            vec![("cars", "margin = 0.1")],
            "",
            "`margin` requires `on`, the model on whose detections this one runs: set it, or remove `margin`",
        ),
        (
            vec![cars, ("plates", "on = \"cars\"\nmax_batch = 4\nbatch_wait = \"5 ms\"")],
            "",
            "`batch_wait` has no effect with `on`, because crops come together: remove it",
        ),
        (
            vec![cars, ("plates", "on = \"cars\"\nmasks = \"rle\"")],
            "",
            "`masks` has no effect with `on`, because results of crops have no masks: remove it",
        ),
    ] {
        let found = sentences(&file(&models, camera));
        assert!(found.len() == 1 && found[0].contains(wanted), "{wanted}: {found:?}");
    }
}

#[test]
fn a_duplicate_key_is_reported() {
    let found = sentences("[log]\nlevel = \"info\"\nlevel = \"warn\"\n");
    assert_eq!(found, ["3:1 invalid TOML: duplicate key"]);
}

#[test]
fn too_few_or_too_many_brackets_are_reported() {
    assert_eq!(
        sentences("[model]\nname = \"n\"\n[[log]]\nlevel = \"info\"\n[camera.source]\n"),
        [
            "1:1 `model` may appear several times: write `[[model]]` with two brackets",
            "3:1 `log` may appear only once: write `[log]` with one bracket",
            "5:2 `camera` may appear several times: write `[[camera]]` with two brackets",
        ]
    );
}

#[test]
fn values_of_the_wrong_kind_say_what_to_write() {
    let text = r#"
[engine]
threads = "4"
onnxruntime_library = "~/lib.so"
load_timeout = "5 sec."
[status]
log_interval = "90 S"
[[model]]
name = "n"
path = ""
score_threshold = "50 %"
max_detections = 1.5
classes = "person"
input_shapes = { images = [1, 0] }
[[camera]]
name = "c"
enabled = "true"
source.type = "command"
source.command = "cat x.y4m"
source.fd = 2
[[sink]]
type = "unix"
path = "s"
mode = 660
reader_buffer_bytes = 4096
"#;
    assert_eq!(
        sentences(text),
        [
            "3:11 `engine.threads` must be a whole number from 0 to 1024, not \"4\": remove the quotes",
            "4:23 `engine.onnxruntime_library` begins with `~`, which visiond does not expand: write the full path",
            "5:16 `engine.load_timeout` must be a duration from \"1 s\" to \"1 h\", not \"5 sec.\"",
            "7:16 `status.log_interval` must be 0 or a duration from \"1 s\" to \"1 d\", not \"90 S\": write s, not S",
            "10:8 `model.path` must be a path, not \"\"",
            "11:19 `model.score_threshold` must be a number from 0 to 1, not \"50 %\": write 50 % as 0.5",
            "12:18 `model.max_detections` must be a whole number from 1 to 100000, not 1.5",
            "13:11 `model.classes` must be a list, each a string that is not empty, not \"person\": write [\"person\"]",
            "14:31 `model.input_shapes.images` must be a whole number from 1 to 16777216, not 0",
            "17:11 `camera.enabled` must be true or false, not \"true\": remove the quotes",
            "19:18 `camera.source.command` must be a list: a program and its arguments, not \"cat x.y4m\": \
             write [\"cat\", \"x.y4m\"]",
            "20:13 `camera.source.fd` must be 1 or 3, not 2",
            "24:8 `sink.mode` must be octal permissions from 0o000 to 0o777, not 660: write 0o660",
            "25:23 `sink.reader_buffer_bytes` must be a size from \"4 KiB\" to \"1 GiB\", not 4096: \
             write the unit, \"4096 MiB\" or \"4096 MB\"",
        ]
    );
}

#[test]
fn a_reference_is_not_judged_by_names_that_are_invalid() {
    let model = "[[model]]\nname = \"nano det\"\npath = \"n.onnx\"\n";
    let found =
        sentences(&format!("{model}[[camera]]\nname = \"a\"\nmodel = \"nano-det\"\nsource.type = \"pattern\"\n"));
    assert!(found.len() == 1 && found[0].contains("not \"nano det\": write \"nano-det\""), "{found:#?}");
}

#[test]
fn changes_by_clients_require_a_token() {
    let http = "[http]\nlisten = [\"127.0.0.1:8790\"]\nallow_changes = true\n";
    let found = sentences(http);
    assert!(found.len() == 1 && found[0].starts_with("3:17 `allow_changes` requires `http.token`"), "{found:#?}");
    for valid in [format!("{http}token = \"http-token\"\n"), http.replace("true", "false")] {
        Config::parse(&valid, Path::new("visiond.toml")).unwrap();
    }
}

#[test]
fn an_invalid_item_of_a_list_hides_no_error_of_another_item() {
    let text = "[http]\nlisten = [\"0.0.0.0:80\", \"x\", \"0.0.0.0:80\"]\n[[sink]]\ntype = \"stdout\"\ncameras = [5, \"dor\"]\n\
                [[sink]]\ntype = \"nats\"\nurl = [\"http://h\"]\n";
    let found = sentences(text);
    for (at, words) in [
        ("2:11", "reachable from the network"),
        ("2:25", "must be an address"),
        ("2:30", "0.0.0.0:80 is listed twice"),
        ("2:30", "reachable from the network"),
        ("5:12", "must be a name"),
        ("5:15", "no camera has the name \"dor\""),
        ("8:8", "must be a URL nats://HOST:PORT"),
    ] {
        assert!(
            found.iter().any(|s| s.starts_with(&format!("{at} ")) && s.contains(words)),
            "{at} {words}: {found:#?}"
        );
    }
    assert_eq!(found.len(), 7, "{found:#?}");
}

#[test]
fn tables_must_go_together() {
    let text = r#"
[[model]]
name = "n"
path = "n.onnx"
[[model]]
name = "m"
path = "m.onnx"
[[camera]]
name = "door"
source.type = "v4l2"
source.device = "/dev/video0"
[[camera]]
name = "yard"
model = "nn"
source.type = "v4l2"
source.device = "/dev/video0"
[camera.annotate]
directory = "x"
[[camera]]
name = "door"
model = "n"
source.type = "command"
source.command = ["x"]
source.width = 5
[[camera]]
name = "raw"
model = "n"
source.type = "command"
source.command = ["x"]
source.container = "raw"
source.format = "nv12"
[[camera]]
name = "raw2"
model = "n"
[camera.source]
type = "command"
command = ["x"]
container = "raw"
format = "nv12"
width = 8
height = 8
pitches = [8]
[[sink]]
type = "file"
path = "a"
cameras = ["dor"]
[[sink]]
type = "unix"
path = "./a"
when_full = "block"
[[sink]]
type = "stdout"
[[sink]]
type = "stdout"
[[sink]]
type = "file"
path = "b"
"#;
    assert_eq!(
        sentences(text),
        [
            "8:1 this camera must name its model: set `model` to one of \"n\", \"m\", or `models` to several",
            "14:9 no model has the name \"nn\": did you mean \"n\"?",
            "16:17 another camera uses this device, and only one can open it: name another device, or set `enabled = false`",
            "17:1 this table never stores an image: set `every = 30`, `on_detection = true` or `on_event = true`",
            "20:8 two cameras have the name \"door\": give each its own name",
            "24:16 `camera.source.width` requires `container = \"raw\"`: Y4M carries it, so remove this key",
            "28:1 raw frames need `width` and `height`, because they carry no header",
            "42:11 invalid `camera.source.pitches`: nv12 has 2 planes, not 1",
            "46:12 no camera has the name \"dor\": did you mean \"door\"?",
            "49:8 another sink already uses the path ./a: give each sink its own",
            "50:13 \"block\" would delay camera \"door\", whose source cannot wait: use \"drop_oldest\" or \
             \"drop_newest\", or exclude the camera with `cameras`",
            "54:8 another sink already writes to standard output: remove one of them",
            "56:8 another sink already has the name \"file\": give this one a `name`",
        ]
    );
}

#[test]
fn levels_are_two_numbers_in_order_for_grey_of_more_than_8_bits() {
    let said = |source: &str| {
        sentences(&format!("{MODEL}[[camera]]\nname = \"thermal\"\n[camera.source]\n{source}\n[nothing]")).join("|")
    };
    let camera = |keys: &str| said(&format!("type = \"v4l2\"\ndevice = \"/dev/video0\"\n{keys}"));
    let raw = |format: &str, keys: &str| {
        let size = "container = \"raw\"\nwidth = 4\nheight = 4";
        said(&format!("type = \"command\"\ncommand = [\"x\"]\n{size}\nformat = \"{format}\"\n{keys}"))
    };
    for (text, sentence) in [
        (camera("levels = [3, 1]"), "9:10 `camera.source.levels` must be [low, high] with low below high, not [3, 1]"),
        (camera("levels = [7, 7]"), "must be [low, high] with low below high, not [7, 7]"),
        (camera("levels = [7]"), "must be two numbers, [low, high], not 1"),
        (camera("levels = [1, 2, 3]"), "must be two numbers, [low, high], not 3"),
        (camera("levels = [0, 65536]"), "must be a whole number from 0 to 65535, not 65536"),
        (
            camera("levels = 5"),
            "`camera.source.levels` must be [low, high], each a whole number from 0 to 65535, not 5",
        ),
        (
            camera("levels = [0, 9]\nformat = \"yuyv\""),
            "9:10 `camera.source.levels` requires `format` \"grey10\", \"grey12\" or",
        ),
        (camera("levels = [0, 9]\nformat = \"mjpeg\""), "not \"mjpeg\": correct the format, or remove this key"),
        (camera("levels = [0, 9]\nformat = \"grey\""), "not \"grey\": correct the format, or remove this key"),
        (
            camera("levels = [0, 9]\ncolor_range = \"full\""),
            "already defines black and white: remove `color_range`, or this key",
        ),
        (raw("rggb16", "levels = [0, 9]"), "13:10 `camera.source.levels` requires `format` \"grey10\", \"grey12\" or"),
        (
            said("type = \"command\"\ncommand = [\"x\"]\nlevels = [0, 9]"),
            "`camera.source.levels` requires `container = \"raw\"`",
        ),
    ] {
        assert!(text.contains(sentence), "{text}");
    }
    for fits in [
        camera("levels = [0, 1]"),
        camera("levels = [0, 65535]\nformat = \"grey10\""),
        camera("format = \"grey16\"\ncolor_range = \"full\""),
        raw("grey12", "levels = [64, 4000]"),
    ] {
        assert!(!fits.contains("camera.source"), "{fits}");
    }
}

#[test]
fn frames_in_shared_memory_need_a_shape_and_the_socket() {
    let said = |keys: &str| {
        let source = format!("type = \"command\"\ncontainer = \"shm\"\n{keys}");
        sentences(&format!("{MODEL}[[camera]]\nname = \"gate\"\n[camera.source]\n{source}\n[nothing]")).join("|")
    };
    let (socket, shape) = ("command = [\"x\", \"path={socket}\"]", "format = \"nv12\"\nwidth = 640\nheight = 480");
    assert!(!said(&format!("{socket}\n{shape}")).contains("camera.source"));
    assert!(said(socket).contains("raw frames need `format` and `width` and `height`"), "{}", said(socket));
    let without = said(&format!("command = [\"x\", \"path={{Socket}}\"]\n{shape}"));
    assert!(
        without.contains("the program needs the path of visiond's socket: write {socket} in its place"),
        "{without}"
    );
    for container in ["", "container = \"y4m\"", "container = \"raw\""] {
        let source = format!("type = \"command\"\n{container}\n{socket}");
        let text = format!("{MODEL}[[camera]]\nname = \"gate\"\n[camera.source]\n{source}\n[nothing]");
        let said = sentences(&text).join("|");
        assert!(said.contains("{socket} needs `container = \"shm\"`"), "{container}: {said}");
    }
    let twice = said(&format!("{socket}\n{shape}\nfd = 3"));
    assert!(twice.contains("come through no descriptor: remove `fd`"), "{twice}");
}

#[test]
fn a_frame_waits_for_others_only_where_they_share_a_run() {
    // With another error.
    let text = |keys: &str| format!("{}[nothing]\n", MODEL.replace("[[model]]\n", &format!("[[model]]\n{keys}\n")));
    let said = |keys: &str| sentences(&text(keys)).join("|");
    for alone in ["batch_wait = \"2 ms\"", "batch_wait = \"2 ms\"\nmax_batch = 1"] {
        assert!(
            said(alone).contains("`batch_wait` makes a frame wait for others, but a run takes only one"),
            "{}",
            said(alone)
        );
    }
    for fits in ["batch_wait = \"2 ms\"\nmax_batch = 8", "batch_wait = \"0 s\"", "max_batch = 8", "batch_wait = 0"] {
        assert!(!said(fits).contains("a run takes only one"), "{fits}: {}", said(fits));
    }
    assert!(said("batch_wait = \"2 s\"\nmax_batch = 8").contains("batch_wait"));
}

#[test]
fn max_fps_skips_no_frame_of_a_source_that_waits() {
    let text = |source: &str| format!("{MODEL}[[camera]]\nname = \"a\"\nmax_fps = 2.5\nsource = {{ {source} }}\n");
    let said = |source: &str| sentences(&text(source)).join("|");
    for waits in [
        "type = \"images\", path = \"x\"",
        "type = \"video\", url = \"a.mp4\", pace = \"fastest\"",
        "type = \"command\", command = [\"x\"], pace = \"fastest\"",
    ] {
        let said = said(waits);
        assert!(said.contains("`max_fps` would skip frames of a source that waits for the model"), "{waits}: {said}");
    }
    for skips in [
        "type = \"images\", path = \"x\", fps = 5",
        "type = \"video\", url = \"a.mp4\"",
        "type = \"pattern\"",
        "type = \"rtsp\", url = \"rtsp://a/b\"",
    ] {
        assert!(Config::parse(&text(skips), Path::new("visiond.toml")).is_ok(), "{skips}");
    }
    assert!(!said("type = \"vidoe\"").contains("max_fps"));
}

#[test]
fn a_login_needs_a_url_without_one() {
    let camera = |url: &str| {
        format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"video\", url = \"{url}\", login = \"gate\" }}\n")
    };
    let said = |url: &str| sentences(&camera(url)).join("|");
    assert!(said("v.mp4").contains("`login` requires a URL, and `url` is a file"), "{}", said("v.mp4"));
    assert!(said("rtsp://me:p@x/y").contains("`url` already contains a user"));
    let config = Config::parse(&camera("rtsp://x/y?at=me@home"), Path::new("/etc/visiond/v.toml"));
    assert!(config.unwrap().to_toml().contains("login = \"gate\""), "a credential's name is no path");
}

#[test]
fn an_rtsp_url_is_one() {
    let camera = |url: &str| {
        format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"rtsp\", url = \"{url}\", login = \"gate\" }}\n")
    };
    let said = |url: &str| sentences(&camera(url)).join("|");
    assert!(Config::parse(&camera("rtsp://10.0.0.1:554/1?a=b"), Path::new("visiond.toml")).is_ok());
    assert!(Config::parse(&camera("rtsps://10.0.0.1/1"), Path::new("visiond.toml")).is_ok());
    assert!(said("rtsp://me:p@x/y").contains("`url` already contains a user"));
    for wrong in ["/srv/a.mp4", "http://10.0.0.1/1", "rtsp://", "rtsp://a b/"] {
        assert!(said(wrong).contains("must be a URL rtsp://HOST/PATH"), "{wrong}: {}", said(wrong));
    }
}

#[test]
fn keys_about_a_cameras_certificate_come_with_tls_and_agree() {
    let pin = format!("fingerprint = \"{}\"", "ab".repeat(32));
    for (kind, plain, secure) in [("rtsp", "rtsp", "rtsps"), ("mjpeg", "http", "https"), ("snapshot", "http", "https")]
    {
        let camera = |scheme: &str, keys: &str| {
            format!(
                "{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"{kind}\", url = \"{scheme}://h/1\", {keys} }}\n"
            )
        };
        let said = |scheme: &str, keys: &str| sentences(&camera(scheme, keys)).join("|");
        for keys in ["ca = \"/ca.pem\"", &pin, "insecure = true", "login = \"gate\""] {
            assert!(Config::parse(&camera(secure, keys), Path::new("visiond.toml")).is_ok(), "{kind} {keys}");
        }
        for (key, keys) in [("ca", "ca = \"/ca.pem\""), ("fingerprint", &*pin), ("insecure", "insecure = true")] {
            let expected =
                format!("`{key}` requires TLS, and `url` has none: use {secure}:// there, or remove `{key}`");
            assert!(said(plain, keys).contains(&expected), "{}", said(plain, keys));
        }
        assert!(Config::parse(&camera(plain, "insecure = false"), Path::new("visiond.toml")).is_ok());
        assert!(said(secure, &format!("{pin}, ca = \"/c\"")).contains("remove `ca`, or this key"));
        assert!(said(secure, &format!("{pin}, insecure = true")).contains("`insecure` accepts any certificate"));
        assert!(said(secure, "ca = \"/c\", insecure = true").contains("`insecure` accepts any certificate"));
        let wrong = said(secure, "fingerprint = \"ab:cd\"");
        assert!(wrong.contains("must be the SHA-256 of a certificate: 64 hexadecimal digits"), "{wrong}");
        for sha1 in ["ab".repeat(20), vec!["AB"; 20].join(":")] {
            let wrong = said(secure, &format!("fingerprint = \"{sha1}\""));
            assert!(
                wrong.contains("that is a SHA-1") && wrong.contains("openssl x509 -noout -fingerprint -sha256"),
                "{wrong}"
            );
        }
    }
    let shown = Config::parse(
        &format!(
            "{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"mjpeg\", url = \"https://u:hush@h/1?pwd=hush\", {pin} }}\n"
        ),
        Path::new("visiond.toml"),
    );
    let shown = shown.unwrap().to_toml_without_secrets();
    assert!(!shown.contains("hush") && shown.contains("AB:AB:AB"), "{shown}");
}

#[test]
fn a_login_in_place_of_its_file_is_said_and_not_shown() {
    for secret in ["admin:hush", "admin:hu/sh", "admin:hu sh"] {
        let source = format!("source = {{ type = \"rtsp\", url = \"rtsp://h/1\", login = \"{secret}\", wide = 1 }}\n");
        let text = format!("{MODEL}[[camera]]\nname = \"a\"\n{source}");
        let said = errors(&text);
        assert!(
            said.contains("`camera.source.login` is the name of a credential or the path of a file, and this"),
            "{said}"
        );
        assert!(said.contains("unknown key `camera.source.wide`"), "{said}");
        assert!(!said.contains("hu") && !said.contains("sh\"") && !said.contains("admin"), "{said}");
    }
    for path in ["/etc/visiond/a:b", "./a:b", "folder/a:b", "gate"] {
        let source = format!("source = {{ type = \"rtsp\", url = \"rtsp://h/1\", login = \"{path}\" }}\n");
        let parsed = Config::parse(&format!("{MODEL}[[camera]]\nname = \"a\"\n{source}"), Path::new("visiond.toml"));
        assert!(parsed.is_ok(), "{path}");
    }
}

#[test]
fn words_that_are_no_types_have_the_types_that_are_meant() {
    for (word, hint) in [
        ("http", "did you mean \"mjpeg\", \"snapshot\" or \"video\"? `visiond probe --http URL` finds out"),
        ("HLS", "did you mean \"video\"?"),
        ("onvif", "did you mean \"rtsp\"? `visiond probe --discover` shows"),
        ("usb", "did you mean \"v4l2\"?"),
        ("mjpg", "did you mean \"mjpeg\"?"),
    ] {
        let text = format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"{word}\", url = \"http://h/1\" }}\n");
        let said = sentences(&text).join("|");
        assert!(said.contains(&format!("not \"{word}\": {hint}")), "{said}");
    }
}

#[test]
fn a_url_with_a_variable_says_that_none_is_replaced() {
    let words = "contains ${CAMERA_PASSWORD}, and visiond replaces no variables: write the value";
    for (source, url) in [
        ("rtsp", "rtsp://me:${CAMERA_PASSWORD}@h/1"),
        ("mjpeg", "http://h/1?p=${CAMERA_PASSWORD}"),
        ("video", "https://me:${CAMERA_PASSWORD}@h/1.m3u8"),
    ] {
        let text = format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"{source}\", url = \"{url}\" }}\n");
        assert!(sentences(&text).join("|").contains(words), "{source}");
    }
    let broker = "[[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://${CAMERA_PASSWORD}\"\n";
    assert!(sentences(&format!("{MODEL}{broker}")).join("|").contains(words));
}

#[test]
fn a_preview_is_another_stream_of_an_rtsp_camera() {
    let camera = |keys: &str| format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ url = \"rtsp://h/1\", {keys} }}\n");
    let said = |keys: &str| sentences(&camera(keys)).join("|");
    let good = camera("type = \"rtsp\", preview_url = \"rtsp://h/2\", login = \"gate\", key_frames_only = true");
    let config = Config::parse(&good, Path::new("visiond.toml")).unwrap();
    let Some(SourceConfig::Rtsp(preview)) = config.cameras[0].source.preview() else { panic!("a preview") };
    let SourceConfig::Rtsp(rtsp) = &config.cameras[0].source else { panic!("an RTSP camera") };
    assert_eq!((&*preview.url, &preview.login, preview.transport), ("rtsp://h/2", &rtsp.login, rtsp.transport));
    assert!(!preview.key_frames_only && preview.preview().is_none());

    let same = said("type = \"rtsp\", preview_url = \"rtsp://h/1\"");
    assert!(same.contains("`preview_url` is the same as `url`: remove it, or write"), "{same}");
    let user = said("type = \"rtsp\", preview_url = \"rtsp://me:hunter2@h/2\", login = \"gate\"");
    assert!(user.contains("`preview_url` already contains a user") && !user.contains("hunter2"), "{user}");
    for wrong in ["/srv/a.mp4", "http://h/2", "rtsp://", "rtsp://a b/"] {
        let wrong = said(&format!("type = \"rtsp\", preview_url = \"{wrong}\""));
        assert!(wrong.contains("`camera.source.preview_url` must be a URL rtsp://HOST/PATH"), "{wrong}");
    }
    let other = said("type = \"video\", preview_url = \"rtsp://h/2\"");
    assert!(other.contains("unknown key `camera.source.preview_url`: it is a key of `type = \"rtsp\"`"), "{other}");
}

#[test]
fn a_brokers_url_has_no_login_and_certificates_need_tls() {
    let sink = |keys: &str| {
        let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"pattern\" }\n";
        let text = format!("{MODEL}{camera}[[sink]]\ntype = \"mqtt\"\n{keys}");
        if Config::parse(&text, Path::new("v.toml")).is_ok() { String::new() } else { sentences(&text).join("|") }
    };
    let with_user = sink("url = \"mqtt://me:hunter2@broker\"");
    assert!(with_user.contains("contains a user, visible to everyone who can read this file: use `login`"));
    assert!(!with_user.contains("hunter2"), "{with_user}");
    assert!(sink("url = \"http://broker\"").contains("must be a URL mqtt://HOST:PORT or mqtts://HOST:PORT"));
    assert!(sink("url = \"mqtt://broker\"\nca = \"ca.pem\"").contains("`ca` requires TLS, and `url` has none"));
    assert!(sink("url = \"mqtts://broker\"\nkey = \"a.key\"").contains("`key` requires `certificate`"));
    assert!(sink("url = \"mqtt://broker\"\ntopic_prefix = \"a/+/b\"").contains("must be a topic"));
    assert!(sink("url = \"mqtt://broker\"\nlogin = \"mqtt\"\nqueue = 0").contains("cross the network in clear text"));
    assert_eq!(sink("url = \"mqtt://127.0.0.1\"\nlogin = \"mqtt\""), "");
    assert_eq!(sink("url = \"mqtts://broker\"\nlogin = \"mqtt\"\nca = \"ca.pem\""), "");
    let twice = "url = \"mqtt://broker\"\n[[sink]]\ntype = \"mqtt\"\nname = \"two\"\nurl = \"mqtt://broker\"\n";
    assert!(sink(twice).contains("another sink publishes the same topics to this broker"));
    assert_eq!(sink(&format!("{twice}topic_prefix = \"two\"")), "");
}

#[test]
fn two_listeners_or_a_listener_and_a_sink_have_no_place_in_common() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("x")).unwrap();
    let errors = |listen: &str, sinks: &str| {
        let camera = "[[camera]]\nname = \"a\"\nsource = { type = \"pattern\" }\n";
        let text = format!("{MODEL}{camera}[http]\ntoken = \"web\"\nlisten = {listen}\n{sinks}");
        match Config::parse(&text, &folder.path().join("v.toml")) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        }
    };
    for (listen, words) in [
        (r#"["0.0.0.0:80", "127.0.0.1:80"]"#, "127.0.0.1:80 and 0.0.0.0:80 overlap: remove one of them"),
        (r#"["[::]:80", "0.0.0.0:80"]"#, "0.0.0.0:80 and [::]:80 overlap"),
        (r#"["127.0.0.1:80", "127.0.0.1:80"]"#, "127.0.0.1:80 is listed twice"),
        (r#"["unix:h", "unix:./h"]"#, "/h is listed twice"),
        (r#"["unix:x/../h", "unix:h"]"#, "/h is listed twice"),
    ] {
        assert!(errors(listen, "").contains(words), "{listen}: {}", errors(listen, ""));
    }
    for listen in [r#"["127.0.0.1:0", "127.0.0.1:0"]"#, r#"["127.0.0.1:80", "127.0.0.2:80", "127.0.0.1:81"]"#] {
        assert_eq!(errors(listen, ""), "");
    }
    let sink = |name: &str, path: &str| format!("[[sink]]\nname = \"{name}\"\ntype = \"unix\"\npath = \"{path}\"\n");
    assert!(errors(r#"["unix:h"]"#, &sink("a", "x/../h")).contains("a sink already uses this path"));
    let twice = sink("a", "d") + &sink("b", "x/../d");
    assert!(
        errors("[]", &twice).contains("already uses the path")
            && errors("[]", &twice).contains("/x/../d: give each sink its own")
    );
    // Where the folder is missing, its parent is unknown: `gone` may be a link.
    assert_eq!(errors("[]", &(sink("a", "d") + &sink("b", "gone/../d"))), "");
}

#[test]
fn a_full_queue_may_hold_up_what_waits() {
    let text = format!(
        "{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"video\", url = \"x.mp4\", pace = \"fastest\" }}\n\
         [[camera]]\nname = \"b\"\nsource = {{ type = \"images\", path = \"p\" }}\n\
         [[camera]]\nname = \"c\"\nsource = {{ type = \"pattern\" }}\n\
         [[sink]]\ntype = \"stdout\"\ncameras = [\"a\", \"b\"]\nwhen_full = \"block\"\n"
    );
    assert!(Config::parse(&text, Path::new("visiond.toml")).is_ok());
}

#[test]
fn paths_are_relative_to_the_file() {
    let text = "[engine]\nonnxruntime_library = \"lib/x.so\"\n[[model]]\nname = \"n\"\npath = \"./n.onnx\"\n\
                [[camera]]\nname = \"a\"\nsource = { type = \"video\", url = \"v.mp4\" }\n\
                [[camera]]\nname = \"b\"\nsource = { type = \"video\", url = \"rtsp://x/y\" }\n[ffmpeg]\nprogram = \"bin/ffmpeg\"\n\
                [[camera]]\nname = \"c\"\nsource = { type = \"command\", command = [\"./gen\", \"./x\"] }\n\
                [[sink]]\ntype = \"file\"\npath = \"/abs\"\n";
    let config = Config::parse(text, Path::new("/etc/v/visiond.toml")).unwrap();
    assert_eq!(config.engine.onnxruntime_library.as_deref(), Some(Path::new("/etc/v/lib/x.so")));
    assert_eq!(config.models[0].path, Path::new("/etc/v/n.onnx"));
    let written = config.to_toml();
    for part in ["\"/etc/v/v.mp4\"", "\"rtsp://x/y\"", "\"/etc/v/bin/ffmpeg\"", "[\"/etc/v/gen\", \"./x\"]"] {
        assert!(written.contains(part), "{part} in {written}");
    }
    assert_eq!(config.sinks[0].name, "file");
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("visiond.toml");
    let text = Config::load(&path).unwrap_err().to_string();
    assert!(text.contains("visiond.toml: cannot be read: No such file or directory (os error 2)\n"), "{text}");
    assert!(text.ends_with("visiond.toml: 1 error"), "{text}");
    std::fs::write(&path, b"a = 1\nb = \"\xff\"\n").unwrap();
    let text = Config::load(&path).unwrap_err().to_string();
    assert!(text.contains("line 2 is not UTF-8: save the file as UTF-8"), "{text}");
    std::fs::write(&path, "\u{feff}[log]\r\nlevel = \"warn\"\r\n").unwrap();
    assert_eq!(Config::load(&path).unwrap().log.level, log::LevelFilter::Warn);
}

#[test]
fn columns_count_characters_and_long_lines_are_cut() {
    let found = sentences("[log]\nlevel = \"ünfo\" # ä\nlävel = 1\n");
    assert!(found[0].starts_with("2:9 "), "{found:?}");
    // A bare key of TOML 1.0 is ASCII.
    assert!(found[1].starts_with("3:"), "{found:?}");
    let text = errors(&format!("log = {{ x = \"{}\", levle = \"info\" }}\n", "y".repeat(500)));
    assert!(text.lines().all(|line| line.len() < 200), "{text}");
    assert!(text.contains("levle = \"info\""), "{text}");
}

#[test]
fn every_number_that_toml_can_write_is_read() {
    let config = Config::parse("[engine]\nthreads = 0x1_0\n[buffers]\ncount = +4\n", Path::new("x")).unwrap();
    assert_eq!((config.engine.threads, config.buffers.count), (16, Some(4)));
    assert_eq!(
        sentences(
            "[engine]\nthreads = 99999999999999999999999999\n[[model]]\nname = \"n\"\npath = \"n\"\nscore_threshold = nan\n"
        ),
        [
            "2:11 `engine.threads` must be a whole number from 0 to 1024, not 99999999999999999999999999",
            "6:19 `model.score_threshold` must be a number from 0 to 1, not nan",
        ]
    );
}

#[test]
fn no_secret_is_shown_in_an_errors_line_or_sentence() {
    let text = r#"[[camera]]
name = "c"
source = { type = "video", url = "http://h/?pass=hush&key=hush", input_args = ["-u", "me:hush"], fps = "x" }
[[camera]]
name = "d"
[camera.source]
type = "command"
command = [
  "sh", "-c", "grab --password hush", 5,
  "--pass",
  "hush", 5,
]
[[sink]]
type = "nats"
url = "http://h/?token=hush"
"#;
    let errors = Config::parse(text, Path::new("visiond.toml")).unwrap_err();
    let shown: Vec<usize> = errors.findings.iter().filter(|f| f.source.contains('*')).filter_map(|f| f.line).collect();
    assert!([3, 9, 11, 15].iter().all(|line| shown.contains(line)), "{errors}");
    assert!(!errors.to_string().contains("hush"), "{errors}");
}

#[test]
fn a_key_of_another_type_of_source_is_reported_once() {
    let text = format!(
        "{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"pattern\", url = \"v.mp4\", login = \"gate\" }}\n"
    );
    let found = sentences(&text);
    assert!(found.len() == 2 && found.iter().all(|sentence| sentence.contains(" unknown key ")), "{found:#?}");
}

#[test]
fn a_program_has_a_name_and_its_arguments_may_be_empty() {
    let source = |command: &str| {
        let text = format!("{MODEL}[[camera]]\nname = \"a\"\nsource = {{ type = \"command\", command = {command} }}\n");
        Config::parse(&text, Path::new("v.toml")).map_err(|errors| errors.to_string())
    };
    assert!(source(r#"["cat", ""]"#).is_ok());
    for (command, words) in [
        (r#"["", "x"]"#, "must hold strings only, not \"\""),
        (r#"["cat", 5]"#, "must hold strings only, not 5: quote numbers too"),
        ("[]", "must be a list: a program and its arguments, not a list"),
        (r#"["~/cat"]"#, "begins with `~`"),
    ] {
        let error = source(command).unwrap_err();
        assert!(error.contains(words), "{command}: {error}");
    }
}

#[test]
fn a_relative_device_is_written_so_that_it_reads_as_a_path() {
    for (read, written) in
        [("./gate", "./gate"), ("../gate", "../gate"), ("card/gate", "card/gate"), ("/dev/gate", "/dev/gate")]
    {
        let source = format!("source = {{ type = \"v4l2\", device = \"{read}\" }}");
        let text = format!("{MODEL}[[camera]]\nname = \"a\"\n{source}\n");
        let config = Config::parse(&text, Path::new("v.toml")).map_err(|errors| errors.to_string()).unwrap();
        let shown = config.to_toml();
        assert!(shown.contains(&format!("device = \"{written}\"")), "{read}: {shown}");
    }
}

#[test]
fn a_table_in_place_of_a_list_of_tables_has_a_whole_sentence() {
    for name in ["model", "camera", "sink"] {
        let errors = Config::parse(&format!("[{name}]\nname = \"m\"\n"), Path::new("v.toml")).unwrap_err().to_string();
        assert!(errors.contains(&format!("write `[[{name}]]`")) && errors.contains("(optional)"), "{errors}");
        assert!(!errors.contains("(default )"), "{errors}");
    }
}

#[test]
fn a_login_in_clear_is_warned_of_where_the_network_sees_it() {
    for (url, is_warned) in [
        ("mqtt://192.0.2.7", true),
        ("mqtt://broker:1883", true),
        ("mqtts://broker", false),
        ("mqtt://localhost", false),
        ("mqtt://127.0.0.1:1883", false),
        ("mqtt://[::1]", false),
        ("nats://192.0.2.7", true),
        ("nats://localhost\", \"nats://nats.lan:4222", true),
        ("nats://localhost", false),
        ("tls://nats.lan", false),
    ] {
        let camera = "[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
        let sink = match url.starts_with("mqtt") {
            true => format!("type = \"mqtt\"\nurl = \"{url}\"\n"),
            false => format!("type = \"nats\"\nurl = [\"{url}\"]\n"),
        };
        let text = format!("{MODEL}{camera}[[sink]]\n{sink}login = \"broker\"\n");
        let mut diagnostics = diagnostics::Diagnostics::default();
        Document::of(&Layers::file(&text), &mut diagnostics).config(Path::new("v.toml"), &mut diagnostics).unwrap();
        let found = diagnostics.into_findings(Path::new("v.toml"), &text);
        assert_eq!(!found.is_empty(), is_warned, "{url}: {found:?}");
    }
}

#[test]
fn commands_without_a_login_are_warned_of() {
    for (keys, is_warned) in [
        ("commands = true", true),
        ("commands = false", false),
        ("commands = true\nlogin = \"broker\"", false),
        ("commands = true\ncertificate = \"a.pem\"\nkey = \"a.key\"", false),
    ] {
        let camera = "[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
        let found = warnings(&format!("{MODEL}{camera}[[sink]]\ntype = \"mqtt\"\nurl = \"mqtts://b\"\n{keys}\n"));
        assert_eq!(found.iter().any(|line| line.contains("commands from anyone")), is_warned, "{keys}: {found:?}");
    }
}

/// The warnings of a valid configuration, with line and column.
fn warnings(text: &str) -> Vec<String> {
    let mut diagnostics = diagnostics::Diagnostics::default();
    Document::of(&Layers::file(text), &mut diagnostics).config(Path::new("v.toml"), &mut diagnostics).unwrap();
    let findings = diagnostics.into_findings(Path::new("v.toml"), text);
    findings.iter().map(|f| format!("{}:{} {}", f.line.unwrap_or(0), f.column.unwrap_or(0), f.message)).collect()
}

#[test]
fn a_login_in_clear_to_one_of_several_nats_servers_is_warned_of() {
    let camera = "[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
    let text = |urls: &str, keys: &str| {
        format!("{MODEL}{camera}[[sink]]\ntype = \"nats\"\nurl = [{urls}]\nlogin = \"nats\"\n{keys}")
    };
    let warning = "10:9 user and password cross the network in clear text: use tls:// in `url`";
    assert_eq!(warnings(&text("\"nats://nats.lan\"", "")), [warning]);
    assert_eq!(warnings(&text("\"tls://nats.lan\", \"nats://192.0.2.7:4222\"", "")), [warning]);
    assert!(warnings(&text("\"tls://nats.lan\", \"nats://localhost\"", "")).is_empty());
    // With a CA, the connection requires TLS whatever the scheme is.
    assert!(warnings(&text("\"nats://nats.lan\"", "ca = \"ca.pem\"\n")).is_empty());
}

#[test]
fn a_default_that_another_sink_writes_out_is_the_same_output() {
    let camera = "[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
    let two = |kind: &str, key: &str| {
        format!(
            "{MODEL}{camera}[[sink]]\nname = \"a\"\ntype = \"{kind}\"\n[[sink]]\nname = \"b\"\ntype = \"{kind}\"\n{key}\n"
        )
        .replace("\"nats\"\n", "\"nats\"\nurl = [\"nats://h\"]\n")
        .replace("\"mqtt\"\n", "\"mqtt\"\nurl = \"mqtt://h\"\n")
    };
    let nats = two("nats", "subject = \"visiond.{device}.{camera}.detections\"");
    let clash =
        "14:7 another sink publishes the same subjects to these servers: set another `subject`, or remove one of them";
    assert_eq!(sentences(&nats), [clash]);
    let mqtt = two("mqtt", "topic_prefix = \"visiond\"");
    assert!(sentences(&mqtt)[0].contains("another sink publishes the same topics to this broker"));
    for other in [two("nats", "subject = \"other\""), two("mqtt", "topic_prefix = \"other\"")] {
        assert!(Config::parse(&other, Path::new("v.toml")).is_ok());
    }
}

#[test]
fn a_configuration_with_an_error_is_none() {
    let camera = "[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
    for (text, is_right) in [
        (format!("{MODEL}{camera}"), true),
        (format!("{MODEL}{camera}{camera}"), false),
        (format!("{MODEL}{camera}x = 1"), false),
    ] {
        let mut diagnostics = diagnostics::Diagnostics::default();
        let config = Document::of(&Layers::file(&text), &mut diagnostics).config(Path::new("v.toml"), &mut diagnostics);
        assert_eq!(config.is_some(), is_right, "{text}");
    }
}

#[test]
fn a_warning_does_not_keep_the_daemon_from_running() {
    let text = "[[model]]\nname = \"m\"\npath = \"m.onnx\"\n[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n\
                [[sink]]\ntype = \"mqtt\"\nurl = \"mqtt://192.0.2.7\"\nlogin = \"broker\"\n";
    let mut diagnostics = diagnostics::Diagnostics::default();
    Document::of(&Layers::file(text), &mut diagnostics).config(Path::new("visiond.toml"), &mut diagnostics).unwrap();
    assert_eq!((diagnostics.error_count(), diagnostics.into_findings(Path::new("visiond.toml"), text).len()), (0, 1));
    assert_eq!(Config::parse(text, Path::new("visiond.toml")).unwrap().sinks.len(), 1);
}

#[test]
fn an_address_that_is_almost_one_is_shown_as_it_should_be() {
    for (address, proposal) in [
        ("127.0.0.1", Some("127.0.0.1:8790")),
        ("::1", Some("[::1]:8790")),
        ("localhost:80", Some("127.0.0.1:80")),
        ("localhost:http", None),
        ("localhost:65536", None),
        ("host:80", None),
        ("/run/http.sock", Some("unix:/run/http.sock")),
        ("run/http.sock", None),
    ] {
        let text = format!("[http]\nlisten = [\"{address}\"]\n");
        let errors = Config::parse(&text, Path::new("v.toml")).unwrap_err().to_string();
        assert!(errors.contains("an address such as"), "{errors}");
        assert_eq!(
            errors.split_once(": write ").map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned()),
            proposal.map(|p| format!("\"{p}\"")),
            "{errors}"
        );
    }
}

/// The first error of a camera with this table, from its column on.
fn area_error(table: &str) -> String {
    let text = format!("{MODEL}[[camera]]\nname = \"a\"\nsource.type = \"pattern\"\n{table}\n");
    sentences(&text).into_iter().next().unwrap()
}

#[test]
fn each_wrong_area_has_its_own_sentence() {
    let polygon = |corners: &str| area_error(&format!("[[camera.ignore]]\npolygon = {corners}"));
    for (corners, sentence) in [
        ("[[0, 0], [1, 1]]", "8:11 `camera.ignore.polygon` has 2 points, and an area needs at least 3: add more"),
        (
            "[[0, 0], [640, 0], [640, 480]]",
            "8:11 `camera.ignore.polygon` has the point [640, 0] outside the frame: fractions are 0 to 1; for pixels, set \
             `frame_size = [WIDTH, HEIGHT]`",
        ),
        (
            "[[0, 0], [1, 1], [1, 0], [0, 1]]",
            "8:11 `camera.ignore.polygon` crosses or touches itself: the edge from point 1 meets the edge from point 3; put the \
             corners in order",
        ),
        (
            "[[0, 0], [1, 0], [1, 1], [0, 0]]",
            "8:11 `camera.ignore.polygon` has the same point twice, at positions 1 and 4: remove one; the last point joins the \
             first by itself",
        ),
        (
            "[[0, 0], [1, 0], [1]]",
            "8:28 `camera.ignore.polygon` must be [x, y], two numbers from 0 to 16384, not a list",
        ),
        ("[[0, 0], [1, 0], [1, -1]]", "8:32 `camera.ignore.polygon` must be a number from 0 to 16384, not -1"),
        (
            "[[0, 0], [0.5, 0], [1, 1]]\nframe_size = [640, 480]",
            "8:11 `camera.ignore.polygon` lies within one pixel of the frame, so its numbers are fractions: remove `frame_size`",
        ),
        (
            "[[0, 0], [640, 0], [640, 481]]\nframe_size = [640, 480]",
            "8:11 `camera.ignore.polygon` has the point [640, 481] outside the frame of 640x480 pixels: correct the point, or \
             `frame_size`",
        ),
        (
            "[[0, 0], [640, 0], [640, 480]]\nframe_size = [640]",
            "9:14 `camera.ignore.frame_size` must be [width, height], two whole numbers from 1 to 16384, not a list",
        ),
    ] {
        assert_eq!(polygon(corners), sentence);
    }
    let many = format!("[{}]", (0..65).map(|x| format!("[0.{x:03}, 0.5]")).collect::<Vec<_>>().join(", "));
    assert!(polygon(&many).ends_with("has 65 points, more than 64: leave out corners, or use several polygons"));
    let table = "[[camera.ignore]]\npolygon = [[0, 0], [1, 0], [1, 1]]\n";
    assert_eq!(
        area_error(&table.repeat(33)),
        "71:1 a camera has at most 32 tables `[[camera.ignore]]`: remove some, or draw one around several"
    );
}

#[test]
fn a_privacy_mask_has_the_rules_of_a_polygon_and_a_fill() {
    let polygon = "polygon = [[0, 0], [1, 0], [1, 0.5]]";
    let masked = |more: &str| area_error(&format!("[[camera.privacy]]\n{polygon}\n{more}"));
    let fill =
        "9:8 `camera.privacy.fill` must be \"black\", \"mosaic\" or a colour, [red, green, blue] from 0 to 255, not";
    assert_eq!(masked("fill = \"blur\""), format!("{fill} \"blur\""));
    assert_eq!(masked("fill = [0, 0]"), format!("{fill} a list"));
    assert_eq!(
        masked("fill = [0, 0, 256]"),
        "9:15 `camera.privacy.fill` must be a whole number from 0 to 255, not 256"
    );
    let crossing = area_error("[[camera.privacy]]\npolygon = [[0, 0], [1, 1], [1, 0], [0, 1]]");
    assert!(crossing.starts_with("8:11 `camera.privacy.polygon` crosses or touches itself"), "{crossing}");
}

#[test]
fn a_mask_over_the_whole_frame_is_a_warning() {
    let text = format!(
        "{MODEL}[[camera]]\nname = \"a\"\nsource.type = \"pattern\"\n[[camera.privacy]]\n\
         polygon = [[0, 0], [640, 0], [640, 480], [0, 480]]\nframe_size = [640, 480]\n"
    );
    let mut report = Diagnostics::default();
    assert!(Document::of(&Layers::file(&text), &mut report).config(Path::new("visiond.toml"), &mut report).is_some());
    let findings = report.into_findings(Path::new("visiond.toml"), &text);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].message, "this mask covers the whole frame, so the model sees nothing: make it smaller");
}

#[test]
fn results_that_stay_valid_without_tracks_are_a_warning() {
    let model = |name: &str, keys: &str| format!("[[model]]\nname = \"{name}\"\npath = \"{name}.onnx\"\n{keys}\n");
    let camera = |keys: &str| format!("[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\n{keys}\n");
    let cars = model("cars", "");
    let plates = model("plates", "on = \"cars\"\nrefresh = \"2 s\"");
    let no_tracks = "9:11 `refresh` has no effect, because no camera tracks the objects of \"cars\": add `[camera.track]` to a camera \
                     whose first model it is, or remove `refresh`";
    assert_eq!(warnings(&format!("{cars}{plates}{}", camera(""))), [no_tracks]);
    assert!(warnings(&format!("{cars}{plates}{}", camera("track = {}"))).is_empty());
    assert!(warnings(&format!("{cars}{plates}{}", camera("models = [\"cars\"]\ntrack = {}"))).is_empty());
    let people = model("people", "");
    let second = camera("models = [\"people\", \"cars\"]\ntrack = {}");
    assert_eq!(warnings(&format!("{cars}{plates}{people}{second}")), [no_tracks]);
    let letters = model("letters", "on = \"plates\"\nrefresh = \"2 s\"");
    assert_eq!(
        warnings(&format!("{cars}{plates}{letters}{}", camera("track = {}"))),
        ["14:11 `refresh` has no effect on the detections of \"plates\", which have no tracks: remove it"]
    );
}

const GROUND: &str = "[camera.ground]\npoints = [[0.4, 0.5], [0.6, 0.5], [0.9, 0.9], [0.1, 0.9]]\n\
                      metres = [[0, 20], [5, 20], [5, 0], [0, 0]]\n";

/// The first sentence about a camera with tracks and these lines and zones; empty if they are right.
fn rule_error(rules: &str) -> String {
    let camera = "[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\ntrack = {}\n";
    let found = Config::parse(&format!("{MODEL}{camera}{rules}"), Path::new("v.toml"));
    found.map_or_else(|errors| errors.findings[0].message.clone(), |_| String::new())
}

#[test]
fn lines_and_zones_that_cannot_work_are_reported() {
    let line = |keys: &str| format!("[[camera.line]]\nname = \"l\"\n{keys}\n");
    let zone = |name: &str, keys: &str| format!("[[camera.zone]]\nname = \"{name}\"\n{keys}\n");
    let clips = |keys: &str| format!("[camera.clips]\ndirectory = \"c\"\n{keys}\n");
    for (rules, wanted) in [
        (line("points = [[0.1, 0.5], [0.9, 0.5]]"), ""),
        (zone("z", "dwell = \"5 s\"\nunless = [\"z2/occupancy\"]") + &zone("z2", "occupancy = { at_most = 2 }"), ""),
        (line("points = [[0.1, 0.5]]"), "a line needs two or more different points"),
        (line("points = [[0.1, 0.5], [0.1, 0.5]]"), "a line needs two or more different points"),
        (
            line("points = [[0.1, 0.5], [3, 0.5]]"),
            "the point [3, 0.5] is outside of the frame: write it as fractions from 0 to 1",
        ),
        (
            line("points = [[1, 5], [30, 5]]\nframe_size = [20, 20]"),
            "the point [30, 5] is outside of the frame: write it within `frame_size`",
        ),
        (
            line("points = [[0.2, 0.5], [1, 0.5]]\nframe_size = [640, 480]"),
            "`points` lie within one pixel of the frame, so their numbers are fractions: remove `frame_size`",
        ),
        (line("points = [[0, 0], [1, 2]]\nframe_size = [640, 480]"), ""),
        (
            zone(
                "z",
                "frame_size = [640, 480]\npolygon = [[0, 0], [640, 0], [0, 480]]\n\
                 wrong_way = { direction = [[0, 0], [1, 1]] }",
            ),
            "`direction` lies within one pixel of the frame, so its numbers are fractions: write pixels, or remove `frame_size`",
        ),
        (
            GROUND.to_owned() + "frame_size = [640, 480]\n",
            "`points` lie within one pixel of the frame, so their numbers are fractions: remove `frame_size`",
        ),
        (line("points = [[0, 0], [1, 1]]\nsides = [\"in\"]"), "write two different names"),
        (line("points = [[0, 0], [1, 1]]\nsides = [\"in\", \"in\"]"), "write two different names"),
        (line("points = [[0, 0], [1, 1]]\nmin_size = 9\nmax_size = 8"), "no box has `min_size` 9 and `max_size` 8"),
        (zone("z", "") + &zone("z", ""), "have the name \"z\": give each its own name"),
        (zone("l", "") + &line("points = [[0, 0], [1, 1]]"), "have the name \"l\": give each its own name"),
        (zone("z", "polygon = [[0, 0], [1, 1]]"), "`camera.zone.polygon` "),
        (
            zone("z", "polygon = \"0.1,0.2,0.5,0.2,0.5,0.9\""),
            "`camera.zone.polygon` must be a list of points, each [x, y]: write [[0.1, 0.2], [0.5, 0.2], [0.5, 0.9]]",
        ),
        (
            line("frame_size = [1920, 1080]\npoints = [1, 20, 1, 90, 9, 90, 9, 99, 3, 3]"),
            "each [x, y]: write [[1, 20], [1, 90], [9, 90], [9, 99], ...]",
        ),
        (line("points = [\"0.1,0.2\", \"0.3, 0.4\"]"), "each [x, y]: write [[0.1, 0.2], [0.3, 0.4]]"),
        (line("points = \"789;672;1084;900\""), "each [x, y]: write [[789, 672], [1084, 900]]"),
        (line("points = \"here\""), "must be a list, each [x, y], two numbers from 0 to 16384, not \"here\""),
        (zone("z", "classes = [0]"), "must be a string that is not empty, not 0: write the label of this class"),
        (zone("z", "classes = \"person\""), "not \"person\": write [\"person\"]"),
        (zone("z", "active = [{ days = \"sat\" }]"), "not \"sat\": write [\"sat\"]"),
        (zone("z", "polygon = [[0, 0], [1, 1], [1, 0], [0, 1]]"), "`camera.zone.polygon` crosses or touches itself"),
        (zone("z", "visits = false"), "this zone reports nothing"),
        (zone("z", "occupancy = {}"), "`occupancy` has no limit"),
        (zone("z", "occupancy = { at_least = 3, at_most = 2 }"), "raise `at_most`"),
        (zone("z", "wrong_way = { direction = [[0, 0]] }"), "`direction` goes from one point to another"),
        (
            zone("dock", "only_while = [\"yrd\"]") + &zone("yard", ""),
            "no zone of the camera reports \"yrd\": did you mean \"yard\"?",
        ),
        (zone("z", "only_while = [\"b/dwell\"]") + &zone("b", ""), "no zone of the camera reports \"b/dwell\""),
        (
            zone("z", "only_while = [\"dock\"]")
                + &zone("dock", "visits = false\ndwell = \"3 s\"\noccupancy = { at_least = 2 }"),
            "no zone of the camera reports \"dock\", because this zone has `visits = false`: remove that, or name \"dock/dwell\" or \
             \"dock/occupancy\"",
        ),
        (
            line("points = [[0, 0], [1, 1]]\nunless = [\"dock/visits\"]")
                + &zone("dock", "visits = false\ntaken_away = { classes = [\"bag\"] }"),
            "no zone of the camera reports \"dock/visits\", because this zone has `visits = false`: remove that",
        ),
        (
            zone("z", "only_while = [\"dock/zone\"]") + &zone("dock", ""),
            "no zone of the camera reports \"dock/zone\": write \"dock\" for its visits",
        ),
        (
            zone("z", "unless = [\"dock/dwell\"]") + &zone("dock", "absence = \"3 s\""),
            "reports \"dock/dwell\", because this zone has no `dwell`: add it there, or name \"dock\" or \"dock/absence\"",
        ),
        (
            zone("z", "unless = [\"dock.dwell\"]") + &zone("dock", "dwell = \"3 s\""),
            "no zone of the camera reports \"dock.dwell\": did you mean \"dock/dwell\"?",
        ),
        (
            zone("z", "unless = [\"dock/everything\"]") + &zone("dock", "dwell = \"3 s\""),
            "no zone of the camera reports \"dock/everything\": name \"dock\" or \"dock/dwell\"",
        ),
        (
            zone("z", "unless = [\"l\"]") + &line("points = [[0, 0], [1, 1]]"),
            "no zone of the camera reports \"l\", which is a line, and crossings have no duration: name a zone",
        ),
        (zone("z", "only_while = [\"z\"]"), "zone \"z\" depends on itself"),
        (zone("a", "unless = [\"b\"]") + &zone("b", "unless = [\"a\"]"), "zone \"a\" depends on itself"),
        (line("points = [[0, 0], [1, 1]]\nunless = [\"l\"]"), "no zone of the camera reports \"l\""),
        (zone("z", "left_behind = { classes = [\"bag\"] }\ntaken_away = { classes = [\"bag\"], owners = [] }"), ""),
        (
            zone(
                "z",
                "active = [{ days = [\"sat\", \"sun\"] }, { from = \"22:00\", to = \"06:00\" }]\nreset = \"00:00\"",
            ),
            "",
        ),
        (zone("z", "active = [{ from = \"06:00\", to = \"06:00\" }]"), "`from` and `to` are the same"),
        (
            zone("z", "active = [{ from = \"24:00\" }]"),
            "must be a time of day from \"00:00\" to \"23:59\", not \"24:00\": write \"00:00\"",
        ),
        (zone("z", "reset = 06:00:00"), "not a date: write \"06:00\""),
        (zone("z", "") + &clips("rules = [\"z\"]\nkinds = [\"zone\", \"line\"]"), ""),
        (clips(""), "clips are of events, and this camera has none"),
        (zone("dock", "") + &clips("rules = [\"dok\"]"), "has no line or zone \"dok\": did you mean \"dock\"?"),
        (zone("z", "") + &clips("kinds = [\"dwel\"]"), "`camera.clips.kinds`"),
        (zone("z", "") + &clips("longest = \"10 s\""), "leaves nothing for the event: raise `longest`"),
        (zone("z", "") + &clips("before = \"0 s\"\nafter = \"0 s\"\nlongest = \"1 s\""), ""),
        (zone("z", "reset = \"6:00\""), "not \"6:00\": write \"06:00\""),
        (zone("z", "reset = 6"), "not 6: write \"06:00\""),
        (zone("z", "reset = \"24:00\""), "not \"24:00\": write \"00:00\""),
        (zone("z", "active = [{ from = \"22:00:00\" }]"), "not \"22:00:00\": write \"22:00\""),
        (zone("z", "active = [{ from = \"22:60\" }]"), "not \"22:60\""),
        (zone("z", "active = [{ to = \"24:00\", from = \"12:00\" }]"), ""),
        (zone("z", "active = [{ days = [\"Monday\"] }]"), "not \"Monday\": write \"mon\""),
        (
            zone("z", "active = [{ days = [\"weekdays\"] }]"),
            ": write each day, [\"mon\", \"tue\", \"wed\", \"thu\", \"fri\"]",
        ),
        (zone("z", "anchor = \"BOTTOM_CENTER\""), "not \"BOTTOM_CENTER\": write \"bottom\""),
        (line("points = [[0, 0], [1, 1]]\nanchor = \"bottom_left\""), "a corner cannot be an anchor, write \"bottom\""),
        (
            zone("z", "left_behind = { classes = [] }"),
            "`left_behind` sees no object: write the classes of what may be left behind",
        ),
        (
            zone("z", "taken_away = { classes = [\"person\"] }"),
            "`taken_away`: \"person\" is an owner and one of `classes`",
        ),
        (
            zone("a", "taken_away = { classes = [\"car\"] }") + &zone("z", "unless = [\"a/taken_away\"]"),
            "events of `taken_away` have no duration, so nothing can depend on them",
        ),
        (format!("{}{GROUND}", zone("z", "speed = { at_least_kmh = 30 }")), ""),
        (
            zone("z", "speed = { at_least_kmh = 30 }"),
            "`speed` needs the ground in metres: add the table `[camera.ground]`",
        ),
        (
            format!("{}{GROUND}", zone("z", "speed = {}")),
            "`speed` has no limit: set `at_least_kmh`, `at_most_kmh` or both",
        ),
        (
            format!("{}{GROUND}", zone("z", "speed = { at_least_kmh = 30, at_most_kmh = 20 }")),
            "no number is at least `at_least_kmh` and at most `at_most_kmh`: raise `at_most_kmh`",
        ),
        (GROUND.replace("[0.4, 0.5], ", ""), "`points` are four points of the frame: write four, as fractions"),
        (GROUND.replace("0.4", "4"), "`points` are four points of the frame: write four, as fractions"),
        (GROUND.replace("[0, 20], ", ""), "`metres` has a place for each of the four `points`: write four"),
        (GROUND.replace("[[0, 20], [5, 20]", "[[5, 20], [0, 20]"), "are not the same four points of a flat ground"),
        (GROUND.replace("[0.9, 0.9]", "[0.8, 0.5]"), "are not the same four points of a flat ground"),
    ] {
        let found = rule_error(&rules);
        assert!(found.contains(wanted) && found.is_empty() == wanted.is_empty(), "{rules}: {found}, wanted {wanted}");
    }
    let slow = format!(
        "{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\nmax_fps = 0.5\ntrack = {{}}\n{}{}",
        zone("z", ""),
        zone("longer", "hold = \"6 s\"")
    );
    assert_eq!(
        warnings(&slow),
        [
            "10:8 \"z\" sees nothing: a frame comes every 2 s, and `hold` is 1 s: raise `hold` to three times the interval"
        ]
    );
    let held = |track: &str, more: &str| {
        let camera = format!("[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\ntrack = {{ {track} }}\n");
        warnings(&format!("{MODEL}{camera}{}", zone("z", more)))
    };
    assert_eq!(
        held("", "hold = \"10 s\""),
        [
            "10:8 `hold` is 10 s, and the track of an object that is unseen for 2.5 s ends before: raise `unseen` of `[camera.track]`, or \
             lower `hold`"
        ]
    );
    // A camera of one frame a second, a tracker that waits, a parked car and objects that no longer match.
    for (track, more) in [
        ("", "hold = \"3 s\""),
        ("unseen = \"10 s\"", "hold = \"10 s\""),
        ("unseen = \"0.5 s\"", ""),
        ("", "hold = \"10 s\"\nparked = true"),
        ("", "hold = \"10 s\"\nmin_score = 0.5"),
    ] {
        assert_eq!(held(track, more), [""; 0], "{track} {more}");
    }
    let whole = format!(
        "{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\ntrack = {{}}\n{}",
        zone("z", "frame_size = [640, 480]")
    );
    assert!(warnings(&whole)[0].starts_with("10:14 `frame_size` has no effect, because this zone is the whole frame"));
    let always = |active: &str| {
        let camera = "[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\ntrack = {}\n";
        warnings(&format!("{MODEL}{camera}{}", zone("z", &format!("active = {active}"))))
    };
    assert!(always("[{ days = [\"sat\"] }]").is_empty());
    assert!(always("[]")[0].starts_with("10:10 `active` has no time, so it has no effect"));
    for whole_week in ["[{}]", "[{ from = \"00:00\", to = \"24:00\" }]", "[{ days = [] }]"] {
        let found = always(whole_week);
        assert!(found[0].starts_with("10:11 this time is the whole week, so `active` has no effect"), "{found:?}");
    }
    let bags = zone("z", "left_behind = { classes = [\"suitcase\"] }");
    let tracks = "track = { classes = [\"suitcase\"] }";
    let ownerless = format!("{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\n{tracks}\n{bags}");
    assert!(sentences(&ownerless)[0].contains("`left_behind` sees no owner, because none of `owners` has tracks"));
    let untracked = format!("{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\n{}", zone("z", ""));
    let found = sentences(&untracked);
    assert!(found.len() == 1 && found[0].contains("lines and zones need tracks"), "{found:?}");
    let nothing = format!(
        "{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\n[[sink]]\ntype = \"stdout\"\nmessages = []\n"
    );
    assert!(sentences(&nothing)[0].contains("this sink sends nothing"));
}

#[test]
fn a_class_of_a_rule_that_has_no_tracks_is_a_warning() {
    let camera = |keys: &str| format!("[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\n{keys}\n");
    let rules = "[[camera.zone]]\nname = \"z\"\nclasses = [\"person\", \"car\"]\n\
                 [[camera.line]]\nname = \"l\"\npoints = [[0, 0], [1, 1]]\nclasses = [\"person\"]\n";
    let found = |model: &str, keys: &str| warnings(&format!("{MODEL}{model}{}{rules}", camera(keys)));
    let warning = |place: &str, of: &str| {
        format!(
            "{place} \"person\" is never seen, because `classes` of {of} leaves it out: add it there, or remove it here"
        )
    };
    for quiet in ["track = {}", "track = { classes = [] }", "track = { classes = [\"car\", \"person\"] }"] {
        assert!(found("", quiet).is_empty(), "{quiet}");
    }
    let of = "`[camera.track]`";
    assert_eq!(found("", "track = { classes = [\"car\"] }"), [warning("10:12", of), warning("14:12", of)]);
    let of = "the camera's `[[model]]`";
    assert_eq!(found("classes = [\"car\"]\n", "track = {}"), [warning("11:12", of), warning("15:12", of)]);
    let on = "classes = [\"car\"]\n[[model]]\nname = \"on\"\npath = \"on.onnx\"\non = \"n\"\n";
    assert_eq!(found(on, "track = {}"), [warning("15:12", of), warning("19:12", of)]);
    let of = "the model in `models` of the camera";
    let models = "models = [{ name = \"n\", classes = [\"car\"] }]\ntrack = {}";
    assert_eq!(found("", models), [warning("11:12", of), warning("15:12", of)]);
    let bags = format!(
        "{MODEL}{}[[camera.zone]]\nname = \"z\"\ntaken_away = {{ classes = [\"bag\"] }}\n",
        camera("track = { classes = [\"person\"] }")
    );
    assert!(warnings(&bags)[0].starts_with("10:27 \"bag\" is never seen"), "{:?}", warnings(&bags));
}

#[test]
fn a_name_from_another_program_is_answered_with_ours() {
    let line = |keys: &str| format!("[[camera.line]]\nname = \"l\"\npoints = [[0, 0], [1, 1]]\n{keys}\n");
    let zone = |keys: &str| format!("[[camera.zone]]\nname = \"z\"\n{keys}\n");
    for (rules, key, wanted) in [
        (zone("coordinates = \"0.1,0.2,0.3,0.4\""), "camera.zone.coordinates", "write `polygon`, the corners in order"),
        (zone("roi-RF = \"295;643;579;634\""), "camera.zone.roi-RF", "write `polygon`"),
        (zone("objects = [\"car\"]"), "camera.zone.objects", "write `classes`"),
        (line("class-id = -1"), "camera.line.class-id", "write `classes`"),
        (zone("inertia = 3"), "camera.zone.inertia", "write `settle`, a time instead of a number of frames"),
        (line("minimum_crossing_threshold = 1"), "camera.line.minimum_crossing_threshold", "write `settle`"),
        (
            zone("loitering_time = 4"),
            "camera.zone.loitering_time",
            "write `dwell`, the time of one visit, or `loitering`",
        ),
        (line("triggering_anchors = []"), "camera.line.triggering_anchors", "write `anchor`"),
        (line("line-crossing-Exit = \"1;2;3;4\""), "camera.line.line-crossing-Exit", "write `points`, from one end"),
        (zone("line-crossing = 1"), "camera.zone.line-crossing", "write `[[camera.line]]`"),
        (zone("filters.person.min_area = 5"), "camera.zone.filters", "`min_size` and `max_size` in this table"),
        (line("required_zones = [\"z\"]"), "camera.line.required_zones", "write `only_while"),
        (zone("overcrowding-OC = 1"), "camera.zone.overcrowding-OC", "write `occupancy"),
        (zone("direction-South = 1"), "camera.zone.direction-South", "write `wrong_way"),
        (zone("max_speed = 30"), "camera.zone.max_speed", "write `speed = { at_least_kmh = 30 }`"),
        (zone("speed_threshold = 30"), "camera.zone.speed_threshold", "it needs `[camera.ground]`"),
        (line("dwell = \"5 s\""), "camera.line.dwell", "write it in a `[[camera.zone]]`"),
        (zone("speed = { at_least = 30 }") + GROUND, "camera.zone.speed.at_least", "write `at_least_kmh`, in km/h"),
        (zone("active = [{ start = \"22:00\" }]"), "camera.zone.active.start", "write `from`: `from = \"22:00\"`"),
        ("[camera.zones.z]\n".to_owned(), "camera.zones", "write `[[camera.zone]]` below"),
        ("[[zone]]\n".to_owned(), "zone", "write `[[camera.zone]]` below"),
        ("[ground]\n".to_owned(), "ground", "write `camera.` before its name"),
        (
            zone("speed = { max = 30 }") + GROUND,
            "camera.zone.speed.max",
            "`at_most_kmh` this one and lower ones, in km/h",
        ),
        (zone("occupancy = { min = 3 }"), "camera.zone.occupancy.min", "write `at_least`"),
    ] {
        let text = format!("{MODEL}[[camera]]\nname = \"c\"\nsource.type = \"pattern\"\ntrack = {{}}\n{rules}");
        let found = sentences(&text);
        let is_right =
            found.len() == 1 && found[0].contains(&format!("unknown key `{key}`: ")) && found[0].contains(wanted);
        assert!(is_right, "{rules}: {found:?}, wanted {wanted}");
    }
}

#[test]
fn a_value_in_place_of_a_small_table_is_answered_with_an_example() {
    let active = "[{ days = [\"sat\", \"sun\"], from = \"22:00\", to = \"06:00\" }]";
    let direction = "{ direction = [[0.5, 0.9], [0.5, 0.1]] }";
    for (key, values, example) in [
        ("speed", &["30", "\"30 km/h\"", "[]"][..], "{ at_least_kmh = 30 }"),
        ("occupancy", &["3"], "{ at_least = 3 }"),
        ("stopped", &["true", "\"10 s\""], "{ time = \"10 s\" }"),
        ("wrong_way", &["[[0, 0], [1, 1]]"], direction),
        ("left_behind", &["[\"suitcase\"]"], "{ classes = [\"suitcase\"] }"),
        ("active", &["{}", "{ from = \"22:00\" }", "\"22:00-06:00\"", "true", "[\"22:00\", \"06:00\"]"], active),
    ] {
        for value in values {
            let found = rule_error(&format!("[[camera.zone]]\nname = \"z\"\n{key} = {value}\n"));
            assert!(found.ends_with(&format!(", or `{key} = {example}`")), "{value}: {found}");
        }
        assert_eq!(rule_error(&format!("[[camera.zone]]\nname = \"z\"\n{key} = {example}\n{GROUND}")), "");
    }
}

#[test]
fn a_time_zone_that_this_machine_does_not_have_is_reported() {
    // Without `tzdata`, UTC is known as well.
    let known = Config::parse(&format!("[device]\ntime_zone = \"utc\"\n{MODEL}"), Path::new("v.toml")).unwrap();
    assert_eq!(known.device.time_zone, Some(jiff::tz::TimeZone::UTC));
    let found = sentences(&format!("[device]\ntime_zone = \"Europe/Atlantis\"\n{MODEL}"));
    assert!(found.len() == 1 && found[0].contains("`device.time_zone` "), "{found:?}");
}
