# SPDX-License-Identifier: Apache-2.0
"""A daemon with stacks, on a fake container engine and a fake Compose program, or on real ones.

    with Stacks(start_daemon, tmp_path) as place:
        place.write("chat", {"api": {"healthcheck": True}}, vram="1GiB")
        place.start()
        place.acquire("chat")
"""
import json
import pathlib

import pytest

from tests.support.fake_compose import FakeCompose
from tests.support.fake_engine import FakeEngine
from tests.support.sublet import wait_until

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
LABEL = "gpu.healthcheck-master"


def service(healthy=True, master=True, **more):
    """Returns a service as a Compose file has it."""
    spec = {"image": "busybox", **more}
    if healthy:
        spec["healthcheck"] = {"test": "true"}
    if master:
        spec["labels"] = {LABEL: "true"}
    return spec


class Stacks:
    def __init__(self, start_daemon, directory, sim="1x4GiB", config="", engine=None, program=None):
        """`engine`: a running RealEngine, with a Compose `program`; both stay with the caller."""
        self.dir = pathlib.Path(directory)
        self.stacks = self.dir / "stacks"
        self.stacks.mkdir(mode=0o700)
        self.engine, self.own = engine or FakeEngine(self.dir), engine is None
        self.compose = FakeCompose(self.dir) if self.own else None
        self.program = program or self.compose.program
        self.start_daemon, self.sim, self.more = start_daemon, sim, config
        self.daemon = self.api = None

    def __enter__(self):
        if self.own:
            self.engine.__enter__()
        return self

    def __exit__(self, *_):
        if self.daemon is not None and self.daemon.process.poll() is None:
            self.daemon.kill()  # before its engine
        if self.own:
            self.engine.__exit__()

    def section(self, **keys):
        """Returns the lines of the configuration for stacks."""
        keys = {"enabled": True, "dir": str(self.stacks), "engine": self.engine.url,
                "compose": str(self.program), **keys}
        return "[stacks]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())

    def start(self, **keys):
        self.daemon = self.start_daemon(self.sim, config=QUICK + self.more + self.section(**keys))
        self.api = self.daemon.api()
        wait_until(lambda: self.api.get("/v1/stacks")["engine"]["version"], "the engine is known")
        return self

    def restart(self):
        """Kills the daemon and starts it again."""
        self.daemon.restart()
        self.api = self.daemon.api()

    def write(self, name, services=None, into=None, **extension):
        """Writes a Compose file with the stack's services, by default one with the label; returns its directory."""
        directory = (into or self.stacks) / name
        directory.mkdir(mode=0o700, exist_ok=True)
        document = {"services": services or {"api": service()}}
        if extension:
            document["x-sublet"] = extension
        (directory / "compose.yaml").write_text(json.dumps(document))
        return directory

    # --- calls ---

    def get(self, name):
        return self.api.get(f"/v1/stacks/{name}").body

    def states(self):
        return {row["name"]: row["state"] for row in self.api.get("/v1/stacks")["stacks"]}

    def reaches(self, name, *states):
        return wait_until(lambda: (now := self.get(name))["state"] in states and now, f"{name} is {states}")

    def post(self, name, call, body=None, token=None):
        headers = {"Sublet_Lease_Token": token} if token else {}
        return self.api.call("POST", f"/v1/stacks/{name}/{call}", body or {}, **headers)

    def acquire(self, name, wait=60, token=None, **fields):
        return self.post(name, "acquire", {"wait_seconds": wait, **fields}, token)

    def ready(self, name, **fields):
        """Acquires the stack, which must become ready; returns the answer."""
        reply = self.acquire(name, **fields)
        assert reply.status == 200 and reply["state"] == "ready", reply
        return reply

    def events(self, since="0"):
        """Returns the events about stacks so far, oldest first."""
        from tests.support.events import Stream
        found = []
        with Stream(self.daemon, "?follow=false&type=stack", last_id=since) as stream:
            while (event := stream.next()) is not None:
                found.append(event)
        return found

    def ups(self):
        return [call["project"] for call in self.compose.calls("up")]

    def downs(self):
        return [call["project"] for call in self.compose.calls("down")]


@pytest.fixture
def place(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as stacks:
        yield stacks


def two(place, **keys):
    """Starts the daemon with two stacks that do not fit together."""
    place.write("chat", vram="2GiB")
    place.write("image", vram="3GiB")
    return place.start(**keys)
