//! Checks whether `visiond run` could start with a configuration on this machine and write all of its outputs, using the functions
//! that `run` itself calls first.
//!
//! A problem that persists until the user fixes it is an error. One that may be gone when the service starts is a warning: a
//! camera may be plugged in, systemd creates /run/visiond and passes credentials, and the service's user may have permissions that
//! this user lacks.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use visiond_annotate::annotator::Annotator;
use visiond_capture::Buffers;
use visiond_capture::v4l2::device::Node;
use visiond_capture::v4l2::{controls, find_camera};
use visiond_clips::recorder::ClipRecorder;
use visiond_config::diagnostics::Diagnostics;
use visiond_config::types::{
    Address, CameraConfig, Config, HttpConfig, ModelConfig, SinkKind, SourceConfig, V4l2Config,
};
use visiond_engine::detector::class_hint;
use visiond_kernels::cuda::StreamPriority;
use visiond_publish::PublishError;
use visiond_service::bundles::{self, Bundles};
use visiond_service::cascade::{self, CascadeRole};
use visiond_service::model_trial;
use visiond_service::{HttpError, ServiceError, no_tiles};
use visiond_system::preflight::Certainty;
use visiond_system::stop::Stop;

use super::user::{User, user_of};

/// The beginning of a warning about a class of a camera's table.
const NO_CLASS: &str = "the camera's model does not have";

/// Reports why `run` would reject the configuration in the file `path`. `root` is the parsed file of `config`. Returns the installed
/// bundles of its models.
pub fn check(path: &Path, config: &Config, root: &DeTable<'_>, report: &mut Diagnostics) -> Bundles {
    let mut bundles = Bundles::new();
    let mut report = Report { path, report };
    let entry = |name, index| root.get(name).and_then(|item| item.get_ref().as_array()?.get(index));
    check_http(&config.http, root.get("http"), &mut report);
    // Of each model; none if it cannot be loaded or its classes have no names.
    let mut labels: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut roles: BTreeMap<&str, CascadeRole> = BTreeMap::new();
    let mut without_tiles: Vec<&str> = Vec::new();
    for (index, model) in config.models.iter().enumerate() {
        let mut model = model.clone();
        let checked = bundles::resolve(&mut model, &config.bundles).and_then(|bundle| {
            bundles.extend(bundle.map(|bundle| (model.name.clone(), bundle)));
            check_model(&model, config)
        });
        let model = &config.models[index];
        match checked {
            Ok(CheckedModel { labels: names, can_tile, on_gpu, role }) => {
                if model.priority == StreamPriority::High && !on_gpu {
                    let message = format!(
                        "model {} runs on the CPU, where `priority` has no effect: remove it, or build an engine for the GPU",
                        model.name
                    );
                    report.report.warning(span(entry("model", index), &["priority"]), message);
                }
                labels.insert(&model.name, names);
                roles.insert(&model.name, role);
                without_tiles.extend((!can_tile).then_some(&*model.name));
            }
            Err(error) => {
                let key = if model.bundle.is_some() { "bundle" } else { "path" };
                report.refusal(span(entry("model", index), &[key]), error.to_string(), &error.certainty());
            }
        }
    }
    let mut beside: BTreeMap<&str, Vec<CascadeRole>> = BTreeMap::new();
    for (index, model) in config.models.iter().enumerate() {
        let Some(on) = model.on.as_deref() else { continue };
        if let (Some(role_of_on), Some(role)) = (roles.get(on), roles.get(&*model.name)) {
            let others = beside.entry(on).or_default();
            if let Err(error) = cascade::check(role_of_on, others, role) {
                report.report.error(span(entry("model", index), &["on"]), error.to_string());
            }
            others.push(role.clone());
        }
        if let Some(labels) = labels.get(on).filter(|labels| !labels.is_empty()) {
            let (refusal, at) = (format!("model {on} does not have"), span(entry("model", index), &["on_classes"]));
            check_labels(&model.on_classes, labels, &refusal, at, report.report);
        }
    }
    labels.retain(|_, names| !names.is_empty());
    let all = (labels.len() == config.models.len()).then(|| labels.values().flatten().cloned().collect::<Vec<_>>());
    for (index, sink) in config.sinks.iter().enumerate() {
        if let (SinkKind::Mqtt(mqtt), Some(labels)) = (&sink.kind, &all) {
            let at = span(entry("sink", index), &["count_labels"]);
            check_labels(&mqtt.count_labels, labels, "no model has", at, report.report);
        }
    }
    for (index, camera) in config.cameras.iter().enumerate().filter(|(_, camera)| camera.enabled) {
        check_camera(camera, entry("camera", index), root.get("ffmpeg"), &mut report);
        let models: Vec<_> = config.models_of(camera).map(|(_, model)| model).collect();
        // The camera's first model is the tracked one.
        let tracked = models.first().map_or("", |model| &*model.name);
        if camera.track.is_some() && roles.get(tracked).is_some_and(|role| !role.finds_objects()) {
            let message = format!("model {tracked} finds no objects, so there is nothing to track: remove this table");
            report.report.warning(span(entry("camera", index), &["track"]), message);
        }
        let listed = |key: &str, at: usize| {
            let items = |camera: &Spanned<DeValue<'_>>| {
                Some(camera.get_ref().as_table()?.get(key)?.get_ref().as_array()?.get(at)?.span())
            };
            entry("camera", index).and_then(items).unwrap_or_else(|| span(entry("camera", index), &[]))
        };
        if let (Some(track), Some(labels)) = (&camera.track, labels.get(tracked)) {
            let at = span(entry("camera", index), &["track", "classes"]);
            check_labels(&track.classes, labels, NO_CLASS, at, report.report);
            for (at, line) in camera.line.iter().enumerate() {
                check_labels(&line.classes, labels, NO_CLASS, listed("line", at), report.report);
            }
            for (at, zone) in camera.zone.iter().enumerate() {
                let belongings = [&zone.left_behind, &zone.taken_away].into_iter().flatten();
                // Owners have a default, which not every model has.
                let of_belongings = belongings.map(|belonging| &belonging.classes);
                for classes in iter::once(&zone.classes).chain(of_belongings) {
                    check_labels(classes, labels, NO_CLASS, listed("zone", at), report.report);
                }
            }
        }
        for (at, model) in models.iter().enumerate() {
            if model.tiles.is_some() && without_tiles.contains(&&*model.name) {
                report.report.error(listed("models", at), no_tiles(&model.name));
            }
            if let Some(labels) = labels.get(&*model.name) {
                let refusal = format!("model {} does not have", model.name);
                check_labels(&model.classes, labels, &refusal, listed("models", at), report.report);
            }
        }
        let of_all: Option<Vec<_>> = models.iter().map(|model| labels.get(&*model.name)).collect();
        if let Some(labels) = of_all {
            let labels: Vec<_> = labels.into_iter().flatten().cloned().collect();
            for (at, ignore) in camera.ignore.iter().enumerate() {
                let at = listed("ignore", at);
                check_labels(&ignore.classes, &labels, NO_CLASS, at, report.report);
            }
        }
    }
    for (index, error) in visiond_publish::check(&config.sinks) {
        let (key, certainty) = (error.key, error.certainty.clone());
        let error = PublishError::Open { sink: config.sinks[index].name.clone(), error };
        report.refusal(span(entry("sink", index), &[key]), error.to_string(), &certainty);
    }
    bundles
}

/// What the checks need to know of a model that can be loaded.
struct CheckedModel {
    labels: Vec<String>,
    can_tile: bool,
    on_gpu: bool,
    role: CascadeRole,
}

/// Loads the model and creates its detector and buffers like `run`.
fn check_model(model: &ModelConfig, config: &Config) -> Result<CheckedModel, ServiceError> {
    let loaded = model_trial::load(model, &config.engine, &Stop::new().map_err(ServiceError::System)?)?;
    let detector = loaded.required_detector()?;
    Buffers::new(&config.buffers, loaded.device()).map_err(ServiceError::Buffers)?;
    Ok(CheckedModel {
        labels: detector.labels().iter().map(|label| label.to_string()).collect(),
        can_tile: loaded.card.head.family().can_tile(),
        on_gpu: loaded.device().is_some(),
        role: CascadeRole::of(&model.name, &loaded.card.head, &detector),
    })
}

/// Warns about labels that the models do not report: they are never counted or tracked.
fn check_labels(wanted: &[String], labels: &[String], refusal: &str, at: Range<usize>, report: &mut Diagnostics) {
    for label in wanted.iter().filter(|label| !labels.contains(label)) {
        let hint = class_hint(label, labels);
        report.warning(at.clone(), format!("{refusal} the class `{label}`{hint}"));
    }
}

/// The findings about a file.
struct Report<'a> {
    path: &'a Path,
    report: &'a mut Diagnostics,
}

impl Report<'_> {
    /// Reports the sentence with which `run` rejects the configuration.
    fn refusal(&mut self, span: Range<usize>, sentence: String, certainty: &Certainty) {
        match certainty {
            Certainty::Certain => self.report.error(span, sentence),
            Certainty::OnlyHere => self.report.warning(span, format!("{sentence}; {ONLY_HERE}")),
            Certainty::InUse(resource) => match user_of(resource, self.path) {
                // The sentence's remedy, to stop the other process, would be wrong.
                User::This(user) => {
                    self.report
                        .warning(span, format!("{resource} is in use: {user}, visiond, runs this configuration"));
                }
                User::Unknown(user) => self.report.warning(span, format!("{sentence}; {user}")),
                User::Other(user) => self.report.error(span, format!("{sentence}; {user}")),
            },
        }
    }
}

/// The text that follows an error that the service may not have.
const ONLY_HERE: &str = "visiond.service may not have this problem";

/// The `[[camera]]`, `[[model]]`, `[[sink]]`, `[ffmpeg]` or `[http]` in the file that a message is about.
type TableEntry<'a, 'i> = Option<&'a Spanned<DeValue<'i>>>;

/// Returns the range of the value at `path` in the file, otherwise that of the table above it.
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

fn check_http(config: &HttpConfig, entry: TableEntry<'_, '_>, report: &mut Report<'_>) {
    let listen = |address: &Address| {
        let index = config.listen.iter().position(|listed| listed == address)?;
        Some(entry?.get_ref().as_table()?.get("listen")?.get_ref().as_array()?.get(index)?.span())
    };
    for (address, error) in visiond_web::check(config) {
        let key = if matches!(error, HttpError::Token(_)) { "token" } else { "listen" };
        let span = address.as_ref().and_then(listen).unwrap_or_else(|| span(entry, &[key]));
        report.refusal(span, error.to_string(), &error.certainty());
    }
}

fn check_camera(camera: &CameraConfig, entry: TableEntry<'_, '_>, ffmpeg: TableEntry<'_, '_>, report: &mut Report<'_>) {
    if let SourceConfig::V4l2(v4l2) = &camera.source {
        match find_camera::find(&v4l2.device, None) {
            Ok(found) => check_controls(v4l2, &found.node, entry, report.report),
            Err(error) => report.report.warning(span(entry, &["source", "device"]), error.to_string()),
        }
    }
    for fault in visiond_capture::check(&camera.source) {
        let span = match ffmpeg {
            Some(_) if fault.key == "ffmpeg" => span(ffmpeg, &["program"]),
            _ => span(entry, &["source", fault.key]),
        };
        let sentence = fault.error.to_string();
        if fault.error.may_pass() && fault.certainty == Certainty::Certain {
            report.report.warning(span, sentence);
        } else {
            report.refusal(span, sentence, &fault.certainty);
        }
    }
    if let Some(Err(error)) = camera.annotate.as_ref().map(|annotate| Annotator::check(annotate, &camera.name)) {
        report.refusal(span(entry, &["annotate", "directory"]), error.to_string(), &error.certainty);
    }
    if let Some(Err(error)) = camera.clips.as_ref().map(|clips| ClipRecorder::check(clips, &camera.name)) {
        report.refusal(span(entry, &["clips", "directory"]), error.to_string(), &error.certainty);
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
