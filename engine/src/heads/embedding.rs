//! Decodes a vector of the whole frame, for comparison with other frames.
//!
//! Reads one output `[1, D]` (or `[1, D, 1, 1]`), f32 or f16, and divides it by its length unless the card says otherwise. A vector
//! with a number that is not finite, or that has no length, is left out.

use half::f16;
use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::ModelOutputs;
use super::raw_numbers::wrong_activation_of_row;
use super::spec::Activation;

/// More numbers than any embedding has, but few enough for every frame's message.
const MAX_LENGTH: usize = 16_384;

pub(super) struct Embedding {
    /// The number of names under `[classes]`, which must be 0.
    pub(super) class_count: usize,
    pub(super) output: Option<String>,
    pub(super) normalize: bool,
}

/// Writes the embedding of `values` to `out`; leaves it empty if there is none.
fn embed(values: &[f32], normalize: bool, out: &mut Vec<f32>) {
    out.clear();
    // Squares of f32 are finite in f64.
    let length = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
    let divisor = if normalize { length } else { 1.0 };
    if !length.is_finite() || divisor <= 0.0 {
        return;
    }
    out.extend(values.iter().map(|&v| (f64::from(v) / divisor) as f32));
    if !out.iter().all(|&v| f16::from_f32(v).is_finite()) {
        out.clear();
    }
}

impl Decoder for Embedding {
    /// The index of the output.
    type Layout = usize;

    fn reads(&self) -> &'static str {
        "one output [1, D], the vector"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<usize, Misfit> {
        no_classes(self.class_count, "an embedding")?;
        outputs.named(self.output.as_deref(), "no output is one row of numbers", |index| {
            match outputs.shape(index).vector()? {
                // One number is not a vector, unless the card names it.
                Some(0..=1) => Some(Err("has too few numbers for an embedding".to_owned())),
                Some(width) if width > MAX_LENGTH => {
                    Some(Err(format!("has {width} numbers, and an embedding has at most {MAX_LENGTH}")))
                }
                _ => Some(Ok(index)),
            }
        })
    }

    fn decode(&mut self, layout: &usize, input: &HeadInput<'_>, out: &mut Decoded) {
        embed(&input.outputs[*layout].tensor.to_f32(), self.normalize, &mut out.values.embedding);
    }

    fn doubt(&self, layout: &usize, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[*layout].tensor.to_f32();
        wrong_activation_of_row(&values, Activation::Softmax)?;
        let problem = "its numbers add up to 1, so they are the scores of a classifier";
        Some(Misfit::at(FAMILY, problem, "write `family = \"classifier\"` under [head], or name another `output`"))
    }

    /// A filter is not worth it: the vector is copied whole.
    fn filter(&self, _: &usize, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &usize) -> Suppression {
        Suppression::None
    }
}

/// Rejects class names for a result that has no classes.
pub(super) fn no_classes(class_count: usize, what: &str) -> Result<(), Misfit> {
    if class_count == 0 {
        return Ok(());
    }
    Err(Misfit::at("classes", format!("the card has [classes], and {what} has none"), "remove [classes]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedded(values: &[f32], normalize: bool) -> Vec<f32> {
        let mut out = vec![7.0];
        embed(values, normalize, &mut out);
        out
    }

    #[test]
    fn an_embedding_has_length_1_or_what_the_model_gives() {
        assert_eq!(embedded(&[3.0, -4.0], true), [0.6, -0.8]);
        assert_eq!(embedded(&[3.0, -4.0], false), [3.0, -4.0]);
        // Squares beyond f32.
        assert_eq!(embedded(&[3e38, 0.0, -3e38], true), [0.5_f32.sqrt(), 0.0, -(0.5_f32.sqrt())]);
        assert_eq!(embedded(&[1e-30, 0.0], true), [1.0, 0.0]);
    }

    #[test]
    fn an_embedding_that_cannot_be_written_is_left_out() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(embedded(&[1.0, wrong], true).is_empty());
            assert!(embedded(&[1.0, wrong], false).is_empty());
        }
        assert!(embedded(&[0.0; 4], true).is_empty());
        assert_eq!(embedded(&[0.0; 4], false), [0.0; 4]);
        assert!(embedded(&[], true).is_empty());
        // The largest f16 is 65504.
        assert_eq!(embedded(&[65504.0], false), [65504.0]);
        assert!(embedded(&[65520.0, 1.0], false).is_empty());
    }
}
