# SPDX-License-Identifier: Apache-2.0
"""A program of several processes that share memory of the card: `tied_program.py COUNT EXPORTER [NCCL_FILE]`.

Each process fills memory of its own. Process number EXPORTER shares a piece with all others. The program reports when
it is ready, and checks its bytes on SIGTERM. All processes map NCCL_FILE. The exit status is 0 if every byte is
unchanged.
"""
import ctypes
import mmap
import os
import signal
import socket
import sys

SIZE = 64 << 20


def call(name, *arguments):
    answer = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    assert answer == 0, (name, answer)


class Wanted(ctypes.Structure):  # CUmemAllocationProp: pinned on the device, exportable as a file descriptor
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("id", ctypes.c_int),
                ("meta", ctypes.c_void_p), ("flags", ctypes.c_uint64)]


def share(ends):
    piece, descriptor = ctypes.c_uint64(), ctypes.c_int()
    call("cuMemCreate", ctypes.byref(piece), ctypes.c_size_t(2 << 20), ctypes.byref(Wanted(1, 1, 1, 0, None, 0)),
         ctypes.c_uint64(0))
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), piece, 1, ctypes.c_uint64(0))
    for end in ends:
        socket.send_fds(end, [b"it"], [descriptor.value])


def take(end):
    piece = ctypes.c_uint64()
    descriptor = socket.recv_fds(end, 2, 1)[1][0]
    call("cuMemImportFromShareableHandle", ctypes.byref(piece), ctypes.c_void_p(descriptor), 1)


def member(number, exporter, pairs, ready):
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE))
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(70 + number), ctypes.c_size_t(SIZE))
    if number == exporter:
        share([pair[0] for other, pair in enumerate(pairs) if other != number])
    else:
        take(pairs[number][1])
    os.write(ready, b"x")
    signal.sigwait([signal.SIGTERM])
    found = ctypes.create_string_buffer(SIZE)
    call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(SIZE))
    return 0 if found.raw == bytes([70 + number]) * SIZE else 1


def main():
    count, exporter = int(sys.argv[1]), int(sys.argv[2])
    mapped = []
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w+b") as file:
            file.truncate(4096)
            mapped.append(mmap.mmap(file.fileno(), 4096))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pairs = [socket.socketpair() for _ in range(count)]
    done, ready = os.pipe()
    members = []
    for number in range(count):
        pid = os.fork()  # before the first driver call
        if pid == 0:
            os._exit(member(number, exporter, pairs, ready))
        members.append(pid)
    for _ in members:
        os.read(done, 1)
    print("holds its memory", flush=True)
    signal.sigwait([signal.SIGTERM])
    for pid in members:
        os.kill(pid, signal.SIGTERM)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in members))


main()
