//! Certificates for brokers and their clients, made by openssl.

use std::path::Path;
use std::process::{Command, Stdio};

/// Writes PEM files into the folder: the authorities `ca` and `other-ca`, and the certificates `server`, for these
/// subjectAltNames, and `device`, both signed by `ca`; each with its key as NAME.key.
pub fn make(folder: &Path, server_names: &str) {
    let script = r#"
set -e
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
for ca in ca other-ca; do
    openssl req -x509 $key -keyout $ca.key -out $ca.pem -days 30 -subj /CN=$ca
done
printf 'subjectAltName=%s\n' "$1" >server.ext
printf 'extendedKeyUsage=clientAuth\n' >device.ext
for name in server device; do
    openssl req $key -keyout $name.key -out $name.csr -subj /CN=$name
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile $name.ext -out $name.pem
done
"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", server_names]).current_dir(folder).stderr(Stdio::null());
    assert!(shell.status().expect("sh runs").success(), "openssl makes certificates: tests/setup --test installs it");
}
