//! The part of Protocol Buffers' wire format that an `.onnx` file needs: reads the fields of a message and writes some.
//!
//! Copies nothing and allocates nothing for a length that the file merely claims, so a broken file causes an error and uses no
//! memory. <https://protobuf.dev/programming-guides/encoding/>

/// Why bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    /// A field extends beyond the end.
    Truncated,
    /// A tag or number is invalid.
    Malformed,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of up to 64 bits.
    Number(u64),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four or eight bytes: a little-endian floating-point number.
    Fixed(&'a [u8]),
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field's number in onnx.proto.
    pub number: u64,
    /// The field's value.
    pub value: Value<'a>,
    /// The bytes of tag and value in the message.
    pub raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// Returns the bytes of a text, message or bytes field; empty for any other.
    pub fn bytes(&self) -> &'a [u8] {
        match self.value {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) | Value::Fixed(_) => &[],
        }
    }

    /// Returns the text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Returns the number of an integer field; 0 for any other.
    pub fn number_value(&self) -> i64 {
        match self.value {
            Value::Number(number) => number as i64,
            Value::Bytes(_) | Value::Fixed(_) => 0,
        }
    }
}

/// Iterates over the fields of a message in order; ends after the first error.
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// Returns the fields of `message`.
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// Returns the last field `number` of `message`, which is the one that counts.
pub(super) fn last(message: &[u8], number: u64) -> Result<Option<Field<'_>>, WireError> {
    fields(message).try_fold(None, |last, field| field.map(|field| Some(field).filter(|f| f.number == number).or(last)))
}

/// Returns the text in field `number` of `message`; empty if there is none.
pub(super) fn text(message: &[u8], number: u64) -> Result<String, WireError> {
    Ok(last(message, number)?.map(|field| field.text()).unwrap_or_default())
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let start = self.rest;
        let field = self.field(start);
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self, start: &'a [u8]) -> Result<Field<'a>, WireError> {
        let tag = self.varint()?;
        let number = tag >> 3;
        // Some readers ignore bits beyond 32, so they would see a different field.
        if number == 0 || tag > u32::MAX.into() {
            return Err(WireError::Malformed);
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Fixed(self.take(4)?),
            _ => return Err(WireError::Malformed),
        };
        Ok(Field { number, value, raw: &start[..start.len() - self.rest.len()] })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Malformed)
    }
}

/// Returns the numbers of a packed field; ends after the first that is truncated.
pub fn packed(bytes: &[u8]) -> impl Iterator<Item = Result<u64, WireError>> {
    let mut rest = Fields { rest: bytes };
    std::iter::from_fn(move || {
        if rest.rest.is_empty() {
            return None;
        }
        let number = rest.varint();
        if number.is_err() {
            rest.rest = &[];
        }
        Some(number)
    })
}

/// Appends an integer field to `out`.
pub fn write_number(out: &mut Vec<u8>, field: u64, value: u64) {
    write_varint(out, field << 3);
    write_varint(out, value);
}

/// Appends a text, bytes or message field to `out`.
pub fn write_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    write_varint(out, field << 3 | 2);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = Vec::new();
        write_number(&mut out, 1, 300);
        write_bytes(&mut out, 20, b"name");
        let read: Vec<_> = fields(&out).map(Result::unwrap).collect();
        assert_eq!((read[0].number, read[0].number_value()), (1, 300));
        assert_eq!((read[1].number, read[1].text().as_str()), (20, "name"));
        assert_eq!([read[0].raw, read[1].raw].concat(), out);
    }

    #[test]
    fn each_kind_of_value_is_read_as_protobuf_has_it() {
        for value in [0, 1, 127, 128, 300, 16_384, u64::from(u32::MAX), 1 << 62, u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, 3, value);
            let field = fields(&out).next().unwrap().unwrap();
            assert_eq!((field.number, field.value, field.number_value()), (3, Value::Number(value), value as i64));
            assert!(field.bytes().is_empty() && field.text().is_empty());
            assert_eq!(packed(&out[1..]).collect::<Vec<_>>(), [Ok(value)]);
        }
        // Field 1 with eight bytes, field 2 with four, field 3 with text, and field 2 once more.
        let bytes = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 9, 9, 9, 9, 0x1a, 2, b'h', b'i', 0x10, 0xac, 0x02];
        let values: Vec<_> = fields(&bytes).map(|field| field.map(|field| (field.number, field.value))).collect();
        let fixed = |bytes| Value::Fixed(bytes);
        assert_eq!(
            values,
            [
                Ok((1, fixed(&[1, 2, 3, 4, 5, 6, 7, 8]))),
                Ok((2, fixed(&[9; 4]))),
                Ok((3, Value::Bytes(b"hi"))),
                Ok((2, Value::Number(300))),
            ]
        );
        assert_eq!(last(&bytes, 2).unwrap().unwrap().number_value(), 300, "the last one counts");
        assert_eq!((last(&bytes, 4), text(&bytes, 3), text(&bytes, 4)), (Ok(None), Ok("hi".into()), Ok("".into())));
        assert_eq!(fields(&bytes).nth(2).unwrap().unwrap().number_value(), 0);
        assert_eq!(packed(&[5, 0x80]).collect::<Vec<_>>(), [Ok(5), Err(WireError::Truncated)]);
    }

    #[test]
    fn what_protobuf_does_not_have_is_an_error() {
        for (bytes, error) in [
            (&[0x00, 1][..], WireError::Malformed),
            (&[0x0b], WireError::Malformed),
            (&[0x0e, 0], WireError::Malformed),
            (&[0x09, 1, 2, 3, 4, 5, 6, 7], WireError::Truncated),
            (&[0x0d, 1, 2, 3], WireError::Truncated),
            (&[0x0a, 3, 1, 2], WireError::Truncated),
            (&[0x08, 0x80], WireError::Truncated),
            (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], WireError::Malformed),
        ] {
            assert_eq!(fields(bytes).collect::<Vec<_>>(), [Err(error)], "{bytes:x?}");
            assert_eq!((last(bytes, 1), text(bytes, 1)), (Err(error), Err(error)));
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_and_costs_no_memory() {
        let bytes = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1];
        assert_eq!(fields(&bytes).collect::<Vec<_>>(), [Err(WireError::Truncated)]);
    }

    #[test]
    fn a_field_number_beyond_32_bits_is_an_error() {
        let mut bytes = Vec::new();
        write_varint(&mut bytes, 1 << 32 | 5 << 3);
        bytes.push(1);
        assert_eq!(fields(&bytes).collect::<Vec<_>>(), [Err(WireError::Malformed)]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let count = fields(&bytes).count();
            prop_assert!(count <= bytes.len());
        }
    }
}
