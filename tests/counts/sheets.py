#!/usr/bin/env python3
# numpy 2.4.6, opencv-python-headless 5.0.0.93
"""Contact sheets of vtest.avi with the lines and the zone of vtest.toml, to count people by eye.

    sheets.py [--video VTEST.AVI] [--frames FROM-TO] [--every N] [--part X,Y,WIDTH,HEIGHT] [--scale S] [--columns N] [--rows N] FOLDER
    sheets.py [--video VTEST.AVI] --counted FOLDER

Writes FOLDER/000.png and so on: frames from left to right, then down, each with its number, which counts from 0.
With --counted, writes FOLDER/RULE.jpg instead: each event of vtest.tsv as three frames, the one that was counted and those 4 before and
after it. `tests/counts/pictures` has these.
"""

import argparse
import os
import pathlib
import tomllib

import cv2
import numpy

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("VISIOND_CACHE", pathlib.Path.home() / ".cache/visiond"))
# What a picture of an event shows: x, y, width and height.
PARTS = {"walkway": (270, 130, 120, 200), "road": (530, 100, 180, 130), "square": (480, 150, 180, 200)}
YELLOW, CYAN = (0, 255, 255), (255, 255, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--video", type=pathlib.Path, default=CACHE / "media/vtest.avi")
    parser.add_argument("--frames", default="0-399")
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--part", default="0,0,768,576")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--counted", action="store_true")
    parser.add_argument("folder", type=pathlib.Path)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.counted:
        return counted(a)
    first, last = map(int, a.frames.split("-"))
    x, y, width, height = map(int, a.part.split(","))
    tiles = []
    for number, frame in enumerate(drawn(a.video, last + 1)):
        if number < first or (number - first) % a.every:
            continue
        tile = cv2.resize(frame[y : y + height, x : x + width], None, fx=a.scale, fy=a.scale, interpolation=cv2.INTER_AREA)
        tiles.append(labelled(tile, str(number)))
    page = a.columns * a.rows
    for number, start in enumerate(range(0, len(tiles), page)):
        cv2.imwrite(str(a.folder / f"{number:03}.png"), sheet(tiles[start : start + page], a.columns))


def drawn(video, count):
    """The first frames, with lines and zones."""
    camera = tomllib.loads((HERE / "vtest.toml").read_text())["camera"][0]
    frames = cv2.VideoCapture(str(video))
    for number in range(count):
        ok, frame = frames.read()
        assert ok, f"{video} ends at frame {number}"
        for line in camera["line"]:
            cv2.polylines(frame, [numpy.array(line["points"])], False, YELLOW, 1)
        for zone in camera["zone"]:
            cv2.polylines(frame, [numpy.array(zone["polygon"])], True, CYAN, 1)
        yield frame


def labelled(tile, text):
    tile = tile.copy()
    tile[:, -1] = tile[-1] = 0
    cv2.putText(tile, text, (3, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (255, 255, 255), 3)
    cv2.putText(tile, text, (3, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 255), 1)
    return tile


def sheet(tiles, columns):
    tiles = tiles + [numpy.zeros_like(tiles[0])] * (-len(tiles) % columns)
    return numpy.vstack([numpy.hstack(tiles[i : i + columns]) for i in range(0, len(tiles), columns)])


def counted(a):
    frames = list(drawn(a.video, 400))
    rows = [line.split("\t") for line in (HERE / "vtest.tsv").read_text().splitlines() if line[0] != "#"]
    for rule, (x, y, width, height) in PARTS.items():
        tiles = []
        for what, frame in ((row[1], int(row[5])) for row in rows if row[0] == rule):
            for number in (frame - 4, frame, frame + 4):
                tile = frames[min(max(number, 0), 399)][y : y + height, x : x + width]
                tiles.append(labelled(tile, f"{number}: {what}" if number == frame else str(number)))
        cv2.imwrite(str(a.folder / f"{rule}.jpg"), sheet(tiles, 12), [cv2.IMWRITE_JPEG_QUALITY, 60])


main()
