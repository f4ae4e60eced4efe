//! Checks across the tables of a file: names, paths, addresses, paces.
//!
//! The checks read the tables of the file, not the structs, so that an error in one key of a camera does not hide an error in its
//! name. They skip what is absent or of the wrong type, because reading the tables reported that already.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use toml::de::DeTable;
use visiond_ground::nearest::nearest;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_system::preflight::{folder_of, overlap};

use super::diagnostics::Diagnostics;
use super::kinds::{CameraName, camera_in, is_loopback, resolve, split_broker};
use super::schema::Item;
use super::types::{SinkTarget, is_lossless};
use super::units::parse_duration;

/// A table with its place in the file.
#[derive(Clone)]
struct PlacedTable<'a, 'i> {
    table: &'a DeTable<'i>,
    span: Range<usize>,
}

impl<'a, 'i> PlacedTable<'a, 'i> {
    fn of(item: &'a Item<'i>) -> Option<Self> {
        Some(Self { table: item.get_ref().as_table()?, span: item.span() })
    }

    fn text(&self, key: &str) -> Option<(&'a str, Range<usize>)> {
        let item = self.table.get(key)?;
        Some((item.get_ref().as_str()?, item.span()))
    }

    fn number(&self, key: &str) -> Option<u64> {
        let number = self.table.get(key)?.get_ref().as_integer()?;
        u64::from_str_radix(number.as_str(), number.radix()).ok()
    }

    fn flag(&self, key: &str) -> Option<bool> {
        self.table.get(key)?.get_ref().as_bool()
    }

    /// Returns the items of a list; none if it is absent.
    fn items(&self, key: &str) -> impl Iterator<Item = &'a Item<'i>> + use<'a, 'i> {
        self.table.get(key).and_then(|item| item.get_ref().as_array()).into_iter().flat_map(|items| items.iter())
    }

    /// Returns the strings of a list, with their places.
    fn texts(&self, key: &str) -> impl Iterator<Item = (&'a str, Range<usize>)> + use<'a, 'i> {
        self.items(key).filter_map(|item| Some((item.get_ref().as_str()?, item.span())))
    }

    fn tables(&self, key: &str) -> Vec<Self> {
        self.items(key).filter_map(Self::of).collect()
    }

    fn inner(&self, key: &str) -> Option<Self> {
        Self::of(self.table.get(key)?)
    }

    fn is(&self, key: &str, word: &str) -> bool {
        self.text(key).is_some_and(|(text, _)| text == word)
    }

    fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }
}

/// Reports keys and tables that contradict each other.
pub fn check(root: &DeTable<'_>, base: &Path, diagnostics: &mut Diagnostics) {
    let root = PlacedTable { table: root, span: 0..0 };
    let (models, cameras, sinks) = (root.tables("model"), root.tables("camera"), root.tables("sink"));
    let model_names = Names::collect(&models, "model", diagnostics);
    models.iter().for_each(|model| waits_for_a_batch(model, diagnostics));
    let camera_names = Names::collect(&cameras, "camera", diagnostics);
    for camera in &cameras {
        model_of_camera(camera, &model_names, diagnostics);
        skipped_frames(camera, diagnostics);
        if let Some(annotate) = camera.inner("annotate") {
            annotation(&annotate, diagnostics);
        }
        match camera.inner("source") {
            Some(source) if source.is("type", "v4l2") => levels(&source, diagnostics),
            Some(source) if source.is("type", "command") => {
                raw_frames(&source, diagnostics);
                levels(&source, diagnostics);
            }
            Some(source) if source.is("type", "video") => login(&source, "url", diagnostics),
            Some(source) if source.is("type", "rtsp") => {
                login(&source, "url", diagnostics);
                login(&source, "preview_url", diagnostics);
                preview(&source, diagnostics);
                certificate(&source, &["url", "preview_url"], "rtsps", diagnostics);
            }
            Some(source) if source.is("type", "mjpeg") || source.is("type", "snapshot") => {
                login(&source, "url", diagnostics);
                certificate(&source, &["url"], "https", diagnostics);
            }
            _ => {}
        }
    }
    same_device(&cameras, base, diagnostics);
    for sink in &sinks {
        cameras_of_sink(sink, &cameras, &camera_names, diagnostics);
        if sink.is("type", "mqtt") || sink.is("type", "nats") {
            encryption(sink, diagnostics);
        }
        if sink.is("type", "nats") {
            streams(sink, diagnostics);
        }
    }
    spools(&sinks, base, diagnostics);
    same_outputs(&sinks, base, diagnostics);
    if let Some(http) = root.inner("http") {
        addresses(&http, &sinks, base, diagnostics);
    }
}

/// Checks `listen`: an address that is reachable from the network requires a token, no address may appear twice or include
/// another one, and no sink may have the path of a socket.
fn addresses(http: &PlacedTable<'_, '_>, sinks: &[PlacedTable<'_, '_>], base: &Path, diagnostics: &mut Diagnostics) {
    let path = |text| in_full(&resolve(base, text));
    let outputs: Vec<_> = sinks.iter().filter_map(|sink| Some(path(sink.text("path")?.0))).collect();
    let (mut seen, mut sockets): (Vec<(SocketAddr, &str)>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for (text, span) in http.texts("listen") {
        if let Some(socket) = text.strip_prefix("unix:").filter(|path| !path.is_empty()).map(path) {
            if sockets.contains(&socket) {
                diagnostics.error(span, format!("{text} is listed twice: remove one of them"));
            } else if outputs.contains(&socket) {
                let message = "a sink uses this path already: name another one here or there";
                diagnostics.error(span, message);
            }
            sockets.push(socket);
            continue;
        }
        let Ok(address) = text.parse::<SocketAddr>() else { continue };
        let other = seen.iter().find(|(other, _)| address.port() != 0 && overlap(*other, address));
        if let Some((_, other)) = other {
            let message = match *other == text {
                true => format!("{text} is listed twice: remove one of them"),
                false => format!("{text} and {other} overlap: remove one of them, or set another port"),
            };
            diagnostics.error(span.clone(), message);
        }
        seen.push((address, text));
        if !is_loopback(address.ip()) && !http.has("token") {
            let message = "this address is reachable from the network: set `http.token`, or listen on 127.0.0.1";
            diagnostics.error(span, message);
        }
    }
}

/// Checks that `login` comes with a URL that has no user; `key` is the URL's.
fn login(source: &PlacedTable<'_, '_>, key: &str, diagnostics: &mut Diagnostics) {
    let (Some((_, span)), Some((url, _))) = (source.text("login"), source.text(key)) else { return };
    let authority = url.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(rest));
    match authority {
        None if key == "url" => {
            diagnostics.error(span, "`login` requires a URL, and `url` is a file: remove `login`");
        }
        Some(authority) if authority.contains('@') => {
            diagnostics.error(span, format!("`{key}` contains a user already: remove it there, or remove `login`"));
        }
        _ => {}
    }
}

/// Checks that `preview_url` is another stream than `url`.
fn preview(source: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    if let (Some((url, _)), Some((preview, span))) = (source.text("url"), source.text("preview_url"))
        && url == preview
    {
        let message = "`preview_url` is the same as `url`: remove it, or write the URL of another stream of the camera";
        diagnostics.error(span, message);
    }
}

/// Checks that the keys about a camera's certificate come with TLS, whose scheme is `secure`, in one of `urls`, and agree.
fn certificate(source: &PlacedTable<'_, '_>, urls: &[&str], secure: &str, diagnostics: &mut Diagnostics) {
    let scheme = |key: &&str| source.text(key).and_then(|(url, _)| url.split_once("://")).map(|(scheme, _)| scheme);
    let schemes: Vec<_> = urls.iter().filter_map(scheme).collect();
    let is_plain = !schemes.is_empty() && !schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case(secure));
    let is_insecure = source.flag("insecure") == Some(true);
    for key in ["ca", "fingerprint", "insecure"] {
        let Some(item) = source.table.get(key).filter(|_| key != "insecure" || is_insecure) else { continue };
        if is_plain {
            let message = format!("`{key}` requires TLS, and `url` has none: use {secure}:// there, or remove `{key}`");
            diagnostics.error(item.span(), message);
        } else if key == "fingerprint" && source.has("ca") {
            let message = "`fingerprint` accepts one certificate, regardless of its issuer: remove `ca`, or this key";
            diagnostics.error(item.span(), message);
        } else if key == "insecure" && (source.has("ca") || source.has("fingerprint")) {
            let other = if source.has("fingerprint") { "fingerprint" } else { "ca" };
            let message = format!("`insecure` accepts any certificate, and `{other}` does not: remove one of them");
            diagnostics.error(item.span(), message);
        }
    }
}

/// Checks that certificates come with TLS and with their key, and warns of a password without TLS.
fn encryption(sink: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let url = sink.text("url").map(|(url, _)| url);
    let plain = url.is_some_and(|url| url.starts_with("mqtt://"));
    let host = url.and_then(split_broker).map(|(_, host, _)| host);
    let is_here = |host: &str| host == "localhost" || host.parse().is_ok_and(is_loopback);
    let here = host.is_none_or(is_here);
    // Each server of a cluster gets the login. A key of TLS makes NATS require it whatever the URL says.
    let requires_tls = sink.has("ca") || sink.has("certificate");
    let is_nats = sink.is("type", "nats") && !requires_tls;
    let mut servers = sink.texts("url").filter_map(|(url, _)| split_broker(url));
    let nats_in_clear = is_nats && servers.any(|(scheme, host, _)| scheme == "nats" && !is_here(host));
    if let Some((_, span)) = sink.text("login").filter(|_| plain && !here || nats_in_clear) {
        let secure = if nats_in_clear { "tls" } else { "mqtts" };
        diagnostics.warning(span, format!("user and password go over the network in clear: use {secure}:// in `url`"));
    }
    for (key, other) in [("ca", None), ("certificate", Some("key")), ("key", Some("certificate"))] {
        let Some((_, span)) = sink.text(key) else { continue };
        if plain {
            let message = format!("`{key}` requires TLS, and `url` has none: use mqtts:// there, or remove `{key}`");
            diagnostics.error(span.clone(), message);
        }
        if let Some(other) = other.filter(|other| !sink.has(other)) {
            diagnostics.error(span, format!("`{key}` requires `{other}`: set both or neither"));
        }
    }
}

/// Checks that a NATS sink has a server, and a name for a stream that it creates.
fn streams(sink: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let url = sink.table.get("url");
    if let Some(url) = url.filter(|url| url.get_ref().as_array().is_some_and(|urls| urls.is_empty())) {
        diagnostics.error(url.span(), "`url` names no server: write one, such as nats://localhost:4222");
    }
    if let Some(create) = sink.table.get("create_stream")
        && sink.flag("create_stream") == Some(true)
        && !sink.has("stream")
    {
        diagnostics.error(create.span(), "`create_stream` requires the name of the stream: set `stream`");
    }
}

/// The names of models or cameras that other tables may refer to.
struct Names<'a> {
    what: &'static str,
    names: Vec<&'a str>,
    /// Whether every table has a name. If not, an unknown reference may be right, so it is not reported.
    complete: bool,
}

impl<'a> Names<'a> {
    /// Collects the names and reports duplicates.
    fn collect(tables: &[PlacedTable<'a, '_>], what: &'static str, diagnostics: &mut Diagnostics) -> Self {
        let mut this = Self { what, names: Vec::new(), complete: true };
        for table in tables {
            match table.text("name") {
                Some((name, span)) if this.names.contains(&name) => {
                    diagnostics.error(span, format!("two {what}s have the name \"{name}\": give each its own name"));
                }
                Some((name, _)) => this.names.push(name),
                None => this.complete = false,
            }
        }
        this
    }

    /// Reports `name` if no table has it.
    fn refer(&self, name: &str, span: Range<usize>, diagnostics: &mut Diagnostics) {
        if !self.complete || self.names.contains(&name) {
            return;
        }
        let what = self.what;
        let remedy = match nearest(name, self.names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if self.names.is_empty() => format!("there is no `[[{what}]]`"),
            None => format!("there is {}", self.list()),
        };
        diagnostics.absence(span, format!("no {what} has the name \"{name}\": {remedy}"), None);
    }

    fn list(&self) -> String {
        self.names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    }
}

fn model_of_camera(camera: &PlacedTable<'_, '_>, models: &Names<'_>, diagnostics: &mut Diagnostics) {
    if let Some((model, span)) = camera.text("model") {
        models.refer(model, span, diagnostics);
    } else if !camera.has("model") && models.complete && models.names.len() != 1 {
        let message = if models.names.is_empty() {
            "this camera has no model: add a `[[model]]` with `name` and `path`".to_owned()
        } else {
            format!("this camera must name its model: set `model` to one of {}", models.list())
        };
        diagnostics.absence(camera.span.clone(), message, None);
    }
}

fn annotation(annotate: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let wrong_type = annotate.has("every") && annotate.number("every").is_none()
        || annotate.has("on_detection") && annotate.flag("on_detection").is_none();
    let never = annotate.number("every").unwrap_or(0) == 0 && !annotate.flag("on_detection").unwrap_or(false);
    if never && !wrong_type {
        let message = "this table never stores a picture: set `every = 30` or `on_detection = true`";
        diagnostics.absence(annotate.span.clone(), message, None);
    }
}

/// Checks that raw frames have their shape, and that other containers have none.
fn raw_frames(source: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    const SHAPE: [&str; 3] = ["format", "width", "height"];
    if !source.is("container", "raw") {
        if source.has("container") && !source.is("container", "y4m") {
            return;
        }
        for key in SHAPE.into_iter().chain(["pitches", "levels"]) {
            let none = |item: &Item<'_>| item.get_ref().as_array().is_some_and(|items| items.is_empty());
            if let Some(item) = source.table.get(key).filter(|item| !none(item)) {
                let message =
                    format!("`camera.source.{key}` requires `container = \"raw\"`: Y4M carries it, so remove this key");
                diagnostics.error(item.span(), message);
            }
        }
        return;
    }
    let missing: Vec<_> = SHAPE.into_iter().filter(|key| !source.has(key)).map(|key| format!("`{key}`")).collect();
    if !missing.is_empty() {
        let message = format!("raw frames need {}, because they carry no header", missing.join(" and "));
        diagnostics.absence(source.span.clone(), message, None);
        return;
    }
    let format = source.text("format").and_then(|(name, _)| PixelFormat::from_name(name));
    let side = |key| source.number(key).and_then(|number| u32::try_from(number).ok());
    let pitch = |item: &Item<'_>| item.get_ref().as_integer().and_then(|n| n.as_str().parse().ok());
    let pitches: Option<Vec<usize>> = source.items("pitches").map(pitch).collect();
    if let (Some(format), Some(width), Some(height)) = (format, side("width"), side("height"))
        && let Some(pitches) = pitches.filter(|pitches| !pitches.is_empty())
        && let Some(item) = source.table.get("pitches")
        && let Err(error) = FrameLayout::with_pitches(format, width, height, &pitches, ColorDescription::default())
    {
        diagnostics.error(item.span(), format!("invalid `camera.source.pitches`: {error}"));
    }
}

/// Checks that levels come with a format that has them, and alone say what is black and white.
fn levels(source: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let Some(item) = source.table.get("levels") else { return };
    let has_levels = |name| PixelFormat::from_name(name).is_some_and(PixelFormat::has_levels);
    if let Some((format, _)) = source.text("format").filter(|(name, _)| !has_levels(name)) {
        let message = format!(
            "`camera.source.levels` requires `format` \"grey10\", \"grey12\" or \"grey16\", not \"{format}\": correct the format, \
             or remove this key"
        );
        diagnostics.error(item.span(), message);
    }
    if source.has("color_range") {
        let message = "`camera.source.levels` says what is black and white: remove `color_range`, or this key";
        diagnostics.error(item.span(), message);
    }
}

/// Returns the path without `.` components, for comparison.
fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Returns the path with its folder as the file system knows it, for comparison. One whose folder is missing stays as it is.
fn in_full(path: &Path) -> PathBuf {
    match (folder_of(path).canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => without_dots(path),
    }
}

/// Checks that no two enabled cameras use one device.
fn same_device(cameras: &[PlacedTable<'_, '_>], base: &Path, diagnostics: &mut Diagnostics) {
    let mut seen: Vec<CameraName> = Vec::new();
    for camera in cameras.iter().filter(|camera| camera.flag("enabled") != Some(false)) {
        let source = camera.inner("source").filter(|source| source.is("type", "v4l2"));
        let Some((device, span)) = source.and_then(|source| source.text("device")) else { continue };
        let name = match camera_in(base, device) {
            Ok(CameraName::Node(path)) => CameraName::Node(without_dots(&path)),
            Ok(name) => name,
            Err(_) => continue,
        };
        if seen.contains(&name) {
            let message = "another camera uses this device, and only one can open it: \
                           name another device, or set `enabled = false`";
            diagnostics.error(span, message);
        }
        seen.push(name);
    }
}

fn cameras_of_sink(
    sink: &PlacedTable<'_, '_>,
    cameras: &[PlacedTable<'_, '_>],
    names: &Names<'_>,
    diagnostics: &mut Diagnostics,
) {
    let mut chosen = Vec::new();
    for (name, span) in sink.texts("cameras") {
        chosen.push(name);
        names.refer(name, span, diagnostics);
    }
    let Some((_, span)) = sink.text("when_full").filter(|(word, _)| *word == "block") else { return };
    let ours = |camera: &&PlacedTable<'_, '_>| {
        chosen.is_empty() || camera.text("name").is_some_and(|(name, _)| chosen.contains(&name))
    };
    let hurried = cameras.iter().filter(ours).find(|camera| camera.inner("source").is_some_and(|s| !waits(&s)));
    if let Some((camera, _)) = hurried.and_then(|camera| camera.text("name")) {
        let message = format!(
            "\"block\" would delay camera \"{camera}\", whose source cannot wait: use \"drop_oldest\" or \"drop_newest\", \
             or exclude the camera with `cameras`"
        );
        diagnostics.error(span, message);
    }
}

/// Checks that a frame that waits for others can share a run with them.
fn waits_for_a_batch(model: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let Some((wait, span)) = model.text("batch_wait") else { return };
    let takes_one = !model.has("max_batch") || model.number("max_batch") == Some(1);
    if takes_one && parse_duration(wait).is_ok_and(|wait| !wait.is_zero()) {
        let message = "`batch_wait` has a frame wait for others, but a run takes one: set `max_batch`, or remove this";
        diagnostics.error(span, message);
    }
}

/// Checks that `max_fps` does not skip what the source would wait with.
fn skipped_frames(camera: &PlacedTable<'_, '_>, diagnostics: &mut Diagnostics) {
    let Some(key) = camera.table.get("max_fps") else { return };
    let is_known =
        |source: &PlacedTable<'_, '_>| ["video", "command", "images"].iter().any(|kind| source.is("type", kind));
    if camera.inner("source").is_some_and(|source| is_known(&source) && waits(&source)) {
        let message = "`max_fps` would skip frames of a source that waits for the model: remove it, or give the source a rate (`fps`, \
                       `pace = \"realtime\"`)";
        diagnostics.error(key.span(), message);
    }
}

/// Returns whether the source waits, without losing frames, until the lane takes them. True also if its type is unknown.
fn waits(source: &PlacedTable<'_, '_>) -> bool {
    let kind = source.text("type").map_or("", |(name, _)| name);
    is_lossless(kind, source.is("pace", "fastest"), source.has("fps"))
}

/// Checks that `durable` sinks have a broker, and each a spool folder of its own.
fn spools(sinks: &[PlacedTable<'_, '_>], base: &Path, diagnostics: &mut Diagnostics) {
    let mut folders = Vec::new();
    for sink in sinks.iter().filter(|sink| sink.flag("durable") == Some(true)) {
        if let Some((kind @ ("stdout" | "file" | "unix"), span)) = sink.text("type") {
            diagnostics.error(span, format!("`durable` requires a sink for a broker, not \"{kind}\": remove it"));
        }
        let Some((shown, span)) = sink.text("spool_directory") else { continue };
        let folder = in_full(&resolve(base, shown));
        if folders.contains(&folder) {
            let message = format!("another sink stores its messages in {shown} already: give each sink its own folder");
            diagnostics.error(span, message);
        }
        folders.push(folder);
    }
}

/// Checks that no two sinks have the same output or the same name.
fn same_outputs(sinks: &[PlacedTable<'_, '_>], base: &Path, diagnostics: &mut Diagnostics) {
    let (mut names, mut targets): (Vec<&str>, Vec<SinkTarget>) = (Vec::new(), Vec::new());
    for sink in sinks {
        let Some((kind, kind_span)) = sink.text("type") else { continue };
        let text_or = |key, default: &str| sink.text(key).map_or(default, |(text, _)| text).to_owned();
        let target = match kind {
            "stdout" => Some((SinkTarget::Stdout, kind_span.clone())),
            "mqtt" => sink.text("url").map(|(url, span)| {
                (SinkTarget::Mqtt { url: url.to_owned(), topic_prefix: text_or("topic_prefix", "visiond") }, span)
            }),
            "nats" => sink.table.get("url").filter(|url| url.get_ref().as_array().is_some()).map(|url| {
                let urls = sink.texts("url").map(|(url, _)| url.to_owned()).collect();
                (SinkTarget::Nats { urls, subject: text_or("subject", "") }, url.span())
            }),
            _ => sink.text("path").map(|(path, span)| (SinkTarget::Path(in_full(&resolve(base, path))), span)),
        };
        let mut taken = false;
        if let Some((target, span)) = target {
            taken = targets.contains(&target);
            if taken {
                let message = match &target {
                    SinkTarget::Stdout => "writes to standard output already: remove one of them".to_owned(),
                    SinkTarget::Mqtt { .. } => "publishes the same topics to this broker: set another `topic_prefix`, \
                                                or remove one of them"
                        .to_owned(),
                    SinkTarget::Nats { .. } => "publishes the same subjects to these servers: set another `subject`, \
                                                or remove one of them"
                        .to_owned(),
                    SinkTarget::Path(_) => {
                        format!("uses the path {} already: give each sink its own", text_or("path", ""))
                    }
                };
                diagnostics.error(span, format!("another sink {message}"));
            }
            targets.push(target);
        }
        let (name, span) = sink.text("name").unwrap_or((kind, kind_span));
        // Two sinks of the same type and output are one error, reported above.
        if names.contains(&name) && (sink.has("name") || !taken) {
            let message = if sink.has("name") {
                format!("two sinks have the name \"{name}\": give each its own name")
            } else {
                format!("another sink has the name \"{name}\" already: give this one a `name`")
            };
            diagnostics.error(span, message);
        }
        names.push(name);
    }
}
