//! Preprocessing on the CPU.

use super::error::PreprocessError;
use super::number::Number;
use super::plan::PreprocessPlan;
use super::rows::{RowSource, Rows};
use super::simd::Isa;
use super::spec::{ChannelOrder, PreprocessSpec, Sampling};
use super::store::TensorWriter;
use crate::frame::FrameView;
use crate::letterbox::Mapping;
use crate::tensor::TensorMut;

/// Turns frames into one model's input.
///
/// Tables are made for the first frame of a size and kept for the last few sizes, so that several cameras can take turns; after
/// that nothing is allocated. Runs on one thread; its working memory is a handful of rows.
pub struct Preprocessor {
    sampler: Sampler,
    writer: TensorWriter,
}

impl Preprocessor {
    /// Checks a spec and makes its preprocessor.
    pub fn new(spec: PreprocessSpec) -> Result<Self, PreprocessError> {
        spec.check()?;
        Ok(Self::with_isa(spec, Isa::detect()))
    }

    pub(super) fn with_isa(spec: PreprocessSpec, isa: Isa) -> Self {
        let sampler = match spec.sampling {
            Sampling::Opencv => Sampler::Opencv(Resampler::new(isa)),
            Sampling::Exact => Sampler::Exact(Resampler::new(isa)),
        };
        Self { sampler, writer: TensorWriter::new(isa, spec) }
    }

    /// Returns the spec.
    pub fn spec(&self) -> &PreprocessSpec {
        self.writer.spec()
    }

    /// Writes `frame` into `out`, whose shape is [`PreprocessSpec::shape`] with any number of leading 1s. Returns the mapping
    /// from the tensor's pixels back to the frame's.
    ///
    /// Reads only the rows and columns of the frame that are sampled, and writes the tensor once.
    pub fn run(&mut self, frame: &FrameView<'_>, out: &mut TensorMut<'_>) -> Result<Mapping, PreprocessError> {
        self.check_tensor(out)?;
        Ok(match &mut self.sampler {
            Sampler::Opencv(resampler) => resampler.run(&mut self.writer, frame, out.bytes()),
            Sampler::Exact(resampler) => resampler.run(&mut self.writer, frame, out.bytes()),
        })
    }

    fn check_tensor(&self, out: &TensorMut<'_>) -> Result<(), PreprocessError> {
        let (spec, found) = (self.spec(), out.dtype());
        let dtype = spec.dtype;
        if found != dtype {
            let text = format!("the input tensor holds {found}, but the preprocessor was made for {dtype}");
            return Err(PreprocessError::Invalid(text));
        }
        let expected = spec.shape();
        match out.shape().split_last_chunk::<3>() {
            Some((leading, found)) if *found == expected && leading.iter().all(|&dim| dim == 1) => Ok(()),
            _ => Err(PreprocessError::Invalid(format!(
                "the input tensor is {:?}, but the preprocessor writes {expected:?}: the model and its card disagree",
                out.shape()
            ))),
        }
    }
}

/// The two samplings: the same steps with different numbers.
enum Sampler {
    Opencv(Resampler<u16>),
    Exact(Resampler<f32>),
}

/// How many frame sizes keep their tables; the cameras of one lane rarely have more.
const KEPT_PLANS: usize = 8;

/// The tables and row buffers of one sampling.
struct Resampler<N> {
    isa: Isa,
    /// The plans for the last frame sizes; the most recently used is last.
    plans: Vec<PreprocessPlan<N>>,
    rows: Rows<N>,
}

impl<N: Number> Resampler<N> {
    fn new(isa: Isa) -> Self {
        Self { isa, plans: Vec::with_capacity(KEPT_PLANS), rows: Rows::default() }
    }

    /// Makes a plan, and allocates, only for a frame size that has none.
    fn run(&mut self, writer: &mut TensorWriter, frame: &FrameView<'_>, tensor: &mut [u8]) -> Mapping {
        let size = (frame.width(), frame.height());
        match self.plans.iter().position(|plan| plan.mapping.source() == size) {
            Some(found) => self.plans[found..].rotate_left(1),
            None => {
                if self.plans.len() == KEPT_PLANS {
                    self.plans.remove(0);
                }
                self.plans.push(PreprocessPlan::new(writer.spec(), size));
            }
        }
        let plan = &self.plans[self.plans.len() - 1];
        let source = RowSource::new(self.isa, frame, writer.spec().order == ChannelOrder::Grey);
        self.rows.start(plan, &source);

        let placed = plan.mapping.placed().map(|pixels| pixels as usize);
        writer.fill_pads(tensor, placed);
        let [x, y, width, height] = placed;
        for i in 0..height {
            let pair = self.rows.pair(plan, &source, i);
            writer.store(&pair, [x, y + i, width], tensor);
        }
        plan.mapping
    }
}
