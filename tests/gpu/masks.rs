//! Row "Masks": compares the masks of objects on the GPU with the CPU's, bit by bit, and measures them. Most are made of
//! prototypes; in every fourth frame, each has its own plane.

use std::sync::Arc;
use std::time::Instant;

use half::f16;
use visiond_kernels::cuda::{CudaStream, Device, DeviceAddress, DeviceBuffer, Event};
use visiond_kernels::filter::Values;
use visiond_kernels::mask::{CudaMasks, Mask, MaskAssembler, MaskError, MaskFrame, MaskJob, MaskParts, MaskSpec};
use visiond_kernels::placement::{Fit, Mapping, Resize};
use visiond_kernels::tensor::{DType, TensorRef};

use crate::measure::{Noise, Samples};
use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Masks";
/// Objects of a frame.
const OBJECTS: usize = 20;
/// Compared frames: a thousand objects.
const FRAMES: usize = 50;
/// Launches of a timed graph.
const LAUNCHES: usize = 50;
/// YOLOv8-seg at 640 x 640.
const CHANNELS: usize = 32;
const SIDE: usize = 160;
const ROWS: usize = 8400;
/// The most that a frame's masks may take.
const MOST_US: f64 = 60.0;

/// Prototypes and coefficients of one frame, and their copy on the GPU.
struct Outputs {
    dtype: DType,
    bytes: [Vec<u8>; 2],
    buffers: [DeviceBuffer; 2],
}

impl Outputs {
    fn new(device: &Arc<Device>, dtype: DType, noise: &mut Noise) -> Result<Self, Failure> {
        let mut number = || (noise.number() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        let mut made = |count: usize| -> Vec<u8> {
            let numbers = (0..count).map(|_| number());
            match dtype {
                DType::F16 => numbers.flat_map(|number| f16::from_f32(number).to_ne_bytes()).collect(),
                _ => numbers.flat_map(f32::to_ne_bytes).collect(),
            }
        };
        let bytes = [made(CHANNELS * SIDE * SIDE), made(CHANNELS * ROWS)];
        let buffers = [DeviceBuffer::new(device, bytes[0].len())?, DeviceBuffer::new(device, bytes[1].len())?];
        let stream = CudaStream::new(device)?;
        for (bytes, buffer) in bytes.iter().zip(&buffers) {
            // SAFETY: the buffer is as long as the bytes; both outlive the work, which is waited for below.
            unsafe { stream.copy_to_device(bytes, buffer.address()) }?;
        }
        stream.synchronize()?;
        Ok(Self { dtype, bytes, buffers })
    }

    fn addresses(&self) -> [(DeviceAddress, DType); 2] {
        [(self.buffers[0].address(), self.dtype), (self.buffers[1].address(), self.dtype)]
    }

    fn on_cpu(&self, spec: &MaskSpec, frame: &MaskFrame, jobs: &[MaskJob], out: &mut Vec<Mask>) -> Result<(), Failure> {
        let (prototypes, coefficients) = ([CHANNELS, SIDE, SIDE], [CHANNELS, ROWS]);
        let outputs = [
            TensorRef::new(self.dtype, &prototypes, &self.bytes[0])?,
            TensorRef::new(self.dtype, &coefficients, &self.bytes[1])?,
        ];
        MaskAssembler::new().run(spec, frame, &outputs, jobs, out);
        Ok(())
    }
}

fn spec() -> MaskSpec {
    MaskSpec {
        planes: Values::planes(0, CHANNELS, SIDE * SIDE),
        height: SIDE,
        width: SIDE,
        parts: MaskParts::Prototypes { channels: CHANNELS, coefficients: Values::planes(1, CHANNELS, ROWS) },
    }
}

/// The same planes, one for each object.
fn own_planes() -> MaskSpec {
    MaskSpec { parts: MaskParts::OwnPlane { count: CHANNELS, threshold: 0.5 }, ..spec() }
}

fn frame(fit: Fit, source: (u32, u32)) -> MaskFrame {
    MaskFrame::new(&Mapping::new(fit, source, (640, 640)), (SIDE, SIDE))
}

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let device = setup.device()?;
    compare(&device, if setup.arguments.quick { 4 } else { FRAMES }, report)?;
    if !setup.arguments.quick {
        for dtype in [DType::F32, DType::F16] {
            time(&device, dtype, report)?;
        }
    }
    Ok(())
}

fn compare(device: &Arc<Device>, frames: usize, report: &mut Report) -> Result<(), Failure> {
    let frames_of = [
        (Fit::Letterbox, (1920, 1080)),
        (Fit::Letterbox, (427, 640)),
        (Fit::Letterbox, (3840, 2160)),
        (Fit::Letterbox, (640, 356)),
        (Fit::LetterboxTopLeft, (1281, 719)),
        (Fit::Stretch, (1080, 1920)),
        (Fit::Letterbox, (150, 120)),
        (Fit::ResizeCrop(Resize::ShortSide(700)), (1280, 720)),
        (Fit::Warp, (1280, 720)),
        (Fit::Letterbox, (33, 17)),
    ];
    let mut noise = Noise::new(17);
    let stream = CudaStream::new(device)?;
    let mut kinds = [
        (spec(), ROWS, CudaMasks::new(&spec(), device)?),
        (own_planes(), CHANNELS, CudaMasks::new(&own_planes(), device)?),
    ];
    let (mut wanted, mut seen) = (Vec::new(), Vec::new());
    let (mut objects, mut different, mut area) = (0, 0, 0);
    for number in 0..frames {
        let outputs = Outputs::new(device, if number % 3 == 2 { DType::F16 } else { DType::F32 }, &mut noise)?;
        let (fit, source) = frames_of[number % frames_of.len()];
        let frame = frame(fit, source);
        // Every fourth frame.
        let (spec, rows, masks) = &mut kinds[usize::from(number % 4 == 3)];
        let mut part = || (noise.number() >> 40) as f32 / (1 << 24) as f32;
        let jobs: Vec<MaskJob> = (0..OBJECTS)
            .map(|_| {
                let row = (part() * *rows as f32) as u32;
                let (width, height) = (source.0 as f32, source.1 as f32);
                let (x1, y1) = (part() * 1.1 * width - 0.05 * width, part() * 1.1 * height - 0.05 * height);
                let (x2, y2) = (x1 + part() * 0.4 * width, y1 + part() * 0.4 * height);
                MaskJob { row, box_in_source: [x1, y1, x2, y2] }
            })
            .collect();
        outputs.on_cpu(spec, &frame, &jobs, &mut wanted)?;
        // SAFETY: the buffers hold a frame of the spec's outputs, and the work is waited for below.
        let lost = unsafe { masks.enqueue(&outputs.addresses(), 0, &frame, &jobs, &stream) }?;
        stream.synchronize()?;
        masks.masks(&mut seen);
        objects += jobs.len();
        area += wanted.iter().map(Mask::area).sum::<u64>();
        different += lost + wanted.iter().zip(&seen).filter(|(wanted, seen)| wanted != seen).count();
    }
    report.figure(
        ROW,
        "masks on the GPU against the CPU's",
        "every bit equal",
        format!("{objects} objects of {area} pixels, {different} differ"),
        different == 0 && area > 0,
    );
    Ok(())
}

/// Measures the masks of 20 objects of 300 x 500 pixels in a frame of 1080p.
fn time(device: &Arc<Device>, dtype: DType, report: &mut Report) -> Result<(), Failure> {
    let outputs = Outputs::new(device, dtype, &mut Noise::new(3))?;
    let frame = frame(Fit::Letterbox, (1920, 1080));
    let jobs: Vec<MaskJob> = (0..OBJECTS)
        .map(|i| {
            let (x, y) = (81.0 * i as f32, 29.0 * i as f32);
            MaskJob { row: 100 * i as u32, box_in_source: [x, y, x + 300.0, y + 500.0] }
        })
        .collect();
    let mut masks = CudaMasks::new(&spec(), device)?;
    let stream = CudaStream::new(device)?;
    let addresses = outputs.addresses();
    let (mut graph, ()) = stream.capture(|stream| {
        for _ in 0..LAUNCHES {
            // SAFETY: as in `compare`; launches of one stream follow one another, and all write the same words.
            unsafe { masks.enqueue(&addresses, 0, &frame, &jobs, stream) }?;
        }
        Ok::<(), MaskError>(())
    })?;
    let (begin, end) = (Event::new(device)?, Event::new(device)?);
    let mut samples = Vec::new();
    for _ in 0..20 {
        begin.record(&stream)?;
        // SAFETY: everything that was recorded is alive; the launch is waited for.
        unsafe { graph.launch(&stream) }?;
        end.record(&stream)?;
        end.wait()?;
        samples.push(end.elapsed_us(&begin)? / LAUNCHES as f64);
    }
    let samples = Samples::new(samples);
    let mut out = Vec::new();
    let reading = (0..200).map(|_| {
        let began = Instant::now();
        masks.masks(&mut out);
        began.elapsed().as_secs_f64() * 1e6
    });
    let reading = Samples::new(reading.collect());
    report.figure(
        ROW,
        &format!("{OBJECTS} objects of 300 x 500 pixels in 1080p, {dtype}"),
        format!("<= {MOST_US} us of the GPU"),
        format!(
            "{:.1} us a launch in a graph (least {:.1}); {:.1} us to copy the masks out",
            samples.median(),
            samples.best(),
            reading.median()
        ),
        samples.median() <= MOST_US,
    );
    Ok(())
}
