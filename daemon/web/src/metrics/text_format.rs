//! Prometheus' text format 0.0.4: families with help and type, samples with labels.

use std::fmt::Write;

/// The type of a family whose values may fall.
pub const GAUGE: &str = "gauge";
/// The type of a family whose values only rise.
pub const COUNTER: &str = "counter";
/// The type of a family of histograms.
pub const HISTOGRAM: &str = "histogram";

/// A family with one sample per item: type, name, help, the item's value.
pub type Column<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

/// The labels of a sample.
pub type Labels<'a> = [(&'a str, &'a str)];

/// The text of a scrape.
#[derive(Debug, Default)]
pub struct MetricsText(String);

/// A metric with its samples; the head is written with the first sample, so that an empty family leaves no text.
#[derive(Debug)]
pub struct MetricFamily<'a> {
    page: &'a mut String,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    has_head: bool,
}

impl MetricsText {
    /// Starts a family.
    pub fn family(&mut self, kind: &'static str, name: &'static str, help: &'static str) -> MetricFamily<'_> {
        MetricFamily { page: &mut self.0, name, kind, help, has_head: false }
    }

    /// Writes a family with one sample without labels.
    pub fn single(&mut self, kind: &'static str, name: &'static str, help: &'static str, value: f64) {
        self.family(kind, name, help).add(&[], value);
    }

    /// Writes a family for each column, with a sample for each item; `label` names the label that holds the item's name.
    pub fn table<T>(&mut self, label: &str, items: &[(&str, &T)], columns: &[Column<T>]) {
        for (kind, name, help, value) in columns {
            let mut family = self.family(kind, name, help);
            items.iter().for_each(|(item, facts)| family.add(&[(label, item)], value(facts)));
        }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }
}

impl MetricFamily<'_> {
    /// Adds a sample.
    pub fn add(&mut self, labels: &Labels<'_>, value: f64) {
        self.sample("", labels, None, value);
    }

    /// Adds a histogram of seconds.
    ///
    /// A bucket is its largest value in microseconds (`None` for any) and the count of values in it alone; `sum_us` is the sum
    /// of all values.
    pub fn add_histogram(&mut self, labels: &Labels<'_>, buckets: &[(Option<u64>, u64)], sum_us: u64) {
        let mut count = 0;
        for (le_us, values) in buckets {
            count += values;
            let le = le_us.map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
            self.sample("_bucket", labels, Some(("le", &le)), count as f64);
        }
        self.sample("_sum", labels, None, sum_us as f64 / 1e6);
        self.sample("_count", labels, None, count as f64);
    }

    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, last: Option<(&str, &str)>, value: f64) {
        let Self { page, name, kind, help, .. } = self;
        if !std::mem::replace(&mut self.has_head, true) {
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        page.push_str(name);
        page.push_str(suffix);
        for (index, (label, text)) in labels.iter().copied().chain(last).enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(page, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        if !labels.is_empty() || last.is_some() {
            page.push('}');
        }
        let _ = writeln!(page, " {value}");
    }
}

/// Returns 1 for true and 0 for false.
pub fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        let mut page = MetricsText::default();
        page.family(GAUGE, "a", "A thing.").add(&[("x", "back\\slash \"quote\"\nline"), ("y", "")], 1.5);
        assert_eq!(
            page.finish(),
            "# HELP a A thing.\n# TYPE a gauge\na{x=\"back\\\\slash \\\"quote\\\"\\nline\",y=\"\"} 1.5\n"
        );
    }

    #[test]
    fn a_family_without_samples_is_not_there() {
        let mut page = MetricsText::default();
        let _empty = page.family(COUNTER, "a_total", "A thing.");
        page.single(COUNTER, "b_total", "Another.", 3.0);
        assert_eq!(page.finish(), "# HELP b_total Another.\n# TYPE b_total counter\nb_total 3\n");
    }

    #[test]
    fn buckets_hold_all_that_is_smaller() {
        let mut page = MetricsText::default();
        let buckets = [(Some(1_000), 2), (Some(500_000), 0), (None, 3)];
        page.family(HISTOGRAM, "a_seconds", "A time.").add_histogram(&[("c", "x")], &buckets, 4_250_000);
        let lines = "a_seconds_bucket{c=\"x\",le=\"0.001\"} 2\na_seconds_bucket{c=\"x\",le=\"0.5\"} 2\n\
                     a_seconds_bucket{c=\"x\",le=\"+Inf\"} 5\na_seconds_sum{c=\"x\"} 4.25\na_seconds_count{c=\"x\"} 5\n";
        assert_eq!(page.finish(), format!("# HELP a_seconds A time.\n# TYPE a_seconds histogram\n{lines}"));
    }
}
