#![allow(clippy::unwrap_used)]

use jiff::civil::{DateTime, Time};
use jiff::{SignedDuration, ToSpan, Zoned};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Rules of daylight saving time, each with a time near a change: an hour, half an hour, two hours, at midnight, and none.
const ZONES: [(&str, &[&str]); 7] = [
    ("CET-1CEST,M3.5.0,M10.5.0/3", &["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"]),
    ("EST5EDT,M3.2.0,M11.1.0", &["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"]),
    ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", &["2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"]),
    ("<+00>0<+02>-2,M3.5.0/1,M10.5.0/3", &["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"]),
    ("EET-2EEST,M3.5.0/0,M10.5.0/0", &["2026-03-28T22:00:00Z", "2026-10-24T21:00:00Z"]),
    ("<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45", &["2026-04-04T14:00:00Z", "2026-09-26T14:00:00Z"]),
    ("<-03>3", &["2026-06-01T00:00:00Z"]),
];

fn at(day: DateTime, minute: u16) -> DateTime {
    let midnight = day.date().to_datetime(Time::midnight());
    midnight + i64::from(minute).minutes()
}

/// Compares whole local dates and times.
fn is_active(active: &[ActiveTime], zoned: &Zoned) -> bool {
    let now = zoned.datetime();
    let holds = |time: &ActiveTime, begins: DateTime| {
        let ends = if time.from < time.to { begins } else { begins + 1.day() };
        let weekday = begins.weekday().to_monday_zero_offset() as usize;
        time.days[weekday] && at(begins, time.from) <= now && now < at(ends, time.to)
    };
    active.is_empty() || active.iter().any(|time| holds(time, now) || holds(time, now - 1.day()))
}

fn time_of_day() -> impl Strategy<Value = u16> {
    prop_oneof![2 => 0..1440_u16, 3 => (0..5_u16, select(vec![0_u16, 15, 30, 45])).prop_map(|(hour, minute)| hour * 60 + minute)]
}

prop_compose! {
    fn active()(days: [bool; 7], every: bool, from in time_of_day(), to in prop_oneof![4 => time_of_day(), 1 => Just(1440_u16)]) -> ActiveTime {
        ActiveTime { days: if every { [true; 7] } else { days }, from, to }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn each_minute_around_a_change_of_the_clock_is_as_the_wall_says(
        (zone, changes) in select(ZONES.to_vec()), change in 0..2_usize, active in proptest::collection::vec(active(), 0..3),
        reset in proptest::option::of(time_of_day()), first_second in 0..60_i64,
    ) {
        let time_zone = TimeZone::posix(zone).unwrap();
        let schedule = Schedule { active, reset, time_zone: time_zone.clone() };
        let around: Timestamp = changes[change % changes.len()].parse().unwrap();
        let first = around.as_second() - 36 * 3600 + first_second;
        let mut look: Option<Look> = None;
        let mut looks = 0;
        for minute in 0..72 * 60 {
            let seconds = first + minute * 60;
            let now = seconds as u64 * 1_000_000_000;
            let zoned = Timestamp::from_second(seconds).unwrap().to_zoned(time_zone.clone());
            // As a caller does: a new look only once the last one says so.
            if look.is_none_or(|look| now >= look.until_ns) {
                look = Some(schedule.look(now));
                looks += 1;
            }
            let look = look.unwrap();
            prop_assert_eq!(look.is_active, is_active(&schedule.active, &zoned), "{}", zoned);
            if let Some(reset) = reset {
                let day = (zoned.datetime() - SignedDuration::from_mins(i64::from(reset))).date();
                let since = day.since(jiff::civil::date(1970, 1, 1)).unwrap();
                prop_assert_eq!(look.day, Some(i64::from(since.get_days())), "{}", zoned);
            }
        }
        // Two for each time of the week and one for the reset a day, and one for the change of the clock, which may repeat some.
        prop_assert!(looks <= 4 * (2 * schedule.active.len() + 1) + 6, "{} looks", looks);
    }
}

#[test]
fn totals_begin_again_once_on_a_day_of_23_or_25_hours() {
    let schedule =
        |zone: &str| Schedule { active: Vec::new(), reset: Some(150), time_zone: TimeZone::posix(zone).unwrap() };
    let berlin = schedule(ZONES[0].0);
    // At half past two: once in a night in which it happens twice, and once in a night without it.
    for (change, wanted) in [("2026-03-29T01:00:00Z", 1), ("2026-10-25T01:00:00Z", 3)] {
        let around = change.parse::<Timestamp>().unwrap().as_second();
        let days: Vec<_> =
            (-120..180).map(|minute| berlin.look((around + minute * 60) as u64 * 1_000_000_000).day).collect();
        let changes = days.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, wanted, "{change}");
        assert_eq!(days.iter().max().unwrap().unwrap() - days[0].unwrap(), 1, "{change}");
    }
}

#[test]
fn a_rule_is_active_while_the_clock_is_not_set() {
    let never = ActiveTime { days: [false; 7], from: 0, to: 1440 };
    let schedule = Schedule { active: vec![never], reset: Some(0), time_zone: TimeZone::UTC };
    for now in [0, 1, CLOCK_IS_SET - 1] {
        assert_eq!(schedule.look(now), Look { is_active: true, day: None, until_ns: CLOCK_IS_SET });
    }
    assert!(!schedule.look(CLOCK_IS_SET).is_active);
    // The greatest time is in the year 2554.
    assert!(!schedule.look(u64::MAX).is_active);
}
