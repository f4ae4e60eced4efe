//! Writes the log to standard error, or to the journal with priorities and fields.
//!
//! The fields of a line are the key-values of its call (`log::warn!(camera = name; "…")`) and the subjects of its thread, see
//! [`about`]. Standard error shows the text only.
//!
//! One lock guards standard error, so that a log line and the live status line never mix: writing a log line clears the live
//! line and redraws it below.

pub mod tail;

pub mod events;
mod journal;
mod other_crates;
mod subject;

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

use journal::Journal;
use other_crates::{OtherCrates, Pass};

use crate::caught_panic;
use crate::redact::redact_urls;

pub use subject::{Subject, about, subject};

/// Target of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget {
    /// The journal when standard error is connected to it, otherwise standard error.
    Auto,
    /// Standard error, with time and level.
    Stderr,
    /// The journal; without one, standard error with priority prefixes.
    Journal,
}

/// Log level from the command line, which overrides the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verbosity {
    /// `--log-level`.
    pub level: Option<LevelFilter>,
    /// Number of `-v` minus number of `-q`.
    pub steps: i8,
}

impl Verbosity {
    /// Returns the level that applies instead of `base`.
    pub fn apply(self, base: LevelFilter) -> LevelFilter {
        let index = self.level.unwrap_or(base) as i64 + i64::from(self.steps);
        LevelFilter::iter().nth(index.clamp(0, LevelFilter::Trace as i64) as usize).unwrap_or(base)
    }
}

/// The logger of the process; its settings can change while it runs.
struct Logger;

static LOGGER: Logger = Logger;
static JOURNAL: AtomicBool = AtomicBool::new(false);
/// Connection to journald, if there is one; made when the journal first becomes the target.
static NATIVE: OnceLock<Option<Journal>> = OnceLock::new();
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();
static LIVE: Mutex<String> = Mutex::new(String::new());
static OTHER_CRATES: Mutex<OtherCrates> = Mutex::new(OtherCrates::new());

/// Starts the log for a command and installs the panic hook. The level is `level` until [`configure`] sets another.
pub fn start(level: LevelFilter, verbosity: Verbosity) {
    let _ = VERBOSITY.set(verbosity);
    configure(level, LogTarget::Auto);
    // Fails only if this logger is already set.
    let _ = log::set_logger(&LOGGER);
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        // The code that catches the panic reports its meaning.
        if caught_panic::note(&place, message) {
            log::debug!("thread `{}` panicked at {place}: {message}", thread.name().unwrap_or("unnamed"));
            return;
        }
        log::error!("thread `{}` stopped by a bug at {place}: {message}", thread.name().unwrap_or("unnamed"));
    }));
}

/// Applies `[log]` of the configuration; the command line takes precedence. May be called again.
pub fn configure(level: LevelFilter, target: LogTarget) {
    log::set_max_level(VERBOSITY.get().copied().unwrap_or_default().apply(level));
    let journal = match target {
        LogTarget::Auto => stderr_is_the_journal(),
        LogTarget::Stderr => false,
        LogTarget::Journal => true,
    };
    if journal {
        NATIVE.get_or_init(Journal::connect);
    }
    JOURNAL.store(journal, Ordering::Relaxed);
}

/// Returns whether standard error is a terminal, which can show a live line.
pub fn has_terminal() -> bool {
    static TERMINAL: OnceLock<bool> = OnceLock::new();
    *TERMINAL.get_or_init(|| io::stderr().is_terminal())
}

/// Returns whether the terminal was closed, which also sends SIGHUP.
pub fn terminal_is_gone() -> bool {
    has_terminal() && !io::stderr().is_terminal()
}

/// Draws `text` as the terminal's last line and replaces the previous one; log lines go above it.
///
/// Cuts the text to the width of the terminal. Does nothing if standard error is not a terminal.
pub fn live_line(text: &str) {
    if has_terminal() {
        let mut live = LIVE.lock();
        *live = cut(text, terminal_columns());
        let _ = io::stderr().write_all(format!("\r\x1b[K{live}").as_bytes());
    }
}

/// Clears the live line, so that ordinary output can follow.
pub fn clear_live_line() {
    let mut live = LIVE.lock();
    if !live.is_empty() {
        live.clear();
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

impl Log for Logger {
    /// Other crates trace every packet, mention files of the build machine, and log each late packet at info.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = if is_own(metadata.target()) {
            Level::Trace
        } else if log::max_level() > Level::Info {
            Level::Debug
        } else {
            Level::Warn
        };
        metadata.level() <= log::max_level() && metadata.level() <= most
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // At `debug`, everything is logged.
        let pass = match is_own(record.target()) || log::max_level() > Level::Info {
            true => Pass::Yes,
            false => OTHER_CRATES.lock().pass(record.target(), Instant::now()),
        };
        let end = match pass {
            Pass::Yes => "",
            Pass::Last => {
                "; further lines like it are left out for a minute: set `[log] level = \"debug\"` to see them"
            }
            // Check before the text is formatted, because it may be long.
            Pass::No => return,
        };
        let message = message(record) + end;
        tail::keep(record.level(), subject::of(record), &message);
        let line = if JOURNAL.load(Ordering::Relaxed) {
            if NATIVE.get().and_then(Option::as_ref).is_some_and(|journal| journal.write(record, &message)) {
                return;
            }
            format!("<{}>{message}\n", journal::priority(record.level()))
        } else {
            stderr_line(record.level(), &message, &jiff::Timestamp::now())
        };
        let live = LIVE.lock();
        let text = if live.is_empty() { line } else { format!("\r\x1b[K{line}{live}") };
        // An error on standard error cannot be reported anywhere.
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn flush(&self) {}
}

/// `2026-01-31T12:00:00.123Z WARN  camera door: ...`
fn stderr_line(level: Level, message: &str, now: &jiff::Timestamp) -> String {
    format!("{now:.3} {level:5} {message}\n")
}

/// Whether a target is one of visiond's crates.
fn is_own(target: &str) -> bool {
    target.starts_with("visiond")
}

/// Returns the message on one line, without the secrets of URLs; messages of other crates start with their target.
fn message(record: &Record<'_>) -> String {
    /// The most characters of another crate's message.
    const MOST_CHARS_OF_OTHERS: usize = 1000;
    // Callers that log a command or another program's output redact more. This covers texts that pass through errors and
    // other crates.
    let text = redact_urls(&record.args().to_string());
    if is_own(record.target()) {
        return escape(&text);
    }
    // Some quote a peer's data.
    let short: String = text.chars().take(MOST_CHARS_OF_OTHERS).collect();
    format!("{}: {}", escape(record.target()), escape(&short))
}

/// Whether a terminal interprets `c` instead of showing it: control characters including C1 codes, line ends, and
/// bidirectional marks.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes characters that a terminal would interpret, so that external input can neither forge lines nor move the cursor.
pub fn escape(text: &str) -> String {
    escape_if(text, is_unprintable)
}

/// The same for text of several lines: keeps line feeds and tabs.
pub fn escape_lines(text: &str) -> String {
    escape_if(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

fn escape_if(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Returns the first `columns` characters, escaped.
fn cut(text: &str, columns: usize) -> String {
    escape(text).chars().take(columns).collect()
}

/// Returns the width of the terminal minus one, because some terminals wrap after the last column; 79 if the width is
/// unknown.
fn terminal_columns() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    if columns > 1 { usize::from(columns) - 1 } else { 79 }
}

/// Returns whether standard error is connected to the journal. JOURNAL_STREAM has the device and inode of the journal.
fn stderr_is_the_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM");
    stream.is_ok_and(|stream| {
        rustix::fs::fstat(io::stderr()).is_ok_and(|stat| is_stream(&stream, stat.st_dev, stat.st_ino))
    })
}

/// Returns whether `device:inode` in JOURNAL_STREAM equals these numbers.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream.split_once(':').is_some_and(|(d, i)| d.parse() == Ok(device) && i.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn other_crates_do_not_trace() {
        let enabled = |target, level| LOGGER.enabled(&Metadata::builder().target(target).level(level).build());
        log::set_max_level(LevelFilter::Trace);
        assert!(enabled("visiond_publish::mqtt", Level::Trace) && enabled("tungstenite::protocol", Level::Debug));
        assert!(!enabled("tungstenite::protocol", Level::Trace));
    }

    #[test]
    fn verbosity_moves_from_the_configured_level_and_stops_at_the_ends() {
        let steps = |steps| Verbosity { level: None, steps };
        assert_eq!(steps(0).apply(LevelFilter::Info), LevelFilter::Info);
        assert_eq!(steps(1).apply(LevelFilter::Info), LevelFilter::Debug);
        assert_eq!(steps(9).apply(LevelFilter::Info), LevelFilter::Trace);
        assert_eq!(steps(-1).apply(LevelFilter::Info), LevelFilter::Warn);
        assert_eq!(steps(-9).apply(LevelFilter::Info), LevelFilter::Off);
        let told = Verbosity { level: Some(LevelFilter::Error), steps: 0 };
        assert_eq!(told.apply(LevelFilter::Info), LevelFilter::Error);
    }

    #[test]
    fn a_line_has_time_and_level() {
        let args = format_args!("camera door: lost\x1b[2J\nagain");
        let record = |target| Record::builder().args(args).level(Level::Warn).target(target).build();
        let now = "2026-01-31T12:00:00.123456Z".parse().unwrap();
        assert_eq!(
            stderr_line(Level::Warn, &message(&record("visiond_pipeline::camera")), &now),
            "2026-01-31T12:00:00.123Z WARN  camera door: lost\\u{1b}[2J\\nagain\n"
        );
        assert_eq!(message(&record("rten::load")), "rten::load: camera door: lost\\u{1b}[2J\\nagain");
        assert_eq!(journal::priority(Level::Warn), 4);
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        let hostile = "a\x1b[2J\x07\u{9b}31m\u{202e}b\u{2066}\u{2028}\r\n\tc\u{7f}";
        let shown = "a\\u{1b}[2J\\u{7}\\u{9b}31m\\u{202e}b\\u{2066}\\u{2028}\\r\\n\\tc\\u{7f}";
        assert_eq!(escape(hostile), shown);
        assert_eq!(escape_lines(hostile), shown.replace("\\n\\t", "\n\t"));
        for text in ["Tür 3 – ‹door›", "猫 👩\u{200d}🚒", "کتاب\u{200c}ها"] {
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn a_line_has_no_secret_of_a_url() {
        let args = format_args!("cannot reach rtsp://admin:hush@cam/1 and http://h/?token=hush");
        let record = Record::builder().args(args).level(Level::Warn).target("hyper").build();
        assert_eq!(message(&record), "hyper: cannot reach rtsp://***@cam/1 and http://h/?token=***");
    }

    #[test]
    fn a_terminal_that_was_never_there_is_not_gone() {
        assert!(!terminal_is_gone());
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert!(is_stream("8:4711", 8, 4711));
        assert!(!is_stream("8:4711", 8, 4712));
        assert!(!is_stream("8", 8, 8));
        assert!(!is_stream("", 0, 0));
    }
}
