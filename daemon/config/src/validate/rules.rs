//! Checks of a camera's lines and zones.

use std::time::Duration;

use visiond_ground::nearest::nearest;

use super::{Checks, SourceRead, quoted};
use crate::tables::{Field, Part, Place, Read, Section};
use crate::types::{
    ActiveConfig, BelongingConfig, CameraConfig, ClipsConfig, GroundConfig, LineConfig, ModelConfig, ZoneConfig,
};

/// The report of a zone that has no duration, so that nothing depends on it.
const TAKEN_AWAY: &str = "taken_away";

/// The longest span without a frame that a tracker counts as unseen.
const LONGEST_SPAN: Duration = Duration::from_secs(1);

/// The most points of a line; a polygon has as many.
const MAX_POINTS: usize = 64;

impl Checks<'_> {
    /// Checks a camera's lines and zones.
    pub(super) fn lines_and_zones(&mut self, camera: &Read<CameraConfig>) {
        self.count_areas(&camera.line);
        self.count_areas(&camera.zone);
        let first =
            [&camera.line.items().next().map(|(_, span)| span), &camera.zone.items().next().map(|(_, span)| span)];
        if let (Some(span), false) = (first.into_iter().flatten().next(), camera.track.place.is_set()) {
            let message = "lines and zones need tracks, and this camera has none: add the table `[camera.track]`";
            self.0.error(span.clone(), message);
        }
        let lines = camera.line.value.as_deref().unwrap_or_default();
        let zones = camera.zone.value.as_deref().unwrap_or_default();
        let names = lines.iter().map(|line| &line.name).chain(zones.iter().map(|zone| &zone.name));
        self.names("line or zone of the camera", names);
        for line in lines {
            if let Some((points, span)) = line.points.set().filter(|_| line.frame_size.place.is_valid) {
                let outside = points.iter().find(|point| !is_in(point, line.frame_size.value));
                let message = match outside {
                    Some([x, y]) => Some(format!(
                        "the point [{x}, {y}] is outside of the frame: write it {}",
                        frame_hint(line.frame_size.value)
                    )),
                    None if are_fractions(points, line.frame_size.value) => Some(fractions_in("points")),
                    None if points.iter().all(|point| *point == points[0]) => {
                        Some("a line needs two or more different points: add one".to_owned())
                    }
                    None if points.len() > MAX_POINTS => {
                        Some(format!("a line has at most {MAX_POINTS} points: remove some"))
                    }
                    None => None,
                };
                message.into_iter().for_each(|message| self.0.error(span.clone(), message));
            }
            if let Some((sides, span)) = line.sides.set()
                && !matches!(&**sides, [one, other] if one != other)
            {
                self.0.error(span, "`sides` are the names of both sides, left and right: write two different names");
            }
            self.sizes(&line.min_size, &line.max_size);
            self.active(&line.active);
        }
        zones.iter().for_each(|zone| self.zone(zone, camera));
        if let Some(ground) = &camera.ground.value {
            self.ground(ground);
        }
        self.clips(camera, lines, zones);
        let interval = match &camera.source.value {
            Some(SourceRead::Snapshot(still)) => still.interval.value,
            _ => None,
        };
        let paced = camera.max_fps.value.map(|rate| Duration::from_secs_f64(1.0 / rate));
        if let Some(interval) = interval.max(paced) {
            let holds = lines.iter().map(|line| (&line.name, &line.hold));
            for (name, hold) in holds.chain(zones.iter().map(|zone| (&zone.name, &zone.hold))) {
                if let (Some((name, span)), Some(hold)) = (name.set(), hold.value)
                    && hold <= interval
                {
                    let message = format!(
                        "\"{name}\" sees nothing: a frame comes every {} s, and `hold` is {} s: raise `hold` to three times the interval",
                        interval.as_secs_f64(),
                        hold.as_secs_f64()
                    );
                    self.0.warning(span, message);
                }
            }
        }
        self.holds_beyond_tracks(camera, interval.max(paced));
        self.conditions(lines, zones);
    }

    /// Warns of a `hold` for which no track lasts. Frames are `interval` apart, if that is known.
    fn holds_beyond_tracks(&mut self, camera: &Read<CameraConfig>, interval: Option<Duration>) {
        let Some(unseen) = camera.track.value.as_ref().and_then(|track| track.unseen.value) else { return };
        let lines = camera.line.value.as_deref().unwrap_or_default();
        let zones = camera.zone.value.as_deref().unwrap_or_default();
        let unparked = zones.iter().filter(|zone| !zone.parked.is(&true));
        let of_lines = lines.iter().map(|line| (&line.hold, &line.min_score, [&line.min_size, &line.max_size]));
        let of_zones = unparked.map(|zone| (&zone.hold, &zone.min_score, [&zone.min_size, &zone.max_size]));
        // To the tracker, each span between frames is at most a second, and a track ends with a frame.
        let scale = interval.unwrap_or(LONGEST_SPAN).max(LONGEST_SPAN);
        let longest = scale.mul_f64(unseen.as_secs_f64() / LONGEST_SPAN.as_secs_f64() + 1.0);
        for (hold, min_score, sizes) in of_lines.chain(of_zones) {
            // Where objects are unseen because they do not match, their tracks go on.
            let is_filtered = min_score.place.is_set() || sizes.iter().any(|size| size.place.is_set());
            if let Some((hold, span)) = hold.set().filter(|(hold, _)| **hold > longest && !is_filtered) {
                let (hold, unseen) = (hold.as_secs_f64(), unseen.as_secs_f64());
                let message = format!(
                    "`hold` is {hold} s, and the track of an object that is unseen for {unseen} s ends before: raise `unseen` of \
                     `[camera.track]`, or lower `hold`"
                );
                self.0.warning(span, message);
            }
        }
    }

    /// Warns of classes of lines and zones that never have tracks, because a list of the camera or of its tracked model leaves them out.
    pub(super) fn classes_of_rules(&mut self, camera: &Read<CameraConfig>, models: &[Read<ModelConfig>]) {
        let listed = camera.models.value.as_deref().and_then(<[_]>::first);
        // A camera tracks the objects of its first model.
        let name = listed.map_or(&camera.model, |model| &model.name).value.as_deref();
        let mut on_frames = models.iter().filter(|model| !model.on.place.is_set());
        let model = match name {
            Some(_) => on_frames.find(|model| model.name.value.as_deref() == name),
            None => on_frames.next().filter(|_| on_frames.next().is_none()),
        };
        let lists = [
            (camera.track.value.as_ref().map(|track| &track.classes), "`[camera.track]`"),
            (listed.map(|model| &model.classes), "the model in `models` of the camera"),
            (model.map(|model| &model.classes), "the camera's `[[model]]`"),
        ];
        let lines = camera.line.value.as_deref().unwrap_or_default();
        let zones = camera.zone.value.as_deref().unwrap_or_default();
        let belongings = zones.iter().flat_map(|zone| [&zone.left_behind, &zone.taken_away]);
        let belongings = belongings.filter_map(|belonging| belonging.value.as_ref());
        let wanted = lines.iter().map(|line| &line.classes).chain(zones.iter().map(|zone| &zone.classes));
        let wanted = wanted.chain(belongings.flat_map(|belonging| [&belonging.classes, &belonging.owners]));
        for (class, span) in wanted.flat_map(Field::items) {
            let leaves_out = |list: &Option<&Field<Vec<String>>>| {
                let classes = list.filter(|list| list.place.is_valid).and_then(|list| list.value.as_deref());
                classes.is_some_and(|classes| !classes.is_empty() && !classes.contains(class))
            };
            if let Some((_, of)) = lists.iter().find(|(list, _)| leaves_out(list)) {
                let message = format!(
                    "\"{class}\" is never seen, because `classes` of {of} leaves it out: add it there, or remove it here"
                );
                self.0.warning(span, message);
            }
        }
    }

    /// Checks the polygon of a zone, and each of its reports.
    fn zone(&mut self, zone: &Read<ZoneConfig>, camera: &Read<CameraConfig>) {
        if zone.polygon.value.as_ref().is_some_and(|polygon| !polygon.is_empty()) {
            self.area(&zone.polygon, &zone.frame_size);
        }
        self.sizes(&zone.min_size, &zone.max_size);
        self.active(&zone.active);
        if let Some(occupancy) = &zone.occupancy.value {
            self.limits(&zone.occupancy.place, [&occupancy.at_least, &occupancy.at_most]);
        }
        if let (Some(speed), Some(span)) = (&zone.speed.value, zone.speed.place.span.clone()) {
            self.limits(&zone.speed.place, [&speed.at_least_kmh, &speed.at_most_kmh]);
            if !camera.ground.place.is_set() {
                let message = "`speed` needs the ground in metres: add the table `[camera.ground]`, or remove `speed`";
                self.0.error(span, message);
            }
        }
        if let Some(wrong_way) = &zone.wrong_way.value
            && let Some((points, span)) = wrong_way.direction.set().filter(|_| zone.frame_size.place.is_valid)
        {
            let size = zone.frame_size.value;
            if !matches!(&**points, [from, to] if from != to && points.iter().all(|point| is_in(point, size))) {
                let hint = frame_hint(size);
                let message = format!("`direction` goes from one point to another: write two different ones, {hint}");
                self.0.error(span, message);
            } else if are_fractions(points, size) {
                let message = "`direction` lies within one pixel of the frame, so its numbers are fractions: write pixels, or \
                               remove `frame_size`, which is for `polygon` as well";
                self.0.error(span, message);
            }
        }
        if zone.polygon.place.is_valid
            && zone.polygon.value.as_ref().is_some_and(Vec::is_empty)
            && !zone.wrong_way.place.is_set()
            && let Some(span) = zone.frame_size.place.span.clone()
        {
            let message = "`frame_size` has no effect, because this zone is the whole frame: add `polygon`, or remove `frame_size`";
            self.0.warning(span, message);
        }
        for belonging in [&zone.left_behind, &zone.taken_away] {
            self.belonging(belonging, camera);
        }
        if zone.visits.is(&false) && parts(zone).iter().all(|(_, place)| !place.is_set()) {
            self.error(&zone.visits.place, "this zone reports nothing: remove `visits`, or add what to report");
        }
    }

    /// Checks that an object and its owner are of different classes, and that owners have tracks.
    fn belonging(&mut self, belonging: &Field<Read<BelongingConfig>>, camera: &Read<CameraConfig>) {
        let (key, Some(belonging)) = (&belonging.place, &belonging.value) else { return };
        let Some((classes, span)) = belonging.classes.set() else { return };
        let name = key.name();
        if classes.is_empty() {
            self.0.error(
                span,
                format!("`{name}` sees no object: write the classes of what may be {}", name.replace('_', " ")),
            );
            return;
        }
        let owners = belonging.owners.value.as_deref().unwrap_or_default();
        if let Some(class) = owners.iter().find(|owner| classes.contains(owner)) {
            let message = format!("`{name}`: \"{class}\" is an owner and one of `classes`: remove it from one of them");
            return self.error(key, message);
        }
        let tracked = camera.track.value.as_ref().and_then(|track| track.classes.value.as_deref()).unwrap_or_default();
        if !tracked.is_empty() && !owners.is_empty() && !owners.iter().any(|owner| tracked.contains(owner)) {
            let message = format!(
                "`{name}` sees no owner, because none of `owners` has tracks: add one to `classes` of `[camera.track]`"
            );
            self.error(key, message);
        }
    }

    /// Checks that each time of the week has a duration, and warns of times that are always.
    fn active(&mut self, active: &Field<Vec<Read<ActiveConfig>>>) {
        let example = ActiveConfig::example().unwrap_or_default();
        if let Some((_, span)) = active.set().filter(|(times, _)| times.is_empty()) {
            let message =
                format!("`active` has no time, so it has no effect: write `active = [{example}]`, or remove it");
            self.0.warning(span, message);
        }
        for (times, span) in active.items() {
            if times.from.value.is_some() && times.from.value == times.to.value {
                let message = "`from` and `to` are the same: leave out both for the whole day, or correct one";
                self.0.error(span, message);
            } else if active.place.is_valid && ActiveConfig::of(times.clone()) == ActiveConfig::default() {
                let message = format!(
                    "this time is the whole week, so `active` has no effect: write days or times, such as `{example}`, or remove it"
                );
                self.0.warning(span, message);
            }
        }
    }

    /// Checks that there are events of which clips are stored, and that a clip can have what comes before and after.
    fn clips(&mut self, camera: &Read<CameraConfig>, lines: &[Read<LineConfig>], zones: &[Read<ZoneConfig>]) {
        let (Some(clips), Some(span)) = (&camera.clips.value, &camera.clips.place.span) else { return };
        if lines.is_empty() && zones.is_empty() {
            let message = "clips are of events, and this camera has none: add a `[[camera.line]]` or `[[camera.zone]]`";
            self.0.absence(span.clone(), message, None);
            return;
        }
        let names = lines.iter().map(|line| &line.name).chain(zones.iter().map(|zone| &zone.name));
        let names: Vec<_> = names.filter_map(|name| name.value.as_deref()).collect();
        for (rule, span) in clips.rules.items().filter(|(rule, _)| !names.contains(&rule.as_str())) {
            let remedy = match nearest(rule, names.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "name one of the camera's".to_owned(),
            };
            self.0.error(span, format!("the camera has no line or zone \"{rule}\": {remedy}"));
        }
        let default = ClipsConfig::default();
        let [before, after, longest] = [
            clips.before.value.unwrap_or(default.before),
            clips.after.value.unwrap_or(default.after),
            clips.longest.value.unwrap_or(default.longest),
        ];
        if longest <= before + after {
            let place = [&clips.longest, &clips.before, &clips.after].into_iter().find(|field| field.place.is_set());
            let span = place.and_then(|field| field.place.span.clone()).unwrap_or_else(|| span.clone());
            let message = format!(
                "`longest` is {} s, and `before` and `after` are {} s together, which leaves nothing for the event: raise `longest`",
                longest.as_secs_f64(),
                (before + after).as_secs_f64()
            );
            self.0.error(span, message);
        }
    }

    /// Checks that a number can be within its limits, two keys of the table at `table`.
    fn limits<T: PartialOrd>(&mut self, table: &Place, limits: [&Field<T>; 2]) {
        let [at_least, at_most] = limits;
        let [least, most] = limits.map(|limit| limit.place.name());
        match (&at_least.value, &at_most.value) {
            // An unknown key, which is reported, may be meant for a limit.
            (None, None) if table.is_valid => {
                let of = table.name();
                self.error(table, format!("`{of}` has no limit: set `{least}`, `{most}` or both"));
            }
            (Some(low), Some(high)) if high < low => {
                self.error(table, format!("no number is at least `{least}` and at most `{most}`: raise `{most}`"));
            }
            _ => {}
        }
    }

    /// Checks that the points of the ground are a plane.
    fn ground(&mut self, ground: &Read<GroundConfig>) {
        let Some((metres, span)) = ground.metres.set() else { return };
        let Some((points, of_points)) = ground.points.set().filter(|_| ground.frame_size.place.is_valid) else {
            return;
        };
        let size = ground.frame_size.value;
        if points.len() != 4 || !points.iter().all(|point| is_in(point, size)) {
            let hint = frame_hint(size);
            self.0.error(of_points, format!("`points` are four points of the frame: write four, {hint}"));
            return;
        }
        if are_fractions(points, size) {
            self.0.error(of_points, fractions_in("points"));
            return;
        }
        let single = |place: &[f64; 2]| place.map(|number| number as f32);
        let pairs: Vec<_> = points.iter().map(single).zip(metres.iter().map(single)).collect();
        match <[_; 4]>::try_from(pairs) {
            Ok(pairs) if metres.len() == 4 => {
                if !visiond_events::is_plane(&pairs) {
                    let message = "`points` and `metres` are not the same four points of a flat ground: write them in the same order, \
                                   of which no three are on a line";
                    self.0.error(span, message);
                }
            }
            _ => self.0.error(span, "`metres` has a place for each of the four `points`: write four"),
        }
    }

    /// Checks the zones that lines and zones depend on: that they exist, and do not depend on themselves.
    fn conditions(&mut self, lines: &[Read<LineConfig>], zones: &[Read<ZoneConfig>]) {
        let mut events = Vec::new();
        for zone in zones {
            let Some(name) = &zone.name.value else { return };
            events.extend((!zone.visits.is(&false)).then(|| name.clone()));
            let set = parts(zone).into_iter().filter(|(part, place)| place.is_set() && *part != TAKEN_AWAY);
            events.extend(set.map(|(part, _)| format!("{name}/{part}")));
        }
        let of_lines = lines.iter().flat_map(|line| [&line.only_while, &line.unless]);
        for names in of_lines.chain(zones.iter().flat_map(|zone| [&zone.only_while, &zone.unless])) {
            for (name, span) in names.items() {
                if name.ends_with(&format!("/{TAKEN_AWAY}")) {
                    let message = format!(
                        "events of `{TAKEN_AWAY}` have no duration, so nothing can depend on them: name another report"
                    );
                    self.0.error(span, message);
                } else if !events.contains(name) {
                    let remedy = condition_remedy(name, lines, zones, &events);
                    self.0.error(span, format!("no zone of the camera reports \"{name}\"{remedy}"));
                }
            }
        }
        let zone_of = |event: &str| event.split('/').next().unwrap_or_default().to_owned();
        let needs = |name: &str| -> Vec<String> {
            let zone = zones.iter().find(|zone| zone.name.value.as_deref() == Some(name));
            let lists = zone.into_iter().flat_map(|zone| [&zone.only_while.value, &zone.unless.value]);
            lists.flatten().flatten().map(|event| zone_of(event)).collect()
        };
        for zone in zones {
            let Some((name, span)) = zone.name.set() else { continue };
            let mut reached = needs(name);
            let mut at = 0;
            while at < reached.len() {
                for next in needs(&reached[at]) {
                    if !reached.contains(&next) {
                        reached.push(next);
                    }
                }
                at += 1;
            }
            if reached.contains(name) {
                let message = format!("zone \"{name}\" depends on itself: remove it from `only_while` or `unless`");
                self.0.error(span, message);
                return;
            }
        }
    }
}

/// Ends the error about a condition that is none of `events`: says what is known of the name, and what to write instead.
fn condition_remedy(name: &str, lines: &[Read<LineConfig>], zones: &[Read<ZoneConfig>], events: &[String]) -> String {
    let (of, report) = name.split_once('/').map_or((name, None), |(of, report)| (of, Some(report)));
    let has_name = |field: &Field<String>| field.value.as_deref() == Some(of);
    if lines.iter().any(|line| has_name(&line.name)) {
        return ", which is a line, and crossings have no duration: name a zone".to_owned();
    }
    let Some(zone) = zones.iter().find(|zone| has_name(&zone.name)) else {
        return match nearest(name, events.iter().map(String::as_str)) {
            Some(near) => format!(": did you mean \"{near}\"?"),
            None => ": name a zone of this camera, or what it reports: \"dock\", \"dock/occupancy\"".to_owned(),
        };
    };
    let is_of_zone = |event: &&str| event.split('/').next() == Some(of);
    let reported: Vec<_> = events.iter().map(String::as_str).filter(is_of_zone).collect();
    let or_name = match &*reported {
        [] => String::new(),
        all => format!(", or name {}", quoted(all).replace(", ", " or ")),
    };
    match report {
        None | Some("zone" | "visits") if reported.contains(&of) => format!(": write \"{of}\" for its visits"),
        None | Some("zone" | "visits") => format!(", because this zone has `visits = false`: remove that{or_name}"),
        Some(part) if parts(zone).iter().any(|(known, _)| *known == part) => {
            format!(", because this zone has no `{part}`: add it there{or_name}")
        }
        Some(_) => match (nearest(name, reported.iter().copied()), &*reported) {
            (Some(near), _) => format!(": did you mean \"{near}\"?"),
            (None, []) => ", because this zone reports nothing with a duration: name another zone".to_owned(),
            (None, all) => format!(": name {}", quoted(all).replace(", ", " or ")),
        },
    }
}

/// Returns what a zone can report beside its visits: the name and the key of each.
fn parts(zone: &Read<ZoneConfig>) -> [(&'static str, &Place); 9] {
    [
        ("dwell", &zone.dwell.place),
        ("loitering", &zone.loitering.place),
        ("absence", &zone.absence.place),
        ("occupancy", &zone.occupancy.place),
        ("stopped", &zone.stopped.place),
        ("wrong_way", &zone.wrong_way.place),
        ("speed", &zone.speed.place),
        ("left_behind", &zone.left_behind.place),
        (TAKEN_AWAY, &zone.taken_away.place),
    ]
}

/// Whether a point is in a frame, in fractions without a size.
fn is_in([x, y]: &[f64; 2], frame_size: Option<[u32; 2]>) -> bool {
    let [width, height] = frame_size.map_or([1.0; 2], |size| size.map(f64::from));
    *x <= width && *y <= height
}

/// Whether all points are within one pixel of a frame of this size, so that they are probably fractions.
fn are_fractions(points: &[[f64; 2]], frame_size: Option<[u32; 2]>) -> bool {
    frame_size.is_some_and(|size| size != [1, 1]) && points.iter().flatten().all(|&number| number <= 1.0)
}

fn fractions_in(key: &str) -> String {
    format!("`{key}` lie within one pixel of the frame, so their numbers are fractions: remove `frame_size`")
}

fn frame_hint(frame_size: Option<[u32; 2]>) -> &'static str {
    match frame_size {
        Some(_) => "within `frame_size`",
        None => "as fractions from 0 to 1, or set `frame_size`",
    }
}
