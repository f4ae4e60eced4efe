//! Text and JSON on standard output, messages on standard error.

use std::io::{self, Write};

use visiond_system::exit::{Exit, ExitError};

/// Writes `visiond: message` to standard error. A message of several lines is a list of errors, each with its file,
/// and gets no prefix.
pub fn complain(message: &str) {
    let program = if message.contains('\n') { "" } else { "visiond: " };
    // If standard error is closed, no other place is left for the message.
    let _ = writeln!(io::stderr(), "{program}{message}");
}

/// Writes `text` to standard output and flushes it.
pub fn print(text: &str) -> Result<(), ExitError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| ExitError::stdout(&error))
}

/// Writes `value` to standard output as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), ExitError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| ExitError::new(Exit::Failure, format!("cannot write JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_message() {
        let gone = ExitError::stdout(&io::ErrorKind::BrokenPipe.into());
        assert_eq!(gone, ExitError { message: String::new(), exit: Exit::Output });
        let full = ExitError::stdout(&io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(full.message, "cannot write to standard output: No space left on device (os error 28)");
    }
}
