//! Checks across the keys and tables of a file: names, paths, addresses, paces.
//!
//! The checks get the tables with the location of each key, so that an error in one key of a camera does not hide an error in
//! another. They skip absent or invalid values, because reading the tables has reported those.

mod rules;

use std::iter;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use visiond_engine::detector::MaskForm;
use visiond_ground::nearest::nearest;
use visiond_kernels::color::{ColorDescription, ColorRange, GreyLevels};
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::polygon::Polygon;
use visiond_kernels::view::{Crop, ViewError, ViewSpec};
use visiond_system::broker_url::split_broker;
use visiond_system::preflight::{folder_of, overlap};

use super::diagnostics::Diagnostics;
use super::kinds::{Address, CameraName, Fingerprint, is_loopback};
use super::tables::{Field, Part, Place, Read};
use super::types::{
    CameraConfig, CameraFormat, CameraModelConfig, CommandConfig, CommandContainer, Config, HttpConfig, MAX_AREAS,
    ModelConfig, MqttSinkConfig, NatsSinkConfig, SOCKET, SinkConfig, SinkKind, SinkTarget, SourceConfig, TilesConfig,
    WhenFull,
};

const SAME_TOPICS: &str = "publishes the same topics to this broker: set another `topic_prefix`, or remove one of them";
const SAME_SUBJECTS: &str =
    "publishes the same subjects to these servers: set another `subject`, or remove one of them";

const MAX_FPS_SKIPS: &str = "`max_fps` would skip frames of a source that waits for the model: remove it, or give the source a rate \
                             (`fps`, `pace = \"realtime\"`)";

/// The most models in a row, each on the detections of the one before; the first is on frames.
const MAX_LEVELS: usize = 3;

type SourceRead = Read<SourceConfig>;
type SinkRead = Read<SinkKind>;

/// Reports keys and tables that contradict each other.
pub fn check(config: &Read<Config>, diagnostics: &mut Diagnostics) {
    let models = config.models.value.as_deref().unwrap_or_default();
    let cameras = config.cameras.value.as_deref().unwrap_or_default();
    let sinks = config.sinks.value.as_deref().unwrap_or_default();
    let mut checks = Checks(diagnostics);
    config.models.items().for_each(|(model, span)| checks.file_of(model, span));
    models.iter().for_each(|model| checks.waits_for_a_batch(model));
    let names = checks.names("model", models.iter().map(|model| &model.name));
    let names = checks.cascades(models, names);
    checks.refreshes(models, cameras, &names);
    cameras.iter().for_each(|camera| checks.classes_of_rules(camera, models));
    let models = names;
    let names = checks.names("camera", cameras.iter().map(|camera| &camera.name));
    for (camera, span) in config.cameras.items() {
        checks.model_of_camera(camera, span, &models);
        checks.camera(camera);
    }
    checks.same_device(cameras);
    for sink in sinks {
        checks.cameras_of_sink(sink, cameras, &names);
        match &sink.kind.value {
            Some(SinkRead::Mqtt(mqtt)) => checks.mqtt(mqtt),
            Some(SinkRead::Nats(nats)) => checks.nats(nats),
            Some(SinkRead::Stdout | SinkRead::File(_) | SinkRead::Unix(_)) | None => {}
        }
    }
    checks.spools(sinks);
    let outputs = checks.same_outputs(sinks);
    if let Some(http) = &config.http.value {
        checks.addresses(http, &outputs);
    }
}

/// The names of models or cameras that other tables may refer to.
struct Names<'a> {
    what: &'static str,
    names: Vec<&'a str>,
    /// Models that no camera may name, because they run on the detections of another one, each with that.
    crop_models: Vec<[&'a str; 2]>,
    /// Whether every table has a valid name. If not, an unknown reference may be right, so it is not reported.
    complete: bool,
}

impl Names<'_> {
    fn list(&self) -> String {
        quoted(&self.names)
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

struct Checks<'a>(&'a mut Diagnostics);

impl Checks<'_> {
    /// Reports an error at a key, if the file has it.
    fn error(&mut self, key: &Place, message: impl Into<String>) {
        if let Some(span) = key.span.clone() {
            self.0.error(span, message);
        }
    }

    /// Collects the names and reports duplicates.
    fn names<'f>(&mut self, what: &'static str, fields: impl Iterator<Item = &'f Field<String>>) -> Names<'f> {
        let mut all = Names { what, names: Vec::new(), crop_models: Vec::new(), complete: true };
        for field in fields {
            match &field.value {
                Some(name) if all.names.contains(&&**name) => {
                    self.error(&field.place, format!("two {what}s have the name \"{name}\": give each its own name"));
                }
                Some(name) => all.names.push(name),
                None => all.complete = false,
            }
        }
        all
    }

    /// Reports `name`, at `span`, if no table has this name.
    fn refer(&mut self, name: &str, span: Range<usize>, all: &Names<'_>) {
        if !all.complete || all.names.contains(&name) {
            return;
        }
        if let Some([_, on]) = all.crop_models.iter().find(|[one, _]| *one == name) {
            let message = format!(
                "model \"{name}\" runs on the detections of \"{on}\", not on frames: name \"{on}\", whose detections then have its \
                 results"
            );
            self.0.error(span, message);
            return;
        }
        let what = all.what;
        let remedy = match nearest(name, all.names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if all.names.is_empty() => format!("there is no `[[{what}]]`"),
            None => format!("there is {}", all.list()),
        };
        self.0.absence(span, format!("no {what} has the name \"{name}\": {remedy}"), None);
    }

    fn model_of_camera(&mut self, camera: &Read<CameraConfig>, span: Range<usize>, models: &Names<'_>) {
        self.models_of_camera(camera, models);
        if let Some((model, span)) = camera.model.set() {
            self.refer(model, span, models);
        } else if !camera.model.place.is_set()
            && !camera.models.place.is_set()
            && models.complete
            && models.names.len() != 1
        {
            let message = if models.names.is_empty() {
                "this camera has no model: add a `[[model]]` with `name` and `path`".to_owned()
            } else {
                format!(
                    "this camera must name its model: set `model` to one of {}, or `models` to several",
                    models.list()
                )
            };
            self.0.absence(span, message, None);
        }
    }

    /// Checks the models of a camera that has a list of them, and which of them has tracks.
    fn models_of_camera(&mut self, camera: &Read<CameraConfig>, models: &Names<'_>) {
        if camera.model.place.is_set() {
            let message = "`model` is one model and `models` are several: keep one of these keys";
            self.error(&camera.models.place, message);
        }
        if camera.models.place.is_valid && camera.models.value.as_ref().is_some_and(Vec::is_empty) {
            self.error(&camera.models.place, "`models` names no model: name at least one, or remove it");
        }
        let listed = camera.models.value.as_deref().unwrap_or_default();
        let mut seen = Vec::new();
        for model in listed {
            let Some((name, span)) = model.name.set() else { continue };
            if seen.contains(&name) {
                let message = format!("the camera lists model \"{name}\" twice: remove one of them");
                self.0.error(span, message);
            } else {
                self.refer(name, span, models);
            }
            seen.push(name);
            if waits(camera) == Some(true) {
                self.error(&model.max_fps.place, MAX_FPS_SKIPS);
            }
            self.sizes(&model.min_size, &model.max_size);
            self.views_of_model(camera, model);
        }
    }

    /// Checks the models that run on detections of others; returns the names of the models for cameras.
    fn cascades<'f>(&mut self, models: &'f [Read<ModelConfig>], mut names: Names<'f>) -> Names<'f> {
        for model in models {
            match &model.on.value {
                Some(on) => {
                    if let Some((on, span)) = model.on.set() {
                        self.refer(on, span, &names);
                    }
                    let no_masks = "results of crops have no masks";
                    for (key, is_default, reason) in [
                        (&model.batch_wait.place, model.batch_wait.is(&Duration::ZERO), "crops come together"),
                        (&model.masks.place, model.masks.is(&MaskForm::Polygons), no_masks),
                        (&model.mask_tolerance_pixels.place, model.mask_tolerance_pixels.is(&1), no_masks),
                    ] {
                        if !is_default {
                            let name = key.name();
                            self.error(key, format!("`{name}` has no effect with `on`, because {reason}: remove it"));
                        }
                    }
                    names.crop_models.extend(model.name.value.as_ref().map(|name| [name.as_str(), on.as_str()]));
                }
                None if model.on.place.is_set() => names.complete = false,
                None => {
                    // The defaults are harmless, and a configuration that is written has them.
                    let default = ModelConfig::default();
                    for (key, is_default) in [
                        (&model.on_classes.place, model.on_classes.is(&default.on_classes)),
                        (&model.min_size.place, false),
                        (&model.margin.place, model.margin.is(&default.margin)),
                        (&model.square.place, model.square.is(&default.square)),
                        (&model.max_crops.place, model.max_crops.is(&default.max_crops)),
                        (&model.refresh.place, false),
                    ] {
                        if !is_default {
                            let name = key.name();
                            let message = format!(
                                "`{name}` requires `on`, the model on whose detections this one runs: set it, or remove `{name}`"
                            );
                            self.error(key, message);
                        }
                    }
                }
            }
        }
        if names.complete {
            models.iter().for_each(|model| self.levels_of(model, &names.crop_models));
        }
        names.names.retain(|name| names.crop_models.iter().all(|[one, _]| one != name));
        // If all are in circles, which is reported, any may be meant to be for cameras.
        names.complete &= !names.names.is_empty() || names.crop_models.is_empty();
        names
    }

    /// Warns of results that are to stay valid for detections without tracks.
    fn refreshes(&mut self, models: &[Read<ModelConfig>], cameras: &[Read<CameraConfig>], names: &Names<'_>) {
        for model in models {
            let (Some((_, span)), Some(on)) = (model.refresh.set(), model.on.value.as_deref()) else { continue };
            // A camera tracks the objects of its first model.
            let first = |camera: &Read<CameraConfig>| {
                let listed = camera.models.value.as_deref().and_then(<[_]>::first);
                let only = || names.names.first().filter(|_| names.names.len() == 1);
                let name = listed.map_or(camera.model.value.as_deref(), |model| model.name.value.as_deref());
                name.or_else(|| only().copied()) == Some(on)
            };
            let message = if names.crop_models.iter().any(|[name, _]| *name == on) {
                format!("`refresh` has no effect on the detections of \"{on}\", which have no tracks: remove it")
            } else if !cameras.iter().any(|camera| camera.track.place.is_set() && first(camera)) {
                format!(
                    "`refresh` has no effect, because no camera tracks the objects of \"{on}\": add `[camera.track]` to a camera whose \
                     first model it is, or remove `refresh`"
                )
            } else {
                continue;
            };
            self.0.warning(span, message);
        }
    }

    /// Checks that a model is not on its own detections, and not on a fourth level.
    fn levels_of(&mut self, model: &Read<ModelConfig>, crop_models: &[[&str; 2]]) {
        let (Some(name), Some((_, span))) = (model.name.value.as_deref(), model.on.set()) else { return };
        // From this model up.
        let mut chain = vec![name];
        while let Some([_, on]) = crop_models.iter().find(|[one, _]| Some(one) == chain.last()) {
            if *on == name {
                // One error for each circle.
                let first = crop_models.iter().find(|[one, _]| chain.contains(one));
                if first.is_some_and(|[first, _]| *first == name) {
                    let message = match &chain[..] {
                        [_] => format!("model \"{name}\" runs on its own detections: name another model"),
                        _ => format!(
                            "models {} run on each other's detections: remove `on` of one of them",
                            quoted(&chain)
                        ),
                    };
                    self.0.error(span, message);
                }
                return;
            }
            if chain.contains(on) {
                return;
            }
            chain.push(on);
        }
        if chain.len() == MAX_LEVELS + 1 {
            chain.reverse();
            let message = format!(
                "model \"{name}\" is on a fourth level, {}: at most {MAX_LEVELS} are possible; remove a level",
                quoted(&chain)
            );
            self.0.error(span, message);
        }
    }

    /// Checks that a frame that waits for other frames can share an inference with them.
    /// Reports a model that has neither a file nor a bundle, or both.
    fn file_of(&mut self, model: &Read<ModelConfig>, span: Range<usize>) {
        let message = match (model.own_path.place.is_set(), model.bundle.place.is_set()) {
            (false, false) => "`[model]` needs the key `path` or `bundle`: name a file, or an installed bundle",
            (true, true) => "a model has a `path` or a `bundle`, not both: remove one",
            _ => return,
        };
        let span = model.bundle.place.span.clone().unwrap_or(span);
        self.0.absence(span, message, None);
    }

    fn waits_for_a_batch(&mut self, model: &Read<ModelConfig>) {
        if model.max_batch.is(&1) && model.batch_wait.value.is_some_and(|wait| !wait.is_zero()) {
            let message =
                "`batch_wait` makes a frame wait for others, but a run takes only one: set `max_batch`, or remove this";
            self.error(&model.batch_wait.place, message);
        }
    }

    fn camera(&mut self, camera: &Read<CameraConfig>) {
        if waits(camera) == Some(true) {
            self.error(&camera.max_fps.place, MAX_FPS_SKIPS);
        }
        if let (Some(annotate), Some(span)) = (&camera.annotate.value, &camera.annotate.place.span)
            && annotate.every.is(&0)
            && annotate.on_detection.is(&false)
            && annotate.on_event.is(&false)
        {
            let message =
                "this table never stores an image: set `every = 30`, `on_detection = true` or `on_event = true`";
            self.0.absence(span.clone(), message, None);
        }
        if camera.smooth.is(&true) && !camera.track.place.is_set() {
            let message =
                "`smooth` needs tracks, and this camera has none: add the table `[camera.track]`, or remove `smooth`";
            self.error(&camera.smooth.place, message);
        }
        let models = camera.models.value.as_ref().map_or(1, Vec::len);
        if camera.group.is(&true) && models == 1 {
            let message = "`group` joins the messages of several models, and this camera has one: set `models` to several, or remove `group`";
            self.error(&camera.group.place, message);
        }
        if camera.group_timeout.place.is_set() && !camera.group.is(&true) {
            let message = "`group_timeout` is for grouped messages: set `group = true`, or remove `group_timeout`";
            self.error(&camera.group_timeout.place, message);
        }
        self.count_areas(&camera.privacy);
        self.count_areas(&camera.ignore);
        for (privacy, span) in camera.privacy.items() {
            if self.area(&privacy.polygon, &privacy.frame_size).is_some_and(|area| area.area() > 0.999) {
                self.0.warning(span, "this mask covers the whole frame, so the model sees nothing: make it smaller");
            }
        }
        for ignore in camera.ignore.value.iter().flatten() {
            self.area(&ignore.polygon, &ignore.frame_size);
        }
        self.lines_and_zones(camera);
        self.crop(camera);
        match &camera.source.value {
            Some(SourceRead::V4l2(v4l2)) => {
                let format = v4l2.format.value.map(|format| match format {
                    CameraFormat::Raw(format) => (format.name(), format.has_levels()),
                    CameraFormat::Mjpeg => ("mjpeg", false),
                });
                self.levels(&v4l2.levels, format, &v4l2.color_range);
            }
            Some(SourceRead::Command(command)) => {
                self.raw_frames(command, &camera.source.place);
                let format = command.format.value.map(|format| (format.name(), format.has_levels()));
                self.levels(&command.levels, format, &command.color_range);
            }
            Some(SourceRead::Video(video)) => self.login(&video.login, &video.url),
            Some(SourceRead::Rtsp(rtsp)) => {
                let urls = [&rtsp.url, &rtsp.preview_url];
                urls.iter().for_each(|url| self.login(&rtsp.login, url));
                if rtsp.url.value.is_some() && rtsp.url.value == rtsp.preview_url.value {
                    let message = "`preview_url` is the same as `url`: remove it, or write the URL of another stream of the camera";
                    self.error(&rtsp.preview_url.place, message);
                }
                self.certificate("rtsps", &urls, &rtsp.ca, &rtsp.fingerprint, &rtsp.insecure);
            }
            Some(SourceRead::Mjpeg(mjpeg)) => {
                self.login(&mjpeg.login, &mjpeg.url);
                self.certificate("https", &[&mjpeg.url], &mjpeg.ca, &mjpeg.fingerprint, &mjpeg.insecure);
            }
            Some(SourceRead::Snapshot(still)) => {
                self.login(&still.login, &still.url);
                self.certificate("https", &[&still.url], &still.ca, &still.fingerprint, &still.insecure);
            }
            Some(SourceRead::Images(_) | SourceRead::Pattern(_)) | None => {}
        }
    }

    /// Checks the number of a camera's areas.
    fn count_areas<T>(&mut self, areas: &Field<Vec<T>>) {
        let path = &areas.place.path;
        if let Some((_, span)) = areas.items().nth(MAX_AREAS) {
            self.0.error(
                span,
                format!(
                    "a camera has at most {MAX_AREAS} tables `[[{path}]]`: remove some, or draw one around several"
                ),
            );
        }
    }

    /// Checks that corners are a polygon, and returns it.
    fn area(&mut self, points: &Field<Vec<[f64; 2]>>, frame_size: &Field<[u32; 2]>) -> Option<Polygon> {
        let (corners, span) = points.set().filter(|_| frame_size.place.is_valid)?;
        let polygon = Polygon::new(corners, frame_size.value);
        polygon.map_err(|error| self.0.error(span, format!("`{}` {error}", points.place.path))).ok()
    }

    /// Checks that a box can have a size within both limits.
    fn sizes(&mut self, min_size: &Field<u32>, max_size: &Field<u32>) {
        if let (Some(least), Some((most, span))) = (&min_size.value, max_size.set())
            && most < least
        {
            let message = format!("no box has `min_size` {least} and `max_size` {most}: raise or remove `max_size`");
            self.0.error(span, message);
        }
    }

    /// Checks that parts in pixels, of the camera or of its models, come with the size of their frame, and are inside of it.
    fn crop(&mut self, camera: &Read<CameraConfig>) {
        let size = &camera.crop_frame_size;
        let of_models = camera.models.value.iter().flatten().map(|model| &model.crop);
        let crops: Vec<_> = iter::once(&camera.crop).chain(of_models).collect();
        for crop in &crops {
            match (crop.value, size.value) {
                (Some(Crop::Pixels(_)), None) if size.place.is_valid => self.error(
                    &crop.place,
                    "`crop` is in pixels, which are another part of a frame of another size: set `crop_frame_size = [WIDTH, HEIGHT]` of \
                     the camera, the size of its frames, or write fractions with a decimal point",
                ),
                (Some(pixels @ Crop::Pixels(_)), Some([width, height])) => {
                    let view = ViewSpec { crop: Some(pixels), ..ViewSpec::default() };
                    if let Err(error) = view.of((width, height)) {
                        self.error(&crop.place, error.to_string());
                    }
                }
                _ => {}
            }
        }
        let may_need = |crop: &&Field<Crop>| !crop.place.is_valid || matches!(crop.value, Some(Crop::Pixels(_)));
        if size.value.is_some() && !crops.iter().any(may_need) {
            let message = if crops.iter().any(|crop| crop.value.is_some()) {
                "`crop` is in fractions of any frame: remove `crop_frame_size`"
            } else {
                "`crop_frame_size` needs `crop`: add it, or remove `crop_frame_size`"
            };
            self.error(&size.place, message);
        }
    }

    /// Checks what a model of a camera sees: that its tiles are described in one way, and that frames whose size the file has do not
    /// have too many.
    fn views_of_model(&mut self, camera: &Read<CameraConfig>, model: &Read<CameraModelConfig>) {
        let tiling = match &model.tiles.value {
            Some(tiles) => {
                let asks = (tiles.size.place.is_set(), tiles.columns.place.is_set(), tiles.rows.place.is_set());
                if !matches!(asks, (true, false, false) | (false, true, true)) {
                    let message = "set either `size`, or `columns` and `rows`";
                    return self.error(&model.tiles.place, format!("`{}`: {message}", model.tiles.place.path));
                }
                TilesConfig::of(tiles.clone()).tiling()
            }
            None => None,
        };
        let Some(size) = frame_size(camera).filter(|_| model.tiles.place.is_valid) else { return };
        let crop = model.crop.value.or(camera.crop.value);
        let (crop_frame_size, rotate) = (camera.crop_frame_size.value, camera.rotate.value);
        let camera = CameraConfig { crop, crop_frame_size, rotate, ..CameraConfig::default() };
        if let Err(error @ ViewError::Tiles { .. }) = (ViewSpec { tiling, ..camera.view() }).views(size) {
            self.error(&model.tiles.place, error.to_string());
        }
    }

    /// Checks that `login` comes with a URL that has no user.
    fn login(&mut self, login: &Field<PathBuf>, url: &Field<String>) {
        let Some(text) = &url.value else { return };
        let key = url.place.name();
        let authority = text.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(rest));
        match authority {
            None => self.error(&login.place, format!("`login` requires a URL, and `{key}` is a file: remove `login`")),
            Some(authority) if authority.contains('@') => {
                let message = format!("`{key}` already contains a user: remove it there, or remove `login`");
                self.error(&login.place, message);
            }
            Some(_) => {}
        }
    }

    /// Checks that the certificate keys of a camera come with TLS, whose scheme is `secure`, in one of `urls`, and agree.
    fn certificate(
        &mut self,
        secure: &str,
        urls: &[&Field<String>],
        ca: &Field<PathBuf>,
        fingerprint: &Field<Fingerprint>,
        insecure: &Field<bool>,
    ) {
        let scheme = |url: &&Field<String>| Some(url.value.as_ref()?.split_once("://")?.0.to_ascii_lowercase());
        let schemes: Vec<_> = urls.iter().filter_map(scheme).collect();
        let (ca, fingerprint, is_insecure) = (&ca.place, &fingerprint.place, insecure.is(&true));
        if !schemes.is_empty() && !schemes.iter().any(|scheme| scheme == secure) {
            return self.needs_tls([ca, fingerprint].into_iter().chain(is_insecure.then_some(&insecure.place)), secure);
        }
        if ca.is_set() {
            let message = "`fingerprint` accepts one certificate, regardless of its issuer: remove `ca`, or this key";
            self.error(fingerprint, message);
        }
        if let Some(other) = [fingerprint, ca].into_iter().find(|key| is_insecure && key.is_set()) {
            let other = other.name();
            let message = format!("`insecure` accepts any certificate, and `{other}` does not: remove one of them");
            self.error(&insecure.place, message);
        }
    }

    /// Reports each of `keys` that the file has, because its URL has no TLS.
    fn needs_tls<'k>(&mut self, keys: impl IntoIterator<Item = &'k Place>, secure: &str) {
        for place in keys {
            let key = place.name();
            let message = format!("`{key}` requires TLS, and `url` has none: use {secure}:// there, or remove `{key}`");
            self.error(place, message);
        }
    }

    /// Checks that raw frames have their shape, and that other containers have none.
    fn raw_frames(&mut self, command: &Read<CommandConfig>, source: &Place) {
        let shape = [&command.format.place, &command.width.place, &command.height.place];
        let pitches = Some(&command.pitches).filter(|pitches| !pitches.is(&Vec::new()));
        if command.container.is(&CommandContainer::Y4m) {
            for key in shape.into_iter().chain([&command.levels.place]).chain(pitches.map(|pitches| &pitches.place)) {
                let path = &key.path;
                let message = format!("`{path}` requires `container = \"raw\"`: Y4M carries it, so remove this key");
                self.error(key, message);
            }
        } else if command.container.value.is_some() {
            let missing = shape.into_iter().filter(|key| !key.is_set()).map(|key| format!("`{}`", key.name()));
            let missing: Vec<_> = missing.collect();
            if let Some(span) = source.span.clone().filter(|_| !missing.is_empty()) {
                let message = format!("raw frames need {}, because they carry no header", missing.join(" and "));
                self.0.absence(span, message, None);
            }
            if let (Some(format), Some(width), Some(height)) =
                (command.format.value, command.width.value, command.height.value)
                && let Some((pitches, span)) = pitches.and_then(Field::set)
                && let Err(error) =
                    FrameLayout::with_pitches(format, width, height, pitches, ColorDescription::default())
            {
                self.0.error(span, format!("invalid `camera.source.pitches`: {error}"));
            }
        }
        if command.container.is(&CommandContainer::Shm) {
            self.shared_frames(command);
        } else if command.container.value.is_some()
            && command.command.value.as_ref().is_some_and(|words| words.iter().any(|word| word.contains(SOCKET)))
        {
            self.error(
                &command.command.place,
                format!("{SOCKET} needs `container = \"shm\"`: add it, or remove {SOCKET}"),
            );
        }
    }

    /// Checks that a program whose frames come through shared memory gets the socket's path.
    fn shared_frames(&mut self, command: &Read<CommandConfig>) {
        if command.command.value.as_ref().is_some_and(|words| !words.iter().any(|word| word.contains(SOCKET))) {
            let message = format!(
                "with `container = \"shm\"`, the program needs the path of visiond's socket: write {SOCKET} in its place, in GStreamer \
                 `shmsink socket-path={SOCKET}`"
            );
            self.error(&command.command.place, message);
        }
        if command.fd.is(&3) {
            let message = "frames in shared memory come through no descriptor: remove `fd`".to_owned();
            self.error(&command.fd.place, message);
        }
    }

    /// Checks that levels come with a format, named here, that has them, and that no other key sets black and white.
    fn levels(&mut self, levels: &Field<GreyLevels>, format: Option<(&str, bool)>, color_range: &Field<ColorRange>) {
        let path = &levels.place.path;
        if let Some((format, false)) = format {
            let message = format!(
                "`{path}` requires `format` \"grey10\", \"grey12\" or \"grey16\", not \"{format}\": correct the format, or remove \
                 this key"
            );
            self.error(&levels.place, message);
        }
        if color_range.place.is_set() {
            let message = format!("`{path}` already defines black and white: remove `color_range`, or this key");
            self.error(&levels.place, message);
        }
    }

    /// Checks that no two enabled cameras use one device.
    fn same_device(&mut self, cameras: &[Read<CameraConfig>]) {
        let mut seen: Vec<CameraName> = Vec::new();
        for camera in cameras.iter().filter(|camera| !camera.enabled.is(&false)) {
            let Some(SourceRead::V4l2(v4l2)) = &camera.source.value else { continue };
            let name = match &v4l2.device.value {
                Some(CameraName::Node(path)) => CameraName::Node(without_dots(path)),
                Some(name) => name.clone(),
                None => continue,
            };
            if seen.contains(&name) {
                let message = "another camera uses this device, and only one can open it: \
                               name another device, or set `enabled = false`";
                self.error(&v4l2.device.place, message);
            }
            seen.push(name);
        }
    }

    fn cameras_of_sink(&mut self, sink: &Read<SinkConfig>, cameras: &[Read<CameraConfig>], names: &Names<'_>) {
        let mut chosen = Vec::new();
        for (name, span) in sink.cameras.items() {
            chosen.push(name);
            self.refer(name, span, names);
        }
        if sink.messages.place.is_valid && sink.messages.value.as_ref().is_some_and(Vec::is_empty) {
            self.error(
                &sink.messages.place,
                "this sink sends nothing: write \"frames\", \"events\" or both, or remove `messages`",
            );
        }
        if !sink.when_full.is(&WhenFull::Block) || !sink.cameras.place.is_valid {
            return;
        }
        let ours = |name: &&String| chosen.is_empty() || chosen.contains(name);
        let hurried = cameras.iter().filter(|camera| waits(camera) == Some(false));
        if let Some(camera) = hurried.filter_map(|camera| camera.name.value.as_ref()).find(ours) {
            let message = format!(
                "\"block\" would delay camera \"{camera}\", whose source cannot wait: use \"drop_oldest\" or \"drop_newest\", \
                 or exclude the camera with `cameras`"
            );
            self.error(&sink.when_full.place, message);
        }
    }

    /// Warns about a login that is sent unencrypted; `secure` is the scheme with TLS.
    fn login_in_clear(&mut self, login: &Field<PathBuf>, secure: &str) {
        if let Some(span) = login.place.span.clone() {
            self.0
                .warning(span, format!("user and password cross the network in clear text: use {secure}:// in `url`"));
        }
    }

    /// Checks that a certificate and its key come together.
    fn key_pair(&mut self, certificate: &Place, key: &Place) {
        for (one, other) in [(certificate, key), (key, certificate)] {
            if !other.is_set() {
                let message = format!("`{}` requires `{}`: set both or neither", one.name(), other.name());
                self.error(one, message);
            }
        }
    }

    /// Checks that certificates come with TLS and with their key, and warns about a password without TLS.
    fn mqtt(&mut self, mqtt: &Read<MqttSinkConfig>) {
        let (ca, certificate, key) = (&mqtt.ca.place, &mqtt.certificate.place, &mqtt.key.place);
        if mqtt.url.value.as_ref().is_some_and(|url| url.starts_with("mqtt://")) {
            self.needs_tls([ca, certificate, key], "mqtts");
        }
        if mqtt.url.value.as_ref().is_some_and(|url| is_in_clear(url, "mqtt")) {
            self.login_in_clear(&mqtt.login, "mqtts");
        }
        self.key_pair(certificate, key);
        self.mqtt_commands(mqtt);
    }

    /// Warns about commands from a broker that does not ask who sends them.
    fn mqtt_commands(&mut self, mqtt: &Read<MqttSinkConfig>) {
        if let Some((true, span)) = mqtt.commands.set()
            && !mqtt.login.place.is_set()
            && !mqtt.certificate.place.is_set()
        {
            let message = "without a login, the broker may pass on commands from anyone: set `login` or `certificate`, and let the \
                           broker's ACL decide who may publish commands";
            self.0.warning(span, message);
        }
    }

    /// Checks that certificates come with their key and a new stream with its name, and warns about a password without TLS.
    fn nats(&mut self, nats: &Read<NatsSinkConfig>) {
        let certificate = &nats.certificate.place;
        // With one of these, the connection requires TLS regardless of the URL. Each server of a cluster gets the login.
        let requires_tls = nats.ca.place.is_set() || certificate.is_set();
        if !requires_tls && nats.url.items().any(|(url, _)| is_in_clear(url, "nats")) {
            self.login_in_clear(&nats.login, "tls");
        }
        self.key_pair(certificate, &nats.key.place);
        if nats.url.set().is_some_and(|(urls, _)| urls.is_empty()) {
            self.error(&nats.url.place, "`url` names no server: write one, such as nats://localhost:4222");
        }
        if nats.create_stream.is(&true) && !nats.stream.place.is_set() {
            let message = "`create_stream` requires the name of the stream: set `stream`";
            self.error(&nats.create_stream.place, message);
        }
    }

    /// Checks that `durable` sinks have a broker, and each a spool folder of its own.
    fn spools(&mut self, sinks: &[Read<SinkConfig>]) {
        let mut folders = Vec::new();
        for sink in sinks.iter().filter(|sink| sink.durable.is(&true)) {
            if let Some(kind @ (SinkRead::Stdout | SinkRead::File(_) | SinkRead::Unix(_))) = &sink.kind.value {
                let name = SinkKind::of(kind.clone()).name();
                let message = format!("`durable` requires a sink for a broker, not \"{name}\": remove it");
                self.error(&sink.kind.place, message);
            }
            let Some(path) = &sink.spool_directory.value else { continue };
            let folder = in_full(path);
            if folders.contains(&folder) {
                let shown = path.display();
                let message =
                    format!("another sink already stores its messages in {shown}: give each sink its own folder");
                self.error(&sink.spool_directory.place, message);
            }
            folders.push(folder);
        }
    }

    /// Checks that no two sinks have the same output or the same name. Returns the outputs.
    fn same_outputs(&mut self, sinks: &[Read<SinkConfig>]) -> Vec<SinkTarget> {
        let (mut names, mut targets): (Vec<String>, Vec<SinkTarget>) = (Vec::new(), Vec::new());
        for sink in sinks {
            let kind = sink.kind.value.clone().map(SinkKind::of);
            let mut taken = false;
            if let (Some(kind), Some(key)) = (&kind, target_key(&sink.kind)) {
                let target = match SinkTarget::of(kind) {
                    SinkTarget::Path(path) => SinkTarget::Path(in_full(&path)),
                    target => target,
                };
                taken = targets.contains(&target);
                if taken {
                    let message = match SinkTarget::of(kind) {
                        SinkTarget::Stdout => "already writes to standard output: remove one of them",
                        SinkTarget::Mqtt { .. } => SAME_TOPICS,
                        SinkTarget::Nats { .. } => SAME_SUBJECTS,
                        SinkTarget::Path(path) => {
                            &format!("already uses the path {}: give each sink its own", path.display())
                        }
                    };
                    self.error(key, format!("another sink {message}"));
                }
                targets.push(target);
            }
            let given = sink.name.place.is_set();
            let name = if given { sink.name.value.clone() } else { kind.map(|kind| kind.name().to_owned()) };
            let Some(name) = name else { continue };
            // Two sinks of the same type and output are one error, reported above.
            if names.contains(&name) && given {
                let message = format!("two sinks have the name \"{name}\": give each its own name");
                self.error(&sink.name.place, message);
            } else if names.contains(&name) && !taken {
                let message = format!("another sink already has the name \"{name}\": give this one a `name`");
                self.error(&sink.kind.place, message);
            }
            names.push(name);
        }
        targets
    }

    /// Checks `listen`: an address that is reachable from the network requires a token, as changes do, no address may appear twice
    /// or include another one, and no sink may have the path of a socket.
    fn addresses(&mut self, http: &Read<HttpConfig>, outputs: &[SinkTarget]) {
        if http.allow_changes.is(&true) && !http.token.place.is_set() {
            self.error(
                &http.allow_changes.place,
                "`allow_changes` requires `http.token`: set it, so that not every program can change the file",
            );
        }
        let (mut seen, mut sockets): (Vec<SocketAddr>, Vec<SinkTarget>) = (Vec::new(), Vec::new());
        for (shown, span) in http.listen.items() {
            match shown {
                Address::Unix(path) => {
                    let socket = SinkTarget::Path(in_full(path));
                    if sockets.contains(&socket) {
                        self.0.error(span, format!("{shown} is listed twice: remove one of them"));
                    } else if outputs.contains(&socket) {
                        self.0.error(span, "a sink already uses this path: name another one here or there");
                    }
                    sockets.push(socket);
                }
                Address::Tcp(address) => {
                    let overlaps = |other: &&SocketAddr| address.port() != 0 && overlap(**other, *address);
                    match seen.iter().find(overlaps) {
                        Some(other) if other == address => {
                            self.0.error(span.clone(), format!("{address} is listed twice: remove one of them"));
                        }
                        Some(other) => {
                            let message =
                                format!("{address} and {other} overlap: remove one of them, or set another port");
                            self.0.error(span.clone(), message);
                        }
                        None => {}
                    }
                    seen.push(*address);
                    if !is_loopback(address.ip()) && !http.token.place.is_set() {
                        let message =
                            "this address is reachable from the network: set `http.token`, or listen on 127.0.0.1";
                        self.0.error(span, message);
                    }
                }
            }
        }
    }
}

/// Whether the source waits, without losing frames, until the lane takes them; `None` if its type or a key that decides this is
/// invalid.
fn waits(camera: &Read<CameraConfig>) -> Option<bool> {
    let source = camera.source.value.as_ref()?;
    let is_decided = match source {
        SourceRead::Images(images) => images.fps.place.is_valid,
        SourceRead::Video(video) => video.pace.place.is_valid,
        SourceRead::Command(command) => command.pace.place.is_valid,
        _ => true,
    };
    is_decided.then(|| SourceConfig::of(source.clone()).is_lossless())
}

/// Returns width and height of a camera's frames, if the file has them.
fn frame_size(camera: &Read<CameraConfig>) -> Option<(u32, u32)> {
    match camera.source.value.as_ref()? {
        SourceRead::V4l2(v4l2) => v4l2.width.value.zip(v4l2.height.value),
        SourceRead::Command(command) => command.width.value.zip(command.height.value),
        SourceRead::Pattern(pattern) => pattern.width.value.zip(pattern.height.value),
        _ => None,
    }
}

/// Whether traffic to this broker crosses the network unencrypted; `plain` is its scheme without TLS.
fn is_in_clear(url: &str, plain: &str) -> bool {
    split_broker(url)
        .is_some_and(|(scheme, host, _)| scheme == plain && host != "localhost" && !host.parse().is_ok_and(is_loopback))
}

/// Returns the key that sets the destination of a sink's messages; `None` if a key that decides it is absent or invalid.
fn target_key(kind: &Field<SinkRead>) -> Option<&Place> {
    Some(match kind.value.as_ref()? {
        SinkRead::Stdout => &kind.place,
        SinkRead::File(file) => file.path.value.as_ref().and(Some(&file.path.place))?,
        SinkRead::Unix(unix) => unix.path.value.as_ref().and(Some(&unix.path.place))?,
        SinkRead::Mqtt(mqtt) => mqtt.topic_prefix.value.as_ref().and(mqtt.url.set()).and(Some(&mqtt.url.place))?,
        SinkRead::Nats(nats) => nats.subject.value.as_ref().and(nats.url.set()).and(Some(&nats.url.place))?,
    })
}

/// Returns the path without `.` components, for comparison.
fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Returns the path with its folder resolved by the file system, for comparison. A path whose folder is missing stays unchanged.
fn in_full(path: &Path) -> PathBuf {
    match (folder_of(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => without_dots(path),
    }
}
