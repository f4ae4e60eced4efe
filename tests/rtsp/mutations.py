#!/usr/bin/env python3
# Python's standard library; ffmpeg
"""Plays mutated RTSP and RTP messages to one daemon's cameras: does it keep running without a panic, in bounded memory?

    tests/rtsp/mutations.py [--visiond BIN] [--messages 1000000] [--seed N] [--keep FOLDER]

A server plays genuine streams of H.264, H.265 and JPEG, over TCP and UDP, and damages most messages. Each session is drawn from
the seed, the camera's name and the session's number. Some cameras get damaged media in sessions that mostly go on, others get
damaged answers, which mostly end the session. Nothing is held back to a frame rate: a burst is sent as soon as visiond has read
the one before, which the kernel's list of sockets shows. A message counts once visiond has read it. ffmpeg decodes what is left.

Beside them a healthy camera plays. It may lose no frame. After a tenth of the messages and at the end, the server closes every
session and plays without damage until each camera has frames again. Then memory, threads, descriptors and child processes are
compared. Prints the messages by kind. Exit status 1 if something did not hold.
"""

import argparse
import base64
import collections
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import server

MIB = 1 << 20
# By how much the memory at rest may grow between the first tenth and the end.
MOST_GROWN = 32 * MIB
# The longest wait for a condition: it turns a hang into a failure.
HANG_S = 180
# Lines of the log for each session that the server has played.
MOST_LINES = 3
CALM_FPS, HEALTHY_FPS = 5, 2
# A panic that nothing catches and reports; and one in what reads a server, that the session's end reports. Both are bugs.
PANIC, CAUGHT = "stopped by a bug", "a bug in reading this server's data"

# Name, codec, transport, further keys of the source; those named `answers` get damaged answers.
CAMERAS = [
    ("media-h264-tcp", "h264", "tcp", ""),
    ("media-h264-udp", "h264", "udp", ""),
    ("media-h264-key", "h264", "tcp", "key_frames_only = true\n"),
    ("media-h265-tcp", "h265", "tcp", ""),
    ("media-h265-udp", "h265", "udp", ""),
    ("media-h265-sdp", "h265", "tcp", 'pixels = "native"\n'),
    ("media-jpeg-tcp", "jpeg", "tcp", ""),
    ("media-jpeg-udp", "jpeg", "udp", ""),
    *((f"answers-{codec}-{transport}-{n}", codec, transport, 'login = "{folder}/login"\n' if n else "")
      for codec, count in (("h264", 1), ("h265", 2), ("jpeg", 3)) for transport in ("tcp", "udp") for n in range(count)),
]  # fmt: skip
CONFIG = """
[device]
name = "mutations"
[log]
target = "stderr"
level = "{level}"
[http]
listen = ["unix:{folder}/http.sock"]
[buffers]
max_picture_bytes = "64 MiB"
[engine]
backend = "rten"
threads = 1
[[model]]
name = "tiny"
path = "{model}"
[[sink]]
type = "file"
path = "{folder}/out.jsonl"
[[camera]]
name = "healthy"
source = {{ type = "rtsp", url = "rtsp://127.0.0.1:{healthy}/live" }}
"""
CAMERA = """
[[camera]]
name = "{name}"
max_fps = 5
[camera.source]
type = "rtsp"
url = "rtsp://127.0.0.1:{port}/{name}"
transport = "{transport}"
timeout = "{timeout}"
{more}"""


# --- mutations --------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 31, 32, 127, 128, 254, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def mutate(rng, data):
    """Damages bytes in one of nine ways. The result is never empty."""
    out, n = bytearray(data or b"\0"), max(len(data), 1)
    at, to = sorted((rng.randrange(n), rng.randrange(n)))
    way = rng.randrange(9)
    if way == 0:
        for _ in range(rng.randint(1, 8)):
            out[rng.randrange(n)] ^= 1 << rng.randrange(8)
    elif way == 1:
        del out[max(at, 1) :]
    elif way == 2:
        out[to:to] = out[at:to] * rng.choice((1, 1, 2, 9))
    elif way == 3:
        out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 60, 1000)))
    elif way == 4:
        middle = (at + to) // 2
        out[at:to] = out[middle:to] + out[at:middle]
    elif way == 5:
        size = rng.choice((1, 2, 4))
        out[at : at + size] = (rng.choice(NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    elif way == 6:
        out[at:to] = rng.choice((b"\0", b"\xff", b"\0\0\1")) * (to - at)
    elif way == 7:
        del out[at:to]
    else:
        out[at:to] = rng.randbytes(to - at)
    return bytes(out[:60000]) or b"\0"


def flip(rng, data, first=0, most=8):
    """Flips bits after the first bytes."""
    out = bytearray(data)
    if len(out) > first:
        for _ in range(rng.randint(1, most)):
            out[rng.randrange(first, len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def put(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def nal_payload(rng, payload, h265):
    """A payload of H.264 or H.265: its headers, lengths of aggregates, parameter sets, bytes of slices."""
    size = 2 if h265 else 1
    aggregate, fragment = (b"\x60\x01", b"\x62\x01") if h265 else (b"\x78", b"\x7c")
    is_aggregate = payload[:size] == aggregate
    way = rng.random()
    if is_aggregate and way < 0.1:
        # The content of parameter sets. A change of them starts the decoder again, so there are few.
        return flip(rng, payload, size + 2, 3)
    if way < 0.35:
        return flip(rng, payload, size + 1, 20)
    if way < 0.5:
        return flip(rng, payload[: size + 1], 0, 3) + payload[size + 1 :]
    if way < 0.6:
        lengths = b"".join(struct.pack(">H", rng.choice((0, 1, 2, 0xFFFF, rng.randrange(2000)))) + rng.randbytes(rng.randrange(40)) for _ in range(rng.randint(0, 40)))
        return aggregate + lengths
    if way < 0.7:
        return fragment + bytes([rng.randrange(256)]) + rng.randbytes(rng.choice((0, 0, 1, 300)))
    if way < 0.75:
        # Many start codes in one unit: each begins another.
        return payload[: size + 1] + b"\0\0\1" * rng.randint(1, 400) + rng.randbytes(9)
    if way < 0.8:
        return bytes([rng.randrange(256)]) + payload[1:]
    return mutate(rng, payload)


def jpeg_payload(rng, payload):
    """A payload of JPEG: offset, type, Q, size, restart and quantisation headers, bytes of the scan."""
    way = rng.random()
    if way < 0.3:
        return flip(rng, payload, 8 + 4 + 128, 20)
    if way < 0.4:
        return put(payload, 1, rng.choice((b"\0\0\0", b"\xff\xff\xff", b"\0\x05\x78", rng.randbytes(3))))
    if way < 0.5:
        return put(payload, 4, bytes([rng.choice((0, 1, 2, 63, 64, 65, 127, 128, 255))]))
    if way < 0.6:
        return put(payload, 5, bytes([rng.choice((0, 1, 50, 99, 100, 127, 128, 200, 254, 255))]))
    if way < 0.65:
        return put(payload, 6, bytes([rng.choice((0, 1, 20, 255)), rng.choice((0, 1, 15, 255))]))
    if way < 0.8:
        return put(payload, 8, bytes([rng.randrange(256), rng.choice((0, 1, 255))]) + struct.pack(">H", rng.choice((0, 1, 63, 64, 65, 127, 128, 129, 192, 256, 0xFFFF))))
    if way < 0.85:
        return flip(rng, payload, 12, 8)
    return mutate(rng, payload)


def sender_report(rng, timestamp):
    """A whole sender report, alone or with what may follow it, of any time."""
    seconds = rng.choice((0, 1, 2208988800, 2**32 - 1, int(time.time()) + 2208988800, 6311433600 & 0xFFFFFFFF, rng.getrandbits(32)))
    count = rng.choice((0, 0, 1, 31))
    size = 6 + count * 6 + rng.choice((0, 0, 4))
    rtp = rng.choice((timestamp, timestamp, rng.getrandbits(32)))
    out = struct.pack(">BBHIIIIII", 0x80 | count, 200, size, rng.choice((7, 7, 7, 8)), seconds, rng.getrandbits(32), rtp & 0xFFFFFFFF, 0, 0)
    out += rng.randbytes(4 * (size + 1) - len(out))
    for _ in range(rng.choice((0, 0, 1, 30))):
        words = rng.randrange(5)
        out += struct.pack(">BBH", 0x80 | rng.randrange(32), rng.choice((201, 202, 203, 204, 205, 206, 255)), words) + rng.randbytes(4 * words)
    return out


def bad_report(rng, timestamp):
    """A report whose version, padding, count or length is wrong."""
    good = struct.pack(">BBHIQIII", 0x80, 200, 6, 7, rng.getrandbits(64), timestamp & 0xFFFFFFFF, 0, 0)
    return rng.choice((
        put(good, 0, bytes([rng.randrange(256)])), put(good, 2, struct.pack(">H", rng.choice((0, 1, 5, 7, 0xFFFF)))),
        good[: rng.randrange(28)] or b"\x80", good + rng.randbytes(rng.randrange(1, 9)), mutate(rng, good),
    ))  # fmt: skip


SESSIONS = [
    "", ";timeout=60", "abc ;timeout=60", "abc\t;timeout=60", " ", ";", "abc;timeout=0", "abc;timeout=1", "abc;timeout=4294967295", "abc;timeout=4294967296",
    "abc;timeout=-1", "abc; timeout=60", "abc;timeout=60;x", "abc;x=1", "a" * 9000, "\u00e9;timeout=60", "abc,def", '"abc";timeout=60', "%00;timeout=5",
]  # fmt: skip
TRANSPORTS = [
    "", "RTP/AVP/TCP", "RTP/AVP/TCP;interleaved=", "RTP/AVP/TCP;interleaved=0", "RTP/AVP/TCP;interleaved=1-2", "RTP/AVP/TCP;interleaved=2-3",
    "RTP/AVP/TCP;interleaved=0-2", "RTP/AVP/TCP;interleaved=254-255", "RTP/AVP/TCP;interleaved=255-256", "RTP/AVP/TCP;interleaved=255", "RTP/AVP/TCP;interleaved=-1-0",
    "RTP/AVP/TCP;interleaved=99999999999-0", "RTP/AVP/TCP;interleaved=0-1;ssrc=ffffffff", "RTP/AVP/TCP;interleaved=0-1;ssrc=xyz", "RTP/AVP/TCP;interleaved=0-1;ssrc=" + "f" * 40,
    "RTP/AVP;server_port=0-1", "RTP/AVP;server_port=65534-65535", "RTP/AVP;server_port=65535-65536", "RTP/AVP;server_port=9", "RTP/AVP;server_port=9-8",
    "RTP/AVP;source=127.0.0.1;server_port=1-2", "RTP/AVP;source=::1;server_port=1-2", "RTP/AVP;source=;server_port=1-2", "RTP/AVP;source=300.1.1.1;server_port=1-2",
    ";" * 9000, "RTP/AVP/TCP;interleaved=0-1;interleaved=2-3",
]  # fmt: skip
AUTHENTICATIONS = [
    "", "Digest", "Basic", "Digest ", "Bearer x", 'Digest realm="test"', 'Digest realm="test", nonce=""', 'Digest realm="", nonce="", qop=""', 'Basic realm="x", Digest realm="y", nonce="z"',
    'Digest realm="test", nonce="a", algorithm=SHA-512-256', 'Digest realm="test", nonce="a", algorithm=MD5-sess, qop="auth-int"', 'Digest realm="test", nonce="a", qop="auth,auth-int,x"',
    'Digest realm="\\"\\\\", nonce="\\x", opaque="\\"", qop="auth"', 'Digest realm="test", nonce="' + "a" * 9000 + '"', "Digest " + "a=b, " * 2000, 'Digest realm="t\u00e9st", nonce="\u00e9", qop="auth"',
    'Digest realm="test" nonce="a"', 'Digest realm="test", realm="test", nonce="a"', 'Digest realm="test', 'Digest realm="test", nonce="a", userhash=true', 'Digest realm="test", nonce="a", stale=true, qop="auth"',
    'Digest realm="te\tst", nonce="a\t", qop="auth"', "Basic " * 500, ", , Basic realm=x", "Digest realm=test, nonce=a, qop=auth",
]  # fmt: skip
RTP_INFOS = [
    "", "url=", "url=x", "url=v;seq=", "url=v;seq=65535;rtptime=4294967295", "url=v;seq=65536", "url=v;seq=-1", "url=v;rtptime=99999999999", "url=v;seq=1;rtptime", "url=v;;;",
    "seq=1;rtptime=2", "url=v;seq=1;rtptime=2," * 500, ",", "url=rtsp://127.0.0.1:1/other;seq=1", "url=//;seq=1", "url=v;ssrc=ffffffffff",
]  # fmt: skip
BASES = ["", "/", "v/", "rtsp:", "rtsp://", "rtsp://127.0.0.1", "rtsp://127.0.0.1:1/", "rtsp://127.0.0.1:99999/", "http://127.0.0.1/", "rtsp://u:p@127.0.0.1/", "rtsp://[::1]/", "127.0.0.1/live", "x" * 9000, "\u00e9"]
LENGTHS = ["", "-1", "0", "1", "+5", "5 5", "abc", "1e3", "0x10", "65536", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616", "9" * 400]
STATUSES = [
    "RTSP/1.0 200", "RTSP/1.0", "", "RTSP/1.0 ", "RTSP/1.0 99 x", "RTSP/1.0 100 Continue", "RTSP/1.0 199 x", "RTSP/1.0 201 Created", "RTSP/1.0 301 Moved", "RTSP/1.0 401 No", "RTSP/1.0 403 No",
    "RTSP/1.0 404 No", "RTSP/1.0 453 No", "RTSP/1.0 454 No", "RTSP/1.0 461 No", "RTSP/1.0 500 No", "RTSP/1.0 503 No", "RTSP/1.0 551 No", "RTSP/1.0 999 x", "RTSP/1.0 1000 x", "RTSP/1.0 -1 x", "RTSP/1.0 2\u00b20 x",
    "RTSP/2.0 200 OK", "RTSP/9999999999.0 200 OK", "HTTP/1.1 200 OK", "rtsp/1.0 200 ok", "OPTIONS * RTSP/1.0", "ANNOUNCE rtsp://127.0.0.1/ RTSP/1.0", "RTSP/1.0 200 " + "x" * 9000, "$RTSP/1.0 200 OK",
]  # fmt: skip
MEDIA_LINES = [
    "m=video 0 RTP/AVP", "m=video 0 RTP/AVP ", "m=video 0 RTP/AVP  ", "m=video 0 RTP/AVP \t", "m=video 0 RTP/AVP 200", "m=video 0 RTP/AVP 128", "m=video 0 RTP/AVP -1", "m=video 0 RTP/AVP 96 97 98", "m=video 65536 RTP/AVP 96",
    "m=video 0/0 RTP/AVP 96", "m=video 0 UDP 96", "m=video 0 RTP/SAVP 96", "m=audio 0 RTP/AVP 0", "m=audio 0 RTP/AVP 26", "m= 0 RTP/AVP 96", "m=video", "m=", "m=video 0 RTP/AVP 34", "m=video 0 RTP/AVP 35",
    "m=application 0 RTP/AVP 107", "m=video 0 RTP/AVP " + "96 " * 2000,
]  # fmt: skip
RATES = ["0", "1", "-1", "90000/0", "90000/1", "90000/65536", "4294967295", "4294967296", "", "9" * 99, "90000/2/3"]


def sdp(rng, text):
    """Damages a description."""
    lines = text.split(b"\r\n")
    way, at = rng.randrange(12), rng.randrange(len(lines))
    media = next((n for n, line in enumerate(lines) if line.startswith(b"m=")), 0)
    rate = [n for n, line in enumerate(lines) if line.startswith(b"a=rtpmap")]
    sets = [n for n, line in enumerate(lines) if b"sprop" in line]
    if way == 0:
        del lines[at]
    elif way == 1:
        lines[at:at] = lines[at : at + 1] * rng.choice((1, 2, 500))
    elif way == 2:
        lines[at] = mutate(rng, lines[at]).replace(b"\n", b"\r")
    elif way == 3:
        rng.shuffle(lines)
    elif way in (4, 5):
        lines[media] = rng.choice(MEDIA_LINES).encode()
    elif way == 6 and rate:
        head, _, _ = lines[rate[0]].partition(b"/")
        lines[rate[0]] = head + b"/" + rng.choice(RATES).encode()
    elif way in (7, 8) and sets:
        # Parameter sets that are Base64 and noise: the library reads them.
        name, _, rest = lines[sets[0]].partition(b"sprop")
        damage = lambda found: b"=" + base64.b64encode(mutate(rng, base64.b64decode(found[1] + b"=="))) if rng.random() < 0.7 else b"=" + mutate(rng, found[1])
        lines[sets[0]] = name + re.sub(rb"=([A-Za-z0-9+/]{6,}=*)", damage, b"sprop" + rest).replace(b"\n", b"")
    elif way == 9:
        lines[media:media] = [rng.choice(MEDIA_LINES).encode(), rng.choice((b"a=rtpmap:97 mpeg4-generic/16000/1", b"a=rtpmap:107 vnd.onvif.metadata/90000", b"a=rtpmap:96 H264/0")),
                              rng.choice((b"a=fmtp:97 config=1408;sizelength=99;mode=AAC-hbr", b"a=fmtp:96", b"a=framerate:-1e99", b"a=control:"))] * rng.choice((1, 3, 300))  # fmt: skip
    elif way == 10:
        lines[at] = rng.choice((b"a=control:", b"a=control:" + b"/" * 5000, b"a=tool:LIVE555 Streaming Media v2010.01.01", b"a=fmtp:96 " + b"x=" * 4000, b"a=range:npt=\xff", b"t=9 -9", b"b=AS:99999999999999999999", b"v=1"))
    else:
        return mutate(rng, text)
    return b"\r\n".join(lines)


def answer(rng, method, status, headers, body):
    """Damages an answer; returns which part, and the bytes."""
    headers, line = dict(headers), f"RTSP/1.0 {status} {'OK' if status == 200 else 'No'}"
    parts = ["status lines", "headers", "lengths", "pieces"]
    parts += {"DESCRIBE": ["descriptions"] * 5 + ["bases"], "SETUP": ["Session"] * 3 + ["Transport"] * 3, "PLAY": ["RTP-Info"] * 3 + ["Session"]}.get(method, [])
    part = "WWW-Authenticate" if status == 401 and rng.random() < 0.8 else rng.choice(parts)
    pick = lambda values, old="": rng.choice(values) if rng.random() < 0.7 or not old else mutate(rng, old.encode()).decode("latin-1")
    if part == "status lines":
        line = pick(STATUSES, line)
    elif part == "Session":
        headers["Session"] = pick(SESSIONS, headers.get("Session", ""))
    elif part == "Transport":
        headers["Transport"] = pick(TRANSPORTS, headers.get("Transport", ""))
    elif part == "WWW-Authenticate":
        headers[part] = pick(AUTHENTICATIONS, headers[part])
    elif part == "RTP-Info":
        headers[part] = pick(RTP_INFOS, headers.get(part, ""))
    elif part == "bases":
        headers["Content-Base"] = rng.choice(BASES)
    elif part == "descriptions":
        body = sdp(rng, body)
    if body:
        headers["Content-Length"] = str(len(body))
    if part == "lengths":
        headers["Content-Length"] = rng.choice(LENGTHS)
    # Not the address that a session's end is sent to: this test stays on the machine.
    lines = [f"{name}: {value}".encode("latin-1", "replace") for name, value in headers.items() if name != "Content-Base" or part != "headers"]
    if part == "headers":
        at, way = rng.randrange(len(lines)), rng.randrange(9)
        if way == 0:
            del lines[at]
        elif way == 1:
            lines[at:at] = lines[at : at + 1] * rng.choice((1, 300))
        elif way == 2:
            lines[at] = mutate(rng, lines[at])
        elif way == 3:
            lines[at] = lines[at].replace(b":", b"", 1)
        elif way == 4:
            lines.append(b" folded: a")
        elif way == 5:
            lines.append(b"X: " + rng.randbytes(rng.choice((1, 50, 5000))))
        elif way == 6:
            lines += [b"X-%d: y" % n for n in range(rng.choice((10, 2000)))]
        elif way == 7:
            rng.shuffle(lines)
        else:
            headers["CSeq"] = rng.choice(("", "0", "-1", "4294967296", "x", "1 1"))
            lines = [b"CSeq: " + headers["CSeq"].encode(), *lines[1:]]
    data = b"\r\n".join([line.encode("latin-1", "replace"), *lines]) + b"\r\n\r\n" + body
    if part == "pieces":
        base = re.sub(rb"Content-Base: [^\r]*\r\n", b"", data)
        data = rng.choice((data * rng.randint(2, 30), base[: rng.randrange(1, len(base))], mutate(rng, base), b"\r\n" * rng.randint(1, 500) + data, b"$\0\0\4abcd" * rng.randint(1, 50) + data, data.replace(b"\r\n", b"\n"),
                           b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n" + data))  # fmt: skip
    return f"answers, {part}", data


# --- the server -------------------------------------------------------------------------------------------------------


class Sockets:
    """The kernel's counts for this machine's sockets: bytes that wait to be sent or read."""

    def __init__(self):
        self.lock, self.read_at, self.tcp, self.udp = threading.Lock(), 0.0, {}, {}

    def look(self, since):
        """Reads the lists, unless that was done after `since`: rows of TCP and UDP by both ports."""
        with self.lock:
            if self.read_at <= since:
                self.read_at = time.monotonic()
                self.tcp, self.udp = ({(int(row[1][-4:], 16), int(row[2][-4:], 16)): row for row in self.rows(name)} for name in ("tcp", "udp"))
            return self.tcp, self.udp

    @staticmethod
    def rows(name):
        """Rows of a list, as fields."""
        with open(f"/proc/net/{name}") as file:
            return [line.split() for line in file.readlines()[1:]]

    @staticmethod
    def waiting(row):
        """Bytes to send, and bytes to read."""
        send, _, read = row[4].partition(":")
        return int(send, 16), int(read, 16)


class Tally:
    """What was sent."""

    def __init__(self):
        self.lock, self.sent, self.read = threading.Lock(), collections.Counter(), collections.Counter()
        self.sessions, self.genuine, self.total = collections.Counter(), 0, 0
        self.wrong = []

    def add(self, kinds, was_read, genuine=0):
        """Counts damaged messages by kind, and undamaged ones."""
        with self.lock:
            self.sent.update(kinds)
            self.genuine += genuine
            if was_read:
                self.read.update(kinds)
                self.total += sum(kinds.values())


class Session(server.Client):
    """One client of the hostile server."""

    def __init__(self, connection, play):
        super().__init__(connection, None)
        self.play_of, self.tally, self.camera, self.method = play, play.tally, None, None
        self.is_calm, self.drops = play.calm.is_set(), 0
        connection.settimeout(HANG_S)

    def serve(self):
        with self.play_of.lock:
            self.play_of.open.add(self)
        try:
            super().serve()
        except TimeoutError:
            self.tally.wrong.append(f"{self.camera}: visiond neither read nor closed its connection for {HANG_S} s")
        finally:
            with self.play_of.lock:
                self.play_of.open.discard(self)

    def close(self):
        """Ends the session."""
        self.over.set()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def answer(self, method, uri, headers):
        if self.camera is None:
            self.camera = uri.split("/")[3]
            self.args = self.play_of.streams[self.camera]
            with self.tally.lock:
                number = self.tally.sessions[self.camera]
                self.tally.sessions[self.camera] += 1
            self.rng = random.Random(f"{self.play_of.seed}/{self.camera}/{number}")
            # How likely each answer is damaged.
            self.damage = 0.5 if self.camera.startswith("answers") and not self.is_calm else 0.0
        self.method, self.port = method, self.connection.getpeername()[1]
        found = re.search(r"client_port=(\d+)", headers.get("transport", ""))
        if found:
            self.udp_port = int(found[1])
        if self.damage and "login" in self.args.more and "authorization" not in headers and self.rng.random() < 0.4:
            scheme = self.rng.choice((f'Digest realm="test", nonce="{self.nonce}", qop="auth"', 'Basic realm="test"'))
            return self.reply(401, {"CSeq": headers.get("cseq", "1"), "WWW-Authenticate": scheme})
        super().answer(method, uri, headers)

    def reply(self, status, headers, body=b""):
        if self.method == "PLAY":
            headers["RTP-Info"] = f"url=v;seq={self.sequence}"
        if self.method == "TEARDOWN" or self.rng.random() >= self.damage:
            return super().reply(status, headers, body)
        kind, data = answer(self.rng, self.method, status, headers, body)
        for piece in self.cut(data):
            self.send(piece)
        self.tally.add({kind: 1}, True)
        if self.rng.random() < 0.3:
            self.close()

    def cut(self, data):
        """The bytes as they are sent: mostly at once, else in small pieces."""
        if self.rng.random() < 0.8:
            return [data]
        first, size = data[:400], self.rng.choice((1, 3, 50))
        return [first[at : at + size] for at in range(0, len(first), size)] + ([data[400:]] if len(data) > 400 else [])

    def drained(self):
        """Waits until visiond has read everything; returns whether it did, and did not close the connection."""
        since, until = time.monotonic(), time.monotonic() + HANG_S
        here, there = self.connection.getsockname()[1], self.port
        while not self.over.is_set():
            tcp, udp = self.play_of.sockets.look(since)
            if self.udp:
                rows = [row for (port, _), row in udp.items() if port in (self.udp_port, self.udp_port + 1)]
                if not rows:
                    return False
                if all(self.play_of.sockets.waiting(row)[1] == 0 for row in rows):
                    # The kernel drops packets that do not fit.
                    before, self.drops = self.drops, sum(int(row[-1]) for row in rows)
                    return self.drops == before
            else:
                ours, theirs = tcp.get((here, there)), tcp.get((there, here))
                if not ours or not theirs or theirs[3] != "01":
                    return False
                if self.play_of.sockets.waiting(ours)[0] == 0 and self.play_of.sockets.waiting(theirs)[1] == 0:
                    return True
            if time.monotonic() > until:
                self.tally.wrong.append(f"{self.camera}: visiond read nothing for {HANG_S} s")
                self.close()
                return False
            since = time.monotonic()
            time.sleep(0.0005)
        return False

    def rtp(self, payload, timestamp, marker, *, first=0x80, kind=None, more=b"", ssrc=7):
        """A packet with the next sequence number, and `more` between header and payload."""
        kind = self.args.streams[0].payload_type if kind is None else kind
        head = struct.pack(">BBHII", first, kind | marker << 7, self.sequence, timestamp & 0xFFFFFFFF, ssrc)
        self.sequence = (self.sequence + 1) & 0xFFFF
        return head + more + payload

    def survivable(self, payload, timestamp, marker):
        """Damages a packet such that the session may go on: kind, channel, bytes."""
        rng, stream = self.rng, self.args.streams[0]
        way = rng.random()
        if way < 0.62:
            damaged = jpeg_payload(rng, payload) if stream.name == "JPEG" else nal_payload(rng, payload, stream.h265)
            return f"payloads, {stream.name}", 0, self.rtp(damaged, timestamp, marker)
        if way < 0.66:
            self.sequence = (self.sequence + rng.choice((1, 2, 100, 0x7FFF))) & 0xFFFF
            return "RTP, sequence", 0, self.rtp(payload, timestamp, marker)
        if way < 0.70:
            other = rng.choice((timestamp - 1, timestamp + 90000, timestamp + 0x7FFFFFFF, timestamp - 0x7FFFFFFF, 0, rng.getrandbits(32)))
            return "RTP, timestamp", 0, self.rtp(payload, other, marker)
        if way < 0.74:
            return "RTP, marker", 0, self.rtp(payload, timestamp, not marker)
        if way < 0.77:
            return "RTP, payload type", 0, self.rtp(payload, timestamp, marker, kind=rng.choice((0, 26, 50, 72, 76, 96, 97, 127)))
        if way < 0.80:
            count = rng.randrange(16)
            return "RTP, sources", 0, self.rtp(payload, timestamp, marker, first=0x80 | count, more=rng.randbytes(4 * count))
        if way < 0.83:
            words = rng.choice((0, 1, 9, 300))
            return "RTP, extension", 0, self.rtp(payload, timestamp, marker, first=0x90, more=struct.pack(">HH", rng.getrandbits(16), words) + rng.randbytes(4 * words))
        if way < 0.86:
            padding = rng.choice((1, 4, 255))
            return "RTP, padding", 0, self.rtp(payload + bytes(padding - 1) + bytes([padding]), timestamp, marker, first=0xA0)
        if way < 0.93:
            return "RTCP, reports", 1, sender_report(rng, timestamp)
        if way < 0.96:
            return "RTP, twice", 0, self.rtp(payload, timestamp, False) + (b"" if self.udp else self.framed(0, self.rtp(payload, timestamp, marker)))
        if self.udp:
            # Over UDP, late and repeated packets are skipped.
            late = self.rtp(payload, timestamp, marker)
            self.sequence = (self.sequence - 1) & 0xFFFF
            return "RTP, late", 0, put(late, 2, struct.pack(">H", (self.sequence - rng.randrange(1, 3000)) & 0xFFFF))
        if way < 0.985:
            return "frames, channel", rng.randrange(2, 256), rng.randbytes(rng.choice((0, 1, 100, 1400)))
        # A server may also send requests.
        request = rng.choice((b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", b"GET_PARAMETER rtsp://127.0.0.1/ RTSP/1.0\r\nCSeq: 2\r\nContent-Length: 4\r\n\r\nabcd", b"ANNOUNCE * RTSP/1.0\r\nX: " + b"y" * 3000 + b"\r\n\r\n"))
        return "requests", None, request

    def deadly(self, payload, timestamp, marker):
        """Damages a packet such that the session mostly ends."""
        rng, good = self.rng, self.rtp(payload, timestamp, marker)
        way = rng.randrange(8 if self.udp else 12)
        if way == 0:
            return "RTP, version", 0, put(good, 0, bytes([rng.randrange(0x80)]))
        if way == 1:
            return "RTP, padding", 0, put(good, 0, b"\xa0")[:-1] + bytes([rng.choice((0, 255))])
        if way == 2:
            return "RTP, extension", 0, self.rtp(rng.randbytes(rng.randrange(9)), timestamp, marker, first=0x90)
        if way == 3:
            return "RTP, sources", 0, self.rtp(rng.randbytes(rng.randrange(9)), timestamp, marker, first=0x8F)
        if way == 4:
            return "RTP, source", 0, put(good, 8, rng.randbytes(4))
        if way == 5:
            return "RTP, short", 0, good[: rng.randrange(13)]
        if way in (6, 7):
            return "RTCP, reports", 1, bad_report(rng, timestamp)
        if way == 8:
            return "RTP, sequence", 0, put(good, 2, struct.pack(">H", (self.sequence - rng.randrange(2, 3000)) & 0xFFFF))
        if way == 9:
            framed = self.framed(0, good)
            return "frames, length", None, put(framed, 2, struct.pack(">H", rng.choice((0, 1, 0xFFFF, len(good) - 1, len(good) + 1)))) + framed * 9
        if way == 10:
            return "frames, noise", None, mutate(rng, self.framed(0, good)) * 3
        return "answers, not asked for", None, rng.choice((b"RTSP/1.0 200 OK\r\nCSeq: 9\r\n\r\n", b"RTSP/1.0 454 No\r\n\r\n", b"RTSP/1.0 200 OK\r\nContent-Length: 99999999\r\n\r\n"))

    def framed(self, channel, data):
        """Interleaved with RTSP."""
        return b"$" + struct.pack(">BH", channel, len(data)) + data

    def give(self, messages):
        """Sends a group of pairs: a channel (None for raw bytes), and bytes."""
        if self.udp:
            for channel, data in messages:
                if channel in (0, 1):
                    self.raw(data, channel)
            return
        data = b"".join(data if channel is None else self.framed(channel, data) for channel, data in messages)
        for piece in self.cut(data):
            self.send(piece)

    def units(self):
        """Plays. Overrides the server's, which keeps to a frame rate."""
        stream, rng, n = self.args.streams[0], self.rng, 0
        start = time.monotonic()
        # Those with damaged answers play shortly, so that many sessions begin.
        most = 40 if self.camera.startswith("answers") else float("inf")
        burst, kinds, genuine, size = [], collections.Counter(), 0, 0
        while not self.over.is_set():
            if self.is_calm != self.play_of.calm.is_set():
                return self.close()
            unit, timestamp = stream.units[n % len(stream.units)], 4294900000 + n * 9000
            n += 1
            if self.is_calm:
                time.sleep(max(0, start + n / CALM_FPS - time.monotonic()))
                for at, payload in enumerate(payloads := list(stream.payloads(unit))):
                    self.packet(payload, timestamp, at + 1 == len(payloads))
                continue
            damage = rng.choice((0, 0.5, 0.8, 1))
            payloads = list(stream.payloads(unit))
            if damage and rng.random() < 0.05:
                # Contents are swapped; the numbers stay in order.
                rng.shuffle(payloads)
            for at, payload in enumerate(payloads):
                marker = at + 1 == len(payloads)
                if rng.random() >= damage:
                    burst.append((0, self.rtp(payload, timestamp, marker)))
                    genuine += 1
                elif rng.random() < 1 / 4000:
                    # Sent alone, so that visiond has read everything before it.
                    self.give(burst)
                    self.tally.add(kinds, was_read := self.drained(), genuine)
                    burst, genuine, size = [], 0, rng.choice((1, 4, 16, 32))
                    kinds = collections.Counter()
                    kind, channel, data = self.deadly(payload, timestamp, marker)
                    self.give([(channel, data)])
                    self.drained()
                    self.tally.add({kind: 1}, was_read)
                else:
                    kind, channel, data = self.survivable(payload, timestamp, marker)
                    kinds[kind] += 1
                    most -= 1
                    burst += [(channel, data)] * (2 if self.udp and kind == "RTP, twice" else 1)
                if len(burst) > size:
                    self.give(burst)
                    self.tally.add(kinds, self.drained(), genuine)
                    burst, genuine, size = [], 0, rng.choice((1, 4, 16, 32))
                    kinds = collections.Counter()
                    if most <= 0 or self.over.is_set():
                        return self.close()


class Play:
    """The hostile server: listens, and gives each client a session."""

    def __init__(self, streams, seed, tally):
        self.streams, self.seed, self.tally, self.sockets = streams, seed, tally, Sockets()
        self.calm, self.lock, self.open = threading.Event(), threading.Lock(), set()
        self.calm.set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Gives each client a session."""
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Session(connection, self).start()

    def set_calm(self, calm):
        """Closes all sessions; those that follow are damaged, or not."""
        self.calm.set() if calm else self.calm.clear()
        with self.lock:
            for session in self.open:
                session.close()


# --- the daemon -------------------------------------------------------------------------------------------------------


class Daemon:
    """visiond with all cameras, and its status."""

    def __init__(self, binary, folder, config):
        self.folder, self.log = folder, folder / "visiond.log"
        (folder / "visiond.toml").write_text(config)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([binary, "run", folder / "visiond.toml"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def status(self):
        """Its state, or None where it does not answer."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(HANG_S)
        try:
            connection.sock.connect(str(self.folder / "http.sock"))
            connection.request("GET", "/api/v1/status")
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def children(self):
        """How many programs it runs."""
        count = 0
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                count += int(path.read_text(errors="replace").rpartition(")")[2].split()[1]) == self.process.pid
            except OSError:
                pass
        return count

    def has_ended(self):
        return self.process.poll() is not None

    def lines(self):
        return self.log.read_text(errors="replace").splitlines()

    def healthy(self):
        """The messages of the healthy camera."""
        try:
            with open(self.folder / "out.jsonl") as file:
                return [json.loads(line) for line in file if line.endswith("\n") and '"camera":"healthy"' in line]
        except FileNotFoundError:
            return []


def wait_until(what, done, daemon):
    """Waits for a condition; ends the test where it hangs."""
    until = time.monotonic() + HANG_S
    while not (found := done()):
        if daemon.has_ended():
            raise Failure(f"visiond ended by itself with status {daemon.process.returncode}")
        if time.monotonic() > until:
            raise Failure(f"{what}: not within {HANG_S} s")
        time.sleep(0.1)
    return found


class Failure(Exception):
    """The test cannot go on."""


def at_rest(daemon, play, first):
    """Plays without damage until every camera has frames again; returns what visiond uses then, and the CPU time of 8 healthy frames.

    Without a leak it uses no more than at the first rest, `first`, after all sessions and decoders of before have ended.
    """
    play.set_calm(True)
    before = {camera["name"]: camera["published"] for camera in wait_until("a status", daemon.status, daemon)["cameras"]}

    left = set(before)

    def all_play():
        for camera in (daemon.status() or {"cameras": []})["cameras"]:
            if camera["published"] >= before[camera["name"]] + 5:
                left.discard(camera["name"])
        return not left

    try:
        wait_until("five frames", all_play, daemon)
    except Failure as failure:
        raise Failure(f"{', '.join(sorted(left))} did not come back: {failure}") from failure

    def use():
        status = daemon.status()
        if not status:
            return None
        # With the whole status, which the report prints.
        return {**{key: status["process"][key] for key in ("resident_bytes", "threads", "descriptors")}, "children": daemon.children(), "status": status}

    counts = ("threads", "descriptors", "children")
    used = wait_until("a status", use, daemon)
    try:
        if first:
            used = wait_until("the use of before", lambda: (now := use()) and all(now[key] <= first[key] for key in counts) and now, daemon)
    except Failure:
        used = use() or used
    began = daemon.status()["process"]["cpu_seconds"]
    count = len(daemon.healthy())
    wait_until("messages of the healthy camera", lambda: len(daemon.healthy()) >= count + 8, daemon)
    return {**used, "cpu_s": daemon.status()["process"]["cpu_seconds"] - began}


def show(daemon, tally, began):
    """Prints a progress line."""
    status = daemon.status()
    if status:
        process = status["process"]
        print(
            f"{tally.total:9} messages, {sum(tally.sessions.values()):5} sessions, {time.monotonic() - began:5.0f} s, {process['resident_bytes'] / MIB:6.1f} MiB, {process['cpu_seconds']:6.1f} s of CPU, "
            f"{process['threads']:3} threads, {process['descriptors']:3} descriptors, {daemon.children():2} children, {len(daemon.lines()):6} lines",
            flush=True,
        )


def attack(daemon, play, messages, step, began):
    """Damages messages until this many were read."""
    play.set_calm(False)
    tally, shown = play.tally, play.tally.total // step
    seen, when = tally.total, time.monotonic()
    while tally.total < messages:
        if daemon.has_ended():
            raise Failure(f"visiond ended by itself with status {daemon.process.returncode}")
        if tally.total > seen:
            seen, when = tally.total, time.monotonic()
        elif time.monotonic() - when > HANG_S:
            raise Failure(f"visiond read no message for {HANG_S} s")
        if tally.total // step > shown:
            shown = tally.total // step
            show(daemon, tally, began)
        time.sleep(0.1)


def make_streams(folder):
    """A stream of each codec, and that of the healthy camera."""
    film = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x240:r=10:d=4", "-vf", "noise=alls=12"]
    h264 = ["-pix_fmt", "yuv420p", "-g", "10", "-bf", "2", "-c:v", "libx264", "-preset", "fast", "-f", "h264"]
    h265 = ["-pix_fmt", "yuv420p", "-c:v", "libx265", "-x265-params", "log-level=none:keyint=10:min-keyint=10:bframes=2", "-f", "hevc"]
    jpeg = ["-pix_fmt", "yuvj420p", "-q:v", "6", "-c:v", "mjpeg", "-huffman", "default", "-f", "mjpeg"]
    paths = {"h264": folder / "film.h264", "h265": folder / "film.h265", "jpeg": folder / "film.mjpeg", "healthy": folder / "healthy.h264"}
    # A B-frame arrives some frame intervals later, which is correct.
    healthy = ["-pix_fmt", "yuv420p", "-g", "10", "-bf", "0", "-c:v", "libx264", "-preset", "fast", "-f", "h264"]
    for codec, options in (("h264", h264), ("h265", h265), ("jpeg", jpeg), ("healthy", healthy)):
        subprocess.run([*film, *options, paths[codec]], stdin=subprocess.DEVNULL, check=True)
    return paths


def judge(daemon, tally, first, last, started):
    """Prints which guarantees hold. The healthy camera had `started` messages when all cameras played first."""
    log = daemon.lines()
    bugs = [line for line in log if PANIC in line or CAUGHT in line]
    yield "no panic", bugs and f"{len(bugs)} panics, such as {bugs[0]}"
    grown = last["resident_bytes"] - first["resident_bytes"]
    yield "memory is bounded", grown > MOST_GROWN and f"it grew by {grown / MIB:.1f} MiB from the first tenth to the end"
    for key in ("threads", "descriptors", "children"):
        yield f"{key} do not grow", last[key] > first[key] and f"from {first[key]} to {last[key]}"
    yield "no session is stuck", tally.wrong and "; ".join(tally.wrong[:5])
    yield "nothing runs in circles at rest", last["cpu_s"] > 2 * first["cpu_s"] + 0.5 and f"{first['cpu_s']:.2f} s of CPU at the first rest, {last['cpu_s']:.2f} s at the last"
    sessions = sum(tally.sessions.values())
    yield "the log stays readable", len(log) > 200 + MOST_LINES * sessions and f"{len(log)} lines for {sessions} sessions"
    [camera] = [camera for camera in last["status"]["cameras"] if camera["name"] == "healthy"]
    numbers = [message["sequence"] for message in daemon.healthy()[started:]]
    gaps = [(a, b) for a, b in zip(numbers, numbers[1:]) if b != a + 1]
    yield "the healthy camera lost no frame", (gaps or camera["errors"]) and f"{len(gaps)} gaps, such as {gaps[:3]}; {camera['errors']} errors, dropped {camera['dropped']}"
    daemon.process.send_signal(signal.SIGTERM)
    try:
        status = daemon.process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        status = f"none for {HANG_S} s"
    yield "it stops at SIGTERM", status != 0 and f"exit status {status}"


def report(daemon, tally, first, last, started, seconds):
    """Prints what happened."""
    print("\nmessages, of which visiond read")
    for kind in sorted(tally.sent):
        print(f"  {kind:34} {tally.sent[kind]:9} {tally.read[kind]:9}")
    unread = sum(tally.sent.values()) - tally.total
    print(f"  {'all':34} {sum(tally.sent.values()):9} {tally.total:9}; {unread} came when the session was over, or had no room; {tally.genuine} undamaged ones between")
    print("\ncamera               sessions  captured  published  errors  dropped")
    for camera in last["status"]["cameras"]:
        name = camera["name"]
        print(f"{name:20} {tally.sessions[name]:8} {camera['captured']:9} {camera['published']:10} {camera['errors']:7}  {({k: v for k, v in camera['dropped'].items() if v})}")
    minutes = seconds / 60
    lines = daemon.lines()
    levels = collections.Counter(line.split()[1] for line in lines if len(line.split()) > 1)
    print(f"\n{len(lines)} lines of log, {len(lines) / minutes / len(CAMERAS):.1f} a minute for each hostile camera: {dict(levels.most_common(4))}")
    caught = sorted({line.split("(", 1)[-1].split("): please")[0] for line in lines if CAUGHT in line})
    print(f"{sum(CAUGHT in line for line in lines)} lines report a caught panic: {'; '.join(caught) or 'none'}")
    for key in ("resident_bytes", "threads", "descriptors", "children", "cpu_s"):
        unit = MIB if key == "resident_bytes" else 1
        print(f"at rest, {key:15} {first[key] / unit:8.1f} after the first tenth {last[key] / unit:8.1f} at the end")
    print(f"peak of resident memory {last['status']['process']['peak_resident_bytes'] / MIB:.1f} MiB")
    ages = sorted(message["timings_us"]["total"] for message in daemon.healthy()[started:])
    print(f"healthy camera: {len(ages)} messages, age at publishing {ages[len(ages) // 2] / 1000:.1f} ms at p50, {ages[len(ages) * 99 // 100] / 1000:.1f} ms at p99, {ages[-1] / 1000:.1f} ms at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = os.environ.get("VISIOND_BIN", ROOT / "target/debug/visiond")
    parser.add_argument("--visiond", type=pathlib.Path, default=pathlib.Path(built), help="the program [VISIOND_BIN, else target/debug/visiond]")
    parser.add_argument("--messages", type=int, default=1_000_000, help="damaged messages that visiond must read [1000000]")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations [1]")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="put the log, the messages and the streams into this new folder, and keep them")
    parser.add_argument("--log-level", default="info", help="of the daemon; at debug it has the end of each session, and is too long to pass [info]")
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="visiond-mutations-") as folder:
        return run(args, (args.keep or pathlib.Path(folder)).resolve())


def run(args, folder):
    """The whole test; its exit status."""
    # The server's line for each request.
    server.say = lambda *words: None
    (folder / "login").touch(0o600)
    (folder / "login").write_text("gate:swordfish\n")
    paths = make_streams(folder)
    made = {"h264": server.Stream(str(paths["h264"])), "h265": server.Stream(str(paths["h265"])), "jpeg": server.JpegStream(str(paths["jpeg"]), 255)}
    streams = {
        name: argparse.Namespace(streams=[made[codec]], trick=None, address="127.0.0.1", user=None, status=None, moved=None, begin=0, lose=0, seed=1, at_end="loop", more=more, sets="sdp" if "sdp" in name or "answers" in name else "in-band")
        for name, codec, _, more in CAMERAS
    }
    tally = Tally()
    play = Play(streams, args.seed, tally)
    healthy = subprocess.Popen([sys.executable, HERE / "server.py", paths["healthy"], "--fps", str(HEALTHY_FPS), "--at-end", "loop", "--captured-ago", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    config = CONFIG.format(folder=folder, level=args.log_level, model=ROOT / "tests/vm/tiny.onnx", healthy=healthy.stdout.readline().split()[1])
    threading.Thread(target=healthy.stdout.read, daemon=True).start()
    for name, _, transport, more in CAMERAS:
        timeout = "2 s" if name.startswith("answers") else "10 s"
        config += CAMERA.format(name=name, port=play.port, transport=transport, timeout=timeout, more=more.format(folder=folder))
    daemon, began, results = Daemon(args.visiond.resolve(), folder, config), time.monotonic(), []
    try:
        wait_until("the start", lambda: daemon.status() and daemon.healthy(), daemon)
        at_rest(daemon, play, None)
        started = len(daemon.healthy()) - 1
        attack(daemon, play, args.messages // 10, max(args.messages // 10, 1), began)
        first = at_rest(daemon, play, None)
        attack(daemon, play, args.messages, max(args.messages // 10, 1), began)
        last = at_rest(daemon, play, first)
        seconds = time.monotonic() - began
        report(daemon, tally, first, last, started, seconds)
        results = list(judge(daemon, tally, first, last, started))
    except Failure as failure:
        results = [("the test came to its end", str(failure))]
        print("\n".join(daemon.lines()[-20:]))
    finally:
        daemon.process.kill()
        healthy.kill()
    print(f"\nseed {args.seed}")
    for what, wrong in results:
        print(f"{'FAIL' if wrong else 'ok  '}  {what}" + (f": {wrong}" if wrong else ""))
    failed = sum(bool(wrong) for _, wrong in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
