//! `visiond detect`: detects objects in pictures and videos.
//!
//! One thread reads and decodes while this one runs the model and prints, so that a video takes only as long as the slower of
//! the two. An unreadable file is reported, and the command continues with the next one.

mod annotated;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use visiond_capture::Buffers;
use visiond_config::diagnostics::count;
use visiond_config::parse_word;
use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};
use visiond_engine::detector::{Detection, Detector, DetectorError, MaskForm};
use visiond_frames::clock::{Clock, SystemClock};
use visiond_frames::frame::Frame;
use visiond_message::{AttributeMessage, DetectionMessage, Message, Timings};
use visiond_pipeline::collector::{CameraTracks, FrameTracks, TrackBuffers, TrackSettings, message_of};
use visiond_pipeline::lane_result::{LaneResult, ModelFacts};
use visiond_service::model_trial;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{clear_live_line, escape};
use visiond_system::priority::wake_on_time;
use visiond_system::stop::Stop;
use visiond_tracker::TrackIds;

use crate::load_limits::LoadLimits;
use crate::media_decoder::{MediaItem, VideoArgs, decode, shown};
use crate::mot_file::MotFile;
use crate::output::{complain, escape_json, note, print_bytes};
use crate::progress::Progress;
use crate::sample_model::ModelArgs;
use crate::value_parsers::fraction;
use annotated::AnnotatedPictures;

/// Maximum width of a column; a longer name shifts the rest of its row.
const WIDEST: usize = 48;

/// Detect objects in pictures and videos
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Pictures and videos: files, or URLs that ffmpeg can read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    model: ModelArgs,

    /// Print one JSON message per frame instead of a table
    #[arg(long)]
    pub json: bool,

    /// Write pictures with boxes to DIR: NAME-annotated.jpg, for a video NAME-annotated-NUMBER.jpg
    #[arg(short, long, value_name = "DIR")]
    annotate: Option<PathBuf>,

    /// Show only detections with at least this score, 0 to 1 [default: the card's]
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    score_threshold: Option<f64>,

    /// Show only these classes, by label [default: all]
    #[arg(long, value_name = "LABEL,...", value_delimiter = ',')]
    classes: Vec<String>,

    /// Give masks as polygons, rle, both or none; pictures show polygons [default: polygons]
    #[arg(long, value_name = "FORM", default_value = "polygons", hide_default_value = true, value_parser = parse_word::<MaskForm>)]
    masks: MaskForm,

    /// Run an .onnx model with this backend: auto, onnxruntime or rten
    #[arg(long, default_value = "auto", value_parser = parse_word::<BackendChoice>)]
    backend: BackendChoice,

    /// Give the detections of an object the same track id in all frames of a video
    #[arg(long)]
    track: bool,

    /// Let detections below SCORE only continue tracks; implies --track [default: the threshold, but 0.25 to 0.6]
    #[arg(long, value_name = "SCORE", value_parser = fraction)]
    track_score: Option<f64>,

    /// Write the tracks of the one video to FILE, as MOTChallenge results; implies --track
    #[arg(long, value_name = "FILE")]
    mot: Option<PathBuf>,

    #[command(flatten)]
    trial: LoadLimits,

    #[command(flatten)]
    video: VideoArgs,
}

const AFTER_HELP: &str = "\
The type of a file comes from its content, not from its name. An unreadable file is reported on standard error; the \
command continues and exits with status 5.

Examples:
  visiond detect photo.jpg
  visiond detect --annotate out --max-frames 100 street.mp4
  visiond detect --mot tracks.txt --classes person street.mp4
  visiond detect --json *.jpg | jq -r '.detections[].label'
  visiond detect --model yolo11n.onnx --classes person,car photo.jpg";

/// Runs the model on every file.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    // As lanes do.
    wake_on_time();
    let tracks = (args.track || args.track_score.is_some() || args.mot.is_some()).then(|| {
        let settings = TrackSettings { score: args.track_score, ..TrackSettings::default() };
        VideoTracks::new(settings)
    });
    let mot = args.mot.as_deref().map(|path| MotFile::create(path, &args.files)).transpose()?;
    let pictures = args.annotate.as_deref().map(|folder| AnnotatedPictures::open(folder, &args.files)).transpose()?;
    let (score_threshold, classes, masks) = (args.score_threshold, args.classes, args.masks);
    let model = ModelConfig { score_threshold, classes, masks, max_batch: 1, ..args.model.config()? };
    let engine = args.trial.of(EngineConfig { backend: args.backend, ..EngineConfig::default() });
    let loaded = model_trial::load(&model, &engine, &Stop::new().map_err(ExitError::system)?)?;
    // Load the GPU's kernels before the buffers compare kinds of memory.
    let detector = loaded.required_detector()?;
    let buffers = Buffers::new(&args.video.buffers(), loaded.device())
        .map_err(|error| ExitError::new(Exit::Model.unless_gpu_lost(&error), error))?;
    let detection = DetectionRun {
        model: loaded.facts(&detector),
        printer: DetectionPrinter::new(args.json, tracks.is_some(), &args.files, &detector),
        detector,
        camera: "detect".into(),
        tracks,
        mot,
        pictures,
        found: Vec::new(),
        exit: Exit::Success,
    };
    decode(&args.files, &args.video, &buffers, |items| detection.run(&args.files, items))
}

/// Runs the model on frames and reports what it detects.
struct DetectionRun {
    detector: Detector,
    model: ModelFacts,
    camera: Arc<str>,
    printer: DetectionPrinter,
    tracks: Option<VideoTracks>,
    mot: Option<MotFile>,
    pictures: Option<AnnotatedPictures>,
    found: Vec<Detection>,
    /// The exit status of the first error.
    exit: Exit,
}

impl DetectionRun {
    fn run(mut self, files: &[PathBuf], items: &Receiver<MediaItem>) -> Result<Exit, ExitError> {
        for item in items {
            match item {
                MediaItem::Begun { file } => {
                    self.printer.begin(&files[file]);
                    if let Some(tracks) = &mut self.tracks {
                        tracks.begin();
                    }
                }
                MediaItem::Frame { is_video: false, frame, .. } if self.mot.is_some() => {
                    return Err(MotFile::refuse_picture(&frame));
                }
                MediaItem::Frame { file, is_video, frame } => self.detect(file, is_video, &frame)?,
                MediaItem::Failed { reason } => self.fail(Exit::Input, &reason),
                // The source has logged the error.
                MediaItem::Damaged => self.remember(Exit::Input),
            }
        }
        self.printer.end();
        Ok(self.exit)
    }

    fn detect(&mut self, file: usize, is_video: bool, frame: &Frame) -> Result<(), ExitError> {
        let name = frame.name.as_deref().unwrap_or_default();
        let failed = |error: DetectorError| {
            ExitError::new(Exit::Model.unless_gpu_lost(&error), format!("{}: {error}", escape(name)))
        };
        let taken_ns = SystemClock.monotonic_ns();
        let age = |now_ns: u64| now_ns.saturating_sub(frame.timestamp.monotonic_ns) / 1_000;
        let view = match frame.view() {
            Ok(view) => view,
            Err(error) => {
                self.fail(Exit::Input, &format!("{}: {error}", escape(name)));
                return Ok(());
            }
        };
        let run_id = self.detector.begin(&[view]).map_err(failed)?;
        let run = self.detector.finish(run_id).map_err(failed)?;
        let inferred = Instant::now();
        self.detector.detections(run_id, 0, &mut self.found).map_err(failed)?;
        let timings = Timings {
            capture: age(taken_ns),
            queue: 0,
            preprocess: run.preprocess_us,
            infer: run.infer_us,
            postprocess: inferred.elapsed().as_micros() as u64,
            total: age(SystemClock.monotonic_ns()),
        };
        let (detections, values) = (&*self.found, self.detector.values());
        let result = LaneResult { frame: frame.facts(), model: &self.model, detections, values, crops: &[], timings };
        let tracks = self.tracks.as_mut().filter(|_| is_video).map(|tracks| tracks.step(&result));
        let message = message_of(&self.camera, &result, tracks.unwrap_or_default());
        self.printer.frame(&message, is_video)?;
        if let Some(mot) = &mut self.mot {
            mot.frame(&message)?;
        }
        if let Some(pictures) = &mut self.pictures
            && let Err(reason) = pictures.store(file, is_video.then_some(frame.sequence), &view, &message)
        {
            // Detection continues without annotated pictures, because the next one would fail in the same way.
            self.pictures = None;
            self.fail(Exit::Output, &format!("{reason}; no more pictures are written"));
        }
        Ok(())
    }

    fn fail(&mut self, exit: Exit, reason: &str) {
        complain(reason);
        self.remember(exit);
    }

    fn remember(&mut self, exit: Exit) {
        if self.exit == Exit::Success {
            self.exit = exit;
        }
    }
}

/// The tracks of the current video. Ids go on from video to video.
struct VideoTracks {
    settings: TrackSettings,
    ids: Arc<TrackIds>,
    tracks: CameraTracks,
    buffers: TrackBuffers,
}

impl VideoTracks {
    fn new(settings: TrackSettings) -> Self {
        let ids = Arc::<TrackIds>::default();
        Self { settings, tracks: CameraTracks::new(Arc::clone(&ids)), ids, buffers: TrackBuffers::default() }
    }

    /// Starts a file.
    fn begin(&mut self) {
        self.tracks = CameraTracks::new(Arc::clone(&self.ids));
    }

    fn step(&mut self, result: &LaneResult<'_>) -> FrameTracks<'_> {
        self.tracks.step(&self.settings, result, &mut self.buffers)
    }
}

/// Returns the values of a whole frame as labels and scores of rows.
fn value_rows(message: &Message) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for (name, attribute) in &message.attributes.0 {
        let score = |score: f32| format!("{score:.2}");
        match attribute {
            AttributeMessage::Label(one) => rows.push((format!("{name}: {}", one.label), score(one.score))),
            AttributeMessage::Labels { labels } if !labels.is_empty() => {
                rows.extend(labels.iter().map(|one| (format!("{name}: {}", one.label), score(one.score))));
            }
            AttributeMessage::Labels { .. } | AttributeMessage::Number { .. } => {
                rows.push((format!("{name}: {}", attribute.text()), String::new()));
            }
        }
    }
    rows.extend(message.embedding.iter().map(|e| (format!("embedding of {} numbers", e.length), String::new())));
    rows.extend(message.depth.iter().map(|depth| {
        let medians = || depth.median.iter().flatten().copied();
        let range = match (medians().reduce(f32::min), medians().reduce(f32::max)) {
            (Some(least), Some(most)) => format!("medians from {least} to {most}"),
            _ => "no number is finite".to_owned(),
        };
        (format!("depth in {}x{} cells, {range}", depth.columns, depth.rows), String::new())
    }));
    rows
}

/// Prints detections and progress.
struct DetectionPrinter {
    json: bool,
    /// Whether rows have the id of a track.
    tracks: bool,
    name_width: usize,
    label_width: usize,
    header_printed: bool,
    /// The name of the last column: the angle of an oriented box, or the part of the frame that a class covers.
    last: &'static str,
    /// Whether rows and the live line share the terminal, so that the line must be cleared before each row.
    out_is_terminal: bool,
    started: Instant,
    progress: Progress,
    files: usize,
    frames: usize,
    detections: usize,
    /// Name, start time and number of frames of the current file.
    current: (String, Instant, u64),
}

impl DetectionPrinter {
    /// Sizes the columns for these files and class labels.
    fn new(json: bool, tracks: bool, files: &[PathBuf], detector: &Detector) -> Self {
        let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0).min(WIDEST);
        let now = Instant::now();
        Self {
            json,
            tracks,
            name_width: widest(&mut files.iter().map(|file| shown(file).chars().count())).max(4),
            label_width: widest(&mut detector.labels().iter().map(|label| label.chars().count())).max(5),
            header_printed: false,
            last: match (detector.is_oriented(), detector.maps_classes()) {
                (true, _) => "ANGLE",
                (_, true) => "COVERS",
                _ => "",
            },
            out_is_terminal: io::stdout().is_terminal(),
            started: now,
            progress: Progress::new(),
            files: 0,
            frames: 0,
            detections: 0,
            current: (String::new(), now, 0),
        }
    }

    /// Starts a file.
    fn begin(&mut self, file: &Path) {
        self.files += 1;
        self.current = (escape(&shown(file)), Instant::now(), 0);
    }

    /// Prints the detections of a frame.
    fn frame(&mut self, message: &Message, is_video: bool) -> Result<(), ExitError> {
        self.frames += 1;
        self.current.2 += 1;
        self.detections += message.detections.len();
        let json = || escape_json(&String::from_utf8_lossy(&message.to_line())).into_bytes();
        let text = if self.json { json() } else { self.rows(message, is_video).into_bytes() };
        if !text.is_empty() {
            if self.out_is_terminal {
                clear_live_line();
            }
            print_bytes(&text)?;
        }
        let (name, started, frames) = &self.current;
        self.progress.tell(|| {
            let rate = *frames as f64 / started.elapsed().as_secs_f64().max(1e-3);
            format!("{name}: frame {}, {rate:.1} frames/s", message.sequence)
        });
        Ok(())
    }

    /// Prints the totals after a long run or on a terminal.
    fn end(&self) {
        clear_live_line();
        let took = self.started.elapsed();
        if self.frames > 1 && Progress::was_long(took) {
            note(&format!(
                "{}, {}, {} in {:.1} s ({:.1} frames/s)",
                count(self.files, "file"),
                count(self.frames, "frame"),
                count(self.detections, "detection"),
                took.as_secs_f64(),
                self.frames as f64 / took.as_secs_f64().max(1e-3),
            ));
        }
    }

    fn rows(&mut self, message: &Message, is_video: bool) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.header_printed, true) {
            text = self.row(["FILE", "FRAME", "ID", "LABEL", "SCORE", "X", "Y", "WIDTH", "HEIGHT", self.last]);
        }
        let name = escape(message.frame.file.as_deref().unwrap_or("-"));
        let frame = message.sequence.to_string();
        // A picture without detections gets a row as well, so that none seems forgotten; a video frame does not.
        if message.is_empty() && !is_video {
            text += &self.row([&name, &frame, "-", "-", "", "", "", "", "", ""]);
        }
        for DetectionMessage { label, score, bounds, oriented, fraction, track, .. } in &message.detections {
            let id = track.map_or_else(|| "-".to_owned(), |track| track.id.to_string());
            let score = format!("{score:.2}");
            let numbers = match bounds {
                Some(b) => [b.x, b.y, b.width, b.height].map(|pixels| format!("{pixels:.0}")),
                None => Default::default(),
            };
            let last = match (oriented, fraction) {
                (Some(turned), _) => format!("{:.0}°", turned.angle.to_degrees()),
                (_, Some(fraction)) => format!("{:.1}%", 100.0 * fraction),
                _ => String::new(),
            };
            let [x, y, width, height] = &numbers;
            text += &self.row([&name, &frame, &id, &escape(label), &score, x, y, width, height, &last]);
        }
        for (value, score) in value_rows(message) {
            text += &self.row([&name, &frame, "-", &escape(&value), &score, "", "", "", "", ""]);
        }
        text
    }

    fn row(&self, [name, frame, id, label, score, x, y, width, height, last]: [&str; 10]) -> String {
        let (names, labels) = (self.name_width, self.label_width);
        let id = if self.tracks { format!("{id:>5}  ") } else { String::new() };
        let row = format!(
            "{name:names$}  {frame:>6}  {id}{label:labels$}  {score:>5}  {x:>6} {y:>6} {width:>6} {height:>6} {last:>6}"
        );
        row.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use visiond_message::testing::message;
    use visiond_message::{AttributesMessage, DepthMessage, EmbeddingMessage, LabelMessage};

    use super::*;

    #[test]
    fn values_of_a_whole_frame_are_rows_of_their_own() {
        let label = |label: &str, score| LabelMessage { label: label.into(), score };
        let depth = |median: &[Option<f32>]| {
            let median = median.to_vec();
            DepthMessage { columns: 3, rows: 1, nearest: Vec::new(), median }
        };
        let attributes = AttributesMessage(vec![
            ("hair".into(), AttributeMessage::Label(label("dark", 0.875))),
            ("wears".into(), AttributeMessage::Labels { labels: vec![label("hat", 0.75), label("coat", 0.5)] }),
            ("carries".into(), AttributeMessage::Labels { labels: Vec::new() }),
            ("age".into(), AttributeMessage::Number { value: 31.5 }),
        ]);
        let embedding = Some(EmbeddingMessage { length: 512, f16: String::new() });
        let depths = Some(depth(&[Some(2.5), None, Some(0.5)]));
        let all = Message { attributes, embedding, depth: depths, ..message("door", &[]) };
        let rows = value_rows(&all);
        let rows: Vec<_> = rows.iter().map(|(label, score)| (label.as_str(), score.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("hair: dark", "0.88"),
                ("wears: hat", "0.75"),
                ("wears: coat", "0.50"),
                ("carries: none", ""),
                ("age: 31.5", ""),
                ("embedding of 512 numbers", ""),
                ("depth in 3x1 cells, medians from 0.5 to 2.5", ""),
            ]
        );
        let dark = value_rows(&Message { depth: Some(depth(&[None; 3])), ..message("door", &[]) });
        assert_eq!(dark, [("depth in 3x1 cells, no number is finite".to_owned(), String::new())]);
        assert!(value_rows(&message("door", &["person"])).is_empty());
    }
}
