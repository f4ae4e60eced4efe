//! The trial of the heads that fit a model without a card: what contradicts itself is not proposed.

use std::path::Path;

use serde::Serialize;
use visiond_config::types::{EngineConfig, ModelConfig};
use visiond_engine::heads::HeadGuess;
use visiond_service::ServiceError;
use visiond_service::model_trial::{self, CardTrial};
use visiond_system::stop::Stop;

use crate::load_limits::LoadLimits;

/// More objects in a picture of noise than any model finds whose outputs are read rightly.
const MOST_IN_NOISE: usize = 1_000;

/// A score above 1, after rounding in f16 or INT8.
const TOO_HIGH: f32 = 1.05;

/// A head that fits by its shapes, and not by its numbers.
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
}

impl Proposals {
    /// Runs the model with the card of each guess, and keeps those that do not contradict it.
    pub fn tried(path: &Path, limits: &LoadLimits, guesses: Vec<HeadGuess>) -> Self {
        let cards: Vec<String> = guesses.iter().map(|guess| guess.card.clone()).collect();
        let model = ModelConfig { path: path.to_owned(), ..ModelConfig::default() };
        let trials = Stop::new()
            .map_err(ServiceError::System)
            .and_then(|stop| model_trial::try_cards(&model, &limits.of(EngineConfig::default()), &cards, &stop));
        let trials = match trials {
            Ok(Some(trials)) => trials,
            Ok(None) => return Self { guesses, ..Self::default() },
            Err(ServiceError::Model { error, .. }) => {
                return Self { guesses, untried: Some(error.to_string()), ..Self::default() };
            }
            Err(error) => return Self { guesses, untried: Some(error.to_string()), ..Self::default() },
        };
        let mut found = Self::default();
        for (guess, trial) in guesses.into_iter().zip(trials) {
            match objection(&trial) {
                Some(reason) => found.rejected.push(Rejected { family: guess.family.name(), reason }),
                None => found.guesses.push(guess),
            }
        }
        if let [only] = &mut found.guesses[..] {
            only.tied = false;
        }
        found
    }
}

/// Returns why a head that fits cannot be right.
fn objection(trial: &CardTrial) -> Option<String> {
    let (scene, noise) = match trial {
        CardTrial::Contradicted(text) => return Some(problem(text)),
        CardTrial::Ran { scene, noise } => (scene, noise),
    };
    if noise.count > MOST_IN_NOISE {
        return Some(format!("it finds {} objects in a picture of noise", noise.count));
    }
    for found in [scene, noise] {
        if found.highest > TOO_HIGH {
            return Some(format!("its scores reach {:.1}", found.highest));
        }
        if found.empty >= 4 && 2 * found.empty > found.count {
            return Some(format!("{} of its {} boxes have no area", found.empty, found.count));
        }
    }
    None
}

/// Returns the problem that an error about a card names: without the place in the card, which is not written yet, the shapes,
/// which are above, and the remedy.
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

    #[test]
    fn what_contradicts_itself_is_objected_to() {
        let few = Findings { count: 3, highest: 0.9, empty: 0 };
        let ran = |scene, noise| objection(&CardTrial::Ran { scene, noise });
        assert_eq!(ran(few, few), None);
        assert_eq!(ran(Findings { count: 900, ..few }, few), None, "a scene may be crowded");
        let many = Findings { count: 1_001, ..few };
        assert_eq!(ran(few, many).unwrap(), "it finds 1001 objects in a picture of noise");
        assert_eq!(ran(Findings { highest: 1.5, ..few }, few).unwrap(), "its scores reach 1.5");
        assert_eq!(ran(Findings { count: 7, empty: 4, ..few }, few).unwrap(), "4 of its 7 boxes have no area");
        let text = "net.toml:2:10: head `ssd` reads boxes, but many of its boxes end before they begin; the model has `a`: write x\n 2 |";
        let contradicted = objection(&CardTrial::Contradicted(text.to_owned()));
        assert_eq!(contradicted.unwrap(), "many of its boxes end before they begin");
    }
}
