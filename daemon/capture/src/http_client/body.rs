//! The body of a response: by length, chunked, or until the connection closes.

/// The most bytes of a line in chunked coding.
const MOST_LINE_BYTES: usize = 1024;

/// The most lines after the last chunk.
const MOST_TRAILERS: usize = 100;

/// The remaining part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// This many bytes.
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// The position of the next byte in chunked coding: RFC 9112, 7.1.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunk {
    /// In the size line, of which this part has arrived.
    Size(Vec<u8>),
    Data(u64),
    /// In the line end after the data.
    DataEnd,
    /// In a line after the last chunk.
    Trailer {
        bytes: usize,
        lines: usize,
    },
    End,
}

impl Body {
    pub fn chunked() -> Self {
        Self::Chunked(Chunk::Size(Vec::new()))
    }

    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::End))
    }

    /// Decodes `bytes`, the next ones received; `take` gets the content. Bytes after the end are ignored.
    pub fn decode(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> Result<(), &'static str> {
        match self {
            Self::UntilClose => take(bytes),
            Self::Length(left) => {
                let (now, _) = bytes.split_at(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                *left -= now.len() as u64;
                take(now);
            }
            Self::Chunked(chunk) => {
                let mut rest = bytes;
                while !rest.is_empty() && *chunk != Chunk::End {
                    rest = chunk.step(rest, &mut take)?;
                }
            }
        }
        Ok(())
    }
}

impl Chunk {
    /// Takes at least one byte; returns the rest.
    fn step<'a>(&mut self, bytes: &'a [u8], take: &mut impl FnMut(&[u8])) -> Result<&'a [u8], &'static str> {
        const BROKEN: &str = "the camera breaks HTTP's chunked coding: restart it and update its firmware";
        // A line's part and the bytes after it, or all of the bytes if the line does not end in them.
        let (line, behind) = match memchr::memchr(b'\n', bytes) {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        match self {
            Self::Size(begun) => {
                begun.extend_from_slice(line.get(..MOST_LINE_BYTES + 1).unwrap_or(line));
                if begun.len() > MOST_LINE_BYTES {
                    return Err(BROKEN);
                }
                let Some(behind) = behind else { return Ok(&[]) };
                let digits = begun.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
                let size = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
                let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(BROKEN)?;
                *self = if size == 0 { Self::Trailer { bytes: 0, lines: 0 } } else { Self::Data(size) };
                Ok(behind)
            }
            Self::Data(left) => {
                let (now, rest) = bytes.split_at(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                take(now);
                *left -= now.len() as u64;
                if *left == 0 {
                    *self = Self::DataEnd;
                }
                Ok(rest)
            }
            Self::DataEnd => match (line.trim_ascii().is_empty() && line.len() <= 2, behind) {
                (true, Some(behind)) => {
                    *self = Self::Size(Vec::new());
                    Ok(behind)
                }
                (true, None) => Ok(&[]),
                (false, _) => Err(BROKEN),
            },
            Self::Trailer { bytes, lines } => {
                *bytes += line.trim_ascii().len();
                let Some(behind) = behind else {
                    return if *bytes > MOST_LINE_BYTES { Err(BROKEN) } else { Ok(&[]) };
                };
                *lines += 1;
                if *lines > MOST_TRAILERS || *bytes > MOST_LINE_BYTES {
                    return Err(BROKEN);
                }
                *self = if *bytes == 0 { Self::End } else { Self::Trailer { bytes: 0, lines: *lines } };
                Ok(behind)
            }
            Self::End => Ok(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn decode(body: &mut Body, input: &[u8], step: usize) -> Result<Vec<u8>, &'static str> {
        let mut all = Vec::new();
        for piece in input.chunks(step) {
            body.decode(piece, |bytes| all.extend_from_slice(bytes))?;
        }
        Ok(all)
    }

    #[test]
    fn chunks_are_joined_wherever_the_network_cuts_them() {
        for input in [
            &b"5\r\nhello\r\n06;x=y\r\n world\r\n0\r\n\r\nGARBAGE"[..],
            b"5\nhello\n6 \n world\n0\nDate: x\n\n",
            b"B\r\nhello world\r\n00\r\nA: b\r\nC: d\r\n\r\n",
        ] {
            for step in 1..=input.len() {
                let mut body = Body::chunked();
                assert_eq!(decode(&mut body, input, step).unwrap(), b"hello world", "{step}");
                assert!(body.is_complete());
            }
        }
    }

    #[test]
    fn broken_chunks_are_refused_and_none_is_kept() {
        let endless = vec![b'1'; 5000];
        for input in
            [&b"x\r\n"[..], b"\r\n", b"+5\r\nhello", b"-1\r\n", b"1ffffffffffffffff\r\n", b"1\r\nab\r\n", &endless]
        {
            for step in [1, input.len()] {
                assert!(decode(&mut Body::chunked(), input, step).is_err(), "{input:?}");
            }
        }
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(200)].concat();
        assert!(decode(&mut Body::chunked(), &trailers, 7).is_err());
    }

    proptest! {
        #[test]
        fn a_body_of_a_length_has_that_many_bytes(bytes: Vec<u8>, length in 0_u64..200, step in 1_usize..20) {
            let mut body = Body::Length(length);
            let all = decode(&mut body, &bytes, step).unwrap();
            prop_assert_eq!(&all, &bytes[..bytes.len().min(length as usize)]);
            prop_assert_eq!(body.is_complete(), bytes.len() as u64 >= length);
        }

        #[test]
        fn any_chunks_give_no_more_than_came(bytes in prop::collection::vec(prop::sample::select(b"0123f\r\n;x".to_vec()), 0..200), step in 1_usize..20) {
            if let Ok(all) = decode(&mut Body::chunked(), &bytes, step) {
                prop_assert!(all.len() <= bytes.len());
            }
        }
    }
}
