#!/usr/bin/env python3
"""Counts people in 400 frames of vtest.avi with visiond, and compares with vtest.tsv, which was counted by eye.

    compare.py [--visiond BIN] [--video VTEST.AVI]

Runs vtest.toml. Each crossing, visit and end of a visit in vtest.tsv must be there once, within a second, and nothing else but what
vtest.tsv explains. Exit status 1 if not. Needs ffmpeg.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("VISIOND_CACHE", pathlib.Path.home() / ".cache/visiond"))
FRAMES, RATE = 400, 10
TOLERANCE = 10
WHAT = {"begin": "enter", "end": "leave"}


def by_eye():
    """Rows of vtest.tsv: (rule, what, who, frame), and whether a person is there."""
    lines = [line for line in (HERE / "vtest.tsv").read_text().splitlines() if not line.startswith("#")]
    for line in lines[1:]:
        rule, what, who, first, _, frame = line.split("\t")
        yield (rule, what, who, int(frame)), first != "-"


def by_visiond(binary, video):
    """Its events as (rule, what, frame, track). The frame is that of `since`: `at` is later by `settle`."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cut = folder / "vtest.mkv"
        subprocess.run(
            ["ffmpeg", "-v", "error", "-i", str(video), "-c", "copy", "-frames:v", str(FRAMES), str(cut)], check=True
        )
        config = (HERE / "vtest.toml").read_text().replace('"vtest.avi"', f'"{cut}"').replace("../../config", str(ROOT / "config"))
        config += f'\n[[sink]]\ntype = "file"\npath = "{folder / "events.jsonl"}"\nmessages = ["events"]\n'
        (folder / "vtest.toml").write_text(config)
        ran = subprocess.run([binary, "run", str(folder / "vtest.toml")], stderr=subprocess.PIPE, text=True)
        if ran.returncode or f"{FRAMES} of {FRAMES} frames processed" not in ran.stderr:
            sys.exit(ran.stderr)
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    time = lambda text: datetime.datetime.fromisoformat(text[:26] + "+00:00").timestamp()  # noqa: E731
    for event in events:
        frame = event["sequence"] - round((time(event["at"]) - time(event["since"])) * RATE)
        yield event["rule"], event.get("to") or WHAT[event["phase"]], frame, event["track"]


def pairs(eye, found):
    """Which row of (frame, person) belongs to which frame of visiond: both in order, within the tolerance, as near as possible."""

    @functools.cache
    def best(i, j):
        if i == len(eye):
            return (len(found) - j) * TOLERANCE / 2, ()
        without_row, rest = best(i + 1, j)
        ways = [(without_row + (TOLERANCE / 2 if eye[i][1] else 0), rest)]
        if j < len(found):
            without_event, rest = best(i, j + 1)
            ways.append((without_event + TOLERANCE / 2, rest))
            other, rest = best(i + 1, j + 1)
            ways.append((other + abs(eye[i][0] - found[j]), ((i, j), *rest)))
        return min(ways)

    return best(0, 0)[1]


def inside(rows, frame):
    """How many are in the zone at this frame."""
    return sum({"enter": 1, "leave": -1}.get(what, 0) for what, number in rows if number <= frame)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--video", type=pathlib.Path, default=CACHE / "media/vtest.avi")
    a = parser.parse_args()
    seen = list(by_eye())
    rows = [row for row, _ in seen]
    found = list(by_visiond(a.visiond, a.video))
    event_of = {}
    for key in {row[:2] for row in rows}:
        ours = sorted((event[2], e) for e, event in enumerate(found) if event[:2] == key)
        eyes = sorted((row[3], r) for r, row in enumerate(rows) if row[:2] == key)
        for i, j in pairs([(frame, seen[r][1]) for frame, r in eyes], [frame for frame, _ in ours]):
            event_of[eyes[i][1]] = ours[j][1]
    print(f"{'rule':8} {'what':9} {'eye':>4} {'visiond':>8} {'track':>6}  who")
    for r, (rule, what, who, frame) in enumerate(rows):
        _, _, at, track = found[event_of[r]] if r in event_of else (0, 0, "-", "-")
        print(f"{rule:8} {what:9} {frame if seen[r][1] else '-':>4} {at:>8} {track:>6}  {who}")
    people = [r for r, (_, person) in enumerate(seen) if person]
    missed = [rows[r] for r in people if r not in event_of]
    extra = [event for e, event in enumerate(found) if e not in event_of.values()]
    for rule, what, frame, track in extra:
        print(f"{rule:8} {what:9} {'-':>4} {frame:>8} {track:>6}  not explained")
    totals = defaultdict(lambda: [0, 0])
    for r in people:
        totals[rows[r][:2]][0] += 1
    for event in found:
        totals[event[:2]][1] += 1
    print("\n" + "\n".join(f"{rule} {what}: {eye} by eye, {ours} by visiond" for (rule, what), (eye, ours) in totals.items()))
    eye = [rows[r][1::2] for r in people if rows[r][0] == "square"]
    ours = [event[1:3] for event in found if event[0] == "square"]
    differ = [n for n in range(0, FRAMES, 10) if inside(eye, n) != inside(ours, n)]
    print(f"number in the zone at every tenth frame: {FRAMES // 10 - len(differ)} of {FRAMES // 10} equal, not frames {differ}")
    apart = [abs(rows[r][3] - found[e][2]) for r, e in event_of.items() if seen[r][1]] or [0]
    print(f"{len(apart)} of {len(people)} found; frames between them: median {statistics.median(apart)}, at most {max(apart)}")
    print(f"{len(missed)} missed, {len(found) - len(apart)} more, {len(extra)} of these without an explanation")
    sys.exit(1 if missed or extra else 0)


if __name__ == "__main__":
    main()
