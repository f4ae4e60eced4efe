//! Runs a program that writes frames to standard output, descriptor 3 or shared memory: GStreamer, ffmpeg, a vendor's tool.
//!
//! The frames are Y4M, or raw with the size from the configuration. Anything else that a program writes between raw frames
//! shifts all later frames, and their pixels do not show it. visiond detects two signs: a line of text at the start of a frame
//! (`leading_text`), and an end of the output within a frame.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use visiond_config::types::{CommandConfig, CommandContainer, Pace, SOCKET};
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::{Frame, FrameBytes, LossCause, PooledBuffer};
use visiond_kernels::color::{ColorDescription, ColorRange};
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{self, Child, Filled, Launch};
use visiond_system::find_program;
use visiond_system::redact::{redact_arguments, redact_line};
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::pacer::recorded_at;
use super::pipe::{PipeFrames, ReadError, fill};
use super::shared_memory::{Received, SharedMemory, SharedMemoryError, SocketFolder};
use super::source::{Next, Source, SourceError, SourceFault};
use super::y4m::{FRAME_MAGIC, MAX_LINE_BYTES, Y4mHeader};

pub struct CommandSource {
    config: CommandConfig,
    buffers: Buffers,
    label: String,
    clock: Arc<dyn Clock>,
    /// `None` between two runs.
    child: Option<Child>,
    /// Format and buffers, from the configuration or from the first Y4M header.
    frames: Option<PipeFrames>,
    /// The connection of this run, if frames come through shared memory.
    shared: Option<SharedRun>,
    /// Frames per second, by the Y4M header.
    fps: Option<f64>,
    /// Whether this run's Y4M header was read.
    has_header: bool,
    sequence: u64,
    run_frames: u64,
}

/// A run whose frames come through shared memory. Fields drop in order: the socket's folder last.
struct SharedRun {
    layout: FrameLayout,
    /// `None` until the program listens.
    memory: Option<SharedMemory>,
    folder: SocketFolder,
}

/// How often to look whether the program listens.
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

impl CommandSource {
    /// Checks whether [`CommandSource::open`] would fail, without starting the program.
    pub fn check(config: &CommandConfig) -> Vec<SourceFault> {
        let is_y4m = config.container == CommandContainer::Y4m;
        let layout = if is_y4m { None } else { raw_layout(config).err() };
        let layout = layout.map(|error| SourceFault::new("container", error));
        let program = config.command.first().and_then(|name| Some((name, find_program::check(Path::new(name)).err()?)));
        let program = program.map(|(name, (error, certainty))| SourceFault {
            key: "command",
            error: cannot_start(name, &error),
            certainty,
        });
        layout.into_iter().chain(program).collect()
    }

    pub fn open(
        config: &CommandConfig,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let mut source = Self {
            config: config.clone(),
            buffers: buffers.clone(),
            label: format!("camera {name}: {}", program(config)),
            clock,
            child: None,
            frames: None,
            shared: None,
            fps: None,
            has_header: false,
            sequence: 0,
            run_frames: 0,
        };
        if config.container == CommandContainer::Raw {
            source.frames = Some(PipeFrames::new(raw_layout(config)?, buffers, config.pace)?);
        }
        source.start()?;
        Ok(source)
    }

    fn start(&mut self) -> Result<(), SourceError> {
        let Some((program, args)) = self.config.command.split_first() else {
            return Err(SourceError::permanent("cannot start a program: `command` is empty; name the program there"));
        };
        let mut command = Command::new(program);
        self.shared = match self.config.container {
            CommandContainer::Shm => Some(SharedRun::new(&self.config)?),
            CommandContainer::Y4m | CommandContainer::Raw => None,
        };
        match &self.shared {
            Some(shared) => {
                let socket = shared.folder.socket();
                command.args(args.iter().map(|arg| arg.replace(SOCKET, &socket.to_string_lossy())));
            }
            None => {
                command.args(args);
            }
        }
        let launch = Launch {
            label: &self.label,
            // With shared memory, nothing is written there: that it is closed shows the end of the program.
            on_descriptor_3: self.config.fd == 3 || self.shared.is_some(),
            has_children: true,
            ..Launch::default()
        };
        let child = Child::spawn(command, &launch).map_err(|error| cannot_start(program, &error))?;
        self.child = Some(child);
        self.has_header = false;
        self.run_frames = 0;
        Ok(())
    }

    fn read_next(&mut self, stop: &Stop) -> Result<Next, ReadError> {
        if self.shared.is_some() {
            return self.read_shared(stop);
        }
        let is_y4m = self.config.container == CommandContainer::Y4m;
        if is_y4m {
            if !self.has_header {
                self.read_header(stop)?;
                self.has_header = true;
            }
            self.read_frame_line(stop)?;
        }
        let Self { child: Some(child), frames: Some(frames), config, fps, .. } = self else { return Ok(Next::End) };
        let buffer = frames.read(child, stop, config.timeout, || origin(config)).map_err(|error| match error {
            // In Y4M, the FRAME line came first.
            ReadError::Ended(read) => ReadError::Ended(read + usize::from(is_y4m)),
            error => error,
        })?;
        if !is_y4m {
            let bytes = buffer.as_ref().map_or(&frames.discarded[..], PooledBuffer::as_slice);
            if let Some(text) = leading_text(bytes) {
                return Err(ReadError::Failed(SourceError::transient(format!(
                    "{} writes text where a frame should begin ({:?}), which shifts all later frames: {}",
                    program(config),
                    redact_line(text),
                    frames_alone(config)
                ))));
            }
        }
        let sequence = self.sequence;
        self.sequence += 1;
        self.run_frames += 1;
        // How fast a program without a pace of its own writes says nothing about its frames.
        let fps = fps.filter(|_| config.pace == Pace::Fastest);
        let recorded_at = fps.and_then(|fps| recorded_at(sequence, fps));
        Ok(frames.frame(buffer, sequence, clock::now(self.clock.as_ref()), recorded_at))
    }

    /// Waits for the next frame in shared memory.
    fn read_shared(&mut self, stop: &Stop) -> Result<Next, ReadError> {
        let Self { child: Some(child), shared: Some(shared), config, buffers, .. } = self else { return Ok(Next::End) };
        let deadline = Instant::now() + config.timeout;
        let failed = |error| ReadError::Failed(shared_error(config, &error));
        while shared.memory.is_none() {
            match SharedMemory::connect(&shared.folder.socket(), shared.layout.size_bytes(), buffers) {
                Ok(memory) => shared.memory = Some(memory),
                Err(error) if is_early(&error) => wait_for_socket(config, child, stop, deadline)?,
                Err(error) => return Err(failed(error.into())),
            }
        }
        let Some(memory) = &mut shared.memory else { return Ok(Next::End) };
        let received = memory.next(config.pace == Pace::Fastest, stop, deadline).map_err(failed)?;
        let frame = match received {
            Received::Frame(buffer) => Some(buffer),
            Received::Dropped => None,
            Received::Ended => return Err(ReadError::Ended(0)),
            Received::Stopped => return Err(ReadError::Stopped),
            Received::TimedOut => {
                let seconds = config.timeout.as_secs_f64();
                let message = format!("no frame from {} in shared memory for {seconds} s", program(config));
                return Err(ReadError::Failed(SourceError::transient(message)));
            }
        };
        let (sequence, layout) = (self.sequence, shared.layout);
        self.sequence += 1;
        self.run_frames += 1;
        let Some(buffer) = frame else { return Ok(Next::Lost { frames: 1, cause: LossCause::Overload }) };
        Ok(Next::Frame(Frame {
            layout,
            buffer: FrameBytes::Driver(buffer),
            sequence,
            timestamp: clock::now(self.clock.as_ref()),
            recorded_at: None,
            damaged: false,
            name: None,
        }))
    }

    /// Reads the stream's first line. The first run's header determines the buffers; a later run's replaces them if it differs.
    fn read_header(&mut self, stop: &Stop) -> Result<(), ReadError> {
        let line = self.read_line(Vec::new(), stop)?;
        let wrong = |reason: String| {
            SourceError::permanent(format!("cannot read what {} writes: {reason}", program(&self.config)))
        };
        let header = Y4mHeader::parse(&line).map_err(|error| wrong(error.to_string()))?;
        self.buffers.check_size(header.width, header.height).map_err(|error| wrong(error.to_string()))?;
        let range = self.config.color_range.or(header.range).unwrap_or(ColorRange::Limited);
        let color = ColorDescription::new(self.config.color_matrix, range);
        let layout = FrameLayout::packed(header.format, header.width, header.height, color)
            .map_err(|error| wrong(error.to_string()))?;
        self.fps = header.fps;
        if self.frames.as_ref().is_none_or(|frames| frames.layout != layout) {
            self.frames = Some(PipeFrames::new(layout, &self.buffers, self.config.pace)?);
        }
        Ok(())
    }

    /// Reads "FRAME", perhaps parameters, and the line feed.
    fn read_frame_line(&mut self, stop: &Stop) -> Result<(), ReadError> {
        // Nearly always the line is these six bytes.
        let mut start = [0; FRAME_MAGIC.len() + 1];
        self.fill(&mut start, "frame", stop)?;
        if !start.starts_with(FRAME_MAGIC) || !matches!(start[FRAME_MAGIC.len()], b'\n' | b' ') {
            return Err(ReadError::Failed(SourceError::transient(format!(
                "{} is out of step: {:?} is where a frame should begin, so it writes something else between frames: {}",
                program(&self.config),
                String::from_utf8_lossy(&start),
                frames_alone(&self.config)
            ))));
        }
        if !start.ends_with(b"\n") {
            self.read_line(start.to_vec(), stop)?;
        }
        Ok(())
    }

    /// Reads up to a line feed, byte by byte, because the bytes after it belong to the frame.
    fn read_line(&mut self, mut line: Vec<u8>, stop: &Stop) -> Result<Vec<u8>, ReadError> {
        loop {
            let mut byte = [0];
            match self.fill(&mut byte, "header", stop) {
                Err(ReadError::Ended(_)) => return Err(ReadError::Ended(line.len())),
                result => result?,
            }
            // No header is longer; the parser's error shows the line.
            if byte[0] == b'\n' || line.len() >= MAX_LINE_BYTES {
                return Ok(line);
            }
            line.push(byte[0]);
        }
    }

    fn fill(&mut self, buffer: &mut [u8], what: &str, stop: &Stop) -> Result<(), ReadError> {
        let Self { child: Some(child), config, .. } = self else { return Err(ReadError::Ended(0)) };
        fill(child, buffer, stop, config.timeout, what, || origin(config))
    }

    /// Handles the end of the program's output, `partial` bytes into a frame.
    fn run_ended(&mut self, partial: usize, stop: &Stop) -> Result<Next, SourceError> {
        let Some(mut child) = self.child.take() else { return Ok(Next::End) };
        let Some(status) = child.exit_status(stop) else {
            if stop.is_raised() {
                return Ok(Next::Stopped);
            }
            return Err(SourceError::transient(format!(
                "{} closed its output and did not exit",
                program(&self.config)
            )));
        };
        let lines = child.last_lines();
        let said = lines.last().map(|line| format!(": {line}")).unwrap_or_default();
        let after = format!("{} after {} frames", child_process::how_it_ended(status), self.run_frames);
        if !status.success() {
            return Err(SourceError::transient(format!("{} {after}{said}", program(&self.config))));
        }
        if self.run_frames == 0 {
            // The program would exit again at once, forever: return an error so that the supervisor waits before a retry.
            let on = match self.config.container {
                CommandContainer::Shm => " into shared memory",
                _ if self.config.fd == 3 => " on descriptor 3",
                _ => "",
            };
            let message = format!("{} {after}, it wrote no whole frame{on}{said}", program(&self.config));
            return Err(SourceError::transient(message));
        }
        if partial > 0 {
            log::warn!(
                "{}: its output ended {partial} bytes into a frame: it was cut off, or it writes more than frames, which shifts \
                 them. To keep them apart, {}",
                self.label,
                frames_alone(&self.config)
            );
            return Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt });
        }
        if self.config.repeat {
            log::debug!("{}: {after}, starting it again", self.label);
        }
        self.next(stop)
    }
}

impl SharedRun {
    fn new(config: &CommandConfig) -> Result<Self, SourceError> {
        let layout = raw_layout(config)?;
        let folder = SocketFolder::new().map_err(|error| {
            SourceError::transient(format!("cannot make a folder for the socket of {}: {error}", program(config)))
        })?;
        Ok(Self { layout, memory: None, folder })
    }
}

/// Whether the program does not listen yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Waits a moment for a program that does not listen yet.
fn wait_for_socket(config: &CommandConfig, child: &mut Child, stop: &Stop, deadline: Instant) -> Result<(), ReadError> {
    let now = Instant::now();
    if now >= deadline {
        let seconds = config.timeout.as_secs_f64();
        return Err(ReadError::Failed(SourceError::transient(format!(
            "{} does not listen on {SOCKET} after {seconds} s: end its pipeline with `shmsink socket-path={SOCKET}`",
            program(config)
        ))));
    }
    match child.fill(&mut [0], stop, deadline.min(now + CONNECT_INTERVAL)) {
        Ok(Filled::Ended(_)) => Err(ReadError::Ended(0)),
        Ok(Filled::Stopped) => Err(ReadError::Stopped),
        Ok(Filled::Full | Filled::TimedOut) => Ok(()),
        Err(error) => Err(ReadError::Failed(shared_error(config, &error.into()))),
    }
}

/// Returns the error of frames in shared memory. The configuration has to change where the program sends something else.
fn shared_error(config: &CommandConfig, error: &SharedMemoryError) -> SourceError {
    let message = format!("cannot read frames of {}: {error}", program(config));
    match error {
        SharedMemoryError::Size { .. } | SharedMemoryError::Protocol { .. } => SourceError::permanent(message),
        _ => SourceError::transient(message),
    }
}

fn program(config: &CommandConfig) -> &str {
    config.command.first().map_or("", String::as_str)
}

/// Returns the program and, unless it is standard output, the descriptor that it writes frames to.
fn origin(config: &CommandConfig) -> String {
    format!("{}{}", program(config), if config.fd == 3 { " on descriptor 3" } else { "" })
}

/// Returns the remedy for a program that writes other output than frames.
fn frames_alone(config: &CommandConfig) -> &'static str {
    match config.fd {
        3 => "make it write only frames to descriptor 3",
        _ => "set `fd = 3` and make it write frames to descriptor 3, in GStreamer with `fdsink fd=3`",
    }
}

impl Source for CommandSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if self.config.max_frames.is_some_and(|max| self.sequence >= max) {
            return Ok(Next::End);
        }
        stop.mark_progress();
        if stop.is_raised() {
            return Ok(Next::Stopped);
        }
        if self.child.is_none() {
            if !self.config.repeat {
                return Ok(Next::End);
            }
            self.start()?;
        }
        match self.read_next(stop) {
            Ok(next) => Ok(next),
            Err(ReadError::Ended(partial)) => self.run_ended(partial, stop),
            Err(ReadError::Stopped) => Ok(Next::Stopped),
            Err(ReadError::Failed(error)) => Err(error),
        }
    }

    fn describe(&self) -> String {
        let command = redact_arguments(self.config.command.iter().map(String::as_str)).join(" ");
        let of = |layout: &FrameLayout| format!("{}x{} {}", layout.width(), layout.height(), layout.format());
        match (&self.frames, &self.shared) {
            (Some(frames), _) => format!("command `{command}`, {}", of(&frames.layout)),
            (None, Some(shared)) => format!("command `{command}`, {}, shared memory", of(&shared.layout)),
            (None, None) => format!("command `{command}`, y4m"),
        }
    }
}

/// A line of text must end within this many bytes of a frame.
const MAX_TEXT_BYTES: usize = 1024;

/// Returns the line of text that a frame begins with, if there is one: a message that the program printed between frames.
///
/// A line is printable ASCII up to a line feed, with spaces, and with three different words of at least four letters, such as
/// NVIDIA's "GST_ARGUS: Creating output stream", "Opening in BLOCKING MODE" and GStreamer's "Setting pipeline to PAUSED".
/// Pixels would have to jump between letters (65 and more) and spaces (32) several times, and the first below 32 would have to
/// be exactly 10.
///
/// It costs nothing for most frames, because it stops at the first byte that is not text. It does not find text elsewhere in a
/// frame, such as output that the program flushes while it writes a frame.
fn leading_text(frame: &[u8]) -> Option<&str> {
    let head = frame[..frame.len().min(MAX_TEXT_BYTES)].trim_ascii_start();
    let end = head.iter().position(|byte| !matches!(byte, b'\t' | b'\r' | b' '..=b'~'))?;
    if head[end] != b'\n' {
        return None;
    }
    let line = str::from_utf8(&head[..end]).ok()?.trim_end();
    let runs = line.split(|c: char| !c.is_ascii_alphabetic());
    let words: BTreeSet<_> = runs.filter(|run| run.len() >= 4).collect();
    (line.contains(' ') && words.len() >= 3).then_some(line)
}

/// Returns the error of a program that cannot be started.
fn cannot_start(program: &str, error: &io::Error) -> SourceError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            SourceError::permanent(format!("cannot start {program}: no such program; install it or set its path"))
        }
        io::ErrorKind::PermissionDenied => SourceError::permanent(format!(
            "cannot start {program}: this user may not execute it; correct its permissions"
        )),
        _ => SourceError::transient(format!("cannot start {program}: {error}")),
    }
}

/// Returns the configured layout of raw frames.
fn raw_layout(config: &CommandConfig) -> Result<FrameLayout, SourceError> {
    let (Some(format), Some(width), Some(height)) = (config.format, config.width, config.height) else {
        return Err(SourceError::permanent("raw frames require `format`, `width` and `height`"));
    };
    let range = if format.has_levels() { ColorRange::Full } else { ColorRange::Limited };
    let color =
        ColorDescription::new(config.color_matrix, config.color_range.unwrap_or(range)).with_levels(config.levels);
    let layout = if config.pitches.is_empty() {
        FrameLayout::packed(format, width, height, color)
    } else {
        FrameLayout::with_pitches(format, width, height, &config.pitches, color)
    };
    layout.map_err(|error| {
        SourceError::permanent(format!(
            "cannot read raw frames of this layout: {error}; correct `format`, `width`, `height` or `pitches`"
        ))
    })
}

#[cfg(test)]
mod tests;
