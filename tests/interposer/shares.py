# SPDX-License-Identifier: Apache-2.0
"""The pages of a lease with a share, in a file that its processes map together."""
import ctypes
import mmap
import os

from tests.interposer.limited import ABI, MIB, LimitPage, UsePage, address_t


class ShareDevice(ctypes.Structure):
    _fields_ = [("paid_until", address_t), ("corrected", address_t), ("reserved", address_t * 6)]


class SharePage(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("abi", ctypes.c_uint32), ("devices", ctypes.c_uint32),
                ("reserved", ctypes.c_uint32), ("unused", address_t * 6), ("device", ShareDevice * 16)]


class Both(ctypes.Structure):
    _fields_ = [("limit", LimitPage), ("share", SharePage), ("use", UsePage)]


class Pages:
    """A limit page and a share page for one card."""

    def __init__(self, path, uuid, share):
        self.path, self.told = path, None
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            os.ftruncate(file.fileno(), ctypes.sizeof(Both))  # processes that begin at the same time change nothing
            self.both = Both.from_buffer(mmap.mmap(file.fileno(), 0))
        for page in (self.both.limit, self.both.share):
            page.size, page.abi, page.devices = ctypes.sizeof(page), ABI, 1
        row = self.row = self.both.limit.device[0]
        row.uuid[:] = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))
        row.limit = row.credit = 1024 * MIB
        row.share = share
        self.word = self.both.share.device[0]

    def correct(self, card):
        """Corrects the measured times as the daemon does, by the busy time that the card and the process have told."""
        charged = self.both.use.device[0].busy
        before, self.told = self.told, (card, charged)
        if before is None or charged - before[1] < 10_000_000:
            return
        wrong = (card - before[0]) / (charged - before[1])
        gain = (self.row.gain or 1000) * (1 + (wrong - 1) / 2)
        self.row.gain = int(min(max(gain, 250), 4000))
