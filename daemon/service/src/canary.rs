//! The trial of a new model before a reload switches to it: it runs on a real frame of each of its cameras.
//!
//! Its outputs must be finite numbers of the declared shapes, and must arrive in time. If no camera of the model delivers a
//! frame, the trial uses a grey one. It runs on its own thread, so that a model that hangs only fails the reload.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use visiond_engine::detector::{Detection, Detector, DetectorError};
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::tensor::{ShapeText, TensorRef};
use visiond_live::{Live, OwnedFrame};
use visiond_pipeline::model_runner::{Fault, RunError};
use visiond_system::exit;
use visiond_telemetry::metrics::{Phase, cameras_of};

use crate::error::CanaryError;
use crate::loaded_model::LoadedModel;

/// How long the trial waits for frames, for all cameras together.
const FRAME_TIMEOUT: Duration = Duration::from_secs(1);
/// A trial without an answer is given up after this multiple of the limit for one run.
const TIMEOUT_FACTOR: u32 = 4;
/// The value of every channel of the grey frame.
const GREY: u8 = 114;

/// A model to try.
pub struct TrialModel {
    /// The model.
    pub model: LoadedModel,
    /// The detector for its lane.
    pub detector: Detector,
}

/// A frame for the trial.
pub struct Sample {
    /// `a frame of camera door`
    pub name: String,
    frame: OwnedFrame,
}

impl Sample {
    /// Returns the frame's width and height.
    pub fn size(&self) -> (u32, u32) {
        (self.frame.layout.width(), self.frame.layout.height())
    }
}

/// Tries a model on frames of `cameras`; returns it, warmed up.
///
/// # Errors
/// A frame took longer than `limit`, the run failed, or the outputs are not sound.
pub fn prove(
    live: &Live,
    name: &str,
    candidate: TrialModel,
    cameras: &[&str],
    limit: Duration,
) -> Result<TrialModel, CanaryError> {
    let (samples, fps) = samples(live, name, candidate.detector.input_size(), cameras)?;
    // One on detections runs only when there are some.
    let runs_on_each_frame = !candidate.model.on_crops;
    let (report, reports) = channel();
    let names: Vec<_> = samples.iter().map(|sample| sample.name.clone()).collect();
    let trial = Trial { name: name.to_owned(), candidate, limit };
    thread::Builder::new()
        .name("canary".to_owned())
        .spawn(move || trial.run(samples, &report))
        .map_err(CanaryError::Thread)?;
    let mut slowest = Duration::ZERO;
    for sample in names {
        match reports.recv_timeout(limit * TIMEOUT_FACTOR) {
            Ok(TrialReport::Ran(took)) => slowest = slowest.max(took),
            Ok(TrialReport::Ended(result)) => return result.map(|candidate| *candidate),
            Err(RecvTimeoutError::Timeout) => {
                // The thread may be in this run for as long as the process lives.
                exit::skip_cleanup();
                return Err(CanaryError::TooSlow { sample, limit });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(CanaryError::Panic),
        }
    }
    if let Some(slowness) = slowness(name, slowest, fps).filter(|_| runs_on_each_frame) {
        log::warn!("{slowness}");
    }
    match reports.recv_timeout(limit * TIMEOUT_FACTOR) {
        Ok(TrialReport::Ended(result)) => result.map(|candidate| *candidate),
        _ => Err(CanaryError::Panic),
    }
}

/// Returns a frame of each camera that delivers one, otherwise a grey one, and the sum of the cameras' frames per second for `model`. A
/// camera that the model does not run on yet counts with the frames of its fastest model.
pub fn samples(
    live: &Live,
    model: &str,
    input_size: (u32, u32),
    cameras: &[&str],
) -> Result<(Vec<Sample>, f64), CanaryError> {
    let until = Instant::now() + FRAME_TIMEOUT;
    let lanes = live.lanes();
    let running = cameras_of(&lanes).into_iter().map(|known| known.camera);
    let running = running.filter(|camera| cameras.contains(&&*camera.name) && camera.phase() == Phase::Streaming);
    let (mut samples, mut fps) = (Vec::new(), 0.0);
    for camera in running {
        fps += camera.fps_of(model);
        let left = until.saturating_duration_since(Instant::now());
        let frame = live.view(&camera.name).frame(left);
        samples.extend(frame.map(|frame| Sample { name: format!("a frame of camera {}", camera.name), frame }));
    }
    if samples.is_empty() {
        samples.push(grey(input_size)?);
    }
    log::debug!("tried on {}", samples.iter().map(|sample| &*sample.name).collect::<Vec<_>>().join(", "));
    Ok((samples, fps))
}

/// Returns a grey frame.
pub fn grey((width, height): (u32, u32)) -> Result<Sample, CanaryError> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
    let mut buffer = UnifiedBuffer::host(layout.needed_bytes())?;
    buffer.as_mut_slice().fill(GREY);
    Ok(Sample {
        name: "a grey frame (no camera of the model gives a frame)".to_owned(),
        frame: OwnedFrame { layout, buffer },
    })
}

/// Returns an image with edges, colours and fine structure, for faults that a grey frame does not reveal.
pub fn test_picture((width, height): (u32, u32)) -> Result<Sample, CanaryError> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
    let mut buffer = UnifiedBuffer::host(layout.needed_bytes())?;
    let pixels = buffer.as_mut_slice().chunks_exact_mut(3).enumerate();
    for (index, pixel) in pixels {
        let (x, y) = (index as u32 % width, index as u32 / width);
        // A disc and stripes on a gradient, with noise that is the same every time.
        let (dx, dy) = (x.abs_diff(width / 3), y.abs_diff(height / 2));
        let inside = dx * dx + dy * dy < (height / 4).pow(2);
        let stripe = x > width * 2 / 3 && (y / 4).is_multiple_of(2);
        let noise = (index as u32).wrapping_mul(2_654_435_761) >> 28;
        let base = if inside {
            [230, 60, 30]
        } else if stripe {
            [20, 40, 200]
        } else {
            [x * 160 / width, 90, y * 160 / height]
        };
        for (channel, value) in pixel.iter_mut().zip(base) {
            *channel = (value + noise).min(255) as u8;
        }
    }
    Ok(Sample { name: "a test image".to_owned(), frame: OwnedFrame { layout, buffer } })
}

/// Eileen Collins (NASA, public domain), 96 x 96 pixels of RGB: `tests/media/astronaut.png`, scaled down with `ffmpeg -i
/// astronaut.png -vf scale=96:96:flags=area -f rawvideo -pix_fmt rgb24 astronaut_96.rgb`.
const PORTRAIT: &[u8] = include_bytes!("canary/astronaut_96.rgb");
const PORTRAIT_SIDE: u32 = 96;

/// Returns the image of a person, in which detectors of people and faces find something if their input is right.
pub fn portrait() -> Result<Sample, CanaryError> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, PORTRAIT_SIDE, PORTRAIT_SIDE, ColorDescription::default())?;
    let mut buffer = UnifiedBuffer::host(layout.needed_bytes())?;
    for (byte, &pixel) in buffer.as_mut_slice().iter_mut().zip(PORTRAIT) {
        *byte = pixel;
    }
    Ok(Sample { name: "an image of a person".to_owned(), frame: OwnedFrame { layout, buffer } })
}

/// The side of the image with the portrait in its lower right, and the portrait's offset.
const CORNER_SIDE: u32 = 3 * PORTRAIT_SIDE;
const CORNER_START: u32 = CORNER_SIDE - PORTRAIT_SIDE;

/// Returns the portrait in the lower right of a grey image. There, centre and size cannot be mistaken for corners, or corners
/// for centre and size.
pub fn portrait_in_corner() -> Result<Sample, CanaryError> {
    let Sample { mut frame, .. } = grey((CORNER_SIDE, CORNER_SIDE))?;
    let lines = frame.buffer.as_mut_slice().chunks_exact_mut(3 * CORNER_SIDE as usize).skip(CORNER_START as usize);
    for (line, pixels) in lines.zip(PORTRAIT.chunks_exact(3 * PORTRAIT_SIDE as usize)) {
        for (byte, &pixel) in line.iter_mut().skip(3 * CORNER_START as usize).zip(pixels) {
            *byte = pixel;
        }
    }
    Ok(Sample { name: "an image with a person in its lower right".to_owned(), frame })
}

/// Returns an image of noise, the same every time, without any object.
pub fn noise((width, height): (u32, u32)) -> Result<Sample, CanaryError> {
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())?;
    let mut buffer = UnifiedBuffer::host(layout.needed_bytes())?;
    // Marsaglia's xorshift, 32 bits.
    let mut state = 2_463_534_242_u32;
    for byte in buffer.as_mut_slice() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        *byte = (state >> 24) as u8;
    }
    Ok(Sample { name: "an image of noise".to_owned(), frame: OwnedFrame { layout, buffer } })
}

/// Returns the warning about a run that takes longer than the interval at this frame rate.
fn slowness(name: &str, took: Duration, fps: f64) -> Option<String> {
    let runs_per_second = 1.0 / took.as_secs_f64().max(1e-6);
    (fps > runs_per_second).then(|| {
        let ms = took.as_millis();
        format!(
            "model {name}: a run takes {ms} ms, and its cameras give {fps:.0} frames/s: some frames will be dropped"
        )
    })
}

/// A report of the trial's thread.
enum TrialReport {
    /// A run on one further frame took this long.
    Ran(Duration),
    /// The trial has ended.
    Ended(Result<Box<TrialModel>, CanaryError>),
}

/// A trial in progress.
struct Trial {
    name: String,
    candidate: TrialModel,
    limit: Duration,
}

impl Trial {
    fn run(mut self, samples: Vec<Sample>, report: &Sender<TrialReport>) {
        for sample in samples {
            // After a timeout the receiver is gone.
            let sent = match self.check(&sample) {
                Ok(took) => report.send(TrialReport::Ran(took)),
                Err(error) => {
                    let _ = report.send(TrialReport::Ended(Err(error)));
                    return;
                }
            };
            if sent.is_err() {
                log::warn!("model {}: the rejected model has finished its run and is freed", self.name);
                return;
            }
        }
        let _ = report.send(TrialReport::Ended(Ok(Box::new(self.candidate))));
    }

    /// Runs the lane's detector on a frame and checks the outputs; returns how long the run took.
    fn check(&mut self, sample: &Sample) -> Result<Duration, CanaryError> {
        let TrialModel { model, detector } = &mut self.candidate;
        let failed = |error: RunError| CanaryError::Run { sample: sample.name.clone(), error };
        // The first run also allocates memory and does other one-time work.
        let took = run_on(detector, sample, 1).map_err(failed)?.min(run_on(detector, sample, 1).map_err(failed)?);
        if took > self.limit {
            return Err(CanaryError::TooSlow { sample: sample.name.clone(), limit: self.limit });
        }
        match judge_outputs(detector, &sample.name) {
            Ok(None) => return Ok(took),
            Ok(Some(error)) => return Err(error),
            // The outputs stay on the GPU: a second detector copies them to the host.
            Err(DetectorError::NoRawOutputs) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let mut raw = model.raw_detector().map_err(CanaryError::Detector)?;
        run_on(&mut raw, sample, 1).map_err(failed)?;
        match judge_outputs(&raw, &sample.name).map_err(|error| failed(error.into()))? {
            None => Ok(took),
            Some(error) => Err(error),
        }
    }
}

/// Runs the detector on a frame, `count` times side by side; returns how long preprocess and inference took.
pub fn run_on(detector: &mut Detector, sample: &Sample, count: usize) -> Result<Duration, RunError> {
    run_and_check(detector, sample, count, |_| Ok(()))
}

/// Runs the detector on a frame, `count` times side by side, and returns what it detects in the first.
pub fn detect_on(detector: &mut Detector, sample: &Sample, count: usize) -> Result<Vec<Detection>, RunError> {
    let view = sample.frame.view().map_err(|error| RunError::new(Fault::Run, error))?;
    let run_id = detector.begin(&vec![view; count])?;
    detector.finish(run_id)?;
    let mut found = Vec::new();
    detector.detections(run_id, 0, &mut found)?;
    Ok(found)
}

/// Like [`run_on`], but calls `check` when the outputs can be read, before they are decoded.
pub fn run_and_check<E: From<RunError>>(
    detector: &mut Detector,
    sample: &Sample,
    count: usize,
    check: impl FnOnce(&Detector) -> Result<(), E>,
) -> Result<Duration, E> {
    let view = sample.frame.view().map_err(|error| RunError::new(Fault::Run, error))?;
    let run_id = detector.begin(&vec![view; count]).map_err(RunError::from)?;
    let timings = detector.finish(run_id).map_err(RunError::from)?;
    check(detector)?;
    for slot in 0..count {
        detector.detections(run_id, slot, &mut Vec::new()).map_err(RunError::from)?;
    }
    Ok(Duration::from_micros(timings.preprocess_us + timings.infer_us))
}

/// Returns what is wrong with the outputs of the detector's last run, on `sample`; `None` if they are sound.
fn judge_outputs(detector: &Detector, sample: &str) -> Result<Option<CanaryError>, DetectorError> {
    for (index, info) in detector.outputs().iter().enumerate() {
        let wrong = judge(sample, info, &detector.raw_output(index)?);
        if wrong.is_some() {
            return Ok(wrong);
        }
    }
    Ok(None)
}

fn judge(sample: &str, declared: &TensorInfo, found: &TensorRef<'_>) -> Option<CanaryError> {
    let sample = sample.to_owned();
    let fits = declared.shape.as_ref().is_none_or(|dims| {
        let fits = |(dim, &found): (&Dim, &usize)| dim.fixed().is_none_or(|size| size == found);
        dims.len() == found.shape().len() && dims.iter().zip(found.shape()).all(fits)
    });
    if !fits || found.dtype() != declared.dtype {
        let found = format!("{} {}", found.dtype(), ShapeText(found.shape()));
        return Some(CanaryError::Shape { sample, output: declared.to_string(), found });
    }
    let numbers = found.to_f32();
    let count = numbers.iter().filter(|number| !number.is_finite()).count();
    let output = declared.name.clone();
    (count > 0).then(|| CanaryError::NotFinite { sample, output, count, of: numbers.len() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::tensor::DType;

    use super::*;

    #[test]
    fn an_output_is_sound_when_it_has_its_shape_and_nothing_but_numbers() {
        let declared = |shape: Vec<Dim>| TensorInfo { name: "out".to_owned(), dtype: DType::F32, shape: Some(shape) };
        let judged = |shape: Vec<Dim>, numbers: [f32; 4]| {
            let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let found = TensorRef::new(DType::F32, &[2, 2], &bytes).unwrap();
            judge("a frame of camera door", &declared(shape), &found).map(|error| error.to_string())
        };
        let (two, open) = (Dim::Fixed(2), Dim::Dynamic(String::new()));
        let good = [0.0, -1.0, f32::MAX, f32::MIN_POSITIVE];
        assert_eq!(judged(vec![two.clone(), two.clone()], good), None);
        assert_eq!(judged(vec![open.clone(), two.clone()], good), None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let text = judged(vec![open.clone(), open.clone()], [0.0, bad, bad, 1.0]).unwrap();
            assert!(text.starts_with("on a frame of camera door 2 of the 4 numbers of output out are "), "{text}");
        }
        let text = judged(vec![two.clone(), Dim::Fixed(3)], good).unwrap();
        assert!(text.contains("is f32 [2, 2], but the model declares out f32 [2, 3]"), "{text}");
        assert!(judged(vec![two.clone()], good).is_some());
        // Bytes whose length fits another type.
        let found = TensorRef::new(DType::I32, &[2, 2], &[0; 16]).unwrap();
        let text = judge("a test image", &declared(vec![two.clone(), two]), &found).unwrap().to_string();
        assert!(text.contains("is i32 [2, 2], but the model declares out f32 [2, 2]"), "{text}");
    }

    #[test]
    fn a_model_is_called_slow_when_its_cameras_are_faster() {
        let ms = Duration::from_millis;
        let warning = slowness("objects", ms(50), 25.0).unwrap();
        assert!(warning.contains("a run takes 50 ms, and its cameras give 25 frames/s"), "{warning}");
        assert_eq!([ms(30), ms(40), ms(0)].map(|took| slowness("objects", took, 25.0)), [None, None, None]);
    }

    fn pixels(sample: &Sample) -> &[u8] {
        sample.frame.buffer.as_slice()
    }

    /// Returns a pixel of an image of this width.
    fn pixel(sample: &Sample, x: u32, y: u32) -> [u8; 3] {
        let at = 3 * (y * sample.size().0 + x) as usize;
        pixels(sample)[at..at + 3].try_into().unwrap()
    }

    #[test]
    fn the_pictures_of_a_trial_show_what_they_are_called() {
        let plain = grey((40, 30)).unwrap();
        assert_eq!((plain.size(), pixels(&plain)), ((40, 30), &[GREY; 40 * 30 * 3][..]));

        let person = portrait().unwrap();
        assert_eq!((person.size(), pixels(&person)), ((PORTRAIT_SIDE, PORTRAIT_SIDE), PORTRAIT));
        let corner = portrait_in_corner().unwrap();
        assert_eq!(corner.size(), (288, 288));
        for (x, y) in (0..288).flat_map(|x| (0..288).map(move |y| (x, y))) {
            let shown = if x < 192 || y < 192 { [GREY; 3] } else { pixel(&person, x - 192, y - 192) };
            assert_eq!(pixel(&corner, x, y), shown, "{x} {y}");
        }

        // All values are about equally frequent, differ from place to place, and are the same every time.
        let (one, other) = (noise((64, 48)).unwrap(), noise((64, 48)).unwrap());
        assert_eq!(pixels(&one), pixels(&other));
        let mut counts = [0_u32; 8];
        pixels(&one).iter().for_each(|&byte| counts[usize::from(byte >> 5)] += 1);
        let share = pixels(&one).len() as u32 / 8;
        assert!(counts.iter().all(|count| count.abs_diff(share) < share / 5), "{counts:?}");
        let lines: std::collections::HashSet<_> = pixels(&one).chunks(64 * 3).collect();
        assert_eq!(lines.len(), 48);
    }

    #[test]
    fn the_test_picture_has_a_disc_stripes_a_gradient_and_fine_structure() {
        let picture = test_picture((120, 80)).unwrap();
        assert_eq!(picture.size(), (120, 80));
        // Noise adds at most 15.
        let is = |x, y, base: [u8; 3]| {
            pixel(&picture, x, y).iter().zip(base).all(|(&byte, base)| (base..=base + 15).contains(&byte))
        };
        // A disc of a radius of 20 around (40, 40).
        let red = [230, 60, 30];
        assert!(is(40, 40, red) && is(40, 21, red) && is(59, 40, red) && is(21, 40, red) && is(40, 59, red));
        // Around it, red increases to the right and blue downwards.
        assert!(
            is(40, 19, [53, 90, 38]) && is(61, 40, [81, 90, 80]) && is(0, 0, [0, 90, 0]) && is(80, 79, [106, 90, 158])
        );
        // Stripes of four lines in the right third.
        for y in 0..80 {
            assert_eq!(is(81, y, [20, 40, 200]), y / 4 % 2 == 0, "{y}");
            assert!(!is(80, y, [20, 40, 200]), "{y}");
        }
        let changes = pixels(&picture).windows(4).filter(|pixels| pixels[0] != pixels[3]).count();
        assert!(changes > pixels(&picture).len() / 2, "{changes}");
    }

    /// The tiny model in its own folder, with its factor of 1 replaced.
    fn tiny(factor: f32) -> (tempfile::TempDir, TrialModel) {
        use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
        let folder = tempfile::tempdir().unwrap();
        let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
        let mut network = std::fs::read(tests.join("tiny.onnx")).unwrap();
        let one = b"\x42\x03one\x4a\x04";
        let at = network.windows(one.len()).position(|window| window == one).unwrap() + one.len();
        network[at..at + 4].copy_from_slice(&factor.to_le_bytes());
        std::fs::write(folder.path().join("tiny.onnx"), network).unwrap();
        std::fs::copy(tests.join("tiny.toml"), folder.path().join("tiny.toml")).unwrap();
        let model = ModelConfig { path: folder.path().join("tiny.onnx"), ..ModelConfig::default() };
        let engine = EngineConfig { backend: BackendChoice::Rten, ..EngineConfig::default() };
        let model = LoadedModel::load(&model, &engine).unwrap();
        let detector = model.detector().unwrap();
        (folder, TrialModel { model, detector })
    }

    #[test]
    fn a_model_is_proved_by_its_numbers_and_its_time() {
        let live = Live::new();
        let prove = |factor, limit| prove(&live, "tiny", tiny(factor).1, &["door"], limit);
        let proved = prove(1.0, visiond_system::testing::HANG).unwrap();
        assert_eq!(proved.detector.input_size(), proved.model.detector().unwrap().input_size());
        let infinite = prove(f32::INFINITY, visiond_system::testing::HANG).err().unwrap().to_string();
        assert!(
            infinite.starts_with("on a grey frame (no camera of the model gives a frame) 64 of the 96 numbers"),
            "{infinite}"
        );
        // No run is this fast; the trial's timeout is four times as long.
        let slow = Trial { name: "tiny".to_owned(), candidate: tiny(1.0).1, limit: Duration::ZERO }
            .check(&grey((8, 8)).unwrap());
        assert!(matches!(slow, Err(CanaryError::TooSlow { .. })), "{slow:?}");
    }

    #[test]
    fn what_is_detected_and_what_was_checked_is_of_the_first_picture_of_a_run() {
        let mut detector = tiny(1.0).1.detector;
        let mut white = grey((128, 64)).unwrap();
        white.frame.buffer.as_mut_slice().fill(255);
        let found = detect_on(&mut detector, &white, 1).unwrap();
        assert!(!found.is_empty() && found.iter().all(|one| one.class_id == 0), "all is white: {found:?}");
        assert!(detect_on(&mut detector, &white, 0).is_err());
        let mut seen = 0;
        let took = run_and_check(&mut detector, &white, 1, |detector| {
            seen += detector.outputs().len();
            Ok::<(), RunError>(())
        });
        assert_eq!((took.is_ok(), seen), (true, 1));
        let refused = run_and_check(&mut detector, &white, 1, |_| Err(RunError::new(Fault::Run, "refused")));
        assert_eq!(refused.unwrap_err().to_string(), "refused");
        // The parts of a run take no longer than the whole.
        let begin = Instant::now();
        let took = run_on(&mut detector, &white, 1).unwrap();
        assert!(took <= begin.elapsed(), "{took:?}");
    }
}
