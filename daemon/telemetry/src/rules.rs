//! Totals of a camera's lines and zones.

use std::sync::Arc;

use visiond_message::status::RuleStatus;

/// A line, or one kind of event of a zone, for readers that announce it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFacts {
    /// Name of the line or zone.
    pub name: Arc<str>,
    /// What it reports: `line`, `zone`, `dwell` and so on.
    pub kind: Arc<str>,
    /// Names of a line's sides.
    pub sides: Option<[Arc<str>; 2]>,
}

/// Totals of a rule, which only rise, and how many objects and events it has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleCounts {
    /// Events that began, or that are one moment; of a line, crossings to either side.
    pub begun: u64,
    /// Crossings to the first and to the second side of a line.
    pub crossed_to: [u64; 2],
    /// Objects in the zone now.
    pub inside: u32,
    /// Events under way.
    pub under_way: u32,
}

/// The rules of a camera, in the order of the configuration.
#[derive(Debug, Default)]
pub struct RuleTable(Vec<RuleEntry>);

#[derive(Debug)]
struct RuleEntry {
    /// Name among the rules of the camera.
    id: Arc<str>,
    facts: RuleFacts,
    /// `None` before the first frame. Totals may go on from those of an earlier run, so they are not 0 before.
    counts: Option<RuleCounts>,
}

impl RuleTable {
    /// Replaces the rules. Those that stay the same keep their totals.
    pub fn replace(&mut self, rules: impl Iterator<Item = (Arc<str>, RuleFacts)>) {
        let before = std::mem::take(&mut self.0);
        let counts = |id: &str, facts: &RuleFacts| {
            before.iter().find(|entry| *entry.id == *id && entry.facts == *facts).and_then(|entry| entry.counts)
        };
        self.0 = rules.map(|(id, facts)| RuleEntry { counts: counts(&id, &facts), id, facts }).collect();
    }

    /// Sets the counts of the rules with these names. Allocates nothing.
    pub fn count<'r>(&mut self, rules: impl Iterator<Item = (&'r Arc<str>, RuleCounts)>) {
        for (index, (id, counts)) in rules.enumerate() {
            // They have the same order, except for a frame that a lane had before a reload.
            let is_at = self.0.get(index).is_some_and(|entry| Arc::ptr_eq(&entry.id, id) || entry.id == *id);
            let entry = if is_at { self.0.get_mut(index) } else { self.0.iter_mut().find(|entry| entry.id == *id) };
            if let Some(entry) = entry {
                entry.counts = Some(counts);
            }
        }
    }

    /// Notes that all events have ended and no track is left.
    pub fn end_events(&mut self) {
        for counts in self.0.iter_mut().filter_map(|entry| entry.counts.as_mut()) {
            (counts.inside, counts.under_way) = (0, 0);
        }
    }

    /// Returns every rule.
    pub fn facts(&self) -> Vec<RuleFacts> {
        self.0.iter().map(|entry| entry.facts.clone()).collect()
    }

    /// Returns the rules that have seen a frame, with their totals.
    pub fn status(&self) -> Vec<RuleStatus> {
        let status = |RuleEntry { facts: RuleFacts { name, kind, sides }, counts, .. }: &RuleEntry| {
            let RuleCounts { begun, crossed_to, inside, under_way } = (*counts)?;
            let by_side = sides.iter().flat_map(|sides| sides.iter().zip(crossed_to));
            Some(RuleStatus {
                name: name.to_string(),
                kind: kind.to_string(),
                begun,
                crossed_to: by_side.map(|(side, crossings)| (side.to_string(), crossings)).collect(),
                inside: sides.is_none().then_some(inside),
                under_way,
            })
        };
        self.0.iter().filter_map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(id: &str, sides: Option<[&str; 2]>) -> (Arc<str>, RuleFacts) {
        let (name, kind) = id.split_once('/').unwrap_or((id, if sides.is_some() { "line" } else { "zone" }));
        (id.into(), RuleFacts { name: name.into(), kind: kind.into(), sides: sides.map(|sides| sides.map(Into::into)) })
    }

    fn count(table: &mut RuleTable, counts: &[(&str, RuleCounts)]) {
        let named: Vec<(Arc<str>, RuleCounts)> = counts.iter().map(|(id, counts)| ((*id).into(), *counts)).collect();
        table.count(named.iter().map(|(id, counts)| (id, *counts)));
    }

    #[test]
    fn a_rule_is_in_the_status_from_its_first_frame_and_keeps_its_totals_when_others_change() {
        let mut table = RuleTable::default();
        let (door, dock) = (rule("door", Some(["street", "shop"])), rule("dock/dwell", None));
        table.replace([door.clone(), dock.clone()].into_iter());
        assert_eq!((table.facts().len(), table.status()), (2, Vec::new()));
        let crossed = RuleCounts { begun: 7, crossed_to: [3, 4], ..RuleCounts::default() };
        let dwells = RuleCounts { begun: 2, inside: 3, under_way: 1, ..RuleCounts::default() };
        count(&mut table, &[("door", crossed), ("dock/dwell", dwells)]);
        let told = |table: &RuleTable| -> Vec<_> {
            let text = |rule: RuleStatus| {
                let RuleStatus { name, kind, begun, crossed_to, inside, under_way } = rule;
                format!("{name} {kind} {begun} {crossed_to:?} {inside:?} {under_way}")
            };
            table.status().into_iter().map(text).collect()
        };
        const DOOR: &str = r#"door line 7 {"shop": 4, "street": 3} None 0"#;
        assert_eq!(told(&table), [DOOR, "dock dwell 2 {} Some(3) 1"]);
        // A frame that the lane had before the reload names the old rules.
        table.replace([rule("new", None), dock, rule("door", Some(["a", "b"]))].into_iter());
        assert_eq!(told(&table), ["dock dwell 2 {} Some(3) 1"], "the door has other sides");
        count(&mut table, &[("gone", crossed), ("dock/dwell", RuleCounts { begun: 9, ..dwells })]);
        assert_eq!(told(&table), ["dock dwell 9 {} Some(3) 1"]);
        table.end_events();
        assert_eq!(told(&table), ["dock dwell 9 {} Some(0) 0"]);
    }
}
