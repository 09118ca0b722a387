# SPDX-License-Identifier: Apache-2.0
"""`python -m sublet.ray start`: starts Ray on this machine with the VRAM of its cards, times a declared factor."""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from typing import Any, Dict, List, Sequence, Tuple

from .._http import Call, client_here
from .._size import format_size_down
from ..errors import BadRequest, InUse, Memory, SubletError
from ._engine import RESOURCE, bytes_of, declared_gib, ray
from ._status import ray_leases, status

CARDS_SECONDS = 30.0  # a daemon that has just started has not read its cards yet
LOOK_SECONDS = 0.2
HIDE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
_USAGE = """\
python -m sublet.ray start [--factor F] [options of `ray start`]
python -m sublet.ray status [--address ADDRESS] [--json]"""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status. `start` does not return: this process becomes `ray start`."""
    parser = argparse.ArgumentParser("python -m sublet.ray", usage=_USAGE, description="Ray on machines with Sublet.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("start", allow_abbrev=False, help="run `ray start` with the VRAM of this machine",
                             usage=_USAGE.splitlines()[0])
    start.add_argument("--factor", default=1.0, type=float, metavar="F",
                       help="tell Ray F times the memory of the cards; Sublet pauses work so that it fits (default: 1)")
    show = verbs.add_parser("status", help="show the leases of Ray's work on all nodes", usage=_USAGE.splitlines()[1])
    show.add_argument("--address", default="auto", help="the cluster (default: the one of this machine)")
    show.add_argument("--json", action="store_true", help="print one JSON array")
    options, rest = parser.parse_known_args(list(arguments))
    try:
        if options.verb == "start":
            begin(options.factor, rest)
        if rest:
            parser.error(f"unknown arguments: {' '.join(rest)}")
        return show_status(options.address, options.json)
    except SubletError as problem:
        print(f"sublet.ray: {problem.message}\n  hint: {problem.hint}", file=sys.stderr)
        return 2 if isinstance(problem, BadRequest) else 1


def begin(factor: float, rest: List[str]) -> None:
    """Replaces this process by `ray start`."""
    if not 0 < factor <= 100:
        raise BadRequest(f"the factor {factor:g} is not between 0 and 100", "for example --factor 2")
    total, cards = capacity()
    declared = declared_gib(int(total * factor))
    check_leased(bytes_of(declared), total)
    arguments = with_resources(rest, {RESOURCE: declared})
    ray()
    print(f"sublet.ray: {cards} with {format_size_down(total)}, factor {factor:g}: {RESOURCE} is {declared:g}",
          flush=True)
    os.environ.setdefault(HIDE, "1")  # work without a lease sees no card
    program = os.path.join(os.path.dirname(sys.executable), "ray")
    program = program if os.path.exists(program) else shutil.which("ray") or "ray"
    os.execv(program, [program, "start", *arguments])


def capacity() -> Tuple[int, str]:
    """Returns the bytes of all cards that can be leased, and the number of cards as text."""
    until = time.monotonic() + CARDS_SECONDS
    while True:
        devices = client_here().call(Call("GET", "/v1/devices"))["devices"]
        ready = [device for device in devices if device["state"] == "ok"]
        if devices and len(ready) == len(devices):
            break
        if time.monotonic() >= until:
            if ready:
                break
            raise Memory("the daemon has no card that it can read", "`sublet gpus` shows the cards and their problems")
        time.sleep(LOOK_SECONDS)
    count = len(ready)
    return sum(int(device["capacity_bytes"]) for device in ready), f"{count} card{'s' if count > 1 else ''}"


def check_leased(declared: int, total: int) -> None:
    """Refuses a factor by which Ray would know less memory than its work has leased already."""
    leased = sum(int(lease["vram_bytes"]) * int(lease["device_count"]) for lease in ray_leases())
    if leased > declared:
        least = -(-100 * leased // total) / 100
        raise InUse(f"work of Ray on this machine has leased {format_size_down(leased)}, and the factor declares "
                    f"{format_size_down(declared)}", f"give --factor {least:g} or more, or end the other Ray first",
                    {"held_bytes": leased, "asked_bytes": declared})


def with_resources(rest: Sequence[str], more: Dict[str, float]) -> List[str]:
    """Returns the arguments of `ray start` with these resources among its own, and without GPUs."""
    kept: List[str] = []
    resources: Dict[str, Any] = {}
    words = iter(rest)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("--num-gpus", "--resources"):
            value = value if equals else next(words, "")
            if name == "--num-gpus" and value != "0":
                raise BadRequest(f"--num-gpus {value} would have Ray count the cards a second time",
                                 f"leave it out: Ray knows them as the resource {RESOURCE}")
            if name == "--resources":
                resources = _parse(value)
        else:
            kept.append(word)
    return [*kept, "--num-gpus=0", f"--resources={json.dumps({**resources, **more})}"]


def _parse(text: str) -> Dict[str, Any]:
    hint = """write for example --resources='{"fast_disk": 1}'"""
    try:
        resources = json.loads(text)
    except ValueError as problem:
        raise BadRequest(f"--resources is no JSON: {problem}", hint) from None
    if not isinstance(resources, dict):
        raise BadRequest("--resources is no JSON object", hint)
    if RESOURCE in resources:
        raise BadRequest(f"--resources names {RESOURCE}, which --factor declares", "leave it out")
    return resources


def show_status(address: str, as_json: bool) -> int:
    """Prints the leases of Ray's work."""
    ray().init(address=address, log_to_driver=False, logging_level="ERROR")
    rows = status()
    if as_json:
        print(json.dumps([row.__dict__ for row in rows]))
        return 0
    for row in rows:
        print(row)
    if not rows:
        print("no work of Ray has a lease")
    return 0
