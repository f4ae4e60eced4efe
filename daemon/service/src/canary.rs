//! The trial of a new network before it is put in force: it looks at a real frame of each of its cameras.
//!
//! What it gives must be numbers, of the shapes that it declares and its card reads, and come in time. Where no frame is to
//! be had, because the camera is new or away, it looks at a grey one. The trial runs on a thread of its own, so that a network
//! that never answers costs the reload and nothing else.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use visiond_engine::detector::{Detector, DetectorError};
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_flow::metrics::Phase;
use visiond_kernels::buffer::UnifiedBuffer;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::tensor::{ShapeText, TensorRef};
use visiond_live::{Live, OwnedFrame};
use visiond_pipeline::network::{Fault, NetworkError};
use visiond_system::exit::{self, Exit, ExitError};

use crate::network::{Network, detector_error};

/// How long frames are waited for, all of them together.
const FRAMES: Duration = Duration::from_secs(1);
/// A trial that tells nothing for so many times what a run may take is given up.
const PATIENCE: u32 = 4;
/// Of every channel of the frame that stands in for a camera's.
const GREY: u8 = 114;

/// A network to be tried.
pub struct Candidate {
    /// The network.
    pub network: Network,
    /// The detector that the lane is to have.
    pub detector: Detector,
}

/// What a network is tried on.
struct Sample {
    /// `a frame of camera door`
    name: String,
    frame: OwnedFrame,
}

/// How trials are made.
pub struct Canary<'a> {
    /// Where frames come from.
    pub live: &'a Live,
}

impl Canary<'_> {
    /// Tries a network on frames of `cameras`, of which none may take it longer than `limit`, and gives it back, warm; or
    /// tells what is wrong with it.
    pub fn prove(
        &self,
        name: &str,
        candidate: Candidate,
        cameras: &[&str],
        limit: Duration,
    ) -> Result<Candidate, ExitError> {
        let (samples, fps) = self.samples(candidate.detector.input_size(), cameras)?;
        let (tell, told) = channel();
        let names: Vec<_> = samples.iter().map(|sample| sample.name.clone()).collect();
        let trial = Trial { name: name.to_owned(), candidate, limit };
        thread::Builder::new()
            .name("canary".to_owned())
            .spawn(move || trial.run(samples, &tell))
            .map_err(ExitError::system)?;
        let mut slowest = Duration::ZERO;
        for sample in names {
            match told.recv_timeout(limit * PATIENCE) {
                Ok(Step::Looked(took)) => slowest = slowest.max(took),
                Ok(Step::Done(result)) => return result.map(|candidate| *candidate),
                Err(RecvTimeoutError::Timeout) => {
                    // It may be in the middle of a run for as long as the process lives.
                    exit::skip_cleanup();
                    return Err(too_late(name, &sample, limit));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(fault(name)),
            }
        }
        warn_if_slow(name, slowest, fps);
        match told.recv_timeout(limit * PATIENCE) {
            Ok(Step::Done(result)) => result.map(|candidate| *candidate),
            _ => Err(fault(name)),
        }
    }

    /// A frame of each camera that gives any, else a grey one; and how many frames a second they give together.
    fn samples(&self, input_size: (u32, u32), cameras: &[&str]) -> Result<(Vec<Sample>, f64), ExitError> {
        let until = Instant::now() + FRAMES;
        let lanes = self.live.lanes();
        let running = lanes.iter().flat_map(|lane| &lane.cameras);
        let running = running.filter(|camera| cameras.contains(&&*camera.name) && camera.phase() == Phase::Streaming);
        let (mut samples, mut fps) = (Vec::new(), 0.0);
        for camera in running {
            fps += camera.fps();
            let left = until.saturating_duration_since(Instant::now());
            let frame = self.live.view(&camera.name).frame(left);
            samples.extend(frame.map(|frame| Sample { name: format!("a frame of camera {}", camera.name), frame }));
        }
        if samples.is_empty() {
            samples.push(grey(input_size)?);
        }
        log::debug!("tried on {}", samples.iter().map(|sample| &*sample.name).collect::<Vec<_>>().join(", "));
        Ok((samples, fps))
    }
}

/// A frame of one colour.
fn grey((width, height): (u32, u32)) -> Result<Sample, ExitError> {
    let refused = |error: &dyn fmt::Display| ExitError::new(Exit::Failure, error);
    let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default())
        .map_err(|error| refused(&error))?;
    let mut buffer = UnifiedBuffer::host(layout.needed_bytes()).map_err(|error| refused(&error))?;
    buffer.as_mut_slice().fill(GREY);
    Ok(Sample { name: "a grey frame, as no camera of it gives one".to_owned(), frame: OwnedFrame { layout, buffer } })
}

fn warn_if_slow(name: &str, took: Duration, fps: f64) {
    let runs_per_second = 1.0 / took.as_secs_f64().max(1e-6);
    if fps > runs_per_second {
        log::warn!(
            "model {name}: one frame takes it {} ms, and its cameras give {fps:.0} a second: some will be dropped",
            took.as_millis()
        );
    }
}

fn too_late(name: &str, sample: &str, limit: Duration) -> ExitError {
    let limit = limit.as_secs_f64();
    let message = format!(
        "model {name}: no answer within {limit} s on {sample}: take a faster network, or set [engine] `canary_timeout` higher"
    );
    ExitError::new(Exit::Model, message)
}

fn fault(name: &str) -> ExitError {
    ExitError::new(
        Exit::Failure,
        format!("model {name}: its trial hit a fault of visiond, told above: please report it"),
    )
}

/// What a trial tells.
enum Step {
    /// At one more frame; the run took so long.
    Looked(Duration),
    /// It is over.
    Done(Result<Box<Candidate>, ExitError>),
}

/// A trial under way.
struct Trial {
    name: String,
    candidate: Candidate,
    limit: Duration,
}

impl Trial {
    fn run(mut self, samples: Vec<Sample>, tell: &Sender<Step>) {
        for sample in samples {
            // Who has given up does not listen any more.
            let step = match self.look(&sample) {
                Ok(took) => tell.send(Step::Looked(took)),
                Err(error) => {
                    let _ = tell.send(Step::Done(Err(error)));
                    return;
                }
            };
            if step.is_err() {
                log::warn!("model {}: the network that was refused has answered at last, and is freed", self.name);
                return;
            }
        }
        let _ = tell.send(Step::Done(Ok(Box::new(self.candidate))));
    }

    /// How long the lane's detector takes for the frame, once it is known that what comes out is sound.
    fn look(&mut self, sample: &Sample) -> Result<Duration, ExitError> {
        let Candidate { network, detector } = &mut self.candidate;
        let about = |what: &dyn fmt::Display| format!("model {}: {what}", self.name);
        let failed = |error: NetworkError| ExitError {
            exit: if error.fault == Fault::Process { Exit::Gpu } else { Exit::Model },
            message: about(&format_args!("it fails on {}: {error}", sample.name)),
        };
        // The first run also gets memory, and whatever else is done once.
        let took = seen(detector, sample).map_err(failed)?.min(seen(detector, sample).map_err(failed)?);
        if took > self.limit {
            return Err(too_late(&self.name, &sample.name, self.limit));
        }
        match unsound(detector) {
            Ok(None) => return Ok(took),
            Ok(Some(why)) => return Err(ExitError::new(Exit::Model, about(&why.on(&sample.name)))),
            // They stay on the GPU: a second detector brings them to where they can be read.
            Err(DetectorError::NoRawOutputs) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let mut beside =
            network.raw_detector().map_err(|error| detector_error(&format_args!("model {}", self.name), &error))?;
        seen(&mut beside, sample).map_err(failed)?;
        match unsound(&beside).map_err(|error| failed(error.into()))? {
            None => Ok(took),
            Some(why) => Err(ExitError::new(Exit::Model, about(&why.on(&sample.name)))),
        }
    }
}

/// Runs the network on the frame, and reads what it saw; from the frame to the outputs it took so long.
fn seen(detector: &mut Detector, sample: &Sample) -> Result<Duration, NetworkError> {
    let view = sample.frame.view().map_err(|error| NetworkError::new(Fault::Run, error))?;
    let flight = detector.begin(std::slice::from_ref(&view))?;
    let timings = detector.finish(flight)?;
    detector.detections(flight, 0, &mut Vec::new())?;
    Ok(Duration::from_micros(timings.preprocess_us + timings.infer_us))
}

/// What is wrong with an output.
#[derive(Debug, PartialEq, Eq)]
enum Unsound {
    Shape { output: String, found: String },
    NotFinite { output: String, count: usize, of: usize },
}

impl Unsound {
    fn on<'a>(&'a self, sample: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self {
            Self::Shape { output, found } => write!(
                f,
                "on {sample} its output comes as {found}, and it declares {output}: it was not exported well, export it again"
            ),
            Self::NotFinite { output, count, of } => write!(
                f,
                "on {sample} {count} of the {of} numbers of its output {output} are infinite or no numbers: it was not \
                 trained or converted well, or needs more precision than it was built with"
            ),
        })
    }
}

/// What is wrong with the outputs of the detector's last run, if anything is.
fn unsound(detector: &Detector) -> Result<Option<Unsound>, DetectorError> {
    for (index, info) in detector.outputs().iter().enumerate() {
        let wrong = judge(info, &detector.raw_output(index)?);
        if wrong.is_some() {
            return Ok(wrong);
        }
    }
    Ok(None)
}

fn judge(declared: &TensorInfo, found: &TensorRef<'_>) -> Option<Unsound> {
    let fits = declared.shape.as_ref().is_none_or(|dims| {
        let fits = |(dim, &found): (&Dim, &usize)| dim.fixed().is_none_or(|size| size == found);
        dims.len() == found.shape().len() && dims.iter().zip(found.shape()).all(fits)
    });
    if !fits || found.dtype() != declared.dtype {
        let found = format!("{} {}", found.dtype(), ShapeText(found.shape()));
        return Some(Unsound::Shape { output: declared.to_string(), found });
    }
    let numbers = found.to_f32();
    let count = numbers.iter().filter(|number| !number.is_finite()).count();
    (count > 0).then(|| Unsound::NotFinite { output: declared.name.clone(), count, of: numbers.len() })
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
            judge(&declared(shape), &TensorRef::new(DType::F32, &[2, 2], &bytes).unwrap())
        };
        let (two, open) = (Dim::Fixed(2), Dim::Dynamic(String::new()));
        let good = [0.0, -1.0, f32::MAX, f32::MIN_POSITIVE];
        assert_eq!(judged(vec![two.clone(), two.clone()], good), None);
        assert_eq!(judged(vec![open.clone(), two.clone()], good), None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let wrong = judged(vec![open.clone(), open.clone()], [0.0, bad, bad, 1.0]).unwrap();
            let told = wrong.on("a frame of camera door").to_string();
            assert!(told.starts_with("on a frame of camera door 2 of the 4 numbers of its output out are "), "{told}");
        }
        let wrong = judged(vec![two.clone(), Dim::Fixed(3)], good).unwrap();
        let told = wrong.on("a grey frame").to_string();
        assert!(told.contains("comes as f32 [2, 2], and it declares out f32 [2, 3]"), "{told}");
        assert!(judged(vec![two], good).is_some());
    }
}
