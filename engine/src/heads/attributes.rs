//! Decodes several classifiers and numbers of the whole frame from one model.
//!
//! Each attribute of the card reads one output that is a row of numbers (`[1, N]`, `[1, N, 1, 1]`), or a part of it from `column`
//! on: a score for each label, one number for the second of two labels, or a number such as an age, times `scale` plus `offset`.
//! An attribute with a number that is not finite is left out.

use std::sync::Arc;

use visiond_ground::nearest::nearest;
use visiond_kernels::filter::FilterSpec;

use super::classifier::are_probabilities;
use super::decoded::Decoded;
use super::frame_values::{AttributeValue, Reading, ScoredLabel};
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::ModelOutputs;
use super::raw_numbers::{Numbers, not_probabilities, wrong_activation, wrong_activation_of_row};
use super::rows::{sigmoid, softmax};
use super::spec::{Activation, AttributeKind, AttributeSpec};

/// The card's key of all attributes.
const KEY: &str = "head.attribute";

pub(super) struct Attributes {
    /// The number of names under `[classes]`, which must be 0.
    class_count: usize,
    attributes: Vec<Attribute>,
    /// The scores of one attribute; the memory is reused.
    scores: Vec<f32>,
}

struct Attribute {
    spec: AttributeSpec,
    name: Arc<str>,
    labels: Vec<Arc<str>>,
}

/// The location of an attribute's numbers.
struct Place {
    output: usize,
    column: usize,
    count: usize,
    /// Whether one number is the score of the second of two labels.
    is_yes: bool,
}

impl Attributes {
    pub(super) fn new(class_count: usize, attributes: Vec<AttributeSpec>) -> Self {
        let attribute = |spec: AttributeSpec| {
            let names: &[String] = match &spec.kind {
                AttributeKind::Labels { names, .. } => names,
                AttributeKind::Number { .. } => &[],
            };
            let labels = names.iter().map(|name| Arc::from(name.as_str())).collect();
            Attribute { name: Arc::from(spec.name.as_str()), labels, spec }
        };
        Self { class_count, attributes: attributes.into_iter().map(attribute).collect(), scores: Vec::new() }
    }
}

/// Finds an attribute's numbers in outputs, declared or real.
fn place(attribute: &AttributeSpec, outputs: ModelOutputs<'_>) -> Result<Place, Misfit> {
    let AttributeSpec { name, output, column, kind } = attribute;
    let Some(index) = (0..outputs.count()).find(|&index| outputs.name(index) == output) else {
        let problem = format!("no output is called `{output}`, which the attribute `{name}` reads");
        let remedy = match nearest(output, (0..outputs.count()).map(|index| outputs.name(index))) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write the name of one of them as its `output`".to_owned(),
        };
        return Err(Misfit::at(KEY, problem, remedy));
    };
    let Some(width) = outputs.shape(index).vector() else {
        let problem = format!("`{output}`, which the attribute `{name}` reads, is not one row of numbers");
        return Err(Misfit::at(KEY, problem, "write another `output`, or remove the attribute"));
    };
    let (count, is_yes) = match kind {
        AttributeKind::Labels { names, activation, multi_label: false } => {
            let one = width == Some(1) && column.is_none() && *activation != Some(Activation::Softmax);
            if names.len() == 2 && one { (1, true) } else { (names.len(), false) }
        }
        AttributeKind::Labels { names, .. } => (names.len(), false),
        AttributeKind::Number { .. } => (1, false),
    };
    let numbers = |count: usize| if count == 1 { "1 number".to_owned() } else { format!("{count} numbers") };
    match (width, *column) {
        (Some(width), None) if width != count => {
            let problem =
                format!("`{output}` has {} instead of {count}, which the attribute `{name}` reads", numbers(width));
            let remedy = match kind {
                AttributeKind::Labels { .. } => format!("name {width} `classes`, or write the first as `column`"),
                AttributeKind::Number { .. } => "write which of them as `column`, or name its `classes`".to_owned(),
            };
            Err(Misfit::at(KEY, problem, remedy))
        }
        (Some(width), Some(column)) if column.saturating_add(count) > width => {
            let problem = format!(
                "`{output}` has {}, and the attribute `{name}` reads {count} from number {column} on",
                numbers(width)
            );
            Err(Misfit::at(KEY, problem, "correct its `column`, which counts from 0, or its `classes`"))
        }
        _ => Ok(Place { output: index, column: column.unwrap_or(0), count, is_yes }),
    }
}

impl Attribute {
    /// Returns the attribute's value; `None` if one of its numbers is not finite.
    fn read(&self, numbers: &[f32], is_yes: bool, threshold: f32, scores: &mut Vec<f32>) -> Option<Reading> {
        let (activation, multi_label) = match self.spec.kind {
            AttributeKind::Number { scale, offset } => {
                let number = f64::from(*numbers.first()?) * f64::from(scale) + f64::from(offset);
                return Some(number as f32).filter(|number| number.is_finite()).map(Reading::Number);
            }
            AttributeKind::Labels { activation, multi_label, .. } => (activation, multi_label),
        };
        let activation = activation.unwrap_or_else(|| match multi_label || is_yes {
            true => Activation::Sigmoid,
            false if are_probabilities(numbers) => Activation::None,
            false => Activation::Softmax,
        });
        scores.clear();
        match activation {
            Activation::None => scores.extend_from_slice(numbers),
            Activation::Sigmoid => scores.extend(numbers.iter().map(|&x| sigmoid(x))),
            Activation::Softmax => softmax(numbers, scores),
        }
        if !scores.iter().all(|score| score.is_finite()) {
            return None;
        }
        scores.iter_mut().for_each(|score| *score = score.clamp(0.0, 1.0));
        let label = |(label, &score): (&Arc<str>, &f32)| ScoredLabel { label: Arc::clone(label), score };
        if is_yes {
            let yes = *scores.first()?;
            let (index, score) = if yes >= 0.5 { (1, yes) } else { (0, 1.0 - yes) };
            return Some(Reading::Label(label((self.labels.get(index)?, &score))));
        }
        let scored = self.labels.iter().zip(scores.iter());
        if multi_label {
            let mut found: Vec<ScoredLabel> = scored.filter(|(_, score)| **score >= threshold).map(label).collect();
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            return Some(Reading::Labels(found));
        }
        // The first of several equally good ones.
        scored.rev().max_by(|a, b| a.1.total_cmp(b.1)).map(label).map(Reading::Label)
    }
}

impl Decoder for Attributes {
    /// Attributes find their outputs by name.
    type Layout = ();

    fn reads(&self) -> &'static str {
        "outputs [1, N], which each [[head.attribute]] names"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<(), Misfit> {
        if self.class_count > 0 {
            let problem = "the card has [classes], and each attribute has `classes` of its own";
            return Err(Misfit::at("classes", problem, "remove [classes]"));
        }
        self.attributes.iter().try_for_each(|attribute| place(&attribute.spec, outputs).map(drop))
    }

    fn decode(&mut self, _layout: &(), input: &HeadInput<'_>, out: &mut Decoded) {
        let Self { attributes, scores, .. } = self;
        for attribute in attributes.iter() {
            let Ok(Place { output, column, count, is_yes }) = place(&attribute.spec, ModelOutputs::Real(input.outputs))
            else {
                continue;
            };
            let values = input.outputs[output].tensor.to_f32();
            let Some(numbers) = values.get(column..column + count) else { continue };
            if let Some(reading) = attribute.read(numbers, is_yes, input.score_threshold, scores) {
                out.values.attributes.push(AttributeValue { name: Arc::clone(&attribute.name), reading });
            }
        }
    }

    fn doubt(&self, _layout: &(), input: &HeadInput<'_>) -> Option<Misfit> {
        let doubt = |attribute: &Attribute| {
            let AttributeKind::Labels { activation, multi_label, .. } = attribute.spec.kind else { return None };
            let Place { output, column, count, is_yes } =
                place(&attribute.spec, ModelOutputs::Real(input.outputs)).ok()?;
            let values = input.outputs[output].tensor.to_f32();
            let numbers = values.get(column..column + count)?;
            let misfit = match (activation, multi_label) {
                (Some(Activation::None), _) if is_yes || multi_label => {
                    not_probabilities(Numbers::of(numbers), KEY, "write `activation = \"sigmoid\"` under [head]")
                }
                (activation, true) => wrong_activation(numbers, 1, activation.unwrap_or(Activation::Sigmoid)),
                (activation, false) => wrong_activation_of_row(numbers, activation?),
            }?;
            let remedy = misfit.remedy.unwrap_or_default().replace("[head]", "[[head.attribute]]");
            Some(Misfit::at(KEY, format!("of the attribute `{}`, {}", attribute.name, misfit.problem), remedy))
        };
        self.attributes.iter().find_map(doubt)
    }

    /// A filter is not worth it: the outputs are smaller than a list of candidates.
    fn filter(&self, _: &(), _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &()) -> Suppression {
        Suppression::None
    }
}
