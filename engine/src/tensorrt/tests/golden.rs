//! Our tables against `slots.md`.

use std::collections::BTreeMap;

use super::super::abi::Abi;
use super::super::abi::builder::{
    Builder, Config, Network, Parser, ParserError, Profile as BuildProfile, Tensor, TimingCache,
};
use super::super::abi::runtime::{Context, Engine, HostMemory, Inspector, Runtime};
use super::super::version::Version;

const GOLDEN: &str = include_str!("slots.md");

/// The versions proved: the ends of every range that visiond runs.
pub(super) const VERSIONS: [&str; 17] = [
    "8.5.1", "8.5.3", "8.6.1", "10.0.1", "10.1.0", "10.2.0", "10.3.0", "10.7.0", "10.10.0", "10.11.0", "10.13.0",
    "10.16.1", "11.0.0", "11.4.0", "rtx1.5.0", "rtx1.6.1", "rtx1.7.1",
];

/// `rtx1.7` after everything else, missing numbers as `least`.
fn order(version: &str, least: u32) -> (bool, u32, u32, u32) {
    let (rtx, numbers) = version.strip_prefix("rtx").map_or((false, version), |rest| (true, rest));
    let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().unwrap());
    let mut next = || numbers.next().unwrap_or(least);
    (rtx, next(), next(), next())
}

pub(super) fn abi(version: &str) -> Abi {
    let (rtx, major, minor, patch) = order(version, 0);
    let version = Version { rtx, major, minor, patch };
    Abi { version, layout: version.layout().unwrap() }
}

/// The golden data of a class in a version.
pub(super) struct Class {
    /// Place of each method; `None` where it is not there.
    pub(super) methods: BTreeMap<String, Option<usize>>,
    /// Entries in the table.
    pub(super) slots: usize,
}

/// A class in a version; `None` where its header was not at hand.
pub(super) fn class(name: &str, version: &str) -> Option<Class> {
    let mut lines = GOLDEN.lines().skip_while(|line| *line != format!("### {name}")).skip(1);
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let head = cells(lines.next().unwrap());
    let column = head.iter().skip(2).position(|range| {
        let (from, to) = range.split_once("..").unwrap_or((range, range));
        !range.is_empty() && (order(from, 0)..=order(to, u32::MAX)).contains(&order(version, 0))
    });
    let column = column.unwrap_or_else(|| panic!("{name} has no column for {version}")) + 2;
    let mut methods: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells = cells(line);
        if cells[column] == "?" {
            return None;
        }
        let slot = cells[column].parse().ok();
        // Overloads are listed with their arguments; no version has two of those that we call.
        let method = cells[1].split('(').next().unwrap().to_owned();
        if method.is_empty() {
            return Some(Class { methods, slots: slot.unwrap() });
        }
        let known = methods.entry(method).or_default();
        *known = known.or(slot);
    }
    None
}

/// The entry of a callback's method in a version that the golden data list, such as `v10.3.0`.
pub(super) fn callback(interface: &str, method: &str, version: &str) -> usize {
    let quoted = format!("'{version}'");
    let mut lines = GOLDEN.lines().skip_while(|line| {
        !(line.starts_with("## ") && line.contains(&format!("::{interface} ")) && line.contains(&quoted))
    });
    let line = lines.find(|line| line.contains(&format!("{interface}::{method}("))).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

type Slots = fn(Abi) -> Vec<(&'static str, Option<usize>)>;

#[test]
fn every_place_is_the_one_of_the_headers() {
    let tables: [Slots; 13] = [
        Runtime::slots,
        Engine::slots,
        Context::slots,
        Inspector::slots,
        HostMemory::slots,
        Builder::slots,
        Config::slots,
        BuildProfile::slots,
        Network::slots,
        Tensor::slots,
        TimingCache::slots,
        Parser::slots,
        ParserError::slots,
    ];
    let mut compared = 0;
    for version in VERSIONS {
        for table in tables {
            let mut ours: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (name, slot) in table(abi(version)) {
                ours.entry(name).or_default().extend(slot);
            }
            for (name, found) in ours {
                let (class_name, method) = name.split_once("::").unwrap();
                let Some(class) = class(class_name, version) else { continue };
                let expected = match class.methods.get(method) {
                    Some(expected) => *expected,
                    // A getter that the list leaves out; getters follow their setters.
                    None if method == "getEngineHostCodeAllowed" => {
                        class.methods["setEngineHostCodeAllowed"].map(|setter| setter + 1)
                    }
                    None => panic!("slots.md says nothing of {name}"),
                };
                assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name} in {version}");
                assert!(found.iter().all(|slot| *slot < class.slots), "{name} in {version} is behind the table's end");
                compared += 1;
            }
        }
    }
    assert!(compared > 1500, "{compared} places compared");
}

#[test]
fn versions_are_read_as_each_generation_writes_them() {
    let text = |number| Version::decode(number).to_string();
    assert_eq!(text(8502), "TensorRT 8.5.2");
    assert_eq!(text(8601), "TensorRT 8.6.1");
    assert_eq!(text(100_300), "TensorRT 10.3.0");
    assert_eq!(text(101_601), "TensorRT 10.16.1");
    assert_eq!(text(110_400), "TensorRT 11.4.0");
    assert_eq!(text(10_701), "TensorRT for RTX 1.7.1");
    let layout = |number| Version::decode(number).layout();
    for refused in [7202, 8001, 8201, 8401, 9100, 10_300, 10_400, 20_000, 120_000] {
        assert_eq!(layout(refused), None, "{refused}");
    }
}
