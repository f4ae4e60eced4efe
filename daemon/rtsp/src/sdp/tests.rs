use super::*;

const SPS: &str = "Z2QAKKzZQHgCJ+XARAAAAwAEAAADAMg8YMZY";

fn parse(lines: &[&str]) -> Description {
    Description::parse(lines.join("\r\n").as_bytes())
}

/// Returns the only stream.
fn stream(description: &Description) -> &StreamDescription {
    let [stream] = description.streams.as_slice() else { panic!("{description:?}") };
    stream
}

#[test]
fn lines_that_playing_does_not_need_may_be_wrong() {
    let video = ["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000", "a=control:track1"];
    for head in [
        &["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=x", "t=0 0"][..],
        &[],
        &["o=- 1001 1 IN", "s=VCP IPC Realtime stream"],
        &["v=0", "o=- 14665860 31787219 1 IN IP4 192.168.35.39", "s=Session streamed by \"TP-LINK RTSP Server\""],
        &["v=0", "o=- 1 -1353744643 IN IP4 0.0.0.0"],
        &["v=0", "o=", "s=", "c=IN", "t=", "b=AS:", "b=AS:2048.5", "k", "=", "a=", "a=:", "z=x=y"],
        &["v=0", "s=x", "s=y", "v=0", "", " ", "\t", "no line"],
        &["v=1", "c=IN IP4 ", "i=\u{6444}\u{50cf}\u{673a}", "t=0 0 0", "r=", "u=://"],
        &[" v=0", "\ts = x", "\u{feff}v=0"],
        &["b=AS:4096", "b=RR:0", "a=range:npt=now-", "a=x-qt-text-nam:a=b:c"],
    ] {
        let description = parse(&[head, &video].concat());
        let stream = stream(&description);
        assert_eq!(stream.codec(), Some(Codec::H264), "{head:?}");
        assert_eq!((stream.payload_type, stream.control.as_deref()), (96, Some("track1")), "{head:?}");
    }
}

#[test]
fn line_ends_and_bytes_of_any_kind_are_read() {
    let text = "v=0\ns=x\nm=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=control:t\n";
    for bytes in [
        text.as_bytes().to_vec(),
        text.replace('\n', "\r\n").into_bytes(),
        text.replace('\n', "\r").into_bytes(),
        text.replace('\n', "\n\n").into_bytes(),
        text.replace('\n', " \t\r\n").into_bytes(),
        text.trim_end().as_bytes().to_vec(),
        [text.as_bytes(), b"\0"].concat(),
        [text.as_bytes(), b"\0\0\xff\xfe garbage"].concat(),
        [b"v=0\ns=\xc9\xe3\xcf\xf1\xbb\xfa\n", text.as_bytes()].concat(),
    ] {
        let description = Description::parse(&bytes);
        let stream = stream(&description);
        assert_eq!((stream.codec(), stream.control.as_deref()), (Some(Codec::H264), Some("t")));
    }
}

#[test]
fn media_lines_of_cameras_are_read() {
    for (lines, encoding, payload_type, rate_hz) in [
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000"][..], "h264", 96, 90_000),
        (&["M=Video  0\tRTP/AVP   96", "A=RTPMAP:96 h264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap: 96 H264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap :96\tH264 / 90000 "], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000/1"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/0"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000.0"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/-5"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96", "a=rtpmap:96H264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 35 96", "a=rtpmap:96 H264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 96;", "a=rtpmap:96 H264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP", "a=rtpmap:96 H264/90000"], "h264", 96, 90_000),
        (&["m=video", "a=rtpmap:96 H264/90000"], "h264", 96, 90_000),
        (
            &["m=video 0 RTP/AVP 999 96", "a=rtpmap:999 X/1", "a=rtpmap:x Y/1", "a=rtpmap:96 H265/90000"],
            "h265",
            96,
            90_000,
        ),
        (&["m=video 0/2 RTP/AVP/TCP 96", "a=rtpmap:96 HEVC/90000"], "hevc", 96, 90_000),
        (&["m=video 49170 udp 96", "a=rtpmap:96 JPEG/90000"], "jpeg", 96, 90_000),
        (&["m=video 0 RTP/AVP 26"], "jpeg", 26, 90_000),
        (&["m=video 0 RTP/AVP 26", "a=rtpmap:26 JPEG/8000"], "jpeg", 26, 8_000),
        (&["m=video 0 RTP/AVP 96", "a=fmtp:96 sprop-parameter-sets=Z2QA,aOs="], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 97", "a=fmtp:97 sprop-vps=QAE=;sprop-sps=QgE="], "h265", 97, 90_000),
        (&["m=video 0 RTP/AVP 98", "a=rtpmap:98 MP4V-ES/90000"], "mp4v-es", 98, 90_000),
        (&["m=video 0 RTP/AVP 99"], "99", 99, 90_000),
        (&["m=video 0 RTP/AVP 97 96", "a=rtpmap:97 rtx/90000", "a=rtpmap:96 H264/90000"], "h264", 96, 90_000),
        (&["m=video 0 RTP/AVP 98 99 26", "a=rtpmap:98 red/90000", "a=rtpmap:99 ulpfec/90000"], "jpeg", 26, 90_000),
        (&["m=video 0 RTP/AVP 97 96", "a=rtpmap:97 rtx/90000", "a=fmtp:96 sprop-sps=QgE="], "h265", 96, 90_000),
        (&["m=video 0 RTP/AVP 97 96", "a=rtpmap:97 VP8/90000", "a=rtpmap:96 rtx/90000"], "vp8", 97, 90_000),
        (&["m=audio 0 RTP/AVP 0"], "pcmu", 0, 8_000),
    ] {
        let description = parse(lines);
        let stream = stream(&description);
        assert_eq!(
            (stream.encoding.as_str(), stream.payload_type, stream.rate_hz),
            (encoding, payload_type, rate_hz),
            "{lines:?}"
        );
    }
}

#[test]
fn the_types_of_other_formats_are_known() {
    let lines = ["m=video 0 RTP/AVP 97 96 98", "a=rtpmap:97 rtx/90000", "a=rtpmap:96 H264/90000"];
    assert_eq!(stream(&parse(&lines)).other_types, [97]);
}

#[test]
fn other_media_do_not_hide_the_video() {
    for other in [
        &["m=application 0 RTP/AVP", "a=control:track3"][..],
        &["m=application/tp-link 0 RTP/AVP smart/0/25000", "a=rtpmap:95 tp-link/25000", "a=control:track3"],
        &["m=application 0 RTP/AVP 107", "a=rtpmap:107 vnd.onvif.metadata/90000"],
        &["m=audio 0 RTP/AVP 0 8", "a=sendonly"],
        &["m="],
        &["m=video 0 RTP/AVP 98", "a=rtpmap:98 MP4V-ES/90000"],
    ] {
        let video = ["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000", "a=control:track1"];
        for lines in [[other, &video].concat(), [&video, other].concat()] {
            let description = parse(&lines);
            assert_eq!(description.streams.len(), 2);
            let known: Vec<_> = description.streams.iter().filter(|stream| stream.codec().is_some()).collect();
            assert_eq!(known.len(), 1, "{lines:?}");
            assert_eq!(known[0].control.as_deref(), Some("track1"), "{lines:?}");
        }
    }
}

#[test]
fn control_urls_are_those_of_session_and_stream() {
    let description =
        parse(&["a=control:*", "a=control:x", "m=video 0 RTP/AVP 26", "a=control: t=1;u?v ", "a=control:again"]);
    assert_eq!(description.control.as_deref(), Some("*"));
    assert_eq!(stream(&description).control.as_deref(), Some("t=1;u?v"));
    let without = parse(&["m=video 0 RTP/AVP 26", "a=control:"]);
    assert_eq!((without.control.as_deref(), stream(&without).control.as_deref()), (None, None));
}

#[test]
fn parameter_sets_are_those_that_can_be_decoded() {
    let sps = LENIENT.decode(SPS).unwrap();
    for (parameters, sets) in [
        (&format!("packetization-mode=1;sprop-parameter-sets={SPS},aOvjyyLA")[..], 2),
        (&format!("96 profile-level-id=64;  Sprop-Parameter-Sets = {SPS} , aOvjyyLA ;x=y"), 2),
        (&format!("sprop-parameter-sets=\"{SPS},aOvjyyLA\""), 2),
        (&format!("sprop-parameter-sets={SPS},"), 1),
        (&format!("sprop-parameter-sets={SPS},****"), 1),
        (&format!("sprop-parameter-sets={SPS}"), 1),
        ("sprop-parameter-sets=,", 0),
        ("sprop-parameter-sets", 0),
        ("packetization-mode=1", 0),
        ("", 0),
    ] {
        let parameters = parameters.trim_start_matches("96 ");
        let description =
            parse(&["m=video 0 RTP/AVP 96", "a=rtpmap:96 H264/90000", &format!("a=fmtp:96 {parameters}")]);
        let found = &stream(&description).sets;
        assert_eq!(found.len(), sets, "{parameters}");
        assert!(found.first().is_none_or(|set| *set == sps), "{parameters}");
    }
    // Without padding, and with a start code in front.
    let description = parse(&[
        "m=video 0 RTP/AVP 96",
        "a=rtpmap:96 H265/90000",
        "a=fmtp: 96 sprop-vps=QAE;sprop-sps=AAAAAUIB;sprop-pps=AAABRAE=",
        "a=fmtp:97 sprop-pps=QAE=",
        "a=fmtp:96",
    ]);
    assert_eq!(stream(&description).sets, [[0x40, 1], [0x42, 1], [0x44, 1]]);
}

#[test]
fn sizes_and_rates_are_read_if_they_make_sense() {
    for (line, size) in [
        ("a=x-dimensions:2560,1440", Some([2560, 1440])),
        ("a=x-dimensions: 2560 , 1440", Some([2560, 1440])),
        ("a=framesize:26 2560-1440", Some([2560, 1440])),
        ("a=framesize:26 2560x1440", Some([2560, 1440])),
        ("a=x-dimensions:0,1440", None),
        ("a=x-dimensions:99999,1440", None),
        ("a=framesize:26", None),
    ] {
        assert_eq!(stream(&parse(&["m=video 0 RTP/AVP 26", line])).size, size, "{line}");
    }
    for (line, fps) in [
        ("a=framerate:25.0", Some(25.0)),
        ("a=x-framerate: 30", Some(30.0)),
        ("a=framerate:0", None),
        ("a=framerate:nan", None),
        ("a=framerate:inf", None),
        ("a=framerate:1e30", None),
        ("a=framerate:", None),
    ] {
        assert_eq!(stream(&parse(&["m=video 0 RTP/AVP 26", line])).announced_fps, fps, "{line}");
    }
}

#[test]
fn encryption_is_seen_in_the_profile() {
    let encrypted = |profile: &str| stream(&parse(&[&format!("m=video 0 {profile} 26")])).is_encrypted;
    assert!(encrypted("RTP/SAVP") && encrypted("rtp/savpf"));
    assert!(!encrypted("RTP/AVP") && !encrypted("RTP/AVPF"));
}

#[test]
fn what_is_read_of_a_description_is_bounded() {
    let description = Description::parse("m=video 0 RTP/AVP 26\n".repeat(100_000).as_bytes());
    assert_eq!(description.streams.len(), MOST_STREAMS);
    let lines =
        ["m=video 0 RTP/AVP 26\n".to_owned(), "a=rtpmap:1 x\n".repeat(100_000), "m=video 0 RTP/AVP 26\n".to_owned()];
    assert_eq!(Description::parse(lines.concat().as_bytes()).streams.len(), 1);
    assert!(Description::parse(&[0xFF; 3000]).streams.is_empty());
}

#[test]
fn a_stream_whose_units_are_interleaved_is_known() {
    let of = |parameters: &str| {
        let map = ["m=video 0 RTP/AVP 96", "a=rtpmap:96 H265/90000"];
        stream(&parse(&[map[0], map[1], &format!("a=fmtp:96 {parameters}")])).is_interleaved
    };
    assert!(of("sprop-max-don-diff=2") && of("profile-id=1; sprop-max-don-diff = 1 ;a=b"));
    assert!(!of("sprop-max-don-diff=0") && !of("profile-id=1"));
}
