//! Runs TensorRT's ONNX parser and reports, by node, what it refuses.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::BuildError;
use visiond_engine::builder_api::onnx::node_at;
use visiond_engine::builder_api::tensorrt::builder::{Parser, ParserError};
use visiond_engine::builder_api::tensorrt::{ErrorRecorder, Object, Owned, call, text};
use visiond_engine::tensorrt::{Library, TensorRtError};

/// How many faults to report; later ones mostly follow from the first.
const MOST_FAULTS: i32 = 5;

/// Parses `bytes`, which were read from `path`, into the network of `parser`. `resized` explains an error.
///
/// # Safety
/// `bytes` outlive the network: the parser may refer to the weights in them.
pub(super) unsafe fn parse(
    parser: &Owned<Parser>,
    library: &Library,
    path: &Path,
    bytes: &[u8],
    recorder: &ErrorRecorder,
    resized: bool,
) -> Result<(), BuildError> {
    // The parser looks for external weights beside the path. A path with a NUL cannot have been read.
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let parser = parser.get();
    // SAFETY: the parser is alive; it reads `bytes` of this length, which outlive the network (the caller's promise), and the
    // name during the call.
    let taken = unsafe { call!(parser, Parser::PARSE(bytes.as_ptr().cast(), bytes.len(), name.as_ptr())) }?;
    if taken {
        return Ok(());
    }
    // SAFETY: the parser is alive; the method takes no arguments.
    let count = unsafe { call!(parser, Parser::ERRORS()) }?;
    let faults =
        (0..count.clamp(0, MOST_FAULTS)).map(|index| fault(parser, index, bytes)).collect::<Result<Vec<_>, _>>()?;
    // The plugin registry names the missing plugin; the parser does not.
    let reported = recorder.take();
    let messages = faults.iter().chain(reported.iter().map(|reported| &reported.text));
    let plugin = library.missing_plugin(messages.map(String::as_str));
    Err(BuildError::Parser { version: library.version(), path: path.to_owned(), faults, resized, plugin })
}

/// Returns what the parser reports: "node `conv1` (Conv): kernel has no weights".
fn fault(parser: Object<Parser>, index: i32, bytes: &[u8]) -> Result<String, TensorRtError> {
    const SILENT: &str = "no reason given";
    // SAFETY: the parser lives, and `index` is below its number of errors.
    let raw = unsafe { call!(parser, Parser::ERROR(index)) }?;
    // SAFETY: the parser owns the error, which lives until the errors are cleared; nothing clears them.
    let Some(error) = (unsafe { Object::<ParserError>::from_raw(raw, parser.abi()) }) else {
        return Ok(SILENT.to_owned());
    };
    // SAFETY: the error is alive; the methods take no arguments, and its texts are NUL-terminated and live as long.
    let (words, number) = unsafe { (text(call!(error, ParserError::TEXT())?), call!(error, ParserError::NODE())?) };
    let (mut name, mut operator) = Default::default();
    if ParserError::NODE_NAME.is_in(parser.abi()) {
        // SAFETY: as above.
        unsafe {
            name = text(call!(error, ParserError::NODE_NAME())?);
            operator = text(call!(error, ParserError::NODE_OPERATOR())?);
        }
    }
    if name.is_empty() && operator.is_empty() {
        (name, operator) = usize::try_from(number).ok().and_then(|at| node_at(bytes, at)).unwrap_or_default();
    }
    let node = match (name.is_empty(), operator.is_empty()) {
        (false, false) => format!("node `{name}` ({operator}): "),
        (false, true) => format!("node `{name}`: "),
        (true, false) => format!("node {number} ({operator}): "),
        (true, true) => String::new(),
    };
    let words = words.trim_end_matches('.');
    Ok(format!("{node}{}", if words.is_empty() { SILENT } else { words }))
}
