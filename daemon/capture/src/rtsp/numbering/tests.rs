use proptest::prelude::*;

use super::*;

#[test]
fn the_numbers_of_h265_pictures_are_read() {
    /// By x265, 320x240, one sub-layer: the order count has 8 bits.
    const SEQUENCE: &[u8] = &[
        0x42, 0x01, 0x01, 0x01, 0x60, 0x00, 0x00, 0x03, 0x00, 0x90, 0x00, 0x00, 0x03, 0x00, 0x00, 0x03, 0x00, 0x3C,
        0xA0, 0x0A, 0x08, 0x0F, 0x16, 0x5B, 0xA9, 0x24, 0xCA, 0xF0, 0x16, 0x80, 0x80, 0x00, 0x00, 0x03, 0x00, 0x80,
        0x00, 0x00, 0x05, 0x04,
    ];
    const PICTURE: &[u8] = &[0x44, 1, 0xC1, 0x72, 0xB4, 0x62, 0x40];
    let numbering = Numbering::of(Codec::H265, [SEQUENCE, PICTURE].into_iter()).unwrap();
    let of = |nal: &[u8]| numbering.position(nal).unwrap();
    // The first, second and tenth frame of a stream.
    assert_eq!(of(&[0x28, 1, 0xAF, 0x2C, 0x83, 0x25]).order, Some((0, 256)));
    assert_eq!(of(&[2, 1, 0xD0, 9, 0x7E, 0x10]), Position { number: None, order: Some((1, 256)), is_reference: true });
    assert_eq!(of(&[2, 1, 0xD0, 0x51, 0xFF, 0x84]).order, Some((10, 256)));
    assert!(!of(&[0, 1, 0xD0, 0x51, 0xFF, 0x84]).is_reference);
    assert_eq!(Numbering::of(Codec::H265, [SEQUENCE, SEQUENCE, PICTURE].into_iter()), None, "which of them counts");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        is_h265: bool,
        nals in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..4),
    ) {
        let (codec, kinds): (_, &[u8]) = if is_h265 { (Codec::H265, &[0x42, 0x44, 0x02]) } else { (Codec::H264, &[0x67, 0x41, 0x41]) };
        let nals: Vec<_> = nals.iter().zip(kinds).map(|(nal, kind)| [&[*kind], &nal[..]].concat()).collect();
        for nal in &nals {
            recovery_point(codec, nal);
        }
        if let Some(numbering) = Numbering::of(codec, nals.iter().map(Vec::as_slice)) {
            for nal in &nals {
                numbering.position(nal);
            }
        }
    }
}
