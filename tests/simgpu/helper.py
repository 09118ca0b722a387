# SPDX-License-Identifier: Apache-2.0
"""Drives `sublet-gpu checkpoint` over a socket."""

import json
import socket
import subprocess

import simcards

PROGRAM = simcards.BUILD / "bin/sublet-gpu"


class Helper:
    def __init__(self, cards, pid, *arguments, driver=None, program=PROGRAM, **how):
        self.socket, other = socket.socketpair()
        self.process = subprocess.Popen(
            [program, "checkpoint", "--fd", str(other.fileno()), "--pid", str(pid)]
            + ["--driver", str(driver or simcards.DRIVER / "libcuda.so.1"), *map(str, arguments)],
            pass_fds=[other.fileno()],
            env={"SIMGPU_DIR": str(cards.dir / "simgpu")},
            **how,
        )
        other.close()
        self.lines = self.socket.makefile("r")
        self.number = 0

    def send(self, call, **more):
        self.number += 1
        self.socket.sendall(json.dumps({"id": self.number, "do": call, **more}).encode() + b"\n")

    def answer(self):
        line = self.lines.readline()
        assert line, f"the helper has ended: {self.process.wait()}"
        reply = json.loads(line)
        assert reply["id"] == self.number
        assert reply["ok"] == (reply["reason"] == "") and bool(reply["detail"]) != reply["ok"]
        return reply

    def __call__(self, call, **more):
        self.send(call, **more)
        return self.answer()

    def ok(self, call, **more):
        reply = self(call, **more)
        assert reply["ok"], reply
        return reply

    def hang_up(self):
        self.lines.close()
        self.socket.close()

    def kill(self):
        if not self.lines.closed:
            self.hang_up()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
