//! Preprocessing on the CPU.

use super::error::PreprocessError;
use super::plan::PlanCache;
use super::rows::{Rows, Source};
use super::simd::Isa;
use super::spec::{ChannelOrder, PreprocessSpec, Sampling};
use super::store::Writer;
use super::yuv::ToRgb;
use crate::frame::FrameView;
use crate::letterbox::Mapping;
use crate::tensor::TensorMut;

/// Turns frames into one model's input.
///
/// Tables are made for the first frame of a size and kept for the last few sizes, so that several cameras can take turns; after
/// that nothing is allocated. Runs on one thread; its working memory is a handful of rows.
pub struct Preprocessor {
    spec: PreprocessSpec,
    sampler: Sampler,
    writer: Writer,
}

impl Preprocessor {
    /// Checks a spec and makes its preprocessor.
    pub fn new(spec: PreprocessSpec) -> Result<Self, PreprocessError> {
        spec.check()?;
        Ok(Self::with_isa(spec, Isa::detect()))
    }

    pub(super) fn with_isa(spec: PreprocessSpec, isa: Isa) -> Self {
        let sampler = match spec.sampling {
            Sampling::Opencv => Sampler::Opencv(Pipeline::new(isa)),
            Sampling::Exact => Sampler::Exact(Pipeline::new(isa)),
        };
        let writer = Writer::new(isa, &spec);
        Self { spec, sampler, writer }
    }

    /// Returns the spec.
    pub fn spec(&self) -> &PreprocessSpec {
        &self.spec
    }

    /// Writes `frame` into `out`, whose shape is [`PreprocessSpec::shape`] with any number of leading 1s. Returns the mapping
    /// from the tensor's pixels back to the frame's.
    ///
    /// Reads only the rows and columns of the frame that are sampled, and writes the tensor once.
    pub fn run(&mut self, frame: &FrameView<'_>, out: &mut TensorMut<'_>) -> Result<Mapping, PreprocessError> {
        self.check_tensor(out)?;
        Ok(match &mut self.sampler {
            Sampler::Opencv(pipeline) => pipeline.run(&self.spec, &mut self.writer, frame, out.bytes()),
            Sampler::Exact(pipeline) => pipeline.run(&self.spec, &mut self.writer, frame, out.bytes()),
        })
    }

    fn check_tensor(&self, out: &TensorMut<'_>) -> Result<(), PreprocessError> {
        if out.dtype() != self.spec.dtype {
            return Err(PreprocessError::TensorType { expected: self.spec.dtype, found: out.dtype() });
        }
        let expected = self.spec.shape();
        match out.shape().split_last_chunk::<3>() {
            Some((leading, found)) if *found == expected && leading.iter().all(|&dim| dim == 1) => Ok(()),
            _ => Err(PreprocessError::TensorShape { expected: expected.to_vec(), found: out.shape().to_vec() }),
        }
    }
}

/// The two samplings: the same steps with different numbers.
enum Sampler {
    Opencv(Pipeline<u16>),
    Exact(Pipeline<f32>),
}

/// The tables and row buffers of one sampling.
struct Pipeline<N> {
    isa: Isa,
    plans: PlanCache<N>,
    rows: Rows<N>,
}

impl<N: ToRgb> Pipeline<N> {
    fn new(isa: Isa) -> Self {
        Self { isa, plans: PlanCache::new(), rows: Rows::default() }
    }

    fn run(&mut self, spec: &PreprocessSpec, writer: &mut Writer, frame: &FrameView<'_>, tensor: &mut [u8]) -> Mapping {
        let plan = self.plans.get(spec, (frame.width(), frame.height()));
        let source = Source::new(self.isa, frame, spec.order == ChannelOrder::Grey);
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
