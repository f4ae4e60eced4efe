//! What each family's file implements, and the checks around it.

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::head::{Head, HeadError, HeadInput};
use super::shapes::Outputs;
use super::spec::Family;
use crate::backend::TensorInfo;

/// What a file of this folder implements; [`Checked`] makes a [`Head`] of it.
pub(super) trait Decoder: Send {
    /// Which output plays which part, and the sizes that decoding counts on.
    type OutputLayout;

    const FAMILY: Family;
    const READS: &'static str;

    /// Finds the outputs, declared or real, or says what is wrong with them.
    ///
    /// Of real ones every dimension that `decode` counts on is checked here.
    fn layout(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<Self::OutputLayout, String>;

    /// Reads the outputs that the layout, made of them, names.
    fn decode(&mut self, layout: &Self::OutputLayout, input: &HeadInput<'_>, out: &mut Decoded);

    /// What `decode` does, as the GPU's filter is told; `None` where it is not worth it or a shape is not known.
    fn filter(
        &self,
        layout: &Self::OutputLayout,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec>;

    /// Whether the candidates of such outputs overlap.
    fn needs_nms(_plan: &Self::OutputLayout) -> bool {
        true
    }
}

pub(super) struct Checked<D> {
    pub(super) decoder: D,
    pub(super) needs_nms: bool,
}

impl<D: Decoder> Checked<D> {
    pub(super) fn layout(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<D::OutputLayout, HeadError> {
        self.decoder.layout(outputs, input_size).map_err(|problem| HeadError::Shape {
            family: D::FAMILY.name(),
            reads: D::READS,
            problem,
            found: outputs.describe(),
        })
    }
}

impl<D: Decoder> Head for Checked<D> {
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError> {
        out.clear();
        let layout = self.layout(&input.outputs, input.input_size)?;
        self.decoder.decode(&layout, input, out);
        Ok(())
    }

    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec> {
        let layout = self.layout(&outputs, input_size).ok()?;
        let spec = self.decoder.filter(&layout, &outputs, input_size, score_threshold)?;
        spec.check().is_ok().then_some(spec)
    }

    fn needs_nms(&self) -> bool {
        self.needs_nms
    }

    fn reads(&self) -> &'static str {
        D::READS
    }
}
