//! Decodes one score per class for the whole frame.
//!
//! Reads one output `[1, classes]` (or `[1, classes, 1, 1]`), f32 or f16: logits or probabilities. Without an `activation` in
//! the card, numbers between 0 and 1 that sum to 1 are probabilities, and anything else goes through the softmax. Every class
//! whose score passes the threshold is a candidate without a box, best first.
//!
//! Source: timm and torchvision (logits), Ultralytics (`Classify` exports probabilities).

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;

use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, class_columns, classes_with_background};
use super::raw_numbers::wrong_activation_of_row;
use super::rows::{class_of, sigmoid, softmax};
use super::spec::{Activation, Background};

pub(super) struct Classifier {
    pub(super) class_count: usize,
    pub(super) activation: Option<Activation>,
    pub(super) background: Background,
    /// The scores; the memory is reused.
    pub(super) scores: Vec<f32>,
}

/// Whether the numbers are already probabilities.
pub(super) fn are_probabilities(values: &[f32]) -> bool {
    // f16 probabilities of many classes sum to 1 within a hundredth.
    values.iter().all(|v| (0.0..=1.0001).contains(v)) && (values.iter().sum::<f32>() - 1.0).abs() < 0.02
}

impl Decoder for Classifier {
    /// The index of the output.
    type Layout = usize;

    fn reads(&self) -> &'static str {
        "one output [1, classes]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<usize, Misfit> {
        outputs.first("no output is one row of classes", |index| {
            let width = outputs.shape(index).vector()?;
            Some(classes_with_background(width, self.background, self.class_count).map(|_| index))
        })
    }

    fn decode(&mut self, layout: &usize, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[*layout].tensor.to_f32();
        let activation = self
            .activation
            .unwrap_or_else(|| if are_probabilities(&values) { Activation::None } else { Activation::Softmax });
        self.scores.clear();
        match activation {
            Activation::None => self.scores.extend_from_slice(&values),
            Activation::Sigmoid => self.scores.extend(values.iter().map(|&x| sigmoid(x))),
            Activation::Softmax => softmax(&values, &mut self.scores),
        }
        out.boxless = true;
        for column in class_columns(self.background, self.scores.len()) {
            let score = self.scores[column];
            if score >= input.score_threshold
                && let Some(class) = class_of(column as u32, self.background, 0)
            {
                out.push(column, class, score, [0.0; 4]);
            }
        }
        out.candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    }

    fn doubt(&self, layout: &usize, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[*layout].tensor.to_f32();
        wrong_activation_of_row(&values, self.activation?)
    }

    /// A filter is not worth it: a row of classes is smaller than a list of candidates.
    fn filter(&self, _: &usize, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &usize) -> Suppression {
        Suppression::None
    }
}
