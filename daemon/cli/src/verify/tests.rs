//! The limits of a comparison, with their defaults.

#![allow(clippy::unwrap_used)]

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(flags: &str) -> Args {
    let words = ["verify", "a.onnx", "b.onnx", "--images", "d"].into_iter().chain(flags.split_whitespace());
    Line::try_parse_from(words).unwrap().args
}

#[test]
fn lower_scores_are_asked_for_than_are_compared_but_not_those_of_noise() {
    for (flags, of_card, threshold, floor) in [
        ("", 0.3, 0.3, 0.26),
        ("--score-threshold 0.5", 0.3, 0.5, 0.46),
        ("--score-threshold 0.5 --max-score-difference 0.1", 0.3, 0.5, 0.3),
        ("--score-threshold 0.03", 0.3, 0.03, LEAST_SCORE),
        ("--score-threshold 0.005", 0.3, 0.005, 0.005),
    ] {
        let (limits, matching, least) = limits(&args(flags), 0.02, of_card);
        assert_eq!(limits.score_threshold, Some(threshold), "{flags}");
        assert!((least - floor).abs() < 1e-9, "{flags}: {least}");
        assert_eq!(Some(matching.max_score_difference), limits.max_score_difference);
    }
}

#[test]
fn what_one_side_alone_detects_may_be_just_above_the_threshold_only_for_a_reference() {
    let of = |flags: &str| {
        let (_, matching, _) = limits(&args(flags), 0.02, 0.25);
        (matching.unmatched_margin, matching.max_score_difference, matching.min_oks, matching.min_iou)
    };
    assert_eq!(of(""), (0.0, 0.02, 0.0, 0.98));
    assert_eq!(of("--reference r.json"), (0.02, 0.02, 0.0, 0.98));
    let all = "--reference r.json --max-score-difference 0.5 --min-oks 0.75 --min-iou 0.5";
    assert_eq!(of(all), (0.5, 0.5, 0.75, 0.5));
}
