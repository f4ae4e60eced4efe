use super::*;

/// The value that the next request has.
fn sent(authenticator: &mut Authenticator, method: &str, uri: &str) -> Option<String> {
    Some(String::from_utf8(authenticator.authorization(method, uri)?).unwrap())
}

fn digest(value: &str) -> DigestChallenge {
    match challenges(&text_of(value.as_bytes())).as_slice() {
        [Challenge::Digest(digest)] => digest.clone(),
        other => panic!("{other:?}"),
    }
}

/// The examples of RFC 7616, sections 3.9.1 and 3.9.2, and of RFC 2069 (as corrected by its erratum 749).
#[test]
fn responses_are_those_of_the_standards() {
    let response = |value: &str, user: &str, password: &str, uri: &str, client_nonce: &str| {
        let out = text_of(&digest(value).authorization(user, password, "GET", uri, 1, client_nonce));
        out.split("response=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap().to_owned()
    };
    let of = |algorithm: &str| {
        format!(
            "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, \
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
        )
    };
    let nonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
    let mufasa = |value: &str| response(value, "Mufasa", "Circle of Life", "/dir/index.html", nonce);
    assert_eq!(mufasa(&of("MD5")), "8ca523f5e9506fed4657c9700eebdbec");
    assert_eq!(mufasa(&of("SHA-256")), "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1");
    let old = "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"";
    assert_eq!(response(old, "Mufasa", "CircleOfLife", "/dir/index.html", ""), "1949323746fe6a43ef61f9606e7febea");
}

#[test]
fn a_login_for_digest_alone_answers_no_basic() {
    let (basic, digest) = (&b"Basic realm=\"a\""[..], &b"Digest realm=\"a\", nonce=\"1\""[..]);
    let mut open = Authenticator::new("me".into(), "p:w".into());
    assert!(!open.sends_password() && open.challenge([basic]) && open.sends_password());
    let mut strict = Authenticator::new("me".into(), "p:w".into());
    strict.require_digest();
    assert!(!strict.challenge([basic]) && sent(&mut strict, "DESCRIBE", "rtsp://h/").is_none());
    assert!(strict.challenge([basic, digest]) && !strict.sends_password());
    assert!(sent(&mut strict, "DESCRIBE", "rtsp://h/").unwrap().starts_with("Digest "));
}

#[test]
fn the_strongest_challenge_is_answered() {
    let mut authenticator = Authenticator::new("me".into(), "p:w".into());
    assert_eq!(authenticator.authorization("DESCRIBE", "rtsp://h/"), None);
    let (basic, weak) = (&b"Basic realm=\"a\""[..], &b"Digest realm=\"a\", nonce=\"1\""[..]);
    let strong = b"Digest realm=\"a\", nonce=\"2\", algorithm=SHA-256";
    let unknown = b"Digest realm=\"a\", nonce=\"3\", algorithm=SHA3, Negotiate abc=";
    assert!(!authenticator.challenge([&unknown[..]]));
    assert!(authenticator.challenge([basic]));
    assert_eq!(sent(&mut authenticator, "DESCRIBE", "rtsp://h/").as_deref(), Some("Basic bWU6cDp3"));
    let mut expect = |values: &[&[u8]], nonce: &str| {
        assert!(authenticator.challenge(values.iter().copied()));
        let sent = sent(&mut authenticator, "DESCRIBE", "rtsp://h/").unwrap();
        assert!(sent.contains(&format!("nonce=\"{nonce}\"")), "{sent}");
    };
    expect(&[weak, basic], "1");
    expect(&[basic, unknown, weak], "1");
    expect(&[strong, weak], "2");
    expect(&[weak, strong], "2");
    expect(&[b"Basic realm=\"a, b\", Digest realm=\"c\", nonce=\"5\""], "5");
}

#[test]
fn what_cameras_write_is_read() {
    for (value, realm, nonce) in [
        ("Digest realm=\"YUAN\" nonce=\"7\"", "YUAN", "7"),
        ("digest realm=IPCamera, nonce=7", "IPCamera", "7"),
        ("Digest realm=\"IP Camera\", nonce=\"7\", ", "IP Camera", "7"),
        ("Digest realm = \"a\" , nonce = \"7\"", "a", "7"),
        ("Digest realm=\"\",nonce=\"7\",opaque=\"\",stale=FALSE,algorithm=MD5", "", "7"),
        ("Digest realm=\"摄像机\", nonce=\"7\"", "摄像机", "7"),
        ("Digest realm=\"a\\\"b\", nonce=\"7", "a\\\"b", "7"),
        ("Digest realm=\"a\"; nonce=\"7\"; stale=true", "a", "7"),
        ("Digest\trealm=a;nonce=7;", "a", "7"),
        ("Digest realm=\"a\", nonce=\"7\", algorithm=SHA-512-256, Digest realm=\"b\", nonce=\"8\"", "b", "8"),
        ("Digest realm=\"a\", domain=\"::\", nonce=\"7\", charset=UTF-8, userhash=false, x", "a", "7"),
    ] {
        let found = digest(value);
        assert_eq!((bytes_of(&found.realm), found.nonce.as_str()), (realm.as_bytes().to_vec(), nonce), "{value}");
        assert_eq!(found.algorithm, Algorithm::Md5);
    }
    assert_eq!(digest("Digest nonce=\"7\", qop=\"auth,auth-int\"").protection, Some(Protection::Auth));
    assert_eq!(digest("Digest nonce=\"7\", qop=auth-int").protection, Some(Protection::AuthInt));
    assert!(challenges("Digest realm=\"a\"").is_empty());
    assert!(challenges("").is_empty() && challenges("=, ,=").is_empty());
}

#[test]
fn each_request_of_a_nonce_has_its_number() {
    let mut authenticator = Authenticator::new("a\"b".into(), "p".into());
    assert!(authenticator.challenge([&b"Digest realm=\"r\", nonce=\"1\", qop=\"auth\""[..]]));
    let first = sent(&mut authenticator, "SETUP", "u").unwrap();
    let second = sent(&mut authenticator, "SETUP", "u").unwrap();
    assert!(first.contains("nc=00000001") && second.contains("nc=00000002"), "{first} {second}");
    assert!(first.contains("username=\"a\\\"b\""), "{first}");
    // The same nonce again counts on, another one starts at 1.
    assert!(authenticator.challenge([&b"Digest realm=\"r\", nonce=\"1\", qop=\"auth\""[..]]));
    assert!(sent(&mut authenticator, "SETUP", "u").unwrap().contains("nc=00000003"));
    assert!(authenticator.challenge([&b"Digest realm=\"r\", nonce=\"2\", qop=\"auth\""[..]]));
    assert!(sent(&mut authenticator, "SETUP", "u").unwrap().contains("nc=00000001"));
    assert_eq!(format!("{authenticator:?}"), "Authenticator { .. }");
}

/// MD5 of `printf 'me:\xc9\xe3\x85\xa0:p\xc3\xa4w'` and so on.
#[test]
fn a_realm_in_another_encoding_is_sent_back_and_hashed_as_its_bytes() {
    let mut authenticator = Authenticator::new("me".into(), "p\u{e4}w".into());
    assert!(authenticator.challenge([&b"Digest realm=\"\xc9\xe3\x85\xa0\", nonce=\"7\""[..]]));
    let sent = authenticator.authorization("DESCRIBE", "rtsp://h/").unwrap();
    let expected =
        b"Digest username=\"me\", realm=\"\xc9\xe3\x85\xa0\", nonce=\"7\", uri=\"rtsp://h/\", response=\"1ed1a1002a05fdcf6072b65ff9761277\"";
    assert_eq!(sent, expected);
}
