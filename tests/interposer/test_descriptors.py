# SPDX-License-Identifier: Apache-2.0
"""Programs that have no free descriptor for a while get their limit and their credit once they have some."""
import signal

import pytest

from tests.interposer.test_credit import LIMIT, OUT_OF_MEMORY, Place
from tests.support.credit import BEGIN, MIB, MORE, Process
from tests.support.sublet import wait_until


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("free, words", [(0, ()), (0, ("unset",)), (1, ()), (2, ())])
def test_a_program_without_a_free_descriptor_gets_its_limit_later(place, free, words):
    """The driver needs some in cuInit, then the first environment and the socket one each, and the pages two."""
    program = place.start("full", place.begun[1] + free, *words)
    assert program.read() == [0, 0] and program.ask("info")[0] == 0
    assert program.ask("take 1") == [0, 1] and program.ask("info")[2] > LIMIT
    assert program.ask("room") == [0, 1]
    wait_until(lambda: program.ask("info")[2] == LIMIT, "a later call has begun with the daemon")
    result, blocks = program.ask("take 1000")
    assert result == OUT_OF_MEMORY and blocks >= 252
    assert place.used() <= LIMIT + 2 * MIB, "all but what it took before"


@pytest.fixture(params=[1, 2])
def cut_off(place, request):
    """A program whose daemon has started again while the program had too few free descriptors for the socket and the
    pages."""
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    place.daemon.forget(program.process.pid)
    assert program.ask(f"full {request.param}") == [0, 10] and program.ask("take 20") == [OUT_OF_MEMORY, 10]
    assert place.daemon.questions.count(BEGIN) == 2
    assert program.ask("room") == [0, 10]
    return program


def test_a_process_takes_the_pages_that_it_had_no_descriptors_for(place, cut_off):
    assert cut_off.ask("take 1000") == [OUT_OF_MEMORY, 254] and place.used() == LIMIT
    assert place.daemon.processes[cut_off.process.pid].charged() == LIMIT


def test_launches_take_the_pages_that_a_process_had_no_descriptors_for(place, cut_off):
    asked = len(place.daemon.questions)
    assert cut_off.ask("launch 1024") == [0, 10] and place.daemon.questions[asked:] == [MORE, BEGIN]
    assert place.daemon.processes[cut_off.process.pid].charged() == place.used()


def test_a_process_takes_pages_again_if_the_first_ones_never_came(place):
    program, rightly = place.begin(), place.daemon.answer
    assert program.ask("take 10") == [0, 10]
    place.daemon.forget(program.process.pid)

    def answer(asking, pid, kind, needed):
        if kind == MORE:
            return rightly(asking, pid, kind, needed)
        place.daemon.processes[pid] = Process(place.daemon)

    place.daemon.answer = answer
    assert program.ask("take 20") == [OUT_OF_MEMORY, 10]
    place.daemon.answer = rightly
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254] and place.used() == LIMIT


def test_a_process_waits_for_a_descriptor_once_until_there_was_one(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    assert program.ask("full 0") == [0, 10] and program.ask("take 1") == [OUT_OF_MEMORY, 10]
    assert program.ask("die sleep") == [0, 10] and program.ask("take 1") == [OUT_OF_MEMORY, 10]
    assert program.ask("room") == [0, 10] and program.ask("take 1000") == [OUT_OF_MEMORY, 254]
    # It had a descriptor, and waits for the next one.
    assert program.ask("full 0") == [0, 254]
    program.say("take 1")
    assert program.process.wait(60) == -signal.SIGSYS
