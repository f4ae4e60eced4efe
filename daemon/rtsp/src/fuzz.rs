//! A hostile server, for `tests/fuzz`.

use std::time::{Duration, Instant};

use url::Url;

use crate::authentication::Authenticator;
use crate::client::{Client, Media, Phase, Transport};
use crate::picture_size::picture_size;
use crate::sdp::Description;

const PASSWORD: &str = "swordfish";

/// The next action, from two bits of a step's first byte.
const DATAGRAM: u8 = 1;
const TIME: u8 = 2;
const LEAVE: u8 = 3;

/// Feeds a client with a server's bytes. The first byte chooses login and transport; each step is an action byte, a length in
/// two bytes, and that many bytes.
pub fn client(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let Ok(url) = Url::parse("rtsp://camera:8554/live?a=b") else { return };
    let login = (first & 1 != 0).then(|| Authenticator::new("me".to_owned(), PASSWORD.to_owned()));
    let mut client = Client::new(url, login);
    let transport = if first & 2 == 0 { Transport::Tcp } else { Transport::Udp { client_port: 5000 } };
    let mut now = Instant::now();
    let (mut sent, mut given) = (0, 0);
    while let Some((&[step, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut give = |media: Media<'_>| {
            if let Media::Packet(packet) = media {
                given += packet.payload.len() + packet.extension.map_or(0, |(_, bytes)| bytes.len());
            }
        };
        let worked = match step & 3 {
            TIME => {
                rest = behind;
                now += Duration::from_millis(u64::from(step >> 2) * length as u64);
                client.tick(now, give)
            }
            LEAVE => {
                rest = behind;
                client.tear_down();
                Ok(())
            }
            kind => {
                let (bytes, behind) = behind.split_at(length.min(behind.len()));
                rest = behind;
                if kind == DATAGRAM {
                    client.datagram(bytes, now, give);
                    Ok(())
                } else {
                    let space = client.space();
                    let length = bytes.len().min(space.len());
                    assert!(length > 0 || bytes.is_empty());
                    space[..length].copy_from_slice(&bytes[..length]);
                    client.received(length, now, &mut give)
                }
            }
        };
        check_output(client.output(), &mut sent);
        if worked.is_err() || client.tick(now, |_| {}).is_err() {
            return;
        }
        assert!(client.due().is_none_or(|due| due > now), "it is due at once again");
        let _ = (client.receiver_report(now), client.counts(), client.server_ports());
        match client.phase() {
            Phase::Described => client.set_up(usize::from(first >> 2) % client.streams().len(), transport),
            Phase::Ready => client.play(),
            Phase::Redirected(url) => {
                assert!(url.username().is_empty() && url.password().is_none());
                return;
            }
            _ => {}
        }
    }
    assert!(given <= data.len() * 2, "{given} bytes of {}", data.len());
}

/// The client sends only whole requests and answers, and never a password.
fn check_output(output: &mut Vec<u8>, sent: &mut usize) {
    // A realm comes back in the server's own encoding.
    let text: String = output.iter().copied().map(char::from).collect();
    assert!(text.is_empty() || text.ends_with("\r\n\r\n"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    for head in text.split("\r\n\r\n").filter(|head| !head.is_empty()) {
        let mut lines = head.split("\r\n");
        let first: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        assert!(matches!(first.as_slice(), [_, _, "RTSP/1.0"] | ["RTSP/1.0", "200" | "501", ..]), "{head}");
        assert!(lines.next().is_some_and(|line| line.starts_with("CSeq: ")), "{head}");
        let is_header = |line: &str| line.contains(": ") && !line.contains(|c: char| c.is_ascii_control());
        assert!(lines.all(is_header), "{head}");
    }
    *sent += output.len();
    output.clear();
}

/// Reads a description, and the sizes of its streams' frames.
pub fn sdp(data: &[u8]) {
    let description = Description::parse(data);
    assert!(description.streams.len() <= 64);
    for stream in &description.streams {
        let _ = (picture_size(stream), stream.codec());
        assert!(stream.rate_hz > 0);
        assert!(stream.sets.iter().map(Vec::len).sum::<usize>() <= data.len());
        assert!(stream.announced_fps.is_none_or(|fps| fps > 0.0 && fps <= 1000.0));
    }
}

/// Answers challenges: each line is the value of a header, an empty one ends those of an answer.
pub fn challenge(data: &[u8]) {
    let mut authenticator = Authenticator::new("me".to_owned(), PASSWORD.to_owned());
    let mut lines = data.split(|&byte| byte == b'\n').take(64).peekable();
    while lines.peek().is_some() {
        let values: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let is_answerable = authenticator.challenge(values);
        let answer = authenticator.authorization("PLAY", "rtsp://camera/live");
        assert!(answer.is_some() || !is_answerable);
        if let Some(answer) = answer {
            let answer: String = answer.into_iter().map(char::from).collect();
            assert!(answer.starts_with("Basic ") || answer.starts_with("Digest "), "{answer}");
            // A realm may contain any words.
            let is_theirs = data.windows(PASSWORD.len()).any(|words| words == PASSWORD.as_bytes());
            assert!(is_theirs || !answer.contains(PASSWORD), "{answer}");
        }
    }
}
