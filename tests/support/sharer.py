# SPDX-License-Identifier: Apache-2.0
"""A process of a lease that speaks with the daemon as the preloaded library does, and says of itself what the test
wants. A line of stdin is `begin`, which asks for pages; `say BUSY HELD LAUNCHES`, which writes these numbers;
`work PERCENT`, which charges so much of the time from then on; `gain`; `load PERCENT`, which keeps the card busy by a
program without the library; or `unload`. Each prints numbers.
"""
import mmap
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.interposer.limited import LimitPage, UsePage  # noqa: E402

QUESTION, ANSWER, BEGIN = struct.Struct("IIIIQ"), struct.Struct("IIII"), 1
STEP = 0.01  # seconds


class Sharer:
    def __init__(self):
        self.limit = self.use = None
        self.percent = 0
        self.loading = None
        threading.Thread(target=self.charge, daemon=True).start()

    def begin(self):
        """-> result, files, inode and size of the share page, share of the limit page"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(os.environ["SUBLET_CREDIT"])
            asking.send(QUESTION.pack(QUESTION.size, 1, BEGIN, 0, 0))
            answer, files, _, _ = socket.recv_fds(asking, 4096, 8)
        if len(files) < 2:
            return ANSWER.unpack(answer)[2], len(files), 0, 0, 0
        self.limit = LimitPage.from_buffer_copy(page := mmap.mmap(files[0], 0, prot=mmap.PROT_READ))
        self.limit_memory = page
        self.use = UsePage.from_buffer(mmap.mmap(files[1], 0))
        self.use.abi, self.use.devices = self.limit.abi, self.limit.devices
        self.use.size = len(bytes(self.use))
        info = os.fstat(files[2]) if len(files) > 2 else None
        for file in files:
            os.close(file)
        share = self.limit.device[0].share
        return ANSWER.unpack(answer)[2], len(files), info.st_ino if info else 0, info.st_size if info else 0, share

    def say(self, busy, held, launches):
        self.use.device[0].busy, self.use.device[0].held = int(busy), int(held)
        self.use.shard[0].launches = int(launches)
        return (0,)

    def work(self, percent):
        self.percent = int(percent)
        return (0,)

    def gain(self):
        return (LimitPage.from_buffer_copy(self.limit_memory).device[0].gain,)

    def load(self, percent):
        words = ["simgpu-load", "--alloc", "16MiB", "--seconds", "600", "--busy", percent]
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.loading = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)
        return (self.loading.pid,)

    def unload(self):
        if self.loading is not None:
            self.loading.kill()
            self.loading.wait()
        return (0,)

    def charge(self):
        last = time.monotonic_ns()
        while True:
            threading.Event().wait(STEP)
            now = time.monotonic_ns()
            if self.use is not None and self.percent:
                self.use.device[0].busy += (now - last) * self.percent // 100
            last = now


def main():
    sharer = Sharer()
    for line in sys.stdin:
        name, *words = line.split()
        print(*getattr(sharer, name)(*words), flush=True)
    sharer.unload()


if __name__ == "__main__":
    main()
