# SPDX-License-Identifier: Apache-2.0
"""A program steps aside for an interactive program and comes back with the same bytes on the card."""
import pytest

from tests.support.sublet import MIB, ROOT, wait_until

PROGRAM = """
import ctypes, random, sublet, sys, threading
sys.path.insert(0, sys.argv[1])
from tests.support.cuda_calls import Cuda, begin

SIZE, COUNT = 16 << 20, 8

class OnCard:
    def __init__(self, content):
        self.host = None
        self.fill(content)

    def fill(self, content):
        self.address = ctypes.c_uint64()
        cuda.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(SIZE))
        cuda.cuMemcpyHtoD_v2(self.address, (ctypes.c_char * SIZE).from_buffer(content), ctypes.c_size_t(SIZE))

    def read(self):
        content = bytearray(SIZE)
        cuda.cuMemcpyDtoH_v2((ctypes.c_char * SIZE).from_buffer(content), self.address, ctypes.c_size_t(SIZE))
        return content

    def leave(self):
        self.host = self.read()
        cuda.cuMemFree_v2(self.address)

    def come_back(self):
        self.fill(self.host)
        self.host = None

def content_of(number):
    return bytearray(random.Random(number).randbytes(4096) * (SIZE // 4096))

model = []
def on_pause(order):
    for part in model:
        part.leave()
    print("left", order.reason, flush=True)

def on_resume():
    for part in model:
        part.come_back()

with sublet.lease("3GiB", tier="batch", tag="notebook", residue="256MiB", on_pause=on_pause,
                  on_resume=on_resume) as lease:
    cuda = Cuda()
    begin(cuda)
    model += [OnCard(content_of(number)) for number in range(COUNT)]
    for turn in range(int(sys.argv[2])):
        print("loaded", flush=True)
        while not lease.safe_point():
            threading.Event().wait(0.01)
        assert all(part.read() == content_of(number) for number, part in enumerate(model)), "other bytes"
        print("intact", flush=True)
    sys.stdin.readline()
"""
TURNS = 2


@pytest.mark.parametrize("restarted", [False, True])
def test_a_program_comes_back_with_its_bytes(place, restarted):
    def used():
        return place.get("/v1/leases/notebook")["used_bytes"]

    program = place.python(PROGRAM, str(ROOT), str(TURNS))
    for _ in range(TURNS):
        assert program.stdout.readline() == "loaded\n", program.communicate()
        wait_until(lambda: used() >= 384 * MIB, "its memory counts for its lease")
        urgent = place.daemon.spawn("sublet", "run", "--vram", "3GiB", "--tier", "interactive", "--tag", "urgent", "--",
                                    "simgpu-load", "--alloc", "2800MiB", "--seconds", "600")
        assert program.stdout.readline().startswith("left "), program.communicate()
        wait_until(lambda: place.get("/v1/devices")["devices"][0]["used_bytes"] >= 2800 * MIB, "the other one runs")
        lease = place.get("/v1/leases/notebook")
        assert lease["state"] == "paused" and lease["used_bytes"] <= 256 * MIB, "only its context is left"
        if restarted:
            place.daemon.restart()
        place.daemon.cli("stop", "urgent", check=0)
        assert urgent.wait(60) == 143, urgent.communicate()
        assert program.stdout.readline() == "intact\n", program.communicate()
    wait_until(lambda: place.get("/v1/leases/notebook")["state"] == "active", "it is resumed")
    program.stdin.close()
    assert program.wait(60) == 0, program.stderr.read()
