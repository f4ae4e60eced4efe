#!/usr/bin/env python3
"""Fetches a bundle over a slow link that is cut again and again, and counts the bytes that cross it.

    tests/bundles/slow_link.py [--visiond PROGRAM] [--megabytes 200] [--bytes-per-second 125000] [--cut-every 60] [--only http|https|nats]

Three devices run `visiond bundle follow --once` until they have the bundle: from a web server with and without TLS, and from a fleet's
object store in nats-server. Each has a link of its own, by default of 1 Mbit/s. Every minute the link ends all its connections; every
fourth time it only falls silent, as a modem does, and the device has to notice. Wants: every device installs the bundle, and at most 2 %
more bytes than the bundle has reach it, with the index, headers, TLS and the messages of NATS. The default takes about 40 minutes and
nearly no processor time. Needs openssl and nats-server.
"""

import argparse
import http.server
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of the bundle's size.
ALLOWED = 0.02
# Every such cut is silent.
SILENT_EVERY = 4
# Only turns a hang into a failure.
MOST_COMMANDS = 50
PICTURES = [ROOT / "tests/media/astronaut.png", ROOT / "tests/media/coffee.png"]


class Link:
    """Forwards connections to a server. Bytes to the client pass at a rate, which all connections share."""

    def __init__(self, port, bytes_s, cut_every_s):
        self.to, self.bytes_s = port, bytes_s
        self.lock, self.free_at = threading.Lock(), time.monotonic()
        self.sent, self.cuts, self.open, self.silent = 0, 0, [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.cut_again_and_again, args=(cut_every_s,), daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            pair = (client, server)
            with self.lock:
                self.open.append(pair)
            threading.Thread(target=self.forward, args=(pair, server, client, True), daemon=True).start()
            threading.Thread(target=self.forward, args=(pair, client, server, False), daemon=True).start()

    def forward(self, pair, source, sink, is_paced):
        try:
            while piece := source.recv(4096):
                if is_paced:
                    self.wait(len(piece))
                with self.lock:
                    if pair in self.silent:
                        return
                    self.sent += len(piece) if is_paced else 0
                sink.sendall(piece)
        except OSError:
            pass
        with self.lock:
            if pair in self.silent:
                return
        end(pair)

    def wait(self, count):
        with self.lock:
            now = time.monotonic()
            self.free_at = max(self.free_at, now) + count / self.bytes_s
            pause = self.free_at - now
        time.sleep(pause)

    def cut_again_and_again(self, every_s):
        while True:
            time.sleep(every_s)
            with self.lock:
                pairs, self.open = self.open, []
                self.cuts += 1
                is_silent = self.cuts % SILENT_EVERY == 0
                if is_silent:
                    # They stay open: neither side hears of it.
                    self.silent += pairs
            if not is_silent:
                for pair in pairs:
                    end(pair)


def end(pair):
    for one in pair:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Files(http.server.BaseHTTPRequestHandler):
    """A web server's answers, with ranges."""

    folder = None

    def do_GET(self):
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        begin, last = 0, size - 1
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted:
            begin, last = int(wanted[1]), min(int(wanted[2]), size - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{last}/{size}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(last + 1 - begin))
        self.end_headers()
        with open(path, "rb") as file:
            file.seek(begin)
            left = last + 1 - begin
            while left > 0:
                piece = file.read(min(left, 1 << 16))
                left -= len(piece)
                try:
                    self.wfile.write(piece)
                except OSError:
                    return

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A connection that was cut is no error."""


def serve(folder, tls=None):
    """Starts a web server; returns its port."""
    server = Server(("127.0.0.1", 0), type("Answers", (Files,), {"folder": folder}))
    if tls:
        # The handshake is the handler's: one that hangs holds up no other connection.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def make_certificate(folder):
    """Makes an authority and a certificate of 127.0.0.1; returns the server's TLS."""
    script = """set -e
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.pem -days 30 -subj /CN=ca
echo subjectAltName=IP:127.0.0.1 >server.ext
openssl req $key -keyout server.key -out server.csr -subj /CN=server
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile server.ext -out server.pem
"""
    subprocess.run(["sh", "-c", script], cwd=folder, stderr=subprocess.DEVNULL, check=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    return tls


def wait_for(port):
    """Waits until a server listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.1)


class Run:
    def __init__(self, visiond, folder):
        self.visiond, self.folder, self.wrong = visiond, folder, []

    def visiond_says(self, *words, **more):
        done = subprocess.run([self.visiond, *map(str, words)], capture_output=True, text=True, **more)
        if done.returncode:
            sys.exit(f"visiond {' '.join(map(str, words))}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def make(self, megabytes):
        """Makes and publishes a bundle with so many bytes that cannot be compressed; returns its size."""
        folder = self.folder
        for name in ("tiny.onnx", "tiny.toml"):
            shutil.copy(ROOT / "tests/vm" / name, folder / name)
        (folder / "weights.bin").write_bytes(os.urandom(int(megabytes * 1e6)))
        self.visiond_says("bundle", "keys", folder / "team", "--no-password")
        expected = folder / "expected.json"
        expected.write_text(self.visiond_says("detect", "--json", "--model", folder / "tiny.onnx", *PICTURES))
        bundle = folder / "street-1.visiond"
        words = ["--name", "street", "--version", 1, "-o", bundle, "--reference", expected, "--with", folder / "weights.bin"]
        pictures = [word for picture in PICTURES for word in ("--pictures", picture)]
        self.visiond_says("bundle", "make", folder / "tiny.onnx", *words, *pictures)
        self.visiond_says("bundle", "sign", bundle, "--key", folder / "team.key")
        self.visiond_says("bundle", "publish", bundle, folder / "published")
        return bundle.stat().st_size

    def follow(self, name, link, source, more, env, size):
        """Follows until the bundle is here."""
        store = self.folder / f"store-{name}"
        words = ["--once", "--source", source, "--store", store, "--key", self.folder / "team.pub", *more]
        command = [self.visiond, "bundle", "follow", "street", *words, "--url", f"unix:{self.folder}/no.sock"]
        begin, said = time.monotonic(), []
        while not (store / "street/current").exists() and len(said) < MOST_COMMANDS:
            done = subprocess.run(list(map(str, command)), env={**os.environ, **env}, capture_output=True, text=True)
            said.append(f"status {done.returncode}: {done.stderr.strip()}")
        took, sent, cuts = time.monotonic() - begin, link.sent, link.cuts
        share = 100 * (sent - size) / size
        print(f"{name:6} {took:8.0f} s  {cuts:4} cuts  {len(said):3} commands  {sent:11} bytes, {share:.2f} % more than the bundle", flush=True)
        for one in said[:-1]:
            print(f"       {one}", flush=True)
        installed = store / "street/current/weights.bin"
        if not installed.exists() or installed.read_bytes() != (self.folder / "weights.bin").read_bytes():
            self.wrong.append(f"{name}: the bundle is not installed: " + "\n".join(said))
        # Fewer bytes would mean that the device did not use the link.
        if not size <= sent <= size * (1 + ALLOWED):
            self.wrong.append(f"{name}: {sent} bytes for {size}:\n" + "\n".join(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--bytes-per-second", type=float, default=125_000)
    parser.add_argument("--cut-every", type=float, default=60, help="seconds")
    parser.add_argument("--only", choices=["http", "https", "nats"])
    args = parser.parse_args()
    kinds = [args.only] if args.only else ["http", "https", "nats"]
    with tempfile.TemporaryDirectory(prefix="visiond-slow-link-") as folder:
        folder = Path(folder)
        run, nats = Run(args.visiond, folder), None
        size = run.make(args.megabytes)
        print(f"a bundle of {size} bytes, {args.bytes_per_second:.0f} bytes/s, a cut every {args.cut_every:g} s", flush=True)
        devices = []
        try:
            for kind in kinds:
                more, env = [], {}
                if kind == "nats":
                    with socket.socket() as free:
                        free.bind(("127.0.0.1", 0))
                        port = free.getsockname()[1]
                    program = shutil.which("nats-server") or "/usr/sbin/nats-server"
                    nats = subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder / "nats"], stderr=subprocess.DEVNULL)
                    direct = {"env": {**os.environ, "NATS_URL": f"nats://127.0.0.1:{port}"}}
                    wait_for(port)
                    run.visiond_says("fleet", "init", **direct)
                    run.visiond_says("fleet", "push", folder / "street-1.visiond", **direct)
                    rollout = ["--group", "north", "--waves", "100", "--soak", "0s", "--allow-empty", "--no-wait"]
                    run.visiond_says("fleet", "rollout", "street", "1", *rollout, **direct)
                    more = ["--group", "north", "--device", "gate-1"]
                else:
                    tls = make_certificate(folder) if kind == "https" else None
                    port = serve(folder / "published", tls)
                    env = {"SSL_CERT_FILE": str(folder / "ca.pem")} if tls else {}
                link = Link(port, args.bytes_per_second, args.cut_every)
                source = f"{kind}://127.0.0.1:{link.port}"
                devices.append(threading.Thread(target=run.follow, args=(kind, link, source, more, env, size), daemon=True))
            for device in devices:
                device.start()
            for device in devices:
                device.join()
        finally:
            if nats:
                nats.kill()
                nats.wait()
    print("\n".join(run.wrong) or "all as it should be")
    sys.exit(1 if run.wrong else 0)


if __name__ == "__main__":
    main()
