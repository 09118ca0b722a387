# SPDX-License-Identifier: Apache-2.0
"""NVML and the driver see the same cards: NVML lists the memory of simgpu-load until it is gone."""

import json
import os
import subprocess
import sys

import pytest

import simcards
from simcards import MIB


def ask(cards, *uid):
    script = os.path.join(os.path.dirname(__file__), "nvml.py")
    done = subprocess.run(
        [sys.executable, script, *map(str, uid)], env=cards.env(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return {**answer, "processes": {int(pid): used for pid, used in answer["processes"].items()}}


def test_memory_and_context_of_each_process_are_listed_and_swept(cards):
    context = cards.show()["settings"]["context_bytes"]
    one = cards.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    other = cards.load("--alloc", "128MiB", "--seconds", "1h").wait_filled()
    answer = ask(cards)
    assert set(answer["processes"]) == {one.pid, other.pid}
    assert 64 * MIB + context <= answer["processes"][one.pid] <= 68 * MIB + context
    assert answer["processes"][other.pid] - answer["processes"][one.pid] == 64 * MIB
    assert answer["used"] == sum(answer["processes"].values())
    one.kill()
    answer = ask(cards)
    assert set(answer["processes"]) == {other.pid} and answer["used"] == answer["processes"][other.pid]
    other.end(simcards.SIGTERM)
    assert ask(cards) == {**answer, "used": 0, "processes": {}}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_user_sees_the_same(make_cards, tmp_path):
    cards = make_cards()
    directory = cards.dir
    while directory != directory.parent and directory.stat().st_uid == 0 and directory != directory.parent:
        if not directory.stat().st_mode & 0o001:
            directory.chmod(directory.stat().st_mode | 0o711)
        directory = directory.parent
    load = cards.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    assert set(ask(cards, 65534)["processes"]) == {load.pid}
