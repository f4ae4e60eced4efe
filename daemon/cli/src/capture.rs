//! `visiond capture`: saves frames of a camera as PNG files.
//!
//! It opens the same sources as `run`, in the same way, but loads no model. One thread takes frames and another converts and
//! writes them, so that a few dozen consecutive frames have no gap.

mod event;
mod png_writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use visiond_capture::Buffers;
use visiond_capture::source::{Source, SourceError};
use visiond_config::parse_word;
use visiond_config::types::{CameraFormat, Config, ControlValue, IoMode, SourceConfig, StreamDecoding, V4l2Config};
use visiond_frames::frame::LossCause;
use visiond_kernels::privacy::PrivacyMask;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::stop::Stop;

use crate::config_path::config_path;
use crate::next_frame::next_frame;
use crate::output::thread_error;
use event::{CaptureEvent, Footprint};
use png_writer::{Captured, PngWriter, QUEUE, queue};

/// Save frames of a camera as PNG files
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Open this camera, named as by a configuration's `device`; with --config, the name of a camera in it
    #[arg(short, long, value_name = "CAMERA", required_unless_present = "config")]
    camera: Option<String>,

    /// Open a camera of this configuration with its settings; --camera chooses one of several
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Save N frames
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    frames: u64,

    /// Skip N frames first, until exposure and white balance have settled
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,

    /// Write the images to DIR as CAMERA-NUMBER.png
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,

    /// Set the pixel format, or mjpeg [default: visiond's choice]
    #[arg(long, value_parser = parse_word::<CameraFormat>, help_heading = "Camera")]
    format: Option<CameraFormat>,

    /// Set the width in pixels [default: visiond's choice]
    #[arg(long, value_name = "PIXELS", help_heading = "Camera")]
    width: Option<u32>,

    /// Set the height in pixels [default: visiond's choice]
    #[arg(long, value_name = "PIXELS", help_heading = "Camera")]
    height: Option<u32>,

    /// Set the frames per second [default: the driver's choice]
    #[arg(long, help_heading = "Camera")]
    fps: Option<f64>,

    /// Set how frames leave the driver: userptr, mmap or copy [default: the first that works]
    #[arg(long, value_parser = parse_word::<IoMode>, help_heading = "Camera")]
    io: Option<IoMode>,

    /// Select the input of a capture card by number [default: the current one]
    #[arg(long, value_name = "N", help_heading = "Camera")]
    input: Option<u32>,

    /// Set a control by the name that `visiond probe` shows (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = control, help_heading = "Camera")]
    control: Vec<(String, ControlValue)>,

    /// Open the camera, take the frames and close it N times; print memory and descriptors, write no images
    #[arg(long, value_name = "N", conflicts_with = "output", value_parser = clap::value_parser!(u64).range(1..))]
    cycles: Option<u64>,

    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
The pictures are the frames as a model would get them. Lost and damaged frames are reported, not saved.

Examples:
  visiond capture --camera /dev/video0
  visiond capture -c /dev/video0 -n 10 --format yuyv --width 1280 --height 720
  visiond capture --config /etc/visiond/visiond.toml --camera door --skip 30
  visiond capture -c /dev/video0 --cycles 100  test the camera for leaks";

/// Parses NAME=VALUE for clap, which prints the error as a sentence.
fn control(text: &str) -> Result<(String, ControlValue), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), ControlValue::parse(value.trim())))
}

/// Opens the camera and saves its frames, or measures a number of cycles.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let (name, source, masks) = chosen(&args)?;
    let stop = Stop::new().map_err(ExitError::system)?;
    let camera = CaptureSession { name: &name, source: &source, masks, args: &args, stop: &stop };
    match args.cycles {
        Some(cycles) => camera.cycles(cycles)?,
        None => camera.pictures()?,
    }
    Ok(Exit::Success)
}

/// Returns the camera's name, its source with the settings of the command line, and its privacy masks.
fn chosen(args: &Args) -> Result<(String, SourceConfig, Vec<PrivacyMask>), ExitError> {
    let (name, mut source, masks) = match (&args.config, &args.camera) {
        (Some(file), wanted) => of_config(file, wanted.as_deref())?,
        (None, camera) => {
            let device = camera.as_deref().unwrap_or_default();
            let camera = device.parse().map_err(|error| ExitError::new(Exit::Usage, format!("--camera is {error}")))?;
            let source = V4l2Config { device: camera, ..V4l2Config::default() };
            (stem(device), SourceConfig::V4l2(source), Vec::new())
        }
    };
    if let SourceConfig::Rtsp(rtsp) = &mut source {
        // Images are saved from host memory, and no model uses a GPU here.
        rtsp.decoder = StreamDecoding::Ffmpeg;
    }
    match &mut source {
        SourceConfig::V4l2(v4l2) => {
            v4l2.format = args.format.or(v4l2.format);
            v4l2.width = args.width.or(v4l2.width);
            v4l2.height = args.height.or(v4l2.height);
            v4l2.fps = args.fps.or(v4l2.fps);
            v4l2.io = args.io.or(v4l2.io);
            v4l2.input = args.input.or(v4l2.input);
            v4l2.controls.extend(args.control.iter().cloned());
        }
        _ => {
            let Args { format, width, height, fps, io, input, control, .. } = args;
            let sizes = [width, height, input].into_iter().any(Option::is_some);
            if !sizes && format.is_none() && fps.is_none() && io.is_none() && control.is_empty() {
                return Ok((name, source, masks));
            }
            let message =
                format!("camera {name} is not a V4L2 camera: leave out the flags that --help lists under `Camera`");
            return Err(ExitError::new(Exit::Usage, message));
        }
    }
    Ok((name, source, masks))
}

fn of_config(file: &Path, wanted: Option<&str>) -> Result<(String, SourceConfig, Vec<PrivacyMask>), ExitError> {
    let config =
        Config::load(&config_path(Some(file.to_owned()))?).map_err(|error| ExitError::new(Exit::Config, error))?;
    let names: Vec<_> = config.cameras.iter().map(|camera| camera.name.as_str()).collect();
    let index = match wanted {
        Some(wanted) => names.iter().position(|name| *name == wanted),
        None => (names.len() == 1).then_some(0),
    };
    match index.map(|index| &config.cameras[index]) {
        Some(camera) => {
            let masks = camera.privacy_masks().map_err(|error| ExitError::new(Exit::Config, error))?;
            Ok((camera.name.clone(), camera.source.clone(), masks))
        }
        None if names.is_empty() => {
            Err(ExitError::new(Exit::Config, format!("{} has no camera: add a `[[camera]]`", file.display())))
        }
        None => {
            let found = wanted.map_or("several cameras".to_owned(), |wanted| format!("no camera {wanted}"));
            let names = names.join(", ");
            Err(ExitError::new(Exit::Usage, format!("{} has {found}; name one with --camera: {names}", file.display())))
        }
    }
}

/// Returns the start of the images' file names: the last part of a path, with characters other than letters, digits, `-`
/// and `_` replaced.
fn stem(device: &str) -> String {
    let last = device.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let stem: String = last.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    if stem.is_empty() { "camera".to_owned() } else { stem }
}

/// The camera, and the number of frames to take from it.
struct CaptureSession<'a> {
    name: &'a str,
    source: &'a SourceConfig,
    masks: Vec<PrivacyMask>,
    args: &'a Args,
    stop: &'a Stop,
}

impl CaptureSession<'_> {
    /// Opens the camera, takes the frames and writes them.
    fn pictures(&self) -> Result<(), ExitError> {
        let png_writer = PngWriter::open(&self.args.output, self.name)?;
        let mut source = self.open()?;
        self.print_opened(source.as_ref())?;
        std::thread::scope(|scope| {
            let (sender, queued) = sync_channel(QUEUE);
            let thread = std::thread::Builder::new().name("write".to_owned());
            let write = || png_writer.write(queued, self.args.json);
            let writer = thread.spawn_scoped(scope, write).map_err(thread_error)?;
            let end = self.take(source.as_mut(), |next| queue(&sender, next));
            drop(sender);
            // Writes the frames taken so far, even if taking more has failed.
            writer.join().unwrap_or_else(|_| Err(ExitError { message: String::new(), exit: Exit::Failure }))?;
            end?.print(self.args.json)
        })
    }

    /// Opens the camera, takes the frames and closes it, `cycles` times.
    fn cycles(&self, cycles: u64) -> Result<(), ExitError> {
        let footprint = |cycle| CaptureEvent::Footprint { cycle, footprint: Footprint::now() }.print(self.args.json);
        footprint(0)?;
        for cycle in 1..=cycles {
            let failed = |error: ExitError| ExitError { message: format!("cycle {cycle}: {}", error.message), ..error };
            let mut source = self.open().map_err(failed)?;
            if cycle == 1 {
                self.print_opened(source.as_ref())?;
            }
            self.take(source.as_mut(), |_| true).map_err(failed)?;
            drop(source);
            // After the first cycle, all one-time allocations have happened.
            if cycle == 1 || cycle == cycles {
                footprint(cycle)?;
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn Source>, ExitError> {
        visiond_capture::open(self.source, self.masks.clone(), self.name, &Buffers::default())
            .map_err(|error| ExitError::new(Exit::Input, error.message))
    }

    fn print_opened(&self, source: &dyn Source) -> Result<(), ExitError> {
        CaptureEvent::Opened { camera: self.name, description: source.describe(), io: source.io() }
            .print(self.args.json)
    }

    /// Takes the frames and passes each frame and each loss to `out`, until `out` returns false.
    fn take(
        &self,
        source: &mut dyn Source,
        mut out: impl FnMut(Captured) -> bool,
    ) -> Result<CaptureEvent<'static>, ExitError> {
        let (mut frames, mut skipped, mut began) = (0, 0, Instant::now());
        let (mut driver, mut corrupt, mut overload, mut unmasked) = (0, 0, 0, 0);
        while frames < self.args.frames {
            let mut is_read = true;
            // No error of this wait is shown once the frames are no longer read.
            let lost = |frames, cause| {
                match cause {
                    LossCause::Driver => driver += frames,
                    LossCause::Corrupt => corrupt += frames,
                    LossCause::Overload => overload += frames,
                    LossCause::Unmasked => unmasked += frames,
                }
                is_read = out(Captured::Lost { frames, cause });
                if is_read { Ok(()) } else { Err(SourceError::permanent(String::new())) }
            };
            let next = next_frame(source, self.stop, lost);
            if !is_read {
                break;
            }
            let Some(frame) = next.map_err(|error| ExitError::new(Exit::Input, error))? else {
                let message = format!("camera {} ended after {frames} frames: ask for fewer with -n", self.name);
                return Err(ExitError::new(Exit::Input, message));
            };
            if skipped < self.args.skip {
                skipped += 1;
                began = Instant::now();
                continue;
            }
            frames += 1;
            if !out(Captured::Frame(frame)) {
                break;
            }
        }
        let (seconds, copied_bytes) = (began.elapsed().as_secs_f64(), source.copied_bytes());
        Ok(CaptureEvent::End { frames, seconds, driver, corrupt, overload, unmasked, copied_bytes })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_capture::source::Next;
    use visiond_config::types::PatternConfig;
    use visiond_frames::frame::Frame;

    use super::*;

    #[test]
    fn pictures_are_called_after_the_camera() {
        assert_eq!(stem("/dev/video0"), "video0");
        assert_eq!(
            stem("/dev/v4l/by-path/pci-0000:00:14.0-usb-0:1:1.0-video-index0"),
            "pci-0000-00-14-0-usb-0-1-1-0-video-index0"
        );
        assert_eq!(stem("046d:0825"), "046d-0825");
        assert_eq!(stem("HD Webcam (front)"), "HD-Webcam--front-");
        assert_eq!(stem("/"), "camera");
    }

    /// Yields its items, last first, then ends.
    struct Listed(Vec<Option<(u64, LossCause)>>);

    impl Source for Listed {
        fn next(&mut self, _stop: &Stop) -> Result<Next, SourceError> {
            let frame = || pattern(1).next().transpose().ok().flatten().map_or(Next::End, Next::Frame);
            Ok(match self.0.pop() {
                None => Next::End,
                Some(None) => frame(),
                Some(Some((frames, cause))) => Next::Lost { frames, cause },
            })
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn copied_bytes(&self) -> u64 {
            77
        }
    }

    fn pattern(frames: u64) -> impl Iterator<Item = Result<Frame, SourceError>> {
        let pattern = PatternConfig { width: 32, height: 32, fps: 1000.0, ..PatternConfig::default() };
        let mut source =
            visiond_capture::open(&SourceConfig::Pattern(pattern), Vec::new(), "p", &Buffers::default()).unwrap();
        let stop = Stop::new().unwrap();
        (0..frames).filter_map(move |_| next_frame(source.as_mut(), &stop, |_, _| Ok(())).transpose())
    }

    fn args(words: &[&str]) -> Args {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let words = ["capture", "--camera", "/dev/video0"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(words).unwrap().args
    }

    /// Takes the frames of a source that yields these items, the last first; `out` ends after `most` of them.
    fn taken(words: &[&str], items: Vec<Option<(u64, LossCause)>>, most: usize) -> Result<(String, String), ExitError> {
        let (args, stop) = (args(words), Stop::new().unwrap());
        let source = SourceConfig::Pattern(PatternConfig::default());
        let session = CaptureSession { name: "door", source: &source, masks: Vec::new(), args: &args, stop: &stop };
        let mut seen = Vec::new();
        let end = session.take(&mut Listed(items), |captured| {
            seen.push(match captured {
                Captured::Frame(_) => "frame".to_owned(),
                Captured::Lost { frames, cause } => format!("{frames} {cause:?}"),
            });
            seen.len() < most
        })?;
        let CaptureEvent::End { frames, driver, corrupt, overload, copied_bytes, .. } = end else { panic!("{end:?}") };
        Ok((seen.join(", "), format!("{frames} {driver} {corrupt} {overload} {copied_bytes}")))
    }

    #[test]
    fn frames_and_losses_are_passed_on_and_counted_by_cause() {
        let lost = |frames, cause| Some((frames, cause));
        let items = || {
            vec![
                None,
                None,
                lost(4, LossCause::Overload),
                lost(2, LossCause::Driver),
                None,
                lost(3, LossCause::Corrupt),
                lost(1, LossCause::Driver),
            ]
        };
        let (seen, end) = taken(&["-n", "2"], items(), 99).unwrap();
        assert_eq!(seen, "1 Driver, 3 Corrupt, frame, 2 Driver, 4 Overload, frame");
        assert_eq!(end, "2 3 3 4 77");
        // Skipped frames are not passed on.
        let (seen, end) = taken(&["-n", "1", "--skip", "2"], items(), 99).unwrap();
        assert_eq!((seen.as_str(), end.as_str()), ("1 Driver, 3 Corrupt, 2 Driver, 4 Overload, frame", "1 3 3 4 77"));
    }

    #[test]
    fn taking_ends_where_nothing_is_read_any_more_and_an_early_end_is_an_error() {
        let lost = Some((1, LossCause::Corrupt));
        assert_eq!(
            taken(&["-n", "9"], vec![None, None, None], 2).unwrap(),
            ("frame, frame".to_owned(), "2 0 0 0 77".to_owned())
        );
        assert_eq!(taken(&["-n", "9"], vec![None, lost, None], 2).unwrap().0, "frame, 1 Corrupt");
        let error = taken(&["-n", "3"], vec![None], 99).unwrap_err();
        assert_eq!(
            (error.exit, error.message.as_str()),
            (Exit::Input, "camera door ended after 1 frames: ask for fewer with -n")
        );
    }

    #[test]
    fn flags_of_a_camera_override_its_settings_and_are_refused_for_other_sources() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("visiond.toml");
        let text = "[[model]]\nname = \"n\"\npath = \"n.onnx\"\n\
                    [[camera]]\nname = \"door\"\nsource = { type = \"v4l2\", device = \"/dev/video3\", width = 640, fps = 5.0 }\n\
                    [[camera]]\nname = \"film\"\nsource.type = \"pattern\"\n";
        std::fs::write(&file, text).unwrap();
        let of = |camera: &str, words: &[&str]| {
            let mut args = args(words);
            (args.config, args.camera) = (Some(file.clone()), (!camera.is_empty()).then(|| camera.to_owned()));
            chosen(&args)
        };
        let flags = [
            "--format",
            "yuyv",
            "--height",
            "480",
            "--fps",
            "30",
            "--io",
            "mmap",
            "--input",
            "2",
            "--control",
            "gain=5",
        ];
        let (name, SourceConfig::V4l2(door), _) = of("door", &flags).unwrap() else { panic!("not a V4L2 camera") };
        assert_eq!((name.as_str(), door.device.to_string().as_str()), ("door", "/dev/video3"));
        assert_eq!((door.width, door.height, door.fps, door.input), (Some(640), Some(480), Some(30.0), Some(2)));
        assert_eq!((door.io, door.format.is_some()), (Some(IoMode::Mmap), true));
        assert_eq!(door.controls["gain"], ControlValue::Number(5));
        assert!(matches!(of("film", &[]).unwrap(), (name, SourceConfig::Pattern(_), _) if name == "film"));
        for flag in [["--format", "yuyv"], ["--width", "9"], ["--fps", "30"], ["--io", "mmap"], ["--control", "gain=5"]]
        {
            assert!(of("film", &flag).unwrap_err().message.contains("camera film is not a V4L2 camera"), "{flag:?}");
        }
        for (camera, words) in
            [("", "has several cameras; name one with --camera: door, film"), ("attic", "has no camera attic;")]
        {
            let error = of(camera, &[]).unwrap_err();
            assert!(error.exit == Exit::Usage && error.message.contains(words), "{error:?}");
        }
    }
}
