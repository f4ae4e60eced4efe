//! Tries the heads that fit a model without a card, and drops those that contradict themselves.

use std::path::Path;

use serde::Serialize;
use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::heads::{Family, HeadGuess};
use visiond_service::ServiceError;
use visiond_service::model_trial::{self, CardTrial};
use visiond_system::stop::Stop;

use crate::load_limits::LoadLimits;

/// More objects in an image of noise than any model finds if its outputs are decoded correctly.
const MOST_IN_NOISE: usize = 1_000;

/// A score above 1, with a margin for rounding in f16 or INT8.
const TOO_HIGH: f32 = 1.05;

/// A head that fits by its shapes, but not by its numbers.
#[derive(Debug, Serialize)]
pub struct Rejected {
    pub family: &'static str,
    pub reason: String,
}

/// The heads that fit a model without a card.
#[derive(Debug, Default)]
pub struct Proposals {
    pub guesses: Vec<HeadGuess>,
    pub rejected: Vec<Rejected>,
    /// Why the cards could not be tried.
    pub untried: Option<String>,
    /// A preprocess other than the first card's with which the model finds something.
    pub better: Option<Better>,
    /// A classifier's answers with the preprocess that its card assumes and with others, if they differ.
    pub answers: Vec<Answer>,
}

/// A preprocess with which a model finds more than with the one that its card assumes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Better {
    /// The lines of `[input]`.
    pub lines: Vec<&'static str>,
    /// The number of detections in an image of a person.
    pub count: usize,
    /// Their highest score.
    pub highest: f32,
}

/// A classifier's answer for an image of a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The lines of `[input]`; empty for the card's own.
    pub lines: Vec<&'static str>,
    /// The class with the highest score.
    pub class_id: u32,
    /// That score.
    pub score: f32,
}

/// Preprocesses other than a head's usual one, as lines of `[input]`.
const WAYS: [&[&str]; 5] = [
    &["scale = 1", "mean = 0", "std = 1"],
    &["scale = \"1/255\"", "mean = 0", "std = 1"],
    &["scale = \"1/255\"", "mean = [0.485, 0.456, 0.406]", "std = [0.229, 0.224, 0.225]"],
    &["scale = \"1/127.5\"", "mean = 1", "std = 1"],
    &["order = \"bgr\"", "scale = 1", "mean = 0", "std = 1"],
];

/// One more for classifiers: Caffe's.
const CAFFE: &[&str] = &["preprocess = \"caffe\""];

/// Boxes whose sides are all shorter than this many pixels are invalid: their unit is wrong.
const LEAST_SIDE: f32 = 2.0;

/// The largest difference between the scores of equal answers.
const SAME: f32 = 0.05;

/// A score that proves that a model sees what it was trained for.
const SURE: f32 = 0.5;

/// More detections in noise than such a model yields.
const FEW: usize = 20;

impl Proposals {
    /// Runs the model with the card of each guess, and keeps those that do not contradict themselves. If none is left, tries
    /// `orders`: guesses that count only if a run confirms them.
    pub fn tried(path: &Path, limits: &LoadLimits, guesses: Vec<HeadGuess>, orders: Vec<HeadGuess>) -> Self {
        let mut found = Self::of_guesses(path, limits, guesses);
        if found.guesses.is_empty() && found.untried.is_none() && !orders.is_empty() {
            found.try_orders(path, limits, &orders);
        }
        found
    }

    fn of_guesses(path: &Path, limits: &LoadLimits, guesses: Vec<HeadGuess>) -> Self {
        let cards: Vec<String> = guesses.iter().map(|guess| guess.card.clone()).collect();
        let trials = match trials(path, limits, &cards) {
            Ok(Some(trials)) => trials,
            Ok(None) => return Self { guesses, ..Self::default() },
            Err(error) => return Self { guesses, untried: Some(error), ..Self::default() },
        };
        let (mut found, mut first) = (Self::default(), None);
        for (guess, trial) in guesses.into_iter().zip(trials) {
            match objection(&trial) {
                Some(reason) => found.rejected.push(Rejected { family: guess.family.name(), reason }),
                None => {
                    first.get_or_insert(trial);
                    found.guesses.push(guess);
                }
            }
        }
        let sees_nothing = matches!(first, Some(CardTrial::Ran { scene, .. }) if scene.count == 0);
        if let Some(guess) = found.guesses.first().filter(|_| sees_nothing) {
            found.better = better(path, limits, &guess.card);
        }
        if let (Some(guess), Some(trial)) = (found.guesses.first(), first)
            && guess.family == Family::Classifier
        {
            found.answers = answers(path, limits, &guess.card, &trial);
        }
        if let [only] = &mut found.guesses[..] {
            only.tied = false;
        }
        found
    }

    /// Keeps the orders of finished rows that a run confirms: the model finds something, and nothing contradicts itself. If the
    /// assumed preprocess finds nothing, tries others.
    fn try_orders(&mut self, path: &Path, limits: &LoadLimits, orders: &[HeadGuess]) {
        let mut problem = None;
        for lines in [&[][..]].into_iter().chain(WAYS) {
            let fed = |guess: &HeadGuess| match lines {
                [] => Some(guess.card.clone()),
                lines => fed_like(&guess.card, lines),
            };
            let Some(cards) = orders.iter().map(fed).collect::<Option<Vec<String>>>() else { break };
            let tried = match trials(path, limits, &cards) {
                Ok(tried) => tried.unwrap_or_default(),
                Err(error) => {
                    self.untried = Some(error);
                    return;
                }
            };
            let mut fitting = Vec::new();
            for ((guess, card), trial) in orders.iter().zip(cards).zip(tried) {
                match objection_to_order(&trial) {
                    None => fitting.push((HeadGuess { card, ..guess.clone() }, trial)),
                    // The result of a different preprocess does not show the order of the numbers.
                    Some(reason) if lines.is_empty() => problem = problem.or(reason),
                    Some(_) => {}
                }
            }
            self.guesses = best_placed(fitting);
            if !self.guesses.is_empty() {
                break;
            }
        }
        if let [only] = &mut self.guesses[..] {
            only.tied = false;
        }
        if self.guesses.is_empty() {
            let reason = match problem {
                Some(problem) => format!("none of the known orders of `columns` fits: {problem}"),
                None => "no test image gives a row, so nothing shows the order of its numbers: write it as `columns` under [head] \
                         (docs/models.md)"
                    .to_owned(),
            };
            self.rejected.push(Rejected { family: "yolo-nms", reason });
        }
    }
}

/// Runs the model with each of the cards.
fn trials(path: &Path, limits: &LoadLimits, cards: &[String]) -> Result<Option<Vec<CardTrial>>, String> {
    let model = ModelConfig { path: path.to_owned(), ..ModelConfig::default() };
    let stop = Stop::new().map_err(|error| error.to_string())?;
    model_trial::try_cards(&model, &limits.of(EngineConfig::default()), cards, &stop).map_err(|error| match error {
        ServiceError::Model { error, .. } => error.to_string(),
        error => error.to_string(),
    })
}

/// Returns the preprocess with which a model finds most, if it is not the one that its card assumes.
fn better(path: &Path, limits: &LoadLimits, card: &str) -> Option<Better> {
    let mut found = other_ways(path, limits, card, &WAYS)?.into_iter().filter_map(|(lines, trial)| match trial {
        CardTrial::Ran { scene, noise, .. } if scene.highest >= SURE && noise.count <= FEW => {
            Some(Better { lines: lines.to_vec(), count: scene.count, highest: scene.highest })
        }
        _ => None,
    });
    // Of equal ones, the first.
    let first = found.next()?;
    Some(found.fold(first, |best, other| if other.highest > best.highest { other } else { best }))
}

/// Returns a card with different lines of `[input]`; `None` for a card that assumes none.
fn fed_like(card: &str, lines: &[&str]) -> Option<String> {
    let (before, after) = card.split_once("[input]\n# Assumed")?;
    Some(format!("{before}[input]\n{}\n# Assumed{after}", lines.join("\n")))
}

/// Returns why an order of rows is not proposed: `Some(None)` if no image yielded a row.
fn objection_to_order(trial: &CardTrial) -> Option<Option<String>> {
    if let Some(reason) = objection(trial) {
        return Some(Some(reason));
    }
    let CardTrial::Ran { scene, corner, noise } = trial else { return Some(None) };
    let empty = scene.empty + corner.empty + noise.empty;
    if scene.count + corner.count + noise.count == 0 {
        return Some(None);
    }
    if empty > 0 {
        return Some(Some(format!("{empty} of its boxes have no area")));
    }
    let side = scene.longest_side.max(corner.longest_side).max(noise.longest_side);
    (side < LEAST_SIDE).then(|| Some(format!("no side of its boxes is longer than {side:.1} pixels")))
}

/// Returns the orders that put the best box at the person in the lower right of an image; all orders if none does.
///
/// Corners that are read as centre and size contradict nothing, but such a box starts in the other half.
fn best_placed(fitting: Vec<(HeadGuess, CardTrial)>) -> Vec<HeadGuess> {
    let is_placed = |trial: &CardTrial| matches!(trial, CardTrial::Ran { corner, .. } if corner.is_lower_right);
    let some = fitting.iter().any(|(_, trial)| is_placed(trial));
    fitting.into_iter().filter(|(_, trial)| !some || is_placed(trial)).map(|(guess, _)| guess).collect()
}

/// Runs the model with each of `ways` instead of the preprocess that its card assumes; `None` if the card assumes nothing.
fn other_ways(
    path: &Path,
    limits: &LoadLimits,
    card: &str,
    ways: &[&'static [&'static str]],
) -> Option<Vec<(&'static [&'static str], CardTrial)>> {
    let cards: Vec<String> = ways.iter().map(|lines| fed_like(card, lines)).collect::<Option<_>>()?;
    let tried = trials(path, limits, &cards).ok()??;
    Some(ways.iter().copied().zip(tried).collect())
}

/// Returns a classifier's answers with the preprocess that its card assumes and with others, if any of them differs: each may be
/// right, because a classifier answers for any pixels.
fn answers(path: &Path, limits: &LoadLimits, card: &str, assumed: &CardTrial) -> Vec<Answer> {
    let answer = |lines: &[&'static str], trial: &CardTrial| match trial {
        CardTrial::Ran { scene, .. } => {
            Some(Answer { lines: lines.to_vec(), class_id: scene.best?, score: scene.highest })
        }
        CardTrial::Contradicted(_) => None,
    };
    let ways: Vec<&'static [&'static str]> = WAYS.into_iter().chain([CAFFE]).collect();
    let tried = other_ways(path, limits, card, &ways).unwrap_or_default();
    let first = answer(&[], assumed);
    let others = tried.iter().filter_map(|(lines, trial)| answer(lines, trial));
    differing(first.into_iter().chain(others).collect())
}

/// Returns the answers without those that equal an earlier one; none if all are equal.
fn differing(answers: Vec<Answer>) -> Vec<Answer> {
    let alike = |a: &Answer, b: &Answer| a.class_id == b.class_id && (a.score - b.score).abs() <= SAME;
    let mut kept: Vec<Answer> = Vec::new();
    for answer in answers {
        if !kept.iter().any(|other| alike(other, &answer)) {
            kept.push(answer);
        }
    }
    if kept.len() > 1 { kept } else { Vec::new() }
}

/// Returns why a head that fits cannot be right.
fn objection(trial: &CardTrial) -> Option<String> {
    let (scene, corner, noise) = match trial {
        CardTrial::Contradicted(text) => return Some(problem(text)),
        CardTrial::Ran { scene, corner, noise } => (scene, corner, noise),
    };
    if noise.count > MOST_IN_NOISE {
        return Some(format!("it finds {} objects in an image of noise", noise.count));
    }
    for found in [scene, corner, noise] {
        if found.highest > TOO_HIGH {
            return Some(format!("its scores reach {:.1}", found.highest));
        }
        if found.empty >= 4 && 2 * found.empty > found.count {
            return Some(format!("{} of its {} boxes have no area", found.empty, found.count));
        }
    }
    None
}

/// Returns the problem that an error about a card states: without the location in the card, which does not exist yet, the shapes,
/// which are printed above, and the remedy.
fn problem(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let after = line.split_once(", but ").map_or(line, |(_, problem)| problem);
    after.split_once("; the model has ").map_or(after, |(problem, _)| problem).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_service::model_trial::Findings;

    use super::*;

    const NONE: Findings =
        Findings { count: 0, highest: 0.0, empty: 0, longest_side: 0.0, best: None, is_lower_right: false };

    #[test]
    fn answers_that_are_like_an_earlier_one_are_left_out() {
        let answer = |class_id, score| Answer { lines: Vec::new(), class_id, score };
        let of = |answers: &[(u32, f32)]| {
            let found = differing(answers.iter().map(|&(class_id, score)| answer(class_id, score)).collect());
            found.iter().map(|answer| (answer.class_id, answer.score)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(1, 0.5), (1, 0.98), (0, 0.5), (1, 0.52)]), [(1, 0.5), (1, 0.98), (0, 0.5)]);
        assert_eq!(of(&[(1, 0.5), (1, 0.52)]), []);
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn what_contradicts_itself_is_objected_to() {
        let few = Findings { count: 3, highest: 0.9, longest_side: 90.0, best: Some(0), ..NONE };
        let ran = |scene, noise| objection(&CardTrial::Ran { scene, corner: few, noise });
        assert_eq!(ran(few, few), None);
        assert_eq!(ran(Findings { count: 900, ..few }, few), None, "a scene may be crowded");
        let many = Findings { count: 1_001, ..few };
        assert_eq!(ran(few, many).unwrap(), "it finds 1001 objects in an image of noise");
        assert_eq!(ran(Findings { highest: 1.5, ..few }, few).unwrap(), "its scores reach 1.5");
        assert_eq!(ran(Findings { count: 7, empty: 4, ..few }, few).unwrap(), "4 of its 7 boxes have no area");
        let text = "net.toml:2:10: head `ssd` reads boxes, but many of its boxes end before they begin; the model has `a`: write x\n 2 |";
        let contradicted = objection(&CardTrial::Contradicted(text.to_owned()));
        assert_eq!(contradicted.unwrap(), "many of its boxes end before they begin");
    }

    #[test]
    fn an_order_of_rows_needs_a_row_that_speaks_for_it() {
        let (few, none) = (Findings { count: 3, highest: 0.9, longest_side: 90.0, best: Some(0), ..NONE }, NONE);
        let of = |scene, noise| objection_to_order(&CardTrial::Ran { scene, corner: none, noise });
        assert_eq!(of(few, none), None);
        assert_eq!(of(none, few), None);
        assert_eq!(of(none, none), Some(None));
        assert_eq!(of(Findings { empty: 1, ..few }, none).unwrap().unwrap(), "1 of its boxes have no area");
        let small = of(Findings { longest_side: 0.5, ..few }, none);
        assert_eq!(small.unwrap().unwrap(), "no side of its boxes is longer than 0.5 pixels");
        let text = "net.toml:2:10: head `yolo-nms` reads rows, but row 0 of `a` is wrong; the model has `a`: write x";
        let contradicted = objection_to_order(&CardTrial::Contradicted(text.to_owned()));
        assert_eq!(contradicted.unwrap().unwrap(), "row 0 of `a` is wrong");
    }

    #[test]
    fn an_order_that_puts_the_box_where_the_person_is_comes_before_those_that_do_not() {
        let guess = |reason: &str| HeadGuess {
            family: Family::YoloNms,
            class_count: None,
            reason: reason.to_owned(),
            tied: true,
            card: String::new(),
        };
        let few = Findings { count: 1, highest: 0.9, longest_side: 90.0, ..NONE };
        let trial =
            |is_lower_right| CardTrial::Ran { scene: few, corner: Findings { is_lower_right, ..few }, noise: NONE };
        let of = |placed: [bool; 2]| {
            let fitting = ["a", "b"].into_iter().zip(placed).map(|(name, placed)| (guess(name), trial(placed)));
            best_placed(fitting.collect()).into_iter().map(|guess| guess.reason).collect::<Vec<_>>()
        };
        assert_eq!(of([false, true]), ["b"]);
        assert_eq!(of([true, true]), ["a", "b"]);
        assert_eq!(of([false, false]), ["a", "b"]);
    }
}
