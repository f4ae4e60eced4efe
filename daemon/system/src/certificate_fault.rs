//! Explains why TLS rejects a server's certificate, and how to make a valid one.
//!
//! Brokers and cameras share these texts. The openssl commands in most tutorials make certificates of X.509 version 1, or one
//! that is CA and server at once, and the clock of a board without a battery starts years in the past.

use std::time::SystemTime;

use rustls::CertificateError;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;

/// The most names of a certificate in a message, and the most characters of each. A server controls both.
const MOST_NAMES: usize = 4;
const MOST_NAME_CHARS: usize = 80;

/// The build time, in seconds since 1970. Packages set the variable; 2026-01-01 is before any build.
const BUILT: &str = match option_env!("SOURCE_DATE_EPOCH") {
    Some(seconds) => seconds,
    None => "",
};
const BEFORE_ANY_BUILD: u64 = 1_767_225_600;

/// Why a certificate is rejected: "the broker's certificate" followed by `fault` forms a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFault {
    /// The fault, without its subject.
    pub fault: String,
    /// An imperative.
    pub remedy: String,
    /// Whether this machine's clock is the likely reason, so that another certificate would change nothing.
    pub is_clock: bool,
}

impl CertificateFault {
    /// Explains an error of the certificate check. `host` is the URL's. `None` for an unknown issuer and for a handshake
    /// signature, whose texts depend on the caller.
    pub fn of(error: &CertificateError, host: &str) -> Option<Self> {
        use CertificateError as Wrong;
        let of = |fault: String, remedy: String| Some(Self { fault, remedy, is_clock: false });
        let make = || format!("make one with {}", command(host));
        match error {
            Wrong::NotValidYetContext { time, not_before } if time.as_secs() < built() => {
                let (starts, now) = (date(*not_before), date(*time));
                Some(Self {
                    fault: format!(
                        "is valid from {starts} on, and this machine's clock says {now}, which is before visiond was built"
                    ),
                    remedy: "set the clock, for instance by NTP (`timedatectl` shows its state)".to_owned(),
                    is_clock: true,
                })
            }
            Wrong::NotValidYetContext { time, not_before } => of(
                format!(
                    "is not valid yet: it begins on {}, and this machine's clock says {}",
                    date(*not_before),
                    date(*time)
                ),
                "correct the clock that is wrong, the one here or where the certificate was made".to_owned(),
            ),
            Wrong::NotValidYet => of("is not valid yet".to_owned(), "correct this machine's clock".to_owned()),
            Wrong::ExpiredContext { time, not_after } => of(
                format!("has expired on {}, and this machine's clock says {}", date(*not_after), date(*time)),
                format!("renew it, or correct this machine's clock; {}", make()),
            ),
            Wrong::Expired => {
                of("has expired".to_owned(), format!("renew it, or correct this machine's clock; {}", make()))
            }
            Wrong::NotValidForNameContext { presented, .. } => match names(presented) {
                None => of(format!("has no subjectAltName, so it is not for {host}"), make()),
                Some(names) => of(
                    format!("is not for {host} but for {names}"),
                    format!("use a name of the certificate in `url`, or {}", make()),
                ),
            },
            Wrong::NotValidForName => {
                of(format!("is not for {host}"), format!("use a name of the certificate in `url`, or {}", make()))
            }
            Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
                of("is not for servers: its extendedKeyUsage has no serverAuth".to_owned(), make())
            }
            Wrong::UnsupportedSignatureAlgorithmContext { .. }
            | Wrong::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => of(
                "has a key or a signature that TLS no longer allows, such as SHA-1 or RSA of less than 2048 bits"
                    .to_owned(),
                make(),
            ),
            Wrong::BadEncoding => of("is damaged".to_owned(), make()),
            Wrong::Revoked => of("was revoked by its CA".to_owned(), make()),
            Wrong::UnhandledCriticalExtension => {
                of("has a critical extension that visiond does not know".to_owned(), make())
            }
            Wrong::Other(other) => match other.0.downcast_ref::<webpki::Error>()? {
                webpki::Error::UnsupportedCertVersion => {
                    of("is of X.509 version 1, which openssl makes without -extfile".to_owned(), make())
                }
                webpki::Error::CaUsedAsEndEntity => of(
                    "is that of a CA (CA:TRUE), which no server may show".to_owned(),
                    format!("keep it as the CA for `ca`, and {}", make()),
                ),
                webpki::Error::EndEntityUsedAsCa => of(
                    "is signed by one that is not a CA's (CA:FALSE)".to_owned(),
                    format!("sign it by a CA: {}", make()),
                ),
                error => of(format!("is not one that the rules for TLS allow ({error})"), make()),
            },
            _ => None,
        }
    }
}

/// The wall clock for rustls, whose own clock panics before 1970.
#[derive(Debug)]
pub struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(UnixTime::since_unix_epoch(since))
    }
}

/// The bash commands that make a server's certificate with the CA in ca.pem, which may be self-signed.
fn command(host: &str) -> String {
    let kind = match ServerName::try_from(host) {
        Ok(ServerName::IpAddress(_)) => "IP",
        _ => "DNS",
    };
    format!(
        "`openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={host} -keyout server.key -out server.csr && openssl \
         x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 -out server.pem -extfile <(echo \
         subjectAltName={kind}:{host})` (docs/certificates.md has every step)"
    )
}

fn built() -> u64 {
    BUILT.parse().unwrap_or(BEFORE_ANY_BUILD)
}

/// The day in UTC.
fn date(time: UnixTime) -> String {
    let time = i64::try_from(time.as_secs()).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "an unknown day".to_owned(), |time| time.strftime("%F").to_string())
}

/// Lists a certificate's names; rustls writes them as `DnsName("gate")` and `IpAddress(192.168.1.2)`.
fn names(presented: &[String]) -> Option<String> {
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        let inner = inner.trim_matches('"').chars().filter(|each| each.is_ascii_graphic());
        inner.take(MOST_NAME_CHARS).collect::<String>()
    };
    let mut shown = presented.iter().take(MOST_NAMES).map(bare).collect::<Vec<_>>().join(", ");
    if presented.len() > MOST_NAMES {
        shown.push_str(", …");
    }
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::time::Duration;

    use rustls::OtherError;

    use super::*;

    fn said(error: &CertificateError) -> (String, bool) {
        let CertificateFault { fault, remedy, is_clock } = CertificateFault::of(error, "gate").expect("an explanation");
        (format!("{fault}: {remedy}"), is_clock)
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_clock_before_the_build_is_the_likely_reason_and_a_later_one_is_not() {
        let not_before = at(1_790_000_000);
        let (board, is_clock) = said(&CertificateError::NotValidYetContext { time: at(5), not_before });
        assert!(is_clock && board.contains("this machine's clock says 1970-01-01, which is before visiond was built"));
        assert!(board.contains("set the clock") && !board.contains("openssl"), "{board}");
        let (time, not_before) = (at(built()), at(built() + 200_000));
        let [today, begin] = [time, not_before].map(date);
        let (other, is_clock) = said(&CertificateError::NotValidYetContext { time, not_before });
        let wanted = format!("it begins on {begin}, and this machine's clock says {today}");
        assert!(!is_clock && other.contains(&wanted), "{other}");
    }

    #[test]
    fn names_that_a_server_chooses_are_few_short_and_printable() {
        let presented = vec![format!("DnsName(\"{}\u{1b}[2J\")", "x".repeat(4000)); 900];
        let (said, _) = said(&CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("gate").unwrap(),
            presented,
        });
        assert!(
            said.len() < 1000 && !said.contains('\u{1b}') && said.contains("is not for gate but for xxx"),
            "{said}"
        );
    }

    #[test]
    fn no_fault_shows_the_debug_text_of_a_library() {
        let other = |error: webpki::Error| CertificateError::Other(OtherError(Arc::new(error)));
        for error in [
            other(webpki::Error::UnsupportedCertVersion),
            other(webpki::Error::CaUsedAsEndEntity),
            other(webpki::Error::EndEntityUsedAsCa),
            other(webpki::Error::PathLenConstraintViolated),
            CertificateError::InvalidPurpose,
            CertificateError::Expired,
            CertificateError::NotValidForName,
            CertificateError::BadEncoding,
            CertificateError::Revoked,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::UnsupportedSignatureAlgorithmContext {
                signature_algorithm_id: Vec::new(),
                supported_algorithms: Vec::new(),
            },
        ] {
            let (said, _) = said(&error);
            assert!(!said.contains("Other(") && said.contains("openssl x509 -req"), "{said}");
        }
        assert_eq!(CertificateFault::of(&CertificateError::UnknownIssuer, "gate"), None);
    }

    #[test]
    fn a_name_that_does_not_fit_is_answered_with_those_that_do() {
        let with_names = |presented: &[&str]| {
            let presented = presented.iter().map(|name| (*name).to_owned()).collect();
            let expected = ServerName::try_from("gate").unwrap();
            said(&CertificateError::NotValidForNameContext { expected, presented }).0
        };
        let two = with_names(&["DnsName(\"door\")", "IpAddress(192.168.1.2)"]);
        assert!(two.starts_with("is not for gate but for door, 192.168.1.2: use a name of the certificate"), "{two}");
        let name = "DnsName(\"door\")";
        assert!(with_names(&[name; MOST_NAMES]).contains("but for door, door, door, door: "));
        assert!(with_names(&[name; MOST_NAMES + 1]).contains("but for door, door, door, door, …: "));
        assert!(with_names(&[]).starts_with("has no subjectAltName, so it is not for gate: make one with "));
        let command = |host: &str| CertificateFault::of(&CertificateError::BadEncoding, host).unwrap().remedy;
        assert!(command("gate").contains("subjectAltName=DNS:gate)"), "{}", command("gate"));
        assert!(command("192.168.1.2").contains("subjectAltName=IP:192.168.1.2)"));
    }

    #[test]
    fn a_time_that_is_not_known_is_not_said() {
        let (early, is_clock) = said(&CertificateError::NotValidYet);
        assert_eq!((&*early, is_clock), ("is not valid yet: correct this machine's clock", false));
        let (late, _) = said(&CertificateError::Expired);
        assert!(late.starts_with("has expired: renew it, or correct this machine's clock; make one with "), "{late}");
        let (late, _) = said(&CertificateError::ExpiredContext { time: at(86_400 * 365), not_after: at(86_400) });
        assert!(
            late.starts_with("has expired on 1970-01-02, and this machine's clock says 1971-01-01: renew"),
            "{late}"
        );
        assert_eq!(date(at(u64::MAX)), "an unknown day");
    }
}
