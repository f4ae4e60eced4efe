//! Checks across the keys and tables of a file: names, paths, addresses, paces.
//!
//! The checks get the tables with the place of each key, so that an error in one key of a camera does not hide an error in another.
//! They skip what is absent or invalid, because reading the tables reported that already.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use visiond_kernels::color::{ColorDescription, ColorRange, GreyLevels};
use visiond_kernels::frame::FrameLayout;
use visiond_system::preflight::{folder_of, overlap};

use super::diagnostics::{Diagnostics, nearest};
use super::kinds::{Address, CameraName, Fingerprint, is_loopback, split_broker};
use super::tables::{Field, Part, Place, Read, Union};
use super::types::{
    AnnotateConfig, CameraConfig, CameraFormat, CommandConfig, CommandContainer, Config, HttpConfig, ModelConfig,
    MqttSinkConfig, NatsSinkConfig, SinkConfig, SinkKind, SinkTarget, SnapshotConfig, SourceConfig, WhenFull,
};

type SourceRead = Read<SourceConfig>;
type SinkRead = Read<SinkKind>;

/// Reports keys and tables that contradict each other.
pub fn check(config: &Read<Config>, diagnostics: &mut Diagnostics) {
    let models = config.models.value.as_deref().unwrap_or_default();
    let cameras = config.cameras.value.as_deref().unwrap_or_default();
    let sinks = config.sinks.value.as_deref().unwrap_or_default();
    models.iter().for_each(|model| waits_for_a_batch(model, diagnostics));
    let models = Names::collect("model", models.iter().map(|model| &model.name), diagnostics);
    let names = Names::collect("camera", cameras.iter().map(|camera| &camera.name), diagnostics);
    for (camera, span) in config.cameras.items() {
        model_of_camera(camera, span, &models, diagnostics);
        skipped_frames(camera, diagnostics);
        annotation(&camera.annotate, diagnostics);
        source(&camera.source, diagnostics);
    }
    same_device(cameras, diagnostics);
    for sink in sinks {
        cameras_of_sink(sink, cameras, &names, diagnostics);
        match &sink.kind.value {
            Some(SinkRead::Mqtt(mqtt)) => mqtt_tls(mqtt, diagnostics),
            Some(SinkRead::Nats(nats)) => {
                nats_tls(nats, diagnostics);
                streams(nats, diagnostics);
            }
            Some(SinkRead::Stdout | SinkRead::File(_) | SinkRead::Unix(_)) | None => {}
        }
    }
    spools(sinks, diagnostics);
    let outputs = same_outputs(sinks, diagnostics);
    if let Some(http) = &config.http.value {
        addresses(http, &outputs, diagnostics);
    }
}

/// The names of models or cameras that other tables may refer to.
struct Names<'a> {
    what: &'static str,
    names: Vec<&'a str>,
    /// Whether every table has a valid name. If not, an unknown reference may be right, so it is not reported.
    complete: bool,
}

impl<'a> Names<'a> {
    /// Collects the names and reports duplicates.
    fn collect(
        what: &'static str,
        fields: impl Iterator<Item = &'a Field<String>>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut this = Self { what, names: Vec::new(), complete: true };
        for field in fields {
            match field.set() {
                Some((name, span)) if this.names.contains(&&**name) => {
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

fn model_of_camera(camera: &Read<CameraConfig>, span: Range<usize>, models: &Names<'_>, diagnostics: &mut Diagnostics) {
    if let Some((model, span)) = camera.model.set() {
        models.refer(model, span, diagnostics);
    } else if !camera.model.place.is_set() && models.complete && models.names.len() != 1 {
        let message = if models.names.is_empty() {
            "this camera has no model: add a `[[model]]` with `name` and `path`".to_owned()
        } else {
            format!("this camera must name its model: set `model` to one of {}", models.list())
        };
        diagnostics.absence(span, message, None);
    }
}

/// Checks that a frame that waits for others can share a run with them.
fn waits_for_a_batch(model: &Read<ModelConfig>, diagnostics: &mut Diagnostics) {
    if let Some((wait, span)) = model.batch_wait.set()
        && !wait.is_zero()
        && model.max_batch.is(&1)
    {
        let message = "`batch_wait` has a frame wait for others, but a run takes one: set `max_batch`, or remove this";
        diagnostics.error(span, message);
    }
}

/// Whether the source waits, without losing frames, until the lane takes them; `None` if its type is unknown.
fn waits(camera: &Read<CameraConfig>) -> Option<bool> {
    Some(SourceConfig::of(camera.source.value.clone()?).is_lossless())
}

/// Checks that `max_fps` does not skip what the source would wait with.
fn skipped_frames(camera: &Read<CameraConfig>, diagnostics: &mut Diagnostics) {
    if let Some(span) = camera.max_fps.place.span.clone()
        && waits(camera) == Some(true)
    {
        let message = "`max_fps` would skip frames of a source that waits for the model: remove it, or give the source a rate (`fps`, \
                       `pace = \"realtime\"`)";
        diagnostics.error(span, message);
    }
}

fn annotation(annotate: &Field<Read<AnnotateConfig>>, diagnostics: &mut Diagnostics) {
    if let (Some(keys), Some(span)) = (&annotate.value, &annotate.place.span)
        && keys.every.is(&0)
        && keys.on_detection.is(&false)
    {
        let message = "this table never stores a picture: set `every = 30` or `on_detection = true`";
        diagnostics.absence(span.clone(), message, None);
    }
}

fn source(source: &Field<Read<SourceConfig>>, diagnostics: &mut Diagnostics) {
    match &source.value {
        Some(SourceRead::V4l2(v4l2)) => {
            let format = v4l2.format.value.map(|format| match format {
                CameraFormat::Raw(format) => (format.name(), format.has_levels()),
                CameraFormat::Mjpeg => ("mjpeg", false),
            });
            levels(&v4l2.levels, format, &v4l2.color_range, diagnostics);
        }
        Some(SourceRead::Command(command)) => {
            raw_frames(command, source.place.span.clone(), diagnostics);
            let format = command.format.value.map(|format| (format.name(), format.has_levels()));
            levels(&command.levels, format, &command.color_range, diagnostics);
        }
        Some(SourceRead::Video(video)) => login(&video.login, &video.url, diagnostics),
        Some(SourceRead::Rtsp(rtsp)) => {
            let urls = [&rtsp.url, &rtsp.preview_url];
            urls.iter().for_each(|url| login(&rtsp.login, url, diagnostics));
            preview(&rtsp.url, &rtsp.preview_url, diagnostics);
            certificate("rtsps", &urls, &rtsp.ca, &rtsp.fingerprint, &rtsp.insecure, diagnostics);
        }
        Some(SourceRead::Mjpeg(mjpeg)) => {
            login(&mjpeg.login, &mjpeg.url, diagnostics);
            certificate("https", &[&mjpeg.url], &mjpeg.ca, &mjpeg.fingerprint, &mjpeg.insecure, diagnostics);
        }
        Some(SourceRead::Snapshot(snapshot)) => {
            login(&snapshot.login, &snapshot.url, diagnostics);
            let Read::<SnapshotConfig> { url, ca, fingerprint, insecure, .. } = snapshot;
            certificate("https", &[url], ca, fingerprint, insecure, diagnostics);
        }
        Some(SourceRead::Images(_) | SourceRead::Pattern(_)) | None => {}
    }
}

/// Checks that `login` comes with a URL that has no user.
fn login(login: &Field<PathBuf>, url: &Field<String>, diagnostics: &mut Diagnostics) {
    let (Some(span), Some((text, _))) = (login.place.span.clone(), url.set()) else { return };
    let (login, key) = (login.place.name(), url.place.name());
    let authority = text.split_once("://").map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(rest));
    match authority {
        None => diagnostics.error(span, format!("`{login}` requires a URL, and `{key}` is a file: remove `{login}`")),
        Some(authority) if authority.contains('@') => {
            diagnostics.error(span, format!("`{key}` contains a user already: remove it there, or remove `{login}`"));
        }
        Some(_) => {}
    }
}

/// Checks that a preview is another stream than the model's.
fn preview(url: &Field<String>, preview: &Field<String>, diagnostics: &mut Diagnostics) {
    if let (Some((url, _)), Some((other, span))) = (url.set(), preview.set())
        && url == other
    {
        let message = "`preview_url` is the same as `url`: remove it, or write the URL of another stream of the camera";
        diagnostics.error(span, message);
    }
}

/// Checks that the keys about a camera's certificate come with TLS, whose scheme is `secure`, in one of `urls`, and agree.
fn certificate(
    secure: &str,
    urls: &[&Field<String>],
    ca: &Field<PathBuf>,
    fingerprint: &Field<Fingerprint>,
    insecure: &Field<bool>,
    diagnostics: &mut Diagnostics,
) {
    let scheme = |url: &&Field<String>| Some(url.set()?.0.split_once("://")?.0.to_ascii_lowercase());
    let schemes: Vec<_> = urls.iter().filter_map(scheme).collect();
    let is_plain = !schemes.is_empty() && !schemes.iter().any(|scheme| scheme == secure);
    let (ca, fingerprint) = (&ca.place, &fingerprint.place);
    let insecure = Some(&insecure.place).filter(|_| insecure.is(&true));
    if is_plain {
        return needs_tls([ca, fingerprint].into_iter().chain(insecure), secure, diagnostics);
    }
    if let Some(span) = fingerprint.span.clone().filter(|_| ca.is_set()) {
        let message = "`fingerprint` accepts one certificate, regardless of its issuer: remove `ca`, or this key";
        diagnostics.error(span, message);
    }
    if let Some(span) = insecure.and_then(|insecure| insecure.span.clone())
        && let Some(other) = [fingerprint, ca].into_iter().find(|key| key.is_set())
    {
        let other = other.name();
        let message = format!("`insecure` accepts any certificate, and `{other}` does not: remove one of them");
        diagnostics.error(span, message);
    }
}

/// Reports each of `keys` that the file has, because its URL has no TLS.
fn needs_tls<'a>(keys: impl IntoIterator<Item = &'a Place>, secure: &str, diagnostics: &mut Diagnostics) {
    for place in keys {
        if let Some(span) = place.span.clone() {
            let key = place.name();
            let message = format!("`{key}` requires TLS, and `url` has none: use {secure}:// there, or remove `{key}`");
            diagnostics.error(span, message);
        }
    }
}

/// Checks that raw frames, whose source is at `span`, have their shape, and that other containers have none.
fn raw_frames(command: &Read<CommandConfig>, span: Option<Range<usize>>, diagnostics: &mut Diagnostics) {
    let shape = [&command.format.place, &command.width.place, &command.height.place];
    let pitches = command.pitches.place.span.clone().filter(|_| !command.pitches.is(&Vec::new()));
    if command.container.is(&CommandContainer::Y4m) {
        let levels = [&command.levels.place].into_iter();
        let keys = shape.into_iter().chain(levels).filter_map(|key| Some((key, key.span.clone()?)));
        for (key, span) in keys.chain(pitches.map(|span| (&command.pitches.place, span))) {
            let path = &key.path;
            let message = format!("`{path}` requires `container = \"raw\"`: Y4M carries it, so remove this key");
            diagnostics.error(span, message);
        }
    } else if command.container.is(&CommandContainer::Raw) {
        let missing = shape.into_iter().filter(|key| !key.is_set()).map(|key| format!("`{}`", key.name()));
        let missing: Vec<_> = missing.collect();
        if let Some(span) = span.filter(|_| !missing.is_empty()) {
            let message = format!("raw frames need {}, because they carry no header", missing.join(" and "));
            diagnostics.absence(span, message, None);
        }
        if let (Some(format), Some(width), Some(height)) =
            (command.format.value, command.width.value, command.height.value)
            && let Some((pitches, span)) = command.pitches.set().filter(|(pitches, _)| !pitches.is_empty())
            && let Err(error) = FrameLayout::with_pitches(format, width, height, pitches, ColorDescription::default())
        {
            diagnostics.error(span, format!("invalid `{}`: {error}", command.pitches.place.path));
        }
    }
}

/// Checks that levels come with a format, of this name, that has them, and alone say what is black and white.
fn levels(
    levels: &Field<GreyLevels>,
    format: Option<(&str, bool)>,
    color_range: &Field<ColorRange>,
    diagnostics: &mut Diagnostics,
) {
    let Place { path, span: Some(span), .. } = &levels.place else { return };
    if let Some((format, false)) = format {
        let message = format!(
            "`{path}` requires `format` \"grey10\", \"grey12\" or \"grey16\", not \"{format}\": correct the format, or remove this key"
        );
        diagnostics.error(span.clone(), message);
    }
    if color_range.place.is_set() {
        let message = format!("`{path}` says what is black and white: remove `color_range`, or this key");
        diagnostics.error(span.clone(), message);
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
fn same_device(cameras: &[Read<CameraConfig>], diagnostics: &mut Diagnostics) {
    let mut seen: Vec<CameraName> = Vec::new();
    for camera in cameras.iter().filter(|camera| !camera.enabled.is(&false)) {
        let Some(SourceRead::V4l2(v4l2)) = &camera.source.value else { continue };
        let name = match v4l2.device.set() {
            Some((CameraName::Node(path), span)) => (CameraName::Node(without_dots(path)), span),
            Some((name, span)) => (name.clone(), span),
            None => continue,
        };
        let (name, span) = name;
        if seen.contains(&name) {
            let message = "another camera uses this device, and only one can open it: \
                           name another device, or set `enabled = false`";
            diagnostics.error(span, message);
        }
        seen.push(name);
    }
}

fn cameras_of_sink(
    sink: &Read<SinkConfig>,
    cameras: &[Read<CameraConfig>],
    names: &Names<'_>,
    diagnostics: &mut Diagnostics,
) {
    let mut chosen = Vec::new();
    for (name, span) in sink.cameras.items() {
        chosen.push(name);
        names.refer(name, span, diagnostics);
    }
    let Some((WhenFull::Block, span)) = sink.when_full.set() else { return };
    let ours = |name: &String| chosen.is_empty() || chosen.contains(&name);
    let hurried = cameras.iter().filter(|camera| waits(camera) == Some(false));
    if let Some(camera) = hurried.filter_map(|camera| camera.name.value.as_ref()).find(|name| ours(name)) {
        let message = format!(
            "\"block\" would delay camera \"{camera}\", whose source cannot wait: use \"drop_oldest\" or \"drop_newest\", \
             or exclude the camera with `cameras`"
        );
        diagnostics.error(span, message);
    }
}

/// Whether the network sees what is sent to this broker, whose scheme without TLS is `plain`.
fn is_in_clear(url: &str, plain: &str) -> bool {
    split_broker(url)
        .is_some_and(|(scheme, host, _)| scheme == plain && host != "localhost" && !host.parse().is_ok_and(is_loopback))
}

/// Warns of a login that the network sees; `secure` is the scheme with TLS.
fn login_in_clear(login: &Field<PathBuf>, secure: &str, diagnostics: &mut Diagnostics) {
    if let Some(span) = login.place.span.clone() {
        diagnostics.warning(span, format!("user and password go over the network in clear: use {secure}:// in `url`"));
    }
}

/// Checks that a certificate and its key come together.
fn key_pair(certificate: &Place, key: &Place, diagnostics: &mut Diagnostics) {
    for (one, other) in [(certificate, key), (key, certificate)] {
        if let Some(span) = one.span.clone().filter(|_| !other.is_set()) {
            let (one, other) = (one.name(), other.name());
            diagnostics.error(span, format!("`{one}` requires `{other}`: set both or neither"));
        }
    }
}

/// Checks that certificates come with TLS and with their key, and warns of a password without TLS.
fn mqtt_tls(mqtt: &Read<MqttSinkConfig>, diagnostics: &mut Diagnostics) {
    let (ca, certificate, key) = (&mqtt.ca.place, &mqtt.certificate.place, &mqtt.key.place);
    if let Some((url, _)) = mqtt.url.set() {
        if url.starts_with("mqtt://") {
            needs_tls([ca, certificate, key], "mqtts", diagnostics);
        }
        if is_in_clear(url, "mqtt") {
            login_in_clear(&mqtt.login, "mqtts", diagnostics);
        }
    }
    key_pair(certificate, key, diagnostics);
}

/// Checks that certificates come with their key, and warns of a password without TLS. Each server of a cluster gets the login.
fn nats_tls(nats: &Read<NatsSinkConfig>, diagnostics: &mut Diagnostics) {
    let (ca, certificate, key) = (&nats.ca.place, &nats.certificate.place, &nats.key.place);
    // With one of these, the connection requires TLS whatever the URL says.
    let requires_tls = ca.is_set() || certificate.is_set();
    if !requires_tls && nats.url.items().any(|(url, _)| is_in_clear(url, "nats")) {
        login_in_clear(&nats.login, "tls", diagnostics);
    }
    key_pair(certificate, key, diagnostics);
}

/// Checks that a NATS sink has a server, and a name for a stream that it creates.
fn streams(nats: &Read<NatsSinkConfig>, diagnostics: &mut Diagnostics) {
    if let Some((urls, span)) = nats.url.set()
        && urls.is_empty()
    {
        diagnostics.error(span, "`url` names no server: write one, such as nats://localhost:4222");
    }
    if let Some((true, span)) = nats.create_stream.set()
        && !nats.stream.place.is_set()
    {
        diagnostics.error(span, "`create_stream` requires the name of the stream: set `stream`");
    }
}

/// Checks that `durable` sinks have a broker, and each a spool folder of its own.
fn spools(sinks: &[Read<SinkConfig>], diagnostics: &mut Diagnostics) {
    let mut folders = Vec::new();
    for sink in sinks.iter().filter(|sink| sink.durable.is(&true)) {
        if let Some((kind, span)) = sink.kind.set()
            && let SinkRead::Stdout | SinkRead::File(_) | SinkRead::Unix(_) = kind
        {
            let name = SinkKind::of(kind.clone()).name();
            diagnostics.error(span, format!("`durable` requires a sink for a broker, not \"{name}\": remove it"));
        }
        let Some((path, span)) = sink.spool_directory.set() else { continue };
        let folder = in_full(path);
        if folders.contains(&folder) {
            let shown = path.display();
            let message = format!("another sink stores its messages in {shown} already: give each sink its own folder");
            diagnostics.error(span, message);
        }
        folders.push(folder);
    }
}

/// Returns where a sink's messages go, with the place of the key that says so; `None` if such a key is invalid.
fn target(kind: &Field<SinkRead>) -> Option<(SinkTarget, Range<usize>)> {
    let read = kind.value.as_ref()?;
    let span = match read {
        SinkRead::Stdout => kind.place.span.clone()?,
        SinkRead::File(file) => file.path.set()?.1,
        SinkRead::Unix(unix) => unix.path.set()?.1,
        SinkRead::Mqtt(mqtt) => mqtt.topic_prefix.value.as_ref().and(mqtt.url.set())?.1,
        SinkRead::Nats(nats) => nats.subject.value.as_ref().and(nats.url.set())?.1,
    };
    Some((SinkTarget::of(&SinkKind::of(read.clone())), span))
}

/// Checks that no two sinks have the same output or the same name. Returns the outputs.
fn same_outputs(sinks: &[Read<SinkConfig>], diagnostics: &mut Diagnostics) -> Vec<SinkTarget> {
    let (mut names, mut targets): (Vec<String>, Vec<SinkTarget>) = (Vec::new(), Vec::new());
    for sink in sinks {
        let (Some(kind), Some(kind_span)) = (&sink.kind.value, sink.kind.place.span.clone()) else { continue };
        let mut taken = false;
        if let Some((given, span)) = target(&sink.kind) {
            let target =
                if let SinkTarget::Path(path) = &given { SinkTarget::Path(in_full(path)) } else { given.clone() };
            taken = targets.contains(&target);
            if taken {
                let message = match &given {
                    SinkTarget::Stdout => "writes to standard output already: remove one of them".to_owned(),
                    SinkTarget::Mqtt { .. } => "publishes the same topics to this broker: set another `topic_prefix`, \
                                                or remove one of them"
                        .to_owned(),
                    SinkTarget::Nats { .. } => "publishes the same subjects to these servers: set another `subject`, \
                                                or remove one of them"
                        .to_owned(),
                    SinkTarget::Path(path) => {
                        format!("uses the path {} already: give each sink its own", path.display())
                    }
                };
                diagnostics.error(span, format!("another sink {message}"));
            }
            targets.push(target);
        }
        let given = sink.name.set();
        let name = given.as_ref().map_or_else(|| SinkKind::of(kind.clone()).name(), |(name, _)| name);
        // Two sinks of the same type and output are one error, reported above.
        if names.iter().any(|other| other == name) {
            if let Some((name, span)) = &given {
                let message = format!("two sinks have the name \"{name}\": give each its own name");
                diagnostics.error(span.clone(), message);
            } else if !taken {
                let message = format!("another sink has the name \"{name}\" already: give this one a `name`");
                diagnostics.error(kind_span, message);
            }
        }
        names.push(name.to_owned());
    }
    targets
}

/// Checks `listen`: an address that is reachable from the network requires a token, no address may appear twice or include
/// another one, and no sink may have the path of a socket.
fn addresses(http: &Read<HttpConfig>, outputs: &[SinkTarget], diagnostics: &mut Diagnostics) {
    let (mut seen, mut sockets): (Vec<SocketAddr>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for (shown, span) in http.listen.items() {
        let address = match shown {
            Address::Tcp(address) => *address,
            Address::Unix(path) => {
                let socket = in_full(path);
                if sockets.contains(&socket) {
                    diagnostics.error(span, format!("{shown} is listed twice: remove one of them"));
                } else if outputs.contains(&SinkTarget::Path(socket.clone())) {
                    diagnostics.error(span, "a sink uses this path already: name another one here or there");
                }
                sockets.push(socket);
                continue;
            }
        };
        if let Some(other) = seen.iter().find(|other| address.port() != 0 && overlap(**other, address)) {
            let message = match *other == address {
                true => format!("{address} is listed twice: remove one of them"),
                false => format!("{address} and {other} overlap: remove one of them, or set another port"),
            };
            diagnostics.error(span.clone(), message);
        }
        seen.push(address);
        if !is_loopback(address.ip()) && !http.token.place.is_set() {
            let message = "this address is reachable from the network: set `http.token`, or listen on 127.0.0.1";
            diagnostics.error(span, message);
        }
    }
}
