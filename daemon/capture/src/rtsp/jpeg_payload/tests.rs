#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use visiond_frames::timestamp::Instant;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameView, PixelFormat, Plane};
use visiond_kernels::jpeg::{JpegDecoder, JpegEncoder};

use super::*;

const NOW: Timestamp = Timestamp { monotonic_ns: 1, realtime_ns: 2, instant: Instant::EndOfFrame };

/// A frame with sharp edges and colours.
fn file(quality: u8, width: u32, height: u32) -> Vec<u8> {
    let pixel = |n: u32| {
        let (x, y) = (n % width, n / width);
        [(x * 7 + y) as u8, if (x / 9 + y / 5) % 2 == 0 { 230 } else { 20 }, (y * 11) as u8]
    };
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    JpegEncoder::new(quality).unwrap().encode_rgb(&pixels, width, height).unwrap()
}

/// The same with half the chroma in width alone (4:2:2).
fn file_422(quality: u8, width: u32, height: u32) -> Vec<u8> {
    let pitch_bytes = 2 * width as usize;
    let bytes: Vec<u8> = (0..pitch_bytes * height as usize).map(|n| (n * 7 % 251) as u8).collect();
    let planes = [Plane { bytes: &bytes, pitch_bytes, device: None }];
    let frame = FrameView::new(PixelFormat::Yuyv, width, height, &planes, ColorDescription::JPEG).unwrap();
    let mut encoder = JpegEncoder::new(quality).unwrap();
    assert!(encoder.read(&frame));
    encoder.encode_read().unwrap()
}

/// The parts of a file that a camera sends: its kind (0 or 1), its tables and its scan.
struct Parts {
    kind: u8,
    tables: Tables,
    scan: Vec<u8>,
    size: [u8; 2],
}

/// Takes a file apart, independently of the code under test: by its markers.
fn parts(file: &[u8]) -> Parts {
    let (mut at, mut tables, mut kind, mut size) = (2, [[0; 64]; 2], 0, [0; 2]);
    loop {
        let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        let body = &file[at + 4..at + 2 + length];
        match file[at + 1] {
            0xDB => body.chunks(65).for_each(|table| tables[usize::from(table[0])].copy_from_slice(&table[1..])),
            0xC0 => {
                kind = match body[7] {
                    0x21 => 0,
                    0x22 => 1,
                    other => panic!("sampling {other:#x}"),
                };
                size = [body[3..5].to_vec(), body[1..3].to_vec()]
                    .map(|side| (u16::from_be_bytes([side[0], side[1]]) / 8) as u8);
            }
            0xDA => return Parts { kind, tables, scan: file[at + 2 + length..].to_vec(), size },
            _ => {}
        }
        at += 2 + length;
    }
}

/// Packs a frame into payloads of `most` bytes of scan. `tables` are those in band, which may be empty; `None` sends none.
fn payloads(parts: &Parts, q: u8, tables: Option<&[u8]>, most: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (n, piece) in parts.scan.chunks(most).enumerate() {
        let offset = ((n * most) as u32).to_be_bytes();
        let mut payload = vec![0, offset[1], offset[2], offset[3], parts.kind, q, parts.size[0], parts.size[1]];
        if let Some(tables) = tables.filter(|_| n == 0) {
            payload.extend([0, 0]);
            payload.extend((tables.len() as u16).to_be_bytes());
            payload.extend(tables);
        }
        payload.extend(piece);
        out.push(payload);
    }
    out
}

#[derive(Default)]
struct Stream {
    assembler: JpegAssembler,
    time: i64,
    pictures: Vec<Vec<u8>>,
}

impl Stream {
    /// Sends the payloads of one frame without those at `missing`.
    fn send(&mut self, payloads: &[Vec<u8>], missing: &[usize]) {
        self.time += 3000;
        let mut lost = 0;
        for (n, payload) in payloads.iter().enumerate() {
            if missing.contains(&n) {
                lost += 1;
                continue;
            }
            let time = (self.time, NOW);
            let marker = n + 1 == payloads.len();
            self.assembler.push(payload, time, marker, std::mem::take(&mut lost), None, |unit| {
                assert_eq!((unit.codec, unit.access), (Codec::Jpeg, Access::Key));
                self.pictures.push(unit.data.to_vec());
            });
        }
    }
}

fn decoded(file: &[u8]) -> Vec<u8> {
    let mut pixels = vec![0; 4 << 20];
    let layout = JpegDecoder::new().decode(file, &mut pixels).unwrap();
    pixels.truncate(layout.size_bytes());
    pixels
}

#[test]
fn a_picture_in_pieces_has_the_pixels_of_the_file() {
    let files = [(1, file(80, 96, 64)), (0, file_422(80, 96, 64))];
    for ((kind, file), most) in files.iter().flat_map(|file| [100_000, 1400, 90].map(|most| (file, most))) {
        let parts = parts(file);
        assert_eq!(parts.kind, *kind);
        let mut stream = Stream::default();
        stream.send(&payloads(&parts, 255, Some(&parts.tables.concat()), most), &[]);
        stream.send(&payloads(&parts, 80, None, most), &[]);
        assert_eq!((stream.pictures.len(), stream.assembler.take_damaged()), (2, 0));
        for picture in &stream.pictures {
            assert!(decoded(picture) == decoded(file), "{kind} {most}");
        }
    }
}

#[test]
fn the_tables_of_every_q_are_those_of_libjpegs_quality() {
    for q in 1..=99 {
        assert_eq!(standard_tables(q), parts(&file(q, 16, 16)).tables, "Q {q}");
    }
}

#[test]
fn the_huffman_tables_are_the_standard_ones() {
    let file = file(50, 16, 16);
    let made = Header { kind: 1, q: 50, width: 2, height: 2, restart_interval: None }
        .file_head((16, 16), &[[1; 64]; 2], &Segments::default())
        .unwrap();
    let of = |file: &[u8]| -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut at = 2;
        while file[at + 1] != 0xDA {
            let length = usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
            if file[at + 1] == 0xC4 {
                found.push(file[at + 4..at + 2 + length].to_vec());
            }
            at += 2 + length;
        }
        found.sort();
        found
    };
    assert_eq!(of(&made).len(), 4);
    assert_eq!(of(&made), of(&file));
}

#[test]
fn tables_of_a_q_are_sent_once_and_kept() {
    let (fine, coarse) = (parts(&file(95, 64, 64)), parts(&file(10, 64, 64)));
    let mut stream = Stream::default();
    // Before the tables have arrived, no image can be built.
    stream.send(&payloads(&fine, 130, Some(&[]), 1400), &[]);
    assert_eq!(stream.assembler.take_damaged(), 1);
    stream.send(&payloads(&fine, 130, Some(&fine.tables.concat()), 1400), &[]);
    stream.send(&payloads(&coarse, 131, Some(&coarse.tables.concat()), 1400), &[]);
    stream.send(&payloads(&fine, 130, Some(&[]), 1400), &[]);
    stream.send(&payloads(&coarse, 131, Some(&[]), 1400), &[]);
    assert_eq!(stream.pictures.len(), 4);
    assert_eq!((&stream.pictures[0], &stream.pictures[1]), (&stream.pictures[2], &stream.pictures[3]));
    assert_eq!(decoded(&stream.pictures[1]), decoded(&file(10, 64, 64)));
    // Those of 255 are never kept.
    stream.send(&payloads(&fine, 255, Some(&fine.tables.concat()), 1400), &[]);
    stream.send(&payloads(&fine, 255, Some(&[]), 1400), &[]);
    assert_eq!((stream.pictures.len(), stream.assembler.take_damaged()), (5, 1));
}

#[test]
fn a_picture_that_lost_a_packet_is_dropped_and_counted_and_the_next_is_whole() {
    let parts = parts(&file(80, 96, 64));
    let whole = payloads(&parts, 80, None, 200);
    let last = whole.len() - 1;
    assert!(last > 4);
    for missing in [vec![0], vec![2], vec![2, 3], vec![last]] {
        let mut stream = Stream::default();
        stream.send(&whole, &[]);
        stream.send(&whole, &missing);
        stream.send(&whole, &[]);
        assert_eq!((stream.pictures.len(), stream.assembler.take_damaged()), (2, 1), "{missing:?}");
        assert_eq!(stream.pictures[0], stream.pictures[1]);
    }
}

#[test]
fn pieces_that_contradict_each_other_are_no_picture() {
    let parts = parts(&file(80, 96, 64));
    let good = payloads(&parts, 80, None, 200);
    // Position in the payload, and the bytes there: a later offset, another kind, Q, width or height; no size; reserved
    // values.
    for (piece, at, value) in [
        (1, 3, 7),
        (1, 4, 0),
        (1, 5, 81),
        (1, 6, 1),
        (1, 7, 1),
        (0, 6, 0),
        (0, 7, 0),
        (0, 4, 2),
        (0, 5, 0),
        (0, 5, 100),
    ] {
        let mut bad = good.clone();
        bad[piece][at] = value;
        let mut stream = Stream::default();
        stream.send(&bad, &[]);
        assert_eq!((stream.pictures.len(), stream.assembler.take_damaged()), (0, 1), "{piece} {at} {value}");
    }
    let mut stream = Stream::default();
    stream.send(&[good[0][..7].to_vec()], &[]);
    stream.send(&[good[0][..8].to_vec()], &[]);
    stream.send(&payloads(&parts, 255, Some(&[1; 63]), 200), &[]);
    assert_eq!((stream.pictures.len(), stream.assembler.take_damaged()), (0, 3));
}

#[test]
fn restart_markers_are_announced_in_the_file() {
    let parts = parts(&file(80, 96, 64));
    let mut payload = vec![0, 0, 0, 0, 64 + parts.kind, 80, parts.size[0], parts.size[1], 0, 6, 0xFF, 0xFF];
    payload.extend(&parts.scan);
    let mut stream = Stream::default();
    stream.send(&[payload], &[]);
    let picture = &stream.pictures[0];
    assert!(picture.windows(6).any(|bytes| bytes == [0xFF, 0xDD, 0, 4, 0, 6]));
    assert_eq!(JpegDecoder::new().header(picture).unwrap().width, 96);
}

/// Sends a frame whose size its packets do not say, with this extension at the first.
fn send_large(assembler: &mut JpegAssembler, parts: &Parts, extension: Option<(u16, &[u8])>) -> Option<Vec<u8>> {
    let mut made = None;
    let mut payloads = payloads(parts, 255, Some(&parts.tables.concat()), 1400);
    for payload in &mut payloads {
        payload[6..8].copy_from_slice(&[0, 0]);
        // Without all segments in the extension, the packets have the restart interval.
        if extension.is_none_or(|(_, data)| data.len() < 100) {
            payload[4] += 64;
            payload.splice(8..8, [0, (2560_u32 / 16) as u8, 0xFF, 0xFF]);
        }
    }
    for (n, payload) in payloads.iter().enumerate() {
        let marker = n + 1 == payloads.len();
        let extension = extension.filter(|_| n == 0);
        assembler.push(payload, (1, NOW), marker, 0, extension, |unit| made = Some(unit.data.to_vec()));
    }
    made
}

#[test]
fn the_size_of_a_large_picture_is_that_of_the_extension_or_of_the_description() {
    let file = file(80, 2560, 48);
    let parts = parts(&file);
    // The segment as it is in the file, filled up to four bytes.
    let at = file.windows(2).position(|marker| marker == [0xFF, 0xC0]).unwrap();
    let length = 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    let mut frame = file[at..at + length].to_vec();
    frame.resize(length.next_multiple_of(4), 0xFF);
    // All segments up to the scan, with the tables.
    let scan = file.windows(2).position(|marker| marker == [0xFF, 0xDA]).unwrap();
    for extension in [&frame[..], &file[..scan]] {
        let made = send_large(&mut JpegAssembler::default(), &parts, Some((0xFFD8, extension))).unwrap();
        assert!(decoded(&made) == decoded(&file));
    }
    let made = send_large(&mut JpegAssembler::new(Some((2560, 48))), &parts, None).unwrap();
    assert!(decoded(&made) == decoded(&file));
}

#[test]
fn a_large_picture_without_a_size_is_damaged_for_that_reason() {
    let parts = parts(&file(80, 2560, 48));
    let mut assembler = JpegAssembler::default();
    for extension in [
        None,
        Some((0xABAC, &[0xFF, 0xC0, 0, 17][..])),
        Some((0xFFD8, &[0xFF, 0xC0, 0, 17, 8, 1])),
        Some((0xFFD8, &[])),
    ] {
        assert_eq!(send_large(&mut assembler, &parts, extension), None);
        assert_eq!((assembler.take_damaged(), assembler.reason()), (1, Some(TOO_LARGE)));
    }
    let mut stream = Stream { assembler, ..Stream::default() };
    stream.send(&payloads(&self::parts(&file(80, 64, 48)), 80, None, 1400), &[]);
    assert_eq!((stream.pictures.len(), stream.assembler.reason()), (1, None));
}

#[test]
fn a_picture_without_end_stays_bounded() {
    let mut stream = JpegAssembler::default();
    let mut offset = 0_u32;
    while offset < 1 << 24 {
        let [_, high, middle, low] = offset.to_be_bytes();
        let mut payload = vec![0, high, middle, low, 1, 80, 8, 8];
        payload.resize(8 + 60_000, 1);
        stream.push(&payload, (1, NOW), false, 0, None, |_| panic!("a picture"));
        assert!(stream.picture.len() <= MAX_UNIT_BYTES);
        offset += 60_000;
    }
    stream.push(&[0; 9], (2, NOW), true, 0, None, |_| panic!("a picture"));
    assert_eq!(stream.take_damaged(), 2);
}

proptest! {
    #[test]
    fn any_packets_are_pictures_or_damage(
        packets in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..300), 0..3_i64, any::<bool>(), 0..2_u16, 0..8_u8), 0..40,
        ),
        extension in proptest::collection::vec(prop_oneof![Just(0xFF), Just(0xC0), Just(0xDB), Just(0), any::<u8>()], 0..40),
    ) {
        let mut assembler = JpegAssembler::default();
        let mut decoder = JpegDecoder::new();
        let mut out = vec![0; 2040 * 2040 * 3];
        let mut length = 0;
        for (mut payload, step, marker, lost, shape) in packets {
            // Headers that are plausible reach farther.
            if shape > 2 && payload.len() > 12 {
                let [_, high, middle, low] = (length as u32).to_be_bytes();
                payload[..5].copy_from_slice(&[0, high, middle, low, if shape == 3 { 65 } else { 1 }]);
                payload[5] = [1, 99, 255, 128, 50][usize::from(shape) - 3];
                payload[6..8].copy_from_slice(&[4, 4]);
                if shape > 4 {
                    payload[8..12].copy_from_slice(&[0, 0, 0, 64]);
                }
                length += payload.len() - 8;
            }
            if marker || step > 0 {
                length = 0;
            }
            let extension = (!extension.is_empty()).then_some((0xFFD8, &extension[..]));
            assembler.push(&payload, (step, NOW), marker, lost, extension, |unit| {
                assert!(unit.data.starts_with(&[0xFF, 0xD8]) && unit.data.ends_with(&END));
                let header = decoder.header(&unit.data);
                assert!(extension.is_some() || header.is_ok_and(|header| header.width <= 2040 && header.height <= 2040));
                let _ = decoder.decode(&unit.data, &mut out);
            });
        }
    }
}
