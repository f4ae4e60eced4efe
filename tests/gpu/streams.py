#!/usr/bin/env python3
"""Many network cameras through the daemon on one GPU: RTSP servers here, NVDEC, the model, messages. For the rows `streams` and
`tracks`.

    streams.py --visiond BIN --engine FILE --card FILE --stream FILE.h264 [--cameras 1,16,64] [--seconds 15] [--fps 30]
               [--decoder nvdec|ffmpeg] [--max-batch N] [--batch-wait TIME] [--boxes FOLDER] [--losses FOLDER]
               [--tracks N] [--two-models 1,16,64]

Prints a figure as JSON for each number of cameras, as visiond-gpu does. The servers run on the same machine, on the last quarter of
its cores, which visiond may use as well: cameras would not take their part of every core's cache. Where cameras are many, visiond runs
a second time, on the first quarter of the cores, as by `CPUAffinity=`. With `--tracks N`, N cameras run without tracks, with tracks,
and with lines and zones, in turn, by reloads: what these cost. With `--two-models`, that many cameras feed two models each, which costs
at most 1.2 times the CPU of one. With `--boxes`, compares the boxes of FOLDER/boxes.h264 as a camera with those of FOLDER/boxes.bgr.xz,
the frames that ffmpeg makes of it. With `--losses`, plays films of FOLDER while packets are lost: each published frame must be whole,
so its detections are those of a frame of the same film without losses.
"""

import argparse
import ctypes
import json
import lzma
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SERVER = pathlib.Path(__file__).resolve().parent.parent / "rtsp/server.py"
ROW = "Streams"
# Clients of one server, which is a single Python process.
CLIENTS = 6
# Films without and with B-frames, with gradual refresh; the share of packets that each camera loses.
FILMS = ("losses.h264", "losses-b.h264", "losses-refresh.h264", "losses-hevc.h265")
KINDS = {"clean": 0, "0.1 %": 0.001, "1 %": 0.01, "10 %": 0.1, "udp": 0.01, "marks": 0.02}
# With this many cameras, visiond also runs on few cores.
MANY = 64
# The largest share of a core per stream, with this many cameras.
MOST_CPU = {16: 0.01, 64: 0.007}
# Rounds of six parts: without tracks, with them, with rules, and back.
TRACK_ROUNDS = 8
# Rules of a camera.
RULES = 20
# The most CPU of two models on each camera, as times that of one.
TWO_MODELS = 1.2
ONE_MODEL = """
[[model]]
name = "{name}"
path = "{engine}"
card = "{card}"
max_batch = {max_batch}
batch_wait = "{batch_wait}"
"""
REST = """
[[sink]]
type = "file"
path = "{folder}/messages.jsonl"
rotate_bytes = "1 TiB"
[http]
listen = []
"""
FRAMES = """
[[camera]]
name = "frames"
[camera.source]
type = "command"
command = ["cat", "{file}"]
container = "raw"
format = "bgr"
width = {width}
height = {height}
pace = "fastest"
repeat = false
"""
CAMERA = """
[[camera]]
name = "camera{n}"
models = {models}
[camera.source]
type = "rtsp"
url = "rtsp://127.0.0.1:{port}/{n}"
decoder = "{decoder}"
"""


def figure(what, wanted, seen, passed):
    print(json.dumps({"row": ROW, "what": what, "wanted": wanted, "seen": seen, "pass": passed}), flush=True)


def model(args, folder, names=("objects",)):
    """The configuration but for cameras: each model is the same engine."""
    keys = {key: getattr(args, key) for key in ("engine", "card", "max_batch", "batch_wait")}
    return "".join(ONE_MODEL.format(name=name, **keys) for name in names) + REST.format(folder=folder)


def rtsp_camera(n, port, decoder, names=("objects",)):
    return CAMERA.format(n=n, port=port, decoder=decoder, models=json.dumps(names))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_by_thread(pid):
    """CPU seconds of the threads of each kind, by the first word of their names."""
    seconds = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().split()[0]
            seconds[name] = seconds.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            pass
    return seconds


def gpu_joules():
    """The energy that the first GPU has used since its driver was loaded, by NVML; NaN if it does not say."""
    gpu, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return math.nan
    failed = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
    failed = failed or nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(millijoules))
    return math.nan if failed else millijoules.value / 1e3


def quarter_of_cores(number):
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[len(cores) * number // 4 : max(len(cores) * (number + 1) // 4, 1)])


def serve(stream, fps, count):
    servers, ports = [], []
    for _ in range(0, count, CLIENTS):
        command = ["nice", sys.executable, str(SERVER), stream, "--fps", str(fps), "--at-end", "loop", "--captured-ago", "0"]
        command += ["--sets", "both"]  # As cameras have it.
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(server.pid, quarter_of_cores(3))
        servers.append(server)
        ports.append(int(server.stdout.readline().split()[1]))
    return servers, ports


def measure(args, count, cores=None, models=("objects",)):
    """Measures `count` cameras, each with these models; returns the CPU of a stream."""
    servers, ports = serve(args.stream, args.fps, count)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config, summary = folder / "visiond.toml", folder / "summary.json"
            text = model(args, folder, models)
            text += "".join(rtsp_camera(n, ports[n // CLIENTS], args.decoder, models) for n in range(count))
            config.write_text(text)
            with open(f"{args.log}.{count}" + (".few-cores" if cores else "") + ".two-models" * (len(models) > 1), "w") as log:
                daemon = subprocess.Popen([args.visiond, "run", str(config), "--summary-json", str(summary)], stderr=log)
            if cores:
                os.sched_setaffinity(daemon.pid, cores)
            messages = folder / "messages.jsonl"
            deadline = time.monotonic() + 60
            while not messages.exists() or messages.stat().st_size == 0:
                if daemon.poll() is not None or time.monotonic() > deadline:
                    daemon.kill()
                    return figure(f"{count} cameras", "messages", f"none; see {log.name}", False)
                time.sleep(0.2)
            # Until every camera streams: decoders take 50 ms each to create, one at a time.
            time.sleep(3 + count / 8)
            began, cpu, size = time.monotonic(), cpu_seconds(daemon.pid), messages.stat().st_size
            threads, joules = cpu_by_thread(daemon.pid), gpu_joules()
            time.sleep(args.seconds)
            passed, joules = time.monotonic() - began, gpu_joules() - joules
            cpu = (cpu_seconds(daemon.pid) - cpu) / passed
            threads = {name: spent - threads.get(name, 0) for name, spent in cpu_by_thread(daemon.pid).items()}
            daemon.terminate()
            daemon.wait(30)
            told = json.loads(summary.read_text())
            cameras, gpu = told["cameras"], told["models"][0].get("gpu") or {}
            with messages.open() as file:
                file.seek(size)
                file.readline()
                steady = [json.loads(line) for line in file]
    finally:
        for server in servers:
            server.kill()
    for camera in cameras:
        print(json.dumps(camera), file=sys.stderr)
    totals = sorted(message["timings_us"]["total"] for message in steady)
    at = lambda share: totals[round(share * (len(totals) - 1))] / 1e3 if totals else float("inf")
    stages = {}
    for stage in steady[0]["timings_us"] if steady else ():
        values = sorted(message["timings_us"][stage] for message in steady)
        stages[stage] = values[len(values) // 2]
    # Once all cameras stream. Losses before that, while decoders are created, are counted separately.
    gaps, newest = 0, {}
    for message in steady:
        of = (message["camera"], message["model"]["name"])
        gaps += message["sequence"] - newest.get(of, message["sequence"] - 1) - 1
        newest[of] = message["sequence"]
    at_start = sum(sum(camera["dropped"].values()) for camera in cameras) - gaps
    most = sorted(((spent / passed / count, name) for name, spent in threads.items()), reverse=True)[:5]
    by_thread = ", ".join(f"{name} {share:.2%}" for share, name in most)
    decoded = sum(camera.get("decoder") == args.decoder for camera in cameras)
    copied = sum(camera["copied_bytes"] for camera in cameras)
    rate = len(steady) / args.seconds
    two = 2e3 / args.fps
    seen = (
        f"{rate:.0f} messages/s; age p50 {at(.5):.1f} ms, p99 {at(.99):.1f} ms, most {at(1):.1f} ms; {decoded} by {args.decoder}; "
        f"{copied} bytes copied; {gaps} dropped, {at_start} more at start and end; medians in us {json.dumps(stages)}"
    )
    holds = decoded == count and copied == 0 and at(0.99) <= two and gaps == 0
    which = f"{count} cameras" + (f" on {len(cores)} of {os.cpu_count()} cores" if cores else "")
    which += ", two models each" * (len(models) > 1)
    figure(f"{which}, {args.fps:g} frames/s", f"p99 <= {two:.0f} ms, none dropped", seen, holds)
    if not math.isnan(joules):
        figure(f"{which}, energy of the GPU", "", f"{len(steady) / joules:.2f} messages/J, {joules / passed:.0f} W", True)
    graphs, others = gpu.get("graph_runs", 0), gpu.get("single_runs", 0)
    share = cpu / count
    if len(models) > 1:
        return share
    figure(f"{which}, runs as one CUDA graph", "90 %", f"{graphs} of {graphs + others}", graphs > 9 * others)
    most = MOST_CPU.get(count)
    wanted = f"{most:.1%} of a core" if most else ""
    figure(f"{which}, CPU of a stream", wanted, f"{share:.2%} ({by_thread})", not most or share <= most)
    return share


def rules(count):
    """Lines and zones of a camera: `count` rules, of which every fourth is a line, on the ground that people walk on."""
    text = ""
    for n in range(count // 4):
        left = n / (count // 4)
        right = left + 0.8 / (count // 4)
        text += f'[[camera.line]]\nname = "line{n}"\npoints = [[{left:.3f}, 0.6], [{right:.3f}, 0.65]]\n'
        text += f'[[camera.zone]]\nname = "zone{n}"\npolygon = [[{left:.3f}, 0.7], [{right:.3f}, 0.7], [{right:.3f}, 0.9], [{left:.3f}, 0.9]]\n'
        text += 'dwell = "10 s"\noccupancy = { at_least = 5 }\n'
    return text


def measure_tracks(args, count):
    """Compares the CPU time without tracks, with tracks, and with rules on these, in turn, in one process."""
    servers, ports = serve(args.stream, args.fps, count)
    daemon = None
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config, messages = folder / "visiond.toml", folder / "messages.jsonl"
            cameras = [rtsp_camera(n, ports[n // CLIENTS], args.decoder) for n in range(count)]
            tracking = [camera.replace("[camera.source]", "track = {}\n[camera.source]") for camera in cameras]
            texts = {
                "plain": "".join(cameras),
                "tracks": "".join(tracking),
                "rules": "".join(camera + rules(RULES) for camera in tracking),
            }
            texts = {name: f"[events]\ndirectory = \"{folder}/events\"\n{model(args, folder)}{text}" for name, text in texts.items()}
            config.write_text(texts["plain"])
            with open(f"{args.log}.tracks", "w") as log:
                daemon = subprocess.Popen([args.visiond, "run", str(config)], stderr=log)
            time.sleep(10 + count / 8)
            spent, seen, ages, events = ({name: [] for name in texts} for _ in range(4))
            by_thread = {name: {} for name in texts}
            for which in [*texts, *reversed(texts)] * TRACK_ROUNDS:
                config.write_text(texts[which])
                daemon.send_signal(signal.SIGHUP)
                time.sleep(2)
                began, cpu, size = time.monotonic(), cpu_seconds(daemon.pid), messages.stat().st_size
                threads = cpu_by_thread(daemon.pid)
                time.sleep(5)
                cpu, passed = cpu_seconds(daemon.pid) - cpu, time.monotonic() - began
                for name, now in cpu_by_thread(daemon.pid).items():
                    share = (now - threads.get(name, 0)) / passed / count
                    by_thread[which].setdefault(name, []).append(share)
                with messages.open() as file:
                    file.seek(size)
                    file.readline()
                    # The last line may be half written.
                    lines = [json.loads(line) for line in file.read().splitlines()[:-1]]
                frames = [message for message in lines if message["schema"] == "visiond/1"]
                spent[which].append(cpu / passed / count)
                ages[which] += [message["timings_us"]["total"] for message in frames]
                seen[which] += [[one.get("track") for one in message["detections"]] for message in frames]
                events[which].append(len(lines) - len(frames))
            daemon.terminate()
            daemon.wait(30)
    finally:
        if daemon:
            daemon.kill()
        for server in servers:
            server.kill()
    # The median: a rented machine has other guests.
    cpu = {name: statistics.median(spent[name]) for name in texts}
    p99 = {name: sorted(ages[name])[len(ages[name]) * 99 // 100] / 1e3 for name in texts}
    has = lambda name: sum(track is not None for message in seen[name] for track in message)
    median = lambda which, name: statistics.median(by_thread[which].get(name, [0]))

    def compared(which, before):
        more = sorted(((median(which, name) - median(before, name), name) for name in by_thread[which]), key=lambda one: -abs(one[0]))
        more = ", ".join(f"{name} {share:+.3%}" for share, name in more[:4])
        return (
            f"{cpu[which] / cpu[before]:.3f} times: {cpu[which]:.3%} and {cpu[before]:.3%} of a core a stream, medians of "
            f"{len(spent[before])}, from {min(spent[which]):.3%} and {min(spent[before]):.3%} to {max(spent[which]):.3%} and "
            f"{max(spent[before]):.3%}; by thread {more}; {len(seen[which])} messages with {has(which)} tracks, "
            f"{len(seen[before])} with {has(before)}"
        )

    holds = cpu["tracks"] <= 1.03 * cpu["plain"] and has("tracks") > 0 and has("plain") == 0
    figure(f"{count} cameras, CPU with tracks", "1.03 times without", compared("tracks", "plain"), holds)
    told = sum(events["rules"])
    holds = cpu["rules"] <= 1.05 * cpu["tracks"] and told > 0
    figure(
        f"{count} cameras, CPU with {RULES} rules each",
        "1.05 times tracks alone",
        f"{compared('rules', 'tracks')}; {told / (5 * len(spent['rules'])):.0f} events/s",
        holds,
    )
    seen_ages = f"{p99['rules']:.2f} ms; {p99['tracks']:.2f} ms with tracks alone, {p99['plain']:.2f} ms without"
    figure(f"{count} cameras, p99 of age with {RULES} rules each", "1 ms more", seen_ages, p99["rules"] <= p99["tracks"] + 1)


def camera_of(film, kind):
    return f"-{film}-{kind}".translate(str.maketrans({".": "-", " ": None, "%": None}))


def compare_losses(args):
    """Plays each film without losses, with each loss, and with marks instead of drops, which tells how many damaged frames this sees."""
    media, servers = pathlib.Path(args.losses), []
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            # Alone in its run, because a batch may change the last digits.
            text = model(argparse.Namespace(**{**vars(args), "max_batch": 1, "batch_wait": "0"}), folder)
            for film in FILMS:
                for name, loss in KINDS.items():
                    server = [sys.executable, str(SERVER), str(media / film), "--fps", "20", "--at-end", "loop"]
                    server += ["--lose", str(loss), "--seed", "1"]
                    servers.append(subprocess.Popen(server, stdout=subprocess.PIPE, text=True))
                    port = int(servers[-1].stdout.readline().split()[1])
                    text += rtsp_camera(camera_of(film, name), port, args.decoder)
                    text += {"udp": 'transport = "udp"\n', "marks": 'damaged = "mark"\n'}.get(name, "")
            config, messages = folder / "visiond.toml", folder / "messages.jsonl"
            config.write_text(text)
            with open(f"{args.log}.losses", "w") as log:
                daemon = subprocess.Popen([args.visiond, "run", str(config)], stderr=log)
            try:
                time.sleep(args.loss_seconds)
                daemon.terminate()
                status = daemon.wait(30)
            finally:
                daemon.kill()
            read = {}
            for message in map(json.loads, messages.read_text().splitlines()):
                read.setdefault(message["camera"], []).append((message["frame"].get("damaged", False), json.dumps(message["detections"])))
    finally:
        for server in servers:
            server.kill()
    for film in FILMS:
        of = {name: read.get("camera" + camera_of(film, name), []) for name in KINDS}
        clean, frames = of.pop("clean"), len((media / film).with_suffix(".txt").read_text().split()) - 2
        whole = {detections for _, detections in clean}
        with_marks = of.pop("marks")
        marked = [detections not in whole for is_marked, detections in with_marks if is_marked]
        unmarked = sum(detections not in whole for is_marked, detections in with_marks if not is_marked)
        damaged = sum(detections not in whole for messages in of.values() for _, detections in messages)
        seen = ", ".join(f"{name} {len(messages)}" for name, messages in of.items())
        figure(
            f"{film} with lost packets",
            "all published frames whole, each frame seen without losses",
            f"{damaged} published frames not whole, of {seen}; {sum(marked)} of {len(marked)} marked ones "
            f"and {unmarked} of {len(with_marks) - len(marked)} unmarked ones differ from all {len(whole)} whole of {frames} frames",
            status == 0 and damaged == 0 and min(map(len, of.values())) > 0 and len(whole) == frames and 2 * sum(marked) > len(marked),
        )


def detections(args, folder, camera, count):
    """The detections of each frame, by its number."""
    config, messages = folder / "visiond.toml", folder / "messages.jsonl"
    messages.unlink(missing_ok=True)
    config.write_text(model(args, folder) + camera)
    with open(f"{args.log}.boxes", "a") as log:
        daemon = subprocess.Popen([args.visiond, "run", str(config)], stderr=log)
    read, deadline = {}, time.monotonic() + 60
    while max(read, default=-1) < count - 1 and time.monotonic() < deadline and daemon.poll() is None:
        time.sleep(0.2)
        lines = messages.read_text().splitlines() if messages.exists() else []
        read = {message["sequence"]: message["detections"] for message in map(json.loads, lines)}
    daemon.terminate()
    daemon.wait(30)
    return read


def compare_boxes(args):
    media = pathlib.Path(args.boxes)
    width, height, *sums = map(int, (media / "boxes.txt").read_text().split())
    # A server's client that comes late gets the stream from its start.
    server = [sys.executable, str(SERVER), str(media / "boxes.h264"), "--fps", "5", "--at-end", "hold"]
    server = subprocess.Popen(server, stdout=subprocess.PIPE, text=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            frames = folder / "frames.bgr"
            frames.write_bytes(lzma.decompress((media / "boxes.bgr.xz").read_bytes()))
            wanted = detections(args, folder, FRAMES.format(file=frames, width=width, height=height), len(sums))
            port = int(server.stdout.readline().split()[1])
            seen = detections(args, folder, rtsp_camera(0, port, args.decoder), len(sums))
    finally:
        server.kill()
    boxes = sum(len(wanted[n]) for n in seen if n in wanted)
    equal = sum(a == b for n in seen for a, b in zip(wanted.get(n, ()), seen[n]))
    same = all(wanted.get(n) == seen[n] for n in seen)
    figure(
        f"boxes by {args.decoder} against ffmpeg's frames of the same video",
        "equal",
        f"{equal} of {boxes} to the last digit, {len(seen)} of {len(sums)} frames",
        same and boxes > 0 and 2 * len(seen) > len(sums),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("visiond", "engine", "card", "stream"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cameras", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--decoder", choices=("nvdec", "ffmpeg"), default="nvdec")
    parser.add_argument("--fps", type=float, default=30)
    parser.add_argument("--max-batch", type=int, default=1, metavar="N")
    parser.add_argument("--batch-wait", default="0", metavar="TIME", help='for example "2 ms"')
    parser.add_argument("--boxes", metavar="FOLDER")
    parser.add_argument("--losses", metavar="FOLDER")
    parser.add_argument("--loss-seconds", type=float, default=40)
    parser.add_argument("--tracks", type=int, default=0, metavar="N")
    parser.add_argument("--two-models", default="", metavar="N,N")
    parser.add_argument("--log", default="/tmp/streams.log", help="start of the names of the daemon's logs")
    args = parser.parse_args()
    args.engine, args.card = (str(pathlib.Path(path).resolve()) for path in (args.engine, args.card))
    if args.boxes:
        compare_boxes(args)
    if args.losses:
        compare_losses(args)
    before, began = gpu_joules(), time.monotonic()
    time.sleep(2)
    if not math.isnan(before):
        figure("no camera, energy of the GPU", "", f"{(gpu_joules() - before) / (time.monotonic() - began):.0f} W", True)
    shares = {}
    for count in map(int, filter(None, args.cameras.split(","))):
        shares[count] = measure(args, count)
        if count >= MANY:
            measure(args, count, quarter_of_cores(0))
    for count in map(int, filter(None, args.two_models.split(","))):
        one, two = shares.get(count) or measure(args, count), measure(args, count, models=("objects", "second"))
        if one and two:
            seen = f"{two / one:.2f} times: {two:.2%} and {one:.2%} of a core a camera"
            figure(f"{count} cameras, CPU of two models", f"{TWO_MODELS} times one", seen, two <= TWO_MODELS * one)
    if args.tracks:
        measure_tracks(args, args.tracks)


if __name__ == "__main__":
    main()
