# SPDX-License-Identifier: Apache-2.0
"""The simulated driver answers the questions of tools/record-driver like the recorded real drivers."""

import json
import subprocess

import pytest

import simcards

RECORD = simcards.ROOT / "tools/record-driver"
RECORDINGS = sorted((simcards.ROOT / "tests/data").glob("driver-*.json"))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    cards = simcards.Cards(tmp_path_factory.mktemp("recorded"), "1x4GiB")
    done = subprocess.run([RECORD, "--print"], env=cards.env(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def comparable(answer):
    return {key: value for key, value in answer.items() if not key.endswith("_bytes")}


def test_every_question_can_be_asked(simulated):
    listed = subprocess.run([RECORD, "--list"], capture_output=True, text=True, check=True).stdout
    assert list(simulated) == [line.split(":")[0] for line in listed.splitlines()]
    assert not {
        name: answer
        for name, answer in simulated.items()
        if {"could_not_be_asked", "hung", "died_of_signal"} & set(answer)
    }


@pytest.mark.parametrize("path", RECORDINGS or [None], ids=lambda path: path.stem if path else "none")
def test_the_simulated_driver_answers_as_the_recorded_one(simulated, path):
    if path is None:
        pytest.skip(
            "no recording in tests/data: tools/record-driver never ran on a real card, so the simulated "
            "rules stand on documentation alone"
        )
    recorded = json.loads(path.read_text())["answers"]
    different = {
        name: {"recorded": comparable(answer), "simulated": comparable(simulated.get(name, {}))}
        for name, answer in recorded.items()
        if "could_not_be_asked" not in answer and comparable(answer) != comparable(simulated.get(name, {}))
    }
    assert not different, json.dumps(different, indent=1)


def test_a_simulated_driver_is_not_recorded(tmp_path):
    cards = simcards.Cards(tmp_path / "cards", "1x4GiB")
    before = sorted((simcards.ROOT / "tests/data").glob("driver-*.json"))
    done = subprocess.run([RECORD], env=cards.env(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "simulated" in done.stderr
    assert sorted((simcards.ROOT / "tests/data").glob("driver-*.json")) == before


def test_without_a_driver_it_says_so(tmp_path):
    cards = simcards.Cards(tmp_path / "cards", "1x4GiB")
    done = subprocess.run(
        [RECORD], env=cards.env(SIMGPU_DIR="/nonexistent"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "no NVIDIA driver" in done.stderr
