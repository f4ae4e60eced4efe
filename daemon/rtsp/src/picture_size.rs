//! The size of a stream's frames, by its description.

use h264_reader::nal::sps::SeqParameterSet;
use h264_reader::rbsp::{BitRead, BitReader, BitReaderError, decode_nal};

use crate::codec::Codec;
use crate::sdp::StreamDescription;

/// Returns width and height in pixels of a stream's frames; `None` if its description does not state them in a supported
/// form.
pub fn picture_size(stream: &StreamDescription) -> Option<[u32; 2]> {
    match stream.codec()? {
        Codec::H264 => stream.sets.iter().find_map(|set| h264(set)),
        Codec::H265 => stream.sets.iter().find_map(|set| h265(set)),
        Codec::Jpeg => stream.size.map(|size| size.map(u32::from)),
    }
}

fn h264(nal: &[u8]) -> Option<[u32; 2]> {
    if nal.first()? & 0x1F != 7 {
        return None;
    }
    let payload = decode_nal(nal).ok()?;
    let set = SeqParameterSet::from_bits(BitReader::new(&payload[..])).ok()?;
    set.pixel_dimensions().ok().map(<[u32; 2]>::from)
}

fn h265(nal: &[u8]) -> Option<[u32; 2]> {
    if (nal.first()? >> 1) & 0x3F != 33 {
        return None;
    }
    // The header has two bytes, of which one is left out here. `decode_nal` panics without a header.
    let behind = nal.get(1..).filter(|behind| !behind.is_empty())?;
    let payload = decode_nal(behind).ok()?;
    read_h265(&mut BitReader::new(&payload[..])).ok()?
}

/// Reads a sequence parameter set of H.265 up to the size (ITU-T H.265, 7.3.2.2.1 and 7.3.3).
fn read_h265(bits: &mut impl BitRead) -> Result<Option<[u32; 2]>, BitReaderError> {
    /// Profile, tier and compatibility of a layer.
    const PROFILE_BITS: u32 = 88;
    const LEVEL_BITS: u32 = 8;
    bits.skip(4, "sps_video_parameter_set_id")?;
    let more_layers: u8 = bits.read::<u8>(3, "sps_max_sub_layers_minus1")?;
    bits.skip(1 + PROFILE_BITS + LEVEL_BITS, "profile_tier_level")?;
    let mut present = Vec::new();
    for _ in 0..more_layers {
        present
            .push((bits.read_bool("sub_layer_profile_present_flag")?, bits.read_bool("sub_layer_level_present_flag")?));
    }
    if more_layers > 0 {
        bits.skip(u32::from(8 - more_layers) * 2, "reserved_zero_2bits")?;
    }
    for (profile, level) in present {
        bits.skip(u32::from(profile) * PROFILE_BITS + u32::from(level) * LEVEL_BITS, "sub_layer")?;
    }
    bits.read_ue("sps_seq_parameter_set_id")?;
    let chroma = bits.read_ue("chroma_format_idc")?;
    if chroma == 3 {
        bits.skip(1, "separate_colour_plane_flag")?;
    }
    let (width, height) = (bits.read_ue("pic_width_in_luma_samples")?, bits.read_ue("pic_height_in_luma_samples")?);
    let (mut across, mut down) = (0_u32, 0_u32);
    if bits.read_bool("conformance_window_flag")? {
        let mut next = |name| bits.read_ue(name);
        across = next("conf_win_left_offset")?.saturating_add(next("conf_win_right_offset")?);
        down = next("conf_win_top_offset")?.saturating_add(next("conf_win_bottom_offset")?);
    }
    // Units of chroma samples (table 6-1).
    let (unit_across, unit_down) = match chroma {
        1 => (2, 2),
        2 => (2, 1),
        _ => (1, 1),
    };
    let size =
        width.checked_sub(across.saturating_mul(unit_across)).zip(height.checked_sub(down.saturating_mul(unit_down)));
    Ok(size.map(<[u32; 2]>::from))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn stream(encoding: &str, sets: &[&str]) -> StreamDescription {
        let sets = sets.iter().map(|set| STANDARD.decode(set).unwrap()).collect();
        StreamDescription { media: "video".into(), encoding: encoding.into(), sets, ..StreamDescription::default() }
    }

    /// From x264 and x265 for 1920x1080, whose height is not a multiple of 16.
    const H264_SPS: &str = "Z2QAKKzZQHgCJ+XARAAAAwAEAAADAMg8YMZY";
    const H265_VPS: &str = "QAEMAf//AWAAAAMAkAAAAwAAAwB4lZgJ";
    const H265_SPS: &str = "QgEBAWAAAAMAkAAAAwAAAwB4oAPAgBDlllZpJMrwFoCAAAADAIAAAAyE";

    #[test]
    fn the_size_is_that_of_the_encoder() {
        let h264 = stream("h264", &[H264_SPS, "aOvjyyLA"]);
        assert_eq!(picture_size(&h264), Some([1920, 1080]));
        let h265 = stream("h265", &[H265_VPS, H265_SPS]);
        assert_eq!(picture_size(&h265), Some([1920, 1080]));
        let jpeg = StreamDescription { size: Some([2560, 1440]), ..stream("jpeg", &[]) };
        assert_eq!(picture_size(&jpeg), Some([2560, 1440]));
    }

    /// An H.265 parameter set (ITU-T H.265, 7.3.2.2.1) up to the conformance window, with 1 to 7 layers; `present` says which
    /// have a profile and a level.
    fn h265_set(present: &[(bool, bool)], chroma: u32, size: [u32; 2], window: Option<[u32; 4]>) -> StreamDescription {
        let mut bits = String::new();
        let number = |bits: &mut String, value: u32, count: usize| *bits += &format!("{value:0count$b}");
        // ue(v), clause 9.2: as many zeros as bits follow the first one.
        let code = |bits: &mut String, value: u32| {
            let binary = format!("{:b}", value + 1);
            *bits += &("0".repeat(binary.len() - 1) + &binary);
        };
        number(&mut bits, 5, 4);
        number(&mut bits, present.len() as u32, 3);
        bits += "1";
        // Profile, tier, compatibility and level: all ones, so that a reader that uses them gets wrong values.
        bits += &"1".repeat(96);
        for (profile, level) in present {
            number(&mut bits, u32::from(*profile) * 2 + u32::from(*level), 2);
        }
        if !present.is_empty() {
            bits += &"00".repeat(8 - present.len());
        }
        for (profile, level) in present {
            bits += &"1".repeat(usize::from(*profile) * 88 + usize::from(*level) * 8);
        }
        code(&mut bits, 3);
        code(&mut bits, chroma);
        if chroma == 3 {
            bits += "1";
        }
        size.iter().for_each(|&side| code(&mut bits, side));
        bits += if window.is_some() { "1" } else { "0" };
        window.iter().flatten().for_each(|&offset| code(&mut bits, offset));
        bits += "1";
        bits += &"0".repeat((8 - bits.len() % 8) % 8);
        let mut nal = vec![33 << 1, 1];
        for byte in (0..bits.len()).step_by(8).map(|at| u8::from_str_radix(&bits[at..at + 8], 2).unwrap()) {
            // Emulation prevention, 7.4.2.
            if byte <= 3 && nal.ends_with(&[0, 0]) {
                nal.push(3);
            }
            nal.push(byte);
        }
        StreamDescription { sets: vec![nal], ..stream("h265", &[]) }
    }

    #[test]
    fn the_size_follows_any_number_of_layers() {
        let all = [(false, false), (true, false), (false, true), (true, true), (true, true), (false, true)];
        for layers in 0..=all.len() {
            let set = h265_set(&all[..layers], 1, [2560, 1440], None);
            assert_eq!(picture_size(&set), Some([2560, 1440]), "{layers} more layers");
        }
    }

    #[test]
    fn the_window_is_measured_in_samples_of_chroma() {
        // SubWidthC and SubHeightC of table 6-1, by chroma_format_idc: monochrome, 4:2:0, 4:2:2, 4:4:4.
        for (chroma, across, down) in [(0, 1, 1), (1, 2, 2), (2, 2, 1), (3, 1, 1)] {
            let set = h265_set(&[], chroma, [1936, 1096], Some([1, 3, 2, 5]));
            assert_eq!(picture_size(&set), Some([1936 - 4 * across, 1096 - 7 * down]), "{chroma}");
        }
        // A window that leaves no pixels.
        for window in [[u32::MAX - 1, 9, 0, 0], [0, 0, 600, 600]] {
            assert_eq!(picture_size(&h265_set(&[], 1, [1920, 1080], Some(window))), None, "{window:?}");
        }
    }

    #[test]
    fn damaged_sets_have_no_size() {
        for (encoding, set) in [("h264", H264_SPS), ("h265", H265_SPS)] {
            let whole = STANDARD.decode(set).unwrap();
            for length in 0..10.min(whole.len()) {
                let sets = vec![whole[..length].to_vec()];
                let cut = StreamDescription { sets, ..stream(encoding, &[]) };
                assert_eq!(picture_size(&cut), None, "{length}");
            }
        }
    }
}
