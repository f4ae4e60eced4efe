//! Same pixels: compares the CUDA preprocess with the CPU reference, for every format, fit, order, layout, type and sampling, on
//! random frames of odd sizes with padded pitches, in the GPU's memory, in pinned memory and in host memory, half of them cropped,
//! turned and mirrored.

use std::fmt;
use std::sync::Arc;

use visiond_kernels::buffer::{Memory, MemoryKind, UnifiedBuffer};
use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange, GreyLevels, YuvArithmetic};
use visiond_kernels::cuda::{CudaError, CudaStream, Device, DeviceBuffer, Graph};
use visiond_kernels::frame::{FrameLayout, FrameView, PixelFormat};
use visiond_kernels::placement::Fit;
use visiond_kernels::preprocess::cuda::CudaPreprocessor;
use visiond_kernels::preprocess::{ChannelOrder, PreprocessSpec, Preprocessor, Sampling, TensorLayout};
use visiond_kernels::tensor::{DType, TensorMut, TensorRef};
use visiond_kernels::view::{Orientation, View};

use crate::measure::Noise;
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Same pixels";

/// Bytes around the tensors that must not be written.
const GUARD: usize = 4096;
const UNWRITTEN: u8 = 0xa5;

const DTYPES: [DType; 5] = [DType::F32, DType::F16, DType::U8, DType::I8, DType::I32];

/// The memory of a frame.
#[derive(Clone, Copy)]
enum Place {
    Device,
    Mapped,
    Host,
}

/// The comparison for one type and sampling.
#[derive(Default, Clone, Copy)]
struct Seen {
    /// The largest difference, relative to full scale.
    worst: f32,
    /// Tensors, and those that are equal bit for bit.
    tensors: usize,
    equal: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1e}; {} of {} tensors equal bit for bit", self.worst, self.equal, self.tensors)
    }
}

/// A batch of random frames.
struct Batch {
    layouts: Vec<(FrameLayout, Place, View)>,
    host: Vec<Vec<u8>>,
    mapped: Vec<UnifiedBuffer>,
    device: Vec<DeviceBuffer>,
}

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    let stream = CudaStream::new(&device)?;
    let quick = setup.arguments.quick;
    let mut noise = Noise::new(1);
    let fits =
        [Fit::Letterbox, Fit::LetterboxTopLeft, Fit::Stretch, Fit::Crop { fraction: 1.0 }, Fit::Crop { fraction: 0.4 }];
    let orders = [ChannelOrder::Rgb, ChannelOrder::Bgr, ChannelOrder::Grey];
    let mut seen = [[Seen::default(); Sampling::ALL.len()]; DTYPES.len()];
    let mut round = 0;
    for fit in fits {
        for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
            for order in orders {
                round += 1;
                // The cases for the sanitizer: each type and sampling with some fits, orders and layouts.
                if quick && round % 7 != 0 {
                    continue;
                }
                for (dtype, seen) in DTYPES.into_iter().zip(&mut seen) {
                    for ((_, sampling), seen) in Sampling::ALL.into_iter().zip(seen) {
                        let fit = if sampling.only_warps() { Fit::Warp } else { fit };
                        let mut spec = spec(&mut noise, fit, order, layout, dtype, sampling);
                        spec.placement.pad_first = round % 3 == 0;
                        let sizes = if round % 10 == 0 && !quick { 1920 } else { 200 };
                        let batches = [sizes, sizes].map(|side| Batch::new(&device, &stream, &mut noise, &spec, side));
                        let [first, second] = batches;
                        compare(&device, &stream, &spec, [&first?, &second?], seen)?;
                    }
                }
            }
        }
    }
    for (dtype, seen) in DTYPES.into_iter().zip(seen) {
        for ((name, _), seen) in Sampling::ALL.into_iter().zip(seen) {
            let (wanted, allowed) = match dtype {
                DType::F32 | DType::F16 => ("at most 2e-3 of full scale", 2e-3),
                _ => ("at most 1/255 of full scale", 1.0 / 255.0),
            };
            report.figure(ROW, &format!("{dtype}, {name}"), wanted, seen, seen.worst <= allowed);
        }
    }
    Ok(())
}

fn spec(
    noise: &mut Noise,
    fit: Fit,
    order: ChannelOrder,
    layout: TensorLayout,
    dtype: DType,
    sampling: Sampling,
) -> PreprocessSpec {
    let side = |noise: &mut Noise| 1 + below(noise, 160);
    let width = if below(noise, 2) == 0 { 4 * side(noise) } else { side(noise) };
    let plain = below(noise, 2) == 0;
    PreprocessSpec {
        width,
        height: side(noise),
        placement: fit.into(),
        sampling,
        pad: below(noise, 256) as f32,
        order,
        layout,
        dtype,
        scale: match dtype {
            DType::U8 | DType::I32 => 1.0,
            DType::I8 => 0.5,
            _ => 1.0 / 255.0,
        },
        mean: if plain { [0.0; 3] } else { [0.485, 0.456, 0.406] },
        std: if plain { [1.0; 3] } else { [0.229, 0.224, 0.225] },
    }
}

fn below(noise: &mut Noise, limit: u32) -> u32 {
    ((noise.number() >> 20) % u64::from(limit)) as u32
}

impl Batch {
    /// Makes a frame of every format, with sides of up to `side`; some are whole multiples of the tensor's.
    fn new(
        device: &Arc<Device>,
        stream: &CudaStream,
        noise: &mut Noise,
        spec: &PreprocessSpec,
        side: u32,
    ) -> Result<Self, Failure> {
        let mut batch = Self { layouts: Vec::new(), host: Vec::new(), mapped: Vec::new(), device: Vec::new() };
        let memory = Memory::on(device, MemoryKind::Mapped)?;
        for format in PixelFormat::all() {
            let (width, height) = match below(noise, 3) {
                0 => (spec.width * 3, spec.height * 3),
                _ => (1 + below(noise, side), 1 + below(noise, side * 9 / 16)),
            };
            let color = ColorDescription {
                matrix: [ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020][below(noise, 3) as usize],
                range: [ColorRange::Limited, ColorRange::Full][below(noise, 2) as usize],
                arithmetic: [YuvArithmetic::Nearest, YuvArithmetic::Ffmpeg][below(noise, 2) as usize],
                levels: [None, GreyLevels::new(21_000, 43_210)][below(noise, 2) as usize],
            };
            // Half of them are aligned, as drivers make them.
            let step = if below(noise, 2) == 0 { 1 } else { 16 };
            let pitches: Vec<usize> = (0..format.plane_count())
                .map(|plane| format.row_bytes(plane, width).next_multiple_of(step) + below(noise, 3) as usize * step)
                .collect();
            let layout = FrameLayout::with_pitches(format, width, height, &pitches, color)?;
            let mut bytes = vec![0; layout.size_bytes()];
            noise.fill(&mut bytes);
            let place = [Place::Device, Place::Mapped, Place::Host][below(noise, 3) as usize];
            let (mut mapped, device_memory) = match place {
                Place::Device => (memory.allocate(0)?, DeviceBuffer::new(device, bytes.len())?),
                Place::Mapped => (memory.allocate(bytes.len())?, DeviceBuffer::new(device, 0)?),
                Place::Host => (memory.allocate(0)?, DeviceBuffer::new(device, 0)?),
            };
            match place {
                // SAFETY: the buffer is as long as `bytes`, and the copy is waited for.
                Place::Device => unsafe { stream.copy_to_device(&bytes, device_memory.address()) }?,
                Place::Mapped => mapped.as_mut_slice().copy_from_slice(&bytes),
                Place::Host => {}
            }
            stream.synchronize()?;
            // Half of the frames are seen as they are, the others cropped, turned and mirrored.
            let view = if below(noise, 2) == 0 {
                View::whole((width, height))
            } else {
                let part = |noise: &mut Noise, side: u32| {
                    let from = below(noise, side);
                    (from, 1 + below(noise, side - from))
                };
                let ((x, columns), (y, rows)) = (part(noise, width), part(noise, height));
                let orientation = Orientation::all().nth(below(noise, 8) as usize).unwrap_or_default();
                let view = View::new((width, height), [x, y, columns, rows], orientation);
                view.ok_or_else(|| Failure::Broken("a view outside of its frame".to_owned()))?
            };
            batch.layouts.push((layout, place, view));
            batch.host.push(bytes);
            batch.mapped.push(mapped);
            batch.device.push(device_memory);
        }
        Ok(batch)
    }

    fn views(&self) -> Result<Vec<FrameView<'_>>, Failure> {
        let mut views = Vec::new();
        for (i, (layout, place, view)) in self.layouts.iter().enumerate() {
            let frame = match place {
                Place::Device => layout.view_at(&self.host[i], Some(self.device[i].address()))?,
                Place::Mapped => layout.view_of(&self.mapped[i])?,
                Place::Host => layout.view(&self.host[i])?,
            };
            views.push(frame.viewed(*view)?);
        }
        Ok(views)
    }

    /// Returns the bytes of frames that the GPU cannot access, without row padding.
    fn unseen_bytes(&self) -> u64 {
        let host = self.layouts.iter().filter(|(_, place, _)| matches!(place, Place::Host));
        host.map(|(layout, _, view)| {
            let (format, [_, _, width, height]) = (layout.format(), view.crop());
            let planes = 0..format.plane_count();
            let rows = |plane| format.plane_rows(plane, height);
            planes.map(|plane| (format.row_bytes(plane, width) * rows(plane)) as u64).sum::<u64>()
        })
        .sum()
    }
}

/// Runs the first batch by a plain launch, and the second by a graph that was captured with the first.
fn compare(
    device: &Arc<Device>,
    stream: &CudaStream,
    spec: &PreprocessSpec,
    batches: [&Batch; 2],
    seen: &mut Seen,
) -> Result<(), Failure> {
    let frames = batches[0].layouts.len();
    let each = spec.shape().iter().product::<usize>() * spec.dtype.size_bytes();
    let out = DeviceBuffer::new(device, each * frames + 2 * GUARD)?;
    // Every second spec is not aligned, so that single elements are stored.
    let shift = if spec.height.is_multiple_of(2) { 0 } else { spec.dtype.size_bytes() };
    let target = out.address().offset(GUARD + shift);
    let mut preprocessor = CudaPreprocessor::new(spec, device, frames)?;
    let mut reference = Preprocessor::new(spec.clone())?;
    let mut graph: Option<Graph> = None;
    let mut copied = 0;
    for batch in batches {
        let views = batch.views()?;
        preprocessor.prepare(&views)?;
        copied += batch.unseen_bytes();
        if preprocessor.copied_bytes() != copied {
            let found = preprocessor.copied_bytes();
            return Err(Failure::Broken(format!("{found} bytes were copied, {copied} had to be")));
        }
        // SAFETY: the buffer has the given length; it is used on this stream alone.
        unsafe { stream.fill(out.address(), UNWRITTEN, out.len()) }?;
        match &mut graph {
            // SAFETY: `out` has room for `frames` tensors; it, the frames and the preprocessor live until the
            // synchronisation below.
            None => unsafe { preprocessor.enqueue(target, frames, stream) }?,
            // SAFETY: as above, for the captured launch.
            Some(graph) => unsafe { graph.launch(stream) }?,
        }
        let mut found = vec![0; out.len()];
        // SAFETY: both are equally long; waited for here.
        unsafe { stream.copy_to_host(out.address(), &mut found) }?;
        stream.synchronize()?;
        let (before, rest) = found.split_at(GUARD + shift);
        let (tensors, after) = rest.split_at(each * frames);
        if before.iter().chain(after).any(|&byte| byte != UNWRITTEN) {
            return Err(Failure::Broken(format!("the kernel wrote beside its tensors: {spec:?}")));
        }
        for ((slot, view), tensor) in views.iter().enumerate().zip(tensors.chunks_exact(each)) {
            let mut expected = vec![0; each];
            let shape = spec.shape();
            let mapping = reference.run(view, &mut TensorMut::new(spec.dtype, &shape, &mut expected)?)?;
            if mapping != preprocessor.mapping(slot) {
                return Err(Failure::Broken(format!("CPU and GPU map {} differently: {spec:?}", view.format())));
            }
            note(seen, spec, tensor, &expected)?;
        }
        if graph.is_none() {
            // SAFETY: captured, not run; the launch above says why it may run.
            let captured = stream.capture(|stream| unsafe { preprocessor.enqueue(target, frames, stream) });
            graph = Some(captured.map_err(|error: CudaError| Failure::Broken(error.to_string()))?.0);
        }
    }
    Ok(())
}

fn note(seen: &mut Seen, spec: &PreprocessSpec, found: &[u8], expected: &[u8]) -> Result<(), Failure> {
    seen.tensors += 1;
    if found == expected {
        seen.equal += 1;
        return Ok(());
    }
    let std = spec.std.iter().take(spec.order.channels()).fold(f32::INFINITY, |least, &std| least.min(std));
    let full_scale = if spec.dtype.is_integer() { 255.0 } else { 255.0 * spec.scale / std };
    let shape = spec.shape();
    let found = TensorRef::new(spec.dtype, &shape, found)?.to_f32().into_owned();
    let expected = TensorRef::new(spec.dtype, &shape, expected)?.to_f32().into_owned();
    for (found, expected) in found.iter().zip(&expected) {
        let difference = (found - expected).abs() / full_scale;
        // NaN is the largest possible difference.
        seen.worst = if difference.is_nan() { f32::INFINITY } else { seen.worst.max(difference) };
    }
    Ok(())
}
