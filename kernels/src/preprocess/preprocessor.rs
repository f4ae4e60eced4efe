//! Preprocessing on the CPU.

use super::axis::PlanKey;
use super::error::PreprocessError;
use super::number::Number;
use super::plan::{KEPT_PLANS, PreprocessPlan};
use super::rows::Rows;
use super::separable::{Filter, FilterPlan, Job, Linear, OfBytes, OfFloats, Pillow};
use super::simd::Isa;
use super::spec::{ChannelOrder, PreprocessSpec, Sampling};
use super::store::TensorWriter;
use super::taps::{Sums, TapPlan};
use super::turned::Source;
use crate::frame::FrameView;
use crate::placement::Mapping;
use crate::tensor::TensorMut;

/// Turns frames into one model's input.
///
/// Tables are made for the first frame of a size and orientation and kept for the last few, so that several cameras can take turns; after
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
            Sampling::Opencv if spec.is_plain() => Sampler::Opencv(Resampler::new(isa)),
            Sampling::Exact if spec.is_plain() => Sampler::Exact(Resampler::new(isa)),
            Sampling::OpencvWarp | Sampling::OpencvWarpAffine => Sampler::Opencv(Resampler::new(isa)),
            _ => Sampler::Taps(Box::new(TapResampler::new(isa))),
        };
        Self { sampler, writer: TensorWriter::new(isa, spec) }
    }

    /// Makes one that always samples by tables of taps.
    #[cfg(test)]
    pub(super) fn by_taps(spec: PreprocessSpec) -> Self {
        let isa = Isa::detect();
        Self { sampler: Sampler::Taps(Box::new(TapResampler::new(isa))), writer: TensorWriter::new(isa, spec) }
    }

    /// Returns the spec.
    pub fn spec(&self) -> &PreprocessSpec {
        self.writer.spec()
    }

    /// Writes `frame` into `out`, whose shape is [`PreprocessSpec::shape`] with any number of leading 1s. Returns the mapping
    /// from the tensor's pixels back to those of the picture that the frame's [`view`](FrameView::view) shows.
    ///
    /// Reads only the rows and columns of the frame that are sampled, and writes the tensor once.
    pub fn run(&mut self, frame: &FrameView<'_>, out: &mut TensorMut<'_>) -> Result<Mapping, PreprocessError> {
        self.check_tensor(out)?;
        if !frame.is_on_host() {
            return Err(PreprocessError::NotOnHost);
        }
        let mapping = match &mut self.sampler {
            Sampler::Opencv(resampler) => resampler.run(&mut self.writer, frame, out.bytes()),
            Sampler::Exact(resampler) => resampler.run(&mut self.writer, frame, out.bytes()),
            Sampler::Taps(resampler) => resampler.run(&mut self.writer, frame, out.bytes()),
        };
        Ok(mapping.of_view(frame.view()))
    }

    /// Returns how many plans there are, and the address of each.
    #[cfg(test)]
    pub(super) fn plans(&self) -> Vec<*const u32> {
        match &self.sampler {
            Sampler::Opencv(resampler) => resampler.plans.iter().map(|plan| plan.columns.low.as_ptr()).collect(),
            Sampler::Exact(resampler) => resampler.plans.iter().map(|plan| plan.columns.low.as_ptr()).collect(),
            Sampler::Taps(_) => Vec::new(),
        }
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

/// How a spec's frames are sampled.
enum Sampler {
    /// Two taps or one, with padding only in OpenCV's warps: the same steps with different numbers.
    Opencv(Resampler<u16>),
    Exact(Resampler<f32>),
    /// Any number of taps.
    Taps(Box<TapResampler>),
}

/// The tables and row buffers of one sampling.
struct Resampler<N> {
    isa: Isa,
    /// The plans for the last frame sizes; the most recently used is last.
    plans: Vec<PreprocessPlan<N>>,
    rows: Rows<N>,
}

impl<N: Number> Resampler<N> {
    fn new(isa: Isa) -> Self {
        Self { isa, plans: Vec::new(), rows: Rows::default() }
    }

    /// Makes a plan, and allocates, only for a frame size that has none.
    fn run(&mut self, writer: &mut TensorWriter, frame: &FrameView<'_>, tensor: &mut [u8]) -> Mapping {
        let key = PlanKey::of(frame);
        let found = self.plans.iter().position(|plan| plan.key == key);
        let plan = latest(&mut self.plans, found, || PreprocessPlan::new(writer.spec(), key));
        let source = Source::new(self.isa, frame, writer.spec().order == ChannelOrder::Grey);
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

/// Returns the plan that was `found`, otherwise a new one that replaces the least recently used one. It moves to the end of the
/// list.
fn latest<P>(plans: &mut Vec<P>, found: Option<usize>, make: impl FnOnce() -> P) -> &P {
    match found {
        Some(found) => plans[found..].rotate_left(1),
        None => {
            if plans.len() == KEPT_PLANS {
                plans.remove(0);
            }
            plans.push(make());
        }
    }
    &plans[plans.len() - 1]
}

/// The tables and row buffers of samplings with any number of taps.
struct TapResampler {
    plans: Vec<SizePlan>,
    pillow: Filter<Pillow>,
    linear: Filter<Linear>,
    of_bytes: Filter<OfBytes>,
    of_floats: Filter<OfFloats>,
}

/// The tables of a frame size and orientation, and the rows and columns to read for them.
struct SizePlan {
    key: PlanKey,
    taps: TapPlan,
    read: Read,
}

enum Read {
    Bytes(FilterPlan<u16>),
    Floats(FilterPlan<f32>),
}

impl TapResampler {
    fn new(isa: Isa) -> Self {
        Self {
            plans: Vec::new(),
            pillow: Filter::new(isa),
            linear: Filter::new(isa),
            of_bytes: Filter::new(isa),
            of_floats: Filter::new(isa),
        }
    }

    /// Makes a plan, and allocates, only for a frame size that has none.
    fn run(&mut self, writer: &mut TensorWriter, frame: &FrameView<'_>, tensor: &mut [u8]) -> Mapping {
        let key = PlanKey::of(frame);
        let found = self.plans.iter().position(|plan| plan.key == key);
        let SizePlan { taps, read, .. } = latest(&mut self.plans, found, || SizePlan::new(writer.spec(), key));
        let placed = taps.mapping.placed().map(|pixels| pixels as usize);
        let luma = writer.spec().order == ChannelOrder::Grey;
        writer.fill_pads(tensor, placed);
        match (&taps.sums, read) {
            (Sums::Pillow(tables), Read::Bytes(plan)) => {
                self.pillow.run(&Job { frame, plan, tables, arithmetic: Pillow, luma, placed }, writer, tensor);
            }
            (Sums::Linear(tables), Read::Bytes(plan)) => {
                self.linear.run(&Job { frame, plan, tables, arithmetic: Linear, luma, placed }, writer, tensor);
            }
            (&Sums::Float(ref tables, finish), Read::Bytes(plan)) => {
                let arithmetic = OfBytes(finish);
                self.of_bytes.run(&Job { frame, plan, tables, arithmetic, luma, placed }, writer, tensor);
            }
            (Sums::Float(tables, _), Read::Floats(plan)) => {
                self.of_floats.run(&Job { frame, plan, tables, arithmetic: OfFloats, luma, placed }, writer, tensor);
            }
            _ => {}
        }
        taps.mapping
    }
}

impl SizePlan {
    fn new(spec: &PreprocessSpec, key: PlanKey) -> Self {
        let taps = TapPlan::new(spec, key.size);
        let read = match &taps.sums {
            Sums::Pillow(tables) | Sums::Linear(tables) => Read::Bytes(FilterPlan::new(tables, key)),
            Sums::Float(tables, _) if spec.sampling == Sampling::Exact => Read::Floats(FilterPlan::new(tables, key)),
            Sums::Float(tables, _) => Read::Bytes(FilterPlan::new(tables, key)),
        };
        Self { key, taps, read }
    }
}
