#!/usr/bin/env python3
"""A small RTSP server for tests: it serves the access units of an H.264 or H.265 file (Annex B), or the pictures of an MJPEG file,
as RTP, over TCP or UDP.

    server.py FILE [--fps 25] [--at-end hold|close|loop] [--port N] [--user U --password P] [--auth digest|basic] ...

Prints `port N` when it listens, then a line for each request, with `login` where one was right. With --trick it misbehaves; see
TRICKS. It needs nothing but Python. Every client gets the file from its start.
"""

import argparse
import base64
import hashlib
import os
import random
import re
import socket
import struct
import sys
import threading
import time

TRICKS = {
    "silent": "PLAY is answered, and nothing follows",
    "mute": "nothing is ever answered",
    "headers": "the first answer has header lines without end",
    "line": "the first answer has one header without end",
    "body": "the first answer has a body without end",
    "sdp": "the description is noise",
    "vp8": "the description offers VP8 alone",
    "endless": "behind PLAY comes one access unit without end",
    "text": "behind PLAY comes the head of an answer without end",
    "lengths": "packets lie about the lengths in them, between good units",
    "noise": "packets hold noise, between good units",
    "backwards": "timestamps go back with each unit",
    "gone": "the file is played once, and no connection is accepted any more",
    "alone": "no connection is accepted beside the first",
    "farewell": "TEARDOWN is answered with a body without end",
    "missing": "every third unit lacks its second packet",
    "spoilt": "every unit lacks its second packet",
    "spoils": "as spoilt, once the first file was sent",
    "asks": "a request of the server comes before each unit",
    "session": "the session's number ends with a blank",
    "ssrc": "each key frame begins another SSRC",
    "count": "each key frame begins another SSRC and another count of packets",
    "restart": "the count of packets begins at 0 every seven units",
    "swap": "of two packets, the second comes first",
    "shuffle": "of three packets, the first comes last",
    "double": "each packet comes twice",
    "again": "each packet comes once more, two packets later",
    "junk": "bytes that are no packet come between packets",
    "muxed": "sender reports come in the channel of packets",
    "odd": "packets come in the channel of reports",
    "deaf": "what keeps the session is not answered",
    "numbers": "what keeps the session is answered with another CSeq",
    "ages": "a nonce serves two requests",
    "shuts": "the connection is closed after each 401",
    "bodiless": "a 401 announces a body that does not come",
    "abrupt": "both: the connection is closed after a 401 and a part of its body",
    "drops": "the connection is closed after a 401, and in place of one to a request with a login",
    "stale": "what keeps the session is answered with 401 and stale=true, every second time",
}
# These have sessions of a second, so that they are kept every half.
SHORT = ("deaf", "numbers", "ages", "stale")
JUNK = (b"\r\n", b"\0" * 4, b"X", b"RTSP", b"a=b:c\r\n", b"$", b"\xff" * 700)
MOST_BYTES = 1400


def say(*words):
    print(*words, flush=True)


def interleaved(data, channel=0):
    """A packet as TCP carries it."""
    return b"$" + struct.pack(">BH", channel, len(data)) + data


class JpegStream:
    """The images of a file of consecutive JPEGs, packed as in RFC 2435. Each needs the standard Huffman tables.

    `q` is what the packets have as Q: 255 has tables in each picture, 128 to 254 in the first one, and from 1 to 99 in none: the
    file must have been made with that quality.
    """

    h265, sets, name, payload_type, rtpmap = False, [], "JPEG", 26, None

    def __init__(self, path, q):
        data, self.q, self.units, at = open(path, "rb").read(), q, [], 0
        while at < len(data):
            assert data[at : at + 2] == b"\xff\xd8", f"no picture at {at}"
            end = data.index(b"\xff\xd9", data.index(b"\xff\xda", at)) + 2
            self.units.append([(len(self.units), data[at:end])])
            at = end

    def is_set(self, nal):
        return False

    def payloads(self, unit):
        [(number, picture)] = unit
        at, tables, restart, kind = 2, {}, None, None
        while picture[at + 1] != 0xDA:
            (length,) = struct.unpack(">H", picture[at + 2 : at + 4])
            marker, body = picture[at + 1], picture[at + 4 : at + 2 + length]
            if marker == 0xDB:
                while body:
                    assert body[0] < 16, "a table of 16 bits"
                    tables[body[0]], body = body[1:65], body[65:]
            elif marker == 0xC0:
                height, width, samplings = *struct.unpack(">HH", body[1:5]), body[7::3]
                kind = {(0x21, 0x11, 0x11): 0, (0x22, 0x11, 0x11): 1}[tuple(samplings)]
                of_component = body[8::3]
            elif marker == 0xDD:
                (restart,) = struct.unpack(">H", body)
            at += 2 + length
        (length,) = struct.unpack(">H", picture[at + 2 : at + 4])
        scan = picture[at + 2 + length :]
        for offset in range(0, len(scan), MOST_BYTES):
            head = struct.pack(">IBBBB", offset, kind + (64 if restart else 0), self.q, width // 8, height // 8)
            if restart:
                head += struct.pack(">HH", restart, 0xFFFF)
            if self.q >= 128 and offset == 0:
                data = tables[of_component[0]] + tables[of_component[1]] if self.q == 255 or number == 0 else b""
                head += struct.pack(">HH", 0, len(data)) + data
            yield head + scan[offset : offset + MOST_BYTES]


class Stream:
    """The access units of a file: lists of NAL units, in the order of decoding."""

    def __init__(self, path):
        self.h265 = path.endswith((".h265", ".hevc"))
        self.name, self.payload_type = "H265" if self.h265 else "H264", 96
        self.rtpmap = f"a=rtpmap:96 {self.name}/90000"
        data = open(path, "rb").read()
        starts = [m.start() for m in re.finditer(b"\x00\x00\x01", data)]
        nals = [data[a + 3 : b].rstrip(b"\x00") for a, b in zip(starts, starts[1:] + [len(data)])]
        self.units, unit, has_picture = [], [], False
        for nal in nals:
            picture = self.is_picture(nal)
            if has_picture and (not picture or nal[2 if self.h265 else 1] & 0x80):
                self.units.append(unit)
                unit, has_picture = [], False
            unit.append(nal)
            has_picture |= picture
        self.units.append(unit)
        self.sets = [nal for nal in self.units[0] if self.is_set(nal)]

    def kind(self, nal):
        return (nal[0] >> 1) & 0x3F if self.h265 else nal[0] & 0x1F

    def is_picture(self, nal):
        return self.kind(nal) < 32 if self.h265 else 1 <= self.kind(nal) <= 5

    def is_set(self, nal):
        return self.kind(nal) in ((32, 33, 34) if self.h265 else (7, 8))

    def payloads(self, unit):
        """RTP payloads: small units before the frame together, large ones in pieces."""
        front = [nal for nal in unit if not self.is_picture(nal)]
        if len(front) > 1:
            head = b"\x60\x01" if self.h265 else b"\x78"
            yield head + b"".join(struct.pack(">H", len(nal)) + nal for nal in front)
        else:
            yield from front
        for nal in unit:
            if not self.is_picture(nal):
                continue
            if len(nal) <= MOST_BYTES:
                yield nal
                continue
            size = 2 if self.h265 else 1
            kind, rest = self.kind(nal), nal[size:]
            head = bytes([(nal[0] & 0x81) | 49 << 1, nal[1]]) if self.h265 else bytes([(nal[0] & 0xE0) | 28])
            for at in range(0, len(rest), MOST_BYTES):
                flags = (0x80 if at == 0 else 0) | (0x40 if at + MOST_BYTES >= len(rest) else 0)
                yield head + bytes([flags | kind]) + rest[at : at + MOST_BYTES]


class Client(threading.Thread):
    def __init__(self, connection, args):
        super().__init__(daemon=True)
        self.connection, self.args = connection, args
        self.lock, self.over = threading.Lock(), threading.Event()
        # In the lower half: just below 65,536, a count that starts again at 0 would look like a few lost packets.
        self.udp, self.sequence, self.nonce = None, random.randrange(1 << 15), os.urandom(8).hex()
        self.ssrc, self.logins, self.kept, self.sent, self.has_begun = 7, 0, 0, [], False
        # Options may come later.
        self.luck = random.Random(args.seed if args else None)

    def run(self):
        try:
            self.serve()
        except (OSError, ValueError):
            pass
        self.over.set()
        self.connection.close()

    def send(self, data):
        with self.lock:
            self.connection.sendall(data)

    def serve(self):
        pending = b""
        while True:
            # Reports of the client's come in packets.
            while pending[:1] == b"$" or b"\r\n\r\n" not in pending:
                if pending[:1] == b"$" and len(pending) >= 4 and len(pending) >= 4 + int.from_bytes(pending[2:4], "big"):
                    pending = pending[4 + int.from_bytes(pending[2:4], "big") :]
                    continue
                more = self.connection.recv(65536)
                if not more:
                    return
                pending += more
            head, pending = pending.split(b"\r\n\r\n", 1)
            lines = head.decode().split("\r\n")
            method, uri, _ = lines[0].split(" ")
            headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
            self.answer(method, uri, headers)

    def answer(self, method, uri, headers):
        trick = self.args.trick
        if trick == "mute":
            return
        if trick in ("headers", "line", "body"):
            start = f"RTSP/1.0 200 OK\r\nCSeq: {headers['cseq']}\r\n"
            start += {"headers": "", "line": "Server: ", "body": "Content-Type: application/sdp\r\nContent-Length: 999999999\r\n\r\n"}[trick]
            self.send(start.encode())
            chunk = {"headers": b"X-A: b\r\n" * 8000, "line": b"a" * 64000, "body": b"a=b:c\r\n" * 9000}[trick]
            return self.flood(chunk)
        if trick == "farewell" and method == "TEARDOWN":
            self.send(f"RTSP/1.0 200 OK\r\nCSeq: {headers['cseq']}\r\nContent-Length: 999999999\r\n\r\n".encode())
            return self.flood(b"a" * 64000)
        reply = {"CSeq": headers["cseq"]}
        is_kept = "session" in headers and method in ("OPTIONS", "GET_PARAMETER")
        is_allowed = not self.args.user or self.is_allowed(method, headers.get("authorization"))
        is_stale = is_allowed and trick == "stale" and is_kept and self.kept % 2 == 0
        self.kept += is_kept
        if is_stale or is_allowed and trick == "ages" and self.logins % 2 == 1:
            self.nonce = os.urandom(8).hex()
        self.logins += is_allowed
        if not is_allowed or is_stale:
            say(method, "refused")
            if trick == "drops" and "authorization" in headers:
                return self.connection.shutdown(socket.SHUT_RDWR)
            realm = 'realm="test"'
            digest = f'Digest {realm}, nonce="{self.nonce}", qop="auth"' + (", stale=true" if is_stale else "")
            reply["WWW-Authenticate"] = digest if self.args.auth == "digest" else f"Basic {realm}"
            if trick in ("bodiless", "abrupt"):
                reply["Content-Length"] = "300"
            self.reply(401, reply)
            if trick == "abrupt":
                self.send(b"<html>")
            if trick in ("shuts", "abrupt", "drops"):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        is_udp = "client_port" in headers.get("transport", "")
        say("keeps" if is_kept else method, *(["udp"] if is_udp else []), *(["login"] if self.args.user else []))
        if is_kept and trick == "deaf":
            return
        if is_kept and trick == "numbers":
            reply["CSeq"] = "999"
        if method == "DESCRIBE":
            if self.args.status:
                return self.reply(self.args.status, reply)
            if self.args.moved:
                return self.reply(302, reply | {"Location": self.args.moved})
            reply |= {"Content-Type": "application/sdp", "Content-Base": uri.rstrip("/") + "/"}
            return self.reply(200, reply, self.description())
        if method == "SETUP":
            transport = headers["transport"]
            ports = re.search(r"client_port=(\d+)-(\d+)", transport)
            if ports:
                self.udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
                self.udp[0].bind((self.args.address, 0))
                port = self.udp[0].getsockname()[1]
                self.udp[1].bind((self.args.address, port + 1))
                for end, to in zip(self.udp, ports.groups()):
                    end.connect((self.connection.getpeername()[0], int(to)))
                transport += f";server_port={port}-{port + 1}"
            reply |= {"Transport": transport, "Session": {"session": "abc ;timeout=60"}.get(trick, f"abc;timeout={1 if trick in SHORT else 60}")}
        self.reply(200, reply)
        if method == "PLAY":
            threading.Thread(target=self.play, daemon=True).start()
        if method == "TEARDOWN":
            self.over.set()

    def reply(self, status, headers, body=b""):
        if body:
            headers["Content-Length"] = str(len(body))
        lines = [f"RTSP/1.0 {status} {'OK' if status == 200 else 'No'}"] + [f"{k}: {v}" for k, v in headers.items()]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def is_allowed(self, method, authorization):
        user, password = self.args.user, self.args.password
        scheme, _, rest = (authorization or "").partition(" ")
        if self.args.auth == "basic":
            return scheme == "Basic" and base64.b64decode(rest).decode() == f"{user}:{password}"
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', rest))
        md5 = lambda *parts: hashlib.md5(":".join(parts).encode()).hexdigest()
        first, second = md5(user, "test", password), md5(method, given.get("uri", ""))
        expected = md5(first, self.nonce, given.get("nc", ""), given.get("cnonce", ""), "auth", second)
        return scheme == "Digest" and given.get("username") == user and given.get("response") == expected

    def description(self):
        stream, trick = self.args.streams[0], self.args.trick
        if trick == "sdp":
            return bytes(random.Random(1).randrange(256) for _ in range(3000))
        lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=test", "t=0 0", "a=control:*"]
        if trick == "vp8":
            return "\r\n".join(lines + ["m=video 0 RTP/AVP 97", "a=rtpmap:97 VP8/90000", "a=control:v", ""]).encode()
        lines += [f"m=video 0 RTP/AVP {stream.payload_type}", *([stream.rtpmap] if stream.rtpmap else []), "a=control:v"]
        if self.args.sets != "in-band" and stream.sets:
            sets = [base64.b64encode(one).decode() for one in stream.sets]
            if stream.h265:
                sets = ";".join(f"sprop-{kind}={one}" for kind, one in zip(("vps", "sps", "pps"), sets))
                lines.append(f"a=fmtp:96 {sets}")
            else:
                lines.append(f"a=fmtp:96 packetization-mode=1;sprop-parameter-sets={','.join(sets)}")
        return "\r\n".join(lines + [""]).encode()

    def packet(self, payload, timestamp, marker=False):
        head = struct.pack(">BBHII", 0x80, self.args.streams[0].payload_type | marker << 7, self.sequence, timestamp & 0xFFFFFFFF, self.ssrc)
        self.sequence = (self.sequence + 1) & 0xFFFF
        if self.luck.random() < self.args.lose:
            return
        packet, trick = head + payload, self.args.trick
        # Those that are held back, and their order.
        self.sent.append(packet)
        order = {"swap": (1, 0), "shuffle": (1, 2, 0)}.get(trick if self.has_begun else None, (0,))
        # The first packet is where the client begins.
        self.has_begun = True
        if trick == "again":
            self.raw(packet, 0)
        if len(self.sent) < (3 if trick == "again" else len(order)):
            return
        if trick in ("swap", "shuffle") and not self.udp:
            # At once: where the machine holds up this program between two packets, the first would count as lost.
            self.send(b"".join(map(interleaved, (self.sent[at] for at in order))))
            order = ()
        for at in order:
            if trick == "junk":
                self.send(random.choice(JUNK))
            for _ in range(2 if trick == "double" else 1):
                self.raw(self.sent[at], 1 if trick == "odd" else 0)
        self.sent = self.sent[1:] if trick == "again" else []

    def flush(self):
        """Sends the packets that were held back."""
        for packet in self.sent:
            self.raw(packet, 0)
        self.sent = []

    def raw(self, data, channel):
        if self.udp:
            try:
                self.udp[channel].send(data)
            except OSError:
                # The client is gone, or the cable is unplugged: a camera keeps sending.
                pass
        else:
            self.send(interleaved(data, channel))

    def flood(self, chunk):
        sent = 0
        while sent < self.args.most_sent and not self.over.is_set():
            self.send(chunk)
            sent += len(chunk)
        if sent >= self.args.most_sent:
            say("flooded")

    def play(self):
        try:
            self.units()
        except OSError:
            pass
        if self.args.trick == "gone":
            self.args.listener.shutdown(socket.SHUT_RDWR)
        if self.args.at_end == "close":
            self.connection.shutdown(socket.SHUT_RDWR)

    def units(self):
        args, trick = self.args, self.args.trick
        if trick == "silent":
            return
        if trick == "text":
            self.send(b"RTSP/1.0 200 OK\r\n")
            return self.flood(b"X-A: b\r\n" * 8000)
        if trick == "endless":
            piece, sent = b"\x41" * 60000, 0
            while sent < args.most_sent and not self.over.is_set():
                self.packet(b"\x7c" + (b"\x85" if sent == 0 else b"\x05") + piece, 1)
                sent += len(piece)
            if sent >= args.most_sent:
                say("flooded")
            return
        noise = random.Random(1)
        start, base, n = time.monotonic(), 4294900000, 0
        while True:
            for stream in args.streams:
                presentations = args.presentations or range(len(stream.units))
                first, begin = n, args.begin if n == 0 else 0
                for unit, presentation in list(zip(stream.units, presentations))[begin:]:
                    # A delay would look like silence, a catch-up like a burst: neither matters to a test.
                    time.sleep(max(0, start + n / args.fps - time.monotonic()))
                    if self.over.is_set():
                        return
                    timestamp = base + (first + presentation) * round(90000 / args.fps)
                    if trick == "backwards":
                        timestamp = base - n * 90000
                    if n % 10 == 0:
                        captured = time.time() - args.captured_ago + 2208988800
                        ntp = int(captured * (1 << 32)) & ((1 << 64) - 1)
                        channel = 0 if trick in ("muxed", "odd") else 1
                        self.raw(struct.pack(">BBHIQIII", 0x80, 200, 6, self.ssrc, ntp, timestamp & 0xFFFFFFFF, 0, 0), channel)
                    is_key = any(stream.is_set(nal) for nal in unit)
                    if trick in ("ssrc", "count") and is_key:
                        self.ssrc += 1
                    if trick == "count" and is_key:
                        # Not a sequence number a few packets later.
                        self.sequence = (self.sequence + random.randrange(1 << 10, 1 << 15)) & 0xFFFF
                    if trick == "restart" and n % 7 == 6:
                        self.sequence = 0
                    if trick == "lengths":
                        for payload in (b"\x78\xff\xff\x67", b"\x7c", b"\x7c\x05\x00", b"\x78\x00", b"\x7c\x85" + b"\0" * 99, b"\x1c"):
                            self.packet(payload, timestamp - 9)
                    if trick == "asks":
                        self.send(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n")
                    if trick == "noise":
                        for _ in range(5):
                            self.packet(noise.randbytes(noise.randrange(1, 300)), timestamp - 9, noise.random() < 0.3)
                    shown = [nal for nal in unit if args.sets != "sdp" or not stream.is_set(nal)]
                    payloads = list(stream.payloads(shown))
                    for at, payload in enumerate(payloads):
                        is_spoilt = trick == "spoilt" or trick == "spoils" and n >= len(args.streams[0].units)
                        if at == 1 and (is_spoilt or trick == "missing" and n % 3 == 2):
                            self.sequence = (self.sequence + 1) & 0xFFFF
                            continue
                        self.packet(payload, timestamp, at + 1 == len(payloads))
                    n += 1
                    # A camera is idle between its frames.
                    if trick != "again":
                        self.flush()
            if args.at_end != "loop":
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", help="served one after the other")
    parser.add_argument("--fps", type=float, default=25)
    parser.add_argument("--at-end", choices=("hold", "close", "loop"), default="hold")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--user")
    parser.add_argument("--password")
    parser.add_argument("--auth", choices=("digest", "basic"), default="digest")
    parser.add_argument("--sets", choices=("in-band", "sdp", "both"), default="in-band", help="where parameter sets are")
    parser.add_argument("--jpeg-q", type=int, default=255, help="Q of MJPEG files' packets")
    parser.add_argument("--presentations", help="when each unit is shown: numbers with commas")
    parser.add_argument("--captured-ago", type=float, default=0.1, help="what sender reports say, in seconds")
    parser.add_argument("--status", type=int, help="answer DESCRIBE with it")
    parser.add_argument("--moved", metavar="URL", help="answer DESCRIBE with a redirect there")
    parser.add_argument("--begin", type=int, default=0, help="leave out so many units at the start")
    parser.add_argument("--lose", type=float, default=0, help="lose this share of the video's packets, over TCP too")
    parser.add_argument("--seed", type=int, default=1, help="decides which packets are lost, and what else it draws")
    parser.add_argument("--trick", choices=TRICKS)
    parser.add_argument("--most-sent", type=int, default=400 << 20)
    args = parser.parse_args()
    # Which sequence numbers and noise it sends.
    random.seed(args.seed)
    is_jpeg = lambda path: path.endswith((".mjpeg", ".jpg"))
    args.streams = [JpegStream(path, args.jpeg_q) if is_jpeg(path) else Stream(path) for path in args.files]
    args.presentations = [int(number) for number in args.presentations.split(",")] if args.presentations else None
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((args.address, args.port))
    server.listen()
    say("port", server.getsockname()[1])
    args.listener = server
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            # It stops listening, but keeps serving its clients.
            threading.Event().wait()
        if args.trick == "alone":
            server.close()
        say("connected")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(connection, args)
        client.start()
        if args.trick == "alone":
            client.join()
            return


if __name__ == "__main__":
    sys.exit(main())
