# SPDX-License-Identifier: Apache-2.0
"""A small daemon that answers the questions of src/wire/credit.h, with a limit for all processes that ask."""
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading

from tests.interposer.limited import ABI, MIB, LimitPage, UsePage
from tests.support.sublet import BUILD

BEGIN, MORE = 1, 2
GRANTED, REFUSED, UNKNOWN, PAUSED = 0, 1, 2, 3
QUESTION, ANSWER = struct.Struct("IIIIQ"), struct.Struct("IIII")
ADD_SEALS, SEAL, SHRINK, GROW, FUTURE_WRITE = 1033, 1, 2, 4, 16


def page_file(size, seals=SHRINK | GROW | SEAL):
    file = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    memory = mmap.mmap(file, size)
    fcntl.fcntl(file, ADD_SEALS, seals)
    return file, memory


class Process:
    """The pages of one process."""

    def __init__(self, daemon):
        self.limit_file, memory = page_file(ctypes.sizeof(LimitPage), SHRINK | GROW | SEAL | FUTURE_WRITE)
        self.use_file, use_memory = page_file(ctypes.sizeof(UsePage))
        daemon.files += [self.limit_file, self.use_file]
        self.limit, self.use = LimitPage.from_buffer(memory), UsePage.from_buffer(use_memory)
        self.limit.size, self.limit.abi, self.limit.devices = ctypes.sizeof(LimitPage), ABI, 1
        row = self.row = self.limit.device[0]
        row.uuid[:], row.limit, row.context = daemon.uuid, daemon.limit, daemon.context

    def charged(self):
        return self.use.device[0].charged


class CreditDaemon:
    def __init__(self, path, uuid, limit, context):
        self.path, self.uuid, self.limit, self.context = str(path), uuid, limit, context
        self.processes, self.questions, self.files = {}, [], []
        self.more_files = []  # a share page
        self.answer = self.answer_rightly  # a test may put another in its place
        self.listen()

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(128)
        self.thread = threading.Thread(target=self.serve, args=(self.listener,), daemon=True)
        self.thread.start()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        os.unlink(self.path)

    def forget(self, pid):
        """Forgets the pages of a process, which go on as they are."""
        process = self.processes.pop(pid)
        for file in (process.limit_file, process.use_file):
            os.close(file)
            self.files.remove(file)
        return process

    def close(self):
        while self.files:
            os.close(self.files.pop())
        self.processes.clear()  # a mapping has a descriptor of its own
        self.answer = None

    def serve(self, listener):
        while True:
            try:
                asking, _ = listener.accept()
            except OSError:
                return
            with asking:
                pid = struct.unpack("iII", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                message = asking.recv(4096)
                if len(message) == QUESTION.size:
                    size, abi, kind, device, needed = QUESTION.unpack(message)
                    assert (size, abi) == (QUESTION.size, 1)
                    self.questions.append(kind)
                    self.answer(asking, pid, kind, needed)

    def say(self, asking, result, files=()):
        socket.send_fds(asking, [ANSWER.pack(ANSWER.size, 1, result, 0)], list(files))

    def answer_rightly(self, asking, pid, kind, needed):
        if kind == BEGIN:
            process = self.processes[pid] = Process(self)
            return self.say(asking, GRANTED, (process.limit_file, process.use_file, *self.more_files))
        process = self.processes.get(pid)
        if process is None:
            return self.say(asking, UNKNOWN)
        return self.say(asking, GRANTED if self.give(process, needed) else REFUSED)

    def free(self):
        return self.limit - sum(process.row.credit for process in self.processes.values())

    def give(self, process, needed):
        missing = needed - process.row.credit
        for other in self.processes.values():
            if missing > self.free() and other is not process:
                self.recall(other)
        if missing > self.free():
            return False
        process.row.credit += max(missing, 0)
        return True

    @staticmethod
    def recall(process):
        """Lowers the credit first and looks at the charge then."""
        was = process.row.credit
        process.row.credit = min(was, process.charged())
        if process.charged() > process.row.credit:
            process.row.credit = was


class DaemonOfOurs:
    """The same by the code of the daemon: src/credit, in a process of its own."""

    def __init__(self, path, uuid, limit, context):
        words = [BUILD / "test/credit_serve", path, uuid.hex(), limit, context]
        self.process = subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()

    def close(self):
        pass


class Program:
    """A process of taker.c under the interposer."""

    def __init__(self, words, env):
        self.process = subprocess.Popen([*map(str, words)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def read(self):
        return [int(word) for word in self.process.stdout.readline().split()]

    def say(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def ask(self, words):
        self.say(words)
        return self.read()

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(60)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.process.stdin.close()
        self.process.stdout.close()


_ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
    asking.connect(sys.argv[1])
    asking.send(bytes.fromhex(sys.argv[2]))
    answer, files, _, _ = socket.recv_fds(asking, 4096, 8)
    print(answer.hex(), len(files))
"""


def question(path, kind, user=None, needed=MIB, group=None, **variables):
    """Asks a daemon in a process of its own, and returns the result; None without an answer. `group`: the directory of
    its control group."""
    message = QUESTION.pack(QUESTION.size, 1, kind, 0, needed).hex()
    with open(group / "cgroup.procs" if group else os.devnull, "wb", buffering=0) as procs:
        done = subprocess.run([sys.executable, "-c", _ASK, str(path), message], env={**os.environ, **variables},
                              user=user, preexec_fn=lambda: procs.write(b"0"), check=True, capture_output=True,
                              text=True)
    answer, files = done.stdout.split() if len(done.stdout.split()) == 2 else ("", done.stdout.strip())
    result = ANSWER.unpack(bytes.fromhex(answer))[2] if answer else None
    assert int(files) == (2 if (kind, result) == (BEGIN, GRANTED) else 0)
    return result


__all__ = ["ANSWER", "BEGIN", "GRANTED", "MIB", "MORE", "REFUSED", "UNKNOWN", "CreditDaemon", "DaemonOfOurs", "Program",
           "page_file", "question"]
