//! Reads a video file or stream, which ffmpeg decodes in a child process straight into a unified buffer.
//!
//! By default a frame has the pixels that OpenCV's `VideoCapture` returns: ffmpeg's decoder uses arithmetic that is the same on
//! every machine, honours tags for matrix, range and chroma siting, and treats untagged video as BT.601 limited at any size. 4:2:0
//! planes pass through the pipe, and preprocessing converts them as ffmpeg would; other video arrives as BGR. With `pixels =
//! "native"` the file's own planes arrive and are converted by the formulas.
//!
//! visiond paces a file with `pace = "realtime"` by its average rate and absolute deadlines. A live stream sets its own pace; over
//! HTTP it may arrive in bursts, which are spread.

use std::error::Error;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use visiond_config::types::{Pace, VideoConfig};
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::LossCause;
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{self, Child};
use visiond_system::find_program;
use visiond_system::preflight::Certainty;
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::camera_address::{check_login, read_login};
use super::decoder_process;
use super::ffmpeg_output::FfmpegOutput;
use super::ffprobe::{self, VideoInfo};
use super::pacer::{BurstPacer, SourcePacer, USUAL_FPS, recorded_at};
use super::pipe::{PipeFrames, ReadError};
use super::source::{Next, Source, SourceError, SourceFault};

/// A file that is late by more than this continues from now instead of catching up.
const CATCH_UP: Duration = Duration::from_secs(2);

/// Options of a live stream's decoder. Frame threads delay output by a frame each; slice threads do not. The user's `-threads` does
/// not change that; `-thread_type frame` does.
const LIVE_DECODER: [&str; 2] = ["-thread_type", "slice"];

/// Options of a live stream's demuxer. By itself, ffmpeg would analyse up to 5 s of the stream and output them late; ffprobe has
/// already found the parameters.
const LIVE_DEMUXER: [&str; 2] = ["-analyzeduration", "1"];

/// Containers that do not list their streams: ffmpeg must read until it has seen the video.
const UNDECLARED: [&str; 3] = ["flv", "live_flv", "mpeg"];

/// Options of a live stream's output: one thread, because two delay it by a frame.
const LIVE_OUTPUT: [&str; 2] = ["-threads", "1"];

pub struct VideoSource {
    config: VideoConfig,
    buffers: Buffers,
    label: String,
    clock: Arc<dyn Clock>,
    /// `None` before ffprobe: a file is probed at once, a stream with the first frame, because that may take long.
    running: Option<OpenVideo>,
    sequence: u64,
    /// Frames of the current round through the file.
    round_frames: u64,
}

/// A video that was probed.
struct OpenVideo {
    info: VideoInfo,
    frames: PipeFrames,
    /// Whether it is a network stream without a length, like a camera's.
    is_live: bool,
    /// `None` if the file is read as fast as possible, or is live.
    pacer: Option<SourcePacer>,
    /// `None` unless it is a live stream that may arrive in bursts.
    burst_pacer: Option<BurstPacer>,
    /// `None` between two rounds, and after the last.
    child: Option<Child>,
}

impl VideoSource {
    /// Checks whether [`VideoSource::open`] would fail, without starting a program or connecting to a camera.
    pub fn check(config: &VideoConfig) -> Vec<SourceFault> {
        let login = check_login(config.login.as_deref());
        let file = ffprobe::check_file(config).err().map(|error| SourceFault {
            key: "url",
            certainty: Certainty::of_reading(&error),
            error: ffprobe::cannot_open(config, &error),
        });
        let programs = [ffprobe::beside(&config.ffmpeg.program), config.ffmpeg.program.clone()];
        let program = programs.iter().find_map(|program| Some((program, find_program::check(program).err()?)));
        let program = program.map(|(program, (error, certainty))| SourceFault {
            key: "ffmpeg",
            error: decoder_process::cannot_start(program, &error),
            certainty,
        });
        [login, file, program].into_iter().flatten().collect()
    }

    /// Probes a file and starts ffmpeg; a stream on the network is probed with the first frame.
    pub fn open(
        config: &VideoConfig,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let mut config = config.clone();
        // Read each time, because a file may hold a new password when the camera is opened again. The shown URL has no login.
        if let Some(login) = read_login(config.login.as_deref())? {
            config.url = login.into_url(&config.url);
        }
        let mut source = Self {
            config,
            buffers: buffers.clone(),
            label: format!("camera {name}: ffmpeg"),
            clock,
            running: None,
            sequence: 0,
            round_frames: 0,
        };
        if !decoder_process::is_stream(&source.config.url) {
            let never =
                Stop::new().map_err(|error| SourceError::transient(format!("cannot make an eventfd: {error}")))?;
            if let Err(ReadError::Failed(error)) = source.start(&never) {
                return Err(error);
            }
        }
        Ok(source)
    }

    /// Probes the video, allocates the buffers and starts ffmpeg.
    fn start(&mut self, stop: &Stop) -> Result<(), ReadError> {
        let config = &self.config;
        let info = ffprobe::probe(config, &self.label, stop)?;
        let (format, color) = output(config).format(&info);
        let wrong = |reason: &dyn Error| {
            SourceError::permanent(format!("cannot read the video {}: {reason}", ffprobe::shown(&config.url)))
        };
        self.buffers.check_size(info.width, info.height).map_err(|error| wrong(&error))?;
        let layout = FrameLayout::packed(format, info.width, info.height, color).map_err(|error| wrong(&error))?;
        self.buffers.check_memory(layout.size_bytes()).map_err(|error| wrong(&error))?;
        let frames = PipeFrames::new(layout, &self.buffers, config.pace)?;
        let is_live = decoder_process::is_stream(&config.url) && info.duration.is_none();
        let paced = config.pace == Pace::Realtime && !is_live;
        let fps = info.fps.unwrap_or(USUAL_FPS);
        let pacer = paced.then(|| SourcePacer::new(fps));
        let is_bursty = config.pace == Pace::Realtime && is_live && may_burst(&config.url, &info);
        let burst_pacer = is_bursty.then(|| BurstPacer::new(fps));
        let child = Some(spawn(config, &info, is_live, &self.label)?);
        self.running = Some(OpenVideo { info, frames, is_live, pacer, burst_pacer, child });
        Ok(())
    }

    /// Handles the end of ffmpeg's output, `partial` bytes into a frame.
    fn round_ended(&mut self, partial: usize, stop: &Stop) -> Result<Next, SourceError> {
        let Some(running) = &mut self.running else { return Ok(Next::End) };
        let Some(mut child) = running.child.take() else { return Ok(Next::End) };
        let Some(status) = child.exit_status(stop) else {
            if stop.is_raised() {
                return Ok(Next::Stopped);
            }
            return Err(self.failure("ffmpeg closed its output and did not exit", &[]));
        };
        let lines = child.last_lines();
        let is_odd = |line: &String| line.contains("boundary") || line.contains("Content-");
        if running.is_live
            && running.info.codec == "mjpeg"
            && running.info.demuxer.is_none()
            && !self.config.input_args.iter().any(|arg| arg == "-f")
            && let Some(said) = lines.iter().find(|line| is_odd(line))
        {
            let url = ffprobe::shown(&self.config.url);
            log::warn!("{}: the parts of {url} are damaged ({said}): looking for JPEG images in its bytes", self.label);
            running.info.demuxer = Some(ffprobe::RAW_JPEG);
            running.child = Some(spawn(&self.config, &running.info, running.is_live, &self.label)?);
            self.round_frames = 0;
            return self.next(stop);
        }
        let expected = running.info.frames.filter(|_| !ffprobe::is_part(&self.config.input_args));
        let is_exact = !running.info.hides_frames;
        let round_frames = std::mem::take(&mut self.round_frames);
        if !status.success() || round_frames == 0 {
            return Err(self.failure(&ended(status, round_frames), &lines));
        }
        // ffmpeg also exits with 0 when a camera closes the connection, as it does when it restarts.
        if running.is_live {
            return Err(self.failure(&format!("the stream ended after {round_frames} frames"), &lines));
        }
        let url = &ffprobe::shown(&self.config.url);
        let short = expected.unwrap_or(0).saturating_sub(round_frames);
        let said = lines.last().map(|line| ffprobe::reason(line, url));
        // A container's frame count is often off by a few, because some frames repeat the previous one; the decoder's errors
        // are real.
        if partial > 0 || (short > 0 && said.is_some()) || (is_exact && short > round_frames / 20) {
            let lost = short.max(1);
            let why = said.map(|said| format!(" ({said})")).unwrap_or_default();
            log::error!("{}: {url} is damaged or cut off: decoded {round_frames} frames, lost {lost}{why}", self.label);
            return Ok(Next::Lost { frames: lost, cause: LossCause::Corrupt });
        }
        if let Some(said) = said {
            log::warn!("{}: {url} was decoded with errors: {said}", self.label);
        }
        self.next(stop)
    }

    fn failure(&self, what: &str, lines: &[String]) -> SourceError {
        let url = &ffprobe::shown(&self.config.url);
        let said = lines.last().map(|line| format!(": {}", ffprobe::reason(line, url))).unwrap_or_default();
        let remedy = decoder_process::memory_remedy(self.config.ffmpeg.max_memory_bytes, lines);
        let message = format!("cannot continue to read the video {url}: {what}{said}{remedy}");
        if decoder_process::is_stream(url) { SourceError::transient(message) } else { SourceError::permanent(message) }
    }

    fn read_next(&mut self, stop: &Stop) -> Result<Next, ReadError> {
        if self.running.is_none() {
            self.start(stop)?;
        }
        let Some(OpenVideo { info, frames, is_live, pacer, burst_pacer, child }) = &mut self.running else {
            return Ok(Next::End);
        };
        let child = match child {
            Some(child) => child,
            None if self.config.repeat || self.sequence == 0 => {
                child.insert(spawn(&self.config, info, *is_live, &self.label)?)
            }
            None => return Ok(Next::End),
        };
        // Frames wait for their turn in the pipe, in ffmpeg and at the server.
        let mut was_there = false;
        if let Some(pacer) = burst_pacer {
            let due_ns = pacer.due_ns(self.clock.monotonic_ns());
            if self.clock.sleep_until(due_ns, stop) {
                return Ok(Next::Stopped);
            }
            // An error is reported by the read.
            was_there = child.has_output(stop).unwrap_or_default();
        }
        let buffer = frames.read(child, stop, self.config.timeout, || ffprobe::shown(&self.config.url))?;
        if let Some(pacer) = pacer {
            pacer.forgive(self.clock.monotonic_ns(), CATCH_UP);
            let due_ns = pacer.due_ns(self.clock.monotonic_ns());
            if self.clock.sleep_until(due_ns, stop) {
                return Ok(Next::Stopped);
            }
            pacer.advance();
        }
        if let Some(pacer) = burst_pacer {
            pacer.advance(was_there, self.clock.monotonic_ns());
        }
        let sequence = self.sequence;
        self.sequence += 1;
        self.round_frames += 1;
        let recorded_at = if *is_live { None } else { recorded_at(sequence, info.fps.unwrap_or(USUAL_FPS)) };
        Ok(frames.frame(buffer, sequence, clock::now(self.clock.as_ref()), recorded_at))
    }
}

impl Source for VideoSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if self.config.max_frames.is_some_and(|max| self.sequence >= max) {
            return Ok(Next::End);
        }
        match self.read_next(stop) {
            Ok(next) => Ok(next),
            Err(ReadError::Ended(partial)) => self.round_ended(partial, stop),
            Err(ReadError::Stopped) => Ok(Next::Stopped),
            Err(ReadError::Failed(error)) => Err(error),
        }
    }

    fn describe(&self) -> String {
        let url = &ffprobe::shown(&self.config.url);
        let Some(OpenVideo { info, frames, pacer, .. }) = &self.running else {
            return format!("video {url}, not opened yet");
        };
        let rate = info.fps.map_or_else(|| "unknown rate".to_owned(), |fps| format!("{fps:.2} fps"));
        let pace = match (pacer, self.config.pace) {
            (Some(_), _) => "in real time",
            (None, Pace::Realtime) => "live",
            (None, Pace::Fastest) => "every frame, as fast as possible",
        };
        let format = frames.layout.format();
        format!(
            "video {url}, {} {}x{} {} at {rate}, as {format}, {pace}",
            info.codec, info.width, info.height, info.pixel_format
        )
    }
}

fn ended(status: ExitStatus, frames: u64) -> String {
    match frames {
        0 if status.success() => "ffmpeg decoded no frame of it".to_owned(),
        0 => format!("ffmpeg {} before the first frame", child_process::how_it_ended(status)),
        frames => format!("ffmpeg {} after {frames} frames", child_process::how_it_ended(status)),
    }
}

fn output(config: &VideoConfig) -> FfmpegOutput {
    let &VideoConfig { pixels, color_matrix, color_range, .. } = config;
    FfmpegOutput { pixels, color_matrix, color_range }
}

/// Whether the frames of this live stream may arrive in bursts: HTTP carries segments (HLS, DASH), and servers send a backlog. JPEG
/// and FLV over HTTP arrive frame by frame; FLV's backlog is old, and better dropped than played.
fn may_burst(url: &str, info: &VideoInfo) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_http = ["http", "https"].iter().any(|http| scheme.eq_ignore_ascii_case(http));
    is_http && info.codec != "mjpeg" && !info.container.contains("flv")
}

fn spawn(config: &VideoConfig, info: &VideoInfo, is_live: bool, label: &str) -> Result<Child, SourceError> {
    decoder_process::spawn(&config.ffmpeg.program, config, label, arguments(config, info, is_live))
}

fn arguments(config: &VideoConfig, info: &VideoInfo, is_live: bool) -> Vec<String> {
    // `bitexact` before the input applies to the decoder: the inverse transform that is the same on every machine. dav1d,
    // ffmpeg's AV1 decoder, has its own frame threads, which only `low_delay` turns off. Other decoders would then output
    // B-frames in the wrong order.
    let flags = if is_live && info.codec == "av1" { "bitexact+low_delay" } else { "bitexact" };
    let mut args: Vec<String> =
        ["-nostdin", "-hide_banner", "-loglevel", "error", "-flags", flags].map(str::to_owned).into();
    if is_live {
        args.extend(LIVE_DECODER.map(str::to_owned));
        if !UNDECLARED.contains(&info.container.as_str()) {
            args.extend(LIVE_DEMUXER.map(str::to_owned));
        }
    }
    args.extend(config.input_args.iter().cloned());
    args.extend(ffprobe::input_options(config, info.demuxer).into_iter().map(str::to_owned));
    args.extend(["-i", &ffprobe::input(&config.url), "-map", "0:V:0", "-an", "-sn", "-dn"].map(str::to_owned));
    if is_live {
        args.extend(LIVE_OUTPUT.map(str::to_owned));
    }
    args.extend(output(config).arguments(info));
    args
}

#[cfg(test)]
mod tests;
