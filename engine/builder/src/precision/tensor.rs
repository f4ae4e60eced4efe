//! The two half-precision types: reads the numbers of any floating-point `TensorProto`, and writes one in half precision.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use half::{bf16, f16};

use super::error::PrecisionError;
use visiond_engine::builder_api::onnx::{Value, WireError, element, fields, number, packed, write_bytes, write_number};

/// A floating-point type of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE 754: 11 bits of precision, up to 65,504.
    F16,
    /// 8 bits of precision, the range of FP32.
    Bf16,
}

impl Half {
    /// Returns the greatest finite number.
    pub(super) const fn most(self) -> f32 {
        match self {
            Self::F16 => 65_504.0,
            Self::Bf16 => 3.389_531_4e38,
        }
    }

    /// Returns the number of ONNX's element type.
    pub(super) const fn element(self) -> i64 {
        match self {
            Self::F16 => element::FLOAT16,
            Self::Bf16 => element::BFLOAT16,
        }
    }

    /// Returns the name used in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    fn bits(self, number: f32) -> u16 {
        match self {
            Self::F16 => f16::from_f32(number).to_bits(),
            Self::Bf16 => bf16::from_f32(number).to_bits(),
        }
    }
}

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
    let mut raw: Option<Cow<'_, [u8]>> = None;
    let mut numbers = Vec::new();
    for field in fields(message) {
        let field = field?;
        match (field.number, field.value) {
            (number::TENSOR_RAW_DATA, Value::Bytes(data)) => raw = Some(data.into()),
            (number::TENSOR_FLOAT_DATA, Value::Bytes(data) | Value::Fixed(data)) => numbers.extend(singles(data)),
            // f16 and bf16 without raw data store their bits in 32-bit integers.
            (number::TENSOR_INT32_DATA, Value::Bytes(data)) => {
                for bits in packed(data) {
                    numbers.extend(from_bits(header.element, bits? as u16));
                }
            }
            (number::TENSOR_INT32_DATA, Value::Number(bits)) => numbers.extend(from_bits(header.element, bits as u16)),
            _ => {}
        }
    }
    let raw = external(message, directory)?.map(Cow::from).or(raw);
    Ok(match (header.element, raw) {
        (element::FLOAT, Some(bytes)) => Some(singles(&bytes).collect()),
        (element::FLOAT16 | element::BFLOAT16, Some(bytes)) => {
            let bits = bytes.as_chunks::<2>().0.iter().map(|chunk| u16::from_le_bytes(*chunk));
            Some(bits.filter_map(|bits| from_bits(header.element, bits)).collect())
        }
        (element::FLOAT | element::FLOAT16 | element::BFLOAT16, None) => Some(numbers),
        _ => None,
    })
}

fn singles(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk))
}

fn from_bits(element: i64, bits: u16) -> Option<f32> {
    match element {
        element::FLOAT16 => Some(f16::from_bits(bits).to_f32()),
        element::BFLOAT16 => Some(bf16::from_bits(bits).to_f32()),
        _ => None,
    }
}

/// The numbers that the conversion to half precision changed.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Finite numbers beyond the range, which were clamped.
    pub(super) clamped: usize,
    /// A tensor with clamped numbers.
    pub(super) clamped_in: Option<String>,
    /// Numbers that became zero.
    pub(super) vanished: usize,
}

/// Makes a `TensorProto` called `name` with `numbers` in half precision, and counts the losses.
pub(super) fn write(name: &str, dims: &[u64], numbers: &[f32], half: Half, losses: &mut Losses) -> Vec<u8> {
    let mut raw = Vec::with_capacity(numbers.len() * 2);
    for &number in numbers {
        let most = half.most();
        let kept = if number.is_finite() { number.clamp(-most, most) } else { number };
        losses.clamped += usize::from(number.is_finite() && kept != number);
        let bits = half.bits(kept);
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
    message
}

/// Reads the numbers of a tensor if they are stored in a file beside the model.
fn external(message: &[u8], directory: &Path) -> Result<Option<Vec<u8>>, PrecisionError> {
    let (mut location, mut offset, mut length) = (String::new(), 0, None);
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
            let count = || value.parse::<u64>().map_err(|_| PrecisionError::Malformed);
            match key.as_str() {
                "offset" => offset = count()?,
                "length" => length = Some(count()?),
                "location" => location = value,
                _ => {}
            }
        }
    }
    if location.is_empty() {
        return Ok(None);
    }
    let path = directory.join(location);
    let read = || {
        let file = File::open(&path)?;
        let there = file.metadata()?.len().saturating_sub(offset);
        let length = length.unwrap_or(there);
        if length > there {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    };
    read().map(Some).map_err(|error| PrecisionError::External(path.clone(), error))
}
