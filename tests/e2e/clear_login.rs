//! A password that crosses a network in clear text: visiond warns for RTSP and HTTP cameras. Runs in a network namespace with
//! its own address.

use std::process::Command;

use visiond_tests::{root, skip, visiond};

/// An RTSP and an HTTP camera with basic authentication, at a network address and at the machine's own; then the report of
/// `visiond probe`.
const SCRIPT: &str = r#"
ip link set lo up && ip addr add 192.0.2.7/32 dev lo || exit 77
cat >picture.py <<'END'
import base64, http.server, sys
class Camera(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get("Authorization") == "Basic " + base64.b64encode(b"gate:s3cret").decode()
        self.send_response(200 if known else 401)
        if not known:
            self.send_header("WWW-Authenticate", 'Basic realm="c"')
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], 8080), Camera).serve_forever()
END
for address in 192.0.2.7 127.0.0.1; do
    python3 "$1/tests/rtsp/server.py" --address $address --port 8554 --at-end loop --auth basic --user gate --password s3cret film.h264 &
    servers="$servers $!"
    python3 picture.py $address &
    servers="$servers $!"
done
trap 'kill $servers' EXIT
for address in 192.0.2.7 127.0.0.1; do
    for port in 8554 8080; do
        until python3 -c "import socket; socket.create_connection(('$address', $port))" 2>/dev/null; do sleep 0.05; done
    done
    echo "at $address" >&2
    "$2" probe --rtsp rtsp://$address:8554/live --login "$PWD/login" --watch 1s >&2
    "$2" probe --http http://$address:8080/ --login "$PWD/login" --watch 1s >&2
done
exit 0
"#;

#[test]
fn basic_authentication_without_tls_is_warned_of_where_the_network_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("login"), "gate:s3cret\n").unwrap();
    let film = "-v error -f lavfi -i testsrc2=s=64x48:d=3:r=10 -pix_fmt yuv420p -g 10 -c:v libx264 -f h264 film.h264";
    let made = Command::new("ffmpeg").args(film.split(' ')).current_dir(folder.path()).status();
    assert!(made.expect("these tests need ffmpeg").success());
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"]).arg(root()).arg(visiond());
    let output = command.current_dir(folder.path()).output().expect("unshare, of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.starts_with("unshare:") {
        skip("this user may not make a network namespace (unshare --user --net), or `ip` is missing");
        return;
    }
    assert!(output.status.success(), "{said}");
    let (network, here) = said.split_once("at 127.0.0.1\n").unwrap_or_else(|| panic!("{said}"));
    for (scheme, secure) in [("RTSP", "rtsps"), ("HTTP", "https")] {
        let line = format!(
            "user and password for 192.0.2.7 cross the network in clear text, because the camera requests basic authentication: set it to \
             digest, or use {secure}:// in `url`"
        );
        assert_eq!(network.matches(&line).count(), 1, "{scheme}:\n{said}");
    }
    assert!(!here.contains("in clear") && !said.contains("s3cret"), "{said}");
}
