#!/usr/bin/env python3
"""Fuzzes the API of a real daemon from its own OpenAPI document, with every check that schemathesis has.

    tests/web/fuzz.py [--examples 20] [VISIOND]      without a name VISIOND_BIN, else target/release/visiond

No answer may be a 5xx, none may be other than the document says, nothing may be answered without
the token, and the daemon must go on publishing. Then bytes that are no HTTP, and the streams, which have no end.
Needs Python's schemathesis, which tests/setup installs.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from running import free_port

ROOT = Path(__file__).resolve().parents[2]
# A hang, not slowness: nothing else is decided by it.
HANG_S = 600
TOKEN = "fuzzing-token-fuzzing-token"
CONFIG = """
[engine]
backend = "rten"
threads = 1
[[model]]
name = "tiny"
path = "{root}/tests/vm/tiny.onnx"
[[camera]]
name = "bars"
source = {{ type = "pattern", width = 64, height = 48, fps = 10.0 }}
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
[http]
listen = ["127.0.0.1:{port}"]
token = "{folder}/token"
"""
# They have no end, which schemathesis would wait for; `streams` asks for them, and for a trace, which takes its time.
ENDLESS = ["/api/v1/stream", "/cameras/{name}/stream.mjpeg"]
SLOW = ["/api/v1/trace"]


def ask(base, path, method="GET"):
    request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {TOKEN}"}, method=method)
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return answer.read()


def wait_until_ready(base, daemon, log):
    until = time.monotonic() + HANG_S
    while time.monotonic() < until:
        assert daemon.poll() is None, f"visiond ended:\n{log.read_text()}"
        try:
            ask(base, "/readyz")
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"visiond was not ready within {HANG_S} s")


def fuzz(base, folder, examples):
    document = json.loads(ask(base, "/api/v1/openapi.json"))
    for path in ENDLESS + SLOW:
        del document["paths"][path]
    # A camera that is switched off has no images, and publishes nothing.
    change = document["paths"]["/api/v1/cameras/{name}/settings"]["post"]["requestBody"]["content"]["application/json"]
    del change["schema"]["properties"]["enabled"]
    # Half of the names are the camera's.
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"] = {"anyOf": [{"const": "bars"}, parameter["schema"]]}
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(path), "--url", base]
    command += ["-H", f"Authorization: Bearer {TOKEN}", "--checks", "all", "--max-examples", str(examples)]
    # One thread: the `ast.parse` of Python 3.11, which hypothesis uses, fails in two at a time.
    command += ["--request-timeout", str(HANG_S), "--seed", "1", "--continue-on-failure", "--workers", "1"]
    command += ["--phases", "examples,coverage,fuzzing"]
    return subprocess.run(command, cwd=folder, env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "h")}).returncode


def streams(base):
    """Each begins, and ends when the reader goes; a trace is recorded; wrong parameters are refused."""
    for path in ENDLESS:
        path = path.replace("{name}", "bars")
        request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            assert len(answer.read(200)) == 200, path
        for wrong in ["?only_detections=maybe", "?camera=none"] if "api" in path else ["?overlay=maybe"]:
            refused(base, path + wrong, "GET")
    assert json.loads(ask(base, "/api/v1/trace?seconds=1", "POST"))["traceEvents"]
    for wrong in ["0", "-1", "61", "1.5", "", "x", "99999999999999999999"]:
        refused(base, f"/api/v1/trace?seconds={wrong}", "POST")


def refused(base, path, method):
    try:
        ask(base, path, method)
    except urllib.error.HTTPError as error:
        assert error.code in (400, 404), (path, error.code)
        return
    sys.exit(f"{method} {path} was answered")


def nonsense(port, rounds):
    """Bytes that are no HTTP, and HTTP that was bent: every connection is answered with an error or closed."""
    rng = random.Random(1)
    good = (f"POST /api/v1/reload?x=%41 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer wrong\r\n"
            "Cookie: visiond_session=0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").encode()
    good = good.replace(b"Bearer wrong", b"Basic")
    for _ in range(rounds):
        bent = bytearray(good)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(bent))
            bent[at:at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 4))
        with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as s:
            s.sendall(bytes(bent))
            s.shutdown(socket.SHUT_WR)
            try:
                answer = s.recv(65536)
            except ConnectionError:
                continue
        assert not answer.startswith(b"HTTP/1.1 5"), (bytes(bent), answer)
        assert not answer.startswith(b"HTTP/1.1 200"), (bytes(bent), answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("visiond", nargs="?", default=os.environ.get("VISIOND_BIN", ROOT / "target/release/visiond"))
    parser.add_argument("--examples", type=int, default=20, help="of each operation")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder, port = Path(folder), free_port()
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "token").chmod(0o600)
        (folder / "visiond.toml").write_text(CONFIG.format(root=ROOT, folder=folder, port=port))
        with open(folder / "log", "w") as log:
            daemon = subprocess.Popen([args.visiond, "run", folder / "visiond.toml"], stderr=log)
        try:
            base = f"http://127.0.0.1:{port}"
            wait_until_ready(base, daemon, folder / "log")
            # /readyz may have said 503 until there was a frame.
            before = json.loads(ask(base, "/api/v1/status"))["http"]["answers"][4]
            failed = fuzz(base, folder, args.examples)
            streams(base)
            nonsense(port, 50 * args.examples)
            lines = (folder / "out.jsonl").stat().st_size
            until = time.monotonic() + HANG_S
            while (folder / "out.jsonl").stat().st_size <= lines:
                assert time.monotonic() < until, "messages do not go on"
                time.sleep(0.1)
            http = json.loads(ask(base, "/api/v1/status"))["http"]
            print(f"answers by kind of status: {http['answers']}; connections left: {http['connections']}")
            assert http["answers"][4] == before, "an answer was a 5xx"
        finally:
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(HANG_S)
            log = (folder / "log").read_text()
        for word in ["panicked", "bug at", TOKEN]:
            assert word not in log, log
        assert status == 0, f"visiond ended with {status}:\n{log}"
    sys.exit(failed)


if __name__ == "__main__":
    main()
