//! Text and JSON on standard output, messages on standard error, and files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use log::LevelFilter;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::{clear_live_line, escape, escape_lines, has_terminal, is_unprintable};
use visiond_system::outage::explain;
use visiond_system::redact::redact_urls;

/// Clears the live line and writes `visiond: message` to standard error. A message of several lines is a list of errors,
/// each with its file, and gets no prefix.
pub fn complain(message: &str) {
    clear_live_line();
    let program = if message.contains('\n') { "" } else { "visiond: " };
    // If standard error is closed, no other place is left for the message.
    let _ = writeln!(io::stderr(), "{program}{}", escape_lines(&redact_urls(message)));
}

/// Writes `message` to standard error as [`complain`] does, but for progress and summaries: `-q` silences it, and so does
/// `--json`, unless standard error is a terminal.
pub fn note(message: &str) {
    if has_terminal() || log::max_level() >= LevelFilter::Warn {
        complain(message);
    }
}

/// Writes clap's text about an invalid command line, which repeats arguments, to standard error.
pub fn print_usage_error(text: &str) {
    let _ = write!(io::stderr(), "{}", escape_lines(&redact_urls(text)));
}

/// Writes `text` to standard output and flushes it. Names in it may be hostile: escapes terminal control sequences.
pub fn print(text: &str) -> Result<(), ExitError> {
    print_bytes(escape_lines(text).as_bytes())
}

/// Writes `bytes` to standard output and flushes it.
pub fn print_bytes(bytes: &[u8]) -> Result<(), ExitError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| ExitError::stdout(&error))
}

/// Writes `value` to standard output as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), ExitError> {
    print(&to_json(value, true)?)
}

/// Formats `value` as a line of JSON, or as indented lines.
pub fn to_json(value: &impl serde::Serialize, indented: bool) -> Result<String, ExitError> {
    let text = if indented { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.map(|text| escape_json(&text) + "\n")
        .map_err(|error| ExitError::new(Exit::Failure, format!("cannot write JSON: {error}")))
}

/// Escapes terminal control characters in JSON, which keeps its meaning. serde_json leaves C1 codes and bidirectional marks.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // They are all below U+10000.
        if is_unprintable(c) && c != '\n' { out += &format!("\\u{:04x}", u32::from(c)) } else { out.push(c) }
    }
    out
}

/// Formats a line of a report: its label and the text.
pub fn labelled(head: &str, text: &str) -> String {
    format!("{head:12} {}\n", escape(text))
}

/// Writes `report` to standard output as JSON if `json`, otherwise as the text that `text` returns.
pub fn print_report<T: serde::Serialize>(
    json: bool,
    report: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<Exit, ExitError> {
    if json {
        print_json(report)?
    } else {
        print(&text(report))?
    }
    Ok(Exit::Success)
}

/// Writes `bytes` to the file at `path`.
pub fn write_file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), ExitError> {
    fs::write(path, bytes)
        .map_err(|error| ExitError::new(Exit::Output, format!("cannot write {}: {error}", path.display())))
}

/// Creates the folder at `path` and its parents if they do not exist.
pub fn create_folder(path: &Path) -> Result<(), ExitError> {
    let message = |error| format!("cannot create {}: {}", path.display(), explain(&error));
    fs::create_dir_all(path).map_err(|error| ExitError::new(Exit::Output, message(error)))
}

/// Returns the error for a thread that the system cannot start.
pub fn thread_error(error: io::Error) -> ExitError {
    ExitError::new(Exit::Failure, format!("cannot start a thread: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_standard_output_gives_no_message() {
        let gone = ExitError::stdout(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(gone, ExitError { message: String::new(), exit: Exit::Output });
        let full = ExitError::stdout(&io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(full.message, "cannot write to standard output: No space left on device (os error 28)");
    }
}
