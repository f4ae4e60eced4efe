//! The usual time between the frames that lines and zones see.

use std::time::{Duration, Instant};

use visiond_system::backoff::RateLimit;

/// Spans of which the usual one is the median.
const SPANS: usize = 16;

/// Shortest time between two warnings of a camera.
const QUIET: Duration = Duration::from_secs(3600);

/// The last times between frames.
#[derive(Debug)]
pub struct FrameSpans {
    spans: [Duration; SPANS],
    /// Of the spans, those since the last median.
    known: usize,
    warnings: RateLimit,
}

impl Default for FrameSpans {
    fn default() -> Self {
        Self { spans: [Duration::ZERO; SPANS], known: 0, warnings: RateLimit::new(QUIET) }
    }
}

impl FrameSpans {
    /// Takes the time since the last frame. Warns, once an hour at most, if most spans are longer than the `hold` of a line or zone; `rules` are
    /// their names and holds. Allocates only for that.
    pub fn take<'r>(&mut self, span: Duration, rules: impl Iterator<Item = (&'r str, Duration)> + Clone, camera: &str) {
        let Some(usual) = self.usual(span) else { return };
        let Some(warning) = warning(rules, usual) else { return };
        if self.warnings.pass(Instant::now()).is_some() {
            log::warn!(camera:% = camera; "camera {camera}: {warning}");
        }
    }

    /// Returns the median of each [`SPANS`] spans.
    fn usual(&mut self, span: Duration) -> Option<Duration> {
        self.spans[self.known] = span;
        self.known = (self.known + 1) % SPANS;
        (self.known == 0).then(|| {
            self.spans.sort_unstable();
            self.spans[SPANS / 2]
        })
    }
}

/// Returns which lines and zones see nothing, and the remedy, if frames are this far apart.
fn warning<'r>(rules: impl Iterator<Item = (&'r str, Duration)> + Clone, usual: Duration) -> Option<String> {
    let blind = rules.filter(|(_, hold)| *hold < usual);
    let hold = blind.clone().map(|(_, hold)| hold).min()?;
    let mut names: Vec<_> = blind.map(|(name, _)| name).collect();
    // A zone has several rules.
    names.dedup();
    let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    Some(format!(
        "{} may see nothing: most frames come {:.2} s after the last one, and `hold` is {} s: raise `hold` to three times the interval, or \
         find out why there are so few frames",
        names.join(", "),
        usual.as_secs_f64(),
        hold.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_pause_is_not_the_usual_span() {
        let mut spans = FrameSpans::default();
        let mut usual = |milliseconds: &[u64; SPANS]| -> Vec<u128> {
            let found = milliseconds.iter().filter_map(|&span| spans.usual(Duration::from_millis(span)));
            found.map(|usual| usual.as_millis()).collect()
        };
        let (mut most_short, mut most_long) = ([40; SPANS], [2000; SPANS]);
        most_short[3..9].fill(60_000);
        most_long[..7].fill(40);
        assert_eq!((usual(&most_short), usual(&most_long)), (vec![40], vec![2000]));
    }

    #[test]
    fn only_rules_that_hold_for_less_than_the_usual_span_are_named() {
        let rules = [("dock", 1), ("dock", 1), ("hall", 6)].map(|(name, hold)| (name, Duration::from_secs(hold)));
        let at = |seconds: u64| warning(rules.into_iter(), Duration::from_secs(seconds));
        assert_eq!(at(1), None, "not longer than `hold`");
        let text = at(2).unwrap();
        assert!(
            text.starts_with(
                "\"dock\" may see nothing: most frames come 2.00 s after the last one, and `hold` is 1 s: raise"
            ),
            "{text}"
        );
        assert!(at(7).unwrap().starts_with("\"dock\", \"hall\" may see nothing"));
    }
}
