//! The interface that each family's file implements, and the checks around it.

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::head::{Head, HeadError, HeadInput};
use super::shapes::Outputs;
use super::spec::Family;
use crate::backend::TensorInfo;

/// What each family's file implements; [`Checked`] makes a [`Head`] of it.
pub(super) trait Decoder: Send {
    /// Which output has which role, and the sizes that decoding relies on.
    type OutputLayout;

    const FAMILY: Family;
    const READS: &'static str;

    /// Finds the outputs, declared or real. For real outputs this checks every dimension that `decode` relies on.
    ///
    /// The error is text: [`Checked`] puts it into [`HeadError::Shape`].
    fn layout(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<Self::OutputLayout, String>;

    /// Decodes the outputs that `layout`, which was made of them, names.
    fn decode(&mut self, layout: &Self::OutputLayout, input: &HeadInput<'_>, out: &mut Decoded);

    /// Describes `decode` to the GPU's filter; `None` if it is not worth it or a shape is unknown.
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
