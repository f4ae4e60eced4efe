//! Checks the tensors that an `.onnx` file contains, before a backend sees them.
//!
//! A backend multiplies the dimensions that the file claims, and reads or writes as many elements. So a tensor passes only if
//! its data is exactly as long as its type and its dimensions require, wherever the data is stored.

use std::path::PathBuf;

use super::schema::{Storage, dtype, element, element_name, number, storage};
use super::wire::{Field, Value, WireError, fields, last, packed, text};

/// The maximum number of dimensions: NumPy's limit, which applies to exporters. rten's time to load a shape grows with its
/// square.
pub(super) const MAX_RANK: usize = 64;

/// The longest path on Linux, because errors repeat it.
const MAX_PATH_BYTES: usize = 4096;

/// ONNX Runtime interprets the offset of a tensor in this "file" as a memory address.
const IN_MEMORY: &str = "_ORT_MEM_ADDR_";

/// Why a tensor is rejected.
pub(super) enum TensorError {
    Wire(WireError),
    /// The fault, as a phrase that follows its name.
    Refused(String),
}

impl From<WireError> for TensorError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn refused<T>(reason: impl Into<String>) -> Result<T, TensorError> {
    Err(TensorError::Refused(reason.into()))
}

/// A tensor that was checked.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) dims: Vec<u64>,
    element: i64,
    /// The file that holds its data, and the offset of the data's end.
    pub(super) external: Option<(PathBuf, u64)>,
}

/// The amount of a tensor's data by field, in numbers, bytes or strings.
#[derive(Default)]
struct Found {
    raw_bytes: u64,
    /// The number of values of each field that is not empty.
    typed: Vec<(u64, u64)>,
}

impl Found {
    fn add(&mut self, field: u64, values: u64) {
        match self.typed.iter_mut().find(|(known, _)| *known == field) {
            Some((_, sum)) => *sum += values,
            None if values > 0 => self.typed.push((field, values)),
            None => {}
        }
    }
}

/// Reads and checks a `TensorProto`.
pub(super) fn check(message: &[u8]) -> Result<Tensor, TensorError> {
    let (mut dims, mut element, mut location, mut entries) = (Vec::new(), 0, 0, Vec::new());
    let mut found = Found::default();
    for field in fields(message) {
        let field = field?;
        match field.number {
            number::TENSOR_DIMS => add_dims(&mut dims, &field)?,
            number::TENSOR_DATA_TYPE => element = single(&field)?,
            number::TENSOR_RAW_DATA => found.raw_bytes = message_of(&field)?.len() as u64,
            number::TENSOR_STRING_DATA => {
                message_of(&field)?;
                found.add(field.number, 1);
            }
            number::TENSOR_FLOAT_DATA => found.add(field.number, fixed_count(&field, 4)?),
            number::TENSOR_DOUBLE_DATA => found.add(field.number, fixed_count(&field, 8)?),
            number::TENSOR_INT32_DATA | number::TENSOR_INT64_DATA | number::TENSOR_UINT64_DATA => {
                found.add(field.number, varint_count(&field)?);
            }
            number::TENSOR_EXTERNAL_DATA => entries.push(message_of(&field)?),
            number::TENSOR_DATA_LOCATION => location = single(&field)?,
            _ => {}
        }
    }
    let Some(storage) = storage(element) else {
        return refused(format!("has the unknown element type {element}"));
    };
    let of = format!("of {}", described(element, &dims));
    let Some(count) = element_count(&dims) else {
        let has = found.raw_bytes + found.typed.iter().map(|(_, values)| values).sum::<u64>();
        let unit = if found.raw_bytes > 0 { "bytes" } else { "values" };
        return refused(format!("{of} has {has} {unit} and needs more than 2^63 bytes"));
    };
    let needed_bytes = storage.bytes(count);
    let entries = External::read(&of, &entries)?;
    match location {
        LOCATION_INLINE => check_data(&of, &found, count, needed_bytes, &storage)?,
        LOCATION_EXTERNAL if found.raw_bytes > 0 || !found.typed.is_empty() => {
            return refused(format!("{of} has data both in the model and in another file"));
        }
        LOCATION_EXTERNAL if element == element::STRING => {
            return refused(format!("{of} has its data in another file, which strings cannot have"));
        }
        LOCATION_EXTERNAL => {
            if entries.path.is_none() {
                return refused(format!("{of} has its data in another file, but does not name the file"));
            }
            if let Some(length) = entries.length.filter(|&length| length != needed_bytes) {
                return refused(format!("{of} has {length} bytes and needs {needed_bytes}"));
            }
        }
        other => return refused(format!("{of} has its data in the unknown place {other}")),
    }
    let external = match entries.path {
        // A named file counts even if the tensor claims that its data is inside the model.
        Some(path) if location == LOCATION_INLINE => Some((path, 0)),
        Some(path) => {
            let Some(end_bytes) = entries.offset.unwrap_or(0).checked_add(needed_bytes) else {
                return refused(format!("{of} needs {needed_bytes} bytes from the end of any file on"));
            };
            Some((path, end_bytes))
        }
        None => None,
    };
    Ok(Tensor { dims, element, external })
}

/// The values of `TensorProto.DataLocation`.
const LOCATION_INLINE: i64 = 0;
const LOCATION_EXTERNAL: i64 = 1;

fn check_data(of: &str, found: &Found, count: u64, needed_bytes: u64, storage: &Storage) -> Result<(), TensorError> {
    let needed_values = storage.values(count);
    let strings = storage.field == number::TENSOR_STRING_DATA;
    let (has, needs, unit) = match (found.raw_bytes, found.typed.as_slice()) {
        (0, []) if strings => (0, count, "strings"),
        (0, []) => (0, needed_bytes, "bytes"),
        (bytes, []) if !strings => (bytes, needed_bytes, "bytes"),
        (0, [(field, values)]) if *field == storage.field => {
            (*values, needed_values, if strings { "strings" } else { "values" })
        }
        (0, [_]) | (_, []) => return refused(format!("{of} has its data in the field of another type")),
        _ => return refused(format!("{of} has its data twice")),
    };
    if has == needs { Ok(()) } else { refused(format!("{of} has {has} {unit} and needs {needs}")) }
}

/// Checks a `SparseTensorProto`: its two tensors, and that every value lies inside its dimensions. The indices must be in the
/// model itself.
pub(super) fn check_sparse(message: &[u8]) -> Result<(), TensorError> {
    let (mut values, mut indices, mut dims) = (None, None, Vec::new());
    for field in fields(message) {
        let field = field?;
        let part = match field.number {
            number::SPARSE_VALUES => &mut values,
            number::SPARSE_INDICES => &mut indices,
            number::SPARSE_DIMS => {
                add_dims(&mut dims, &field)?;
                continue;
            }
            _ => continue,
        };
        let message = message_of(&field)?;
        // One reader would merge the two, another would take the last.
        if part.replace((check(message)?, message)).is_some() {
            return Err(WireError::Malformed.into());
        }
    }
    let Some((values, _)) = values else { return refused("is sparse, but has no values") };
    let of = format!("is sparse with the dimensions {dims:?}");
    let Some(count) = element_count(&dims) else { return refused(format!("{of}, which are too large")) };
    let &[stored] = values.dims.as_slice() else {
        return refused(format!("{of}, but its values have the dimensions {:?}", values.dims));
    };
    match indices {
        Some((indices, message)) => {
            let positions = [stored, dims.len() as u64];
            let linear = indices.dims == positions[..1];
            if indices.element != element::INT64 || indices.external.is_some() || !(linear || indices.dims == positions)
            {
                let found = described(indices.element, &indices.dims);
                return refused(format!("{of}, but its indices are {found} instead of i64 {positions:?}"));
            }
            let limits = if linear { &[count][..] } else { &dims };
            let mut limit = limits.iter().cycle();
            for index in int64_values(message) {
                // A negative index is above every limit.
                if limit.next().is_none_or(|&limit| index as u64 >= limit) {
                    return refused(format!("{of}, but one of its indices is {index}"));
                }
            }
        }
        None if stored == 0 => {}
        None => return refused(format!("{of}, but has no indices")),
    }
    Ok(())
}

/// Returns the numbers of a tensor of i64 that was checked.
fn int64_values(message: &[u8]) -> Vec<i64> {
    let mut values = Vec::new();
    for field in fields(message).map_while(Result::ok) {
        match (field.number, field.value) {
            (number::TENSOR_RAW_DATA, Value::Bytes(bytes)) => {
                values.clear();
                values.extend(bytes.as_chunks::<8>().0.iter().map(|&bytes| i64::from_le_bytes(bytes)));
            }
            (number::TENSOR_INT64_DATA, Value::Number(value)) => values.push(value as i64),
            (number::TENSOR_INT64_DATA, Value::Bytes(bytes)) => {
                values.extend(packed(bytes).map_while(Result::ok).map(|value| value as i64));
            }
            _ => {}
        }
    }
    values
}

/// The stated location of a tensor's data.
#[derive(Default)]
struct External {
    path: Option<PathBuf>,
    offset: Option<u64>,
    length: Option<u64>,
}

impl External {
    fn read(of: &str, entries: &[&[u8]]) -> Result<Self, TensorError> {
        let (mut external, mut keys) = (Self::default(), Vec::new());
        for entry in entries {
            let key = text(entry, number::FIRST)?;
            let value = last(entry, number::SECOND)?.map_or(&[][..], |value| value.bytes());
            let name = shown(&key);
            // A backend opens the name unchanged, so the check must use the same bytes.
            let Ok(value) = std::str::from_utf8(value) else {
                return refused(format!("{of} has a value of `{name}` that is not UTF-8"));
            };
            let size = || match value.parse() {
                Ok(size) if value.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(size)),
                _ => refused(format!("{of} has the {name} `{}`, which is not a size", shown(value))),
            };
            match key.as_str() {
                "location" if value.contains(IN_MEMORY) => {
                    return refused(format!("{of} has its data at an address in memory (`{}`)", shown(value)));
                }
                "location" if value.len() > MAX_PATH_BYTES => {
                    let has = value.len();
                    return refused(format!("{of} names its file in {has} bytes, more than {MAX_PATH_BYTES}"));
                }
                "location" => external.path = Some(PathBuf::from(value)),
                "offset" => external.offset = size()?,
                "length" => external.length = size()?,
                "checksum" => {}
                _ => return refused(format!("{of} has the unknown entry `{name}` about another file")),
            }
            if keys.contains(&key) {
                return refused(format!("{of} has two entries `{name}` about another file"));
            }
            keys.push(key);
        }
        Ok(external)
    }
}

/// Returns the number of elements, if the dimensions without zeros multiply to less than 2^63 bytes of the widest type.
/// Strides are products of dimensions, so they must not overflow even if a tensor is empty.
fn element_count(dims: &[u64]) -> Option<u64> {
    const WIDEST_BYTES: u64 = 16;
    let padded = dims.iter().try_fold(WIDEST_BYTES, |product, &dim| product.checked_mul(dim.max(1)))?;
    (padded <= i64::MAX as u64).then(|| dims.iter().product())
}

/// Returns the type and the dimensions as text.
fn described(element: i64, dims: &[u64]) -> String {
    let element = dtype(element).map_or_else(|| element_name(element), |dtype| dtype.to_string());
    format!("{element} {dims:?}")
}

/// Returns a name from the file as an error shows it: at most 100 characters, without control characters.
pub(super) fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    let mut shown: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

fn add_dims(dims: &mut Vec<u64>, field: &Field<'_>) -> Result<(), TensorError> {
    let mut add = |dim: u64| {
        if dims.len() == MAX_RANK {
            return refused(format!("has more than {MAX_RANK} dimensions"));
        }
        match i64::try_from(dim) {
            Ok(_) => dims.push(dim),
            Err(_) => return refused(format!("has the dimension {}", dim as i64)),
        }
        Ok(())
    };
    match field.value {
        Value::Number(dim) => add(dim),
        Value::Bytes(bytes) => packed(bytes).try_for_each(|dim| add(dim?)),
        Value::Fixed(_) => Err(WireError::Malformed.into()),
    }
}

/// Returns the value of an enum, which has 32 bits.
fn single(field: &Field<'_>) -> Result<i64, WireError> {
    match field.value {
        Value::Number(number) => Ok(number as i32 as i64),
        Value::Bytes(_) | Value::Fixed(_) => Err(WireError::Malformed),
    }
}

/// Returns the bytes of a field that must hold a message, text or data.
pub(super) fn message_of<'a>(field: &Field<'a>) -> Result<&'a [u8], WireError> {
    match field.value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Number(_) | Value::Fixed(_) => Err(WireError::Malformed),
    }
}

/// Returns how many integers a repeated field adds: one, or the packed ones.
pub(super) fn varint_count(field: &Field<'_>) -> Result<u64, WireError> {
    match field.value {
        Value::Number(_) => Ok(1),
        Value::Bytes(bytes) => packed(bytes).try_fold(0, |count, value| value.map(|_| count + 1)),
        Value::Fixed(_) => Err(WireError::Malformed),
    }
}

/// Returns how many floating-point numbers of `size` bytes a repeated field adds: one, or the packed ones.
pub(super) fn fixed_count(field: &Field<'_>, size: usize) -> Result<u64, WireError> {
    match field.value {
        Value::Fixed(bytes) if bytes.len() == size => Ok(1),
        Value::Bytes(bytes) if bytes.len().is_multiple_of(size) => Ok((bytes.len() / size) as u64),
        Value::Bytes(_) | Value::Number(_) | Value::Fixed(_) => Err(WireError::Malformed),
    }
}
