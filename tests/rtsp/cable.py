"""A cable between a camera and visiond, which can be unplugged, lose packets and reorder them."""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

from namespaces import Network

TUNSETIFF, TUNSETCARRIER, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x400454E2, 2, 0x1000

# How much later than its successors a packet comes that is out of order.
LATE_S = 0.03


class Cable(Network):
    """A network whose interfaces are TAP devices: this process carries the frames from one to the other.

    The kernel's netem could lose packets as well, but few kernels have it, and it cannot be given a seed.
    """

    def __init__(self, seed):
        self.lost = self.late = 0.0
        self.is_plugged, self.rng, self.counts = True, random.Random(seed), {"carried": 0, "lost": 0, "late": 0}
        super().__init__()
        threading.Thread(target=self.carry, daemon=True).start()

    def make_pair(self):
        self.ends = [os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK) for _ in range(2)]
        for end, name in zip(self.ends, (b"chaos0", b"chaos1")):
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name, IFF_TAP | IFF_NO_PI))

    def plug(self, yes, both=True):
        """Plugs it in or out: at both ends, or at the camera's alone, as where a switch is in between."""
        self.is_plugged = yes
        for end in self.ends[: 2 if both or yes else 1]:
            fcntl.ioctl(end, TUNSETCARRIER, struct.pack("i", yes))
        # The kernel uses a link up to a second after it is up.
        for name, prefix in (("chaos0", []), ("chaos1", self.enter)):
            while yes and "state DOWN" in self.ip("link", "show", name, prefix=prefix):
                time.sleep(0.01)

    def carry(self):
        """Carries frames from one end to the other, forever."""
        waiting, number = [], 0
        while True:
            wait = max(0, waiting[0][0] - time.monotonic()) if waiting else None
            readable, _, _ = select.select(self.ends, [], [], wait)
            for end in readable:
                try:
                    frame = os.read(end, 1 << 16)
                except OSError:
                    # Its interface is down.
                    continue
                other = self.ends[1 - self.ends.index(end)]
                if not self.is_plugged:
                    continue
                what = "lost" if self.rng.random() < self.lost else "late" if self.rng.random() < self.late else "carried"
                self.counts[what] += 1
                if what == "late":
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + LATE_S, number, other, frame))
                elif what == "carried":
                    self.write(other, frame)
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, other, frame = heapq.heappop(waiting)
                self.write(other, frame)

    @staticmethod
    def write(end, frame):
        """Puts a frame into an end; a full or broken one loses it."""
        try:
            os.write(end, frame)
        except OSError:
            pass
