//! Checks of a camera's lines and zones.

use std::ops::Range;
use std::time::Duration;

use visiond_ground::nearest::nearest;

use super::{Checks, SourceRead};
use crate::tables::{Field, Place, Read};
use crate::types::{ActiveConfig, BelongingConfig, CameraConfig, GroundConfig, LineConfig, ZoneConfig};

/// The report of a zone that has no duration, so that nothing depends on it.
const TAKEN_AWAY: &str = "taken_away";

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
        self.conditions(lines, zones);
    }

    /// Checks the polygon of a zone, and each of its reports.
    fn zone(&mut self, zone: &Read<ZoneConfig>, camera: &Read<CameraConfig>) {
        if zone.polygon.value.as_ref().is_some_and(|polygon| !polygon.is_empty()) {
            self.area(&zone.polygon, &zone.frame_size);
        }
        self.sizes(&zone.min_size, &zone.max_size);
        self.active(&zone.active);
        if let (Some(occupancy), Some(span)) = (&zone.occupancy.value, zone.occupancy.place.span.clone()) {
            self.limits("occupancy", span, [("at_least", &occupancy.at_least), ("at_most", &occupancy.at_most)]);
        }
        if let (Some(speed), Some(span)) = (&zone.speed.value, zone.speed.place.span.clone()) {
            let limits = [("at_least_kmh", &speed.at_least_kmh), ("at_most_kmh", &speed.at_most_kmh)];
            self.limits("speed", span.clone(), limits);
            if !camera.ground.place.is_set() {
                let message = "`speed` needs the ground in metres: add the table `[camera.ground]`, or remove `speed`";
                self.0.error(span, message);
            }
        }
        if let Some(wrong_way) = &zone.wrong_way.value
            && let Some((points, span)) = wrong_way.direction.set().filter(|_| zone.frame_size.place.is_valid)
            && !matches!(&**points, [from, to] if from != to && points.iter().all(|point| is_in(point, zone.frame_size.value)))
        {
            let hint = frame_hint(zone.frame_size.value);
            self.0.error(span, format!("`direction` goes from one point to another: write two different ones, {hint}"));
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

    /// Checks that each time of the week has a duration.
    fn active(&mut self, active: &Field<Vec<Read<ActiveConfig>>>) {
        for (times, span) in active.items() {
            if times.from.value.is_some() && times.from.value == times.to.value {
                let message = "`from` and `to` are the same: leave out both for the whole day, or correct one";
                self.0.error(span, message);
            }
        }
    }

    /// Checks that a number can be within its limits.
    fn limits<T: PartialOrd>(&mut self, of: &str, span: Range<usize>, limits: [(&str, &Field<T>); 2]) {
        let [(least, at_least), (most, at_most)] = limits;
        match (&at_least.value, &at_most.value) {
            (None, None) if at_least.place.is_valid && at_most.place.is_valid => {
                self.0.error(span, format!("`{of}` has no limit: set `{least}`, `{most}` or both"));
            }
            (Some(low), Some(high)) if high < low => {
                self.0.error(span, format!("no number is at least `{least}` and at most `{most}`: raise `{most}`"));
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
                    let remedy = match nearest(name, events.iter().map(String::as_str)) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => {
                            "name a zone of this camera, or what it reports: \"dock\", \"dock/occupancy\"".to_owned()
                        }
                    };
                    self.0.error(span, format!("no zone of the camera reports \"{name}\": {remedy}"));
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

fn frame_hint(frame_size: Option<[u32; 2]>) -> &'static str {
    match frame_size {
        Some(_) => "within `frame_size`",
        None => "as fractions from 0 to 1, or set `frame_size`",
    }
}
