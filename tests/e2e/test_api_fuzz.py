# SPDX-License-Identifier: Apache-2.0
"""Random requests from the contract's schemas, right and wrong: no 5xx, and no reply that breaks the contract."""
import json
import os
import random
import re
import time

import pytest

from tests.support import contract
from tests.support.events import Stream
from tests.support.sublet import GIB, MIB

SECONDS = float(os.environ.get("SUBLET_FUZZ_SECONDS", "8"))
STRANGE = ["", "x", "\x00", "é", "\U0001f600", "' OR 1=1 --", "../../etc/passwd", "%00", "a" * 5000, "null", "NaN",
           "-1", "1e400", "lease-0", "lease-99999999999999999999", "\ud800"]
# No wait, and no endless stream: else a wrong word.
AT_ONCE = {"wait": "0s", "follow": "false"}
NUMBERS = [0, -1, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -2**63, -2**70, 1.5, 1e308, -0.0]


class Maker:
    """Makes random values of a schema, and sometimes wrong values."""

    def __init__(self, chance, leases, pids, life):
        self.chance, self.leases, self.pids, self.life = chance, leases, pids, life

    def wrong(self):
        return self.chance.choice([None, True, [], {}, [[]], {"": {}}, self.chance.choice(STRANGE),
                                   self.chance.choice(NUMBERS), [1] * 100, {"a": {"b": {"c": {}}}}])

    def value(self, schema, name=""):
        schema = contract._resolve(schema)
        if name in ("pid", "keeper_pid", "cgroup"):
            # Only processes of this test: random requests must not touch others.
            return self.chance.choice(self.pids) if name != "cgroup" else self.chance.choice(STRANGE)
        if self.chance.random() < 0.12:
            return self.wrong()
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        kind = schema.get("type", "string")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object":
            return self.body(schema)
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(self.chance.randrange(3))]
        if kind == "boolean":
            return self.chance.random() < 0.5
        if kind == "integer":
            return self.integer(schema, name)
        return self.chance.choice(STRANGE + ["train", "gpu0", "any", "mine", "0"])

    def integer(self, schema, name):
        if name == "wait_seconds":
            return self.chance.choice([0, 0, 0, -1, 3601])
        if name.endswith("vram_bytes"):
            return self.chance.choice([MIB, GIB, 3 * GIB, 8 * GIB, 1, 2**62])
        low, high = schema.get("minimum", -5), schema.get("maximum", 1000)
        near = self.chance.randint(low, min(high, low + 100))
        return self.chance.choice([low, high, near, self.chance.choice(NUMBERS)])

    def body(self, schema):
        made = {}
        for name, part in schema.get("properties", {}).items():
            if name in schema.get("required", []) or self.chance.random() < 0.3:
                made[name] = self.value(part, name)
        if self.chance.random() < 0.05 and made:
            made.pop(self.chance.choice(list(made)))
        if self.chance.random() < 0.05:
            made[self.chance.choice(STRANGE)] = self.wrong()
        return made

    def segment(self, path):
        known = self.leases + ["mine", "token-1", "lease-1", "train"]
        while "{" in path:
            word = self.chance.choice(known if self.chance.random() < 0.8 else STRANGE) or "-"
            path = re.sub(r"\{[a-z]+\}", lambda _: quoted(word), path, count=1)
        return path


def quoted(text):
    from urllib.parse import quote
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def query(maker, operation, item):
    parts = []
    for parameter in operation.get("parameters", []) + item.get("parameters", []):
        parameter = contract._resolve(parameter)
        name = parameter["name"]
        if parameter["in"] != "query" or (maker.chance.random() < 0.5 and name != "follow"):
            continue
        if name in AT_ONCE:
            value = AT_ONCE[name] if maker.chance.random() < 0.9 else maker.chance.choice(STRANGE)
        elif name == "lease":
            value = maker.chance.choice(maker.leases + ["train"] + STRANGE)
        elif name == "type":
            value = ",".join(maker.chance.choices(["lease", "device", "warning", "daemon", "x", ""], k=2))
        elif name == "heartbeat":
            value = maker.chance.choice(["1s", "0", "5m", "-1s", "1000000h", "1e400s", "x"])
        else:
            value = str(maker.value(parameter["schema"], name))
        parts.append(f"{name}={quoted('0s' if name == 'wait' and 's' in value else value)}")
    return "?" + "&".join(parts) if parts else ""


def headers(maker):
    made = {}
    if maker.chance.random() < 0.2:
        made["Idempotency-Key"] = maker.chance.choice(["k1", "k2", "k3", "x" * 200])
    if maker.chance.random() < 0.1:
        made["Sublet-Lease-Token"] = maker.chance.choice(["0" * 32, "x", "y" * 1000])
    if maker.chance.random() < 0.2:  # only /v1/events reads it
        number = maker.chance.choice([0, 1, maker.chance.randrange(3000), 2**64 - 1, 2**64, -1])
        word = maker.chance.choice(STRANGE + ["0", f"{maker.life}-{number}", f"{maker.life}-{number}", f"x-{number}"])
        made["Last-Event-ID"] = word.encode("utf-8", "surrogatepass")
    return made


def life_of(daemon):
    """Returns the first part of the ids of a store's events."""
    with Stream(daemon, "?follow=false", last_id="0") as stream:
        assert stream.next()
        return stream.last_id.split("-")[0]


@pytest.mark.parametrize("seed", [int(os.environ.get("SUBLET_FUZZ_SEED", "1795287600"))])
def test_requests_made_by_chance(start_daemon, seed):
    daemon = start_daemon(config='[limits]\nleases = 50\nevents = 500\n[lease]\nlinger = "100ms"\n'
                                 '[gpu]\ninterval_idle = "1s"\n')
    chance = random.Random(seed)
    print("seed", seed)
    program = daemon.spawn("sleep", "600")
    api = daemon.api()
    # A lease may end its owner: only processes of this test may be owners.
    maker = Maker(chance, [], [program.pid, 1 << 22, 2**31 - 1, 2**31, 0, -1, "1", None], life_of(daemon))
    items = [(path, method, item) for path, item in contract.document()["paths"].items()
             for method in ("get", "post", "delete") if method in item]
    weights = [8 if path == "/v1/events" else 1 if method == "get" else 4 for path, method, _ in items]
    end, count, answers, of_events = time.monotonic() + SECONDS, 0, {}, set()
    # On a slow machine longer, until chance has reached enough.
    while time.monotonic() < end or (count < 5000 and not of_events >= {200, 400}):
        path, method, item = chance.choices(items, weights)[0]
        operation = item[method]
        target = maker.segment(path) + query(maker, operation, item)
        content = contract._resolve(operation.get("requestBody", {})).get("content", {}).get("application/json")
        value = maker.value(content["schema"]) if content else None
        for part in (value, value.get("checkpoint")) if isinstance(value, dict) else ():
            if isinstance(part, dict) and "arguments" in part:
                part["arguments"] = ["true"]  # words made by chance are not executed
        body = json.dumps(value).encode() if content else None
        if method == "post" and chance.random() < 0.05:
            body = chance.choice([b"", b"{", b"\xff", b"[" * 50 + b"]" * 50, b'{"vram_bytes":1e999}', b"nul"])
        reply = api.call(method.upper(), target, body, **headers(maker))
        count += 1
        answers[reply.status] = answers.get(reply.status, 0) + 1
        if path == "/v1/events":
            of_events.add(reply.status)
        # A slow machine may have no reading of its cards that is new enough.
        off = reply.status == 503 and (reply["detail"] == "stacks are switched off" or
                                       "the daemon has not read the GPU yet" in reply["detail"])
        assert reply.status < 500 or off, f"seed {seed}, request {count}: {method} {target} {body!r}: {reply}"
        if path == "/v1/leases" and method == "post" and reply.status in (201, 202):
            maker.leases = (maker.leases + [reply["id"]])[-20:]
        if count % 500 == 0:  # free memory again
            for lease in api.get("/v1/leases")["leases"]:
                api.post(f"/v1/leases/{lease['id']}/release", {"force": True})
    print(count, "requests,", answers)
    assert daemon.process.poll() is None and api.get("/healthz").status == 200
    assert len(answers) >= 5 and of_events >= {200, 400}, "chance reached too little"
