//! Parameter sets of H.264 and H.265, which MP4 keeps apart from the frames.

use memchr::memmem::Finder;
use shiguredo_mp4::bitstream::h264::{H264SampleEntryConfig, LengthSize, build_avc1_box};
use shiguredo_mp4::bitstream::h265::{H265ConstantFrameRate, H265SampleEntryConfig, build_hvc1_box};
use shiguredo_mp4::boxes::SampleEntry;
use visiond_frames::coded_ring::Coding;

/// The most parameter sets of a clip; a stream has a few.
const MOST_SETS: usize = 64;

/// The parameter sets of a clip: video, sequence and picture parameter sets.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ParameterSets([Vec<Vec<u8>>; 3]);

/// What a NAL unit is for a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nal {
    /// A parameter set, by its place in [`ParameterSets`].
    Set(usize),
    /// The start or the end of a frame or of the stream, or padding: MP4 needs none of them.
    Border,
    /// A part of a frame.
    Part,
}

impl Nal {
    fn of(coding: Coding, nal: &[u8]) -> Self {
        let Some(&first) = nal.first() else { return Self::Border };
        match (coding, first & 0x1F, first >> 1 & 0x3F) {
            (Coding::H264, 7, _) => Self::Set(1),
            (Coding::H264, 8, _) => Self::Set(2),
            (Coding::H264, 9..=12, _) => Self::Border,
            (Coding::H265, _, kind @ 32..=34) => Self::Set(usize::from(kind - 32)),
            (Coding::H265, _, 35..=38) => Self::Border,
            _ => Self::Part,
        }
    }
}

impl ParameterSets {
    /// Returns the sets of a frame in Annex B, each once.
    pub fn of(coding: Coding, frame: &[u8]) -> Self {
        let mut sets = Self::default();
        for nal in nals(frame) {
            if let Nal::Set(kind) = Nal::of(coding, nal)
                && sets.0[kind].len() < MOST_SETS
                && !sets.has(kind, nal)
            {
                sets.0[kind].push(nal.to_owned());
            }
        }
        sets
    }

    fn has(&self, kind: usize, nal: &[u8]) -> bool {
        self.0[kind].iter().any(|set| set == nal)
    }

    /// Puts a frame in Annex B into `out` as a sample of MP4: each NAL unit after its length, without parameter sets. Returns `false` if
    /// it has a parameter set that is not among these.
    pub fn write_sample(&self, coding: Coding, frame: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        for nal in nals(frame) {
            match Nal::of(coding, nal) {
                Nal::Set(kind) if !self.has(kind, nal) => return false,
                Nal::Set(_) | Nal::Border => {}
                Nal::Part => {
                    // A frame has at most 16 MB.
                    out.extend_from_slice(&(nal.len() as u32).to_be_bytes());
                    out.extend_from_slice(nal);
                }
            }
        }
        true
    }

    /// Returns the description of samples with these sets.
    ///
    /// # Errors
    /// A sentence: the sets are missing or damaged.
    pub fn sample_entry(&self, coding: Coding) -> Result<SampleEntry, shiguredo_mp4::Error> {
        let [vps, sps, pps] = &self.0;
        let length_size = LengthSize::FourBytes;
        match coding {
            Coding::H265 => {
                let config = H265SampleEntryConfig {
                    length_size,
                    avg_frame_rate: H265SampleEntryConfig::AVG_FRAME_RATE_UNSPECIFIED,
                    constant_frame_rate: H265ConstantFrameRate::Unknown,
                };
                build_hvc1_box(vps, sps, pps, &config).map(SampleEntry::Hvc1)
            }
            Coding::H264 | Coding::Jpeg => {
                build_avc1_box(sps, pps, &H264SampleEntryConfig { length_size }).map(SampleEntry::Avc1)
            }
        }
    }
}

/// Returns the NAL units of a frame in Annex B, without the zeros after them.
fn nals(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    let start_code = Finder::new(&[0, 0, 1]);
    let mut rest = start_code.find(frame).map(|at| &frame[at + 3..]);
    std::iter::from_fn(move || {
        let from = rest?;
        let next = start_code.find(from);
        rest = next.map(|at| &from[at + 3..]);
        let nal = &from[..next.unwrap_or(from.len())];
        let zeros = nal.iter().rev().take_while(|&&byte| byte == 0).count();
        Some(&nal[..nal.len() - zeros])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPS: &[u8] = &[0x67, 1, 2, 3];
    const PPS: &[u8] = &[0x68, 4];
    const KEY: &[u8] = &[0x65, 0x88, 9];

    fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect()
    }

    #[test]
    fn a_sample_has_lengths_and_neither_sets_nor_borders() {
        let frame = annex_b(&[&[0x09, 0xF0], SPS, PPS, SPS, &[0x06, 5, 1], KEY, &[0x0C, 0xFF]]);
        let sets = ParameterSets::of(Coding::H264, &frame);
        assert_eq!(sets.0, [vec![], vec![SPS.to_vec()], vec![PPS.to_vec()]]);
        let mut sample = Vec::new();
        assert!(sets.write_sample(Coding::H264, &frame, &mut sample));
        assert_eq!(sample, [0, 0, 0, 3, 0x06, 5, 1, 0, 0, 0, 3, 0x65, 0x88, 9]);
        // Some of the sets may come again, in any frame; others may not.
        assert!(sets.write_sample(Coding::H264, &annex_b(&[PPS, &[0x41, 1]]), &mut sample));
        assert_eq!(sample, [0, 0, 0, 2, 0x41, 1]);
        assert!(!sets.write_sample(Coding::H264, &annex_b(&[&[0x68, 5], &[0x41, 1]]), &mut sample));
    }

    #[test]
    fn sets_of_h265_are_of_three_kinds() {
        let [vps, sps, pps, key] = [[0x40, 1, 1], [0x42, 1, 2], [0x44, 1, 3], [0x26, 1, 0x80]];
        let frame = annex_b(&[&vps, &sps, &pps, &key]);
        let sets = ParameterSets::of(Coding::H265, &frame);
        assert_eq!(sets.0, [vec![vps.to_vec()], vec![sps.to_vec()], vec![pps.to_vec()]]);
        let mut sample = Vec::new();
        assert!(sets.write_sample(Coding::H265, &frame, &mut sample));
        assert_eq!(sample, [0, 0, 0, 3, 0x26, 1, 0x80]);
    }

    #[test]
    fn damaged_sets_have_no_description() {
        for sets in [ParameterSets::default(), ParameterSets::of(Coding::H264, &annex_b(&[SPS, PPS]))] {
            assert!(sets.sample_entry(Coding::H264).is_err() && sets.sample_entry(Coding::H265).is_err());
        }
    }
}
