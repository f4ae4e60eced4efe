#!/usr/bin/env python3
"""The live page in Chromium, against a running visiond: what a person with a screen, a phone, a keyboard sees of it.

    VISIOND_BIN=target/debug/visiond python3 tests/web/page.py [-k WORD]

Tells the page's bytes and how soon the boxes stood on the picture. VISIOND_PICTURES names a folder for screenshots.
"""

import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import time
import unittest
import zlib

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from running import BINARY, NETWORK, Daemon, Proxy, absent, free_port, pattern

MOST_BYTES = 140_000
PAGE = pathlib.Path(__file__).resolve().parents[2] / "daemon/web/src/page"
# A hang, not slowness: nothing else is decided by it.
PATIENCE_S = 600
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
DESK = {"viewport": {"width": 1440, "height": 900}}
# The network's class 0, as boxes of it are drawn.
GREEN = (38, 255, 99)
TOKEN = "a-secret-of-this-test"
MODULES = pathlib.Path(__file__).resolve().parents[2] / "daemon/web/src/page"

# Of the picture that is shown large: how many of its pixels have about this colour.
PIXELS = """([red, green, blue]) => {
  const canvas = document.querySelector('#large canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 24) found += 1;
  }
  return found;
}"""


# Whether each part of the things, selectors, is visible, inside of its thing and not cut off.
INSIDE = """([things, parts]) => {
  const pairs = [...document.querySelectorAll(things)].flatMap((thing) => [...thing.querySelectorAll(parts)].map((part) => [thing, part]));
  const shown = pairs.filter(([, part]) => part.textContent && getComputedStyle(part).display !== 'none' && !part.closest('[hidden]'));
  return shown.length > 0 && shown.every(([thing, part]) => {
    const [outer, inner] = [thing, part].map((node) => node.getBoundingClientRect());
    const within = inner.left >= outer.left && inner.right <= outer.right && inner.top >= outer.top && inner.bottom <= outer.bottom;
    return within && inner.width > 0 && part.scrollWidth <= part.clientWidth + 1 && part.scrollHeight <= part.clientHeight + 3;
  });
}"""

# Every time of a frame has four digits in milliseconds, and the age has five.
SLOW = """
  const parse = JSON.parse;
  JSON.parse = (text) => {
    const message = parse(text);
    for (const stage of Object.keys(message?.timings_us ?? {})) message.timings_us[stage] = stage === 'total' ? 12_345_000 : 4_321_000;
    return message;
  };"""

# Of each row of tiles: the room that is free at its left and at its right, in pixels.
ROWS = """() => {
  const list = document.querySelector('#cameras');
  const [outer, style] = [list.getBoundingClientRect(), getComputedStyle(list)];
  const [left, right] = [outer.left + parseFloat(style.paddingLeft), outer.left + list.clientWidth - parseFloat(style.paddingRight)];
  const rows = new Map();
  for (const tile of list.querySelectorAll('li:not([hidden])')) {
    const place = tile.getBoundingClientRect();
    const row = rows.get(Math.round(place.top)) ?? { left: Infinity, right: -Infinity };
    rows.set(Math.round(place.top), { left: Math.min(row.left, place.left), right: Math.max(row.right, place.right) });
  }
  return [...rows.values()].map((row) => [row.left - left, right - row.right]);
}"""

TILES = "#cameras li:not([hidden])"


def cameras(number, waiting=()):
    """Changes a status with one camera: to `number` of them, the others called gate-2 and so on, with long figures."""

    def change(status):
        [first] = status["cameras"]
        first.update(captured=12_345_678, published=12_345_678, dropped={**first["dropped"], "overload": 1_234_567})
        for label in first["labels"]:
            label["total"] = 12_345_678
        others = [{**first, "name": f"gate-{at}"} for at in range(2, number + 1)]
        for camera in others:
            if camera["name"] in waiting:
                camera.update(phase="waiting", reason="no device has the name usb-nothing-video-index0", fps=0)
            elif camera["name"].endswith("7"):
                camera["dropped"] = {**first["dropped"], "overload": 0}
        status["cameras"] = [first, *others]

    return change


def white(name, keys="", tables=""):
    """A camera that sees a white picture, `white.png`."""
    return f'''
[[camera]]
name = "{name}"
{keys}
[camera.source]
type = "images"
path = "{{dir}}/white.png"
repeat = true
fps = 10
{tables}
'''


def white_png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\xff" * 3 * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def touched(polygon, width, height):
    """The pixels of which a polygon with whole corners covers any part."""
    edges = list(zip(polygon, polygon[1:] + polygon[:1]))
    found = set()
    for row in range(height):
        spans, middle = [], []
        for (x1, y1), (x2, y2) in edges:
            at = lambda y: x1 + (y - y1) / (y2 - y1) * (x2 - x1)
            low, high = max(min(y1, y2), row), min(max(y1, y2), row + 1)
            if low < high:
                spans.append(sorted((at(low), at(high))))
                middle.append(at(row + 0.5))
        middle.sort()
        for left, right in spans + list(zip(middle[::2], middle[1::2])):
            found.update((x, row) for x in range(math.floor(left + 1e-9), math.ceil(right - 1e-9)) if 0 <= x < width)
    return found


def wait(what, ready):
    """Waits until `ready()` is true, and gives what it gave. The page forbids the browser's own way, which evaluates text."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        value = ready()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


class LivePage(unittest.TestCase):
    """Each test has a daemon and a browser's context of its own."""

    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def entered(self, daemon):
        """`daemon`, running until the test ends. `enterContext` does the same, from Python 3.11 on."""
        running = daemon.__enter__()
        self.addCleanup(daemon.__exit__, None, None, None)
        return running

    def daemon(self, config, **how):
        return self.entered(Daemon(config, **how))

    def guarded(self, daemon, config, keys=""):
        """Runs the daemon with a token and these keys of `[http]`."""
        secret = daemon.path("token")
        secret.write_text(TOKEN + "\n")
        secret.chmod(0o600)
        daemon.http += f'token = "{secret}"\n{keys}\n'
        daemon.write(config)
        self.entered(daemon)

    def modules(self):
        """An empty page that can import the page's own modules."""
        context = self.browser.new_context(**DESK)
        self.addCleanup(context.close)
        page = context.new_page()

        def answer(route):
            name = route.request.url.rpartition("/")[2]
            kind = "text/javascript" if name else "text/html"
            route.fulfill(body=(MODULES / name).read_text() if name else "<!doctype html>", content_type=kind)

        page.route("http://page.test/**", answer)
        page.goto("http://page.test/")
        return page

    def open(self, daemon, wanted=True, before="", path="", status=None, **how):
        """The page, with `complaints` of the browser and the `requests` that it made. The script `before` runs first, and
        `status` changes what the daemon answers."""
        context = self.browser.new_context(**{**DESK, **how})
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.complaints, page.requested, page.sockets = [], [], []
        page.on("websocket", lambda opened: page.sockets.append(opened.url))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and page.complaints.append(said.text))
        page.on("request", lambda request: page.requested.append(request.url))
        page.add_init_script(before)
        if status:
            self.change_status(page, status)
        page.goto(daemon.url + path)
        if wanted:
            wait("boxes on the picture", lambda: self.boxes(page))
        return page

    def change_status(self, page, change):
        """`change(status)` changes every status that the page gets from now on."""

        def answer(route):
            response = route.fetch()
            status = response.json()
            change(status)
            route.fulfill(response=response, json=status)

        page.route("**/api/v1/status", answer)
        # An answer that is still under way when the test ends has no reader.
        self.addCleanup(page.unroute_all, behavior="ignoreErrors")

    @staticmethod
    def boxes(page):
        """Milliseconds from the navigation to the first picture with boxes; None while there is none."""
        return page.evaluate("performance.getEntriesByName('boxes')[0]?.startTime ?? null")

    @staticmethod
    def shown(page):
        """The number of the frame that is shown large, and its boxes."""
        return page.evaluate("(({ sequence, boxes }) => [Number(sequence), Number(boxes)])(document.querySelector('#large canvas').dataset)")

    @staticmethod
    def text(page, selector):
        return page.locator(selector).inner_text()

    def picture(self, page, name, **how):
        folder = os.environ.get("VISIOND_PICTURES")
        if folder:
            page.screenshot(path=pathlib.Path(folder) / f"{name}.png", **how)

    def accessible(self, page):
        violations = Axe().run(page).response["violations"]
        told = [f"{each['id']}: {each['help']}: {node['html']}" for each in violations for node in each["nodes"]]
        self.assertEqual(told, [])

    def no_sideways(self, page):
        wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        self.assertLessEqual(*wide)

    def test_boxes_stand_on_the_moving_picture(self):
        daemon = self.daemon(pattern("bars"))
        page = self.open(daemon)
        (first, boxes), began = self.shown(page), time.monotonic()
        self.assertGreater(boxes, 0)
        self.assertGreater(page.evaluate(PIXELS, GREEN), 100)
        wait("the picture to move", lambda: self.shown(page)[0] > first + 10)
        rate = (self.shown(page)[0] - first) / (time.monotonic() - began)
        # Pictures have the boxes of their own frame: where that frame's message is not found, or comes too late, there are none.
        for _ in range(10):
            before = self.shown(page)[0]
            wait("the next picture with its boxes", lambda: self.shown(page)[0] > before and self.shown(page)[1] > 0)
        self.assertEqual(page.complaints, [])
        print(f"boxes after {self.boxes(page):.0f} ms; then {rate:.0f} frames a second went by", file=sys.stderr)

    def test_masks_turned_boxes_and_skeletons_are_drawn(self):
        # The page's own modules on a canvas of 200 x 100: the network of these tests finds upright boxes alone.
        page = self.modules()

        def alphas(detection, skeleton, *points):
            """How opaque the canvas is at each point."""
            message = {"detections": [{"class_id": 0, "label": "a", "score": 0.9, **detection}], "model": {"skeleton": skeleton}}
            return page.evaluate(
                """async ([message, points]) => {
                  const { drawDetections, fitting } = await import('/overlay.js');
                  const canvas = Object.assign(document.createElement('canvas'), { width: 200, height: 100 });
                  const context = canvas.getContext('2d');
                  drawDetections(context, message, fitting(canvas, 400, 200), 1);
                  return points.map(([x, y]) => context.getImageData(x, y, 1, 1).data[3]);
                }""",
                [message, points],
            )

        # Twice as large in the frame: 20 to 180 by 10 to 90 on the canvas, with a hole from 80 to 120 by 40 to 60.
        rings = [[40, 20, 360, 20, 360, 180, 40, 180], [160, 80, 240, 80, 240, 120, 160, 120]]
        inside, hole, outside = alphas({"segments": rings}, None, (50, 50), (100, 50), (5, 5))
        self.assertTrue(90 < inside < 140 and hole == outside == 0, (inside, hole, outside))
        diamond = {"corners": [[200, 180], [40, 100], [200, 20], [360, 100]]}
        side, corner, middle = alphas({"oriented": diamond, "box": {"x": 40, "y": 20, "width": 320, "height": 160}}, None, (60, 70), (20, 10), (100, 50))
        self.assertTrue(side > 200 and corner == middle == 0, (side, corner, middle))
        points = [{"x": 40, "y": 100, "score": 0.9}, {"x": 360, "y": 100}, {"x": 200, "y": 180, "score": 0.1}]
        line, guess = alphas({"keypoints": points}, [[0, 1], [1, 2]], (100, 50), (140, 70))
        self.assertTrue(line > 200 and guess == 0, (line, guess))

    def test_boxes_of_a_turned_camera_are_on_its_turned_picture(self):
        message = {"frame": {"width": 640, "height": 480}, "detections": [{"box": {"x": 100, "y": 30, "width": 20, "height": 50}}]}
        moved = self.modules().evaluate(
            """async (message) => {
              const { turned } = await import('/overlay.js');
              const turns = [[90, null], [180, null], [270, null], [0, 'vertical']];
              return turns.map(([rotate, flip]) => Object.values(turned(message, { rotate, flip }).detections[0].box));
            }""",
            message,
        )
        self.assertEqual(moved, [[400, 100, 50, 20], [520, 400, 20, 50], [30, 520, 50, 20], [100, 400, 20, 50]])
        daemon = self.daemon(pattern("bars").replace("[camera.source]", "flip = \"horizontal\"\n[camera.source]"))
        page = self.open(daemon)
        wait("boxes", lambda: page.evaluate(PIXELS, GREEN) > 100)
        self.assertEqual(page.complaints, [])

    def test_a_track_has_its_colour_its_id_and_a_tail_of_two_seconds(self):
        page = self.modules()

        def drawn(shown, messages, points=(), **other):
            """The pixels at `points` of a canvas of 800 x 400 that is half of the frame, and the texts, of message number `shown`
            of (ms, x of the bottom centre) with track 17."""
            return page.evaluate(
                """async ([shown, messages, points, other]) => {
                  const { drawDetections, fitting } = await import('/overlay.js');
                  const canvas = Object.assign(document.createElement('canvas'), { width: 800, height: 400 });
                  const context = canvas.getContext('2d');
                  const texts = [];
                  context.fillText = (text) => texts.push(text);
                  const told = messages.map(([at, x, width = 1600]) => {
                    const detection = { class_id: 0, label: 'person', score: 0.9, box: { x: x - 20, y: 100, width: 40, height: 100 }, track: { id: 17 }, ...other };
                    return { monotonic_ns: 7e9 + at * 1e6, frame: { width, height: 800 }, detections: x === null ? [] : [detection] };
                  });
                  drawDetections(context, told[shown], fitting(canvas, 1600, 800), 1, told);
                  return [points.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]), texts];
                }""",
                [shown, messages, points, other],
            )

        def tail(shown, messages, **other):
            """From which column on there is a tail, on the row of the lower sides of the boxes."""
            pixels, _ = drawn(shown, messages, [(x, 100) for x in range(800)], **other)
            columns = [x for x, pixel in enumerate(pixels) if pixel[3] > 0]
            self.assertEqual(columns, list(range(columns[0], columns[-1] + 1)), "it is one line")
            return columns[0]

        # By colorsys.hsv_to_rgb of Python 3.11, as the annotated images have it.
        [side, path], texts = drawn(1, [(0, 100), (200, 1000)], [(491, 70), (300, 100)])
        self.assertEqual((side, path, texts), ([184, 9, 128, 255], [184, 9, 128, 255], ["person #17 90\u202f%"]))
        [side, path], texts = drawn(1, [(0, 100), (200, 1000)], [(491, 70), (300, 100)], track=None)
        self.assertEqual((side, path[3], texts), ([*GREEN, 255], 0, ["person 90\u202f%"]))
        # Thirty columns of the canvas in a tenth of a second, for three seconds.
        moving = [(100 * at, 100 + 40 * at) for at in range(31)]
        box = 1000 // 2 - 12
        self.assertAlmostEqual(tail(30, moving), (100 + 40 * 10) // 2, delta=2)
        # The picture may be older than the newest messages: nothing is ahead of it.
        pixels, _ = drawn(10, moving, [(x, 100) for x in (100, 265, 300)])
        self.assertEqual([pixel[3] > 0 for pixel in pixels], [True, False, False])
        # A gap of a second is bridged, a longer one is not, nor one in which the camera had another size, or gave no message.
        self.assertLess(tail(2, [(0, 100), (500, None), (1000, 1000)]), 60)
        for gap in ([(0, 100), (500, None), (1001, 1000)], [(0, 100), (600, 300, 800), (700, 1000)], [(0, 100), (1500, 1000)], [(900, 100), (0, 1000)]):
            self.assertGreaterEqual(tail(len(gap) - 1, gap), box, gap)
        self.assertGreaterEqual(tail(30, moving, track=None), (100 + 40 * 30) // 2 - 12)

    def test_tracks_of_a_camera_are_shown_with_their_tails(self):
        tracks = """
          const parse = JSON.parse;
          JSON.parse = (text) => {
            const message = parse(text);
            for (const detection of message?.detections ?? []) detection.track = { id: 17 + detection.class_id, state: 'confirmed', age_ms: 0, velocity: [0, 0] };
            return message;
          };
          window.texts = [];
          window.lines = 0;
          const { fillText, lineTo } = CanvasRenderingContext2D.prototype;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.texts.push(text); fillText.call(this, text, ...at); };
          CanvasRenderingContext2D.prototype.lineTo = function (...at) { window.lines += 1; lineTo.call(this, ...at); };"""
        page = self.open(self.daemon(pattern("bars")), before=tracks)
        wait("the id", lambda: any(re.match(r"cyan #\d+", text) for text in page.evaluate("window.texts")))
        # Neither upright boxes nor points are drawn by lines.
        wait("tails", lambda: page.evaluate("window.lines") > 100)
        wait("the number", lambda: re.search(r"Tracks now\s+[1-9]", self.text(page, "#facts")))
        without = self.open(self.daemon(pattern("bars")))
        wait("facts", lambda: "Messages" in self.text(without, "#facts"))
        self.assertNotIn("Tracks", self.text(without, "#facts"))

    def test_a_fast_model_pushes_no_boxes_of_a_slow_one_of_its_camera_out(self):
        page = self.modules()

        def boxes(messages, sequence):
            """How many boxes a camera's picture of this number has after messages of (model, number, boxes)."""
            page.evaluate(
                """async ([messages, sequence]) => {
                  const { Screen } = await import('/pictures.js');
                  const canvas = Object.assign(document.createElement('canvas'), { style: 'width: 80px; height: 40px' });
                  document.body.replaceChildren(canvas);
                  const screen = new Screen('door');
                  screen.attach(canvas);
                  const detection = { class_id: 0, label: 'person', score: 0.9, box: { x: 0, y: 0, width: 40, height: 20 } };
                  for (const [name, sequence, boxes] of messages) {
                    const frame = { width: 80, height: 40 };
                    screen.message({ model: { name }, sequence, monotonic_ns: 7e9 + sequence * 2e6, frame, detections: Array(boxes).fill(detection) });
                  }
                  if (sequence !== null) screen.picture(await createImageBitmap(new ImageData(80, 40)), sequence);
                }""",
                [messages, sequence],
            )
            shown = "(() => { const { sequence, boxes } = document.querySelector('canvas').dataset; return boxes && [Number(sequence), Number(boxes)]; })()"
            return wait("the picture", lambda: page.evaluate(shown))

        fast = [("cars", number, 1) for number in range(1, 500)]
        self.assertEqual(boxes([("people", 1, 2), *fast], 499), [499, 3])
        # A picture of the slow model, whose message comes late; the newest message is not the last one.
        self.assertEqual(boxes([*fast, ("people", 450, 2)], 450), [450, 3])
        self.assertEqual(boxes([*fast, ("people", 450, 2)], None), [499, 3])
        # Too long ago, or after the picture.
        self.assertEqual(boxes([("people", 1, 2), *fast, ("cars", 1100, 1)], 1100), [1100, 1])
        self.assertEqual(boxes([*fast, ("people", 499, 2)], 498), [498, 1])

    def test_a_message_of_several_models_shows_the_boxes_of_each(self):
        more = f'[[model]]\nname = "again"\npath = "{NETWORK}"\n'
        grouped = pattern("bars", fps=10).replace('name = "bars"\n', 'name = "bars"\nmodels = ["tiny", "again"]\ngroup = true\n')
        page = self.open(self.daemon(more + grouped))
        # Each finds a box of each of eight colours.
        wait("the boxes of both", lambda: self.shown(page)[1] > 12)

    def test_attributes_are_a_line_of_text_whatever_their_names_hold(self):
        page = self.modules()
        drawn = lambda attributes, width: page.evaluate(
            """async ([attributes, width]) => {
              const { drawDetections, fitting } = await import('/overlay.js');
              const canvas = Object.assign(document.createElement('canvas'), { width, height: 200 });
              const context = canvas.getContext('2d');
              const texts = [];
              context.fillText = (text) => texts.push(text);
              drawDetections(context, { detections: [], attributes }, fitting(canvas, 800, 400), 1);
              return [texts, context.getImageData(1, 199, 1, 1).data[3], document.querySelectorAll('b').length];
            }""",
            [attributes, width],
        )
        attributes = {
            "gender": {"label": "female", "score": 0.974},
            "age": {"value": 31.2},
            "worn": {"labels": [{"label": "hat", "score": 0.9}, {"label": "<b>bag</b>", "score": 0.7}]},
            "held": {"labels": []},
        }
        texts, alpha, made = drawn(attributes, 400)
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts[0], r"^gender: female( 97\u202f%)? · age: 31.2 · worn: hat, <b>bag</b> · held: none$")
        self.assertEqual((alpha, made), (255, 0))
        # Small pictures have no text, and other models no line.
        self.assertEqual(drawn(attributes, 200)[0], [])
        self.assertEqual(drawn({}, 400), [[], 0, 0])

    def test_the_page_is_small_and_takes_nothing_from_elsewhere(self):
        daemon = self.daemon(pattern("bars"))
        page = self.open(daemon)
        html = page.request.get(daemon.url)
        self.assertLessEqual(len(html.body()), MOST_BYTES)
        self.assertNotIn("unsafe", html.headers["content-security-policy"])
        self.assertEqual([url for url in page.requested if not url.startswith((daemon.url, "data:"))], [])
        page_alone = [url for url in page.requested if not url.startswith((f"{daemon.url}/api/", f"{daemon.url}/cameras/", "data:"))]
        self.assertEqual(page_alone, [f"{daemon.url}/"])
        print(f"page {len(html.body())} bytes", file=sys.stderr)

    def test_it_comes_back_by_itself_when_the_daemon_does(self):
        daemon = self.daemon(pattern("bars"))
        page = self.open(daemon)
        page.evaluate("window.same = true")
        daemon.kill()
        wait("the page to say that nothing answers", lambda: page.locator("#banner").is_visible())
        self.assertIn("No answer", self.text(page, "#state"))
        self.picture(page, "no-answer")
        self.accessible(page)
        before, _ = self.shown(page)
        daemon.start()
        wait("the page to be content again", lambda: "Running" in self.text(page, "#state"))
        self.assertFalse(page.locator("#banner").is_visible())
        # The new daemon counts from 0, and its boxes are on its pictures.
        wait("new pictures", lambda: self.shown(page)[0] != before and self.shown(page)[1] > 0)
        self.assertTrue(page.evaluate("window.same"))

    def test_a_phone_shows_all_of_it_without_going_sideways(self):
        names = [f"camera-{number}" for number in range(1, 9)]
        daemon = self.daemon("".join(pattern(name, fps=10, width=320, height=180) for name in names))
        page = self.open(daemon, **PHONE, color_scheme="dark")
        wait("eight tiles", lambda: page.locator("#cameras li").count() == 8)
        self.no_sideways(page)
        self.accessible(page)
        self.picture(page, "phone-dark")
        self.picture(page, "phone-dark-whole", full_page=True)
        page.locator("#cameras button", has_text="camera-6").tap()
        self.assertEqual(self.text(page, "#inspector-title"), "camera-6")
        wait("its picture", lambda: self.shown(page)[1] > 0)
        page.set_viewport_size({"width": 320, "height": 640})
        self.no_sideways(page)

    def test_eight_cameras_on_a_screen_all_move(self):
        names = [f"camera-{number}" for number in range(1, 9)]
        daemon = self.daemon("".join(pattern(name, fps=10, width=320, height=180) for name in names))
        page = self.open(daemon)
        numbers = "[...document.querySelectorAll('#cameras canvas')].map((canvas) => Number(canvas.dataset.sequence ?? -1))"
        wait("a picture of each", lambda: len(page.evaluate(numbers)) == 8 and min(page.evaluate(numbers)) >= 0)
        before = page.evaluate(numbers)
        wait("each to move", lambda: all(now > then for now, then in zip(page.evaluate(numbers), before)))
        self.no_sideways(page)
        self.picture(page, "eight", full_page=True)

    def test_of_changes_that_are_reported_together_the_last_counts(self):
        observer = """
          window.IntersectionObserver = class {
            constructor(report) { this.report = report; }
            observe(target) { setTimeout(() => this.report([false, true].map((isIntersecting) => ({ target, isIntersecting })))); }
            disconnect() {}
          };"""
        self.open(self.daemon(pattern("bars")), before=observer)

    def test_light_and_dark_as_the_system_has_it_and_as_one_likes(self):
        daemon = self.daemon(pattern("bars"))
        ground = "getComputedStyle(document.body).backgroundColor"
        light, dark = (self.open(daemon, color_scheme=scheme) for scheme in ("light", "dark"))
        colours = light.evaluate(ground), dark.evaluate(ground)
        self.assertNotEqual(*colours)
        for page in (light, dark):
            self.accessible(page)
        light.click("#theme")
        self.assertEqual(light.evaluate(ground), colours[0])
        light.click("#theme")
        self.assertEqual(light.evaluate(ground), colours[1])
        light.reload()
        wait("the choice to be kept", lambda: light.evaluate(ground) == colours[1])
        time.sleep(2)
        self.picture(light, "dark", full_page=True)
        self.picture(dark, "system-dark")

    def test_all_is_reached_by_keyboard(self):
        daemon = self.daemon(pattern("one", fps=10) + pattern("two", fps=10))
        page = self.open(daemon)
        focus = "(document.activeElement.id || document.activeElement.textContent).trim()"
        met = []
        for _ in range(20):
            page.keyboard.press("Tab")
            met.append(page.evaluate(focus))
            if met[-1] == "two":
                page.keyboard.press("Enter")
                self.assertEqual(self.text(page, "#inspector-title"), "two")
        for wanted in ("To the cameras", "reload", "theme", "scores", "enlarge", "one", "two", "latency-all", "log-level", "log-find", "log"):
            self.assertIn(wanted, met)
        self.assertEqual(met.index("To the cameras"), 0)
        page.focus("#reload")
        page.keyboard.press("Enter")
        wait("what came of it", lambda: "Applied" in self.text(page, "#outcome"))
        wait("the focus there", lambda: page.evaluate(focus) == "outcome-title")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        self.assertFalse(page.locator("#outcome").is_visible())

    def test_a_reload_tells_what_came_of_it(self):
        daemon = self.daemon(pattern("one", fps=10))
        page = self.open(daemon)
        daemon.write(pattern("one", fps=10) + pattern("two", fps=10))
        page.click("#reload")
        wait("the new camera", lambda: page.locator("#cameras li").count() == 2)
        self.assertIn("two", self.text(page, "#outcome"))
        self.accessible(page)
        daemon.write(pattern("one", fps=-3))
        page.click("#reload")
        wait("the refusal", lambda: "Refused" in self.text(page, "#outcome"))
        # The mark is below the text that it marks.
        self.assertIn("19 | fps = -3\n       |       ^^", self.text(page, "#outcome"))
        self.assertEqual(page.locator("#cameras li").count(), 2)
        self.picture(page, "refused")

    def test_what_is_wrong_is_said(self):
        daemon = self.daemon(pattern("bars") + absent("gate"))
        page = self.open(daemon)
        wait("the camera that is away", lambda: "gate" in self.text(page, "#state"))
        page.locator("#cameras button", has_text="gate").click()
        self.assertIn("usb-nothing", self.text(page, "#inspector-reason"))
        self.assertIn("1 of 2", self.text(page, "#glance").replace("\n", " "))
        self.accessible(page)
        self.picture(page, "lost", full_page=True)
        page.select_option("#log-level", "warn")
        wait("the log to tell of it", lambda: "gate" in self.text(page, "#log"))

    def test_a_sink_without_its_broker_is_told(self):
        nobody = f"mqtt://127.0.0.1:{free_port()}"
        daemon = self.daemon(pattern("bars", fps=10) + f'[[sink]]\ntype = "mqtt"\nname = "plant"\nurl = "{nobody}"\n')
        page = self.open(daemon)
        wait("the outage", lambda: "plant" in self.text(page, "#state"))
        self.assertIn("0 of 1", self.text(page, "#glance").replace("\n", " "))
        self.assertIn("check that the broker runs", self.text(page, "#sinks .reason"))
        self.accessible(page)
        self.picture(page, "outage", full_page=True)

    def test_a_sink_that_waits_on_its_spool_is_no_failure(self):
        sink = f'[[sink]]\ntype = "mqtt"\nname = "plant"\nurl = "mqtt://127.0.0.1:{free_port()}"\ndurable = true\nspool_directory = "{{dir}}/spool"\nspool_bytes = "256 MiB"\n'
        daemon = self.daemon(pattern("bars", fps=10) + sink)
        page = self.open(daemon)
        wait("the sink that waits", lambda: "plant" in self.text(page, "#state"))
        self.assertIn("messages are kept on disk", self.text(page, "#sinks .chip"))
        self.assertEqual(page.get_attribute("#state", "data-level"), "warn")
        self.assertEqual(page.locator("#glance [data-level=bad], #sinks [data-level=bad]").count(), 0)
        self.assertRegex(self.text(page, "#sinks"), r"messages?, \d[\d.]* (KiB|MiB) of 256 MiB")
        self.assertRegex(self.text(page, "#machine"), r"Memory\s+\d+ MiB, at most \d+ MiB")
        self.accessible(page)
        page.set_viewport_size({"width": 320, "height": 640})
        self.no_sideways(page)

    def test_a_spool_that_cannot_be_written_is_told(self):
        sink = f'[[sink]]\ntype = "mqtt"\nname = "plant"\nurl = "mqtt://127.0.0.1:{free_port()}"\ndurable = true\nspool_directory = "{{dir}}/spool"\n'
        daemon = self.daemon(pattern("bars", fps=10) + sink)
        page = self.open(daemon)
        wait("the sink that waits", lambda: "messages are kept on disk" in self.text(page, "#state"))
        spool = daemon.path("spool")
        shutil.rmtree(spool)
        spool.write_text("in the way")
        wait("the outage", lambda: "cannot write" in self.text(page, "#state"))
        self.assertEqual(self.text(page, "#sinks .chip"), "Outage")
        self.assertIn("the spool cannot be written: Not a directory", self.text(page, "#sinks .reason"))
        self.assertEqual(page.get_attribute("#state", "data-level"), "bad")
        self.accessible(page)
        spool.unlink()
        wait("the sink that waits again", lambda: "messages are kept on disk" in self.text(page, "#state"))

    def test_a_spool_is_full_by_its_bytes_now(self):
        daemon = self.daemon(pattern("bars", fps=10) + '[[sink]]\ntype = "file"\nname = "plant"\npath = "{dir}/out.jsonl"\n')
        page = self.open(daemon)
        changes = {}
        self.change_status(page, lambda status: status["sinks"][0].update(changes))
        spool = {"bytes": 0, "limit_bytes": 100, "records": 1, "dropped": 0, "outage": None}
        away = {"connected": False, "outage": "connection refused"}
        told = [
            (away, {"bytes": 70, "dropped": 7}, "Waiting, messages are kept on disk", "warn"),
            (away, {"bytes": 97}, "Outage", "bad"),
            ({"connected": True}, {"bytes": 97}, "Connected", "ok"),
            ({"connected": True}, {"outage": "no space"}, "Connected, messages are not kept on disk", "warn"),
        ]
        for sink, facts, state, level in told:
            changes.clear()
            changes.update({"outage": None, **sink, "spool": {**spool, **facts}})
            wait(state, lambda: (self.text(page, "#sinks .chip"), page.get_attribute("#state", "data-level")) == (state, level))
        self.assertIn("plant: connected, messages are not kept on disk", self.text(page, "#state").lower())

    def test_a_failed_tile_says_why(self):
        broken = '[[camera]]\nname = "broken"\n[camera.source]\ntype = "video"\nurl = "{dir}/no-video.mp4"\n'
        daemon = self.daemon(pattern("bars", fps=10) + broken)
        for how in (DESK, PHONE):
            page = self.open(daemon, **how)
            tile = page.locator("#cameras li", has_text="broken")
            wait("the reason", lambda: "there is no such file" in tile.inner_text())
            self.assertEqual(tile.inner_text().lower().count("failed"), 1)
            self.assertTrue(page.evaluate(INSIDE, ["#cameras li", ".notice span"]))
            self.accessible(page)

    def test_a_tiles_status_line_is_whole(self):
        fast = "".join(pattern(f"{name}-hall-conveyor-belt-left-side-behind-the-pillar", fps=400) for name in ("north", "south"))
        daemon = self.daemon(fast + "".join(pattern(f"camera-{number}", fps=5) for number in range(1, 5)))
        page = self.open(daemon, viewport={"width": 1280, "height": 800})
        tile = page.locator("#cameras li", has_text="north")
        wait("age and drops", lambda: "p99" in tile.inner_text() and "dropped" in tile.inner_text())
        for width in (1280, 1920):
            page.set_viewport_size({"width": width, "height": 1080})
            for part in (".name", ".rate", ".numbers", ".numbers span"):
                self.assertTrue(page.evaluate(INSIDE, ["#cameras li", part]), f"{part} at {width}")
            self.picture(page, f"tiles-{width}", full_page=True)

    def test_long_figures_fit_a_narrow_phone(self):
        daemon = self.daemon(pattern("bars"))
        page = self.open(daemon, before=SLOW, status=cameras(7), **{**PHONE, "viewport": {"width": 320, "height": 640}})
        for cell in ("#latency tr.total", "#glance", "#trend-age"):
            wait(f"the age in {cell}", lambda: "12\u202f345" in self.text(page, cell))
        wait("the processor", lambda: "of a core" in self.text(page, "#glance"))
        wait("detections", lambda: "12\u202f345\u202f678" in self.text(page, "#detections"))
        self.no_sideways(page)
        for things, parts in (("#glance > div", "dd, dd span, dd small"), ("#inspector", "td, th, b, dd"), (".camera", ".name, .rate")):
            self.assertTrue(page.evaluate(INSIDE, [things, parts]), f"{things}: {parts}")
        self.accessible(page)
        self.picture(page, "narrow", full_page=True)

    def test_the_age_has_one_name(self):
        page = self.open(self.daemon(pattern("one", fps=10) + pattern("two", fps=10)))
        wait("the age", lambda: "Age p99" in self.text(page, "#glance"))
        self.assertIn("Age p99", self.text(page, ".trends"))
        wait("the age in tiles", lambda: page.locator(".camera .numbers", has_text=re.compile(r"^age p99 \S+ ms")).count() == 3)
        for other in ("Latency p99", "Age,"):
            self.assertNotIn(other, page.locator("body").inner_text())

    def test_rows_of_tiles_have_no_hole(self):
        now = {"number": 7, "waiting": ["gate-3"]}
        daemon = self.daemon(pattern("bars", fps=5))
        page = self.open(daemon, status=lambda status: cameras(**now)(status))
        for number in (5, 7, 11, 13, 100):
            now["number"] = number
            wait(f"{number} tiles", lambda: page.locator(TILES).count() == number)
            for width in (320, 390, 1280, 1920):
                page.set_viewport_size({"width": width, "height": 900})
                wait("whole rows", lambda: all(-0.5 < room < 1.5 for row in page.evaluate(ROWS) for room in row))
                self.assertGreater(len(page.evaluate(ROWS)), 0 if number == 5 else 1, f"{number} at {width}")
                self.no_sideways(page)
                self.picture(page, f"rows-{number}-{width}", full_page=True)

    def test_many_cameras_are_compact(self):
        now = {"number": 11, "waiting": ["gate-3", "gate-9"]}
        daemon = self.daemon(pattern("bars", fps=5))
        page = self.open(daemon, status=lambda status: cameras(**now)(status), viewport={"width": 1280, "height": 900})
        tall = "document.querySelector('#cameras li').offsetHeight"
        wait("11 tiles", lambda: page.locator(TILES).count() == 11)
        large = page.evaluate(tall)
        self.assertFalse(page.locator("#filter").is_visible())
        now["number"] = 12
        wait("12 tiles", lambda: page.locator(TILES).count() == 12)
        self.assertTrue(page.locator("#filter").is_visible())
        self.assertLess(page.evaluate(tall), 0.75 * large)
        # The element under the cursor has the reason.
        tooltip = """(node) => {
          node.scrollIntoView({ block: 'center' });
          const { x, y } = node.getBoundingClientRect();
          return document.elementFromPoint(x + 5, y + 5).closest('[title]')?.title;
        }"""
        notice = page.locator("#cameras li", has_text="gate-3").locator(".notice")
        self.assertEqual(notice.evaluate(tooltip), "no device has the name usb-nothing-video-index0")
        self.accessible(page)
        now["number"] = 100
        wait("100 tiles", lambda: page.locator(TILES).count() == 100)
        for width, most in ((320, 4000), (390, 3600), (1280, 2400), (1920, 2400)):
            page.set_viewport_size({"width": width, "height": 900})
            parts = ".name, .notice b" + (", .rate, .numbers span" if width > 640 else "")
            wait(f"whole names at {width}", lambda: page.evaluate(INSIDE, ["#cameras li", parts]))
            self.no_sideways(page)
            self.assertLess(page.evaluate("document.documentElement.scrollHeight"), most, f"at {width}")
        self.accessible(page)
        # The last tile is reached by keyboard, and its camera is shown.
        page.locator("#cameras button").last.focus()
        page.keyboard.press("Enter")
        self.assertEqual(self.text(page, "#inspector-title"), "gate-100")

    def test_a_filter_finds_cameras_by_name_and_state(self):
        waiting = ["gate-3", "gate-90", "gate-91"]
        page = self.open(self.daemon(pattern("bars", fps=5)), status=cameras(100, waiting), viewport={"width": 1280, "height": 900})
        wait("100 tiles", lambda: page.locator(TILES).count() == 100)
        names = lambda: page.locator(f"{TILES} .name").all_inner_texts()
        query = lambda: page.evaluate("location.search")
        field, state = page.get_by_label("Filter by name"), page.get_by_label("State")
        field.focus()
        page.keyboard.type("GATE 9")
        self.assertEqual(names(), [f"gate-{at}" for at in range(2, 101) if "9" in str(at)])
        self.assertEqual(self.text(page, "#filter-count"), "19 of 100 cameras")
        self.assertEqual(query(), "?camera=GATE+9")
        page.keyboard.press("Tab")
        state.select_option(label="with trouble")
        self.assertEqual(names(), ["gate-90", "gate-91"])
        self.assertEqual(query(), "?camera=GATE+9&state=trouble")
        # Two tiles have room for the reason.
        self.assertIn("usb-nothing", page.locator(TILES).first.inner_text())
        self.accessible(page)
        self.picture(page, "filter", full_page=True)
        page.reload()
        wait("the same tiles", lambda: names() == ["gate-90", "gate-91"])
        self.assertEqual((field.input_value(), state.input_value()), ("GATE 9", "trouble"))
        self.assertEqual(self.text(page, "#inspector-title"), "gate-90")
        state.select_option(label="dropping frames")
        self.assertEqual(names(), [f"gate-{at}" for at in range(9, 100) if "9" in str(at) and at % 10 != 7])
        state.select_option(label="streaming")
        self.assertNotIn("gate-90", names())
        field.fill("<b>no such camera</b>")
        self.assertEqual(names(), [])
        self.assertIn("No camera matches", self.text(page, "#no-match"))
        self.assertEqual(self.text(page, "#filter-count"), "0 of 100 cameras")
        self.accessible(page)
        self.picture(page, "no-match", full_page=True)
        page.get_by_role("button", name="Show all").focus()
        page.keyboard.press("Enter")
        self.assertEqual((len(names()), query(), page.evaluate("document.activeElement.id")), (100, "", "filter-name"))
        self.assertFalse(page.locator("#no-match").is_visible())

    def test_a_bookmarked_filter_of_few_cameras_stays_when_it_is_cleared(self):
        page = self.open(self.daemon(pattern("bars", fps=5)), status=cameras(3), path="/?camera=bars")
        wait("one tile", lambda: page.locator(TILES).count() == 1)
        page.get_by_label("Filter by name").fill("")
        wait("all tiles", lambda: page.locator(TILES).count() == 3)
        self.assertTrue(page.locator("#filter").is_visible())

    def test_no_picture_is_requested_of_cameras_that_the_filter_hides(self):
        daemon = self.daemon(pattern("bars", fps=10))
        page = self.open(daemon, status=cameras(20), path="/?camera=bar&state=no-state")
        asked = lambda: page.locator(TILES).count() == 1 and [url for url in page.requested if "/cameras/" in url]
        wait("pictures", lambda: len(asked()) > 10)
        self.assertEqual(set(asked()), {f"{daemon.url}/cameras/bars/snapshot.jpg"})
        # An unknown state does not filter.
        self.assertEqual(page.evaluate("document.querySelector('#filter-state').selectedIndex"), 0)
        page.get_by_label("Filter by name").fill("gate-7")
        wait("the other picture", lambda: f"{daemon.url}/cameras/gate-7/snapshot.jpg" in asked())

    def test_labels_on_small_pictures_hide_no_box(self):
        page = self.modules()
        drawn = lambda boxes, width: page.evaluate(
            """async ([boxes, width]) => {
              const { drawDetections, fitting } = await import('/overlay.js');
              const canvas = Object.assign(document.createElement('canvas'), { width, height: width / 2 });
              const context = canvas.getContext('2d');
              const labels = [];
              context.fillRect = (...place) => labels.push(place);
              const texts = [];
              context.fillText = (text) => texts.push(text);
              const detections = boxes.map(([x, y, width, height]) => ({ class_id: 0, label: 'person', score: 0.9, box: { x, y, width, height } }));
              drawDetections(context, { detections }, fitting(canvas, 800, 400), 1);
              return [labels, texts, parseFloat(context.font.match(/[\d.]+px/)[0])];
            }""",
            [boxes, width],
        )

        def hidden(labels, boxes, width):
            """The largest part of a box that a label hides."""
            parts = [0]
            for box in boxes:
                x, y, wide, high = (each * width / 800 for each in box)
                for left, top, across, down in labels:
                    common = [min(left + across, x + wide) - max(left, x), min(top + down, y + high) - max(top, y)]
                    parts.append(max(0, common[0]) * max(0, common[1]) / (wide * high))
            return max(parts)

        # An upright image: a person in the middle, one at the upper edge, and two of whom one covers the other.
        people = [[100, 150, 60, 150], [300, 0, 60, 150], [500, 180, 60, 150], [510, 100, 60, 150]]
        labels, texts, font = drawn(people, 364)
        self.assertEqual((len(labels), font), (4, 10))
        self.assertEqual(hidden(labels, people, 364), 0)
        self.assertIn("person 90\u202f%", texts)
        # A score that would hide the neighbour is left out.
        neighbours = [[100, 150, 30, 150], [225, 100, 30, 60]]
        labels, texts, _ = drawn(neighbours, 364)
        self.assertEqual(sorted(texts), ["person", "person 90\u202f%"])
        self.assertLessEqual(hidden(labels, neighbours, 364), 0.1)
        # A label stays inside of a box that fills the picture, and a crowd has fewer labels.
        self.assertEqual(len(drawn([[0, 0, 800, 400]], 364)[0]), 1)
        crowd = [[40 * column, 90 * row, 38, 88] for row in range(4) for column in range(20)]
        for width in (320, 364, 639):
            labels, _, _ = drawn(crowd, width)
            self.assertLessEqual(hidden(labels, crowd, width), 0.1, f"at {width}")
        self.assertGreater(len(drawn(crowd[20:40] + crowd[60:], 364)[0]), 0)
        # A large picture has all that fit.
        labels, _, font = drawn(people, 1000)
        self.assertEqual((len(labels), font), (4, 11.5))
        self.assertGreater(len(drawn(crowd, 1000)[0]), 0)

    def test_the_header_and_the_title_have_the_devices_name(self):
        for name in ("gate-7", "north-hall-conveyor-belt-left-side-behind-the-pillar-box-0000042"):
            daemon = self.daemon(f'[device]\nname = "{name}"\n' + pattern("bars"))
            page = self.open(daemon, **PHONE)
            wait("the name", lambda: self.text(page, "h1") == f"visiond {name}")
            self.assertEqual(page.title(), f"{name} - visiond")
            self.assertNotIn("127.0.0.1", self.text(page, "header"))
            self.assertIn(daemon.url.removeprefix("http://"), self.text(page, "#about"))
            self.no_sideways(page)

    def test_detections_are_counted_with_the_frames_that_have_them(self):
        daemon = self.daemon(pattern("bars"))
        page = self.open(daemon)
        row = page.locator("#detections tbody tr", has_text="cyan")
        wait("some frames", lambda: row.count() == 1 and int(row.locator("td").nth(0).inner_text()) > 30)
        seen, frames, total = row.locator("td").all_inner_texts()
        # The network finds each bar once in a frame.
        self.assertEqual(frames.split(" of ")[0], seen)
        self.assertGreaterEqual(int(total), int(seen))
        self.assertIn("last", self.text(page, "#detections-span"))
        self.assertNotIn("cyan", self.text(page, "#facts"))

    def test_headings_say_the_seconds_that_the_data_cover(self):
        sockets = "window.sockets = []; window.WebSocket = class extends WebSocket { constructor(url) { super(url); window.sockets.push(this); } };"
        page = self.open(self.daemon(pattern("bars")), before=sockets)

        def seconds():
            texts = [page.text_content(heading) for heading in ("#latency-recent", "#detections-span")]
            found = re.fullmatch(r"last (\d+) s", texts[0])
            return int(found[1]) if found and texts[0] == texts[1] else None

        wait("some seconds", lambda: (seconds() or 0) >= 5)
        closed = time.monotonic()
        # As a hidden tab does, or a network that fails.
        page.evaluate("window.sockets.at(-1).close()")
        # A period that began earlier would cover five seconds too many.
        wait("a new start", lambda: (seconds() or 60) < time.monotonic() - closed + 2.5)
        wait("new messages", lambda: page.evaluate("window.sockets.length") == 2 and (seconds() or 0) >= 2)

    def test_the_recent_past_is_exact_and_bounded(self):
        page = self.browser.new_page()
        self.addCleanup(page.close)
        page.add_script_tag(content=(PAGE / "history.js").read_text() + "window.History = History;", type="module")
        wait("the module", lambda: page.evaluate("'History' in window"))
        # Each frame has two persons and a dog.
        told = """([every, until]) => {
          const history = new History();
          const labels = ['person', 'dog', 'person'].map((label) => ({ label }));
          for (let at = 0; at < until; at += every) history.frame({ camera: 'a', timings_us: { total: 1 }, detections: labels }, at);
          const { seconds, frames, labels: found } = history.detections('a', until);
          return [seconds, frames, found.get('person').detections, found.get('person').frames, history.stage('a', 'total').count];
        }"""
        self.assertEqual(page.evaluate(told, [100, 10_000]), [10, 100, 200, 100, 100])
        seconds, frames, *counts = page.evaluate(told, [100, 300_000])
        self.assertTrue(59 <= seconds <= 60 and frames == 10 * seconds, (seconds, frames))
        self.assertEqual(counts, [2 * frames, frames, frames])
        # A fast camera's is shorter, and says so.
        seconds, frames, *counts = page.evaluate(told, [4, 60_000])
        self.assertTrue(frames <= 7200 and abs(frames - 250 * seconds) <= 1, (seconds, frames))
        self.assertEqual(counts, [2 * frames, frames, frames])
        # A list of all 7.2 million detections takes 30 MB.
        page.evaluate("""() => {
          window.crowd = new History();
          const detections = Array.from({ length: 1000 }, (_, at) => ({ label: `label ${at % 3}` }));
          for (let at = 0; at < 60_000; at += 60_000 / 7200) window.crowd.frame({ camera: 'a', timings_us: { total: 1 }, detections }, at);
        }""")
        browser = page.context.new_cdp_session(page)

        def heap():
            browser.send("HeapProfiler.collectGarbage")
            return browser.send("Runtime.getHeapUsage")["usedSize"]

        with_it = heap()
        page.evaluate("() => { delete window.crowd; }")
        self.assertLess(with_it - heap(), 5_000_000)

    def test_boxes_have_their_score_unless_it_is_switched_off(self):
        daemon = self.daemon(pattern("bars"))
        texts = "window.texts = []; const fill = CanvasRenderingContext2D.prototype.fillText; CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.texts.push(text); fill.call(this, text, ...at); }"
        page = self.open(daemon, before=texts)

        def written():
            page.evaluate("window.texts = []")
            wait("labels", lambda: page.evaluate("window.texts.length") > 20)
            return page.evaluate("window.texts")

        wait("scores", lambda: any("cyan" in text for text in written()))
        self.assertTrue(any(re.fullmatch(r"cyan \d+\u202f%", text) for text in written()), written())
        page.focus("#scores")
        page.keyboard.press("Space")
        self.assertEqual(page.get_attribute("#scores", "aria-pressed"), "false")
        wait("no scores", lambda: not any("%" in text for text in written()))
        page.reload()
        wait("boxes on the picture", lambda: self.boxes(page))
        self.assertEqual(page.get_attribute("#scores", "aria-pressed"), "false")
        self.assertFalse(any("%" in text for text in written()))
        self.accessible(page)

    def test_long_lists_leave_no_holes(self):
        sinks = "".join(f'[[sink]]\ntype = "file"\nname = "lines-{number}"\npath = "{{dir}}/{number}.jsonl"\n' for number in range(6))
        daemon = self.daemon(pattern("bars", fps=10) + sinks)
        page = self.open(daemon)
        wait("the sinks", lambda: page.locator("#sinks .thing").count() == 6)
        edges = "(selector) => [...document.querySelectorAll(selector)].map((node) => node.getBoundingClientRect()).map(({ left, right, bottom }) => [left, right, bottom].map(Math.round))"
        for width in (1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            panels = page.evaluate(edges, "#glance, main > .panel:not([hidden])")
            self.assertEqual(len({(left, right) for left, right, _ in panels}), 1, panels)
            (_, _, large), (_, _, inspector) = page.evaluate(edges, "#large, #inspector")
            self.assertAlmostEqual(large, inspector, delta=2)

    def test_facts_are_those_of_the_status(self):
        daemon = self.daemon(pattern("bars", width=320, height=180) + '[[sink]]\ntype = "file"\nname = "lines"\npath = "{dir}/out.jsonl"\n')
        page = self.open(daemon)
        status = page.request.get(f"{daemon.url}/api/v1/status").json()
        wait("latencies", lambda: self.text(page, "#latency tr.total").split()[-1] != "–")
        self.assertIn("320 × 180", self.text(page, "#facts"))
        self.assertIn(status["models"][0]["file"], self.text(page, "#models"))
        self.assertIn("out.jsonl", self.text(page, "#sinks"))
        self.assertIn(status["version"], self.text(page, "#about"))
        page.click("#latency-all")
        self.assertRegex(self.text(page, "#latency tr.infer"), r"infer\s+[\d.]+\s+[\d.]+\s+[\d.]+")
        wait("a line of the log", lambda: "bars" in self.text(page, "#log"))
        page.fill("#log-find", "no line says this")
        self.assertEqual(self.text(page, "#log").strip(), "")

    def test_the_token_is_asked_for_once(self):
        daemon = Daemon(pattern("bars"))
        self.guarded(daemon, pattern("bars"))
        page = self.open(daemon, wanted=False)
        self.accessible(page)
        self.picture(page, "login")
        page.fill("#token", "not the token")
        page.click("button")
        self.assertIn("Wrong token", self.text(page, "#refused"))
        page.fill("#token", TOKEN)
        page.click("button")
        wait("boxes on the picture", lambda: self.boxes(page))


    def test_below_a_path_of_a_proxy_all_of_it_works(self):
        daemon = Daemon(pattern("bars"))
        self.guarded(daemon, pattern("bars"))
        proxy = Proxy("/cam/", daemon.port)
        self.addCleanup(proxy.close)
        page = self.open(proxy, wanted=False)
        page.fill("#token", "not the token")
        page.click("button")
        self.assertIn("Wrong token", self.text(page, "#refused"))
        page.fill("#token", TOKEN)
        page.click("button")
        wait("boxes on the picture", lambda: self.boxes(page))
        self.assertEqual(page.url, proxy.url)
        [cookie] = page.context.cookies()
        self.assertEqual(cookie["path"], "/cam")
        wait("lines of the log", lambda: page.locator("#log > *").count())
        page.click("#reload")
        wait("what came of the reload", lambda: page.locator("#outcome").is_visible() and self.text(page, "#outcome-text"))
        wait("the camera's links", lambda: page.locator("#inspector a").count())
        links = page.locator("#inspector a, footer a").evaluate_all("(all) => all.map((one) => one.href)")
        for link in links:
            if "stream.mjpeg" not in link:
                self.assertEqual(page.request.get(link).status, 200, link)
        self.assertGreater(len(links), 5)
        self.assertEqual([url for url in page.requested + links if not url.startswith((proxy.url, "blob:", "data:"))], [])
        self.assertTrue(any(opened.startswith(proxy.url.replace("http", "ws", 1)) for opened in page.sockets), page.sockets)
        self.assertEqual(proxy.elsewhere, [])

    def masked(self, tables="", keys="", size=(320, 180), **how):
        """A daemon with a camera that sees white, and its page with the editor of masks open."""
        daemon = Daemon(white("door", keys, tables))
        daemon.path("white.png").write_bytes(white_png(*size))
        self.entered(daemon)
        page = self.open(daemon, wanted=False, **how)
        wait("the size of the frames", lambda: page.locator("#masks-open").is_enabled())
        page.locator("#masks-open").click()
        wait("the masks", lambda: self.toml(page))
        # Figures that come later move the picture down.
        wait("all figures", lambda: all(figure in self.text(page, "#glance") for figure in ("Age p99", "of a core")))
        return daemon, page

    @staticmethod
    def toml(page):
        return page.locator("#masks-toml").input_value()

    @staticmethod
    def spot(page, x, y):
        """Where a point of the picture is in the window."""
        place = """([x, y]) => {
          const at = new DOMPoint(x, y).matrixTransform(document.querySelector('#shapes').getScreenCTM());
          return [at.x, at.y];
        }"""
        return page.evaluate(place, [x, y])

    @staticmethod
    def corners(page):
        """The corners on the picture, in its pixels."""
        labels = page.locator("#shapes g[role]").evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")
        return [tuple(int(part) for part in label.split(": ")[1].split(", ")) for label in labels]

    def drag(self, page, start, end):
        page.mouse.move(*self.spot(page, *start))
        page.mouse.down()
        page.mouse.move(*self.spot(page, *end), steps=3)
        page.mouse.up()

    def finger(self, page):
        """Returns what drags a finger from one point of the picture to another."""
        touch = page.context.new_cdp_session(page)

        def drag(start, end):
            for at in range(5):
                x, y = self.spot(page, *(a + (b - a) * at / 4 for a, b in zip(start, end)))
                touch.send("Input.dispatchTouchEvent", {"type": "touchMove" if at else "touchStart", "touchPoints": [{"x": x, "y": y}]})
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        return drag

    def draw(self, page, wanted):
        """Drags the corners of the chosen shape to these pixels by mouse. A mouse is at a whole pixel of the screen, so keys do the rest."""
        for at, point in enumerate(wanted):
            self.drag(page, self.corners(page)[at], point)
            page.locator("#shapes g[role]").nth(at).focus()
            (x, y), (now_x, now_y) = point, self.corners(page)[at]
            for key, steps in (("ArrowRight", x - now_x), ("ArrowLeft", now_x - x), ("ArrowDown", y - now_y), ("ArrowUp", now_y - y)):
                self.assertLess(steps, 5, "a drag ends near where the mouse was")
                for _ in range(steps):
                    page.keyboard.press(key)
        self.assertEqual(self.corners(page), wanted)

    def reloaded(self, daemon, page, config):
        daemon.write(config)
        page.locator("#reload").click()
        wait("the reload", lambda: "Reloading" not in self.text(page, "#outcome"))
        return self.text(page, "#outcome")

    def black(self, daemon, page, width, height):
        """The black pixels of a snapshot of the white camera."""
        jpeg = page.request.get(f"{daemon.url}/cameras/door/snapshot.jpg").body()
        decode = ["ffmpeg", "-v", "error", "-i", "-", "-f", "rawvideo", "-pix_fmt", "gray", "-"]
        pixels = subprocess.run(decode, input=jpeg, stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(len(pixels), width * height)
        return {(at % width, at // width) for at, level in enumerate(pixels) if level < 128}

    def test_a_mask_that_is_drawn_on_the_picture_blanks_what_was_below_it(self):
        # Slopes that meet no pixel's corner between their ends.
        wanted = [(40, 30), (141, 67), (150, 30), (150, 161), (95, 90), (40, 161)]
        for keys in ("", "rotate = 90", 'rotate = 270\nflip = "vertical"'):
            with self.subTest(keys):
                sideways = "rotate" in keys
                size, shown = ((180, 320), (180, 320)) if not sideways else ((320, 180), (180, 320))
                daemon, page = self.masked(keys=keys, size=size)
                page.get_by_role("button", name="Add privacy mask").click()
                self.assertEqual(len(self.corners(page)), 4)
                for at, point in enumerate(wanted[:4]):
                    self.drag(page, self.corners(page)[at], point)
                for at in (4, 5):
                    # The edge from the last corner to the first; a press on it adds a corner.
                    (a, b), (c, d) = self.corners(page)[-1], self.corners(page)[0]
                    self.drag(page, ((a + c) / 2, (b + d) / 2), wanted[at])
                    self.assertEqual(len(self.corners(page)), at + 1)
                # A mouse is at a whole pixel of the screen, so keys do the rest.
                for at, (x, y) in enumerate(wanted):
                    left, top = self.corners(page)[at]
                    page.locator("#shapes g[role]").nth(at).focus()
                    for key, steps in (("ArrowRight", x - left), ("ArrowLeft", left - x), ("ArrowDown", y - top), ("ArrowUp", top - y)):
                        self.assertLess(steps, 5, "a drag ends near where the mouse was")
                        for _ in range(steps):
                            page.keyboard.press(key)
                self.assertEqual(self.corners(page), wanted)
                self.assertEqual(self.black(daemon, page, *shown), set(), "nothing happens before the reload")
                self.accessible(page)
                self.picture(page, f"mask{keys[9:11]}", full_page=True)
                self.assertIn("Applied", self.reloaded(daemon, page, white("door", keys, self.toml(page))))
                self.assertEqual(self.black(daemon, page, *shown), touched(wanted, *shown))
                self.assertEqual(page.complaints, [])

    def test_points_go_from_the_frame_to_the_picture_and_back(self):
        turned = self.modules().evaluate(
            """async () => {
              const { turning } = await import('/overlay.js');
              const views = [0, 90, 180, 270].flatMap((rotate) => [null, 'horizontal', 'vertical'].map((flip) => ({ width: 640, height: 480, rotate, flip })));
              return views.map((view) => {
                const { width, height, to, from } = turning(view);
                return [width, height, to(100, 30), from(...to(100, 30)), to(...from(7, 9)), from(0, 0)];
              });
            }"""
        )
        self.assertEqual(len({tuple(picture) for _, _, picture, *_ in turned}), 8, "each orientation is another one")
        for at, (width, height, _, back, there, corner) in enumerate(turned):
            self.assertEqual(((width, height), back, there), ((480, 640) if at // 3 % 2 else (640, 480), [100, 30], [7, 9]))
            self.assertTrue(corner[0] in (0, 640) and corner[1] in (0, 480))
        # By ffmpeg 5.1: transpose=clock, and then hflip.
        self.assertEqual([turned[at][2] for at in (0, 3, 4)], [[100, 30], [450, 100], [30, 100]])

    def test_masks_of_the_configuration_are_loaded_and_stay_as_they_are(self):
        tables = """[[camera.privacy]]
polygon = [[0.6, 0], [1, 0], [1, 0.4], [0.7, 0.35]]

[[camera.privacy]]
polygon = [[0, 0.5], [0.25, 0.5], [0.25, 1], [0, 1]]
fill = "mosaic"

[[camera.privacy]]
polygon = [[0.3, 0.5], [0.4, 0.5], [0.4, 0.7]]
fill = [255, 128, 0]

[[camera.ignore]]
polygon = [[0, 0], [0.31, 0], [0.28, 0.2], [0, 0.25]]
classes = ["car", "a \\"truck\\""]"""
        daemon, page = self.masked(tables)
        self.assertEqual(self.toml(page), tables)
        self.assertIn("no changes", self.reloaded(daemon, page, white("door", "", self.toml(page))))
        page.get_by_label("Fill of privacy mask 1").select_option("mosaic")
        page.get_by_label("Fill of privacy mask 2").select_option("black")
        page.get_by_label("Colour of privacy mask 3").fill("#102030")
        page.get_by_label("Labels of ignore mask 1").fill("car, bus")
        wanted = tables.replace("0.35]]", '0.35]]\nfill = "mosaic"').replace('1]]\nfill = "mosaic"', "1]]").replace("[255, 128, 0]", "[16, 32, 48]")
        wanted = wanted.replace('["car", "a \\"truck\\""]', '["car", "bus"]')
        self.assertEqual(self.toml(page), wanted)
        self.assertIn("Applied", self.reloaded(daemon, page, white("door", "", self.toml(page))))
        # Choosing a mask on the picture is the same as in the list.
        page.mouse.click(*self.spot(page, 20, 10))
        self.assertEqual(page.get_attribute("#masks-list li:last-child button", "aria-pressed"), "true")
        self.assertEqual(self.corners(page)[1], (99, 0))
        page.get_by_role("button", name="Delete ignore mask 1").click()
        page.get_by_role("button", name="Delete privacy mask 1").click()
        self.assertEqual(self.toml(page).count("[["), 4)
        # What was drawn outlasts the editor; the configuration is there on request.
        page.locator("#masks-close").click()
        self.assertEqual(page.locator("#shapes").is_visible(), False)
        page.locator("#masks-open").click()
        self.assertEqual(self.toml(page).count("[[camera"), 2)
        self.load_again(page)
        self.assertEqual(self.toml(page).count("[[camera"), 4)
        for _ in range(4):
            page.locator("#masks-list button", has_text="Delete").first.click()
        self.assertIn("has no masks, lines and zones", self.toml(page))

    def test_pixels_of_the_configuration_become_fractions_of_the_same_pixels(self):
        pixels = "[[camera.privacy]]\npolygon = [[7, 11], [101, 11], [101, 97], [7, 97]]\nframe_size = [451, 301]\n"
        daemon, page = self.masked(pixels, size=(451, 301))
        self.assertEqual(self.corners(page), [(7, 11), (101, 11), (101, 97), (7, 97)])
        wanted = touched(self.corners(page), 451, 301)
        self.assertEqual(self.black(daemon, page, 451, 301), wanted)
        self.assertNotIn("frame_size", self.toml(page))
        self.reloaded(daemon, page, white("door", "", self.toml(page)))
        self.assertEqual(self.black(daemon, page, 451, 301), wanted)

    def test_a_mask_is_drawn_by_keyboard_alone(self):
        daemon, page = self.masked()
        focus = lambda: page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")
        self.assertEqual(focus(), "Masks, lines and zones of door")
        while focus() != "Add ignore mask":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        self.assertEqual(focus(), "Corner 1 of 4: 128, 72")
        for key in ("ArrowLeft", "Shift+ArrowUp", "Shift+ArrowLeft", "ArrowDown"):
            page.keyboard.press(key)
        self.assertEqual(focus(), "Corner 1 of 4: 117, 63")
        self.assertEqual(page.text_content("#spoken"), "117, 63")
        page.keyboard.press("Enter")
        self.assertEqual(focus(), "Corner 2 of 5: 155, 68")
        page.keyboard.press("Delete")
        self.assertEqual(focus(), "Corner 2 of 4: 192, 72")
        for _ in range(20):
            page.keyboard.press("Shift+ArrowRight")
        self.assertEqual(focus(), "Corner 2 of 4: 320, 72", "a corner stays on the picture")
        self.accessible(page)
        page.keyboard.press("Delete")
        self.assertNotIn("needs", self.text(page, "#masks-list"))
        page.keyboard.press("Delete")
        self.assertIn("has 2 points, and needs at least 3", self.text(page, "#masks-list"))
        self.assertIn("Ignore mask 1 has 2 points", page.text_content("#spoken"))
        self.assertEqual((self.toml(page), page.locator("#masks-copy").is_enabled()), ("", False))
        self.accessible(page)
        page.keyboard.press("Delete")
        page.keyboard.press("Delete")
        self.assertEqual(len(self.corners(page)), 1)
        page.keyboard.press("Enter")
        self.assertEqual(len(self.corners(page)), 2)
        page.keyboard.press("Escape")
        self.assertEqual(focus(), "Ignore mask 1")

    def test_the_configuration_is_copied(self):
        _, page = self.masked("[[camera.ignore]]\npolygon = [[0, 0], [0.31, 0], [0.28, 0.2], [0, 0.25]]")
        page.context.grant_permissions(["clipboard-read"])
        page.get_by_role("button", name="Copy").click()
        self.assertEqual(page.evaluate("navigator.clipboard.readText()"), self.toml(page))
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Copied")

    def test_each_camera_keeps_what_was_drawn_on_it(self):
        _, page = self.masked("[[camera.ignore]]\npolygon = [[0, 0], [0.31, 0], [0.28, 0.2], [0, 0.25]]\n" + pattern("yard", fps=5))
        page.get_by_role("button", name="Add privacy mask").click()
        drawn = self.toml(page)
        self.assertLess(drawn.index("privacy"), drawn.index("ignore"))
        page.locator("#cameras button", has_text="yard").click()
        self.assertFalse(page.locator("#masks").is_visible() or page.locator("#shapes").is_visible())
        page.locator("#masks-open").click()
        wait("no masks", lambda: "yard has no masks, lines and zones" in self.toml(page))
        page.locator("#cameras button", has_text="yard").click()
        self.assertTrue(page.locator("#masks").is_visible(), "the same camera closes nothing")
        page.locator("#cameras button", has_text="door").click()
        page.locator("#masks-open").click()
        self.assertEqual(self.toml(page), drawn)

    def test_without_the_masks_of_the_configuration_there_is_nothing_to_copy(self):
        _, page = self.masked("[[camera.ignore]]\npolygon = [[0, 0], [0.31, 0], [0.28, 0.2], [0, 0.25]]\n")
        loaded = self.toml(page)
        page.route("**/shapes", lambda route: route.fulfill(status=500, body="{}"))
        page.reload()
        wait("the size of the frames", lambda: page.locator("#masks-open").is_enabled())
        page.locator("#masks-open").click()
        wait("the reason", lambda: page.locator("#masks-note").is_visible())
        buttons = page.locator("#masks-copy, #masks-add button")
        self.assertEqual([button.is_enabled() for button in buttons.all()], 6 * [False])
        self.assertEqual(self.toml(page), "")
        self.accessible(page)
        page.unroute("**/shapes")
        self.load_again(page)
        self.assertEqual(self.toml(page), loaded)
        self.assertFalse(page.locator("#masks-note").is_visible())

    def test_a_mask_is_drawn_by_touch_on_a_narrow_phone(self):
        small = {**PHONE, "viewport": {"width": 360, "height": 640}}
        daemon, page = self.masked(**small)
        drag = self.finger(page)
        page.get_by_role("button", name="Add privacy mask").tap()
        page.locator("#large").scroll_into_view_if_needed()
        before = page.evaluate("scrollY")
        drag((128, 72), (40, 20))
        drag((160, 108), (160, 160))
        corners = self.corners(page)
        self.assertEqual(len(corners), 5)
        for corner, near in ((corners[0], (40, 20)), (corners[3], (160, 160))):
            self.assertLess(math.dist(corner, near), 3, corners)
        self.assertEqual(page.evaluate("scrollY"), before, "the page does not move with the corner")
        page.locator("#shapes g[role]").nth(1).tap()
        page.get_by_role("button", name="Delete corner").tap()
        self.assertEqual(self.corners(page), [corners[0], *corners[2:]])
        self.no_sideways(page)
        self.accessible(page)
        self.picture(page, "mask-phone", full_page=True)
        self.assertIn("Applied", self.reloaded(daemon, page, white("door", "", self.toml(page))))
        self.assertEqual(self.black(daemon, page, 320, 180), touched(self.corners(page), 320, 180))

    def test_the_editor_refuses_the_polygons_that_the_daemon_refuses(self):
        dice = random.Random(7)
        polygons = [[[dice.randrange(4) / 4, dice.randrange(4) / 4] for _ in range(dice.randrange(2, 6))] for _ in range(256)]
        polygons += [[[0.1, 0.1], [1.1, 0.1], [0.1, 0.9]], [[at / 65, (at % 2 + 1) / 65 + (at > 31) / 2] for at in range(65)]]
        faults = self.modules().evaluate(
            """async (polygons) => {
              const { fault } = await import('/shape.js');
              return polygons.map((points) => fault(points, { closed: true, least: 3 }));
            }""",
            polygons,
        )
        daemon = Daemon("")
        self.addCleanup(daemon.folder.cleanup)
        refused = []
        for at in range(0, len(polygons), 32):
            tables = "".join(f"[[camera.privacy]]\npolygon = {json.dumps(polygon)}\n" for polygon in polygons[at : at + 32])
            daemon.write(pattern("door") + tables)
            check = [BINARY, "check", "--file-only", str(daemon.config)]
            said = subprocess.run(check, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True).stdout
            lines = daemon.config.read_text().splitlines()
            numbers = {line: number for number, line in enumerate(at for at, text in enumerate(lines, 1) if text.startswith("polygon"))}
            refused += [at + numbers[int(line)] for line in re.findall(r":(\d+):\d+: `camera.privacy.polygon` ", said)]
        self.assertEqual([at for at, fault in enumerate(faults) if fault], refused)
        self.assertTrue(50 < len(refused) < 230, len(refused))

    def test_a_line_is_a_shape_whose_ends_do_not_meet(self):
        found = self.modules().evaluate(
            """async () => {
              const { fault, edges } = await import('/shape.js');
              const [line, area] = [{ closed: false, least: 2 }, { closed: true, least: 3 }];
              const bent = [[0, 0], [0.5, 0.5], [1, 0]];
              const back = [[0, 0], [1, 0], [0.5, 0.5], [0.5, 0]];
              return [edges(bent, false).length, edges(bent, true).length, fault(bent.slice(1), line), fault(back, line), fault(back, area) !== null];
            }"""
        )
        self.assertEqual(found, [2, 3, None, None, True])

    # Lines and zones of a camera with tracks, whose eight bars stand still. Nothing ends if the machine is slow.
    STEADY = '[camera.track]\nunseen = "60 s"\n'
    RULES = STEADY + """
[[camera.line]]
name = "door"
points = [[0.25, 0.5], [0.75, 0.5]]
sides = ["street", "shop"]
[[camera.zone]]
name = "dock"
polygon = [[40, 90], [600, 90], [600, 360], [40, 360]]
frame_size = [640, 360]
classes = ["white", "yellow", "cyan", "green"]
settle = "0 s"
hold = "60 s"
[[camera.zone]]
name = "yard"
hold = "60 s"
occupancy = { at_least = 3, lasting = "0.1 s" }
"""

    # Keeps every text that is drawn.
    TEXTS = """
      window.texts = [];
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.texts.push(text); fillText.call(this, text, ...at); };"""

    def facts(self, page, selector):
        return dict(page.locator(f"{selector} .fact").evaluate_all("(all) => all.map((one) => [...one.children].map((part) => part.textContent))"))

    def test_lines_and_zones_are_on_the_picture_with_their_numbers(self):
        daemon = self.daemon(pattern("bars") + self.RULES + pattern("plain", fps=5))
        page = self.open(daemon, before=self.TEXTS)
        # The anchors of the bars are at the bottom edge: those of the first four are in the polygon, one on its edge.
        wanted = {"door": "street –, shop –", "dock": "4 inside, 4 visits", "yard": "8 inside, 8 visits"}
        wait("the numbers", lambda: self.facts(page, "#rules") == wanted)
        seen = lambda text: text in page.evaluate("window.texts")
        for text in ("door", "street", "shop", "dock 4", "yard 8"):
            wait(text, lambda: seen(text))
        zones = page.locator("#zones")
        pink = lambda: page.evaluate(PIXELS, (255, 157, 240))
        self.assertEqual((zones.get_attribute("aria-pressed"), pink() > 100), ("true", True))
        self.accessible(page)
        zones.click()
        wait("no line", lambda: pink() == 0)
        page.reload()
        wait("the choice to be kept", lambda: zones.get_attribute("aria-pressed") == "false" and self.boxes(page))
        self.assertEqual(pink(), 0)
        page.locator("#cameras button", has_text="plain").click()
        wait("no lines, zones and tracks", lambda: not zones.is_visible() and not page.locator("#heat").is_visible())
        self.assertFalse(page.locator("#rules-title").is_visible())
        # A reload of the configuration is enough.
        page.locator("#cameras button", has_text="bars").click()
        zones.click()
        wait("the line", lambda: pink() > 100)
        self.reloaded(daemon, page, pattern("bars") + self.RULES.replace('"dock"', '"ramp"') + pattern("plain", fps=5))
        wait("the new zone", lambda: self.facts(page, "#rules").get("ramp") == "4 inside, 4 visits")
        # A camera that has no frame yet has no snapshot.
        self.assertEqual([each for each in page.complaints if "404" not in each], [])

    def test_the_sides_of_a_line_are_left_and_right_of_its_direction_on_any_picture(self):
        # A line down the middle of a frame of 400 x 200: its left is the right side of the picture, unless that is turned or mirrored.
        found = self.modules().evaluate(
            """async () => {
              const { drawRules, fitting } = await import('/overlay.js');
              const views = [[0, null], [180, null], [0, 'horizontal'], [90, null], [270, 'vertical']];
              return views.map(([rotate, flip]) => {
                const [width, height] = rotate % 180 ? [200, 400] : [400, 200];
                const canvas = Object.assign(document.createElement('canvas'), { width: 800, height: 800 });
                const context = canvas.getContext('2d');
                const places = {};
                context.fillText = (text, x, y) => (places[text] = [x, y]);
                const rules = [{ name: 'door', points: [[0.5, 0.25], [0.5, 0.75]], sides: ['east', 'west'], counts: [3, undefined] }];
                drawRules(context, rules, { rotate, flip }, { width, height }, fitting(canvas, width, height), 1);
                const [[x1, y1], [x2, y2]] = [places['east 3'], places.west];
                return [Math.sign(Math.round((x1 - x2) / 20)), Math.sign(Math.round((y1 - y2) / 20))];
              });
            }"""
        )
        self.assertEqual(found, [[1, 0], [-1, 0], [-1, 0], [0, 1], [0, 1]])

    def test_events_are_listed_from_begin_to_end_and_choose_their_camera(self):
        daemon = self.daemon(pattern("bars") + self.RULES + pattern("gate") + self.STEADY + '[[camera.zone]]\nname = "all"\nhold = "60 s"\n')
        page = self.open(daemon)
        rows = lambda: page.locator("#events-list li").all_inner_texts()
        # Eight visits of each whole frame, four of the polygon, and one occupancy.
        wait("all events", lambda: len(rows()) == 21)
        self.assertEqual(sum("yard · occupancy" in row and "8 inside" in row for row in rows()), 1)
        self.assertTrue(all("now" in row for row in rows()), rows())
        # The newest first, by their begins.
        begun = [event["event"] for event in page.request.get(f"{daemon.url}/api/v1/events").json()["events"] if event["phase"] == "begin"]
        self.assertEqual(page.locator("#events-list li").evaluate_all("(all) => all.map((one) => one.dataset.key)"), begun)
        self.accessible(page)
        self.picture(page, "events", full_page=True)
        page.locator("#events-kind").select_option("occupancy")
        wait("one event", lambda: (len(rows()), self.text(page, "#events-count")) == (1, "1 of 21"))
        page.locator("#events-camera").select_option("gate")
        wait("no event", lambda: self.text(page, "#no-events") == "No event matches the filter.")
        page.locator("#events-kind").select_option("")
        wait("those of the camera", lambda: len(rows()) == 8)
        page.locator("#events-list li").nth(3).click()
        self.assertEqual(self.text(page, "#inspector-title"), "gate")
        self.assertEqual(page.locator("#cameras [aria-pressed=true]").inner_text(), "gate")
        # The rule of one camera goes: its events end in their rows, and other ones stay.
        page.locator("#events-camera").select_option("")
        config = pattern("bars") + self.RULES + pattern("gate") + self.STEADY
        self.reloaded(daemon, page, config)
        wait("the ends", lambda: sum("rule removed" in row for row in rows()) == 8)
        self.assertEqual((len(rows()), sum("now" in row for row in rows())), (21, 13))
        # Another page gets the list from the daemon.
        other = self.open(daemon)
        wait("the same list", lambda: other.locator("#events-list .phase").all_inner_texts() == page.locator("#events-list .phase").all_inner_texts())
        # A camera that has no frame yet has no snapshot.
        self.assertEqual([each for each in page.complaints + other.complaints if "404" not in each], [])

    def test_events_that_come_while_the_list_is_loaded_are_counted_once(self):
        found = self.modules().evaluate(
            """async () => {
              document.body.innerHTML = '<div id="events"><output id="events-count"></output><select id="events-camera"></select><select id="events-kind"></select><p id="no-events"></p><ul id="events-list"></ul></div>';
              const { Events } = await import('/events.js');
              const event = (id, event, phase, more) => ({ id, event, phase, camera: 'gate', rule: 'dock', kind: 'zone', since: `2026-01-01T00:00:0${id}Z`, ...more });
              const kept = [event(2, 'b', 'begin'), event(1, 'a', 'begin', { label: 'cat', track: 5 })];
              let answer;
              window.fetch = () => new Promise((done) => (answer = () => done(new Response(JSON.stringify({ events: kept, totals: ['kept'] })))));
              const calls = [];
              const events = new Events({ reset: (totals) => calls.push(totals[0]), count: ({ id }) => calls.push(id), any: true }, () => {});
              events.status({ at: '2026-01-01T00:01:30Z', cameras: [] });
              const loaded = events.load();
              events.add(kept[0]);
              events.add(event(3, 'a', 'end', { reason: 'over' }));
              answer();
              await loaded;
              events.add(event(4, 'c', 'end', { reason: 'track_lost' }));
              const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
              await painted();
              const rows = [...document.querySelectorAll('li')].map((row) => [...row.children].slice(2, 6).map((part) => part.textContent));
              for (let at = 0; at < 1000; at += 1) events.add(event(5, `n${at}`, 'moment', { kind: 'line', to: 'shop' }));
              await painted();
              return [calls.slice(0, 3), rows, document.querySelectorAll('li').length];
            }"""
        )
        calls, rows, most = found
        self.assertEqual(calls, ["kept", 3, 4], "the one that was in the answer is not counted again")
        self.assertEqual(rows, [["dock · zone", "track lost", "", ""], ["dock · zone", "now", "1 min 28 s", ""], ["dock · zone", "ended", "2 s", "cat #5"]])
        self.assertEqual(most, 200)

    def test_where_objects_were_is_shown_by_time_and_not_by_frames(self):
        found = self.modules().evaluate(
            """async () => {
              const { Heat } = await import('/heat.js');
              const at = (ms, x, more) => ({ detections: [{ box: { x: x - 5, y: 80, width: 10, height: 10 }, track: { id: 1 }, ...more }], frame: { width: 640, height: 360 }, model: { name: 'a' }, monotonic_ns: ms * 1e6 });
              const seconds = (messages) => {
                const heat = new Heat();
                for (const message of messages) heat.add(message);
                return heat.grid && [...heat.grid.seconds].flatMap((time, cell) => (time > 0 ? [[cell % 64, Math.floor(cell / 64), Number(time.toFixed(6))]] : []));
              };
              const [fast, slow] = [10, 500].map((step) => Array.from({ length: 2000 / step + 1 }, (_, n) => at(n * step, 105)));
              return [seconds(fast), seconds(slow), seconds([at(0, 105), at(5000, 105), at(5100, 639)]), seconds([at(0, 105, { track: null }), at(100, 105, { track: null })])];
            }"""
        )
        self.assertEqual(found, [[[10, 9, 2]], [[10, 9, 2]], [[63, 9, 0.1]], None])
        page = self.open(self.daemon(pattern("bars") + self.RULES), before=self.TEXTS)
        wait("tracks", lambda: page.locator("#heat").is_visible())
        drawn = lambda: any(text.startswith("Where objects were since ") for text in page.evaluate("window.texts"))
        self.assertFalse(drawn())
        page.locator("#heat").click()
        wait("the heat map", drawn)
        self.accessible(page)
        self.picture(page, "heat")

    def ruled(self, tables, **how):
        """A daemon with a camera that sees the bars, and its page with the editor open."""
        daemon = self.daemon(pattern("bars") + tables)
        page = self.open(daemon, **how)
        page.locator("#masks-open").click()
        wait("the lines and zones", lambda: self.toml(page))
        wait("all figures", lambda: all(figure in self.text(page, "#glance") for figure in ("Age p99", "of a core")))
        return daemon, page

    def inside(self, daemon, page, name, polygon):
        """The pasted zone counts the bars, of 80 pixels each, whose lower middle is inside or on its edge."""
        [(left, _), (right, _)] = polygon[3], polygon[2]
        wanted = sum(left <= 80 * bar + 40 <= right for bar in range(8))
        wait(f"{wanted} bars inside", lambda: f"{name}" in self.facts(page, "#rules") and self.facts(page, "#rules")[name].startswith(f"{wanted} inside"))

    def test_a_zone_that_is_drawn_counts_what_is_in_it_to_a_pixel(self):
        # The lower middle of bar 2 is at 200, 360. A corner at exactly this pixel counts it, and one a pixel further does not.
        for left in (200, 201):
            with self.subTest(left):
                daemon, page = self.ruled("")
                page.get_by_role("button", name="Add zone").click()
                wanted = [(120, 40), (500, 60), (500, 360), (left, 360)]
                self.draw(page, wanted)
                page.get_by_label("Name of zone 1").fill("dock")
                self.accessible(page)
                self.picture(page, "zone", full_page=True)
                self.assertTrue(self.toml(page).startswith("[camera.track]\n\n[[camera.zone]]\nname = \"dock\"\n"), self.toml(page))
                self.assertIn("Applied", self.reloaded(daemon, page, pattern("bars") + self.toml(page)))
                self.inside(daemon, page, "dock", wanted)
                # A camera that has no frame yet has no snapshot.
                self.assertEqual([each for each in page.complaints if "404" not in each], [])

    def test_a_line_is_drawn_by_touch_with_the_names_of_its_sides(self):
        daemon, page = self.ruled("[camera.track]\n", **{**PHONE, "viewport": {"width": 320, "height": 640}})
        drag = self.finger(page)
        page.get_by_role("button", name="Add line").tap()
        page.locator("#large").scroll_into_view_if_needed()
        self.assertEqual(self.corners(page), [(192, 180), (448, 180)])
        self.assertIn("Point 1 of 2", page.locator("#shapes g[role]").first.get_attribute("aria-label"))
        drag((192, 180), (100, 300))
        drag(((100 + 448) / 2, 240), (300, 100))
        corners = self.corners(page)
        self.assertEqual(len(corners), 3)
        for corner, near in zip(corners, ((100, 300), (300, 100), (448, 180))):
            self.assertLess(math.dist(corner, near), 6, corners)
        page.get_by_label("Name of line 1").fill("the-door")
        page.get_by_label("Name of the left side of line 1").fill("street")
        page.get_by_label("Name of the right side of line 1").fill("shop")
        sides = "(all) => Object.fromEntries(all.map((one) => [one.textContent, [one.x.baseVal[0].value, one.y.baseVal[0].value]]))"
        # The middle of the line is on its way up, so its left is at the left and above.
        places = page.locator("#shapes .sides text").evaluate_all(sides)
        self.assertTrue(places["street"][0] < places["shop"][0] and places["street"][1] < places["shop"][1], places)
        self.no_sideways(page)
        self.accessible(page)
        self.picture(page, "line-phone", full_page=True)
        self.assertRegex(self.toml(page), r'^\[\[camera.line\]\]\nname = "the-door"\npoints = \[\[.*\]\]\nsides = \["street", "shop"\]$')
        self.assertIn("Applied", self.reloaded(daemon, page, pattern("bars") + "[camera.track]\n" + self.toml(page)))
        page.get_by_role("button", name="Load again").tap()
        wait("the same points", lambda: self.corners(page) == corners)

    def test_lines_and_zones_of_the_configuration_stay_as_they_are(self):
        tables = """[[camera.line]]
name = "door"
points = [[0.25, 0.5], [0.75, 0.5], [0.5, 0.25], [0.5, 0.75]]
sides = ["street", "shop"]
hold = "3 s"
unless = ["yard"]

[[camera.zone]]
name = "dock"
polygon = [[0.0625, 0.25], [0.9375, 0.25], [0.9375, 1]]
classes = ["white"]
dwell = "90 s"
occupancy = { at_least = 3, lasting = "2 s" }
settle = "0 s"
wrong_way = { direction = [[0.5, 1], [0.5, 0.25]], distance = 50 }

[[camera.zone]]
name = "yard"
visits = true"""
        pixels = tables.replace("[[0.0625, 0.25], [0.9375, 0.25], [0.9375, 1]]", "[[40, 90], [600, 90], [600, 360]]\nframe_size = [640, 360]")
        pixels = pixels.replace("[[0.5, 1], [0.5, 0.25]]", "[[320, 360], [320, 90]]")
        daemon, page = self.ruled("[camera.track]\n" + pixels)
        keys = lambda text: sorted(text.replace("\nvisits = true", "").splitlines())
        self.assertEqual(keys(self.toml(page)), keys(tables))
        config = f"{pattern('bars')}[camera.track]\n{self.toml(page)}"
        self.reloaded(daemon, page, config)
        self.assertIn("no changes", self.reloaded(daemon, page, config))
        page.get_by_label("Name of zone 1").fill("yard")
        self.assertIn("Zone 1 has the name of another line or zone", page.text_content("#spoken"))
        self.assertEqual(self.toml(page), "")
        page.get_by_label("Name of zone 1").fill("a dock")
        self.assertIn("write 1 to 64 letters", self.text(page, "#masks-list"))
        page.get_by_label("Name of zone 1").fill("dock")
        page.get_by_label("Name of the left side of line 1").fill("shop")
        self.assertIn("has two sides of one name", self.text(page, "#masks-list"))
        page.get_by_label("Name of the left side of line 1").fill("lane")
        self.assertIn('sides = ["lane", "shop"]', self.toml(page))
        # What is as by default is left out, and means the same.
        seen = 'classes = []\nmin_score = 0\nanchor = "bottom"\nsettle = "200 ms"\nhold = "1 s"\nonly_while = []\nunless = []\n'
        line = f'[[camera.line]]\nname = "gate"\npoints = [[0, 0.5], [1, 0.5]]\nsides = ["left", "right"]\n{seen}'
        zone = f'[[camera.zone]]\nname = "all"\npolygon = []\nvisits = true\nparked = false\n{seen}'
        self.reloaded(daemon, page, f"{pattern('bars')}[camera.track]\n{line}{zone}")
        self.load_again(page)
        short = '[[camera.line]]\nname = "gate"\npoints = [[0, 0.5], [1, 0.5]]\n\n[[camera.zone]]\nname = "all"'
        self.assertEqual(self.toml(page), short)
        self.assertIn("no changes", self.reloaded(daemon, page, f"{pattern('bars')}[camera.track]\n{self.toml(page)}"))
        self.reloaded(daemon, page, config)
        self.load_again(page)
        self.assertIn("dock", self.toml(page))
        # A zone without a polygon gets one when a corner of the frame is moved.
        page.get_by_role("button", name="Zone 2", exact=True).click()
        self.assertEqual(self.corners(page), [(0, 0), (640, 0), (640, 360), (0, 360)])
        page.locator("#shapes g[role]").first.focus()
        page.keyboard.press("Shift+ArrowRight")
        self.assertIn('name = "yard"\npolygon = [[0.015625, 0], [1, 0], [1, 1], [0, 1]]', self.toml(page))
        page.get_by_role("button", name="Delete zone 1").click()
        self.assertNotIn("dock", self.toml(page))

    # A camera that sees the bars, as somebody wrote it.
    COMMENTED = f"""
# The gate.
{pattern("bars").strip()}   # not too fast
[camera.track]   # for the lines
unseen = "60 s"

# Nobody counts here.
[[camera.ignore]]
polygon = [[0.0, 0.0], [0.1, 0.0], [0.1, 0.1]]   # the flag
classes = ["flag"]

# The end.
"""

    def changing(self, config, keys="allow_changes = true", name="bars", **how):
        """A daemon whose page may change the configuration, and the page with the editor open."""
        daemon = Daemon(config)
        daemon.path("white.png").write_bytes(white_png(320, 180))
        self.guarded(daemon, config, keys)
        page = self.open(daemon, wanted=False, **how)
        page.fill("#token", TOKEN)
        page.click("button")
        wait("the size of the frames", lambda: page.locator("#masks-open").is_enabled())
        page.locator("#masks-open").click()
        wait("the masks", lambda: self.toml(page))
        wait("all figures", lambda: all(figure in self.text(page, "#glance") for figure in ("Age p99", "of a core")))
        return daemon, page

    @staticmethod
    def load_again(page):
        """Presses Load again, and waits until the answer is shown: an edit before that counts instead of it."""
        page.get_by_role("button", name="Load again").click()
        wait("the configuration", lambda: page.get_attribute("#masks", "aria-busy") == "false")

    @staticmethod
    def applied(page, press="click"):
        """Presses Apply by `click`, `tap` or `Enter`, and waits until the change is in force."""
        button = page.locator("#masks-apply")
        button.press(press) if press == "Enter" else getattr(button, press)()
        wait("the outcome", lambda: button.inner_text().startswith("Applied in "))

    @staticmethod
    def ask(daemon, page, method, path, **how):
        """Sends a request with the token, and gives the status and the answer."""
        answer = page.request.fetch(f"{daemon.url}/{path}", method=method, **{**how, "headers": {"authorization": f"Bearer {TOKEN}", **how.get("headers", {})}})
        return answer.status, answer

    def test_a_zone_that_is_applied_counts_to_a_pixel_and_all_else_in_the_file_stays(self):
        # As of the zone that is pasted: the lower middle of bar 2 is at 200, 360.
        for left in (200, 201):
            with self.subTest(left):
                daemon, page = self.changing(self.COMMENTED)
                before = daemon.config.read_text()
                page.get_by_role("button", name="Add zone").click()
                wanted = [(120, 40), (500, 60), (500, 360), (left, 360)]
                self.draw(page, wanted)
                page.get_by_label("Name of zone 1").fill("dock")
                self.assertEqual(daemon.config.read_text(), before)
                self.accessible(page)
                self.picture(page, "apply", full_page=True)
                self.applied(page)
                self.inside(daemon, page, "dock", wanted)
                after = daemon.config.read_text()
                head, _, tail = before.partition("\n# The end.\n")
                self.assertTrue(after.startswith(head) and after.endswith("\n# The end.\n" + tail), after)
                added = after[len(head) : -len("\n# The end.\n" + tail)]
                self.assertRegex(added, r'^\n\[\[camera\.zone\]\]\nname = "dock"\npolygon = \[\[0\.1875, .*\]\]\n$')
                # By keyboard alone.
                page.locator("#shapes g[role]").first.focus()
                page.keyboard.press("Shift+ArrowLeft")
                self.applied(page, "Enter")
                self.assertEqual(page.evaluate("document.activeElement.id"), "masks-apply")
                again = daemon.config.read_text()
                [(was, now)] = [pair for pair in zip(after.splitlines(), again.splitlines()) if pair[0] != pair[1]]
                self.assertTrue(was.startswith("polygon = [[0.1875, ") and now.startswith("polygon = [[0.171875, "), (was, now))
                self.assertEqual(self.corners(page)[0], (110, 40))
                # A camera that has no frame yet has no snapshot; the page was not logged in at first.
                self.assertEqual([each for each in page.complaints if "404" not in each and "401" not in each], [])

    def test_masks_are_applied_by_touch_and_one_that_hides_something_only_if_that_is_confirmed(self):
        mask = "[[camera.privacy]]   # the window\npolygon = [[0.5, 0.5], [1.0, 0.5], [1.0, 1.0], [0.5, 1.0]]\n"
        daemon, page = self.changing(white("door", "", mask), **{**PHONE, "viewport": {"width": 360, "height": 640}})
        before = daemon.config.read_text()
        drag = self.finger(page)
        page.get_by_role("button", name="Add privacy mask").tap()
        page.locator("#large").scroll_into_view_if_needed()
        drag((128, 72), (40, 20))
        drawn = self.corners(page)
        self.assertLess(math.dist(drawn[0], (40, 20)), 3)
        self.applied(page, "tap")
        both = touched(drawn, 320, 180) | touched([(160, 90), (320, 90), (320, 180), (160, 180)], 320, 180)
        snapshot = lambda: self.black(daemon, page, 320, 180)
        self.assertEqual(snapshot(), both)
        self.assertTrue(daemon.config.read_text().startswith(before.rstrip("\n")))
        # Neither a deleted nor a smaller mask is applied unless a person confirms it.
        asked = []
        page.on("dialog", lambda dialog: asked.append(dialog.message) or (dialog.dismiss() if len(asked) == 1 else dialog.accept()))
        page.get_by_role("button", name="Delete privacy mask 1").tap()
        page.locator("#masks-apply").tap()
        wait("the question", lambda: page.title() and asked)
        self.assertIn("1 privacy mask of door will go or change", asked[0])
        wait("the button", lambda: page.locator("#masks-apply").is_enabled())
        self.assertEqual((snapshot(), daemon.config.read_text().count("# the window")), (both, 1))
        self.applied(page, "tap")
        self.assertEqual((snapshot(), daemon.config.read_text().count("# the window")), (touched(drawn, 320, 180), 0))
        self.assertEqual(len(asked), 2)
        self.no_sideways(page)
        self.accessible(page)

    def test_a_change_is_refused_without_permission_and_after_another_edit(self):
        daemon, page = self.changing(self.COMMENTED, keys="")
        self.assertFalse(page.locator("#masks-apply").is_visible())
        path = "api/v1/cameras/bars/shapes"
        status, shapes = self.ask(daemon, page, "GET", path)
        self.assertEqual((status, shapes.json()["allowed"]), (200, False))
        before = daemon.config.read_text()
        none = {"privacy": [], "ignore": [], "line": [], "zone": []}
        version = {"if-match": shapes.headers["etag"]}
        self.assertEqual(self.ask(daemon, page, "PUT", path, data=none, headers=version)[0], 403)
        daemon.write(self.COMMENTED)
        daemon.config.write_text(before.replace("[http]\n", "[http]\nallow_changes = true\n"))
        self.assertEqual(self.ask(daemon, page, "POST", "api/v1/reload")[0], 200)
        # The version is that of the file before.
        self.assertEqual(self.ask(daemon, page, "PUT", path, data=none, headers=version)[0], 412)
        self.assertEqual(self.ask(daemon, page, "PUT", path, data=none)[0], 428)
        # Another site's page cannot do it, even with the cookie.
        other = page.context.request.fetch(f"{daemon.url}/{path}", method="PUT", data=none, headers={**version, "origin": "http://elsewhere.test"})
        self.assertEqual(other.status, 403)
        self.load_again(page)
        self.assertTrue(page.locator("#masks-apply").is_visible())
        # Somebody edits the file while the page draws.
        page.get_by_role("button", name="Add zone").click()
        edited = daemon.config.read_text() + "# another edit\n"
        daemon.config.write_text(edited)
        page.locator("#masks-apply").click()
        wait("the reason", lambda: "has changed since the editor loaded it" in self.text(page, "#masks-note"))
        self.assertEqual(daemon.config.read_text(), edited)
        self.accessible(page)
        self.load_again(page)
        self.assertNotIn("zone", self.toml(page))
        page.get_by_role("button", name="Add zone").click()
        self.applied(page)
        self.assertTrue(daemon.config.read_text().endswith("# another edit\n"))

    def test_a_change_that_the_reload_refuses_leaves_the_file_as_it_was(self):
        daemon, page = self.changing(self.COMMENTED)
        # An edit that is not in force: a model that the check of the file accepts, and that cannot be loaded.
        broken = daemon.path("broken.onnx")
        broken.write_text("no model")
        shutil.copy(pathlib.Path(NETWORK).with_suffix(".toml"), broken.with_suffix(".toml"))
        edited = daemon.config.read_text().replace(str(NETWORK), str(broken))
        daemon.config.write_text(edited)
        path = "api/v1/cameras/bars/shapes"
        _, shapes = self.ask(daemon, page, "GET", path)
        new = {"privacy": [], "ignore": [], "line": [], "zone": [{"table": {"name": "all"}}]}
        status, answer = self.ask(daemon, page, "PUT", path, data=new, headers={"if-match": shapes.headers["etag"]})
        self.assertEqual((status, answer.json()["applied"]), (409, False))
        self.assertIn("broken.onnx", answer.json()["detail"])
        self.assertIn("configuration rejected", daemon.log())
        self.assertEqual(daemon.config.read_text(), edited)
        self.assertEqual(list(daemon.config.parent.glob(".*.part")), [])

    def test_what_the_daemon_refuses_is_said_beside_the_shape(self):
        rules = """[[camera.line]]
name = "door"
points = [[0.2, 0.5], [0.8, 0.5]]
unless = ["yard"]

[[camera.zone]]
name = "yard"
"""
        daemon, page = self.changing(pattern("bars") + self.STEADY + rules)
        before = daemon.config.read_text()
        page.get_by_role("button", name="Delete zone 1").click()
        page.locator("#masks-apply").click()
        line = page.locator("#masks-list li").first
        wait("the reason", lambda: "is refused: " in line.inner_text())
        self.assertIn("yard", line.locator(".reason").inner_text())
        self.assertIn("Line 1 is refused", page.text_content("#spoken"))
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "Line 1")
        self.assertFalse(page.locator("#masks-note").is_visible())
        self.assertEqual((daemon.config.read_text(), page.locator("#masks-apply").is_enabled()), (before, False))
        self.accessible(page)
        # What is wrong elsewhere is said as a whole.
        self.load_again(page)
        self.assertIn("zone", self.toml(page))
        daemon.config.write_text(before.replace("threads = 1", "threads = -1"))
        self.load_again(page)
        page.get_by_label("Name of line 1").fill("gate")
        page.locator("#masks-apply").click()
        wait("the reason", lambda: "threads" in self.text(page, "#masks-note"))
        # Without the right to write the file there is no button, and the reason.
        page.route("**/shapes", lambda route: route.fulfill(json={**route.fetch().json(), "reason": "cannot replace the file"}))
        self.load_again(page)
        self.assertIn("cannot replace the file", self.text(page, "#masks-note"))
        self.assertFalse(page.locator("#masks-apply").is_visible())

    def test_events_have_their_images_in_the_list(self):
        stored = '[camera.annotate]\ndirectory = "{dir}/images"\non_event = true\nkeep = 100\n'
        daemon = Daemon("")
        self.guarded(daemon, pattern("bars") + stored + self.RULES, "allow_changes = true")
        page = self.open(daemon, wanted=False)
        page.fill("#token", TOKEN)
        page.click("button")
        images = page.locator("#events-list img")
        shown = lambda: images.evaluate_all("(all) => all.filter((one) => one.complete && one.naturalWidth === 640).length")
        wait("images of all events", lambda: page.locator("#events-list li").count() == 13 and images.count() == 13)
        images.first.scroll_into_view_if_needed()
        wait("the first images", lambda: shown() > 3)
        self.accessible(page)
        self.picture(page, "event-images", full_page=True)
        with page.context.expect_page() as opened:
            images.first.click()
        large = opened.value
        wait("the large image", lambda: large.evaluate("document.images[0]?.naturalWidth ?? 0") == 640)
        event = page.locator("#events-list li").first.get_attribute("data-key")
        self.assertTrue(large.url.startswith(f"{daemon.url}/api/v1/events/{event}/image"), large.url)
        path = f"api/v1/events/{event}/image"
        status, whole = self.ask(daemon, page, "GET", path)
        self.assertEqual((status, whole.headers["content-type"], whole.body()[:2]), (200, "image/jpeg", b"\xff\xd8"))
        status, part = self.ask(daemon, page, "GET", path, headers={"range": "bytes=2-5"})
        self.assertEqual((status, part.body()), (206, whole.body()[2:6]))
        self.assertEqual(part.headers["content-range"], f"bytes 2-5/{len(whole.body())}")
        self.assertEqual(self.ask(daemon, page, "GET", path, headers={"range": f"bytes={len(whole.body())}-"})[0], 416)
        for other in ("..%2f..%2ftoken", "%2e%2e", event + "%00", "bars-1"):
            self.assertEqual(self.ask(daemon, page, "GET", f"api/v1/events/{other}/image")[0], 404)
        stranger = self.browser.new_context()
        self.addCleanup(stranger.close)
        self.assertEqual(stranger.request.get(f"{daemon.url}/{path}").status, 401)
        # An image from before a privacy mask is not shown any more.
        _, shapes = self.ask(daemon, page, "GET", "api/v1/cameras/bars/shapes")
        old = {kind: [{"was": at, "table": table} for at, table in enumerate(shapes.json()[kind])] for kind in ("ignore", "line", "zone")}
        mask = {"table": {"polygon": [[0, 0], [1, 0], [1, 0.5], [0, 0.5]]}}
        how = {"data": {**old, "privacy": [mask]}, "headers": {"if-match": shapes.headers["etag"]}}
        status, answer = self.ask(daemon, page, "PUT", "api/v1/cameras/bars/shapes", **how)
        self.assertEqual(status, 200, answer.text())
        self.assertEqual(self.ask(daemon, page, "GET", path)[0], 404)

    def test_an_event_that_is_over_has_a_link_to_its_clip(self):
        stored = '[camera.clips]\ndirectory = "{dir}/clips"\nbefore = "1 s"\nafter = "0 s"\nkinds = ["occupancy"]\n'
        daemon = self.daemon(pattern("bars") + stored + self.RULES)
        page = self.open(daemon)
        rows = page.locator("#events-list li")
        wait("all events", lambda: rows.count() == 13)
        self.assertEqual(page.locator("#events-list .files a").count(), 0, "the event is not over")
        self.reloaded(daemon, page, pattern("bars") + stored + self.RULES.replace("occupancy", "# occupancy"))
        link = page.locator("#events-list .files a")
        wait("the link", lambda: link.count() == 1 and link.inner_text() == "Clip")
        self.accessible(page)
        self.assertEqual(link.get_attribute("aria-label"), "Clip of yard")
        url = f"{daemon.url}/{link.get_attribute('href')}"
        clip = lambda: page.request.get(url)
        wait("the clip", lambda: clip().status == 200)
        self.assertEqual(clip().headers["content-type"], "video/mp4")
        self.assertRegex(clip().headers["content-disposition"], r'^inline; filename="bars-[0-9a-f-]+e\d+\.mp4"$')
        saved = daemon.path("saved.mp4")
        saved.write_bytes(clip().body())
        probe = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_type,width,height", "-of", "csv=p=0", str(saved)]
        found = subprocess.run(probe, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
        self.assertEqual(found, "video,640,360")
        part = page.request.get(url, headers={"range": "bytes=4-7"})
        self.assertEqual((part.status, part.body()), (206, b"ftyp"))
        for other in (url.replace("/clip", "/image"), url.replace("-e", "-x")):
            self.assertEqual(page.request.get(other).status, 404)


if __name__ == "__main__":
    unittest.main(verbosity=2)
