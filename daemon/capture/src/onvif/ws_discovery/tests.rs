#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

fn ids() -> [String; 2] {
    [message_id().unwrap(), message_id().unwrap()]
}

fn answer(id: &str, types: &str, scopes: &str, addresses: &str) -> String {
    format!(
        "<e:Envelope xmlns:e='http://www.w3.org/2003/05/soap-envelope' xmlns:w='a' xmlns:d='d'><e:Header>\
         <w:RelatesTo>uuid:{id}</w:RelatesTo></e:Header><e:Body><d:ProbeMatches><d:ProbeMatch>\
         <d:Types>{types}</d:Types><d:Scopes>{scopes}</d:Scopes><d:XAddrs>{addresses}</d:XAddrs>\
         </d:ProbeMatch></d:ProbeMatches></e:Body></e:Envelope>"
    )
}

#[test]
fn a_message_id_is_a_random_uuid() {
    let [one, other] = ids();
    assert_ne!(one, other);
    let parts: Vec<_> = one.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert!(one.as_bytes()[14] == b'4' && b"89ab".contains(&one.as_bytes()[19]), "{one}");
    assert!(xml::parse(&question(&one, TYPES[0])).is_ok());
}

#[test]
fn an_answer_names_the_camera_and_its_service() {
    let ids = ids();
    let scopes = "onvif://www.onvif.org/Profile/Streaming onvif://www.onvif.org/name/Front%20gate \
                  onvif://www.onvif.org/hardware/IPC-1";
    let addresses = "http://[fe80::1]/onvif/device_service http://10.0.0.7:8080/onvif/device_service";
    // Some devices repeat the identifier in capitals.
    let text = answer(&ids[1].to_uppercase(), "dn:NetworkVideoTransmitter", scopes, addresses);
    let [device] = devices(text.as_bytes(), FROM, &ids).try_into().unwrap();
    assert_eq!((device.name.as_deref(), device.model.as_deref()), (Some("Front gate"), Some("IPC-1")));
    assert_eq!(device.service.unwrap().as_str(), "http://10.0.0.7:8080/onvif/device_service");
}

#[test]
fn other_answers_are_none() {
    let ids = ids();
    let scopes = "onvif://www.onvif.org/name/a";
    let of = |text: &str| devices(text.as_bytes(), FROM, &ids).len();
    assert_eq!(of(&answer(&ids[0], "tds:Device", scopes, "")), 1);
    assert_eq!(of(&answer(&message_id().unwrap(), "tds:Device", scopes, "")), 0);
    assert_eq!(of(&answer(&ids[0], "wsdp:Device", "ldap:///printers", "")), 0);
    assert_eq!(of("<a/>"), 0);
    assert_eq!(devices(b"\xff\xfe", FROM, &ids), []);
}

#[test]
fn only_the_address_that_answered_is_asked() {
    let of = |addresses: &str| service(addresses, FROM).map_err(|error| error.to_string());
    assert_eq!(of("http://10.0.0.8/a http://10.0.0.7/b").unwrap().path(), "/b");
    for hostile in [
        "http://10.0.0.8/a",
        "http://camera.example.org/a",
        "http://localhost/a",
        "http://10.0.0.7@10.0.0.8/a",
        "http://10.0.0.7.example.org/",
        "http://[::ffff:10.0.0.7]/",
    ] {
        assert!(of(hostile).unwrap_err().contains("names another host"), "{hostile}");
    }
    assert!(of("https://10.0.0.7/a http://10.0.0.8/").unwrap_err().contains("HTTPS"));
    for nothing in ["", "nonsense", "ftp://10.0.0.7/", "file:///etc/passwd"] {
        assert!(of(nothing).unwrap_err().contains("no device-service address"), "{nothing}");
    }
}

#[test]
fn a_sender_that_answers_without_end_hides_no_other() {
    let ids = ids();
    let mut collector = Collector::new(&ids);
    let one = |port: u32, host: Ipv4Addr| {
        answer(&ids[0], "tds:Device", "onvif://www.onvif.org/name/a", &format!("http://{host}:{port}/"))
    };
    for port in 1..10_000 {
        collector.take(one(port, FROM).as_bytes(), FROM);
    }
    let other = Ipv4Addr::new(10, 0, 0, 8);
    collector.take(one(80, other).as_bytes(), other);
    collector.take(one(80, other).as_bytes(), other);
    assert!(collector.answers.are_too_many && !collector.is_full());
    let at = |address| collector.answers.devices.iter().filter(|device| device.address == address).count();
    assert_eq!((at(FROM), at(other)), (MOST_AT_ADDRESS, 1));
    for n in 0..10_000_u32 {
        let from = Ipv4Addr::from_bits(0x0B00_0000 + n);
        collector.take(one(80, from).as_bytes(), from);
    }
    assert!(collector.is_full());
    assert_eq!(collector.answers.devices.len(), MOST_DEVICES);
}

proptest! {
    #[test]
    fn any_datagram_is_an_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in ".{0,200}") {
        let ids = ids();
        let made = answer(&ids[0], &text, &format!("onvif://www.onvif.org/name/{text}"), &text);
        for datagram in [bytes.as_slice(), text.as_bytes(), made.as_bytes()] {
            for device in devices(datagram, FROM, &ids) {
                prop_assert!(device.name.is_none_or(|name| name.chars().count() <= MOST_CHARS));
            }
        }
    }
}
