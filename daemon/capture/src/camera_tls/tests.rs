#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::process::Command;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerConnection;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use super::*;

/// A folder in which openssl makes keys and certificates.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let output =
            Command::new("openssl").args(arguments.split_whitespace()).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes `NAME.pem` and `NAME.key`, self-signed, with more `arguments`.
    pub fn self_signed(&self, name: &str, arguments: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out {name}.pem \
             -days 2 {arguments}"
        ));
    }

    /// Makes `NAME.pem` and `NAME.key`, signed by `ca`, for the host `cam.test`.
    fn signed_by(&self, ca: &str, name: &str, dates: &str) {
        fs::write(self.path("ext"), "subjectAltName=DNS:cam.test\nbasicConstraints=CA:FALSE").unwrap();
        self.openssl(&format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -set_serial 7 -extfile ext -out {name}.pem {dates}"
        ));
    }

    /// Makes `NAME.pem`, self-signed, of version 1, with a new RSA key of `bits` bits.
    fn version_1(&self, name: &str, bits: u32) {
        self.openssl(&format!("req -newkey rsa:{bits} -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        self.openssl(&format!("x509 -req -in {name}.csr -signkey {name}.key -days 2 -out {name}.pem"));
    }

    fn keys(&self, name: &str) -> CertifiedKey {
        let chain = CertificateDer::pem_file_iter(self.path(&format!("{name}.pem"))).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
        CertifiedKey::new(chain.map(Result::unwrap).collect(), any_supported_type(&key).unwrap())
    }

    pub fn fingerprint(&self, name: &str) -> Fingerprint {
        Fingerprint(Sha256::digest(&self.keys(name).cert[0]).into())
    }

    /// A server's configuration with the certificate `name`.
    pub fn server(&self, name: &str) -> Arc<ServerConfig> {
        server_with(self.keys(name), &[&version::TLS12, &version::TLS13])
    }
}

fn server_with(keys: CertifiedKey, versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap().with_no_client_auth();
    Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(keys))))
}

/// Performs a TLS handshake in memory, and sends a word.
fn shake_hands(tls: &CameraTls, server: &Arc<ServerConfig>) -> Result<(), String> {
    let mut client = tls.connection().unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    client.writer().write_all(b"DESCRIBE").unwrap();
    for _ in 0..20 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && server.read_tls(&mut rest).unwrap() > 0 {
            // The alert of a client that refuses does not matter here.
            let _ = server.process_new_packets();
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && client.read_tls(&mut rest).unwrap() > 0 {
            client.process_new_packets().map_err(|error| tls.failure(&error))?;
        }
        let mut word = [0; 8];
        if matches!(server.reader().read(&mut word), Ok(8)) {
            assert_eq!(&word, b"DESCRIBE");
            return Ok(());
        }
    }
    panic!("the handshake does not end");
}

fn ca(files: &Certificates, name: &str) -> TlsKeys {
    TlsKeys { ca: Some(files.path(&format!("{name}.pem"))), ..TlsKeys::default() }
}

fn pin(files: &Certificates, name: &str) -> TlsKeys {
    TlsKeys { fingerprint: Some(files.fingerprint(name)), ..TlsKeys::default() }
}

fn tls(keys: &TlsKeys, host: &str) -> CameraTls {
    CameraTls::new(keys, host).unwrap()
}

fn insecure() -> TlsKeys {
    TlsKeys { insecure: true, ..TlsKeys::default() }
}

#[test]
fn a_camera_is_trusted_by_its_own_certificate_its_fingerprint_or_not_at_all() {
    let files = Certificates::new();
    files.self_signed("own", "");
    files.self_signed("other", "");
    files.self_signed("elliptic-384", "-newkey ec -pkeyopt ec_paramgen_curve:secp384r1");
    files.version_1("old", 2048);
    for name in ["own", "elliptic-384", "old"] {
        for versions in [&[&version::TLS12][..], &[&version::TLS13]] {
            let server = server_with(files.keys(name), versions);
            for (keys, host) in [
                (ca(&files, name), "cam.test"),
                (ca(&files, name), "192.0.2.1"),
                (pin(&files, name), "[2001:db8::1]"),
                (insecure(), "cam.test"),
            ] {
                let tls = tls(&keys, host);
                assert_eq!(shake_hands(&tls, &server), Ok(()), "{name} {keys:?}");
                assert_eq!(tls.seen_fingerprint(), Some(files.fingerprint(name).to_string()));
            }
            // The error names the value to set, and setting it works.
            let refused = shake_hands(&tls(&ca(&files, "other"), "cam.test"), &server).unwrap_err();
            let remedy = format!(
                "is not the one in `ca`, nor signed by it: correct `ca`, or set `fingerprint = \"{}\"` instead, which is what the \
                 camera sent now",
                files.fingerprint(name)
            );
            assert!(refused.contains(&remedy), "{refused}");
            let refused = shake_hands(&tls(&TlsKeys::default(), "cam.test"), &server).unwrap_err();
            let remedy = format!("is self-signed: set `fingerprint = \"{}\"`", files.fingerprint(name));
            assert!(refused.contains(&remedy) && refused.ends_with("or `ca`"), "{refused}");
            let refused = shake_hands(&tls(&pin(&files, "other"), "cam.test"), &server).unwrap_err();
            let remedy = format!(
                "another fingerprint than `fingerprint`: the camera sent {}; set the new one if",
                files.fingerprint(name)
            );
            assert!(refused.contains(&remedy), "{refused}");
        }
    }
}

#[test]
fn a_certificate_that_is_not_checked_is_warned_of_once_for_each_host() {
    assert!(is_first("flapping.test", [1; 32]) && !is_first("flapping.test", [1; 32]));
    assert!(is_first("flapping.test", [2; 32]), "another certificate");
    assert!(is_first("other.test", [1; 32]) && !is_first("flapping.test", [1; 32]));
    // A camera that keeps redirecting to new hosts can make visiond remember only a bounded number.
    (0..2 * MOST_WARNED).for_each(|number| assert!(is_first(&format!("{number}.test"), [1; 32])));
    assert!(is_first("flapping.test", [1; 32]));
}

#[test]
fn a_chain_needs_the_ca_the_name_and_the_dates() {
    let files = Certificates::new();
    files.self_signed("root", "");
    files.self_signed("other", "");
    files.signed_by("root", "leaf", "-days 2");
    let server = files.server("leaf");
    assert_eq!(shake_hands(&tls(&ca(&files, "root"), "cam.test"), &server), Ok(()));
    let said = |keys: &TlsKeys, host: &str| shake_hands(&tls(keys, host), &server).unwrap_err();
    let wrong_name = said(&ca(&files, "root"), "192.0.2.1");
    assert!(
        wrong_name.starts_with("the camera's certificate is not for 192.0.2.1 but for cam.test: set"),
        "{wrong_name}"
    );
    assert!(wrong_name.contains("or use a name of the certificate in `url`"), "{wrong_name}");
    let unknown = said(&ca(&files, "other"), "cam.test");
    assert!(unknown.contains("nor signed by it: correct `ca`, or set `fingerprint = \""), "{unknown}");
    let unknown = said(&TlsKeys::default(), "cam.test");
    assert!(unknown.starts_with("the camera's certificate has an unknown issuer: set `fingerprint = \""), "{unknown}");
    // A pin is for the certificate, whatever its dates.
    files.openssl(
        "x509 -req -in leaf.csr -CA root.pem -CAkey root.key -set_serial 8 -extfile ext -out leaf.pem -days -1",
    );
    let expired = files.server("leaf");
    let said = shake_hands(&tls(&ca(&files, "root"), "cam.test"), &expired).unwrap_err();
    assert!(
        said.starts_with("the camera's certificate has expired") && said.contains("; or renew it, or correct"),
        "{said}"
    );
    assert_eq!(shake_hands(&tls(&pin(&files, "leaf"), "cam.test"), &expired), Ok(()));
}

#[test]
fn a_wrong_certificate_is_said_in_words_and_so_is_a_clock_of_1970() {
    let files = Certificates::new();
    files.self_signed("root", "");
    files.signed_by("root", "leaf", "-days 2");
    files.openssl("x509 -req -in leaf.csr -CA root.pem -CAkey root.key -set_serial 9 -out leaf.pem -days 2");
    let said = shake_hands(&tls(&ca(&files, "root"), "cam.test"), &files.server("leaf")).unwrap_err();
    assert!(said.starts_with("the camera's certificate is of X.509 version 1, which openssl makes without"), "{said}");
    assert!(said.contains("set `fingerprint = \"") && said.contains("; or make one with `openssl req"), "{said}");
    files.signed_by("root", "leaf", "-days 2");
    let tls = tls(&ca(&files, "root"), "cam.test");
    let board = UnixTime::since_unix_epoch(std::time::Duration::from_secs(60));
    let leaf = files.keys("leaf").cert;
    let refused = tls.verifier.verify_server_cert(&leaf[0], &[], &tls.server, &[], board).unwrap_err();
    let said = tls.failure(&refused);
    assert!(
        said.contains("this machine's clock says 1970-01-01, which is before visiond was built: set the clock"),
        "{said}"
    );
    assert!(!said.contains("fingerprint"), "a pin does not correct the clock: {said}");
}

#[test]
fn a_camera_that_shows_a_pinned_certificate_without_its_key_is_refused() {
    let files = Certificates::new();
    for name in ["own", "thief"] {
        files.self_signed(name, "");
    }
    files.version_1("old", 2048);
    files.version_1("old-thief", 2048);
    for (shown, key) in [("own", "thief"), ("old", "old-thief"), ("old", "thief")] {
        let stolen = CertifiedKey { key: files.keys(key).key, ..files.keys(shown) };
        for versions in [&[&version::TLS12][..], &[&version::TLS13]] {
            let server = server_with(stolen.clone(), versions);
            for keys in [pin(&files, shown), ca(&files, shown)] {
                let refused = shake_hands(&tls(&keys, "cam.test"), &server).unwrap_err();
                let wanted = ["does not prove that it has the key", "a key that visiond cannot check"];
                assert!(wanted.iter().any(|words| refused.contains(words)), "{shown} {key}: {refused}");
            }
        }
    }
}

#[test]
fn a_server_without_tls_or_without_a_common_version_is_said() {
    let tls = tls(&insecure(), "cam.test");
    let said = |bytes: &[u8]| {
        let mut client = tls.connection().unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        tls.failure(&client.process_new_packets().unwrap_err())
    };
    assert!(said(b"HTTP/1.1 400 Bad Request\r\n\r\n").starts_with("no TLS at that port: use the URL's scheme"));
    // The alert `handshake_failure`.
    let refused = said(&[21, 3, 3, 0, 2, 2, 40]);
    assert!(refused.starts_with("the camera has no version or cipher of TLS that visiond has"), "{refused}");
    let client_certificate = said(&[21, 3, 3, 0, 2, 2, 116]);
    assert!(client_certificate.starts_with("the camera requires a certificate of its clients"), "{client_certificate}");
    assert!(said(&[21, 3, 3, 0, 2, 2, 80]).starts_with("TLS with the camera failed: "));
}

#[test]
fn a_file_without_a_certificate_is_found_before_the_camera_is_asked() {
    let files = Certificates::new();
    files.self_signed("own", "");
    assert!(ca(&files, "own").check().is_none() && insecure().check().is_none());
    fs::write(files.path("no.pem"), "not a certificate").unwrap();
    fs::write(files.path("bad.pem"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    for (name, words) in [
        ("no", "it has no certificate in PEM format"),
        ("bad", "it has no certificate in PEM format"),
        ("own-key", "it has no certificate in PEM format"),
        ("absent", "No such file"),
    ] {
        fs::copy(files.path("own.key"), files.path("own-key.pem")).unwrap();
        let fault = ca(&files, name).check().unwrap();
        assert!(fault.key == "ca" && fault.error.to_string().contains(words), "{name}: {}", fault.error);
        let error = CameraTls::new(&ca(&files, name), "h").unwrap_err();
        assert_eq!(error.message, fault.error.message);
        assert_eq!(
            (error.may_pass(), fault.error.may_pass()),
            (name == "absent", false),
            "a file that is missing may come later"
        );
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_of_a_certificate_panic(bytes: Vec<u8>, damaged: (usize, u8), length: usize) {
        let _ = PublicKey::of(&CertificateDer::from(bytes));
        // A certificate of version 1, shortened: SEQUENCE { SEQUENCE { serial, algorithm, issuer, dates, subject, key } }.
        let mut real = vec![0x30, 0x1a, 0x30, 0x18, 2, 1, 7, 0x30, 0, 0x30, 1, 9, 0x30, 0, 0x30, 1, 9, 0x30, 8, 0x30, 1, 5, 3, 3, 0, 1, 2, 0];
        let key = CertificateDer::from(real.clone());
        let key = PublicKey::of(&key).unwrap();
        assert_eq!((key.issuer, key.subject, key.algorithm, key.bits), (&[9][..], &[9][..], &[5][..], &[1, 2][..]));
        let at = damaged.0 % real.len();
        real[at] = damaged.1;
        real.truncate(length % 29);
        let _ = PublicKey::of(&CertificateDer::from(real));
    }
}
