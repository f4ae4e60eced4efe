//! Takes out of texts what tells whose machine it is: serial numbers, addresses, names, credentials.
//!
//! Two ways: the values that this machine knows of itself (host name, accounts, serial numbers) are replaced wherever they
//! stand, and what has the form of an address or a number of that kind is replaced whatever it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};
use serde_json::Value;

/// Forms, and what stands in their place. Order matters: a URL's credentials and query go before its host's address.
const FORMS: [(&str, &str); 8] = [
    (r"(?P<keep>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/@?#]*@", "<credentials>@"),
    (r"(?P<keep>[A-Za-z][A-Za-z0-9+.-]*://[^\s?#]*)\?[^\s#]*", "?<query>"),
    (r"(?i)(?P<keep>(?:password|passwd|token|secret|api[_-]?key)\s*[=:]\s*)[^\s,;]+", "<secret>"),
    (r"(?i)(?P<keep>\bserial(?:[ _-]?(?:number|no|num))?\s*[=:#]\s*)[^\s,;]+", "<serial>"),
    (r"(?i)(?P<keep>)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(?i)(?P<keep>)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\b", "<mac>"),
    // 10.0.0.1; a version of five numbers is none.
    (r"(?P<keep>(?:^|[^\d.]))(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}\b", "<ip>"),
    // Eight groups, or fewer with `::` between; a time and a PCI address have no such thing.
    (
        r"(?i)(?P<keep>(?:^|[^0-9a-z:.]))(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}|::(?:[0-9a-f]{1,4}:){0,6}[0-9a-f]{1,4})\b",
        "<ip>",
    ),
];

/// Shorter values than these are words that stand for something else elsewhere.
const SHORTEST_NAME: usize = 2;
const SHORTEST_SERIAL: usize = 5;

/// What vendors write where they have no serial number.
const NO_SERIAL: [&str; 8] = [
    "default string",
    "to be filled by o.e.m.",
    "not specified",
    "system serial number",
    "none",
    "unknown",
    "00000",
    "123456789",
];

/// Replaces in texts what must not leave the machine.
pub struct Redaction {
    forms: Vec<(Regex, &'static str)>,
    /// Values of this machine with what stands in their place, the longest first.
    values: Vec<(Regex, &'static str)>,
}

impl Redaction {
    /// For the machine whose files are below `root`, and more serial numbers, such as cameras'.
    pub fn new(root: &Path) -> Self {
        let mut known: BTreeMap<String, &'static str> = BTreeMap::new();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mut add = |text: &str, shortest: usize, mark: &'static str| {
            let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            if text.len() >= shortest && !NO_SERIAL.contains(&text.to_lowercase().as_str()) {
                known.entry(text.to_owned()).or_insert(mark);
            }
        };
        for path in ["proc/sys/kernel/hostname", "etc/hostname"] {
            let name = read(path);
            // Of a full name the machine's own part, too.
            for part in [name.trim(), name.trim().split('.').next().unwrap_or_default()] {
                if part != "localhost" {
                    add(part, SHORTEST_NAME, "<host>");
                }
            }
        }
        for user in people(&read("etc/passwd")) {
            add(&user, SHORTEST_NAME, "<user>");
        }
        for path in SERIALS {
            add(&read(path), SHORTEST_SERIAL, "<serial>");
        }
        for path in usb_serials(root) {
            add(&fs::read_to_string(path).unwrap_or_default(), SHORTEST_SERIAL, "<serial>");
        }
        let mut known: Vec<_> = known.into_iter().collect();
        known.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Self {
            forms: FORMS.iter().filter_map(|(form, mark)| Some((Regex::new(form).ok()?, *mark))).collect(),
            values: known.into_iter().filter_map(|(text, mark)| Some((word(&text)?, mark))).collect(),
        }
    }

    /// `text` without what must not leave the machine.
    pub fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (form, mark) in &self.forms {
            text = form.replace_all(&text, |found: &Captures<'_>| format!("{}{mark}", &found["keep"])).into_owned();
        }
        for (value, mark) in &self.values {
            // Twice: of two values with one character between, that character belongs to the first.
            for _ in 0..2 {
                let replaced =
                    value.replace_all(&text, |found: &Captures<'_>| format!("{}{mark}{}", &found[1], &found[2]));
                text = replaced.into_owned();
            }
        }
        text
    }

    /// Does so with every text in `value`; the names of fields stay.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.json(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Where a machine keeps numbers that only it has.
const SERIALS: [&str; 10] = [
    "proc/device-tree/serial-number",
    "sys/firmware/devicetree/base/serial-number",
    "sys/devices/soc0/serial_number",
    "sys/class/dmi/id/product_serial",
    "sys/class/dmi/id/board_serial",
    "sys/class/dmi/id/chassis_serial",
    "sys/class/dmi/id/product_uuid",
    "etc/machine-id",
    "var/lib/dbus/machine-id",
    "proc/sys/kernel/random/boot_id",
];

fn usb_serials(root: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir(root.join("sys/bus/usb/devices")).into_iter().flatten().flatten();
    devices.map(|device| device.path().join("serial")).filter(|path| path.is_file()).collect()
}

/// `text` as a word of its own, with what stands before and behind it.
fn word(text: &str) -> Option<Regex> {
    Regex::new(&format!("(^|[^A-Za-z0-9]){}([^A-Za-z0-9]|$)", regex::escape(text))).ok()
}

/// The accounts of people in /etc/passwd: Debian and Ubuntu number them from 1000 on; 65534 is `nobody`.
fn people(passwd: &str) -> Vec<String> {
    let person = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (1000..60_000).contains(&number).then_some(name)
    };
    passwd.lines().filter_map(person).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("etc/hostname", "gate-7.example.org\n");
        put(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nvideo:x:44:44::/:/bin/false\nmaria:x:1000:1000:Maria:/home/maria:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        );
        put("proc/device-tree/serial-number", "1421522031234\0");
        put("sys/bus/usb/devices/1-1/serial", "A1B2C3D4\n");
        put("sys/class/dmi/id/board_serial", "Default string\n");
        put("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        root
    }

    #[test]
    fn what_tells_whose_machine_it_is_is_taken_out() {
        let redaction = Redaction::new(machine().path());
        for (text, expected) in [
            ("Linux gate-7 5.10.120-tegra", "Linux <host> 5.10.120-tegra"),
            ("gate-7.example.org, gate-7", "<host>, <host>"),
            ("/home/maria/model.onnx by maria", "/home/<user>/model.onnx by <user>"),
            ("serial 1421522031234 of the board", "serial <serial> of the board"),
            ("camera 046d:0825:A1B2C3D4", "camera 046d:0825:<serial>"),
            ("usb 1-1: SerialNumber: ZX-99/1", "usb 1-1: SerialNumber: <serial>"),
            ("eth0: 48:b0:2d:12:34:56, 48-B0-2D-12-34-56", "eth0: <mac>, <mac>"),
            ("from 192.168.1.20:554 and 10.0.0.1.", "from <ip>:554 and <ip>."),
            ("fe80::4ab0:2dff:fe12:3456%eth0, 2001:db8:0:0:0:0:0:1, [::1]", "<ip>%eth0, <ip>, [<ip>]"),
            ("rtsp://admin:geheim@192.168.1.20/s?key=abc ok", "rtsp://<credentials>@<ip>/s?<query> ok"),
            ("token=abc123, MQTT_PASSWORD: x", "token=<secret>, MQTT_PASSWORD: <secret>"),
            ("GPU-6f3c1c5e-5d8f-4b6c-9a55-0123456789ab", "GPU-<uuid>"),
            ("machine 0123456789abcdef0123456789abcdef", "machine <serial>"),
        ] {
            assert_eq!(redaction.text(text), expected);
        }
    }

    #[test]
    fn what_only_looks_like_it_stays() {
        let redaction = Redaction::new(machine().path());
        for text in [
            "TensorRT 10.3.0, L4T 36.4.3, visiond 0.1.0",
            "pci-0000:00:14.0-usb-0:1:1.0, 03:04:05, char 81:0",
            "046d:0825 HD Webcam, vi-output, imx219 9-0010",
            "root:video 0660, nobody",
            "std::io::Error at 0x2008",
            "Default string",
            "mariadb, remaria",
        ] {
            assert_eq!(redaction.text(text), text);
        }
    }

    #[test]
    fn every_text_of_json_is_redacted_and_nothing_else() {
        let mut value = serde_json::json!({"gate-7": ["gate-7", 5, {"a": "by maria"}], "n": null});
        Redaction::new(machine().path()).json(&mut value);
        assert_eq!(value, serde_json::json!({"gate-7": ["<host>", 5, {"a": "by <user>"}], "n": null}));
    }
}
