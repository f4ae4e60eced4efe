//! Reads the numbers of a floating-point `TensorProto`, and writes one in half precision.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use half::{bf16, f16};

use super::error::PrecisionError;
use super::half_type::Half;
use visiond_engine::builder_api::onnx::{Value, WireError, element, fields, number, packed, write_bytes, write_number};

/// The fields of a tensor's message without its numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) element: i64,
    pub(super) dims: Vec<u64>,
}

/// Reads the header of a tensor.
pub(super) fn header(message: &[u8]) -> Result<Header, WireError> {
    let mut header = Header::default();
    for field in fields(message) {
        let field = field?;
        match (field.number, field.value) {
            (number::TENSOR_NAME, _) => header.name = field.text(),
            (number::TENSOR_DATA_TYPE, _) => header.element = field.number_value(),
            (number::TENSOR_DIMS, Value::Number(dim)) => header.dims.push(dim),
            (number::TENSOR_DIMS, Value::Bytes(dims)) => {
                for dim in packed(dims) {
                    header.dims.push(dim?);
                }
            }
            _ => {}
        }
    }
    Ok(header)
}

/// Returns the numbers of an f32, f16 or bf16 tensor in row-major order; `None` for another type.
///
/// `directory` contains the external weights.
pub(super) fn floats(message: &[u8], directory: &Path) -> Result<Option<Vec<f32>>, PrecisionError> {
    let header = header(message)?;
    let external = external(message)?;
    let raw;
    let mut numbers = Vec::new();
    let mut bytes: Option<&[u8]> = None;
    for field in fields(message) {
        let field = field?;
        match (field.number, field.value) {
            (number::TENSOR_RAW_DATA, Value::Bytes(data)) => bytes = Some(data),
            (number::TENSOR_FLOAT_DATA, Value::Bytes(data)) => {
                numbers.extend(data.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)));
            }
            (number::TENSOR_FLOAT_DATA, Value::Fixed(data)) => {
                numbers.extend(data.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)));
            }
            // f16 and bf16 without raw data store their bits in 32-bit integers.
            (number::TENSOR_INT32_DATA, Value::Bytes(data)) => {
                for bits in packed(data) {
                    numbers.extend(from_bits(header.element, bits? as u16));
                }
            }
            (number::TENSOR_INT32_DATA, Value::Number(bits)) => {
                numbers.extend(from_bits(header.element, bits as u16));
            }
            _ => {}
        }
    }
    if let Some(external) = external {
        raw = external.read(directory)?;
        bytes = Some(&raw);
    }
    match (header.element, bytes) {
        (element::FLOAT, Some(bytes)) => {
            Ok(Some(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()))
        }
        (element::FLOAT16 | element::BFLOAT16, Some(bytes)) => {
            let bits = bytes.as_chunks::<2>().0.iter().map(|chunk| u16::from_le_bytes(*chunk));
            Ok(Some(bits.filter_map(|bits| from_bits(header.element, bits)).collect()))
        }
        (element::FLOAT | element::FLOAT16 | element::BFLOAT16, None) => Ok(Some(numbers)),
        _ => Ok(None),
    }
}

fn from_bits(element: i64, bits: u16) -> Option<f32> {
    match element {
        element::FLOAT16 => Some(f16::from_bits(bits).to_f32()),
        element::BFLOAT16 => Some(bf16::from_bits(bits).to_f32()),
        _ => None,
    }
}

/// What the conversion to half precision changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Finite numbers beyond the range, which were clamped.
    pub(super) clamped: usize,
    /// Numbers that became zero.
    pub(super) vanished: usize,
}

/// Makes a `TensorProto` called `name` with `numbers` in half precision.
pub(super) fn write(name: &str, dims: &[u64], numbers: &[f32], half: Half) -> (Vec<u8>, Losses) {
    let mut losses = Losses::default();
    let mut raw = Vec::with_capacity(numbers.len() * 2);
    for &number in numbers {
        let most = half.most();
        let kept = if number.is_finite() { number.clamp(-most, most) } else { number };
        losses.clamped += usize::from(number.is_finite() && kept != number);
        let bits = match half {
            Half::F16 => f16::from_f32(kept).to_bits(),
            Half::Bf16 => bf16::from_f32(kept).to_bits(),
        };
        losses.vanished += usize::from(number != 0.0 && bits & 0x7fff == 0);
        raw.extend_from_slice(&bits.to_le_bytes());
    }
    let mut message = Vec::with_capacity(raw.len() + 64);
    for &dim in dims {
        write_number(&mut message, number::TENSOR_DIMS, dim);
    }
    write_number(&mut message, number::TENSOR_DATA_TYPE, half.element() as u64);
    write_bytes(&mut message, number::TENSOR_NAME, name.as_bytes());
    write_bytes(&mut message, number::TENSOR_RAW_DATA, &raw);
    (message, losses)
}

/// A part of a file beside the model.
struct External {
    location: PathBuf,
    offset: u64,
    length: Option<u64>,
}

fn external(message: &[u8]) -> Result<Option<External>, WireError> {
    let mut found = External { location: PathBuf::new(), offset: 0, length: None };
    for field in fields(message) {
        let field = field?;
        if field.number == number::TENSOR_EXTERNAL_DATA {
            let (mut key, mut value) = (String::new(), String::new());
            for field in fields(field.bytes()) {
                let field = field?;
                match field.number {
                    number::FIRST => key = field.text(),
                    number::SECOND => value = field.text(),
                    _ => {}
                }
            }
            match key.as_str() {
                "location" => found.location = PathBuf::from(value),
                "offset" => found.offset = value.parse().map_err(|_| WireError::Malformed)?,
                "length" => found.length = Some(value.parse().map_err(|_| WireError::Malformed)?),
                _ => {}
            }
        }
    }
    Ok((!found.location.as_os_str().is_empty()).then_some(found))
}

impl External {
    fn read(&self, directory: &Path) -> Result<Vec<u8>, PrecisionError> {
        let path = directory.join(&self.location);
        let failed = |error| PrecisionError::External { path: path.clone(), error };
        let file = File::open(&path).map_err(failed)?;
        let there = file.metadata().map_err(failed)?.len().saturating_sub(self.offset);
        let length = self.length.unwrap_or(there);
        if length > there {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, self.offset).map_err(failed)?;
        Ok(bytes)
    }
}
