//! Any valid configuration, written and read again, is the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use visiond_engine::detector::MaskForm;
use visiond_kernels::color::GreyLevels;
use visiond_kernels::cuda::StreamPriority;
use visiond_kernels::frame::PixelFormat;
use visiond_kernels::privacy::Fill;
use visiond_kernels::view::{Crop, Flip};

use crate::kinds::Words;
use crate::types::*;

fn word<T: Words + std::fmt::Debug>() -> impl Strategy<Value = T> {
    select(T::words().into_iter().map(|(_, value)| value).collect::<Vec<_>>())
}

/// Any text that is not empty, with quotes, backslashes, line ends and control characters.
fn text() -> impl Strategy<Value = String> {
    vec(prop_oneof![any::<char>(), select(vec!['"', '\\', '\n', '\t', '\'', '\u{7f}', '#'])], 1..12)
        .prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').chain(['x']).collect())
}

fn path() -> impl Strategy<Value = PathBuf> {
    text().prop_map(|text| Path::new("/base").join(text.trim_start_matches('/')))
}

fn duration(from_ms: u64, to_ms: u64) -> impl Strategy<Value = Duration> {
    (from_ms..to_ms, select(vec![1, 1_000])).prop_map(move |(ms, step)| {
        Duration::from_millis(ms.next_multiple_of(step).min(to_ms))
            + Duration::from_nanos(if step == 1 { 1 } else { 0 })
    })
}

fn fraction() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..=1.0, select(vec![0.0, 1.0, 1e-9])]
}

prop_compose! {
    fn model()(
        from in prop_oneof![path().prop_map(Ok), Just(Err("street".to_owned()))], card in of(path()), score_threshold in of(fraction()), iou_threshold in of(fraction()),
        max_detections in of(1_usize..=100_000), classes in vec(text(), 0..3),
        input_shapes in btree_map(text(), vec(1_usize..5000, 1..5), 0..3), max_batch in 1_usize..=1024, sha256 in of(text()),
        masks in word::<MaskForm>(), priority in word::<StreamPriority>(), mask_tolerance_pixels in 0_u32..=100, batch_wait in duration(1, 1_000),
    ) -> ModelConfig {
        let batch_wait = if max_batch == 1 { Duration::ZERO } else { batch_wait };
        ModelConfig {
            name: String::new(), path: from.clone().unwrap_or_default(), bundle: from.clone().err(), own_path: from.ok(), sha256, card, score_threshold, iou_threshold, max_detections, classes, input_shapes, max_batch,
            batch_wait, priority, masks, mask_tolerance_pixels, ..ModelConfig::default()
        }
    }
}

fn camera_name() -> impl Strategy<Value = CameraName> {
    prop_oneof![
        path().prop_map(CameraName::Node),
        (any::<u16>(), any::<u16>(), of(text())).prop_map(|(vendor, product, serial)| CameraName::Usb {
            vendor,
            product,
            serial
        }),
        text().prop_map(|text| CameraName::Card(format!("Cam {text}"))),
    ]
}

fn control() -> impl Strategy<Value = ControlValue> {
    prop_oneof![
        any::<bool>().prop_map(ControlValue::Flag),
        any::<i64>().prop_map(ControlValue::Number),
        text().prop_map(ControlValue::Text),
    ]
}

fn levels() -> impl Strategy<Value = GreyLevels> {
    (any::<u16>(), any::<u16>()).prop_filter_map("levels in order", |(low, high)| GreyLevels::new(low, high))
}

prop_compose! {
    fn v4l2()(
        device in camera_name(), format in of(word()), width in of(1_u32..=16_384), height in of(1_u32..=16_384),
        fps in of(0.01..=1000.0_f64), color_matrix in of(word()), color_range in of(word()), io in of(word()),
        input in of(0_u32..64), timeout in of(duration(100, 3_600_000)),
        controls in btree_map(text(), control(), 0..3), levels in of(levels()),
    ) -> V4l2Config {
        let format = if levels.is_some() { Some(CameraFormat::Raw(PixelFormat::Grey12)) } else { format };
        let color_range = color_range.filter(|_| levels.is_none());
        V4l2Config { device, format, width, height, fps, color_matrix, color_range, levels, io, input, controls, timeout }
    }
}

prop_compose! {
    fn video()(
        url in prop_oneof![path().prop_map(|path| path.to_string_lossy().into_owned()), Just("rtsp://a/b".to_owned())],
        pace in word(), repeat: bool, max_frames in of(1..=i64::MAX as u64), input_args in vec(text(), 0..3), pixels in word(),
        color_matrix in of(word()), color_range in of(word()), timeout in duration(100, 3_600_000),
        login in of(prop_oneof![path(), Just(PathBuf::from("gate"))]),
    ) -> VideoConfig {
        let login = login.filter(|_| url.contains("://"));
        VideoConfig {
            url, login, pace, repeat, max_frames, input_args, pixels, color_matrix, color_range, timeout, ffmpeg: FfmpegConfig::default(),
        }
    }
}

/// TLS or not, and the keys `ca`, `fingerprint`, `insecure`.
fn tls() -> impl Strategy<Value = (bool, (Option<PathBuf>, Option<Fingerprint>, bool))> {
    prop_oneof![
        any::<bool>().prop_map(|tls| (tls, (None, None, false))),
        path().prop_map(|ca| (true, (Some(ca), None, false))),
        any::<[u8; 32]>().prop_map(|digest| (true, (None, Some(Fingerprint(digest)), false))),
        Just((true, (None, None, true))),
    ]
}

prop_compose! {
    fn mjpeg()(
        path in "[a-z0-9/?=_.]{0,20}", (tls, (ca, fingerprint, insecure)) in tls(),
        login in of(prop_oneof![path(), Just(PathBuf::from("gate"))]), require_digest: bool,
        timeout in duration(100, 3_600_000),
    ) -> MjpegConfig {
        let url = format!("http{}://10.0.0.1:8080/{path}", if tls { "s" } else { "" });
        MjpegConfig { url, login, require_digest, ca, fingerprint, insecure, timeout }
    }
}

prop_compose! {
    fn snapshot()(stream in mjpeg(), interval in duration(20, 3_600_000)) -> SnapshotConfig {
        let MjpegConfig { url, login, require_digest, ca, fingerprint, insecure, timeout } = stream;
        SnapshotConfig { url, interval, login, require_digest, ca, fingerprint, insecure, timeout }
    }
}

prop_compose! {
    fn rtsp()(
        path in "[a-z0-9/?=_.]{0,20}", preview_url in of(Just("rtsp://10.0.0.1:554/PREVIEW".to_owned())),
        (tls, (ca, fingerprint, insecure)) in tls(),
        login_transport in (of(prop_oneof![path(), Just(PathBuf::from("gate"))]), word()),
        require_digest: bool, key_frames_only: bool, damaged in word(), decoder in word(), pixels in word(), color_matrix in of(word()), color_range in of(word()),
        timeout in duration(100, 3_600_000),
    ) -> RtspConfig {
        let scheme = if tls { "rtsps" } else { "rtsp" };
        let (url, (login, transport)) = (format!("{scheme}://10.0.0.1:554/{path}"), login_transport);
        RtspConfig {
            url, preview_url, login, require_digest, ca, fingerprint, insecure, transport, key_frames_only, damaged, decoder, pixels, color_matrix,
            color_range, timeout, ffmpeg: FfmpegConfig::default(),
        }
    }
}

prop_compose! {
    fn command()(
        program in path(), arguments in vec(text(), 0..4), raw in of((word(), 1_u32..=16_384, 1_u32..=16_384)),
        pace in word(), repeat: bool, max_frames in of(1..=i64::MAX as u64), color_matrix in word(),
        color_range in of(word()), timeout in duration(100, 3_600_000), fd in select(vec![1, 3]), levels in of(levels()),
        shared: bool,
    ) -> CommandConfig {
        let levels = levels.filter(|_| color_range.is_none() && raw.is_some());
        let raw = raw.map(|(format, width, height)| (if levels.is_some() { PixelFormat::Grey16 } else { format }, width, height));
        let shared = shared && raw.is_some();
        let socket = shared.then(|| SOCKET.to_owned());
        CommandConfig {
            command: std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).chain(socket).collect(),
            container: match raw {
                Some(_) if shared => CommandContainer::Shm,
                Some(_) => CommandContainer::Raw,
                None => CommandContainer::Y4m,
            },
            format: raw.map(|raw| raw.0), width: raw.map(|raw| raw.1), height: raw.map(|raw| raw.2), pitches: Vec::new(),
            fd: if shared { 1 } else { fd }, pace, repeat, max_frames, color_matrix, color_range, levels, timeout,
        }
    }
}

fn source() -> impl Strategy<Value = SourceConfig> {
    prop_oneof![
        v4l2().prop_map(SourceConfig::V4l2).boxed(),
        rtsp().prop_map(SourceConfig::Rtsp).boxed(),
        mjpeg().prop_map(SourceConfig::Mjpeg).boxed(),
        snapshot().prop_map(SourceConfig::Snapshot).boxed(),
        video().prop_map(SourceConfig::Video).boxed(),
        command().prop_map(SourceConfig::Command),
        (path(), any::<[bool; 3]>(), duration(10, 3_600_000), of(0.001..=1000.0_f64)).prop_map(
            |(path, [recursive, watch, repeat], watch_interval, fps)| {
                SourceConfig::Images(ImagesConfig { path, recursive, watch, watch_interval, repeat, fps })
            }
        ),
        (1_u32..=16_384, 1_u32..=16_384, 0.01..=1000.0_f64, word(), of(1..=1000_u64)).prop_map(
            |(width, height, fps, format, max_frames)| {
                SourceConfig::Pattern(PatternConfig { width, height, fps, format, max_frames })
            }
        ),
    ]
}

prop_compose! {
    fn annotate()(directory in path(), every in 0..100_u64, on_detection: bool, on_event: bool, format in word(), keep in 0..=1_000_000_000_usize)
        -> AnnotateConfig {
        AnnotateConfig { directory, every, on_detection: on_detection || every == 0 && !on_event, on_event, format, keep }
    }
}

prop_compose! {
    fn clips()(
        directory in path(), before in duration(100, 60_000), after in duration(100, 60_000), longest in duration(120_001, 3_600_000),
        kinds in vec(word(), 0..3), max_memory_bytes in (1_u64 << 20)..=(1 << 40), keep in 0..=1_000_000_000_usize,
        max_bytes in prop_oneof![Just(0), (1_u64 << 20)..=(1 << 50)],
    ) -> ClipsConfig {
        ClipsConfig { directory, before, after, longest, rules: Vec::new(), kinds, max_memory_bytes, keep, max_bytes }
    }
}

prop_compose! {
    fn track()(unseen in duration(10, 3_600_000), score in of(0.0..=1.0_f64), classes in vec(text(), 0..3)) -> TrackConfig {
        TrackConfig { unseen, score, classes }
    }
}

prop_compose! {
    fn camera_model()(
        max_fps in of(0.001..=1000.0_f64), every in 1_u64..=1_000_000, classes in vec(text(), 0..3),
        score_threshold in of(fraction()), min_size in of(1_u32..=100), max_size in of(100_u32..=16_384),
        tiles in of(tiles()),
    ) -> CameraModelConfig {
        let name = String::new();
        CameraModelConfig { name, max_fps, every, classes, score_threshold, min_size, max_size, crop: None, tiles }
    }
}

/// Tiles of which no frame has too many.
fn tiles() -> impl Strategy<Value = TilesConfig> {
    prop_oneof![
        (9000_u32..=16_384, 0.0..=0.1_f64).prop_map(|(size, overlap)| TilesConfig {
            size: Some(size),
            columns: None,
            rows: None,
            overlap
        }),
        (1_u32..=8, 1_u32..=7, 0.0..=0.9_f64).prop_map(|(columns, rows, overlap)| TilesConfig {
            size: None,
            columns: Some(columns),
            rows: Some(rows),
            overlap,
        }),
    ]
}

/// A valid polygon, in pixels or in fractions.
fn polygon() -> impl Strategy<Value = (Vec<[f64; 2]>, Option<[u32; 2]>)> {
    let sides = ([0.1..0.5, 0.6..1.0], [0.1..0.5, 0.6..1.0], of((2_u32..=16_384, 2_u32..=16_384)));
    sides.prop_map(|([left, right], [top, bottom], size)| {
        let (width, height) = size.map_or((1.0, 1.0), |(width, height)| (f64::from(width), f64::from(height)));
        let corners = [[left, top], [right, top], [right, bottom], [left, bottom]];
        (corners.map(|[x, y]| [x * width, y * height]).to_vec(), size.map(|(width, height)| [width, height]))
    })
}

fn fill() -> impl Strategy<Value = Fill> {
    prop_oneof![Just(Fill::Mosaic), any::<[u8; 3]>().prop_map(Fill::Color)]
}

prop_compose! {
    fn privacy()((polygon, frame_size) in polygon(), fill in fill()) -> PrivacyConfig {
        PrivacyConfig { polygon, frame_size, fill }
    }
}

prop_compose! {
    fn ignore()((polygon, frame_size) in polygon(), classes in vec(text(), 0..3)) -> IgnoreConfig {
        IgnoreConfig { polygon, frame_size, classes }
    }
}

fn anchor() -> impl Strategy<Value = Anchor> {
    select(vec![Anchor::Bottom, Anchor::Center, Anchor::Top, Anchor::Left, Anchor::Right])
}

prop_compose! {
    fn line()(
        (points, frame_size) in polygon(), classes in vec(text(), 0..3), min_score in fraction(), min_size in of(1_u32..=100),
        max_size in of(100_u32..=16_384), anchor in anchor(), settle in prop_oneof![Just(Duration::ZERO), duration(1, 3_600_000)],
        hold in duration(10, 3_600_000), reset in of(0..1440_u16), active in vec(active(), 0..3), enabled: bool,
    ) -> LineConfig {
        let sides = vec!["in".to_owned(), "out".to_owned()];
        let (only_while, unless) = (Vec::new(), Vec::new());
        LineConfig {
            name: String::new(), points, frame_size, sides, classes, min_score, min_size, max_size, anchor, settle, hold, only_while, unless, reset,
            active, enabled,
        }
    }
}

fn active() -> impl Strategy<Value = ActiveConfig> {
    (vec(word(), 0..3), 0..1440_u16, 0..=1440_u16)
        .prop_filter("no duration", |(_, from, to)| from != to)
        .prop_map(|(days, from, to)| ActiveConfig { days, from, to })
}

prop_compose! {
    fn belonging()(
        time in duration(10, 86_400_000), distance in 0.1..=16_384.0, has_owners: bool, near in 1.0..=16_384.0,
    ) -> BelongingConfig {
        let owners = if has_owners { vec!["\"owner\"".to_owned()] } else { Vec::new() };
        BelongingConfig { classes: vec!["bag".to_owned()], time, distance, owners, near }
    }
}

prop_compose! {
    fn reports()(
        dwell in of(duration(10, 86_400_000)), loitering in of(duration(10, 86_400_000)), absence in of(duration(10, 86_400_000)),
        at_least in of(1..=100_u32), at_most in 100..=100_000_u32, lasting in prop_oneof![Just(Duration::ZERO), duration(10, 86_400_000)],
        stopped in of((duration(10, 86_400_000), 0.1..=16_384.0)), wrong_way in of(1.0..=16_384.0), counts: bool,
        speed in of((0.1..=100.0, of(100.0..=1000.0), duration(100, 60_000))), belongings in (of(belonging()), of(belonging())),
    ) -> ZoneConfig {
        let occupancy = counts.then_some(OccupancyConfig { at_least, at_most: Some(at_most), lasting });
        let stopped = stopped.map(|(time, distance)| StoppedConfig { time, distance });
        let direction = vec![[0.0, 0.5], [1.0, 0.5]];
        let wrong_way = wrong_way.map(|distance| WrongWayConfig { direction, distance });
        let (left_behind, taken_away) = belongings;
        let speed = speed.map(|(least, at_most_kmh, over)| SpeedConfig { at_least_kmh: Some(least), at_most_kmh, over });
        ZoneConfig { dwell, loitering, absence, occupancy, stopped, wrong_way, speed, left_behind, taken_away, ..ZoneConfig::default() }
    }
}

fn ground() -> GroundConfig {
    let points = vec![[0.25, 0.5], [0.75, 0.5], [1.0, 1.0], [0.0, 1.0]];
    let metres = vec![[-2.5, 80.0], [2.5, 80.0], [2.5, 0.125], [-2.5, 0.125]];
    GroundConfig { points, metres, frame_size: None }
}

prop_compose! {
    fn zone()(
        shape in of(polygon()), mut reports in reports(), seen in line(), parked: bool,
    ) -> ZoneConfig {
        let (polygon, frame_size) = shape.unwrap_or_default();
        if let (Some(wrong_way), Some(size)) = (&mut reports.wrong_way, frame_size) {
            let scale = |[x, y]: [f64; 2]| [x * f64::from(size[0]), y * f64::from(size[1])];
            wrong_way.direction = wrong_way.direction.iter().copied().map(scale).collect();
        }
        let LineConfig { enabled, classes, min_score, min_size, max_size, anchor, settle, hold, reset, active, .. } = seen;
        ZoneConfig { enabled, polygon, frame_size, classes, min_score, min_size, max_size, anchor, settle, hold, parked, reset, active, ..reports }
    }
}

/// Lines and zones whose names differ.
fn rules() -> impl Strategy<Value = (Vec<LineConfig>, Vec<ZoneConfig>)> {
    (vec(line(), 0..3), vec(zone(), 0..3)).prop_map(|(mut lines, mut zones)| {
        let names = lines.iter_mut().map(|line| &mut line.name).chain(zones.iter_mut().map(|zone| &mut zone.name));
        names.enumerate().for_each(|(number, name)| *name = format!("rule-{number}"));
        if let [first, .., last] = &mut *zones {
            last.unless = vec![first.name.clone()];
        }
        (lines, zones)
    })
}

/// A crop with the size of its frame, if it is in pixels.
type Part = (Crop, Option<[u32; 2]>);

fn view() -> impl Strategy<Value = (Option<Part>, Option<u32>, Option<Flip>)> {
    let pixels = (0..8000_u32, 0..8000_u32, 2..8000_u32, 2..8000_u32, 0..99_u32);
    let pixels = pixels.prop_map(|(x, y, w, h, more)| (Crop::Pixels([x, y, w, h]), Some([x + w + more, y + h])));
    let fractions = (0.001..=0.75, 0.5..=1.0).prop_map(|(w, h)| (Crop::Fractions([0.25, 0.0, w, h]), None));
    let crop = prop_oneof![pixels, fractions];
    (of(crop), of(select(vec![90, 180, 270])), of(select(vec![Flip::Horizontal, Flip::Vertical])))
}

prop_compose! {
    // Parts are on the heap: together, they are larger than the stack of a test.
    fn camera()(
        model in 0_usize..8, enabled: bool, fps in of(0.001..=1000.0_f64), source in source(), annotate in of(annotate()).boxed(), clips in of(clips()).boxed(),
        mut track in of(track()), smooth: bool, group: bool, group_timeout in of(duration(10, 10_000)), mut models in vec(camera_model(), 1..4), ignore in vec(ignore(), 0..3),
        privacy in vec(privacy(), 0..3), (crop, rotate, flip) in view().boxed(), (line, zone) in rules().boxed(),
    ) -> (usize, CameraConfig) {
        if let Some(track) = track.as_mut().filter(|track| !track.classes.is_empty()) {
            track.classes.push("\"owner\"".to_owned());
        }
        let needs_ground = zone.iter().any(|zone| zone.speed.is_some());
        let ground = (needs_ground || group).then(ground);
        // Only where frames may be skipped.
        let max_fps = fps.filter(|_| !source.is_lossless());
        let smooth = smooth && track.is_some();
        let (line, zone) = if track.is_some() { (line, zone) } else { (Vec::new(), Vec::new()) };
        let clips = clips.filter(|_| !(line.is_empty() && zone.is_empty()));
        if source.is_lossless() {
            models.iter_mut().for_each(|model| model.max_fps = None);
        }
        let (crop, crop_frame_size) = crop.map_or((None, None), |(crop, size)| (Some(crop), size));
        let score_threshold = models.first().and_then(|model| model.score_threshold);
        let camera = CameraConfig {
            name: String::new(), model: None, models, group, group_timeout, enabled, score_threshold, max_fps, crop, crop_frame_size, rotate, flip, source,
            annotate, clips, track, smooth, privacy, ignore, ground, line, zone,
        };
        (model, camera)
    }
}

fn topic() -> impl Strategy<Value = String> {
    select(vec!["visiond".to_owned(), "a/b/c".to_owned(), "ö".to_owned()])
}

prop_compose! {
    fn mqtt()(
        tls: bool, protocol in word(), login in of(path()), ca in of(path()), pair in of((path(), path())),
        client_id in of(text()), keep_alive in duration(1000, 3_600_000), topic_prefix in topic(),
        qos_detections in 0..=2_u32, retain: bool, message_expiry in prop_oneof![Just(Duration::ZERO), duration(1000, 86_400_000)],
    ) -> MqttSinkConfig {
        let url = if tls { "mqtts://broker" } else { "mqtt://10.0.0.7:1884" };
        let (certificate, key) = pair.filter(|_| tls).unzip();
        MqttSinkConfig {
            url: url.to_owned(), protocol, login, ca: ca.filter(|_| tls), certificate, key, client_id, keep_alive,
            topic_prefix, qos_detections, retain, message_expiry, ..MqttSinkConfig::default()
        }
    }
}

prop_compose! {
    fn mqtt_cameras()(
        state_interval in duration(250, 3_600_000), occupancy_hold in prop_oneof![Just(Duration::ZERO), duration(1, 3_600_000)],
        snapshot_interval in prop_oneof![Just(Duration::ZERO), duration(1000, 86_400_000)], snapshot_overlay: bool,
        home_assistant: bool, commands: bool, discovery_prefix in topic(), count_labels in vec(text(), 0..3),
    ) -> MqttSinkConfig {
        MqttSinkConfig {
            state_interval, occupancy_hold, snapshot_interval, snapshot_overlay, commands, home_assistant, discovery_prefix,
            count_labels, ..MqttSinkConfig::default()
        }
    }
}

prop_compose! {
    fn nats()(
        urls in vec(select(vec!["nats://10.0.0.7".to_owned(), "tls://[::1]:4223".to_owned()]), 1..3), login in of(path()),
        ca in of(path()), pair in of((path(), path())), stream in of(select(vec!["visiond".to_owned()])), create: bool,
        stream_max_age in prop_oneof![Just(Duration::ZERO), duration(1000, 86_400_000)],
        stream_max_bytes in prop_oneof![Just(0), 1_u64 << 20..=1 << 40], ack_timeout in duration(1000, 3_600_000),
        subject in select(vec!["a.{camera}.b-{device}".to_owned(), "all".to_owned()]),
    ) -> NatsSinkConfig {
        let (certificate, key) = pair.unzip();
        NatsSinkConfig {
            url: urls, login, credentials: None, ca, certificate, key, create_stream: create && stream.is_some(), stream,
            stream_max_age, stream_max_bytes, subject, ack_timeout,
        }
    }
}

fn sink_kind() -> impl Strategy<Value = SinkKind> {
    prop_oneof![
        Just(SinkKind::Stdout),
        (path(), prop_oneof![Just(0), 4096..=1_u64 << 40], 0..=10_000_u32).prop_map(
            |(path, rotate_bytes, rotate_keep)| { SinkKind::File(FileSinkConfig { path, rotate_bytes, rotate_keep }) }
        ),
        (path(), 0..=0o777_u32, 1..=4096_usize, 4096..=1_usize << 30).prop_map(
            |(path, mode, max_readers, reader_buffer_bytes)| {
                SinkKind::Unix(UnixSinkConfig { path, mode, max_readers, reader_buffer_bytes })
            }
        ),
        (mqtt(), mqtt_cameras()).prop_map(|(session, cameras)| {
            SinkKind::Mqtt(MqttSinkConfig {
                state_interval: cameras.state_interval,
                occupancy_hold: cameras.occupancy_hold,
                snapshot_interval: cameras.snapshot_interval,
                snapshot_overlay: cameras.snapshot_overlay,
                commands: cameras.commands,
                home_assistant: cameras.home_assistant,
                discovery_prefix: cameras.discovery_prefix,
                count_labels: cameras.count_labels,
                ..session
            })
        }),
        nats().prop_map(SinkKind::Nats),
    ]
}

prop_compose! {
    fn sink()(
        kind in sink_kind(), cameras in vec(0_usize..8, 0..3), only_detections: bool, queue in 1..=1_000_000_usize,
        queue_bytes in 1_u64 << 20..=1 << 40,
        when_full in select(vec![WhenFull::DropOldest, WhenFull::DropNewest]),
        max_rate in of(select(vec![0.001, 0.5, 30.0, 1000.0])), spool_directory in of(path()),
        messages in select(vec![vec![MessageKind::Frames], vec![MessageKind::Events, MessageKind::Frames]]),
        spool_bytes in 1_u64 << 20..=1 << 40, spool_sync in prop_oneof![Just(Duration::ZERO), duration(10, 3_600_000)],
    ) -> (Vec<usize>, SinkConfig) {
        let (name, durable) = (String::new(), false);
        (cameras, SinkConfig {
            name, kind, cameras: Vec::new(), messages, only_detections, queue, queue_bytes, when_full, max_rate, durable, spool_directory, spool_bytes,
            spool_sync,
        })
    }
}

/// Puts the number into a path, so that no two are the same.
fn numbered(path: &mut PathBuf, number: usize) {
    path.as_mut_os_string().push(format!("-{number}"));
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<std::net::SocketAddrV4>().prop_map(|address| Address::Tcp(address.into())),
        (any::<std::net::Ipv6Addr>(), any::<u16>()).prop_map(|address| Address::Tcp(address.into())),
        path().prop_map(Address::Unix),
    ]
}

prop_compose! {
    fn http()(
        mut listen in vec(address(), 0..3), token in path(), socket_mode in 0..=0o777_u32,
        max_connections in 1..=65_536_usize, max_fps in 0.1..=120.0, allow_hosts in vec("[a-z0-9.-]{1,20}", 0..3),
        allow_changes: bool,
    ) -> HttpConfig {
        for (i, address) in listen.iter_mut().enumerate() {
            match address {
                Address::Tcp(address) => address.set_port(8790 + i as u16),
                Address::Unix(path) => numbered(path, i),
            }
        }
        HttpConfig { listen, token: Some(token), socket_mode, max_connections, max_fps, allow_hosts, allow_changes }
    }
}

prop_compose! {
    fn engine()(
        backend in word(), onnxruntime_library in of(path()), tensorrt_library in of(path()), gpu in 0..=63_u32,
        threads in 0..=1024_usize, canary_timeout in duration(1, 3_600_000),
        load_timeout in duration(1_000, 3_600_000), load_memory_bytes in 1_u64 << 26..=1 << 40,
    ) -> EngineConfig {
        EngineConfig {
            backend, onnxruntime_library, tensorrt_library, gpu, threads, canary_timeout, load_timeout, load_memory_bytes,
        }
    }
}

prop_compose! {
    fn config()(
        device in (of(select(vec!["gate-7".to_owned(), "x".to_owned()])), of(Just(TimeZone::UTC)))
            .prop_map(|(name, time_zone)| DeviceConfig { name, time_zone }),
        log in (word(), word()).prop_map(|(level, target)| LogConfig { level, target }),
        engine in engine(),
        buffers in (word(), of(3..=32_usize), 1..=1_u64 << 28, (1_u64 << 20)..=1 << 40).prop_map(|(memory, count, max_pixels, max_picture_bytes)| BufferConfig { memory, count, max_pixels, max_picture_bytes }),
        ffmpeg in (prop_oneof![path(), Just(PathBuf::from("ffmpeg"))], any::<bool>(), (16_u64 << 20)..=1 << 40)
            .prop_map(|(program, confined, max_memory_bytes)| FfmpegConfig { program, confined, max_memory_bytes }),
        (events, bundles) in (of(path()), of(path()), of("[a-z0-9_-]{1,20}")).prop_map(|(events, bundles, settings)| (EventsConfig { directory: events }, BundlesConfig { directory: bundles, settings, taken: None })),
        status in prop_oneof![Just(Duration::ZERO), duration(1000, 86_400_000)]
            .prop_map(|log_interval| StatusConfig { log_interval }),
        http in http(),
        mut models in vec(model(), 1..4), cameras in vec(camera().boxed(), 0..4), sinks in vec(sink(), 0..4),
    ) -> Config {
        for (i, model) in models.iter_mut().enumerate() {
            model.name = format!("Model_{i}");
        }
        let mut all_cameras = Vec::new();
        for (i, (model, mut camera)) in cameras.into_iter().enumerate() {
            camera.name = format!("cam-{i}");
            if models.len() > 1 || model > 3 {
                camera.model = Some(models[model % models.len()].name.clone());
            }
            camera.models.truncate(if model % 2 == 0 { 0 } else { models.len() });
            for (listed, model) in camera.models.iter_mut().zip(&models) {
                camera.model = None;
                listed.name.clone_from(&model.name);
            }
            (camera.group, camera.group_timeout) = match camera.models.len() {
                0 | 1 => (false, None),
                _ => (camera.group, camera.group_timeout.filter(|_| camera.group)),
            };
            match &mut camera.source {
                SourceConfig::V4l2(v4l2) => match &mut v4l2.device {
                    CameraName::Node(path) => numbered(path, i),
                    CameraName::Usb { product, .. } => *product = i as u16,
                    CameraName::Card(card) => card.push_str(&i.to_string()),
                },
                SourceConfig::Rtsp(rtsp) => rtsp.ffmpeg.clone_from(&ffmpeg),
                SourceConfig::Video(video) => video.ffmpeg.clone_from(&ffmpeg),
                _ => {}
            }
            all_cameras.push(camera);
        }
        let mut all_sinks: Vec<SinkConfig> = Vec::new();
        for (i, (cameras, mut sink)) in sinks.into_iter().enumerate() {
            sink.name = format!("sink{i}");
            if !all_cameras.is_empty() {
                sink.cameras = cameras.iter().map(|c| all_cameras[c % all_cameras.len()].name.clone()).collect();
            }
            match &mut sink.kind {
                SinkKind::Stdout if all_sinks.iter().any(|other| other.kind == SinkKind::Stdout) => continue,
                SinkKind::Stdout => {}
                // Other numbers than those of the addresses of `http`.
                SinkKind::File(file) => numbered(&mut file.path, 10 + i),
                SinkKind::Unix(unix) => numbered(&mut unix.path, 10 + i),
                SinkKind::Mqtt(mqtt) => mqtt.topic_prefix.push_str(&i.to_string()),
                SinkKind::Nats(nats) => nats.subject.push_str(&i.to_string()),
            }
            all_sinks.push(sink);
        }
        Config { device, log, engine, buffers, ffmpeg, events, bundles, status, http, models, cameras: all_cameras, sinks: all_sinks }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(config in config()) {
        let text = config.to_toml();
        match Config::parse(&text, Path::new("/base/visiond.toml")) {
            Ok(read) => prop_assert_eq!(read, config, "{}", text),
            Err(errors) => prop_assert!(false, "{}\n{}", errors, text),
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "([a-z\\[\\]{}=\"'.,#\\n 0-9]|model|camera|source|type|name|\\[\\[|\\]\\]| = ){0,60}") {
        if let Err(errors) = Config::parse(&text, Path::new("visiond.toml")) {
            prop_assert!(!errors.findings.is_empty());
            let _ = errors.to_string();
        }
    }
}

#[test]
fn every_word_is_written_as_itself() {
    fn check<T: Words + std::fmt::Debug>() {
        for (name, value) in T::words() {
            assert_eq!(T::words().iter().filter(|(_, other)| *other == value).count(), 1, "{name}");
            assert_eq!(crate::parse_word::<T>(name), Ok(value));
        }
    }
    check::<log::LevelFilter>();
    check::<visiond_system::logging::LogTarget>();
    check::<BackendChoice>();
    check::<CameraFormat>();
    check::<WhenFull>();
    check::<Pace>();
    check::<VideoPixels>();
    check::<MqttProtocol>();
}
