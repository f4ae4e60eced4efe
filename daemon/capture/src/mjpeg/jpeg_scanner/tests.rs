#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use visiond_frames::timestamp::Instant;
use visiond_kernels::jpeg::{JpegDecoder, JpegEncoder};

use super::*;

fn at(ns: u64) -> Timestamp {
    Timestamp { monotonic_ns: ns, realtime_ns: ns, instant: Instant::EndOfFrame }
}

/// An image of one colour, which differs with `level`.
pub(crate) fn picture(level: u8, width: u32, height: u32) -> Vec<u8> {
    let pixels: Vec<u8> = (0..width * height * 3).map(|n| level.wrapping_add((n % 7) as u8 * 9)).collect();
    JpegEncoder::new(80).unwrap().encode_rgb(&pixels, width, height).unwrap()
}

/// Inserts a segment after the first marker.
fn with_segment(picture: &[u8], marker: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 2).unwrap().to_be_bytes();
    [&picture[..2], &[0xff, marker], &length, content, &picture[2..]].concat()
}

/// Scans `stream` in steps; returns each image, and what was lost by damage.
fn scan(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, u64) {
    let (mut scanner, mut found, mut corrupt) = (JpegScanner::default(), Vec::new(), 0);
    for piece in stream.chunks(step) {
        scanner.push(piece, at(0));
        found.extend(scanner.take().map(|picture| picture.data));
        while let Some((lost, cause)) = scanner.take_loss() {
            assert!(cause == LossCause::Corrupt || step > 1);
            corrupt += if cause == LossCause::Corrupt { lost } else { 0 };
        }
    }
    scanner.rest();
    found.extend(scanner.take().map(|picture| picture.data));
    (found, corrupt)
}

#[test]
fn a_picture_ends_at_its_own_end_whatever_is_in_it() {
    let plain = picture(10, 40, 24);
    let thumbnail = picture(99, 8, 8);
    let zeros = [0xff, 0xff, 0xff];
    for odd in [
        plain.clone(),
        // A thumbnail, whose end is not the end of the image.
        with_segment(&plain, 0xe1, &[b"Exif\0\0", &thumbnail[..]].concat()),
        with_segment(&plain, 0xe2, b"\xff\xd9\xff\xd8\xff\xda\xff\xd9"),
        with_segment(&plain, 0xfe, b"--frame\r\nContent-Length: 3\r\n\r\n\xff\xd9"),
        with_segment(&plain, 0xe0, &[]),
        // The number of lines after the scan (ITU-T T.81, B.2.5).
        [&plain[..plain.len() - 2], b"\xff\xdc\0\x04\0\x18", &plain[plain.len() - 2..]].concat(),
        // Fill bytes before a marker.
        [&plain[..2], &zeros, &plain[2..]].concat(),
        [&plain[..plain.len() - 2], &zeros, &plain[plain.len() - 2..]].concat(),
        include_bytes!("../../../../../tests/fuzz/targets/before.jpg").to_vec(),
    ] {
        for (before, behind) in
            [(&b"\r\n--b\r\n\r\n"[..], &b""[..]), (b"", b"\0\0\0\0"), (b"\xff\xd8\xfe\xff\xff\xd9", b"\r\n")]
        {
            let stream = [before, &odd, behind, before, &odd].concat();
            for step in [1, 2, 3, 7, 64] {
                assert_eq!(scan(&stream, step).0, [&odd[..], &odd], "{before:?} {step}");
            }
            assert_eq!(scan(&stream, stream.len()), (vec![odd.clone()], 0));
        }
    }
}

#[test]
fn a_picture_is_complete_with_its_last_byte_and_has_the_time_of_its_first() {
    let (first, second) = (picture(1, 32, 32), picture(200, 32, 32));
    let mut scanner = JpegScanner::default();
    scanner.push(b"--x\r\nContent-Length: 99999\r\n\r\n", at(1));
    scanner.push(&first[..10], at(2));
    scanner.push(&first[10..first.len() - 1], at(3));
    assert_eq!(scanner.take(), None);
    scanner.push(&first[first.len() - 1..], at(4));
    assert_eq!(scanner.take(), Some(FoundJpeg { data: first.clone(), began: at(2) }));
    // Three at once: the newest, and two are lost by overload.
    scanner.push(&[&first[..], &second, &first[..], b"\r\n"].concat(), at(5));
    assert_eq!(scanner.take_loss(), Some((2, LossCause::Overload)));
    assert_eq!(scanner.take(), Some(FoundJpeg { data: first, began: at(5) }));
    assert_eq!((scanner.take_loss(), scanner.take(), scanner.found()), (None, None, 4));
}

#[test]
fn pictures_without_an_end_marker_end_by_their_length_or_before_the_next_part() {
    let whole = picture(50, 32, 32);
    let cut = &whole[..whole.len() - 2];
    let part = |length: &str| [format!("\r\n--b\r\nContent-Type: image/jpeg\r\n{length}\r\n").as_bytes(), cut].concat();
    let stated = part(&format!("Content-LENGTH :  {}\r\n", cut.len()));
    let mut scanner = JpegScanner::default();
    for behind in [&b""[..], b"\r\n", b"\r\n--b\r\n", b"\n"] {
        scanner.push(&[&stated[..], behind].concat(), at(1));
        assert_eq!(scanner.take(), None);
        scanner.rest();
        assert_eq!(scanner.take().map(|picture| picture.data).as_deref(), Some(cut), "{behind:?}");
    }
    for lines in [part(""), part("Content-Length: 7\r\n"), part("Content-Length: x\r\n")] {
        let (found, corrupt) = scan(&[&lines[..], &lines, &lines].concat(), 5);
        assert_eq!((found, corrupt), (vec![cut.to_vec(); 2], 0));
    }
    assert!(JpegDecoder::new().header(cut).is_ok());
    // Once a length was wrong, none counts: it would cut an image that pauses there.
    let mut scanner = JpegScanner::default();
    let wrong = format!("Content-Length: {}\r\n\r\n", whole.len() - 9);
    scanner.push(&[wrong.as_bytes(), &whole, wrong.as_bytes(), &whole[..whole.len() - 9]].concat(), at(1));
    assert!(scanner.take().is_some());
    scanner.rest();
    assert_eq!(scanner.take(), None);
}

#[test]
fn damage_is_counted_and_the_next_picture_is_found() {
    let whole = picture(50, 64, 64);
    let truncated = [&whole[..30], b"\r\n--b\r\n\r\n"].concat();
    let tables_alone = [&whole[..2], &whole[whole.len() - 2..]].concat();
    let mut wild = whole.clone();
    // The length of the first segment leads into the next image.
    wild[4..6].copy_from_slice(&u16::to_be_bytes(1700));
    for damaged in [&truncated, &tables_alone, &wild] {
        let stream = [&damaged[..], &whole, b"\r\n--b\r\n\r\n", &whole].concat();
        for step in [1, 100] {
            let (found, corrupt) = scan(&stream, step);
            assert_eq!(found.last(), Some(&whole));
            assert!(corrupt >= 1, "{corrupt}");
        }
    }
}

#[test]
fn a_picture_without_end_is_dropped_at_the_limit_and_the_next_is_found() {
    let whole = picture(50, 32, 32);
    let mut scanner = JpegScanner::default();
    scanner.push(&whole[..whole.len() - 2], at(0));
    for _ in 0..(MOST_JPEG_BYTES >> 16) + 1 {
        scanner.push(&[7; 1 << 16], at(1));
        assert!(scanner.data.len() <= MOST_JPEG_BYTES);
    }
    assert_eq!((scanner.take_loss(), scanner.data.capacity() <= 1 << 17), (Some((1, LossCause::Corrupt)), true));
    scanner.push(&whole, at(2));
    assert_eq!(scanner.take().map(|picture| picture.data), Some(whole));
}

#[test]
fn bytes_that_look_like_many_pictures_are_looked_at_a_few_times_only() {
    // Each beginning leads along the same chain of segments, which breaks at its end.
    let chain = b"\xff\xd8\xff\xe0\x00\x04".repeat(1 << 19);
    let mut scanner = JpegScanner::default();
    scanner.push(&[&chain[..], b"xxzz"].concat(), at(0));
    assert!(scanner.data.len() < 16, "{}", scanner.data.len());
    let whole = picture(50, 32, 32);
    scanner.push(&whole, at(1));
    assert_eq!(scanner.take().map(|picture| picture.data), Some(whole));
}

proptest! {
    #[test]
    fn any_stream_gives_the_same_pictures_however_it_is_cut(
        parts in prop::collection::vec((0_usize..4, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        step in 1_usize..400,
    ) {
        let pictures = [picture(1, 16, 16), picture(90, 24, 8), picture(200, 8, 40)];
        let mut stream = Vec::new();
        for (which, noise) in &parts {
            stream.extend_from_slice(noise);
            stream.extend_from_slice(pictures.get(*which).map_or(&[][..], |picture| picture));
        }
        // One byte at a time, no image is replaced.
        let (all, _) = scan(&stream, 1);
        let (some, _) = scan(&stream, step);
        prop_assert!(some.iter().all(|picture| all.contains(picture)));
        prop_assert_eq!(some.last(), all.last());
    }

    #[test]
    fn no_bytes_panic_or_stay(bytes in prop::collection::vec(prop::sample::select(vec![0xff_u8, 0xd8, 0xd9, 0xda, 0xe0, 0xc4, 0, 2, 3, b'\n', b'-', b':']), 0..3000), step in 1_usize..500) {
        let mut scanner = JpegScanner::default();
        for piece in bytes.chunks(step) {
            scanner.push(piece, at(0));
            scanner.rest();
        }
        prop_assert!(scanner.line.len() <= MOST_LINE_BYTES && scanner.data.len() <= bytes.len());
    }
}
