#![allow(clippy::unwrap_used)]

use std::path::Path;

use proptest::prelude::*;
use toml::de::DeTable;
use visiond_bundle::BundleSettings;

use super::*;
use crate::tables::Section;
use crate::types::Config;
use crate::{ConfigErrors, Document, check_settings};

const FILE: &str = r#"
[log]
level = "warn"

[[model]]
name = "objects"
path = "objects.onnx"
score_threshold = 0.3

[[model]]
name = "plates"
path = "plates.onnx"

[[camera]]
name = "door"
models = ["objects", "plates"]
max_fps = 10.0
crop = [0, 0, 640, 480]
crop_frame_size = [1280, 960]
source = { type = "pattern" }
track = { unseen = "2 s" }

[[camera.privacy]]
polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1]]

[[camera.line]]
name = "entry"
points = [[10, 20], [30, 40]]
frame_size = [640, 480]
min_score = 0.2

[[camera.zone]]
name = "dock"
occupancy = { at_least = 3, lasting = "2 s" }

[[camera.ignore]]
polygon = [[0.0, 0.0], [0.3, 0.0], [0.3, 0.1]]

[[camera]]
name = "yard"
model = "objects"
source = { type = "pattern" }
"#;

fn with(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse_with(FILE, Path::new("v.toml"), BundleSettings::proposed("north", 3, text))
}

fn valid(text: &str) -> Config {
    with(text).unwrap_or_else(|errors| panic!("{text}: {errors}"))
}

/// Returns the configuration of the file with these texts over it, one after another.
fn merged(texts: &[&str]) -> Config {
    let mut diagnostics = Diagnostics::default();
    let mut root = DeTable::parse(FILE).unwrap();
    for text in texts {
        merge(root.get_mut(), DeTable::parse(text).unwrap().get_ref(), "", &Config::keys(), &mut diagnostics);
    }
    let config = Document { root, taken: None }.config(Path::new("v.toml"), &mut diagnostics);
    assert_eq!(diagnostics.error_count(), 0, "{texts:?}");
    config.unwrap()
}

/// Returns the first error, with its place.
fn error(text: &str) -> String {
    with(text).unwrap_err().to_string().lines().next().unwrap().to_owned()
}

#[test]
fn each_key_that_a_bundle_may_set_exists_and_names_no_file_program_address_or_login() {
    for (table, keys) in ALLOWED {
        let mut known = Config::keys();
        for part in table.split('.') {
            let found = known.into_iter().find(|key| key.name == part).map(|key| key.shape);
            known = match found {
                Some(Shape::Table(keys) | Shape::Tables(keys)) => keys,
                other => panic!("{table}: {other:?}"),
            };
        }
        for key in keys {
            let found = known.iter().find(|known| known.name == *key).map(|known| &known.shape);
            let Some(Shape::Value(kind)) = found else { panic!("{table}.{key}: {found:?}") };
            let words = ["path", "URL", "program", "credential", "address", "file", "folder", "host", "topic"];
            assert!(!words.iter().any(|word| kind.contains(word)), "{table}.{key}: {kind}");
        }
    }
    // A camera's own table, and with it what may never be set.
    for key in ["camera.source", "camera.model", "model.path", "model.bundle", "model.card", "http", "bundles", "sink"]
    {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        assert!(!is_allowed(table, name), "{key}");
    }
}

#[test]
fn tables_are_merged_by_key_and_by_name_and_other_lists_are_replaced() {
    let config = valid(
        "log.level = \"debug\"\n[[camera]]\nname = \"door\"\nscore_threshold = 0.5\ntrack.score = 0.4\n\
         ignore = [{ polygon = [[0.5, 0.5], [0.6, 0.5], [0.6, 0.6]], classes = [\"cat\"] }]\n\
         [[camera.line]]\nname = \"entry\"\nmin_score = 0.7\n[[camera.line]]\nname = \"exit\"\npoints = [[0.1, 0.2], [0.3, 0.4]]\n\
         [[camera.zone]]\nname = \"dock\"\noccupancy.at_least = 5\n\
         [[camera.models]]\nname = \"plates\"\nevery = 4\n[[model]]\nname = \"objects\"\nclasses = [\"car\"]\n",
    );
    let plain = Config::parse(FILE, Path::new("v.toml")).unwrap();
    let (door, before) = (&config.cameras[0], &plain.cameras[0]);
    assert_eq!(config.log.level, log::LevelFilter::Debug);
    assert_eq!((door.score_threshold, door.max_fps), (Some(0.5), Some(10.0)));
    let (track, track_before) = (door.track.as_ref().unwrap(), before.track.as_ref().unwrap());
    assert_eq!((track.score, track.unseen), (Some(0.4), track_before.unseen));
    assert!(door.ignore.len() == 1 && door.ignore[0].classes == ["cat"]);
    assert_eq!((door.line.len(), door.line[0].min_score), (2, 0.7));
    assert_eq!((&door.line[0].points, door.line[0].frame_size), (&before.line[0].points, Some([640, 480])));
    let occupancy = door.zone[0].occupancy.as_ref().unwrap();
    assert_eq!((occupancy.at_least, occupancy.lasting.as_secs()), (Some(5), 2));
    let models: Vec<_> = door.models.iter().map(|model| (&*model.name, model.every)).collect();
    assert_eq!(models, [("objects", 1), ("plates", 4)]);
    assert_eq!((config.models[0].score_threshold, &config.models[0].classes[..]), (Some(0.3), &["car".to_owned()][..]));
    assert_eq!((&config.cameras[1], &config.models[1]), (&plain.cameras[1], &plain.models[1]));
    let taken = config.bundles.taken.unwrap();
    assert_eq!((&*taken.bundle, taken.version), ("north", 3));
    assert!(taken.sets("door", "line", Some("entry")) && taken.sets("door", "ignore", None));
    assert!(!taken.sets("door", "line", Some("other")) && !taken.sets("yard", "line", Some("entry")));
}

#[test]
fn a_place_of_a_bundle_has_the_unit_of_the_bundle() {
    let line = |keys: &str| {
        let text = format!("[[camera]]\nname = \"door\"\n[[camera.line]]\nname = \"entry\"\n{keys}\n");
        valid(&text).cameras[0].line[0].clone()
    };
    assert_eq!(line("points = [[0.1, 0.2], [0.3, 0.4]]").frame_size, None);
    assert_eq!(line("points = [[1, 2], [3, 4]]\nframe_size = [64, 48]").frame_size, Some([64, 48]));
    assert_eq!(line("hold = \"3 s\"").frame_size, Some([640, 480]));
    let cropped = valid("[[camera]]\nname = \"door\"\ncrop = [0.0, 0.5, 1.0, 0.5]\n");
    assert_eq!(cropped.cameras[0].crop_frame_size, None);
}

#[test]
fn an_error_is_shown_at_its_place_in_the_settings_or_in_the_file() {
    assert!(error("a = \n").starts_with("north 3: settings.toml:1:5: invalid TOML: "), "{}", error("a = \n"));
    let unknown = error("\n\n[[camera]]\nname = \"door\"\ntresh = 3\n");
    assert!(unknown.starts_with("north 3: settings.toml:5:1: unknown key `camera.tresh`"), "{unknown}");
    let high = error("[[camera]]\nname = \"door\"\nscore_threshold = 3.0\n");
    assert!(high.starts_with("north 3: settings.toml:3:19: `camera.score_threshold` must be"), "{high}");
    // Only together with the file.
    let missing = error("[[camera]]\nname = \"yard\"\n[[camera.line]]\nname = \"door\"\n");
    assert!(missing.starts_with("north 3: settings.toml:3:1: `[camera.line]` needs the key `points`"), "{missing}");
    let twice = error("[[camera]]\nname = \"door\"\n[[camera]]\nname = \"door\"\n");
    assert!(twice.starts_with("north 3: settings.toml:3:1: `camera` \"door\" is there twice"), "{twice}");
    let nameless = error("[[camera]]\nmax_fps = 1.0\n");
    assert!(nameless.contains("settings.toml:1:1: `camera` needs a `name`"), "{nameless}");
    let list = error("camera = 3\n");
    assert!(list.starts_with("north 3: settings.toml:1:10: `camera` must be tables"), "{list}");
    let file = FILE.replace("level = \"warn\"", "level = \"loud\"");
    let settings = BundleSettings::proposed("north", 3, "[status]\nlog_interval = \"9 s\"\n");
    let errors = Config::parse_with(&file, Path::new("v.toml"), settings).unwrap_err();
    assert_eq!((errors.findings.len(), errors.findings[0].file.as_path()), (1, Path::new("v.toml")), "{errors}");
    // At its maker's, where the file is not known, what the settings leave out is no error.
    let found = |text: &str| check_settings(text, Path::new("s.toml")).len();
    assert_eq!(found("[[camera]]\nname = \"x\"\n[[camera.line]]\nname = \"y\"\nmin_score = 0.5\n"), 0);
    assert_eq!(found("[[camera]]\nname = \"x\"\nmax_fps = 0\n[http]\nlisten = []\n"), 2);
}

/// A fragment of keys that suit the file and each other.
fn fragments() -> impl Strategy<Value = String> {
    let of_camera = [
        "score_threshold = 0.5",
        "max_fps = 2.5",
        "enabled = false",
        "crop = [0.0, 0.5, 1.0, 0.5]",
        "track = { score = 0.5 }",
        "ignore = []",
        "privacy = []",
        "privacy = [{ polygon = [[0.2, 0.2], [0.4, 0.2], [0.4, 0.4]], fill = \"mosaic\" }]",
        "privacy = [{ polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1]] }]",
        "models = [\"plates\"]",
        "models = [{ name = \"objects\", every = 3 }]",
        "line = [{ name = \"entry\", enabled = false }]",
        "line = [{ name = \"entry\", points = [[0.1, 0.1], [0.2, 0.2]] }, { name = \"new\", points = [[0.1, 0.1], [0.2, 0.2]] }]",
        "zone = [{ name = \"dock\", occupancy = { at_most = 9 } }]",
    ];
    let keys = prop::sample::subsequence(of_camera.to_vec(), 0..=of_camera.len());
    (keys, any::<bool>()).prop_map(|(keys, logs)| {
        let mut seen = BTreeSet::new();
        let keys: Vec<_> = keys.into_iter().filter(|line| seen.insert(line.split(' ').next())).collect();
        let log = if logs { "log.level = \"debug\"\n" } else { "" };
        format!("{log}[[camera]]\nname = \"door\"\n{}\n", keys.join("\n"))
    })
}

proptest! {
    // The description of all keys is made for each merge.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn settings_that_say_nothing_change_nothing_and_the_same_settings_twice_are_the_same(text in fragments()) {
        let plain = Config::parse(FILE, Path::new("v.toml")).unwrap();
        prop_assert_eq!(&merged(&[""]), &plain);
        prop_assert_eq!(&merged(&["", &text]), &merged(&[&text]));
        prop_assert_eq!(merged(&[&text, &text]), merged(&[&text]));
    }

    #[test]
    fn no_settings_take_a_privacy_mask_away(text in fragments()) {
        let plain = Config::parse(FILE, Path::new("v.toml")).unwrap();
        let masks = merged(&[&text]).cameras[0].privacy.clone();
        prop_assert_eq!(&masks[..1], &plain.cameras[0].privacy[..]);
    }

    #[test]
    fn no_text_makes_the_merge_fail_badly(text in "[a-z\\[\\]=. \"\\n0-9{}]{0,60}") {
        let _ = with(&text);
        let _ = check_settings(&text, Path::new("s.toml"));
    }
}
