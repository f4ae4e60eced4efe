"""Private namespaces for a test: network, mounts, and a second network at the other end of a pair of interfaces."""

import os
import shutil
import subprocess
import sys
import time


def in_namespaces():
    """Runs this script again in its own network and mount namespaces; returns if that is impossible."""
    if "CHAOS_NAMESPACES" in os.environ:
        return os.environ["CHAOS_NAMESPACES"] == "yes"
    words = ["unshare", "--mount", "--net"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    works = shutil.which("unshare") and not subprocess.run(
        [*words, "ip", "link", "set", "lo", "up"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).returncode
    os.environ["CHAOS_NAMESPACES"] = "yes" if works else "no"
    if not works:
        return False
    again = [sys.executable, *sys.argv]
    os.execvp("unshare", [*words, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again])


class Network:
    """A network namespace for visiond, reached by a pair of virtual interfaces; all other processes stay on this side."""

    HERE, THERE = "10.99.0.1", "10.99.0.2"

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self.enter = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == here:
            if self.holder.poll() is not None:
                raise OSError("unshare --net failed")
            time.sleep(0.01)
        self.make_pair()
        self.ip("link", "set", "chaos1", "netns", str(self.holder.pid))
        self.ip("address", "add", f"{self.HERE}/24", "dev", "chaos0")
        self.ip("link", "set", "chaos0", "up")
        for words in (["address", "add", f"{self.THERE}/24", "dev", "chaos1"], ["link", "set", "chaos1", "up"], ["link", "set", "lo", "up"]):
            self.ip(*words, prefix=self.enter)

    def make_pair(self):
        """Makes both interfaces, on this side."""
        self.ip("link", "add", "chaos0", "type", "veth", "peer", "name", "chaos1")

    @staticmethod
    def ip(*words, prefix=()):
        """Runs the program `ip`; returns what it prints."""
        done = subprocess.run([*prefix, "ip", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def lose_packets(self, yes):
        """Packets to visiond are lost."""
        self.ip("route", "add" if yes else "delete", "blackhole", f"{self.THERE}/32")

    def link(self, up):
        """Plugs the cable in or out."""
        self.ip("link", "set", "chaos0", "up" if up else "down")

    def close(self):
        """Interfaces go with the namespace."""
        self.holder.kill()
        self.holder.wait()
