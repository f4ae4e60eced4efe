#!/usr/bin/env python3
"""Takes the screenshots of the live page in docs/pictures, from a real daemon that reads the sample images.

    VISIOND_BIN=target/release/visiond python3 tests/web/pictures.py [SECONDS]

SECONDS (70) pass before the first, so that its lines have something to show. Take them on a machine that does nothing else.
"""

import shutil
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

from running import NETWORK, ROOT, Daemon, pattern

NETWORKS = f"""
[device]
name = "gate-7"

[[model]]
name = "nanodet"
path = "{ROOT}/config/models/nanodet-g-416.onnx"

[[model]]
name = "tiny"
path = "{NETWORK}"
"""
SINK = """
[[sink]]
type = "file"
name = "lines"
path = "{dir}/detections.jsonl"
"""
DESK = {"viewport": {"width": 1360, "height": 880}, "color_scheme": "light"}
PHONE = {"viewport": {"width": 390, "height": 780}, "color_scheme": "dark", "is_mobile": True, "device_scale_factor": 2}


def still(name, file):
    """A camera that sees one picture, a network that knows what is on it."""
    return f"""
[[camera]]
name = "{name}"
model = "nanodet"
[camera.source]
type = "images"
path = "{ROOT}/tests/media/{file}.png"
repeat = true
fps = 1
"""


MASKS = """
[[camera.privacy]]
polygon = [[0.02, 0.05], [0.3, 0.05], [0.36, 0.3], [0.2, 0.5], [0.02, 0.46]]
fill = "mosaic"

[[camera.ignore]]
polygon = [[0.62, 0.55], [0.97, 0.5], [0.97, 0.95], [0.66, 0.95]]
classes = ["cup"]
"""


def shoot(page, name, width, shooter=None):
    """Stores what is in sight, or what `shooter` shows, as docs/pictures/NAME.jpg, so many pixels wide."""
    with tempfile.NamedTemporaryFile(suffix=".png") as whole:
        (shooter or page).screenshot(path=whole.name)
        target = ROOT / "docs/pictures" / f"{name}.jpg"
        scale = f"scale={width}:-2:flags=lanczos"
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", whole.name, "-vf", scale, "-q:v", "5", target], check=True)
        print(f"{target}: {target.stat().st_size} bytes")


def masks(browser):
    """The editor of masks, with two of them, and the right to apply them."""
    config = still("canteen", "coffee") + MASKS
    daemon = Daemon(config, start=NETWORKS)
    token = daemon.path("token")
    token.touch(mode=0o600)
    token.write_text("a-token-for-the-picture\n")
    daemon.http += f'token = "{token}"\nallow_changes = true\n'
    daemon.write(config)
    with daemon:
        page = browser.new_context(**{**DESK, "viewport": {"width": 1360, "height": 1400}}).new_page()
        page.goto(daemon.url)
        page.fill("#token", token.read_text().strip())
        page.click("button")
        page.wait_for_timeout(10_000)
        page.locator("#masks-open").click()
        page.get_by_role("button", name="Corner 3 of 5").focus()
        shoot(page, "masks", 900, page.locator(".stage > section").first)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 70
    (ROOT / "docs/pictures").mkdir(exist_ok=True)
    bars = pattern("conveyor", fps=10).replace("[camera.source]", 'model = "tiny"\n[camera.source]')
    cameras = still("entrance", "astronaut") + still("yard", "chelsea") + still("canteen", "coffee") + bars
    with Daemon(cameras + SINK, start=NETWORKS) as daemon, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        desk = browser.new_context(**DESK).new_page()
        desk.goto(daemon.url)
        desk.wait_for_timeout(seconds * 1000)
        shoot(desk, "live-page", 1200)
        desk.close()
        phone = browser.new_context(**PHONE).new_page()
        phone.goto(daemon.url)
        phone.wait_for_timeout(min(seconds, 10) * 1000)
        shoot(phone, "live-page-phone", 585)
        masks(browser)


if __name__ == "__main__":
    main()
