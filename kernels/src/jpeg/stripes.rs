//! One JPEG file out of stripes that were encoded one below the other.
//!
//! A decoder starts anew at a restart marker as it does at a picture's begin. So the first stripe's headers, with the whole
//! height and a restart interval of one stripe, and then the data of all stripes with a marker between each two, are the
//! picture (ITU-T T.81, B.2 and F.1.1.5.1). All stripes but the last have to have the same height, a multiple of the MCU's,
//! and all the same tables.

use super::encode::EncodeError;

const EOI: [u8; 2] = [0xff, 0xd9];
const SOS: u8 = 0xda;
const DRI: u8 = 0xdd;

/// A picture that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    jpeg: Vec<u8>,
    count: u8,
}

impl Stripes {
    /// The picture of `height` pixels begins with the whole file `first`, of which a stripe has `mcus`.
    pub fn begin(first: &[u8], height: u16, mcus: u16) -> Result<Self, EncodeError> {
        let Headers { frame, scan, data } = headers(first)?;
        let mut jpeg = Vec::with_capacity(first.len() * 2);
        jpeg.extend_from_slice(&first[..scan]);
        // Length and precision come before the height.
        jpeg[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        jpeg.extend_from_slice(&[0xff, DRI, 0, 4]);
        jpeg.extend_from_slice(&mcus.to_be_bytes());
        jpeg.extend_from_slice(&first[scan..data.end]);
        Ok(Self { jpeg, count: 0 })
    }

    /// Below it comes the whole file `next`.
    pub fn add(&mut self, next: &[u8]) -> Result<(), EncodeError> {
        let Headers { data, .. } = headers(next)?;
        // RST0 to RST7, in turns.
        self.jpeg.extend_from_slice(&[0xff, 0xd0 + self.count % 8]);
        self.count = (self.count + 1) % 8;
        self.jpeg.extend_from_slice(&next[data]);
        Ok(())
    }

    /// The file.
    pub fn end(mut self) -> Vec<u8> {
        self.jpeg.extend_from_slice(&EOI);
        self.jpeg
    }
}

/// Where in a baseline file are the markers of the frame (SOF0) and of the scan, and the scan's data.
struct Headers {
    frame: usize,
    scan: usize,
    data: std::ops::Range<usize>,
}

fn headers(jpeg: &[u8]) -> Result<Headers, EncodeError> {
    let odd = || EncodeError("the library wrote a file without the headers of a baseline picture".to_owned());
    let (mut at, mut frame) = (2, None);
    while let Some(&[0xff, marker, high, low]) = jpeg.get(at..at + 4) {
        let next = at + 2 + usize::from(u16::from_be_bytes([high, low]));
        match marker {
            0xc0 => frame = Some(at),
            SOS => {
                let end = jpeg.len() - EOI.len();
                let whole = jpeg.ends_with(&EOI) && next <= end;
                return frame
                    .filter(|_| whole)
                    .map(|frame| Headers { frame, scan: at, data: next..end })
                    .ok_or_else(odd);
            }
            _ => {}
        }
        at = next;
    }
    Err(odd())
}
