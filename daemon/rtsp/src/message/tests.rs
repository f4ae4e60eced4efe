use proptest::prelude::*;

use super::*;

/// An item that holds its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Packet(u8, Vec<u8>),
    Answer(u16, Vec<u8>),
    Request(String),
}

fn found(reader: &Reader, item: Item) -> Found {
    match item {
        Item::Packet(channel, range) => Found::Packet(channel, reader.bytes(range).to_vec()),
        Item::Answer(answer) => Found::Answer(answer.status, answer.body),
        Item::Request(request) => Found::Request(request.method),
    }
}

/// Passes `bytes` to a reader, and returns its items.
fn feed(reader: &mut Reader, mut bytes: &[u8]) -> Result<Vec<Found>, MessageError> {
    let mut items = Vec::new();
    loop {
        let space = reader.space();
        let length = space.len().min(bytes.len());
        space[..length].copy_from_slice(&bytes[..length]);
        reader.received(length);
        bytes = &bytes[length..];
        while let Some(item) = reader.next()? {
            items.push(found(reader, item));
        }
        if bytes.is_empty() {
            return Ok(items);
        }
    }
}

fn read(bytes: &[u8]) -> Result<Vec<Found>, MessageError> {
    feed(&mut Reader::default(), bytes)
}

fn packet(channel: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[b'$', channel][..], &length, payload].concat()
}

const OK: &[u8] = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n";

fn ok() -> Found {
    Found::Answer(200, Vec::new())
}

#[test]
fn heads_of_cameras_are_read() {
    for head in [
        &b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n"[..],
        b"RTSP/1.0 200\r\nCSeq: 1\r\n\r\n",
        b"RTSP/1.0 200OK\r\nCSeq: 1\r\n\r\n",
        b"RTSP/1.0  200  OK\r\nCSeq: 1\r\n\r\n",
        b"RTSP/1.0\t200\tOK\r\nCSeq:\t1\r\n\r\n",
        b"RTSP/2.0 200 OK\r\nCSeq: 1\r\n\r\n",
        b"rtsp/1.0 200 ok\r\ncseq:1\r\n\r\n",
        b"RTSP/1.0 200 OK\nCSeq: 1\n\n",
        b"RTSP/1.0 200 OK\r\r\nCSeq: 1\r\r\n\r\r\n",
        b"RTSP/1.0 200 OK\r\nCSEQ :  1 \r\n\r\n",
        b"RTSP/1.0 200 OK\r\nno header\r\nCSeq: 1\r\n: \r\n\r\n",
        b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nServer: a\r\n b\r\n\tc\r\n\r\n",
        b"\r\nRTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n",
        b"\0\0\r\nrtsp/1.0 200 OK\r\nCSeq: 1\r\n\r\n",
        b"RTSP/1.0 200 \xc8\xb7\xb6\xa8\r\nCSeq: 1\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: \r\n\r\n",
        b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut reader = Reader::default();
        let text = String::from_utf8_lossy(head);
        let mut space = reader.space();
        space.write_all(head).unwrap();
        reader.received(head.len());
        let Ok(Some(Item::Answer(answer))) = reader.next() else { panic!("{text}") };
        assert_eq!((answer.status, answer.headers.sequence()), (200, Some(1)), "{text}");
        assert_eq!(feed(&mut reader, OK), Ok(vec![ok()]), "{text}");
    }
}

#[test]
fn headers_are_found_by_name_and_keep_no_blanks() {
    let (first, headers) =
        head(b"RTSP/1.0 401 No\r\nWWW-Authenticate: Basic\r\nwww-authenticate:\tDigest a\r\n  b \r\nX:\xff\r\n\r\n");
    assert_eq!(answer_line(&first), Some((401, "No".to_owned())));
    let all: Vec<_> = headers.all("www-authenticate").collect();
    assert_eq!(all, [&b"Basic"[..], b"Digest a b"]);
    assert_eq!(headers.text("x").as_deref(), Some("\u{fffd}"));
    assert_eq!(headers.sequence(), None);
}

#[test]
fn packets_answers_and_requests_come_in_turn() {
    let long = vec![7; 65535];
    let bytes = [
        &packet(0, b"abc")[..],
        OK,
        &packet(0, b""),
        &packet(200, &[0x80; 12]),
        b"ANNOUNCE rtsp://h/x RTSP/1.0\r\nCSeq: 4\r\nContent-Length: 3\r\n\r\nv=0",
        &packet(1, &long),
        b"SET_PARAMETER * RTSP/1.0\n\n",
        b"RTSP/1.0 100 Continue\r\n\r\n",
        b"RTSP/1.0 404 Not Found\r\nContent-Length: 2 \r\n\r\nno",
    ];
    let expected = vec![
        Found::Packet(0, b"abc".to_vec()),
        ok(),
        Found::Packet(0, Vec::new()),
        Found::Packet(200, vec![0x80; 12]),
        Found::Request("ANNOUNCE".into()),
        Found::Packet(1, long),
        Found::Request("SET_PARAMETER".into()),
        Found::Answer(100, Vec::new()),
        Found::Answer(404, b"no".to_vec()),
    ];
    assert_eq!(read(&bytes.concat()), Ok(expected));
}

#[test]
fn what_is_between_items_is_skipped() {
    let rtp = |n| [&[0x80, 96, 0, n][..], &[0; 20]].concat();
    for junk in [
        &b"\r\n"[..],
        b"\0\0\0\0",
        b"A",
        b"RT",
        b"RTSP",
        b"GET",
        b"$",
        b"$$",
        b"$\xff\xff\xff\xff",
        b"a=control:track1\r\nRTP/AVP 96\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"RTSP/1.0 OK\r\n",
        &[b'x'; 60_000],
        &[b'A'; 60_000],
    ] {
        let bytes = [&packet(0, &rtp(1)), OK, junk, &packet(0, &rtp(2)), junk, OK].concat();
        let mut reader = Reader::default();
        let expected = vec![Found::Packet(0, rtp(1)), ok(), Found::Packet(0, rtp(2)), ok()];
        let text = String::from_utf8_lossy(&junk[..junk.len().min(20)]);
        assert_eq!(feed(&mut reader, &bytes).as_ref(), Ok(&expected), "{text}");
        assert_eq!(reader.skips(), 2, "{text}");
    }
}

#[test]
fn a_packet_ends_a_head_that_lacks_its_empty_line() {
    let bytes = [&b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n"[..], &packet(1, b"a\n\nb"), OK].concat();
    let expected = vec![ok(), Found::Packet(1, b"a\n\nb".to_vec()), ok()];
    assert_eq!(read(&bytes), Ok(expected));
}

const SDP: &[u8] = b"v=0\r\ns=x\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:t\r\n";

#[test]
fn descriptions_are_whole_whatever_their_length_is_said_to_be() {
    let answer =
        |headers: &str, body: &[u8]| [format!("RTSP/1.0 200 OK\r\nCSeq: 2\r\n{headers}\r\n").as_bytes(), body].concat();
    let right = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n", SDP.len());
    let unterminated = &SDP[..SDP.len() - 2];
    for (headers, body, needs_pause) in [
        (right.as_str(), SDP, false),
        (&format!("content-length:{}\r\nContent-type: TEXT/PLAIN\r\n", SDP.len()), SDP, false),
        (&format!("Content-Length:   {}  \r\n", SDP.len()), SDP, false),
        ("Content-Length: 0\r\n", SDP, false),
        ("Content-Length: 5\r\n", SDP, false),
        ("Content-Length: 50\r\n", SDP, false),
        ("Content-Length: 999\r\nContent-Type: application/sdp\r\n", SDP, true),
        ("Content-Type: application/sdp\r\n", SDP, true),
        ("Content-Type: application/sdp\r\n", unterminated, true),
        ("Content-Type: Application/SDP; charset=utf-8\r\n", SDP, true),
        ("", SDP, true),
        ("Content-Length: \r\n", SDP, true),
    ] {
        let bytes = answer(headers, body);
        for size in [1, 7, bytes.len()] {
            // In small pieces, bytes after the stated length are not known to be part of the description.
            if size < bytes.len() && !needs_pause && !headers.contains(&SDP.len().to_string()) {
                continue;
            }
            let mut reader = Reader::default();
            reader.expect_description(true);
            let mut items = Vec::new();
            for chunk in bytes.chunks(size) {
                items.extend(feed(&mut reader, chunk).unwrap());
            }
            assert_eq!(reader.awaits_pause(), needs_pause, "{headers}");
            items.extend(reader.after_pause().unwrap().map(|item| found(&reader, item)));
            assert_eq!(items, [Found::Answer(200, body.to_vec())], "{headers}");
            assert!(!reader.awaits_pause());
            assert_eq!(feed(&mut reader, OK), Ok(vec![ok()]), "{headers}");
        }
    }
}

#[test]
fn a_description_is_not_cut_where_it_pauses_before_its_media() {
    let mut reader = Reader::default();
    reader.expect_description(true);
    let head = b"RTSP/1.0 200 OK\r\nContent-Length: 69\r\n\r\n";
    assert_eq!(feed(&mut reader, &[head, &SDP[..20]].concat()), Ok(vec![]));
    assert_eq!(reader.after_pause(), Ok(None));
    assert_eq!(feed(&mut reader, &SDP[20..]), Ok(vec![Found::Answer(200, SDP.to_vec())]));
    // Nor is any other answer, unless nothing of its body comes.
    reader.expect_description(true);
    assert_eq!(feed(&mut reader, b"RTSP/1.0 401 No\r\nContent-Length: 9\r\n\r\nm=\n"), Ok(vec![]));
    assert_eq!(reader.after_pause(), Ok(None));
    assert_eq!(feed(&mut reader, b"123456"), Ok(vec![Found::Answer(401, b"m=\n123456".to_vec())]));
    assert_eq!(feed(&mut reader, b"RTSP/1.0 401 No\r\nContent-Length: 9\r\n\r\n"), Ok(vec![]));
    assert!(reader.awaits_pause());
    let item = reader.after_pause().unwrap().unwrap();
    assert_eq!(found(&reader, item), Found::Answer(401, Vec::new()));
    reader.expect_description(false);
    // A packet is no body.
    let packet = [b'$', 0, 0, 9, 0x80, 96, 0, 1, 0, 0, 0, 1, 7];
    let items = feed(&mut reader, &[&b"RTSP/1.0 200 OK\r\nContent-Length: 50\r\n\r\n"[..], &packet].concat());
    assert_eq!(items, Ok(vec![Found::Answer(200, Vec::new()), Found::Packet(0, packet[4..].to_vec())]));
    assert_eq!(feed(&mut reader, OK), Ok(vec![ok()]));
}

#[test]
fn what_does_not_end_is_given_up() {
    let line = b"X-A: b\r\n".repeat(10_000);
    let body =
        |headers: &str| [format!("RTSP/1.0 200 OK\r\n{headers}\r\n").as_bytes(), &b"a=b\r\n".repeat(200_000)].concat();
    for (bytes, error) in [
        ([b"RTSP/1.0 200 OK\r\n", &line[..]].concat(), MessageError::Endless),
        ([b"RTSP/1.0 200 OK\r\nServer: ", &[b'a'; 70_000][..]].concat(), MessageError::Endless),
        (body("Content-Length: 999999999\r\n"), MessageError::Endless),
        (body("Content-Length: 99999999999999999999999\r\n"), MessageError::OtherProtocol),
        ([b'x'; 70_000].to_vec(), MessageError::OtherProtocol),
        ([b'A'; 70_000].to_vec(), MessageError::OtherProtocol),
        (b"A *".repeat(30_000), MessageError::OtherProtocol),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), MessageError::OtherProtocol),
        (b"SSH-2.0-OpenSSH\r\n".repeat(5_000), MessageError::OtherProtocol),
        ([OK, &[b'x'; 70_000][..]].concat(), MessageError::Endless),
    ] {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        match error {
            MessageError::OtherProtocol if text.starts_with("RTSP") => assert!(read(&bytes).is_err(), "{text}"),
            _ => assert_eq!(read(&bytes), Err(error), "{text}"),
        }
    }
    let mut reader = Reader::default();
    reader.expect_description(true);
    assert_eq!(feed(&mut reader, &body("Content-Type: application/sdp\r\n")), Err(MessageError::Endless));
}

/// The work for bytes that come one by one is that of each byte, not of all before it.
#[test]
fn a_head_is_looked_through_once() {
    let mut reader = Reader::default();
    let bytes = [b"RTSP/1.0 200 OK\r\n", &b"X-A: b\r\n".repeat(100)[..]].concat();
    for (n, byte) in bytes.iter().enumerate() {
        assert_eq!(feed(&mut reader, &[*byte]), Ok(vec![]));
        let line_start = bytes[..=n].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        assert_eq!(reader.searched, line_start);
    }
    assert_eq!(feed(&mut reader, b"Content-Length: 3\r\n\r\n"), Ok(vec![]));
    assert_eq!(reader.wanted, bytes.len() + 24, "the head is not read again before the body is there");
    assert_eq!(feed(&mut reader, b"abc"), Ok(vec![Found::Answer(200, b"abc".to_vec())]));
}

#[test]
fn nothing_that_is_repeated_begins_a_line() {
    let mut out = Vec::new();
    write(&mut out, "PLAY rtsp://h/\r\nX: y RTSP/1.0", "3", &[("Session", b"1\r\nX: y\n\rz\0")]);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "PLAY rtsp://h/  X: y RTSP/1.0\r\nCSeq: 3\r\nSession: 1  X: y  z \r\n\r\n"
    );
}

/// Bytes of a connection, with damage.
fn connections() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(OK.to_vec()),
        Just([&b"RTSP/1.0 200 OK\r\nContent-Length: 71\r\n\r\n"[..], SDP].concat()),
        Just(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_vec()),
        Just(b"RTSP/1.0 200 OK\nCSeq: 1\n".to_vec()),
        (0..4_u8, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(channel, bytes)| packet(channel, &bytes)),
        prop::collection::vec(any::<u8>(), 0..20),
        "[$A-Zr \r\n]{0,8}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Junk of more than one piece may be taken for the start of a packet only if it is all there, so items are compared without the
    /// descriptions' extra bytes.
    #[test]
    fn pieces_do_not_matter(bytes in connections(), sizes in prop::collection::vec(1..30_usize, 1..50)) {
        let whole = read(&bytes);
        let mut reader = Reader::default();
        let (mut items, mut rest, mut sizes) = (Vec::new(), &bytes[..], sizes.iter().cycle());
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            items.extend(feed(&mut reader, chunk).unwrap());
            rest = behind;
        }
        prop_assert_eq!(Ok(items), whole);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000), expects in any::<bool>()) {
        let mut reader = Reader::default();
        reader.expect_description(expects);
        let _ = feed(&mut reader, &bytes);
        let _ = reader.after_pause();
        let _ = feed(&mut reader, OK);
    }
}
