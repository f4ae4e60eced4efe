//! Checks whether this machine has the models, devices, programs and folders that a configuration names.
//!
//! Problems that persist until the user fixes them are errors. Problems that may be gone when the daemon starts are warnings:
//! a camera may be plugged in, systemd creates /run/visiond, and the service's user may write where this user may not.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use visiond_capture::v4l2::device::Node;
use visiond_capture::v4l2::{controls, find_camera};
use visiond_config::diagnostics::Diagnostics;
use visiond_config::is_url;
use visiond_config::types::{CameraConfig, Config, SinkConfig, SinkKind, SourceConfig, V4l2Config};
use visiond_service::loaded_model::LoadedModel;

use crate::find_program::{allowed, find_program};

/// Reports what is missing. `root` is the parsed file of `config`.
pub fn check(config: &Config, root: &DeTable<'_>, report: &mut Diagnostics) {
    let entry = |name, index| root.get(name).and_then(|item| item.get_ref().as_array()?.get(index));
    for (index, model) in config.models.iter().enumerate() {
        // Loads the model as `run` does, so that it reports the same errors.
        let result = LoadedModel::load(model, &config.engine).and_then(|loaded| loaded.required_detector().map(drop));
        if let Err(error) = result {
            report.error(span(entry("model", index), &["path"]), error.to_string());
        }
    }
    for (index, camera) in config.cameras.iter().enumerate().filter(|(_, camera)| camera.enabled) {
        check_camera(camera, entry("camera", index), report);
    }
    for (index, sink) in config.sinks.iter().enumerate() {
        check_sink(sink, entry("sink", index), report);
    }
    if !config.cameras.iter().any(|camera| camera.enabled) {
        let what = if config.cameras.is_empty() { "configured" } else { "enabled" };
        let message = format!("no camera is {what}, so `visiond run` has nothing to do: add a `[[camera]]`");
        report.warning(0..0, message);
    } else if config.sinks.is_empty() && config.cameras.iter().all(|camera| camera.annotate.is_none()) {
        report.warning(0..0, "no sink is configured, so detections go nowhere: add a `[[sink]]`");
    }
}

/// The `[[camera]]`, `[[model]]` or `[[sink]]` in the file that a message is about.
type TableEntry<'a, 'i> = Option<&'a Spanned<DeValue<'i>>>;

/// Returns the range of the value at `path` in the file, else that of the table above it.
fn span(entry: TableEntry<'_, '_>, path: &[&str]) -> Range<usize> {
    let Some(mut item) = entry else { return 0..0 };
    for key in path {
        match item.get_ref().as_table().and_then(|table| table.get(*key)) {
            Some(inner) => item = inner,
            None => break,
        }
    }
    item.span()
}

fn check_camera(camera: &CameraConfig, entry: TableEntry<'_, '_>, report: &mut Diagnostics) {
    let at = |key| span(entry, &["source", key]);
    match &camera.source {
        SourceConfig::V4l2(v4l2) => match find_camera::find(&v4l2.device, None) {
            Ok(found) => check_controls(v4l2, &found.node, entry, report),
            Err(error) => report.warning(at("device"), error.to_string()),
        },
        SourceConfig::Video(video) => {
            if !is_url(&video.url) && !Path::new(&video.url).exists() {
                report.warning(at("url"), format!("{} does not exist", video.url));
            }
            check_program(&video.ffmpeg, at("ffmpeg"), report);
        }
        SourceConfig::Command(command) => {
            if let Some(program) = command.command.first() {
                check_program(Path::new(program), at("command"), report);
            }
        }
        SourceConfig::Images(images) if !images.path.exists() => {
            report.warning(at("path"), format!("{} does not exist", images.path.display()));
        }
        SourceConfig::Images(_) | SourceConfig::Pattern(_) => {}
    }
    if let Some(annotate) = &camera.annotate {
        // The daemon creates a missing folder, so check the nearest existing one above it.
        let existing = annotate.directory.ancestors().find(|folder| folder.exists() || folder.as_os_str().is_empty());
        check_folder(existing.unwrap_or(Path::new("/")), span(entry, &["annotate", "directory"]), report);
    }
}

/// Warns about controls that the camera does not accept, if it can be opened. The daemon streams without them.
fn check_controls(v4l2: &V4l2Config, node: &Path, entry: TableEntry<'_, '_>, report: &mut Diagnostics) {
    if v4l2.controls.is_empty() {
        return;
    }
    let Ok(node) = Node::open(node) else { return };
    for (name, why) in controls::wrong(&node, &v4l2.controls) {
        report.warning(span(entry, &["source", "controls", &name]), why);
    }
}

fn check_sink(sink: &SinkConfig, entry: TableEntry<'_, '_>, report: &mut Diagnostics) {
    let path = match &sink.kind {
        SinkKind::Stdout => return,
        SinkKind::File(file) => &file.path,
        SinkKind::Unix(unix) => &unix.path,
        SinkKind::Mqtt(mqtt) => return check_pem([&mqtt.ca, &mqtt.certificate, &mqtt.key], entry, report),
        SinkKind::Nats(nats) => return check_pem([&nats.ca, &nats.certificate, &nats.key], entry, report),
    };
    if path.is_dir() {
        report.error(span(entry, &["path"]), format!("{} is a folder: name a file in it", path.display()));
    } else {
        check_folder(path.parent().unwrap_or(Path::new("/")), span(entry, &["path"]), report);
    }
}

/// Checks the TLS files of a broker. Does not connect to the broker, because it may start later.
fn check_pem(files: [&Option<PathBuf>; 3], entry: TableEntry<'_, '_>, report: &mut Diagnostics) {
    for (key, file) in ["ca", "certificate", "key"].into_iter().zip(files) {
        if let Some(Err(error)) = file.as_ref().map(std::fs::File::open) {
            let path = file.as_deref().unwrap_or(Path::new("")).display();
            report.warning(span(entry, &[key]), format!("cannot read {path}: {error}"));
        }
    }
}

fn check_folder(folder: &Path, span: Range<usize>, report: &mut Diagnostics) {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let name = folder.display();
    if !folder.exists() {
        let message = format!("the folder {name} does not exist: create it before `visiond run`, or name another");
        report.warning(span, message);
    } else if !folder.is_dir() {
        report.error(span, format!("{name} is not a folder: name another"));
    } else if !allowed(folder, libc::W_OK | libc::X_OK) {
        let message = format!("this user cannot write to the folder {name}: change its owner, or name another");
        report.warning(span, message);
    }
}

fn check_program(program: &Path, span: Range<usize>, report: &mut Diagnostics) {
    if find_program(program).is_some() {
        return;
    }
    let name = program.display();
    let message = if program.components().count() > 1 || program.is_absolute() {
        format!("the program {name} does not exist or is not executable")
    } else if name.to_string() == "ffmpeg" {
        "ffmpeg is not in PATH: install it (Debian and Ubuntu: apt install ffmpeg), or write its full path".to_owned()
    } else {
        format!("the program {name} is not in PATH: install it, or write its full path")
    };
    report.error(span, message);
}
