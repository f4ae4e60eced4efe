#!/usr/bin/env python3
# Python's standard library alone
"""The live page's requests to the daemon, without showing it: the load on this machine when the browser is on another.

    page_elsewhere.py PORT CAMERA...

The stream over a WebSocket, the status every second, and every camera's images in turn, at least 90 ms apart, four at a
time, until it is killed.
"""

import http.client
import socket
import sys
import threading
import time

SLOTS = 4
INTERVAL_S = 0.09


def stream(port):
    """Reads the WebSocket."""
    connection = socket.create_connection(("127.0.0.1", port))
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    connection.sendall(f"GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n{upgrade}{key}\r\n".encode())
    while connection.recv(1 << 16):
        pass


def ask(connection, path):
    """Reads an answer to its end."""
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def pictures(port, cameras):
    """Reads the images of these cameras in turn."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    due = {camera: time.monotonic() for camera in cameras}
    while True:
        camera = min(due, key=due.get)
        time.sleep(max(0, due[camera] - time.monotonic()))
        due[camera] = time.monotonic() + INTERVAL_S
        if ask(connection, f"/cameras/{camera}/snapshot.jpg") != 200:
            sys.exit(f"no picture of {camera}")


def main():
    port, cameras = int(sys.argv[1]), sys.argv[2:]
    for slot in range(SLOTS):
        threading.Thread(target=pictures, args=(port, cameras[slot::SLOTS]), daemon=True).start()
    threading.Thread(target=stream, args=(port,), daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        ask(connection, "/api/v1/status")
        time.sleep(1)


if __name__ == "__main__":
    main()
