//! The rules of a camera's lines and zones, as the configuration has them.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use visiond_config::types::{
    ActiveConfig, Anchor, BelongingConfig, CameraConfig, GroundConfig, LineConfig, OccupancyConfig, SpeedConfig,
    StoppedConfig, WrongWayConfig, ZoneConfig,
};
use visiond_events::{Belonging, Filter, Kind, Rule};
use visiond_kernels::polygon;
use visiond_pipeline::collector::{ActiveTime, PART, RuleSettings, Schedule};

/// Returns the rules of a camera's lines and zones, whose times are of `time_zone`, otherwise of the system's.
pub fn rules_of(camera: &CameraConfig, time_zone: Option<&TimeZone>) -> Arc<[RuleSettings]> {
    let schedule = |active: &[ActiveConfig], reset| schedule(active, reset, time_zone);
    let lines = camera.line.iter().map(|line| rule_of_line(line, schedule(&line.active, line.reset)));
    let ground = camera.ground.as_ref().and_then(plane);
    lines
        .chain(camera.zone.iter().flat_map(|zone| rules_of_zone(zone, ground, schedule(&zone.active, zone.reset))))
        .collect()
}

fn rule_of_line(line: &LineConfig, schedule: Option<Schedule>) -> RuleSettings {
    let LineConfig { name, enabled, points, frame_size, sides, settle, hold, only_while, unless, .. } = line;
    let side = |index: usize| sides.get(index).map_or_else(|| "".into(), |side| side.as_str().into());
    let kind = Kind::Line { points: to_edges(points, *frame_size), sides: [side(0), side(1)] };
    let rule = Rule {
        filter: filter(line.min_score, line.min_size, line.max_size),
        anchor: anchor(line.anchor),
        settle: *settle,
        hold: *hold,
        only_while: names(only_while),
        unless: names(unless),
        ..Rule::new(name, kind)
    };
    RuleSettings { rule, classes: line.classes.clone(), owners: Vec::new(), enabled: *enabled, schedule }
}

/// Returns a rule for each thing that is reported about the zone.
fn rules_of_zone(zone: &ZoneConfig, ground: Option<Plane>, schedule: Option<Schedule>) -> Vec<RuleSettings> {
    let direction = |wrong_way: &WrongWayConfig| match &*in_fractions(&wrong_way.direction, zone.frame_size) {
        [from, to, ..] => [to[0] - from[0], to[1] - from[1]],
        _ => [0.0; 2],
    };
    let kinds = [
        zone.visits.then_some(("", Kind::Zone)),
        zone.dwell.map(|time| ("dwell", Kind::Dwell { time })),
        zone.loitering.map(|time| ("loitering", Kind::Loitering { time, away: time.max(LOITERING_AWAY) })),
        zone.absence.map(|time| ("absence", Kind::Absence { time })),
        zone.occupancy.as_ref().map(|&OccupancyConfig { at_least, at_most, lasting }| {
            ("occupancy", Kind::Occupancy { at_least, at_most, lasting })
        }),
        zone.stopped
            .as_ref()
            .map(|&StoppedConfig { time, distance }| ("stopped", Kind::Stopped { distance: distance as f32, time })),
        zone.wrong_way.as_ref().map(|wrong_way| {
            let distance = wrong_way.distance as f32;
            ("wrong_way", Kind::WrongWay { direction: direction(wrong_way), distance })
        }),
        zone.speed.as_ref().zip(ground).map(|(&SpeedConfig { at_least_kmh, at_most_kmh, over }, plane)| {
            let metres_per_second = |kmh: Option<f64>| kmh.map(|kmh| (kmh / 3.6) as f32);
            let (at_least, at_most) = (metres_per_second(at_least_kmh), metres_per_second(at_most_kmh));
            ("speed", Kind::Speed { plane, at_least, at_most, over })
        }),
        zone.left_behind.as_ref().map(|object| ("left_behind", Kind::LeftBehind(belonging(object)))),
        zone.taken_away.as_ref().map(|object| ("taken_away", Kind::TakenAway(belonging(object)))),
    ];
    let rule = |(part, kind): (&str, Kind)| {
        let belonging = match &kind {
            Kind::LeftBehind(_) => zone.left_behind.as_ref(),
            Kind::TakenAway(_) => zone.taken_away.as_ref(),
            _ => None,
        };
        let (classes, owners) = belonging.map_or((&zone.classes, Vec::new()), |one| (&one.classes, one.owners.clone()));
        let name = if part.is_empty() { zone.name.clone() } else { format!("{}{PART}{part}", zone.name) };
        let rule = Rule {
            area: to_edges(&zone.polygon, zone.frame_size),
            filter: filter(zone.min_score, zone.min_size, zone.max_size),
            anchor: anchor(zone.anchor),
            settle: zone.settle,
            hold: zone.hold,
            parked: zone.parked,
            only_while: names(&zone.only_while),
            unless: names(&zone.unless),
            ..Rule::new(&name, kind)
        };
        RuleSettings { rule, classes: classes.clone(), owners, enabled: zone.enabled, schedule: schedule.clone() }
    };
    kinds.into_iter().flatten().map(rule).collect()
}

/// How long a track may be outside of a zone before its loitering begins again, unless the time of loitering is longer.
const LOITERING_AWAY: Duration = Duration::from_secs(60);

/// Returns when a line or zone is active, and when its totals begin again; `None` if it is always active and counts on.
fn schedule(active: &[ActiveConfig], reset: Option<u16>, time_zone: Option<&TimeZone>) -> Option<Schedule> {
    if active.is_empty() && reset.is_none() {
        return None;
    }
    let times = |&ActiveConfig { ref days, from, to }: &ActiveConfig| {
        let mut begins_on = [days.is_empty(); 7];
        days.iter().for_each(|day| begins_on[*day as usize] = true);
        ActiveTime { days: begins_on, from, to }
    };
    let active = active.iter().map(times).collect();
    Some(Schedule { active, reset, time_zone: time_zone.cloned().unwrap_or_else(TimeZone::system) })
}

/// Returns an object and its owner, without the numbers of the owners' classes.
fn belonging(&BelongingConfig { time, distance, near, .. }: &BelongingConfig) -> Belonging {
    Belonging { distance: distance as f32, time, owners: Vec::new(), near: near as f32 }
}

/// Four points of the frame, and where these are on the ground in metres.
type Plane = [([f32; 2], [f32; 2]); 4];

/// Returns the ground's points; `None` if there are not four, which `check` reports.
fn plane(ground: &GroundConfig) -> Option<Plane> {
    let metres = ground.metres.iter().map(|place| place.map(|metres| metres as f32));
    let points: Vec<_> = in_fractions(&ground.points, ground.frame_size).into_iter().zip(metres).collect();
    points.try_into().ok()
}

/// Returns points as fractions of the frame.
fn in_fractions(points: &[[f64; 2]], frame_size: Option<[u32; 2]>) -> Vec<[f32; 2]> {
    let [width, height] = frame_size.map_or([1.0; 2], |size| size.map(f64::from));
    points.iter().map(|[x, y]| [(x / width) as f32, (y / height) as f32]).collect()
}

/// Returns points as fractions of the frame, with those in its last pixels on its edge: a zone that is drawn up to it has the boxes that the
/// frame cuts off.
fn to_edges(points: &[[f64; 2]], frame_size: Option<[u32; 2]>) -> Vec<[f32; 2]> {
    polygon::to_edges(points, frame_size).into_iter().map(|point| point.map(|at| at as f32)).collect()
}

/// The sizes of a filter are of the longer side.
fn filter(min_score: f64, min_size: Option<u32>, max_size: Option<u32>) -> Filter {
    let longer = |size: Option<u32>, none: f32| size.map_or(none, |size| size as f32);
    Filter {
        min_score: min_score as f32,
        min_size: longer(min_size, 0.0),
        max_size: longer(max_size, f32::INFINITY),
        ..Filter::default()
    }
}

fn anchor(anchor: Anchor) -> visiond_events::Anchor {
    match anchor {
        Anchor::Bottom => visiond_events::Anchor::Bottom,
        Anchor::Center => visiond_events::Anchor::Center,
        Anchor::Top => visiond_events::Anchor::Top,
        Anchor::Left => visiond_events::Anchor::Left,
        Anchor::Right => visiond_events::Anchor::Right,
    }
}

fn names(names: &[String]) -> Vec<Arc<str>> {
    names.iter().map(|name| name.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pixel_of_a_zone_and_the_end_of_a_line_is_the_edge_of_the_frame() {
        let size = Some([1280, 720]);
        let floor = [[0.0, 600.0], [1279.0, 600.0], [1279.0, 719.0], [0.0, 719.0]];
        let top = 600.0 / 720.0;
        assert_eq!(to_edges(&floor, size), [[0.0, top], [1.0, top], [1.0, 1.0], [0.0, 1.0]]);
        assert_eq!(to_edges(&[[0.0, 600.0], [1279.5, 600.0]], size), [[0.0, top], [1.0, top]]);
        // A line along the last row, and points that are not in the last pixel.
        let row = 719.0 / 720.0;
        assert_eq!(to_edges(&[[0.0, 719.0], [1279.0, 719.0]], size), [[0.0, row], [1.0, row]]);
        assert_eq!(to_edges(&[[640.0, 360.0], [1278.0, 718.0]], size)[1], [1278.0 / 1280.0, 718.0 / 720.0]);
        assert_eq!(to_edges(&[[0.0, 0.5], [0.999, 1.0]], None), [[0.0, 0.5], [0.999, 1.0]]);
    }
}
