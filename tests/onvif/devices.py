#!/usr/bin/env python3
"""ONVIF devices for tests, good and hostile: WS-Discovery, and the device and media services over HTTP.

    unshare --user --map-root-user --net tests/onvif/devices.py --log FILE ADDRESS=KIND... -- COMMAND...

Each device has an address of 127.0.0.0/8. In a network namespace of its own, this brings the loopback interface up with multicast,
runs COMMAND there, and ends with its status. FILE gets a line for each probe and request. See KINDS. Needs nothing but Python.
"""

import argparse
import http.server
import re
import socket
import struct
import subprocess
import sys
import threading

GROUP, PORT = "239.255.255.250", 3702
# A program that connects to it was misled.
TRAP = "127.0.0.99"

KINDS = {
    "good": "three profiles by media service 2, with a password in a URL",
    "old": "one profile by media service 1, named by GetCapabilities alone; answers to the question for cameras only",
    "login": "HTTP status 401 for profiles",
    "fault": "SOAP's fault NotAuthorized for profiles",
    "broken": "SOAP's fault for everything",
    "printer": "no ONVIF device: its answer has other types and scopes",
    "stranger": "its answer is to another question",
    "elsewhere": "its answer names another host",
    "media-elsewhere": "its services name another host",
    "redirect": "HTTP status 302 to another host",
    "silent": "nothing is ever answered over HTTP",
    "drip": "a byte of the answer a second",
    "endless": "a body without end",
    "huge": "a body of a terabyte is announced",
    "head": "a header without end",
    "bomb": "XML with entities that multiply",
    "nested": "XML with 50,000 open elements, each with a namespace",
    "profiles": "10,000 profiles",
    "noise": "the body is noise",
    "terminal": "escape sequences in its name and everywhere else",
    "large": "its answer is a datagram of 60 KB",
    "flood": "10,000 answers, each with another address",
}

DEVICE = "http://www.onvif.org/ver10/device/wsdl"
MEDIA = "http://www.onvif.org/ver10/media/wsdl"
MEDIA_2 = "http://www.onvif.org/ver20/media/wsdl"
ESCAPE = "\u009b2J\u202e"


def envelope(body, header=""):
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://www.w3.org/2003/05/soap-envelope" '
        'xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" '
        f'xmlns:tds="{DEVICE}" xmlns:trt="{MEDIA}" xmlns:tr2="{MEDIA_2}" xmlns:tt="http://www.onvif.org/ver10/schema" '
        'xmlns:dn="http://www.onvif.org/ver10/network/wsdl" xmlns:ter="http://www.onvif.org/ver10/error">'
        f"<SOAP-ENV:Header>{header}</SOAP-ENV:Header><SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>"
    )


def fault(code, words):
    return envelope(
        f"<SOAP-ENV:Fault><SOAP-ENV:Code><SOAP-ENV:Value>SOAP-ENV:Sender</SOAP-ENV:Value><SOAP-ENV:Subcode>"
        f"<SOAP-ENV:Value>ter:{code}</SOAP-ENV:Value></SOAP-ENV:Subcode></SOAP-ENV:Code><SOAP-ENV:Reason>"
        f'<SOAP-ENV:Text xml:lang="en">{words}</SOAP-ENV:Text></SOAP-ENV:Reason></SOAP-ENV:Fault>'
    )


class Log:
    def __init__(self, path):
        self.file, self.lock = open(path, "w"), threading.Lock()

    def __call__(self, *words):
        with self.lock:
            print(*words, file=self.file, flush=True)


class Device:
    def __init__(self, address, kind, log):
        self.address, self.kind, self.log = address, kind, log
        device = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                device.answer(self)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((address, 0))

    # Discovery

    def matches(self, identifier, service, types="dn:NetworkVideoTransmitter", more=""):
        name = {"terminal": ESCAPE + "owned"}.get(self.kind, f"The%20{self.kind}%20camera")
        scopes = f"onvif://www.onvif.org/type/video_encoder onvif://www.onvif.org/name/{name} onvif://www.onvif.org/hardware/M-1"
        if self.kind == "printer":
            types, scopes = "wsdp:Device", "ldap:///printers"
        return envelope(
            "<d:ProbeMatches><d:ProbeMatch><wsa:EndpointReference><wsa:Address>urn:uuid:1</wsa:Address></wsa:EndpointReference>"
            f"<d:Types>{types}</d:Types><d:Scopes>{scopes}{more}</d:Scopes><d:XAddrs>{service}</d:XAddrs>"
            "<d:MetadataVersion>1</d:MetadataVersion></d:ProbeMatch></d:ProbeMatches>",
            f"<wsa:RelatesTo>{identifier}</wsa:RelatesTo>",
        ).encode()

    def discovered(self, identifier, types, to):
        if self.kind == "old" and "NetworkVideoTransmitter" not in types:
            return
        service = f"http://{self.address}:{self.port}/onvif/device_service"
        send = lambda *args: self.udp.sendto(self.matches(*args), to)
        if self.kind == "stranger":
            send("urn:uuid:00000000-0000-4000-8000-000000000000", service)
        elif self.kind == "elsewhere":
            send(identifier, f"http://{TRAP}:{trap_port}/ http://localhost:{trap_port}/ http://{self.address}.example.org/")
        elif self.kind == "large":
            send(identifier, service, "dn:NetworkVideoTransmitter", " onvif://www.onvif.org/location/" + "a" * 60_000)
        elif self.kind == "flood":
            for n in range(10_000):
                send(identifier, f"http://{self.address}:{self.port}/{n}")
        else:
            send(identifier, f"http://[fe80::1]/onvif/device_service {service}")

    # Services

    def answer(self, http):
        body = http.rfile.read(int(http.headers["Content-Length"])).decode()
        request = re.search(r"<s:Body><(\w+)", body).group(1)
        version = "2" if MEDIA_2 in body else "1"
        self.log(self.kind, request, version, http.path, "authorized" if http.headers["Authorization"] else "")
        status, text = self.respond(request, version, body)
        kind = self.kind
        if kind == "silent":
            threading.Event().wait()
        if kind == "head":
            http.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            self.flood(http, b"a" * 65536)
        if kind in ("endless", "huge", "drip"):
            length = b"Transfer-Encoding: chunked" if kind == "endless" else b"Content-Length: 1000000000000"
            http.wfile.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n")
            if kind == "drip":
                for byte in text.encode():
                    http.wfile.write(bytes([byte]))
                    threading.Event().wait(1)
            chunk = b"<a/>" * 16384
            self.flood(http, b"10000\r\n" + chunk + b"\r\n" if kind == "endless" else chunk)
        http.send_response(status)
        if kind == "redirect":
            http.send_header("Location", f"http://{TRAP}:{trap_port}/")
        data = text if isinstance(text, bytes) else text.encode()
        http.send_header("Content-Type", "application/soap+xml; charset=utf-8")
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def flood(self, http, chunk):
        sent = 0
        while sent < 200 << 20:
            http.wfile.write(chunk)
            sent += len(chunk)
        self.log(self.kind, "flooded")

    def respond(self, request, version, body):
        kind, base = self.kind, f"http://{self.address}:{self.port}/onvif/"
        if kind == "redirect":
            return 302, ""
        if kind == "broken":
            return 500, fault("ActionNotSupported", "Optional action\nnot implemented " + "x" * 5000)
        if kind == "bomb":
            entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
            return 200, f'<!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><a>&e9;</a>'
        if kind == "nested":
            return 200, "".join(f'<a xmlns:n{n}="{n}">' for n in range(20_000))
        if kind == "noise":
            return 200, bytes(range(256)) * 100
        if kind == "media-elsewhere":
            base = f"http://{TRAP}:{trap_port}/"
        if request == "GetServices":
            if kind == "old":
                return 400, fault("ActionNotSupported", "no such action")
            services = [(DEVICE, "device_service"), (MEDIA, "media"), (MEDIA_2, "media2")]
            found = (
                f"<tds:Service><tds:Namespace>{space}</tds:Namespace><tds:XAddr>{base}{path}</tds:XAddr><tds:Version>"
                "<tt:Major>2</tt:Major><tt:Minor>0</tt:Minor></tds:Version></tds:Service>"
                for space, path in services
            )
            return 200, envelope(f"<tds:GetServicesResponse>{''.join(found)}</tds:GetServicesResponse>")
        if request == "GetCapabilities":
            return 200, envelope(
                f"<tds:GetCapabilitiesResponse><tds:Capabilities><tt:Media><tt:XAddr>{base}media</tt:XAddr></tt:Media>"
                "</tds:Capabilities></tds:GetCapabilitiesResponse>"
            )
        if kind == "login":
            return 401, ""
        if kind == "fault":
            return 400, fault("NotAuthorized", "Sender not authorized")
        if request == "GetProfiles":
            return 200, envelope(f"<tr2:GetProfilesResponse>{self.profiles(version)}</tr2:GetProfilesResponse>")
        token = re.search("<ProfileToken>(.*)</ProfileToken>", body).group(1)
        uri = f"rtsp://{self.address}:554/{token}"
        if kind == "good" and token == "main&amp;1":
            uri = f"rtsp://viewer:swordfish@{self.address}:554/main?token=sesame"
        if kind == "terminal":
            uri += ESCAPE
        uri = f"<tr2:Uri>{uri}</tr2:Uri>" if version == "2" else f"<trt:MediaUri><tt:Uri>{uri}</tt:Uri></trt:MediaUri>"
        return 200, envelope(f"<tr2:GetStreamUriResponse>{uri}</tr2:GetStreamUriResponse>")

    def profiles(self, version):
        offered = {
            "good": [("main&amp;1", "Main", "H265", 2560, 1440, "12.5"), ("sub", "Sub", "H264", 640, 360, "25"), ("j", "Snap", "JPEG", 320, 240, "5")],
            "old": [("p0", "Profile 0", "H264", 1920, 1080, "25")],
            "terminal": [("t", ESCAPE, ESCAPE, ESCAPE, ESCAPE, ESCAPE)],
            "profiles": [(str(n), "Many", "H264", 64, 48, "1") for n in range(2_000 if version == "1" else 1_000)],
        }.get(self.kind, [("p", "P", "H264", 64, 48, "1")])
        old, new = ("VideoEncoderConfiguration", "Configurations")
        out = ""
        for token, name, codec, width, height, rate in offered:
            encoder = (
                f"<tt:Encoding>{codec}</tt:Encoding><tt:Resolution><tt:Width>{width}</tt:Width><tt:Height>{height}</tt:Height>"
                f"</tt:Resolution><tt:RateControl><tt:FrameRateLimit>{rate}</tt:FrameRateLimit></tt:RateControl>"
            )
            if version == "1":
                encoder = f"<tt:{old} token='e'><tt:Name>encoder</tt:Name>{encoder}</tt:{old}>"
            else:
                encoder = f"<tr2:{new}><tr2:VideoEncoder token='e'>{encoder}</tr2:VideoEncoder></tr2:{new}>"
            space = "trt" if version == "1" else "tr2"
            tag = "tt" if version == "1" else "tr2"
            out += f"<{space}:Profiles token=\"{token}\" fixed=\"true\"><{tag}:Name>{name}</{tag}:Name>{encoder}</{space}:Profiles>"
        return out


def listen(devices, log):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    receiver.bind((GROUP, PORT))
    member = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
    receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    def serve():
        while True:
            datagram, sender = receiver.recvfrom(65536)
            text = datagram.decode()
            identifier = re.search("<a:MessageID>(.*)</a:MessageID>", text).group(1)
            types = re.search("<d:Types>(.*)</d:Types>", text).group(1)
            log("question", types)
            for device in devices:
                # A flood must not keep the others from answering.
                threading.Thread(target=device.discovered, args=(identifier, types, sender), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()


def trap(log):
    server = socket.create_server((TRAP, 0))

    def serve():
        while True:
            server.accept()
            log("trapped")

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def main():
    global trap_port
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True)
    parser.add_argument("devices", nargs="*", metavar="ADDRESS=KIND")
    arguments = sys.argv[1:]
    split = arguments.index("--")
    args = parser.parse_args(arguments[:split])
    subprocess.run(["ip", "link", "set", "lo", "up", "multicast", "on"], check=True)
    log = Log(args.log)
    trap_port = trap(log)
    devices = []
    for text in args.devices:
        address, kind = text.split("=")
        if kind not in KINDS:
            parser.error(f"no kind {kind}: {', '.join(KINDS)}")
        devices.append(Device(address, kind, log))
    listen(devices, log)
    log("ready")
    return subprocess.run(arguments[split + 1 :]).returncode


if __name__ == "__main__":
    sys.exit(main())
