use super::*;

const URL: &str = "rtsp://camera:8554/live?a=b";
const SDP: &str = "v=0\r\na=control:*\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:v\r\n";
const BASE: &str = "Content-Base: rtsp://camera:8554/live/";
const TCP: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
const SESSION: &str = "Session: 12345678;timeout=10";

/// The client's output for the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Given {
    Packet(Vec<u8>),
    Report(i64),
}

/// A client, and the server that the test plays.
struct Played {
    client: Client,
    now: Instant,
    given: Vec<Given>,
    /// The number of the last request.
    sequence: String,
}

fn give(given: &mut Vec<Given>, media: &Media<'_>) {
    given.push(match media {
        Media::Packet(packet) => Given::Packet(packet.payload.to_vec()),
        Media::Report { timestamp, .. } => Given::Report(*timestamp),
    });
}

impl Played {
    fn new(login: Option<(&str, &str)>) -> Self {
        let login = login.map(|(user, password)| Authenticator::new(user.to_owned(), password.to_owned()));
        let client = Client::new(Url::parse(URL).unwrap(), login);
        Self { client, now: Instant::now(), given: Vec::new(), sequence: String::new() }
    }

    /// Returns the bytes sent since the last call.
    fn sent(&mut self) -> String {
        let sent = std::mem::take(self.client.output());
        String::from_utf8(sent).unwrap()
    }

    /// Takes the one request that was sent: its method and URL, and its headers.
    fn request(&mut self) -> (String, String) {
        let sent = self.sent();
        let (first, headers) = sent.split_once("\r\n").unwrap_or_else(|| panic!("nothing was sent: {:?}", self.client));
        assert!(headers.ends_with("\r\n\r\n") && headers.matches("\r\n\r\n").count() == 1, "{sent}");
        self.sequence = headers.strip_prefix("CSeq: ").unwrap().split("\r\n").next().unwrap().to_owned();
        (first.strip_suffix(" RTSP/1.0").unwrap().to_owned(), headers.to_owned())
    }

    fn expect(&mut self, request: &str) -> String {
        let (found, headers) = self.request();
        assert_eq!(found, request, "{headers}");
        headers
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        for chunk in bytes.chunks(8000) {
            self.client.space()[..chunk.len()].copy_from_slice(chunk);
            self.client.received(chunk.len(), self.now, |media| give(&mut self.given, &media))?;
        }
        Ok(())
    }

    /// Answers the last request.
    fn answer(&mut self, status: &str, headers: &[&str]) -> Result<(), ClientError> {
        let lines = headers.iter().fold(String::new(), |lines, line| format!("{lines}{line}\r\n"));
        self.feed(format!("RTSP/1.0 {status}\r\nCSeq: {}\r\n{lines}\r\n", self.sequence).as_bytes())
    }

    fn ok(&mut self, headers: &[&str]) {
        self.answer("200 OK", headers).unwrap();
    }

    fn describe(&mut self, headers: &[&str], sdp: &str) -> Result<(), ClientError> {
        let length = format!("Content-Length: {}", sdp.len());
        let lines = [headers, &[&length]].concat().join("\r\n");
        self.feed(format!("RTSP/1.0 200 OK\r\nCSeq: {}\r\n{lines}\r\n\r\n{sdp}", self.sequence).as_bytes())
    }

    fn wait(&mut self, wait: Duration) {
        self.now += wait;
        self.client.tick(self.now, |media| give(&mut self.given, &media)).unwrap();
    }

    /// Up to the description.
    fn described(headers: &[&str], sdp: &str) -> Self {
        let mut played = Self::new(None);
        played.expect(&format!("OPTIONS {URL}"));
        played.ok(&["Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER"]);
        played.expect(&format!("DESCRIBE {URL}"));
        played.describe(headers, sdp).unwrap();
        assert_eq!(*played.client.phase(), Phase::Described);
        played
    }

    /// Up to the answer to SETUP.
    fn set_up(setup: &[&str]) -> Self {
        let mut played = Self::described(&[BASE], SDP);
        played.client.set_up(0, Transport::Tcp);
        played.expect("SETUP rtsp://camera:8554/live/v");
        played.ok(setup);
        played
    }

    /// A session that plays.
    fn playing(setup: &[&str]) -> Self {
        let mut played = Self::set_up(setup);
        assert_eq!(*played.client.phase(), Phase::Ready);
        played.client.play();
        played.expect("PLAY rtsp://camera:8554/live/");
        played.ok(&[]);
        assert_eq!(*played.client.phase(), Phase::Playing);
        played
    }
}

fn rtp(sequence: u8, kind: u8) -> Vec<u8> {
    vec![0x80, kind, 0, sequence, 0, 0, 0, 9, 0, 0, 0, 7, sequence]
}

fn report() -> Vec<u8> {
    [&[0x80, 200, 0, 6, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9][..], &[0; 8]].concat()
}

fn frame(channel: u8, packet: &[u8]) -> Vec<u8> {
    [&[b'$', channel, 0, u8::try_from(packet.len()).unwrap()][..], packet].concat()
}

#[test]
fn a_session_goes_from_its_description_to_its_end() {
    let mut played = Played::described(&[BASE], SDP);
    assert_eq!(played.client.streams().len(), 1);
    played.client.set_up(0, Transport::Tcp);
    let headers = played.expect("SETUP rtsp://camera:8554/live/v");
    assert!(headers.contains("\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n"), "{headers}");
    played.ok(&[TCP, SESSION]);
    played.client.play();
    let headers = played.expect("PLAY rtsp://camera:8554/live/");
    assert!(
        headers.contains("\r\nSession: 12345678\r\n") && headers.contains("\r\nRange: npt=0.000-\r\n"),
        "{headers}"
    );
    // Packets may come before the answer.
    played.feed(&frame(0, &rtp(1, 96))).unwrap();
    played.ok(&["RTP-Info: url=x;seq=999;rtptime=0"]);
    played.feed(&[frame(1, &report()), frame(0, &rtp(2, 96))].concat()).unwrap();
    assert_eq!(played.given, [Given::Packet(vec![1]), Given::Report(9), Given::Packet(vec![2])]);
    played.client.tear_down();
    let headers = played.expect("TEARDOWN rtsp://camera:8554/live/");
    assert!(headers.contains("\r\nSession: 12345678\r\n"), "{headers}");
    played.ok(&[]);
    assert_eq!((played.client.phase(), played.client.due()), (&Phase::Over, None));
    assert_eq!(
        played.client.counts(),
        Counts { rtp: RtpCounts { received: 2, ..RtpCounts::default() }, ..Counts::default() }
    );
}

#[test]
fn an_answer_is_known_by_its_number_only_where_another_may_come() {
    for sequence in ["CSeq: 77\r\n", "CSeq: 0\r\n", "", "cseq:\r\n", "CSeq: 4294967299\r\n"] {
        let mut played = Played::new(None);
        played.request();
        for method in ["DESCRIBE", "SETUP", "PLAY"] {
            let lines = format!("{sequence}Session: 1\r\nContent-Length: {}\r\n\r\n{SDP}", SDP.len());
            let lines = if method == "SETUP" { lines } else { format!("{sequence}\r\n") };
            played
                .feed(format!("RTSP/1.0 100 Continue\r\n{sequence}\r\nRTSP/1.0 200 OK\r\n{lines}").as_bytes())
                .unwrap();
            match method {
                "SETUP" => played.client.set_up(0, Transport::Tcp),
                "PLAY" => played.client.play(),
                _ => {}
            }
            assert!(played.request().0.starts_with(method), "{sequence}");
        }
    }
}

#[test]
fn the_stream_is_asked_for_where_other_clients_do() {
    let sdp = |session: &str, stream: &str| SDP.replace("a=control:*", session).replace("a=control:v", stream);
    for (headers, session, stream, setup, play) in [
        (&[BASE][..], "a=control:*", "a=control:v", "rtsp://camera:8554/live/v", "rtsp://camera:8554/live/"),
        (
            &["Content-Base: rtsp://camera:8554/live"],
            "",
            "a=control:v",
            "rtsp://camera:8554/live/v",
            "rtsp://camera:8554/live",
        ),
        (
            &["Content-Location: rtsp://camera:8554/x/"],
            "",
            "a=control:v",
            "rtsp://camera:8554/x/v",
            "rtsp://camera:8554/x/",
        ),
        (&[], "", "a=control:v", "rtsp://camera:8554/live?a=b/v", URL),
        (&["Content-Base:"], "", "a=control:v", "rtsp://camera:8554/live?a=b/v", URL),
        (&["Content-Base: camera:8086/"], "", "a=control:v", "rtsp://camera:8554/live?a=b/v", URL),
        (&["Content-Base: rtsp:a b"], "", "a=control:rtsp:c d", "rtsp://camera:8554/live?a=b/rtsp:c%20d", URL),
        (&["Content-Base: http://camera/"], "", "a=control:v", "rtsp://camera:8554/live?a=b/v", URL),
        (&["Content-Base: rtsp://me:pw@10.0.0.7/x/ "], "", "a=control:v", "rtsp://10.0.0.7/x/v", "rtsp://10.0.0.7/x/"),
        (&[BASE], "a=control:rtsp://camera/all", "a=control:v", "rtsp://camera/all/v", "rtsp://camera/all"),
        (&[BASE], "a=control:rtsp://me:pw@camera/all/", "a=control:v", "rtsp://camera/all/v", "rtsp://camera/all/"),
        (&[BASE], "a=control:all", "a=control:v", "rtsp://camera:8554/live/v", "rtsp://camera:8554/live/"),
        (&[BASE], "a=control:*", "", "rtsp://camera:8554/live/", "rtsp://camera:8554/live/"),
        (&[BASE], "a=control:*", "a=control:*", "rtsp://camera:8554/live/", "rtsp://camera:8554/live/"),
        (
            &[BASE],
            "a=control:*",
            "a=control:RTSP://me:pw@camera/v?a=1",
            "rtsp://camera/v?a=1",
            "rtsp://camera:8554/live/",
        ),
        (
            &[BASE],
            "a=control:*",
            "a=control:?ctype=video",
            "rtsp://camera:8554/live/?ctype=video",
            "rtsp://camera:8554/live/",
        ),
        (&[BASE], "a=control:*", "a=control:/v", "rtsp://camera:8554/live/v", "rtsp://camera:8554/live/"),
        // Only URLs get into the request line.
        (
            &[BASE],
            "a=control:*",
            "a=control:v w RTSP/1.0\tx",
            "rtsp://camera:8554/live/v%20w%20RTSP/1.0%09x",
            "rtsp://camera:8554/live/",
        ),
        (
            &[BASE],
            "a=control:*",
            "a=control:\"\u{85}<",
            "rtsp://camera:8554/live/%22%C2%85%3C",
            "rtsp://camera:8554/live/",
        ),
        (&[BASE], "a=control:*", "a=control:rtsp://c/v w", "rtsp://c/v%20w", "rtsp://camera:8554/live/"),
    ] {
        let mut played = Played::described(headers, &sdp(session, stream));
        played.client.set_up(0, Transport::Tcp);
        played.expect(&format!("SETUP {setup}"));
        played.ok(&[TCP, SESSION]);
        played.client.play();
        played.expect(&format!("PLAY {play}"));
    }
}

#[test]
fn descriptions_come_whatever_the_headers_say() {
    for (headers, needs_pause) in [
        (&["Content-Type: application/sdp", "Content-Length: 77"][..], false),
        (&["Content-Type: text/plain", "Content-Length: 10"], false),
        (&["Content-Length: 9999"], true),
        (&["Content-Type: application/sdp"], true),
        (&[], true),
    ] {
        let mut played = Played::new(None);
        played.request();
        played.ok(&[]);
        played.request();
        let head =
            format!("RTSP/1.0 200 OK\r\n{}\r\n\r\n", headers.join("\r\n")).replace("OK\r\n\r\n\r\n", "OK\r\n\r\n");
        let bytes = [head, SDP.to_owned()].concat();
        let (first, second) = if needs_pause { bytes.split_at(60) } else { (bytes.as_str(), "") };
        played.feed(first.as_bytes()).unwrap();
        played.feed(second.as_bytes()).unwrap();
        assert_eq!(played.client.due().is_some(), needs_pause, "{headers:?}");
        if needs_pause {
            assert_eq!(*played.client.phase(), Phase::Describing);
            played.wait(BODY_PAUSE);
        }
        assert_eq!((played.client.phase(), played.client.due()), (&Phase::Described, None), "{headers:?}");
        assert_eq!(played.client.streams()[0].control.as_deref(), Some("v"), "{headers:?}");
    }
    let mut played = Played::new(None);
    played.request();
    played.ok(&[]);
    played.request();
    assert_eq!(played.describe(&[], "v=0\r\n"), Err(ClientError::NoStream));
    // The client waits for an answer that never arrives, without being busy.
    let mut played = Played::new(None);
    played.request();
    played.ok(&[]);
    played.request();
    played.feed(b"RTSP/1.0 200 OK\r\nContent-Length: 999\r\n\r\nv=0\r\n").unwrap();
    played.wait(BODY_PAUSE);
    assert_eq!((played.client.phase(), played.client.due()), (&Phase::Describing, None));
}

#[test]
fn servers_that_refuse_are_asked_in_another_way() {
    // OPTIONS is optional, and some servers serve only known players.
    for refusal in ["404 Not Found", "501 Not Implemented", "551 Option not supported", "405 No"] {
        let mut played = Played::new(None);
        assert!(played.expect(&format!("OPTIONS {URL}")).contains("\r\nUser-Agent: visiond\r\n"));
        played.answer(refusal, &[]).unwrap();
        played.expect(&format!("DESCRIBE {URL}"));
        let error = played.answer(refusal, &[]).unwrap_err();
        assert_eq!(error.status(), refusal[..3].parse().ok());
    }
    for refusal in ["400 Bad Request", "403 Forbidden"] {
        let mut played = Played::new(None);
        played.request();
        played.answer(refusal, &[]).unwrap();
        assert!(played.expect(&format!("OPTIONS {URL}")).contains("\r\nUser-Agent: LibVLC/"));
        played.answer(refusal, &[]).unwrap();
        assert!(played.expect(&format!("DESCRIBE {URL}")).contains("\r\nUser-Agent: LibVLC/"));
        assert!(played.answer(refusal, &[]).is_err());
    }
    let (session, stream) = ("rtsp://camera:8554/live/", "rtsp://camera:8554/live/v");
    for (refusals, asked) in [
        (&["457 Invalid Range"][..], &[(session, true), (session, false)][..]),
        (&["400 Bad Request", "400 Bad Request"], &[(session, true), (session, false), (stream, false)]),
        (&["455 Method Not Valid in This State"], &[(session, true), (stream, true)]),
        (
            &["459 Aggregate Operation Not Allowed", "457 Invalid Range"],
            &[(session, true), (stream, true), (stream, false)],
        ),
        (&["551 Option not supported", "404 Not Found"], &[(session, true), (session, false), (stream, false)]),
    ] {
        let mut played = Played::set_up(&[TCP, SESSION]);
        played.client.play();
        for (at, (url, has_range)) in asked.iter().enumerate() {
            let headers = played.expect(&format!("PLAY {url}"));
            assert_eq!(headers.contains("Range"), *has_range, "{refusals:?}");
            if let Some(refusal) = refusals.get(at) {
                played.answer(refusal, &[]).unwrap();
            }
        }
        played.ok(&[]);
        assert_eq!(*played.client.phase(), Phase::Playing);
    }
    // The stream's URL may be relative as in a page.
    let mut played =
        Played::described(&["Content-Base: rtsp://camera:8554/live/main"], &SDP.replace(":v", ":/other/v"));
    played.client.set_up(0, Transport::Tcp);
    played.expect("SETUP rtsp://camera:8554/live/main/other/v");
    played.answer("404 Not Found", &[]).unwrap();
    played.expect("SETUP rtsp://camera:8554/other/v");
    assert_eq!(played.answer("404 Not Found", &[]).unwrap_err().status(), Some(404));
    let mut played = Played::described(&[BASE], SDP);
    played.client.set_up(0, Transport::Tcp);
    played.request();
    let error = played.answer("461 Unsupported\ttransport", &[]).unwrap_err();
    assert_eq!(error.to_string(), "the camera refuses SETUP: 461 Unsupported\ttransport");
}

#[test]
fn redirects_name_a_url_without_a_user() {
    for (status, location, expected) in [
        ("301 Moved", "Location: rtsp://other/x", Some("rtsp://other/x")),
        ("302 Found", "location:  rtsp://me:pw@other:99/x?y ", Some("rtsp://other:99/x?y")),
        ("303 See Other", "Location: rtsps://camera/x", Some("rtsps://camera/x")),
        ("305 Use Proxy", "Location: /x", Some("rtsp://camera:8554/x")),
        ("307 Temporary Redirect", "Location: x", Some("rtsp://camera:8554/x")),
        ("302 Found", "Location: //other/x", Some("rtsp://other/x")),
        ("302 Found", "Location: http://other/x", None),
        ("302 Found", "Location: rtsp:a b", None),
        ("302 Found", "Location:", Some(URL)),
        ("302 Found", "X: y", None),
        ("304 Not Modified", "X: y", None),
    ] {
        for step in 0..4 {
            let mut played = match step {
                0 | 1 => Played::new(None),
                2 => Played::described(&[BASE], SDP),
                _ => Played::set_up(&[TCP, SESSION]),
            };
            match step {
                0 => {}
                1 => {
                    played.request();
                    played.ok(&[]);
                }
                2 => played.client.set_up(0, Transport::Tcp),
                _ => played.client.play(),
            }
            played.request();
            let answered = played.answer(status, &[location]);
            match expected {
                Some(url) => {
                    assert_eq!(*played.client.phase(), Phase::Redirected(Url::parse(url).unwrap()), "{location}")
                }
                None => assert_eq!(answered.unwrap_err().status(), status[..3].parse().ok(), "{location}"),
            }
        }
    }
}

const DIGEST: &str = "WWW-Authenticate: Digest realm=\"r\", nonce=\"1\"";

fn nonce(headers: &str) -> Option<&str> {
    headers.split("nonce=\"").nth(1)?.split('"').next()
}

#[test]
fn every_request_is_tried_again_with_a_fresh_nonce() {
    let mut played = Played::new(Some(("me", "secret")));
    assert_eq!(nonce(&played.request().1), None);
    played.answer("401 Unauthorized", &[DIGEST]).unwrap();
    assert_eq!(nonce(&played.request().1), Some("1"));
    played.ok(&["Public: GET_PARAMETER"]);
    for (n, method) in (2..).zip(["DESCRIBE", "SETUP", "PLAY", "GET_PARAMETER", "TEARDOWN"]) {
        let (request, headers) = played.request();
        assert!(request.starts_with(method), "{request}");
        assert_eq!(nonce(&headers), Some((n - 1).to_string().as_str()));
        played.answer("401 Unauthorized", &[&DIGEST.replace('1', &n.to_string())]).unwrap();
        let (request, headers) = played.request();
        assert!(request.starts_with(method) && headers.contains(&format!("nonce=\"{n}\"")), "{request} {headers}");
        match method {
            "DESCRIBE" => {
                played.describe(&[BASE], SDP).unwrap();
                played.client.set_up(0, Transport::Tcp);
            }
            "SETUP" => {
                played.ok(&[TCP, SESSION]);
                played.client.play();
            }
            "PLAY" => {
                played.ok(&[]);
                played.wait(Duration::from_secs(5));
            }
            "GET_PARAMETER" => {
                played.ok(&[]);
                played.client.tear_down();
            }
            _ => {
                played.ok(&[]);
                assert_eq!(*played.client.phase(), Phase::Over);
            }
        }
    }
    assert_eq!(played.client.counts().keep_alives_failed, 0);
}

#[test]
fn a_login_is_wrong_if_a_fresh_nonce_was_refused() {
    let refused = |stale: &str, times: usize| {
        let mut played = Played::new(Some(("me", "secret")));
        for n in 0..times {
            played.request();
            let challenge = format!("WWW-Authenticate: Digest realm=\"r\", nonce=\"{n}\"{stale}");
            played.answer("401 Unauthorized", &[&challenge])?;
        }
        Ok(())
    };
    assert_eq!(refused("", 1), Ok(()));
    assert_eq!(refused("", 2), Err(ClientError::LoginRefused));
    assert_eq!(refused(", stale=false", 2), Err(ClientError::LoginRefused));
    for stale in [", stale=true", ", stale=\"TRUE\"", ",stale = True"] {
        assert_eq!(refused(stale, 3), Ok(()), "{stale}");
        assert_eq!(refused(stale, 20), Err(ClientError::LoginRefused), "{stale}");
    }
    let mut played = Played::new(None);
    played.request();
    assert_eq!(played.answer("401 Unauthorized", &[DIGEST]), Err(ClientError::LoginRequired));
    for challenges in
        [&["WWW-Authenticate: NTLM"][..], &["WWW-Authenticate: Digest realm=\"x\", nonce=\"1\", algorithm=SHA3"], &[]]
    {
        let mut played = Played::new(Some(("me", "secret")));
        played.request();
        let error = played.answer("401 Unauthorized", challenges).unwrap_err();
        assert!(matches!(error, ClientError::UnknownAuthentication(_)), "{error}");
    }
}

/// A camera whose nonces serve one request each, and that knows no range: the login is right all the time.
#[test]
fn another_way_round_does_not_use_up_the_fresh_nonce() {
    let mut played = Played::set_up(&[TCP, SESSION]);
    played.client.authenticator = Some(Authenticator::new("me".into(), "secret".into()));
    played.client.play();
    for refusal in ["401 No", "457 No", "401 No", "455 No", "401 No"] {
        played.request();
        played.answer(refusal, &[DIGEST]).unwrap();
    }
    played.expect("PLAY rtsp://camera:8554/live/v");
    played.ok(&[]);
    assert_eq!(*played.client.phase(), Phase::Playing);
}

#[test]
fn no_login_is_shown() {
    let mut played = Played::new(Some(("me", "secret")));
    played.request();
    played.answer("401 No", &["WWW-Authenticate: Basic realm=\"r\""]).unwrap();
    let shown = format!("{:?}", played.client);
    assert_eq!(shown, "Client { phase: Describing, .. }");
    assert!(played.sent().contains("Basic bWU6c2VjcmV0"));
}

#[test]
fn the_session_is_kept_in_the_way_that_the_server_answers() {
    let mut played = Played::playing(&[TCP, SESSION]);
    assert_eq!(played.client.due(), Some(played.now + Duration::from_secs(5)));
    // The server said that it has GET_PARAMETER.
    for _ in 0..3 {
        played.wait(Duration::from_secs(5));
        let headers = played.expect("GET_PARAMETER rtsp://camera:8554/live/");
        assert!(headers.contains("\r\nSession: 12345678\r\n"), "{headers}");
        played.ok(&[]);
        played.wait(Duration::from_millis(4999));
        assert_eq!(played.sent(), "");
        played.now -= Duration::from_millis(4999);
    }
    // It does not have it after all: from now on, the client uses another request.
    played.wait(Duration::from_secs(5));
    played.request();
    played.answer("501 Not Implemented", &[]).unwrap();
    played.wait(Duration::ZERO);
    for _ in 0..3 {
        played.expect("OPTIONS rtsp://camera:8554/live/");
        played.ok(&["Public: OPTIONS, GET_PARAMETER"]);
        assert_eq!(played.sent(), "");
        played.wait(Duration::from_secs(5));
    }
    assert_eq!(played.client.counts().keep_alives_failed, 0, "the other way keeps it");
}

#[test]
fn a_server_that_does_not_answer_is_asked_otherwise_while_the_session_lasts() {
    let mut played = Played::playing(&[TCP, SESSION]);
    let begin = played.now;
    let mut asked = Vec::new();
    while played.now < begin + Duration::from_secs(20) {
        played.now = played.client.due().unwrap();
        played.wait(Duration::ZERO);
        let (request, _) = played.request();
        asked.push((request.split(' ').next().unwrap().to_owned(), (played.now - begin).as_millis()));
    }
    let expected =
        [("GET_PARAMETER", 5000), ("OPTIONS", 7500), ("OPTIONS", 12_500), ("OPTIONS", 17_500), ("OPTIONS", 22_500)];
    assert_eq!(asked, expected.map(|(method, ms)| (method.to_owned(), ms)));
    assert_eq!(played.client.counts().keep_alives_failed, 4);
    // Answers that come late are none to TEARDOWN.
    played.client.tear_down();
    played.expect("TEARDOWN rtsp://camera:8554/live/");
    for number in [5, 6, 7, 8, 9] {
        played.feed(format!("RTSP/1.0 200 OK\r\nCSeq: {number}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(*played.client.phase(), Phase::Leaving, "{number}");
    }
    played.ok(&[]);
    assert_eq!(*played.client.phase(), Phase::Over);
}

#[test]
fn an_answer_is_taken_although_an_earlier_request_never_got_one() {
    let mut played = Played::playing(&[TCP, SESSION]);
    played.wait(Duration::from_secs(5));
    played.expect("GET_PARAMETER rtsp://camera:8554/live/");
    played.wait(Duration::from_millis(2500));
    played.expect("OPTIONS rtsp://camera:8554/live/");
    played.ok(&[]);
    played.wait(Duration::from_secs(5));
    played.expect("OPTIONS rtsp://camera:8554/live/");
    assert_eq!(played.client.counts().keep_alives_failed, 1);
}

#[test]
fn a_camera_plays_with_its_answer_or_its_first_packet() {
    let starting = || {
        let mut played = Played::set_up(&[TCP, SESSION]);
        played.client.play();
        played.expect("PLAY rtsp://camera:8554/live/");
        played
    };
    let mut played = starting();
    played.feed(&frame(1, &report())).unwrap();
    assert_eq!(*played.client.phase(), Phase::Starting, "a report is no video");
    played.feed(&frame(0, &rtp(1, 96))).unwrap();
    assert_eq!(*played.client.phase(), Phase::Playing);
    let mut played = starting();
    played.ok(&[]);
    assert_eq!(*played.client.phase(), Phase::Playing);
}

#[test]
fn a_later_answer_changes_the_time_of_the_same_session_alone() {
    for (play, ms) in
        [("Session: 12345678;timeout=4", 2_000), ("Session: 12345678", 5_000), ("Session: 87654321;timeout=4", 5_000)]
    {
        let mut played = Played::set_up(&[TCP, SESSION]);
        played.client.play();
        played.request();
        played.ok(&[play]);
        // The time up to the first request was set with the session.
        played.wait(Duration::from_secs(5));
        played.expect("GET_PARAMETER rtsp://camera:8554/live/");
        played.ok(&[]);
        assert_eq!(played.client.due(), Some(played.now + Duration::from_millis(ms)), "{play}");
    }
}

#[test]
fn the_time_of_a_session_is_what_the_server_says() {
    for (setup, ms) in [
        (&[TCP, "Session: 1;timeout=60"][..], 30_000),
        (&[TCP, "Session: 1"], 30_000),
        (&[TCP, "Session: 1;timeout=0"], 30_000),
        (&[TCP, "Session: 1;timeout=3600"], 30_000),
        (&[TCP, "session:1 ; Timeout = 4 "], 2_000),
        (&[TCP, "Session: 1;timeout=1"], 500),
        (&[TCP], 30_000),
    ] {
        let played = Played::set_up(setup);
        assert_eq!(played.client.due(), Some(played.now + Duration::from_millis(ms)), "{setup:?}");
    }
}

#[test]
fn what_answers_keep_alive_otherwise_does_not_end_the_stream() {
    for refusal in
        ["454 Session Not Found", "400 Bad Request", "404 Not Found", "500 Internal Server Error", "302 Moved"]
    {
        let mut played = Played::playing(&[TCP, SESSION]);
        played.wait(Duration::from_secs(5));
        played.expect("GET_PARAMETER rtsp://camera:8554/live/");
        played.answer(refusal, &["Location: rtsp://other/"]).unwrap();
        played.wait(Duration::ZERO);
        played.expect("OPTIONS rtsp://camera:8554/live/");
        played.answer(refusal, &[]).unwrap();
        assert_eq!(*played.client.phase(), Phase::Playing);
        played.feed(&frame(0, &rtp(1, 96))).unwrap();
        assert_eq!(played.given.len(), 1);
    }
    // Without a login, a camera that asks for one goes on as long as it likes.
    let mut played = Played::playing(&[TCP, SESSION]);
    played.wait(Duration::from_secs(5));
    played.request();
    played.answer("401 No", &[DIGEST]).unwrap();
    assert_eq!((played.client.phase(), played.client.counts().keep_alives_failed), (&Phase::Playing, 1));
}

#[test]
fn the_first_number_of_a_session_counts_unless_the_server_refuses_it() {
    let session = |played: &mut Played| {
        let (_, headers) = played.request();
        headers.split("\r\nSession: ").nth(1).and_then(|rest| rest.split("\r\n").next()).map(str::to_owned)
    };
    // Blanks belong to no number; a line of its own may come in any answer.
    for (setup, play, id) in [
        (&[TCP, "Session: abc ;timeout=10"][..], &[][..], Some("abc")),
        (&[TCP, "Session: abc;timeout=10 "], &["Session: abc"], Some("abc")),
        (&[TCP, "Session:\tabc;"], &["Session: "], Some("abc")),
        (&[TCP, "Session: a b;timeout=10"], &[], Some("a b")),
        (&[TCP], &["Session: abc;timeout=10"], Some("abc")),
        (&[TCP, "Session: abc"], &["Session: other"], Some("abc")),
        (&[TCP], &[], None),
    ] {
        let mut played = Played::set_up(setup);
        played.client.play();
        played.request();
        played.ok(play);
        played.wait(Duration::from_secs(30));
        assert_eq!(session(&mut played).as_deref(), id, "{setup:?} {play:?}");
        if play == ["Session: other"] {
            played.answer("454 Session Not Found", &[]).unwrap();
            assert_eq!(session(&mut played).as_deref(), Some("other"));
            played.ok(&[]);
            played.client.tear_down();
            assert_eq!(session(&mut played).as_deref(), Some("other"));
        }
    }
    let mut played = Played::described(&[BASE, "Session: 5"], SDP);
    played.client.set_up(0, Transport::Tcp);
    assert_eq!(session(&mut played).as_deref(), Some("5"));
}

#[test]
fn requests_of_the_server_are_answered_and_change_nothing() {
    let mut played = Played::playing(&[TCP, SESSION]);
    for (request, answer) in [
        ("OPTIONS * RTSP/1.0\r\nCSeq: 7\r\n\r\n", "RTSP/1.0 200 OK\r\nCSeq: 7\r\nSession: 12345678\r\n\r\n"),
        (
            "GET_PARAMETER rtsp://x RTSP/1.0\r\nCSeq: 8\r\n\r\n",
            "RTSP/1.0 200 OK\r\nCSeq: 8\r\nSession: 12345678\r\n\r\n",
        ),
        (
            "SET_PARAMETER x RTSP/1.0\nCSeq:9\nContent-Length: 2\n\nab",
            "RTSP/1.0 200 OK\r\nCSeq: 9\r\nSession: 12345678\r\n\r\n",
        ),
        (
            "ANNOUNCE x RTSP/1.0\r\nCSeq: a\r\n\r\n",
            "RTSP/1.0 501 Not Implemented\r\nCSeq: 0\r\nSession: 12345678\r\n\r\n",
        ),
        (
            "REDIRECT x RTSP/1.0\r\nCSeq: 1\r\nLocation: rtsp://y/\r\n\r\n",
            "RTSP/1.0 501 Not Implemented\r\nCSeq: 1\r\nSession: 12345678\r\n\r\n",
        ),
    ] {
        let bytes = [&frame(0, &rtp(1, 96))[..], request.as_bytes(), &frame(0, &rtp(2, 96))].concat();
        played.given.clear();
        played.client.media.as_mut().unwrap().order = Order::new(Delivery::Reliable, 96, 90_000);
        played.feed(&bytes).unwrap();
        assert_eq!(played.given, [Given::Packet(vec![1]), Given::Packet(vec![2])], "{request}");
        assert_eq!(played.sent(), answer);
        assert_eq!(*played.client.phase(), Phase::Playing);
    }
    // A server that sends requests and does not read gets no more answers.
    for _ in 0..10_000 {
        played.feed(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n").unwrap();
    }
    assert!(played.client.output().len() < MOST_OUTPUT_BYTES + 1000);
}

#[test]
fn packets_and_reports_are_known_by_what_they_are() {
    let packet = |n: u8| Given::Packet(vec![n]);
    let stream = |transport: &str, frames: &[(u8, Vec<u8>)]| {
        let mut played = Played::playing(&[transport, SESSION]);
        let bytes: Vec<_> = frames.iter().flat_map(|(channel, bytes)| frame(*channel, bytes)).collect();
        played.feed(&bytes).unwrap();
        played.given
    };
    for (transport, frames, given) in [
        (TCP, vec![(0, rtp(1, 96)), (1, report())], vec![packet(1), Given::Report(9)]),
        // RTCP in the channel of RTP, and the other way round.
        (TCP, vec![(0, report()), (0, rtp(1, 96))], vec![Given::Report(9), packet(1)]),
        (TCP, vec![(1, rtp(1, 96)), (0, report()), (1, rtp(2, 96))], vec![packet(1), Given::Report(9), packet(2)]),
        (
            "Transport: RTP/AVP/TCP;interleaved=4-5",
            vec![(4, rtp(1, 96)), (5, report())],
            vec![packet(1), Given::Report(9)],
        ),
        (
            "Transport: RTP/AVP/TCP;interleaved=1-0",
            vec![(1, rtp(1, 96)), (0, report())],
            vec![packet(1), Given::Report(9)],
        ),
        (
            "Transport: RTP/AVP/TCP;interleaved=0",
            vec![(0, rtp(1, 96)), (1, report())],
            vec![packet(1), Given::Report(9)],
        ),
        ("Transport: RTP/AVP/TCP;unicast", vec![(0, rtp(1, 96)), (1, report())], vec![packet(1), Given::Report(9)]),
        ("X: y", vec![(0, rtp(1, 96)), (1, report())], vec![packet(1), Given::Report(9)]),
        // In other channels than the server says, as long as nothing came there.
        (TCP, vec![(4, rtp(1, 96)), (5, report())], vec![packet(1), Given::Report(9)]),
        (TCP, vec![(2, vec![b'x'; 40]), (0, rtp(1, 96)), (2, rtp(2, 96)), (9, report())], vec![packet(1)]),
        // Empty, damaged and foreign ones.
        (TCP, vec![(0, vec![]), (1, vec![]), (0, vec![0x80]), (1, b"\x80\xc9\0\x07abcd".to_vec())], vec![]),
        (TCP, vec![(1, vec![0x81, 203, 0, 1, 0, 0, 0, 7]), (0, rtp(1, 96))], vec![packet(1)]),
        (TCP, vec![(0, rtp(1, 72)), (0, rtp(2, 76 | 0x80)), (0, rtp(3, 96))], vec![packet(3)]),
    ] {
        assert_eq!(stream(transport, &frames), given, "{transport} {frames:?}");
    }
}

#[test]
fn datagrams_are_read_at_both_ports() {
    let mut played = Played::described(&[BASE], SDP);
    played.client.set_up(0, Transport::Udp { client_port: 5000 });
    let headers = played.expect("SETUP rtsp://camera:8554/live/v");
    assert!(headers.contains("\r\nTransport: RTP/AVP;unicast;client_port=5000-5001\r\n"), "{headers}");
    played.ok(&["Transport: RTP/AVP/UDP;unicast;source=camera.lan;client_port=5000-5001;server_port=6970-6971;ssrc=;mode=\"PLAY\"", SESSION]);
    assert_eq!(played.client.server_ports(), Some((6970, 6971)));
    let mut given = Vec::new();
    for datagram in [rtp(1, 96), report(), vec![], vec![0; 3], rtp(3, 96), rtp(2, 96)] {
        played.client.datagram(&datagram, played.now, |media| give(&mut given, &media));
    }
    assert_eq!(given, [Given::Packet(vec![1]), Given::Report(9), Given::Packet(vec![2]), Given::Packet(vec![3])]);
    assert!(played.client.receiver_report(played.now).is_some());
    assert_eq!(played.client.receiver_report(played.now), None);
    let mut played = Played::described(&[BASE], SDP);
    played.client.set_up(0, Transport::Udp { client_port: 5000 });
    played.request();
    let multicast = "Transport: RTP/AVP;multicast;destination=239.0.0.1;port=5000-5001";
    assert_eq!(played.answer("200 OK", &[multicast, SESSION]), Err(ClientError::Multicast));
}

#[test]
fn a_camera_that_answers_with_another_transport_is_said_at_once() {
    let answered = |transport, header: &str| {
        let mut played = Played::described(&[BASE], SDP);
        played.client.set_up(0, transport);
        played.expect("SETUP rtsp://camera:8554/live/v");
        played.answer("200 OK", &[header, SESSION]).err()
    };
    let udp = Transport::Udp { client_port: 5000 };
    let datagrams = "Transport: RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971";
    let (failure, other) = (answered(Transport::Tcp, datagrams).unwrap(), answered(udp, TCP).unwrap());
    assert!(failure.to_string().ends_with("set `transport = \"udp\"`"), "{failure}");
    assert!(other.to_string().ends_with("set `transport = \"tcp\"`"), "{other}");
    for (transport, header) in [
        (Transport::Tcp, TCP),
        (udp, datagrams),
        // An answer with few details counts as what was requested.
        (Transport::Tcp, "Transport: RTP/AVP;unicast"),
        (Transport::Tcp, "Transport: RTP/AVP/TCP;unicast;client_port=5000-5001"),
        (udp, "Transport: RTP/AVP;unicast"),
        (udp, "X: y"),
    ] {
        assert_eq!(answered(transport, header), None, "{header}");
    }
}

#[test]
fn packets_of_audio_in_the_videos_channel_are_ignored() {
    let sdp = "v=0\r\nm=audio 0 RTP/AVP 0 97\r\na=rtpmap:97 MPEG4-GENERIC/16000\r\na=control:a\r\nm=video 0 RTP/AVP 98 96\r\n\
               a=rtpmap:98 rtx/90000\r\na=rtpmap:96 H264/90000\r\na=control:v\r\n";
    let mut played = Played::described(&[BASE], sdp);
    played.client.set_up(1, Transport::Tcp);
    played.expect("SETUP rtsp://camera:8554/live/v");
    played.ok(&[TCP, SESSION]);
    played.client.play();
    played.expect("PLAY rtsp://camera:8554/live/");
    let audio = |sequence, kind| [&rtp(sequence, kind)[..11], &[99, sequence]].concat();
    played.feed(&[frame(0, &audio(70, 97)), frame(0, &audio(80, 98)), frame(0, &rtp(1, 96))].concat()).unwrap();
    played.feed(&[frame(0, &audio(71, 97)), frame(0, &rtp(2, 96))].concat()).unwrap();
    assert_eq!(played.given, [Given::Packet(vec![1]), Given::Packet(vec![2])]);
    let RtpCounts { received, foreign, restarts, .. } = played.client.counts().rtp;
    assert_eq!((received, foreign, restarts), (2, 3, 0));
}
