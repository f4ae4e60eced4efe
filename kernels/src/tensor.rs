//! Views of a model's tensors: element type, shape, bytes.

use std::borrow::Cow;
use std::fmt;

use half::f16;

/// The type of a tensor's elements, numbered as `Number` of cuda/filter_argument.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754.
    F16,
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Returns the bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::I64 => 8,
        }
    }

    /// Returns the name used in cards, messages and tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Formats a shape as people write it: `[1, 3, 416, 416]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeText<'a>(pub &'a [usize]);

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A tensor to read: dense, row-major, in host byte order.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

/// Bytes that do not fit the shape and type of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {dtype} tensor of shape {shape:?} has {expected} bytes, not {found}")]
pub struct TensorSizeError {
    /// The element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Vec<usize>,
    /// The bytes that shape and type require.
    pub expected: usize,
    /// The bytes given.
    pub found: usize,
}

fn checked(dtype: DType, shape: &[usize], found: usize) -> Result<(), TensorSizeError> {
    let expected = shape.iter().try_fold(dtype.size_bytes(), |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
    if expected == found { Ok(()) } else { Err(TensorSizeError { dtype, shape: shape.to_vec(), expected, found }) }
}

impl<'a> TensorRef<'a> {
    /// Makes a view of `bytes`, which must contain exactly the shape's elements.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, TensorSizeError> {
        checked(dtype, shape, bytes.len())?;
        Ok(Self { dtype, shape, bytes })
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape, outermost dimension first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Returns the raw bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size_bytes()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the elements as `f32`: borrowed if they are aligned f32 already, otherwise converted.
    ///
    /// i64 beyond 2^24 loses precision, as in any conversion to f32.
    pub fn to_f32(&self) -> Cow<'a, [f32]> {
        fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f32) -> Cow<'static, [f32]> {
            Cow::Owned(bytes.as_chunks::<N>().0.iter().map(|&b| f(b)).collect())
        }
        match self.dtype {
            DType::F32 => {
                // SAFETY: every bit pattern is a valid f32; `align_to` hands out only the aligned middle.
                let (head, middle, tail) = unsafe { self.bytes.align_to::<f32>() };
                if head.is_empty() && tail.is_empty() {
                    Cow::Borrowed(middle)
                } else {
                    each(self.bytes, f32::from_ne_bytes)
                }
            }
            DType::F16 => each(self.bytes, |b: [u8; 2]| f16::from_ne_bytes(b).to_f32()),
            DType::U8 | DType::Bool => each(self.bytes, |[b]: [u8; 1]| f32::from(b)),
            DType::I8 => each(self.bytes, |b: [u8; 1]| f32::from(i8::from_ne_bytes(b))),
            DType::I32 => each(self.bytes, |b: [u8; 4]| i32::from_ne_bytes(b) as f32),
            DType::I64 => each(self.bytes, |b: [u8; 8]| i64::from_ne_bytes(b) as f32),
        }
    }
}

/// A tensor to write: dense, row-major, in host byte order.
#[derive(Debug)]
pub struct TensorMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a mut [u8],
}

impl<'a> TensorMut<'a> {
    /// Makes a view of `bytes`, which must contain exactly the shape's elements.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a mut [u8]) -> Result<Self, TensorSizeError> {
        checked(dtype, shape, bytes.len())?;
        Ok(Self { dtype, shape, bytes })
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape, outermost dimension first.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Returns the raw bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Returns one frame's part of a batch: index `index` of dimension 0; `None` if there is no such index.
    pub fn slot(self, index: usize) -> Option<TensorMut<'a>> {
        let (&batch, rest) = self.shape.split_first()?;
        if index >= batch {
            return None;
        }
        let each = self.bytes.len() / batch;
        Some(TensorMut { dtype: self.dtype, shape: rest, bytes: &mut self.bytes[index * each..(index + 1) * each] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_does_not_fit_its_bytes_is_refused() {
        let error = TensorRef::new(DType::F32, &[2, 3], &[0; 20]).unwrap_err();
        assert_eq!((error.expected, error.found), (24, 20));
    }

    #[test]
    fn every_type_reads_as_f32() {
        let h = [f16::from_f32(1.5), f16::from_f32(-2.0)].map(f16::to_ne_bytes).concat();
        assert_eq!(TensorRef::new(DType::F16, &[2], &h).unwrap().to_f32()[..], [1.5, -2.0]);
        let i = [3_i64, -4].map(i64::to_ne_bytes).concat();
        assert_eq!(TensorRef::new(DType::I64, &[2], &i).unwrap().to_f32()[..], [3.0, -4.0]);
        assert_eq!(TensorRef::new(DType::I8, &[1], &[255]).unwrap().to_f32()[..], [-1.0]);
    }

    #[test]
    fn a_slot_is_one_frame_of_the_batch() {
        let mut bytes = [0_u8; 12];
        let tensor = TensorMut::new(DType::U8, &[2, 6], &mut bytes).unwrap();
        tensor.slot(1).unwrap().bytes().fill(9);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9]);
        assert!(TensorMut::new(DType::U8, &[2, 6], &mut bytes).unwrap().slot(2).is_none());
    }
}
