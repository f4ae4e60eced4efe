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

    /// Whether a model's image input may have such elements.
    pub const fn holds_pixels(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::U8 | Self::I8 | Self::I32)
    }

    /// Whether elements are integers, so that pixels stay 0 to 255 in them.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::U8 | Self::I8 | Self::I32 | Self::I64)
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
    /// The dimensions, outermost first.
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
        let i = [70_000_i32, -5].map(i32::to_ne_bytes).concat();
        assert_eq!(TensorRef::new(DType::I32, &[2], &i).unwrap().to_f32()[..], [70_000.0, -5.0]);
        for dtype in [DType::U8, DType::Bool] {
            assert_eq!(TensorRef::new(dtype, &[2], &[1, 0]).unwrap().to_f32()[..], [1.0, 0.0]);
        }
        let f = [0.0, 2.5_f32].map(f32::to_ne_bytes).concat();
        // Four offsets, of which three are not aligned.
        let mut bytes = [0; 12];
        for offset in 0..4 {
            bytes[offset..offset + 8].copy_from_slice(&f);
            assert_eq!(TensorRef::new(DType::F32, &[2], &bytes[offset..offset + 8]).unwrap().to_f32()[..], [0.0, 2.5]);
        }
    }

    #[test]
    fn a_view_has_the_type_and_shape_that_it_was_made_with() {
        use DType::{Bool, F16, F32, I8, I32, I64, U8};
        for (dtype, name, size) in [
            (F32, "f32", 4),
            (F16, "f16", 2),
            (U8, "u8", 1),
            (I8, "i8", 1),
            (I32, "i32", 4),
            (I64, "i64", 8),
            (Bool, "bool", 1),
        ] {
            assert_eq!((dtype.name(), dtype.size_bytes()), (name, size));
            let mut bytes = vec![7; 6 * size];
            let view = TensorRef::new(dtype, &[2, 3], &bytes).unwrap();
            assert_eq!((view.dtype(), view.shape(), view.bytes(), view.len()), (dtype, &[2, 3][..], &bytes[..], 6));
            assert!(!view.is_empty() && TensorRef::new(dtype, &[0, 3], &[]).unwrap().is_empty());
            let written = TensorMut::new(dtype, &[2, 3], &mut bytes).unwrap();
            assert_eq!((written.dtype(), written.shape()), (dtype, &[2, 3][..]));
            let slot = written.slot(0).unwrap();
            assert_eq!((slot.dtype(), slot.shape(), slot.bytes.len()), (dtype, &[3][..], 3 * size));
        }
        assert_eq!(ShapeText(&[1, 3, 416]).to_string(), "[1, 3, 416]");
        assert!(TensorRef::new(F32, &[usize::MAX, 2], &[0; 8]).is_err(), "more bytes than there can be");
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
