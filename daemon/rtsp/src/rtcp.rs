//! RTCP packets (RFC 3550 section 6): reads sender reports, writes receiver reports. Damaged parts are skipped.

/// Types of packets.
const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SOURCE_DESCRIPTION: u8 = 202;

/// A sender report: maps a camera's clock to an RTP timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderReport {
    /// The camera's clock in NTP's format: 32.32 bits of seconds since 1900.
    pub ntp: u64,
    /// The RTP timestamp of that time.
    pub timestamp: u32,
}

impl SenderReport {
    /// Returns the sender report of a compound packet, if it has one.
    pub fn find(mut packet: &[u8]) -> Option<Self> {
        while let Some(&[flags, kind, high, low]) = packet.first_chunk() {
            if flags >> 6 != 2 {
                return None;
            }
            let length = 4 + usize::from(u16::from_be_bytes([high, low])) * 4;
            if kind == SENDER_REPORT {
                // After the sender's SSRC. The stated length is often wrong.
                let ntp = u64::from_be_bytes(*packet.get(8..)?.first_chunk()?);
                let timestamp = u32::from_be_bytes(*packet.get(16..)?.first_chunk()?);
                return Some(Self { ntp, timestamp });
            }
            packet = packet.get(length..)?;
        }
        None
    }
}

/// Writes a receiver report with a name (CNAME), the minimum of a compound packet.
pub fn write_receiver_report(out: &mut Vec<u8>, own_ssrc: u32, camera: Option<(u32, u16)>, lost: u32) {
    let blocks = u8::from(camera.is_some());
    let words = if camera.is_some() { 7 } else { 1_u16 };
    out.extend([0x80 | blocks, RECEIVER_REPORT]);
    out.extend(words.to_be_bytes());
    out.extend(own_ssrc.to_be_bytes());
    if let Some((ssrc, last)) = camera {
        out.extend(ssrc.to_be_bytes());
        out.extend(lost.min(0x7F_FFFF).to_be_bytes());
        out.extend(u32::from(last).to_be_bytes());
        // Jitter and the time of the last sender report are not tracked.
        out.extend([0; 12]);
    }
    // One chunk: the SSRC, the item CNAME (1) of seven bytes, and the end, filled to whole words.
    out.extend([0x81, SOURCE_DESCRIPTION, 0, 4]);
    out.extend(own_ssrc.to_be_bytes());
    out.extend([1, 7]);
    out.extend(b"visiond");
    out.extend([0; 3]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_report_is_found_behind_other_packets() {
        let report = [&[0x80, 200, 0, 6, 0, 0, 0, 7][..], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &[0; 8]].concat();
        let expected = Some(SenderReport { ntp: 0x0102_0304_0506_0708, timestamp: 0x090A_0B0C });
        assert_eq!(SenderReport::find(&report), expected);
        let behind = [&[0x80, 202, 0, 1, 0, 0, 0, 7][..], &report].concat();
        assert_eq!(SenderReport::find(&behind), expected);
        for length in 0..20 {
            assert_eq!(SenderReport::find(&report[..length]), None);
        }
        assert_eq!(SenderReport::find(b"\x80\xc9\0\x07abcd"), None);
        assert_eq!(SenderReport::find(b"\0\xc8\0\x06abcd"), None);
    }

    #[test]
    fn receiver_reports_have_whole_words() {
        for camera in [None, Some((0x1234_5678, 9))] {
            let mut out = Vec::new();
            write_receiver_report(&mut out, 1, camera, 5);
            let mut rest = &out[..];
            let mut kinds = Vec::new();
            while let Some(&[_, kind, high, low]) = rest.first_chunk() {
                kinds.push(kind);
                rest = &rest[4 + usize::from(u16::from_be_bytes([high, low])) * 4..];
            }
            assert_eq!((kinds.as_slice(), rest.len()), (&[201, 202][..], 0));
        }
    }
}
