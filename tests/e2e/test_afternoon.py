# SPDX-License-Identifier: Apache-2.0
"""An afternoon in seconds: five people share one card by sessions. Idle sessions are parked and come back with every
byte, and nobody waits while somebody is idle for longer than the rule allows.
"""
import datetime
import json
import random
import threading
import time

import pytest

from tests.support.sublet import wait_until
from tests.support.system import CAROL, DAVE, System

PEOPLE = {"carol": CAROL, "dave": DAVE, "games": 5, "man": 6, "mail": 8}  # three accounts of every Debian
TTL, RULE = 8, 2  # seconds
SLACK = 5  # seconds for a reading and a decision on a busy machine
ROUNDS = 2
CONFIG = f"""
[sessions]
ttl = "{TTL}s"
max_continuous = "6s"
idle_pause = "{RULE}s"
idle_end = "10m"
"""


@pytest.fixture
def system():
    made = System(config=CONFIG)
    yield made
    made.close()


class Person(threading.Thread):
    """Works and rests in turn. Work needs an active session, and touches it."""

    def __init__(self, system, name, seed):
        super().__init__(name=name, daemon=True)
        self.system, self.uid, self.random = system, PEOPLE[name], random.Random(seed)
        self.rests = [self.random.uniform(0.5, 5) for _ in range(ROUNDS)]
        self.states, self.failure, self.session, self.worked = set(), None, None, 0.0
        self.interrupted = threading.Event()  # never: people take their time

    def call(self, verb, *words):
        done = self.system.cli(self.uid, "session", verb, "--json", *words, check=0)
        now = json.loads(done.stdout)
        self.states.add(now["state"])
        return now

    def open(self):
        home = self.system.home
        self.session = self.call("open", "--vram", "1.5GiB", "--no-wait", "--env", f"SIMGPU_DIR={home}/gpu/simgpu",
                                 "--env", f"LD_LIBRARY_PATH={home}/lib/simgpu", "--", "simgpu-load", "--alloc", "1GiB",
                                 "--seconds", "3600", "--busy", "0")["id"]

    def run(self):
        try:
            for rest in self.rests:
                self.work(1 + self.random.random())
                self.rest(rest)
            self.work(0.2)
        except BaseException as failure:  # pylint: disable=broad-except
            self.failure = failure

    def work(self, seconds):
        done = 0.0
        while done < seconds:
            if self.call("resume", self.session)["state"] == "active":
                self.call("touch", self.session)
                done += 0.2
                self.interrupted.wait(0.2)  # thinks
        self.worked += done

    def rest(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.call("show", self.session)
            self.interrupted.wait(0.3)  # a look at a session is no use of it


class Watch:
    """Looks for active sessions that were idle for too long while a lease waited all that time."""

    def __init__(self, system):
        self.system, self.waits_since, self.found = system, {}, []

    def look(self):
        queue, sessions = (self.system.get(path)[rows] for path, rows in (("/v1/queue", "queue"),
                                                                          ("/v1/sessions", "sessions")))
        now = datetime.datetime.now(datetime.timezone.utc)
        self.waits_since = {lease["id"]: self.waits_since.get(lease["id"], now) for lease in queue}
        if not any((now - since).total_seconds() > SLACK for since in self.waits_since.values()):
            return
        for one in sessions:
            if one["state"] == "active" and one["activity"]["state"] == "idle":
                since = datetime.datetime.fromisoformat(one["activity"]["since"].replace("Z", "+00:00"))
                if (now - since).total_seconds() > RULE + SLACK:
                    self.found.append((one, queue))


def test_five_people_share_a_card_for_an_afternoon(system):
    system.start_keeper_service().start()
    people = [Person(system, name, seed) for seed, name in enumerate(PEOPLE)]
    for person in people:
        person.open()
    for person in people:
        person.start()
    watch = Watch(system)
    while busy := [person for person in people if person.is_alive()]:
        watch.look()
        busy[0].join(0.3)
    assert not watch.found, watch.found[:3]
    assert [person.failure for person in people] == [None] * len(people)
    # When nobody waits any more, the session of the last one outlives its time to live, and is parked.
    last = people[-1]
    last.work(0.2)
    wait_until(lambda: last.call("show", last.session)["state"] == "parked", "the last one is parked")
    last.work(0.2)
    states = set().union(*(person.states for person in people))
    assert states >= {"active", "parked", "paused"}, states
    for person in people:
        assert person.worked > 2, "each had its time on the card"
        closed = person.call("close", person.session, "--no-park")
        # The program checks every byte that it ever wrote before it ends: 1 would be a wrong byte.
        assert (closed["state"], closed["exit_status"]) == ("closed", 143), closed
    wait_until(lambda: system.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "the card is empty")
