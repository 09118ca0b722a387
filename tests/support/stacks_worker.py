# SPDX-License-Identifier: Apache-2.0
"""The program `sublet-stacks`, driven as the daemon drives it: lines of JSON at a socket (src/compose/protocol.h)."""
import json
import os
import pathlib
import select
import socket
import subprocess
import time

from .sublet import BIN

SOURCES = {"dir": "", "config": "", "env_file": "", "env_file_may_lack": False, "adopted": []}
PATIENCE = 120  # seconds


class StacksWorker:
    def __init__(self, directory, engine, compose="", runtime=None, environment=None, words=()):
        self.runtime = pathlib.Path(runtime or pathlib.Path(directory) / "runtime")
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self.words = [BIN / "sublet-stacks", "serve", "--runtime", self.runtime, "--engine", engine, *words]
        if compose:
            self.words += ["--compose", compose]
        self.environment = environment
        self.number, self.messages, self.buffer = 0, [], b""
        self.start()

    def start(self):
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([*self.words, "--fd", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                        env=self.environment)
        theirs.close()
        self.socket, self.buffer, self.messages = ours, b"", []
        assert self.wait(lambda m: "hello" in m)["hello"] == 2

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        assert self.process.wait(PATIENCE) in (0, -9)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.socket.close()

    def read(self, deadline):
        """Takes the messages that are there; waits for some."""
        ready, _, _ = select.select([self.socket], [], [], max(0, deadline - time.monotonic()))
        data = self.socket.recv(1 << 20) if ready else b""
        assert data, f"sublet-stacks said nothing more; so far: {str(self.messages)[-3000:]}"
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        self.messages += map(json.loads, lines)

    def wait(self, wanted):
        """Returns the first message for which `wanted(message)` is true, and removes it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for message in self.messages:
                if wanted(message):
                    self.messages.remove(message)
                    return message
            self.read(deadline)

    def send(self, verb, content):
        self.number += 1
        self.socket.sendall(json.dumps({"id": self.number, "do": verb, "with": content}).encode() + b"\n")
        return self.number

    def reply(self, number):
        return self.wait(lambda m: m.get("id") == number)

    def ask(self, verb, content):
        return self.reply(self.send(verb, content))

    def describe(self, **sources):
        """Returns the stacks by name."""
        stacks = self.ask("describe", {**SOURCES, **{key: str(value) if key != "adopted" else value
                                                     for key, value in sources.items()}})["stacks"]
        return {stack["name"]: stack for stack in stacks}

    @staticmethod
    def start_of(stack, overlay="", timeout=60):
        return {**{key: stack[key] for key in ("name", "project", "directory", "resolved")}, "overlay": overlay,
                "timeout_ms": int(timeout * 1000), "recreate": False, "credit": "", "interposed": []}

    def up(self, stack, overlay="", timeout=60):
        return self.ask("up", self.start_of(stack, overlay, timeout))

    def down(self, stack, timeout=60, resolved=None):
        content = self.start_of(stack, "", timeout)
        del content["overlay"]
        return self.ask("down", {**content, **({} if resolved is None else {"resolved": resolved})})

    def engine(self, reachable=True, **fields):
        """Waits until the engine is reported in this way."""
        return self.wait(lambda m: "engine" in m and m["engine"]["reachable"] == reachable
                         and all(m["engine"][key] == value for key, value in fields.items()))["engine"]

    def observe(self, project, wanted=lambda containers: True):
        """Waits for an observation of the project that is as wanted, and forgets the earlier ones. Returns its
        containers by service.
        """
        while True:
            seen = self.wait(lambda m: m.get("observation", {}).get("project") == project)["observation"]
            containers = {container["service"]: container for container in seen["containers"]}
            if wanted(containers):
                return containers


def environment_of(*directories):
    return {**os.environ, "PATH": os.pathsep.join([*map(str, directories), os.environ["PATH"]])}
