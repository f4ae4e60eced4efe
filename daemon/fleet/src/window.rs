//! Maintenance windows: when a device may switch to another version, in its local time.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use jiff::civil::{DateTime, Weekday};

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A time of the day on some days of the week, such as `Mon..Fri 22:00-05:00`. One that passes midnight belongs to the day on which it
/// begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// From Monday.
    days: [bool; 7],
    /// In minutes since midnight.
    from: u16,
    /// In minutes since midnight, which is also 24 hours.
    to: u16,
}

impl Window {
    /// Returns whether the window is open at this local time. It is closed at its end.
    pub fn is_open(&self, at: DateTime) -> bool {
        let is_of = |day: Weekday| self.days[day.to_monday_zero_offset() as usize];
        let (today, minute) =
            (at.weekday(), u16::from(at.hour().unsigned_abs()) * 60 + u16::from(at.minute().unsigned_abs()));
        if self.from < self.to {
            return is_of(today) && (self.from..self.to).contains(&minute);
        }
        is_of(today) && self.from <= minute || is_of(today.previous()) && minute < self.to
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "a window is a time such as 22:00-05:00, with days before it or not, such as Mon..Fri or Sat,Sun; not {text:?}"
            )
        };
        let (days, times) = match text.trim().rsplit_once(' ') {
            Some((days, times)) => (parse_days(days.trim()).ok_or_else(wrong)?, times),
            None => ([true; 7], text.trim()),
        };
        let (from, to) = times.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (parse_time(from).ok_or_else(wrong)?, parse_time(to).ok_or_else(wrong)?);
        if from == DAY {
            return Err(wrong());
        }
        if from == to {
            return Err(format!("the window {text:?} ends when it begins: leave the window out to allow every time"));
        }
        Ok(Self { days, from, to })
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            let days: Vec<_> =
                DAYS.iter().zip(self.days).filter(|(_, is_in)| *is_in).map(|((day, _), _)| *day).collect();
            write!(f, "{} ", days.join(","))?;
        }
        let [from, to] = [self.from, self.to].map(|time| format!("{:02}:{:02}", time / 60, time % 60));
        write!(f, "{from}-{to}")
    }
}

/// Reads days: `Mon`, `Mon..Fri`, `Sat,Sun`, `Fri..Mon`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let day = |text: &str| DAYS.iter().position(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        days[at] = true;
        while at != last {
            at = (at + 1) % 7;
            days[at] = true;
        }
    }
    Some(days)
}

/// Reads `22:00`, in minutes since midnight.
fn parse_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
    let [hour, minute] = [hour, minute].map(|text| text.parse().ok().filter(|_| is_number(text)));
    let (hour, minute): (u16, u16) = (hour?, minute?);
    let at = hour * 60 + minute;
    (minute < 60 && at <= DAY).then_some(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::civil::datetime;

    use super::*;

    #[test]
    fn a_window_is_open_from_its_begin_to_its_end_on_its_days() {
        // 2026-11-30 is a Monday.
        let at = |day, hour, minute| datetime(2026, 11, day, hour, minute, 0, 0);
        for (text, open, closed) in [
            ("22:00-05:00", vec![at(30, 22, 0), at(30, 4, 59), at(29, 23, 59)], vec![at(30, 5, 0), at(30, 21, 59)]),
            ("01:30-02:00", vec![at(30, 1, 30)], vec![at(30, 1, 29), at(30, 2, 0)]),
            ("00:00-24:00", vec![at(30, 0, 0), at(30, 23, 59)], vec![]),
            ("Mon..Fri 08:00-16:00", vec![at(30, 8, 0), at(27, 15, 59)], vec![at(28, 9, 0), at(29, 9, 0)]),
            // The night of Friday ends on Saturday; that of Sunday is none of its own.
            (
                "Mon..Fri 22:00-05:00",
                vec![at(28, 4, 0), at(30, 22, 0)],
                vec![at(30, 4, 0), at(28, 22, 0), at(29, 4, 0)],
            ),
            ("sat,SUN 10:00-11:00", vec![at(28, 10, 30), at(29, 10, 30)], vec![at(30, 10, 30)]),
            ("Sat..Mon 10:00-11:00", vec![at(28, 10, 30), at(30, 10, 30)], vec![at(27, 10, 30)]),
        ] {
            let window: Window = text.parse().unwrap();
            for time in open {
                assert!(window.is_open(time), "{text} at {time}");
            }
            for time in closed {
                assert!(!window.is_open(time), "{text} at {time}");
            }
            assert_eq!(window.to_string().parse::<Window>().unwrap(), window, "{text}");
        }
    }

    #[test]
    fn what_is_no_window_is_refused_with_an_example() {
        for text in [
            "",
            "22:00",
            "22-05",
            "22:00-25:00",
            "9:00-10:00",
            "Mo 22:00-05:00",
            "Mon.. 22:00-05:00",
            "24:30-01:00",
            "24:00-01:00",
            "01:60-02:00",
            "+1:00-02:00",
        ] {
            assert!(text.parse::<Window>().unwrap_err().contains("22:00-05:00"), "{text}");
        }
        assert!("05:00-05:00".parse::<Window>().unwrap_err().contains("leave the window out"));
    }
}
