"""The fuzz targets' first inputs: files of this repository and data of real peers, by target; and words to insert.

tests/fuzz/run writes them into files. Inputs that fuzzing found in addition are in tests/fuzz/corpus.
"""

import base64
import hashlib
import io
import json
import re
import struct
import tarfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(*patterns):
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def config():
    # Only the keys of the file with every key.
    lines = (ROOT / "config/visiond.toml").read_text().splitlines()
    every_key = "\n".join(line.lstrip("#") for line in lines if not line.startswith("# ") and line not in ("", "#"))
    return [*files("config/demo.toml", "config/examples/*.toml", "systemd/deb/*.toml"), every_key.encode()]


def jpeg():
    lines = (ROOT / "kernels/src/jpeg/golden.txt").read_text().splitlines()
    return [bytes.fromhex(line.split()[4]) for line in lines]


def mjpeg():
    """Answers with the images of the JPEG target, in parts, chunked, and back to back. The first byte cuts them."""
    small = sorted(jpeg(), key=len)[:3]
    parts = b"".join(b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n" % (len(one), one) for one in small)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in small) + b"0\r\n\r\n"
    thumbnail = small[1][:2] + b"\xff\xe1" + (len(small[0]) + 2).to_bytes(2, "big") + small[0] + small[1][2:]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n"
    return [b"\xff" + head + b"\r\n" + parts, b"\x10" + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
            b"\x03HTTP/1.0 200 OK\nContent-Length: 9999\n\n" + thumbnail + small[2][:-2] + b"\n--b\n" + thumbnail]  # fmt: skip


def onnx():
    return files("tests/vm/*.onnx", "tests/gpu/*.onnx", "daemon/cli/src/selftest/*.onnx", "tests/golden/*.onnx")


def plan():
    trt = lambda magic: magic + bytes(12) + struct.pack("<Q", 64) + bytes([10, 3, 0, 1]) + bytes(4) + struct.pack("<Q", 9) + bytes(24)
    engines = [trt(magic) for magic in (b"ftrt", b"ptrt", b"vtrt")]
    metadata = json.dumps({"names": {"0": "person"}, "stride": 32, "task": "detect"}).encode()
    wrapped = struct.pack("<I", len(metadata)) + metadata + engines[0]
    sidecar = {
        "visiond": "0.1.0", "built_at": "2026-01-31T12:00:00Z", "build_seconds": 12.5, "engine": {"sha256": "ab"},
        "tensorrt": "TensorRT 10.3.0", "cuda": "12.6", "gpu": "Orin", "sm": "8.7", "compute_capabilities": [],
        "options": ["--fp16"], "onnx": {"path": "net.onnx", "sha256": "cd"}, "profiles": [{"images": "1x3x640x640"}],
        "precision": "fp16", "metadata": {"names": "{0: 'person'}"},
    }  # fmt: skip
    return [*engines, wrapped, json.dumps(sidecar).encode()]


def ffprobe():
    stream = {
        "codec_name": "h264", "width": 640, "height": 360, "pix_fmt": "yuv420p", "avg_frame_rate": "30000/1001",
        "r_frame_rate": "30/1", "nb_frames": "75", "duration": "2.5", "color_space": "bt709", "color_range": "pc",
        "disposition": {"attached_pic": 0}, "side_data_list": [{"rotation": -90}], "tags": {"rotate": "180"},
    }  # fmt: skip
    answer = lambda *streams: {"program_version": {"version": "5.1.9"}, "streams": streams, "format": {"duration": "2.5", "format_name": "avi"}}
    answers = [answer(stream), answer({**stream, "disposition": {"attached_pic": 1}}), answer(), {**answer(stream), "program_version": {}}]
    return [json.dumps(one).encode() for one in answers]


def http():
    get = lambda path, *lines: "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()
    def post(path, body, *lines):
        return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *lines, "", body]).encode()
    paths = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    changes = json.dumps({"path": "/etc/visiond/visiond.toml", "text": (ROOT / "config/demo.toml").read_text()})
    return [
        *(get(path.replace("{name}", "kestrel-7f3d")) for path in paths),
        get("/api/v1/log?after=3"), get("/api/v1/stream?camera=a,b&only_detections=true", "Accept: text/event-stream"),
        get("/", "Cookie: a=b; visiond_session=c", "Accept-Encoding: gzip", "Origin: http://localhost"),
        get("/metrics", "Authorization: Bearer fuzzing", "Connection: close"), get("/healthz") + get("/readyz"),
        post("/login", "token=fuzzing&x=%20", "Content-Type: application/x-www-form-urlencoded"),
        post("/api/v1/changes", changes, "Content-Type: application/json"), post("/api/v1/reload", ""),
        post("/api/v1/trace?seconds=1", ""),
        b"POST /api/v1/changes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\n{\"a\r\n0\r\n\r\n",
        b"HEAD /healthz HTTP/1.0\r\n\r\n",
    ]  # fmt: skip


def websocket():
    def frame(opcode, payload, final=True):
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
        return bytes([opcode | 0x80 * final]) + length + b"mask" + bytes(byte ^ b"mask"[at % 4] for at, byte in enumerate(payload))
    text, ping, close = frame(1, b"hello"), frame(9, b"x"), frame(8, struct.pack(">H", 1000) + b"bye")
    return [text + close, ping + text + close, frame(1, b"a", False) + ping + frame(0, b"b") + close, frame(2, bytes(4096)) + close]


def mqtt():
    # The first byte chooses the options, PAUSE lets the sink speak: see `fuzz::mqtt` in daemon/publish.
    pause = b"\xff"
    acks = lambda kind: b"".join(bytes([kind, 2, 0, number]) for number in range(1, 9))
    word = lambda text: struct.pack(">H", len(text)) + text
    publish = lambda topic, body: bytes([0x31, 2 + len(topic) + 1 + len(body)]) + word(topic) + b"\0" + body
    limits = bytes([0x20, 11, 0, 0, 8, 0x21, 0, 20, 0x27, 0, 0, 16, 0])
    accepted, accepted_3, refused = b"\x20\x03\0\0\0", b"\x20\x02\0\0", b"\x20\x03\0\x87\0"
    disconnect = b"\xe0\x02\x8e\0"
    discovery = publish(b"homeassistant/device/visiond-gate-door/config", b'{"o":{"name":"visiond"},"dev":{"ids":["visiond-gate"]}}')
    return [
        b"\x02" + accepted + pause + acks(0x40), b"\x03" + accepted_3 + pause + acks(0x40),
        b"\x04" + accepted + pause + acks(0x50) + pause + acks(0x70), b"\x02" + limits + pause + acks(0x40) + pause + disconnect,
        b"\x02" + refused, b"\x02" + accepted + pause + b"\x90\x04\0\x01\0\0" + discovery + b"\xd0\0" + pause + acks(0x40),
        b"\x02" + accepted + pause + b"\x40\x04\0\x01\x87\0" + b"\xe0\x02\x8b\0",
    ]  # fmt: skip


def nats():
    # The first byte chooses the options, PAUSE lets the sink speak, @R is where it waits for an answer: see `fuzz::nats`.
    pause = b"\xff"
    info = {"server_id": "A", "version": "2.10.0", "host": "0.0.0.0", "port": 4222, "headers": True, "max_payload": 1048576, "proto": 1, "jetstream": True}
    hello = b"INFO " + json.dumps(info).encode() + b"\r\n" + pause + b"PONG\r\n"
    def answer(body, sid=1):
        body = json.dumps(body).encode()
        return b"MSG @R %d %d\r\n%s\r\n" % (sid, len(body), body)
    missing = {"type": "io.nats.jetstream.api.v1.stream_info_response", "error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
    config = {"name": "visiond", "subjects": ["visiond.*.*.detections"], "retention": "limits", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
              "max_age": 0, "max_msg_size": -1, "storage": "file", "discard": "old", "num_replicas": 1, "duplicate_window": 120000000000}
    state = {"messages": 0, "bytes": 0, "first_seq": 0, "first_ts": "0001-01-01T00:00:00Z", "last_seq": 0, "last_ts": "0001-01-01T00:00:00Z", "consumer_count": 0}
    found = {"type": "io.nats.jetstream.api.v1.stream_info_response", "config": config, "created": "2026-01-01T00:00:00Z", "state": state}
    acks = [answer({"stream": "visiond", "seq": number}) for number in range(1, 5)]
    nobody = b"HMSG @R 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    return [
        b"\x00" + hello + pause + pause.join(acks), b"\x00" + hello + pause + b"".join(acks), b"\x01" + hello + pause + answer(found) + pause + b"".join(acks),
        b"\x02" + hello + pause + answer(missing) + pause + answer(found) + pause + b"".join(acks), b"\x00" + hello + pause + nobody,
        b"\x00" + hello + pause + b"-ERR 'Permissions Violation for Publish to \"x\"'\r\nPING\r\n", b"\x00" + b"-ERR 'Authorization Violation'\r\n",
        b"\x00" + hello + pause + answer({"error": {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}}),
    ]  # fmt: skip


def spool():
    def record(number, line=b"{}"):
        body = struct.pack("<QBH", number, 2, 4) + b"id" + b"door" + line
        checked = struct.pack("<I", len(body)) + body
        return b"\xf5vsr" + struct.pack("<I", zlib.crc32(checked)) + checked
    def cursor(number):
        head = b"vsr ack\n" + struct.pack("<Q", number)
        return head + struct.pack("<I", zlib.crc32(head))
    part = lambda content: struct.pack("<H", len(content)) + content
    segment = lambda first, count: b"visiond spool 1\n" + b"".join(map(record, range(first, first + count)))
    # An even first byte: a cursor and segments, each after its length. An odd one: up to three faults.
    whole = [b"\0", part(cursor(2)), part(segment(1, 4)), part(segment(5, 4)), part(segment(9, 2))]
    last = [b"\0", part(cursor(0)), part(b"visiond spool 1\n" + record(2**64 - 1))]
    damage = [b"\1" + struct.pack("<BHBBB", file, at, kind, 20, 3) for file, at, kind in [(0, 3, 0), (1, 50, 1), (2, 70, 2), (3, 90, 3)]]
    return [b"".join(whole), b"".join(whole[:3]), b"".join(last), b"\0" + part(cursor(2**64 - 1)), *damage]


def ultralytics():
    names = str({number: f"c{number}" for number in range(3)})
    text = lambda shapes, **pairs: "\n".join([shapes, "author=Ultralytics", *(f"{key}={value}" for key, value in pairs.items())]).encode()
    common = {"names": names, "stride": 32, "imgsz": "[480, 640]"}
    return [
        text("1x7x8400", task="detect", description="Ultralytics YOLO11n model trained on coco.yaml", **common),
        text("1x300x6", task="detect", end2end=True, args="{'batch': 1, 'nms': True}", **common),
        text("1x58x8400", task="pose", kpt_shape="[17, 3]", **common), text("1x39x8400 1x32x160x160", task="segment", **common),
        text("1x3", task="classify", channels=1, **common), text("1x25200x8", names="['a', \"b\"]", stride="32"),
        text("1x300x7", task="detect", description="Ultralytics RT-DETR", **common),
    ]  # fmt: skip


def redact():
    return [
        line.encode()
        for line in ["rtsp://admin:p@ss@10.0.0.1:554/1", "https://host/a.m3u8?token=abc&x=1\n--password", "Authorization: Basic YTpi\n-u admin:pw",
                     "a: b\n{\"apikey\": \"x\"}", "url=http%3A%2F%2Fu%3Ap%40h\n'", "[camera]\nkey = \"/etc/key\"", "--streamKey 'a b'\n\\\"", "MQTT_PASSWORD='"]
    ]  # fmt: skip


def bundle():
    """Archives of one file, of several, and one whose manifest names a folder above; the first byte says that they are not compressed. An index."""
    signature = "untrusted comment: signature\n" + base64.b64encode(b"ED" + bytes(72)).decode() + "\ntrusted comment: street 7\n" + base64.b64encode(bytes(64)).decode() + "\n"

    def archive(names, *more):
        listed = "".join(f'[[file]]\npath = "{name}"\nbytes = 3\nsha256 = "{hashlib.sha256(b"abc").hexdigest()}"\n' for name in names)
        manifest = f'format = 1\nname = "street"\nversion = 7\n{"".join(more)}[[model]]\nfile = "{names[0]}"\n{listed}'
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in [("manifest.toml", manifest.encode()), ("manifest.toml.minisig", signature.encode()), *((name, b"abc") for name in names)]:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return b"\1" + out.getvalue()

    hashes = f'sha256 = "{"0" * 64}"\nparts = ["{"1" * 64}", "{"2" * 64}"]\n'
    index = f'format = 1\nname = "street"\nversion = 7\nfile = "7.visiond"\nbytes = 9000000\n{hashes}'
    proof = '[proof]\nreference = "r.json"\npictures = ["p/a.png"]\nmin_iou = 0.9\n'
    return [archive(["m.onnx"], 'card = "m.onnx"\n'), archive(["m.onnx", "r.json", "p/a.png"], 'expires = 2027-01-01\n', proof), archive(["../m.onnx"]), b"\0" + index.encode()]


def y4m():
    return [line.encode() for line in ["YUV4MPEG2 W768 H576 F10:1 Ip A0:0 C420jpeg XYSCSS=420JPEG XCOLORRANGE=FULL", "YUV4MPEG2 W5 H3 I? F0:0 Cmono",
                                       "YUV4MPEG2 W640 H480 F30000:1001 C420paldv XCOLORRANGE=LIMITED"]]  # fmt: skip


def rtp():
    """A key frame, whole, aggregated and in fragments, then another frame, in H.264 and H.265; and JPEG frames."""
    packet = lambda flags, payload: bytes([flags]) + len(payload).to_bytes(2, "big") + payload
    sps, pps, key, inter = b"\x67\x42\x00\x1e", b"\x68\xce\x38", b"\x65\x88" + bytes(9), b"\x41\x9a" + bytes(5)
    joined = b"".join(len(nal).to_bytes(2, "big") + nal for nal in (sps, pps, key))
    h264 = [packet(2, sps), packet(0, pps), packet(1, key), packet(19, inter), packet(3, b"\x78" + joined),
            packet(2, b"\x7c\x85" + key[1:]), packet(0, b"\x7c\x05\x01"), packet(25, b"\x7c\x45\x02"), packet(7, inter)]  # fmt: skip
    vps, sps, pps = b"\x40\x01\x0c", b"\x42\x01\x01", b"\x44\x01\xc1"
    key, inter, leading = b"\x26\x01\xaf" + bytes(9), b"\x02\x01\xd0" + bytes(5), b"\x10\x01\xd0\x00"
    joined = b"".join(len(nal).to_bytes(2, "big") + nal for nal in (vps, sps, pps, key))
    h265 = [packet(3, b"\x60\x01" + joined), packet(19, inter), packet(3, leading), packet(2, b"\x62\x01\x93" + key[2:]), packet(25, b"\x62\x01\x53\x01")]
    # RFC 2435's header with tables in band, without, and with restart markers.
    tables = bytes(3) + b"\x80" + bytes(range(1, 129))
    jpeg = [packet(2, b"\0\0\0\0\1\xff\2\2" + tables + bytes(9)), packet(1, b"\0\0\0\x09\1\xff\2\2" + bytes(5)),
            packet(3, b"\0\0\0\0\0\x80\2\2" + tables + bytes(9)), packet(19, b"\0\0\0\0\0\x80\2\2" + bytes(13)),
            packet(3, b"\0\0\0\0\x41\x32\2\2\0\1\xff\xff" + bytes(9))]  # fmt: skip
    return [b"\x20" + b"".join(h264), b"\x31" + b"".join(h265), b"\x03" + b"".join(jpeg)]


def rtsp_answers():
    """A server's answers to OPTIONS, DESCRIBE, SETUP, PLAY and GET_PARAMETER."""
    answer = lambda number, *lines, status="200 OK", body=b"": "\r\n".join([f"RTSP/1.0 {status}", f"CSeq: {number}", *lines, "", ""]).encode() + body
    description = sdp()[0]
    return [
        answer(1, "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER"),
        answer(2, "Content-Base: rtsp://camera/live/", "Content-Type: application/sdp", f"Content-Length: {len(description)}", body=description),
        answer(3, "Session: 12345678;timeout=4", "Transport: RTP/AVP/TCP;unicast;interleaved=0-1;server_port=6000-6001;ssrc=7"),
        answer(4, "Session: 12345678", "RTP-Info: url=rtsp://camera/live/v;seq=1;rtptime=2"),
        answer(5),
    ]  # fmt: skip


def rtsp_client():
    """Sessions over TCP and UDP, with a login, with a redirect, with refusals, with a description that has no length."""
    chunk = lambda kind, content: bytes([kind]) + len(content).to_bytes(2, "big") + content
    time = lambda ms: bytes([2 | 4]) + ms.to_bytes(2, "big")
    rtp = lambda number, ssrc=7, kind=96: bytes([0x80, kind]) + number.to_bytes(2, "big") + (number * 3000).to_bytes(4, "big") + ssrc.to_bytes(4, "big") + b"\x41\x9a\x01"
    frame = lambda channel, packet: b"$" + bytes([channel]) + len(packet).to_bytes(2, "big") + packet
    report = b"\x80\xc8\0\6\0\0\0\7" + bytes(20)
    options, describe, setup, play, keep = rtsp_answers()
    digest = lambda number, nonce, more="": f'RTSP/1.0 401 No\r\nCSeq: {number}\r\nWWW-Authenticate: Digest realm="a", nonce="{nonce}", qop="auth"{more}\r\nWWW-Authenticate: Basic realm="a"\r\n\r\n'.encode()
    refuse = lambda number, status: f"RTSP/1.0 {status}\r\nCSeq: {number}\r\n\r\n".encode()
    begin = [chunk(0, part) for part in (options, describe, setup, play)]
    packets = b"".join(frame(0, rtp(number)) for number in (1, 2, 4, 3, 3, 5, 9000, 9001, 0, 1))
    tcp = [*begin, chunk(0, packets + frame(1, report)), time(2500), chunk(0, keep), chunk(0, b"\r\n" + frame(0, rtp(9, 8)) + b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n"), time(90), bytes([3, 0, 0]), chunk(0, keep)]
    udp = [*begin, *(chunk(1, rtp(number)) for number in (1, 3, 2, 2, 70, 9000, 9001)), chunk(1, report), time(70), chunk(1, rtp(5, 9, 105))]
    login = [chunk(0, digest(1, "x")), chunk(0, options), chunk(0, digest(2, "y", ", stale=true")), *begin[1:], time(2500), chunk(0, digest(7, "z")), chunk(0, keep)]
    around = [*begin[:2], chunk(0, refuse(3, "404 No")), *begin[2:3], chunk(0, refuse(4, "457 No")), chunk(0, refuse(5, "455 No")), *begin[3:], time(2500), chunk(0, refuse(9, "501 No")), time(5000), time(5000)]
    endless = describe.replace(b"Content-Length: ", b"X: ")
    pieces = [begin[0], *(chunk(0, endless[at : at + 40]) for at in range(0, len(endless), 40)), time(300), *begin[2:]]
    moved = [begin[0], chunk(0, b"RTSP/1.0 302 Moved\r\nCSeq: 2\r\nLocation: rtsp://me:pw@other/x\r\n\r\n")]
    junk = [*begin, chunk(0, b"\0\0$\0\0\x0f" + rtp(1) + b"$\xff\0\1RTSP/1.0 200 OK\r\nCSeq: 77\r\n" + frame(0, rtp(2)))]
    return [bytes([first]) + b"".join(steps) for first, steps in ((0, tcp), (2, udp), (1, login), (0, around), (0, pieces), (1, moved), (4, junk))]


def sdp():
    """Descriptions of streams of H.264, H.265, JPEG and others, as cameras write them."""
    head = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\na=control:*\r\n"
    h264 = "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z2QAKKzZQHgCJ+XARAAAAwAEAAADAMg8YMZY,aOvjyyLA\r\na=control:v\r\n"
    h265 = "m=video 0 RTP/AVP 98\r\na=rtpmap:98 H265/90000\r\na=fmtp:98 sprop-vps=QAEMAf//AWAAAAMAkAAAAwAAAwB4lZgJ;sprop-sps=QgEBAWAAAAMAkAAAAwAAAwB4oAPAgBDlllZpJMrwFoCAAAADAIAAAAyE;sprop-pps=RAHBcrRiQA==\r\na=framerate:25.0\r\n"
    jpeg = "m=video 0 RTP/AVP 26\na=x-dimensions:2560,1440\na=framesize:26 2560-1440\na=control:rtsp://me:pw@camera/v\n"
    others = "m=audio 0 RTP/AVP 8\r\nm=application 0 RTP/SAVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\nm=video 0 RTP/AVP 35 96\r\na=fmtp:96 sprop-sps=AAAAAUIB\r\n"
    return [text.encode() for text in (head + h264, head + h265, jpeg, head + others + h264)]


def rtsp_auth():
    """Challenges of every algorithm, as cameras write them."""
    lines = [
        'Digest realm="a, b", nonce="1", opaque="", stale=FALSE, algorithm=MD5, qop="auth,auth-int"', 'Basic realm="a"', "",
        "digest realm=IPCamera; nonce=2; algorithm=SHA-256; qop=auth-int", "",
        'Basic realm="a\\"b", Digest realm = "c" nonce = "3" algorithm="MD5-sess", Negotiate abc==', "", "NTLM", 'Digest nonce="4',
    ]  # fmt: skip
    return ["\n".join(lines).encode(), *(line.encode() for line in lines if line)]


def onvif():
    """An answer to the question by multicast, profiles of both versions of the media service, and the URL of a stream."""
    scopes = "onvif://www.onvif.org/name/a%20b onvif://www.onvif.org/hardware/M"
    found = (
        '<e:Envelope xmlns:e="x" xmlns:w="y" xmlns:d="z"><e:Header><w:RelatesTo>urn:uuid:00000000-0000-4000-8000-000000000000</w:RelatesTo>'
        f"</e:Header><e:Body><d:ProbeMatches><d:ProbeMatch><d:Types>dn:NetworkVideoTransmitter</d:Types><d:Scopes>{scopes}</d:Scopes>"
        "<d:XAddrs>http://10.0.0.8/ https://10.0.0.7/ http://10.0.0.7:80/onvif/device_service</d:XAddrs></d:ProbeMatch></d:ProbeMatches>"
        "</e:Body></e:Envelope>"
    )
    encoder = (
        "<Encoding>H264</Encoding><Resolution><Width>1920</Width><Height>1080</Height></Resolution><RateControl>"
        "<FrameRateLimit>25</FrameRateLimit></RateControl>"
    )
    profiles = [
        f'<a><Profiles token="p"><Name>main</Name><{tag}>{encoder}</{tag}></Profiles></a>'
        for tag in ("VideoEncoderConfiguration", "VideoEncoder")
    ]
    return [text.encode() for text in (found, *profiles, "rtsp://u:p@10.0.0.7:554/1?token=a")]


def tracker():
    """Two people who meet, turned boxes that turn, and a clock that jumps, as frames of the target."""
    detection = lambda numbers, score, flags: struct.pack("<6fB2f", *numbers, score, flags, 1.0, 0.5)
    frame = lambda nanoseconds, *detections: struct.pack("<qB", nanoseconds, len(detections)) + b"".join(detections)
    person = lambda x, score, flags: detection([x, 50, x + 40, 150, 0], score, flags)
    meet = [frame(33_000_000, person(5 * n, 0.9, 0x0A), person(200 - 5 * n, 0.3 if 15 < n < 25 else 0.9, 0x1A)) for n in range(40)]
    turn = [frame(200_000_000, detection([100 + 9 * n, 80, 60, 12, 0.3 * n], 0.95, 1)) for n in range(20)]
    jumps = [frame(span, person(100 + n, 0.75, 0)) for n, span in enumerate([0, 10**10, -(10**10), 0, 3600 * 10**9, 10**7])]
    return [b"".join(frames) for frames in (meet, turn, jumps)]


SEEDS = {
    "backend": onnx,
    "bundle": bundle,
    "card": lambda: files("config/models/*.toml"),
    "config": config,
    "ffprobe": ffprobe,
    # Choices and numbers, not a format: the corpus has all seeds.
    "heads": lambda: [bytes(range(256))],
    "http": http,
    "jpeg": jpeg,
    "mjpeg": mjpeg,
    "mqtt": mqtt,
    "nats": nats,
    "onnx": onnx,
    "onvif": onvif,
    "plan": plan,
    "redact": redact,
    "rtp": rtp,
    "rtsp_auth": rtsp_auth,
    "rtsp_client": rtsp_client,
    "sdp": sdp,
    "spool": spool,
    "tracker": tracker,
    "ultralytics": ultralytics,
    "websocket": websocket,
    "y4m": y4m,
}


def toml_words(*patterns):
    """Keys and values of configurations, commented ones included."""
    lines = [match for text in files(*patterns) for match in re.findall(r"^#?(\[.*\]|\w+ *=) *(.*)$", text.decode(), re.M)]
    return {word.strip() for line in lines for word in line}


def json_words(value):
    """Names and texts of a JSON value."""
    if isinstance(value, dict):
        return set(value).union(*map(json_words, value.values()))
    if isinstance(value, list):
        return set().union(*map(json_words, value))
    return {value} if isinstance(value, str) else set()


def words(target):
    """A dictionary for a target, where words are what its format consists of."""
    found = {
        "card": lambda: toml_words("config/models/*.toml") | set(re.findall(r'\("([a-z-]+)", ', "".join(
            path.read_text() for path in (ROOT / "engine/src/card").glob("*.rs")))),
        "config": lambda: toml_words("config/visiond.toml", "config/examples/*.toml"),
        "ffprobe": lambda: {f'"{word}"' for seed in ffprobe() for word in json_words(json.loads(seed))},
        "http": lambda: set(json.loads((ROOT / "docs/openapi.json").read_text())["paths"]) | set(
            "GET POST HEAD OPTIONS PUT HTTP/1.1 HTTP/1.0 Host: Origin: Cookie: Authorization: Bearer Basic Connection: close keep-alive Upgrade "
            "websocket Content-Length: Content-Type: application/json Transfer-Encoding: chunked Expect: 100-continue Accept: text/html "
            "localhost 127.0.0.1 [::1] camera.example camera= only_detections= after= seconds= token= visiond_session= \r\n %2f %00".split(" ")),
        "nats": lambda: {f'"{word}"' for seed in nats() for found in re.findall(rb"\{.*\}", seed) for word in json_words(json.loads(found))}
            | set("INFO MSG HMSG PING PONG +OK -ERR @R NATS/1.0 503 404 \r\n Nats-Msg-Id:".split(" ")),
        "plan": lambda: {"ftrt", "ptrt", "vtrt", "engine", "onnx", "sha256", "profiles", "metadata", "layout"},
        "rtsp_auth": lambda: set('Digest Basic realm= nonce= opaque= stale=true algorithm=MD5 algorithm=SHA-256 -sess qop= auth-int \\" domain='.split(" ")),
        "rtsp_client": lambda: set("RTSP/1.0 200 OK \r\n \r\n\r\n CSeq: Public: GET_PARAMETER Content-Base: Content-Location: Content-Length: Session: ;timeout= Transport: interleaved= "
                                   "server_port= multicast WWW-Authenticate: Digest nonce= Location: rtsps:// 301 401 404 454 455 457 461 551 100 $ OPTIONS m=video a=control:".split(" ")),
        "sdp": lambda: set("m=video a=rtpmap: a=fmtp: a=control: a=framerate: a=x-dimensions: a=framesize: sprop-parameter-sets= sprop-vps= sprop-sps= sprop-pps= RTP/AVP H264/90000 H265 JPEG".split(" ")),
        "redact": lambda: set("rtsp:// %3a%2f%2f :\\/\\/ @ %40 password= passwd: token=%22 --token -u -uadmin:x Authorization: Cookie: api_key= "
                              "\"key\": \\\" ' & ; , %3D %253D %26 user=".split(" ")),
        "spool": lambda: {b"\xf5vsr", b"vsr ack\n", b"visiond spool 1\n"},
        "ultralytics": lambda: set("author=Ultralytics\n names= task= detect pose segment classify stride= imgsz= kpt_shape= end2end= args= True "
                                   "False None {'nms':True} channels= \\x \\u \\U description= rt-detr".split(" ")),
        "mjpeg": lambda: {b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xe1", b"\xff\xd0", b"\r\n\r\n", b"\n--b", b"Content-Length: ",
                          b"Transfer-Encoding: chunked", b"HTTP/1.1 200 OK\r\n", b"0\r\n\r\n"},
        "y4m": lambda: set("YUV4MPEG2  W H F30:1 Ip It C420jpeg C420mpeg2 C420paldv Cmono XCOLORRANGE=FULL XCOLORRANGE=LIMITED".split(" ")),
    }.get(target)  # fmt: skip
    found = {word if isinstance(word, bytes) else word.encode() for word in found()} if found else set()
    return sorted(word for word in found if word)
