//! Prometheus' text format 0.0.4: families with help and type, samples with labels.

use std::fmt::Write;

/// A family with one sample per item: name, help, the item's value.
pub type Column<T> = (&'static str, &'static str, fn(&T) -> f64);

/// The labels of a sample.
pub type Labels<'a> = [(&'a str, &'a str)];

/// The text of a scrape.
#[derive(Debug, Default)]
pub struct Page(String);

/// A metric with its samples; the head is written with the first sample, so that an empty family leaves no text.
#[derive(Debug)]
pub struct Family<'a> {
    page: &'a mut String,
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    begun: bool,
}

impl Page {
    /// Begins a family of gauges.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a family of counters.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Begins a family of histograms.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }

    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> Family<'_> {
        Family { page: &mut self.0, name, kind, help, begun: false }
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub fn add(&mut self, labels: &Labels<'_>, value: f64) {
        self.sample("", labels, None, value);
    }

    /// Adds a histogram.
    ///
    /// A bucket is its largest value (`None` for any) and the count of values in it alone; `sum` is the sum of all values.
    pub fn add_histogram(&mut self, labels: &Labels<'_>, buckets: &[(Option<f64>, u64)], sum: f64) {
        let mut count = 0;
        for (le, values) in buckets {
            count += values;
            let le = le.map_or_else(|| "+Inf".to_owned(), |le| le.to_string());
            self.sample("_bucket", labels, Some(("le", &le)), count as f64);
        }
        self.sample("_sum", labels, None, sum);
        self.sample("_count", labels, None, count as f64);
    }

    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, last: Option<(&str, &str)>, value: f64) {
        let Self { page, name, kind, help, .. } = self;
        if !std::mem::replace(&mut self.begun, true) {
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        page.push_str(name);
        page.push_str(suffix);
        for (index, (label, text)) in labels.iter().copied().chain(last).enumerate() {
            let _ = write!(page, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            escape(page, text);
            page.push('"');
        }
        if !labels.is_empty() || last.is_some() {
            page.push('}');
        }
        let _ = writeln!(page, " {value}");
    }
}

/// Escapes backslash, quote and line end in a label's value.
fn escape(page: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            c => page.push(c),
        }
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
        let mut page = Page::default();
        page.gauge("a", "A thing.").add(&[("x", "back\\slash \"quote\"\nline"), ("y", "")], 1.5);
        assert_eq!(
            page.finish(),
            "# HELP a A thing.\n# TYPE a gauge\na{x=\"back\\\\slash \\\"quote\\\"\\nline\",y=\"\"} 1.5\n"
        );
    }

    #[test]
    fn a_family_without_samples_is_not_there() {
        let mut page = Page::default();
        let _empty = page.counter("a_total", "A thing.");
        page.counter("b_total", "Another.").add(&[], 3.0);
        assert_eq!(page.finish(), "# HELP b_total Another.\n# TYPE b_total counter\nb_total 3\n");
    }

    #[test]
    fn buckets_hold_all_that_is_smaller() {
        let mut page = Page::default();
        let buckets = [(Some(0.001), 2), (Some(0.5), 0), (None, 3)];
        page.histogram("a_seconds", "A time.").add_histogram(&[("c", "x")], &buckets, 4.25);
        let lines = "a_seconds_bucket{c=\"x\",le=\"0.001\"} 2\na_seconds_bucket{c=\"x\",le=\"0.5\"} 2\n\
                     a_seconds_bucket{c=\"x\",le=\"+Inf\"} 5\na_seconds_sum{c=\"x\"} 4.25\na_seconds_count{c=\"x\"} 5\n";
        assert_eq!(page.finish(), format!("# HELP a_seconds A time.\n# TYPE a_seconds histogram\n{lines}"));
    }
}
