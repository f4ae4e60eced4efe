#!/usr/bin/env python3
"""Rolls versions out to a fleet of real `visiond bundle follow` processes over a cluster of three nats-servers.

    tests/fleet/run.py [--visiond PROGRAM] [--devices 1000] [--folder FOLDER]

Each device is a process with a store of its own and a tiny model, and without a daemon. 5 % of them are off at first, and 3 % trust
another key, so they refuse every version. Then:

1. version 1 reaches all that are on, in three waves;
2. so does version 2, while one server is killed and comes back, twice;
3. version 3 detects something else than its reference: the rollout must stop in its first wave;
4. the devices that were off start, and get version 2.

All the while, no wave may have more devices than its share, and each device that had a model must have one. Prints durations, what the
servers were asked, and what a device and a look of an operator cost while nothing else happens. Needs nats-server, about 12 MB of memory
and 3 MB of disk for each device.
"""

import argparse
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Only turns a hang into a failure.
HANG_S = 1800
# How often devices ask, and how long nothing else happens while that is measured.
INTERVAL_S = 120
# A part of the name that operators' commands have at a server, and devices.
OPERATOR, DEVICE = "visiond fleet of ", " bundle follow"
PICTURES = [ROOT / "tests/media/astronaut.png", ROOT / "tests/media/coffee.png"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """Three servers with JetStream."""

    def __init__(self, folder):
        self.folder = folder
        self.ports = [[free_port() for _ in range(3)] for _ in range(3)]
        self.servers = [None] * 3
        self.base = [dict.fromkeys(("in_msgs", "out_msgs", "in_bytes", "out_bytes"), 0) for _ in range(3)]
        for number in range(3):
            self.start(number)
        self.url = ",".join(f"nats://127.0.0.1:{client}" for client, _, _ in self.ports)

    def start(self, number):
        client, route, monitor = self.ports[number]
        routes = ", ".join(f'"nats://127.0.0.1:{other}"' for _, other, _ in self.ports)
        store = self.folder / f"server-{number}"
        (self.folder / f"server-{number}.conf").write_text(
            f'server_name: "s{number}"\nlisten: "127.0.0.1:{client}"\nhttp: "127.0.0.1:{monitor}"\nlog_file: "{store}.log"\n'
            f'jetstream {{ store_dir: "{store}" }}\ncluster {{ name: "fleet", listen: "127.0.0.1:{route}", routes: [{routes}] }}\n'
        )
        program = shutil.which("nats-server") or "/usr/sbin/nats-server"
        self.servers[number] = subprocess.Popen([program, "-c", self.folder / f"server-{number}.conf"])

    def kill(self, number):
        self.counts()
        self.servers[number].kill()
        self.servers[number].wait()
        # A new process counts from zero.
        self.base[number] = self.last[number]

    def counts(self):
        """What the servers were sent and have sent, over all their processes."""
        last = []
        for number, (_, _, monitor) in enumerate(self.ports):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=10) as answer:
                    now = json.load(answer)
                last.append({key: now[key] + self.base[number][key] for key in self.base[number]})
            except OSError:
                last.append(self.base[number])
        self.last = last
        return {key: sum(one[key] for one in last) for key in last[0]}

    def clients(self, words, state="open"):
        """The connections whose client has these words in its name, by server and number."""
        found = {}
        for number, (_, _, monitor) in enumerate(self.ports):
            with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/connz?state={state}&limit=1000000", timeout=60) as answer:
                connections = json.load(answer)["connections"]
            found |= {(number, one["cid"]): one for one in connections if words in one.get("name", "")}
        return found

    def of_devices(self):
        """What devices alone have sent and were sent, unless a server was killed. It keeps the counts of 10,000 connections that ended."""
        all_clients = self.clients(DEVICE, "all").values()
        return {key: sum(one[key] for one in all_clients) for key in ("in_msgs", "out_msgs", "in_bytes", "out_bytes")}

    def memory_mib(self):
        return sum(int(line.split()[1]) for server in self.servers for line in open(f"/proc/{server.pid}/status") if line.startswith("VmRSS")) / 1024

    def stop(self):
        for server in self.servers:
            server.kill()
            server.wait()


class Fleet:
    def __init__(self, visiond, folder, devices):
        self.visiond, self.folder, self.total = visiond, folder, devices
        self.cluster = Cluster(folder)
        self.devices, self.failures = {}, []
        order = list(range(devices))
        random.Random(7).shuffle(order)
        self.off = set(order[: devices // 20])
        self.refusing = set(order[devices // 20 : devices // 20 + devices * 3 // 100])
        self.env = {**os.environ, "NATS_URL": self.cluster.url}

    def run(self, *args, check=True):
        done = subprocess.run([self.visiond, *map(str, args)], env=self.env, capture_output=True, text=True, timeout=HANG_S)
        if check and done.returncode:
            sys.exit(f"fleet: visiond {' '.join(map(str, args))}: status {done.returncode}: {done.stderr}")
        return done

    def fail(self, sentence):
        self.failures.append(sentence)
        print(f"           WRONG: {sentence}", flush=True)

    def make(self, version, wrong=False):
        expected = self.folder / "expected.json"
        if not expected.exists():
            expected.write_text(self.run("detect", "--json", "--model", self.folder / "tiny.onnx", *PICTURES).stdout)
        reference = expected
        if wrong:
            reference = self.folder / "wrong.json"
            lines = [json.loads(line) for line in expected.read_text().splitlines()]
            for line in lines:
                line["detections"] = line["detections"][1:]
            reference.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = self.folder / f"street-{version}.visiond"
        pictures = [arg for picture in PICTURES for arg in ("--pictures", picture)]
        # `make` would refuse to pack what does not keep its promise.
        promise = ["--no-proof"] if wrong else []
        self.run("bundle", "make", self.folder / "tiny.onnx", "--name", "street", "--version", version, "-o", out, "--reference", reference, *pictures, *promise)
        self.run("bundle", "sign", out, "--key", self.folder / "team.key")
        self.run("fleet", "push", out)

    def start(self, number):
        name = f"gate-{number}"
        key = "other.pub" if number in self.refusing else "team.pub"
        args = ["--source", self.cluster.url, "--group", "north", "--device", name, "--store", self.folder / name, "--key", self.folder / key]
        log = open(self.folder / f"{name}.log", "ab")
        command = [self.visiond, "bundle", "follow", "street", *args, "--url", "unix:/nowhere/http.sock", "--interval", f"{INTERVAL_S}s"]
        self.devices[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        log.close()

    def reported(self):
        return json.loads(self.run("fleet", "devices", "--json").stdout)

    def wait(self, what, is_so):
        begin = time.monotonic()
        while not is_so():
            if time.monotonic() - begin > HANG_S:
                sys.exit(f"fleet: waited {HANG_S} s for {what}")
            time.sleep(1)
        print(f"{time.monotonic() - begin:7.1f} s  {what}", flush=True)

    def look(self, version):
        """Compares what is so with what may be so, once."""
        status = json.loads(self.run("fleet", "status", "street", "--json").stdout)
        devices = self.reported()
        begun = sum(it["bundles"][0].get("version") == version and it["bundles"][0]["step"] != "waiting" for it in devices)
        if status and status[0]["version"] == version:
            # The status is older than the devices: the next wave may have begun between the two, so it counts.
            now = json.loads(self.run("fleet", "status", "street", "--json").stdout)[0]
            most = math.ceil(len(devices) * now["waves"][now["wave"] - 1] / 100)
            if begun > most:
                self.fail(f"{begun} devices have begun with version {version}, and {most} may")
        for number in range(self.total):
            store = self.folder / f"gate-{number}" / "street"
            if os.path.lexists(store / "current") and not (store / "current" / "model").exists():
                self.fail(f"gate-{number} has no model")

    def rollout(self, version, *options, status, meanwhile=()):
        """Runs a rollout, looks at it again and again, and does `meanwhile` after so many seconds each."""
        begin, before, of_devices = time.monotonic(), self.cluster.counts(), self.cluster.of_devices()
        is_killing = bool(meanwhile)
        command = [self.visiond, "fleet", "rollout", "street", str(version), "--group", "north", *options]
        driver = subprocess.Popen(command, env=self.env, stderr=subprocess.PIPE, text=True)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(driver.stderr))
        reader.start()
        meanwhile = list(meanwhile)
        while driver.poll() is None:
            if meanwhile and time.monotonic() - begin > meanwhile[0][0]:
                meanwhile.pop(0)[1]()
            if time.monotonic() - begin > HANG_S:
                driver.kill()
            self.look(version)
            time.sleep(1)
        reader.join()
        took, after = time.monotonic() - begin, self.cluster.counts()
        asked = {key: after[key] - before[key] for key in after}
        print(f"{took:7.1f} s  version {version}: {lines[-1].strip() if lines else ''}")
        print(f"           the servers, with their own and this script's messages, for each device: {self.per_device(asked)}")
        if not is_killing:
            now = self.cluster.of_devices()
            print(f"           of them, those of devices: {self.per_device({key: now[key] - of_devices[key] for key in now})}", flush=True)
        if meanwhile:
            self.fail(f"version {version}: the rollout was over before all that should happen meanwhile")
        if driver.returncode != status:
            sys.exit(f"fleet: version {version}: status {driver.returncode} instead of {status}:\n{''.join(lines)}")

    def per_device(self, counts):
        return ", ".join(f"{key} {count / len(self.devices):.1f}" for key, count in counts.items())

    def quiet(self):
        """Measures what devices cost that have nothing to do, and one look at all of them."""
        before, of_devices = self.cluster.counts(), self.cluster.of_devices()
        time.sleep(INTERVAL_S)
        after, now = self.cluster.counts(), self.cluster.of_devices()
        print(f"{INTERVAL_S:7.1f} s  nothing happens. The servers, with their own messages, for each device: {self.per_device({key: after[key] - before[key] for key in after})}")
        print(f"           of them, those of devices: {self.per_device({key: now[key] - of_devices[key] for key in now})}")
        on = len(self.devices)
        memory = []
        for device in self.devices.values():
            rollup = Path(f"/proc/{device.pid}/smaps_rollup").read_text()
            memory.append(sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024)
        memory.sort()
        print(f"           memory of a device, shared pages counted once: {memory[on // 2]:.1f} MiB in the median, {memory[-1]:.1f} at most; of the three servers: {self.cluster.memory_mib():.0f} MiB")
        begin = time.monotonic()
        known = self.cluster.clients(OPERATOR, "closed")
        self.run("fleet", "status", "--json")
        took = time.monotonic() - begin
        looks = [one for key, one in self.cluster.clients(OPERATOR, "closed").items() if key not in known]
        got, messages = (sum(one[key] for one in looks) for key in ("out_bytes", "out_msgs"))
        print(f"           one look at all devices: {took:.2f} s, {got} bytes in {messages} messages", flush=True)

    def versions(self):
        found = {}
        for number in range(self.total):
            link = self.folder / f"gate-{number}" / "street" / "current"
            version = os.readlink(link) if os.path.islink(link) else None
            found[version] = found.get(version, 0) + 1
        return found

    def expect(self, what, found, wanted):
        print(f"           {what}: {found}", flush=True)
        if found != wanted:
            self.fail(f"{what}: {found} instead of {wanted}")

    def stop(self):
        for device in self.devices.values():
            device.send_signal(signal.SIGKILL)
        for device in self.devices.values():
            device.wait()
        self.cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visiond", default=str(ROOT / "target/release/visiond"))
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep everything there")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = args.folder or Path(tempfile.mkdtemp(prefix="visiond-fleet-"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tiny.onnx", "tiny.toml"):
        shutil.copy(ROOT / "tests/vm" / name, folder / name)
    fleet = Fleet(args.visiond, folder, args.devices)
    try:
        for name in ("team", "other"):
            fleet.run("bundle", "keys", folder / name, "--no-password")
        fleet.wait("the cluster", lambda: fleet.run("fleet", "init", "--replicas", "3", check=False).returncode == 0)
        fleet.make(1)
        on = [number for number in range(args.devices) if number not in fleet.off]
        for number in on:
            fleet.start(number)
        fleet.wait(f"{len(on)} devices to report", lambda: len(fleet.reported()) == len(on))
        refusing = len(fleet.refusing)
        fleet.rollout(1, "--waves", "5,25", "--soak", "0s", "--max-failed", "20", status=0)
        fleet.expect("versions in use", fleet.versions(), {"1": len(on) - refusing, None: args.devices - len(on) + refusing})
        fleet.quiet()
        fleet.make(2)
        kills = []
        for at in (4, 20):
            kills += [(at, lambda: fleet.cluster.kill(1)), (at + 8, lambda: fleet.cluster.start(1))]
        fleet.rollout(2, "--waves", "5,25", "--soak", "15s", "--max-failed", "20", status=0, meanwhile=kills)
        fleet.expect("versions in use", fleet.versions(), {"2": len(on) - refusing, None: args.devices - len(on) + refusing})
        fleet.make(3, wrong=True)
        fleet.rollout(3, "--waves", "5,25", "--soak", "0s", "--max-failed", "20", status=4)
        fleet.expect("versions in use", fleet.versions(), {"2": len(on) - refusing, None: args.devices - len(on) + refusing})
        tried = sum(it["bundles"][0].get("version") == 3 and it["bundles"][0]["step"] == "refused" for it in fleet.reported())
        print(f"           devices that tried version 3: {tried} of {len(on)}")
        if not 0 < tried <= math.ceil(len(on) / 20):
            fleet.fail(f"{tried} devices have tried version 3")
        fleet.make(4)
        for number in fleet.off:
            fleet.start(number)
        fleet.rollout(4, "--waves", "50", "--soak", "0s", "--max-failed", "20", status=0)
        fleet.wait("every device that trusts the key to use version 4", lambda: fleet.versions() == {"4": args.devices - refusing, None: refusing})
    finally:
        fleet.stop()
    if args.folder is None:
        shutil.rmtree(folder)
    print(f"{len(fleet.failures)} things are wrong" if fleet.failures else "all as it should be")
    sys.exit(1 if fleet.failures else 0)


if __name__ == "__main__":
    main()
