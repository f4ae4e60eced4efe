//! Computes masks on the CPU.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::spec::{MAX_WORDS, Span, Tap};
use super::{Mask, MaskFrame, MaskJob, MaskParts, MaskSpec};
use crate::filter::Values;
use crate::tensor::{DType, TensorRef};

/// Computes the masks of objects from a model's outputs.
///
/// A pixel belongs to an object if the logit there is above 0. Logits are interpolated bilinearly from cells to pixels. Those of
/// a cell are
/// - the sum of the prototypes, each times its coefficient. Pixels outside the box do not count. This is Ultralytics'
///   `process_mask_native` (`retina_masks=True`). Only the cells that a box touches are computed, and only its pixels.
/// - the object's own plane, minus the threshold. This is the `PostProcess` of roboflow/rf-detr. Only the pixels around cells
///   above 0 are computed.
///
/// The memory is reused, so that nothing is allocated once it has grown to the largest box.
#[derive(Debug, Default)]
pub struct MaskAssembler {
    coefficients: Vec<f32>,
    /// The logits of the cells that a box touches.
    cells: Vec<f32>,
    /// The same refined.
    refined: Vec<f32>,
    columns: Vec<Tap>,
    /// A line of half-precision cells, and the same as f32.
    halves: Vec<f16>,
    converted: Vec<f32>,
    lines: [Line; 2],
}

/// A line of cells, interpolated to columns.
#[derive(Debug, Default)]
struct Line {
    /// Which line of cells it is.
    of: u32,
    logits: Vec<f32>,
    /// The sign that a group of 32 logits shares.
    signs: Vec<Sign>,
}

impl Line {
    /// Makes it a line of no cells, with zeros.
    fn clear(&mut self, columns: usize) {
        self.of = u32::MAX;
        self.logits.clear();
        self.logits.resize(columns, 0.0);
    }

    /// Makes `lines` those of the cells' lines `at`: lines come one below the other, so that one is usually there.
    fn hold(lines: &mut [Self; 2], at: [u32; 2], mut fill: impl FnMut(u32, &mut Self)) {
        if lines[0].of != at[0] && lines[1].of == at[0] {
            lines.swap(0, 1);
        }
        for (line, at) in lines.iter_mut().zip(at).filter(|(line, at)| line.of != *at) {
            fill(at, line);
            line.of = at;
        }
    }
}

/// The sign that 32 logits share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// All are so far above 0 that they stay so between two lines.
    Positive,
    /// None is above 0.
    Negative,
    Mixed,
}

impl Sign {
    fn of(logits: &[f32; 32]) -> Self {
        // No product of a weight of 1/2 or more is rounded to 0, and none of a weight of 0 is NaN.
        if logits.iter().fold(true, |all, &logit| all & (logit > 1e-30) & (logit <= f32::MAX)) {
            Self::Positive
        } else if logits.iter().fold(true, |all, &logit| all & (logit <= 0.0)) {
            Self::Negative
        } else {
            Self::Mixed
        }
    }
}

/// Which planes are added, as many as there are coefficients, and what is taken from the sum.
#[derive(Debug, Clone, Copy)]
struct Planes {
    first: usize,
    threshold: f32,
}

impl MaskAssembler {
    /// Makes the assembler without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the mask of each job, in their order. `outputs` are the outputs of one frame.
    ///
    /// `out` gets one mask per job; the memory of existing masks is reused. A mask is empty if its box has no pixel in the frame or
    /// its row no coefficients, and if an output is missing or too short. Returns how many are empty because there is no room for
    /// them: beyond 64 MiB of masks.
    pub fn run(
        &mut self,
        spec: &MaskSpec,
        frame: &MaskFrame,
        outputs: &[TensorRef<'_>],
        jobs: &[MaskJob],
        out: &mut Vec<Mask>,
    ) -> usize {
        let (mut words, mut lost) = (0, 0);
        out.resize_with(jobs.len(), Mask::default);
        let planes = output(&spec.planes, outputs);
        let usable = spec.check().is_ok()
            && [spec.width, spec.height] == frame.axes.map(|axis| axis.cells as usize)
            && frame.axes.iter().all(|axis| axis.count > 0);
        for (job, mask) in jobs.iter().zip(out) {
            let (Some(planes), true) = (planes, usable && spec.has_row(job.row)) else {
                mask.clear([0; 4]);
                continue;
            };
            let mut pixels = spec.pixels(frame, job);
            self.coefficients.clear();
            let from = match spec.parts {
                MaskParts::Prototypes { channels, coefficients: values } => {
                    let Some(coefficients) = output(&values, outputs) else {
                        mask.clear([0; 4]);
                        continue;
                    };
                    let start = values.offset + job.row as usize * values.row_step;
                    let each = (0..channels).map(|k| number(coefficients, start + k * values.column_step));
                    self.coefficients.extend(each);
                    Planes { first: 0, threshold: 0.0 }
                }
                MaskParts::OwnPlane { threshold, .. } => {
                    self.coefficients.push(1.0);
                    let from = Planes { first: job.row as usize, threshold };
                    pixels = self.narrowed(spec, frame, planes, from, pixels);
                    from
                }
            };
            let is_own = matches!(spec.parts, MaskParts::OwnPlane { .. });
            let needed = (pixels[2] - pixels[0]).div_ceil(32) as usize * (pixels[3] - pixels[1]) as usize;
            if words + if is_own { 0 } else { needed } > MAX_WORDS {
                mask.clear([0; 4]);
                lost += 1;
                continue;
            }
            mask.clear(pixels);
            if mask.width > 0 {
                self.assemble(spec, frame, planes, from, pixels, mask);
            }
            if is_own {
                *mask = mask.cropped();
                lost += usize::from(!mask.fits(&mut words));
            } else {
                words += needed;
            }
        }
        lost
    }

    /// Returns the pixels around the cells of a plane that are above its threshold: the others cannot belong to the object.
    fn narrowed(
        &mut self,
        spec: &MaskSpec,
        frame: &MaskFrame,
        planes: &TensorRef<'_>,
        from: Planes,
        [left, top, right, bottom]: [u32; 4],
    ) -> [u32; 4] {
        let whole = |count: usize| Span { first: 0, count: count as u32 };
        self.logits(spec, planes, from, [whole(spec.width), whole(spec.height)]);
        // NaN is not above 0, and neither is what is interpolated from it.
        let mut inside: Option<[u32; 4]> = None;
        for (y, line) in (0..).zip(self.cells.chunks_exact(spec.width)) {
            let above = |logit: &f32| *logit > 0.0;
            let (Some(first), Some(last)) = (line.iter().position(above), line.iter().rposition(above)) else {
                continue;
            };
            let [x1, y1, x2, _] = inside.unwrap_or([u32::MAX, y, 0, y]);
            inside = Some([x1.min(first as u32), y1, x2.max(last as u32), y]);
        }
        let Some([x1, y1, x2, y2]) = inside else { return [0; 4] };
        let touching = |axis: usize, [low, high]: [u32; 2], range: std::ops::Range<u32>| {
            let touches = |pixel: &u32| {
                let Span { first, count } = frame.cells(axis, *pixel, *pixel).1;
                first <= high && first + count > low
            };
            let first = range.clone().find(touches);
            let last = range.rev().find(touches);
            first.zip(last)
        };
        match (touching(0, [x1, x2], left..right), touching(1, [y1, y2], top..bottom)) {
            (Some((x1, x2)), Some((y1, y2))) => {
                // Whole words from the left edge of what the model saw, as the GPU has them.
                let [x1, x2] = [(x1 - left) / 32 * 32, (x2 - left) / 32 * 32 + 32];
                [left + x1, y1, (left + x2).min(right), y2 + 1]
            }
            _ => [0; 4],
        }
    }

    fn assemble(
        &mut self,
        spec: &MaskSpec,
        frame: &MaskFrame,
        planes: &TensorRef<'_>,
        from: Planes,
        [left, top, right, bottom]: [u32; 4],
        mask: &mut Mask,
    ) {
        let ([x, y], factor) = (frame.axes, frame.factor);
        let spans = [frame.cells(0, left, right - 1), frame.cells(1, top, bottom - 1)];
        let (refined, cells) = (spans.map(|(refined, _)| refined), spans.map(|(_, cells)| cells));
        self.logits(spec, planes, from, cells);
        if factor > 1 {
            self.refine(frame, cells, refined);
        }
        let field = if factor == 1 { &self.cells } else { &self.refined };
        let width = refined[0].count as usize;
        self.columns.clear();
        self.columns.extend((left..right).map(|pixel| {
            let Tap { at, weight } = x.tap(pixel);
            Tap { at: at.map(|at| at - refined[0].first), weight }
        }));
        // Zeros after the last column make the bits beyond it 0.
        let per_row = mask.words_per_row();
        self.lines.iter_mut().for_each(|line| line.clear(per_row * 32));
        for (row, words) in mask.words.chunks_exact_mut(per_row).enumerate() {
            let Tap { at, weight } = y.tap(top + row as u32);
            Line::hold(&mut self.lines, at, |at, line| {
                let start = (at - refined[1].first) as usize * width;
                interpolate(&field[start..start + width], &self.columns, &mut line.logits);
                line.signs.clear();
                line.signs.extend(line.logits.as_chunks::<32>().0.iter().map(Sign::of));
            });
            let [upper, lower] = &self.lines;
            let signs = upper.signs.iter().zip(&lower.signs);
            let (upper, lower) = (upper.logits.as_chunks::<32>().0, lower.logits.as_chunks::<32>().0);
            for (((word, upper), lower), signs) in words.iter_mut().zip(upper).zip(lower).zip(signs) {
                *word = match signs {
                    (Sign::Positive, Sign::Positive) => !0,
                    (Sign::Negative, Sign::Negative) => 0,
                    _ => positive(upper, lower, weight),
                };
            }
        }
    }

    /// Computes the logits of some cells: the products are added in the order of the channels.
    fn logits(&mut self, spec: &MaskSpec, planes: &TensorRef<'_>, from: Planes, [columns, lines]: [Span; 2]) {
        let Values { offset, row_step, column_step, .. } = spec.planes;
        let offset = offset + from.first * column_step;
        let width = columns.count as usize;
        self.cells.clear();
        self.cells.resize(width * lines.count as usize, 0.0 - from.threshold);
        for (line, sums) in self.cells.chunks_exact_mut(width).enumerate() {
            let cell = (lines.first as usize + line) * spec.width + columns.first as usize;
            for (channel, &coefficient) in self.coefficients.iter().enumerate() {
                let start = offset + cell * row_step + channel * column_step;
                if row_step != 1 || !matches!(planes.dtype(), DType::F32 | DType::F16) {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum += coefficient * number(planes, start + i * row_step);
                    }
                } else if planes.dtype() == DType::F32 {
                    let bytes = planes.bytes()[4 * start..4 * (start + width)].as_chunks::<4>().0;
                    for (sum, &bytes) in sums.iter_mut().zip(bytes) {
                        *sum += coefficient * f32::from_ne_bytes(bytes);
                    }
                } else {
                    let bytes = planes.bytes()[2 * start..2 * (start + width)].as_chunks::<2>().0;
                    // `half` converts eight at a time if the processor can.
                    self.halves.clear();
                    self.halves.extend(bytes.iter().map(|&bytes| f16::from_ne_bytes(bytes)));
                    self.converted.resize(width, 0.0);
                    self.halves.convert_to_f32_slice(&mut self.converted);
                    for (sum, number) in sums.iter_mut().zip(&self.converted) {
                        *sum += coefficient * number;
                    }
                }
            }
        }
    }

    /// Interpolates the cells to `refined`, the refined cells that a box touches.
    fn refine(&mut self, frame: &MaskFrame, cells: [Span; 2], refined: [Span; 2]) {
        let (width, cell_width) = (refined[0].count as usize, cells[0].count as usize);
        let tap = |i: usize, index: u32| {
            let Tap { at, weight } = frame.axes[i].refined(refined[i].first + index, frame.factor);
            Tap { at: at.map(|at| at - cells[i].first), weight }
        };
        self.columns.clear();
        self.columns.extend((0..refined[0].count).map(|index| tap(0, index)));
        self.refined.clear();
        self.refined.resize(width * refined[1].count as usize, 0.0);
        self.lines.iter_mut().for_each(|line| line.clear(width));
        for (index, out) in self.refined.chunks_exact_mut(width).enumerate() {
            let Tap { at, weight } = tap(1, index as u32);
            Line::hold(&mut self.lines, at, |at, line| {
                let start = at as usize * cell_width;
                interpolate(&self.cells[start..start + cell_width], &self.columns, &mut line.logits);
            });
            for ((out, upper), lower) in out.iter_mut().zip(&self.lines[0].logits).zip(&self.lines[1].logits) {
                *out = upper * weight[0] + lower * weight[1];
            }
        }
    }
}

/// Interpolates a line of cells to the columns of `taps`: PyTorch sums along a line first, then over two lines.
fn interpolate(cells: &[f32], taps: &[Tap], out: &mut [f32]) {
    for (out, Tap { at: [first, second], weight }) in out.iter_mut().zip(taps) {
        *out = cells[*first as usize] * weight[0] + cells[*second as usize] * weight[1];
    }
}

/// Returns a bit for each column whose logit between two lines is above 0.
fn positive(upper: &[f32; 32], lower: &[f32; 32], weight: [f32; 2]) -> u32 {
    let mut word = 0;
    for i in 0..32 {
        word |= u32::from(upper[i] * weight[0] + lower[i] * weight[1] > 0.0) << i;
    }
    word
}

/// Returns the output with the values, if it has a complete frame.
fn output<'a, 'b>(values: &Values, outputs: &'a [TensorRef<'b>]) -> Option<&'a TensorRef<'b>> {
    outputs.get(values.output).filter(|tensor| tensor.len() >= values.frame_len)
}

/// Returns a number of an output, if it is there.
fn number(tensor: &TensorRef<'_>, index: usize) -> f32 {
    fn element<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
        bytes.as_chunks::<N>().0[index]
    }
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DType::F32 => f32::from_ne_bytes(element(bytes, index)),
        DType::F16 => f16::from_ne_bytes(element(bytes, index)).to_f32(),
        DType::U8 | DType::Bool => f32::from(bytes[index]),
        DType::I8 => f32::from(i8::from_ne_bytes(element(bytes, index))),
        DType::I32 => i32::from_ne_bytes(element(bytes, index)) as f32,
        DType::I64 => i64::from_ne_bytes(element(bytes, index)) as f32,
    }
}
