# SPDX-License-Identifier: Apache-2.0
"""A program with a share: `shared.py SCENARIO FILE [SHARE]` gives the preloaded library a limit page and a share page
in FILE, and plays a scenario on the first simulated card. The card counts by itself for how long it is busy.
"""
import ctypes
import itertools
import os
import pathlib
import random
import sys
import threading
import time

from tests.interposer.limited import OK, UsePage, card
from tests.interposer.shares import Pages, SharePage

MS, SEED = 1_000_000, 60
BURST = 20 * MS  # as share.c has it
IMAGE = (b".version 6.0\n.target sm_50\n.address_size 64\n"
         b".visible .entry sublet_busy(.param .u64 p_nanoseconds) { ret; }\n"
         b".visible .entry other(.param .u64 p_nanoseconds) { ret; }\n")


class Gpu:
    def __init__(self, path, share):
        self.adopt(path, share, card()["devices"][0]["uuid"])
        self.begin()

    def adopt(self, path, share, uuid):
        self.ours, self.driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
        self.pages = Pages(pathlib.Path(path), uuid, share)
        self.row, self.word = self.pages.row, self.pages.word
        limit, share = self.pages.both.limit, self.pages.both.share
        assert self.ours.sublet_cuda_adopt_share(ctypes.byref(share)) == -1, "a share needs a limit page"
        assert self.ours.sublet_cuda_adopt(ctypes.byref(limit)) == 0
        wrong = SharePage.from_buffer_copy(share)  # other processes adopt the page at the same time
        wrong.abi += 1
        assert self.ours.sublet_cuda_adopt_share(ctypes.byref(wrong)) == -1
        assert self.ours.sublet_cuda_adopt_share(ctypes.byref(share)) == 0

    def begin(self):
        assert self.driver.cuInit(0) == OK
        self.context, module = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0) == OK
        assert self.driver.cuCtxSetCurrent(self.context) == OK
        assert self.driver.cuModuleLoadData(ctypes.byref(module), IMAGE) == OK
        self.busy = self.function(module, b"sublet_busy")

    def function(self, module, name):
        out = ctypes.c_void_p()
        assert self.driver.cuModuleGetFunction(ctypes.byref(out), module, name) == OK
        return out

    def stream(self):
        out = ctypes.c_void_p()
        assert self.driver.cuStreamCreate(ctypes.byref(out), 1) == OK
        return out

    def launch(self, nanoseconds, stream=None, grid=1, function=None):
        argument = ctypes.c_uint64(nanoseconds)
        words = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        function = self.busy if function is None else function
        return self.driver.cuLaunchKernel(function, grid, 1, 1, 1, 1, 1, 0, stream, words, None)

    def wait(self):
        return self.driver.cuCtxSynchronize()

    def use(self):
        page = UsePage(ctypes.sizeof(UsePage))
        assert self.ours.sublet_cuda_use(ctypes.byref(page)) == 0
        return page.device[0]

    def on_card(self):
        """Nanoseconds that the card was busy with this process."""
        return sum(use["busy_ms"] * MS for process in card()["processes"] if process["pid"] == os.getpid()
                   for use in process["devices"])

    def calls(self, name):
        return card()["calls"].get(name, 0)


def launch_many(gpu, count):
    """-> when it began and ended, and what had to be paid before the last launch"""
    begin, before = time.monotonic_ns(), 0
    for _ in range(count):
        before = gpu.use().busy
        assert gpu.launch(2 * MS) == OK and gpu.wait() == OK
    return begin, time.monotonic_ns(), before


def launches(gpu):
    """Launches are charged what they keep the card busy, and are not ahead of their share."""
    begin, end, paid = launch_many(gpu, 30)
    assert gpu.launch(MS // 1000) == OK and gpu.wait() == OK  # the last sample is looked at
    assert gpu.on_card() == 60 * MS
    # Wide margins: on a machine with much to do, a launch may look shorter or longer than it is.
    assert 20 * MS < gpu.use().busy < 180 * MS
    assert end - begin + BURST >= 0.75 * paid * 100 / 20
    assert gpu.use().held > 0


def together(gpu):
    """One of several processes of a lease."""
    print(*launch_many(gpu, 15))


def no_bound(gpu):
    """A share of 100 % is none: nothing is measured, and nothing waits."""
    for _ in range(20):
        assert gpu.launch(MS // 10) == OK
    assert gpu.wait() == OK and gpu.on_card() == 2 * MS
    assert (gpu.use().busy, gpu.use().held, gpu.word.paid_until) == (0, 0, 0)
    assert gpu.calls("cuEventRecord") == 0 and gpu.calls("cuStreamIsCapturing") == 0


def graphs(gpu):
    """Captured launches cost nothing, and their capture goes on; the graph is charged when it runs."""
    stream, graph, executable = gpu.stream(), ctypes.c_void_p(), ctypes.c_void_p()
    assert gpu.launch(MS, stream) == OK and gpu.wait() == OK  # a sample is in flight when the capture begins
    assert gpu.driver.cuStreamBeginCapture_v2(stream, 0) == OK
    before = gpu.use().busy, gpu.calls("cuEventRecord")
    for _ in range(20):
        assert gpu.launch(MS, stream) == OK
    assert (gpu.use().busy, gpu.calls("cuEventRecord")) == before
    # Another stream may be used meanwhile: what the library asks there does not end the capture.
    other = gpu.stream()
    for _ in range(3):
        assert gpu.launch(MS, other) == OK
    assert gpu.driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == OK
    assert gpu.driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0)) == OK
    assert gpu.wait() == OK and gpu.on_card() == 4 * MS
    for _ in range(3):
        assert gpu.driver.cuGraphLaunch(executable, stream) == OK and gpu.wait() == OK
    assert gpu.launch(MS // 1000, stream) == OK and gpu.wait() == OK
    assert gpu.on_card() == 64 * MS and 20 * MS < gpu.use().busy < 200 * MS


def waiting_kernel(gpu):
    """Work that waits for what this thread does after the next launch: that launch does not wait for its end."""
    go, stream = threading.Event(), gpu.stream()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(60) and None)
    assert gpu.driver.cuLaunchHostFunc(stream, function, None) == OK
    for _ in range(3):
        assert gpu.launch(MS // 100, stream) == OK
    assert gpu.driver.cuStreamQuery(stream) == 600, "the launches came back, and the first one has not run"
    go.set()
    assert gpu.wait() == OK
    assert gpu.launch(MS // 100, stream) == OK and gpu.wait() == OK


def hostile(gpu):
    """Another process of the lease writes what it likes: launches go on, with the right results."""
    chance, done = random.Random(SEED), threading.Event()

    def scribble():
        while not done.is_set():
            gpu.word.paid_until = chance.getrandbits(64) >> chance.randrange(64)
            gpu.word.corrected = chance.getrandbits(64) >> chance.randrange(64)
            gpu.row.gain = chance.getrandbits(32) >> chance.randrange(32)
            gpu.row.share = chance.getrandbits(32) | 64

    thread = threading.Thread(target=scribble)
    thread.start()
    for _ in range(500):
        assert gpu.launch(1000) == OK
    done.set()
    thread.join()
    gpu.row.share, gpu.row.gain = 50, 0
    for value in ((1 << 64) - 1, 1 << 63, time.monotonic_ns() + 3600 * 1000 * MS, 0):
        gpu.word.paid_until = value
        assert gpu.launch(1000) == OK
        assert gpu.word.paid_until < time.monotonic_ns() + 1000 * MS, "it counts as paid"
    assert gpu.wait() == OK and gpu.use().busy < 3600 * 1000 * MS


def failing(gpu):
    """A launch that fails is not charged, and its key is learned by a later one."""
    for _ in range(3):
        assert gpu.launch(MS, grid=0) == 1
    assert gpu.launch(MS, stream=ctypes.c_void_p(0x1234560)) == 400
    assert gpu.driver.cuLaunchKernelEx(None, gpu.busy, None, None) == 1
    assert gpu.driver.cuGraphLaunch(ctypes.c_void_p(0x1234560), None) == 1
    assert gpu.use().busy == 0
    for _ in range(5):
        assert gpu.launch(2 * MS) == OK and gpu.wait() == OK
        assert gpu.launch(2 * MS, grid=0) == 1
    assert gpu.launch(1000) == OK and gpu.wait() == OK
    assert 3 * MS < gpu.use().busy < 60 * MS


def in_threads(gpu, count, work):
    """Calls `work(STREAM)` in threads that begin at the same time. -> what each has returned"""
    results, line = [], threading.Barrier(count)

    def run():
        assert gpu.driver.cuCtxSetCurrent(gpu.context) == OK
        stream = gpu.stream()
        line.wait(60)
        results.append(work(stream))

    all_threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert len(results) == count
    return results


def threads(gpu):
    """Several threads, each with streams of its own."""
    results = in_threads(gpu, 4, lambda stream: [
        gpu.launch(MS // 2, stream) or gpu.driver.cuStreamSynchronize(stream) for _ in range(20)])
    assert results == [[OK] * 20] * 4 and gpu.on_card() == 40 * MS
    assert 10 * MS < gpu.use().busy, "kernels at the same time are charged more than the time of the card"


def order(gpu):
    """Threads with equal kernels launch equally often."""
    total = itertools.count(1)

    def work(stream):
        count = 0
        while next(total) < 320:
            assert gpu.launch(MS, stream) == OK and gpu.driver.cuStreamSynchronize(stream) == OK
            count += 1
        return count

    counts = in_threads(gpu, 8, work)
    assert max(counts) <= 2 * min(counts), counts


def crowd(gpu):
    """Many threads with long kernels are not ahead of the share together. The last launch of each thread, and the first
    ones, need not be paid for."""
    begin = time.monotonic_ns()
    in_threads(gpu, 16, lambda stream: [
        gpu.launch(4 * MS, stream) or gpu.driver.cuStreamSynchronize(stream) for _ in range(5)])
    end = time.monotonic_ns()
    assert gpu.on_card() == 320 * MS
    assert end - begin + BURST >= 0.75 * 3 * 16 * 4 * MS * 100 / 10


def first_launches(gpu):
    """Kernels that are launched only once are charged too. The last ones, which are in flight, are not yet."""
    functions = []
    for _ in range(300):
        module = ctypes.c_void_p()
        assert gpu.driver.cuModuleLoadData(ctypes.byref(module), IMAGE) == OK
        functions.append(gpu.function(module, b"sublet_busy"))
    begin = time.monotonic_ns()
    for function in functions:
        assert gpu.launch(300_000, None, 1, function) == OK
    end = time.monotonic_ns()
    assert gpu.wait() == OK and gpu.on_card() == 300 * 300_000
    assert end - begin + BURST >= 0.75 * 240 * 300_000 * 100 / 10


def contexts(gpu):
    """The events of a context end with it. The next one, at the same place or not, gets its own."""
    for _ in range(20):
        made, module = ctypes.c_void_p(), ctypes.c_void_p()
        assert gpu.driver.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == OK
        assert gpu.driver.cuModuleLoadData(ctypes.byref(module), IMAGE) == OK
        function = gpu.function(module, b"other")
        for _ in range(3):
            assert gpu.launch(MS, None, 1, function) == OK
        assert gpu.driver.cuCtxDestroy_v2(made) == OK
    assert gpu.driver.cuCtxSetCurrent(gpu.context) == OK
    assert gpu.launch(MS) == OK and gpu.wait() == OK


def forked(gpu):
    """A child of a program that uses the driver cannot use it, and has no share."""
    assert gpu.launch(MS) == OK and gpu.wait() == OK
    child = os.fork()
    if child == 0:
        os._exit(0 if gpu.launch(MS) not in (OK, 1, 2) else 1)
    assert os.waitpid(child, 0)[1] == 0 and gpu.launch(MS) == OK


def no_events(path):
    """A driver whose events cannot be made, or tell nonsense (null_driver.c): launches are only not measured."""
    gpu = Gpu.__new__(Gpu)
    gpu.adopt(path, 50, "GPU-01" + 30 * "0")
    assert gpu.driver.cuInit(0) == OK
    for grid in (1, 4):
        for _ in range(1000):
            assert gpu.launch(0, grid=grid, function=ctypes.c_void_p(0)) == OK
        assert gpu.launch(0, grid=grid, function=ctypes.c_void_p(16)) == 1, "the driver's own answer"
    assert gpu.use().busy < 1000 * 1000 * MS


SCENARIOS = {function.__name__: (function, share) for function, share in (
    (launches, 20), (together, 20), (no_bound, 100), (graphs, 50), (waiting_kernel, 50), (hostile, 50), (failing, 50),
    (threads, 50), (order, 30), (crowd, 10), (first_launches, 10), (contexts, 50), (forked, 50))}


def main():
    if sys.argv[1] == "no_events":
        return no_events(sys.argv[2])
    function, share = SCENARIOS[sys.argv[1]]
    return function(Gpu(sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else share))


if __name__ == "__main__":
    main()
