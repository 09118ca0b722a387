# SPDX-License-Identifier: Apache-2.0
"""The processes of a lease under one limit, by credit that a daemon gives them: together they use all of it and never
more, whatever ends or closes meanwhile.
"""
import ctypes
import json
import os
import pathlib
import re
import socket
import subprocess

import pytest

from tests.interposer.limited import ABI, LimitPage, UsePage
from tests.support.credit import (ANSWER, BEGIN, GRANTED, MIB, MORE, PAUSED, UNKNOWN, CreditDaemon, DaemonOfOurs,
                                  Program, page_file)
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c, environment
from tests.support.sublet import BUILD, wait_until

CTL = BUILD / "bin/simgpu-ctl"
LIMIT, CONTEXT, OUT_OF_MEMORY = 512 * MIB, 4 * MIB, 2


class Place:
    """A card, a daemon with a lease on it, and its processes."""

    def __init__(self, folder, daemon=CreditDaemon):
        self.folder, self.programs = folder, []
        subprocess.run([CTL, "--dir", folder, "create", "1x2GiB,context_bytes=4MiB"], check=True, capture_output=True)
        self.taker = compile_c(folder / "taker", SOURCES / "taker.c", DRIVER / "libcuda.so.1")
        [card] = self.card()["devices"]
        uuid = bytes.fromhex(card["uuid"].removeprefix("GPU-").replace("-", ""))
        bare = Program([self.taker], environment(SIMGPU_DIR=folder / "simgpu"))
        self.begun = bare.read()  # the driver's own descriptors
        assert self.begun[0] == 0 and bare.end() == 0
        self.daemon = daemon(folder / "credit", uuid, LIMIT, CONTEXT)

    def answer_first(self, count, result):
        """Answers so many questions with the result, and the rest rightly. -> the questions until now"""
        rightly, begun = self.daemon.answer, len(self.daemon.questions)

        def answer(asking, pid, kind, needed):
            if len(self.daemon.questions) <= begun + count:
                return self.daemon.say(asking, result)
            return rightly(asking, pid, kind, needed)

        self.daemon.answer = answer
        return begun

    def card(self):
        said = subprocess.run([CTL, "--dir", self.folder, "show", "--json"], check=True, capture_output=True, text=True)
        return json.loads(said.stdout)

    def used(self):
        return self.card()["devices"][0]["used_bytes"]

    def start(self, *words, **variables):
        variables = {"SUBLET_CREDIT": self.folder / "credit", "SIMGPU_DIR": self.folder / "simgpu", **variables}
        self.programs.append(Program([self.taker, *words], environment(LIBRARY, **variables)))
        return self.programs[-1]

    def begin(self, *words, **variables):
        program = self.start(*words, **variables)
        assert program.read() == self.begun, "it has begun, and none of our descriptors is open"
        return program

    def end(self):
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()
        self.daemon.stop()
        self.daemon.close()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.end()


@pytest.fixture
def our_place(tmp_path):
    if not (BUILD / "test/credit_serve").exists():
        pytest.skip("there is no credit_serve: ninja -C build credit_serve")
    made = Place(tmp_path, DaemonOfOurs)
    yield made
    made.end()


@pytest.mark.parametrize("count", [3, 64])
def test_the_daemons_own_code_gives_all_of_the_limit_and_never_more(our_place, count):
    programs = [our_place.start() for _ in range(count)]
    assert [program.read() for program in programs] == [our_place.begun] * count
    for program in programs:
        program.say("take 1000")
    held = [program.read() for program in programs]
    assert all(result == OUT_OF_MEMORY for result, _ in held)
    assert LIMIT - 128 * MIB < our_place.used() <= LIMIT
    # The others are told what each has.
    first, last = programs[0], programs[-1]
    assert first.ask("free 1000") == [0, 0]
    result, blocks = last.ask("take 1000")
    assert result == OUT_OF_MEMORY and our_place.used() <= LIMIT
    assert last.ask("info")[1] <= LIMIT - our_place.used()
    assert last.ask("free 10") == [0, max(blocks - 10, 0)] and last.ask("info")[2] == LIMIT


@pytest.mark.parametrize("count", [3, 64])
def test_processes_that_race_use_all_of_the_limit_and_never_more(place, count):
    programs = [place.start() for _ in range(count)]
    assert [program.read() for program in programs] == [place.begun] * count
    for program in programs:
        program.say("take 1000")
    held = [program.read() for program in programs]
    assert all(result == OUT_OF_MEMORY for result, _ in held)
    # A process is refused while another one has credit that it is just about to use: so a few blocks may be left.
    assert LIMIT - 128 * MIB < place.used() <= LIMIT
    assert place.used() == sum(blocks for _, blocks in held) * 2 * MIB + count * CONTEXT
    charged = sum(process.charged() for process in place.daemon.processes.values())
    assert charged == place.used() and place.daemon.free() >= 0
    for program in programs:
        assert program.ask("info")[1:] == [place.daemon.limit - place.daemon.processes[program.process.pid].charged(),
                                           LIMIT]


def test_unused_credit_of_one_process_goes_to_another(place):
    first, second = place.begin(), place.begin()
    assert first.ask("take 1000") == [OUT_OF_MEMORY, 252] and place.used() == LIMIT
    assert second.ask("take 1") == [OUT_OF_MEMORY, 0]
    assert first.ask("free 100") == [0, 152]
    assert second.ask("take 1000") == [OUT_OF_MEMORY, 100] and place.used() == LIMIT
    assert first.ask("take 1") == [OUT_OF_MEMORY, 152]
    # A process takes what is in its credit without a question.
    asked = len(place.daemon.questions)
    assert first.ask("free 1") == [0, 151] and first.ask("take 1") == [0, 152]
    assert len(place.daemon.questions) == asked


def test_credit_of_a_killed_process_stays_taken_until_the_daemon_gives_it_back(place):
    first, second = place.begin(), place.begin()
    assert first.ask("take 200") == [0, 200]
    first.kill()
    # The daemon has not seen its bytes gone yet.
    process = place.daemon.processes[first.process.pid]
    assert second.ask("take 1000") == [OUT_OF_MEMORY, 52] and process.charged() == 404 * MIB
    del place.daemon.processes[first.process.pid]
    assert second.ask("take 1000") == [OUT_OF_MEMORY, 254] and place.used() == LIMIT


def test_a_process_asks_again_while_other_threads_use_up_what_it_was_given(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    begun = place.answer_first(40, GRANTED)
    assert program.ask("take 1") == [0, 11] and len(place.daemon.questions) == begun + 41


def test_a_daemon_that_gives_no_answer_is_asked_twice(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    begun = len(place.daemon.questions)
    place.daemon.answer = lambda asking, pid, kind, needed: None
    assert program.ask("take 1") == [OUT_OF_MEMORY, 10] and len(place.daemon.questions) == begun + 2


def test_a_process_of_a_paused_lease_asks_until_the_lease_goes_on(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    begun = place.answer_first(3, PAUSED)
    assert program.ask("take 1") == [0, 11] and len(place.daemon.questions) == begun + 4


def test_a_larger_lease_gives_more(place):
    program = place.begin()
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254]
    place.daemon.limit = place.daemon.processes[program.process.pid].row.limit = LIMIT + 20 * MIB
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 264] and program.ask("info") == [0, 0, LIMIT + 20 * MIB]


def test_a_process_without_a_daemon_has_no_limit(place):
    for variables in ({"SUBLET_CREDIT": place.folder / "nothing"}, {"SUBLET_CREDIT": "relative"},
                      {"SUBLET_CREDIT": ""}, {"SUBLET_CREDIT": "/" + "x" * 4000},
                      {"SUBLET_CREDI": "/nothing", "SUBLET_CREDIT": "."}):
        assert place.begin(**variables).ask("take 300") == [0, 300]
        place.programs.pop().end()
    assert place.daemon.questions == []


def test_a_program_that_sets_its_title_has_its_limit(place):
    assert place.begin("titled").ask("take 300") == [OUT_OF_MEMORY, 254]


def test_a_program_that_starts_while_the_daemon_starts_again_has_its_limit(place):
    place.daemon.stop()
    program = place.start()
    place.daemon.listen()
    assert program.read() == place.begun and program.ask("take 300") == [OUT_OF_MEMORY, 254]


def interruptions(program):
    text = pathlib.Path(f"/proc/{program.process.pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])


def test_signals_do_not_end_the_wait_for_a_daemon_early(place):
    place.daemon.stop()
    program = place.start("ticking")
    # More often than the library asks in its 5 s.
    wait_until(lambda: interruptions(program) > 300, "signals have interrupted the wait")
    place.daemon.listen()
    assert program.read() == place.begun and program.ask("take 300") == [OUT_OF_MEMORY, 254]


def test_signals_do_not_make_the_wait_for_an_answer_endless(place):
    program, hung = place.begin("ticking"), []
    assert program.ask("take 10") == [0, 10]
    place.daemon.answer = lambda asking, pid, kind, needed: hung.append(asking.dup())
    assert program.ask("take 1") == [OUT_OF_MEMORY, 10]
    hung.pop().close()


def test_a_daemon_that_takes_no_connection_is_waited_for_once(place):
    place.daemon.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place.daemon.path)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.connect(place.daemon.path)  # there is no place for another one
            assert place.begin("ticking").ask("take 300") == [0, 300]
    os.unlink(place.daemon.path)
    place.daemon.listen()


def test_a_process_that_the_daemon_does_not_know_has_no_limit(place):
    place.daemon.answer = lambda asking, pid, kind, needed: place.daemon.say(asking, UNKNOWN)
    assert place.begin().ask("take 300") == [0, 300]


def limit_page(**fields):
    file, memory = page_file(ctypes.sizeof(LimitPage))
    page = LimitPage.from_buffer(memory)
    page.size, page.abi, page.devices = ctypes.sizeof(LimitPage), ABI, 1
    for name, value in fields.items():
        setattr(page, name, value)
    return file


def use_page():
    return page_file(ctypes.sizeof(UsePage))[0]


ODD = {
    "nothing": lambda asking: None,
    "a short message": lambda asking: asking.send(b"x"),
    "a long message": lambda asking: asking.send(b"x" * 4000),
    "another version": lambda asking: asking.send(ANSWER.pack(ANSWER.size, 2, 0, 0)),
    "no files": lambda asking: asking.send(ANSWER.pack(ANSWER.size, 1, 0, 0)),
    "one file": lambda asking: say(asking, limit_page()),
    "many files": lambda asking: say(asking, *[use_page() for _ in range(40)]),
    "files of another kind": lambda asking: say(asking, asking.fileno(), asking.fileno()),
    "small files": lambda asking: say(asking, page_file(100)[0], page_file(100)[0]),
    "a file that may become smaller": lambda asking: say(asking, page_file(8192, 0)[0], use_page()),
    "a page of another version": lambda asking: say(asking, limit_page(abi=ABI + 1), use_page()),
    "too many devices": lambda asking: say(asking, limit_page(devices=17), use_page()),
}


def say(asking, *files):
    socket.send_fds(asking, [ANSWER.pack(ANSWER.size, 1, GRANTED, 0)], list(files))
    for file in set(files) - {asking.fileno()}:
        os.close(file)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_gives_no_limit_and_leaves_no_descriptor(place, odd):
    place.daemon.answer = lambda asking, pid, kind, needed: ODD[odd](asking)
    assert place.begin().ask("take 300") == [0, 300]


@pytest.mark.parametrize("odd", [name for name in ODD if "page" not in name and "devices" not in name])
def test_an_odd_answer_for_more_credit_is_a_refusal(place, odd):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    before = program.ask("files")
    rightly = place.daemon.answer

    def answer(asking, pid, kind, needed):
        assert kind == MORE
        ODD[odd](asking)

    place.daemon.answer = answer
    result, blocks = program.ask("take 1000")
    # An answer that says "granted" is believed only if the page says so too.
    assert (result, blocks) == (OUT_OF_MEMORY, 10)
    assert program.ask("files") == before
    place.daemon.answer = rightly
    assert program.ask("take 10") == [0, 20]


def test_a_daemon_that_comes_back_is_asked_again(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    place.daemon.stop()
    assert program.ask("take 1") == [OUT_OF_MEMORY, 10] and program.ask("free 5") == [0, 5]
    assert program.ask("take 5") == [0, 10], "its credit is still its own"
    place.daemon.listen()
    assert program.ask("take 10") == [0, 20]


def test_a_daemon_that_forgot_the_pages_gets_new_ones_with_the_account(place):
    program = place.begin()
    assert program.ask("take 100") == [0, 100]
    before = program.ask("files")
    for taken in (200, 220):
        old = place.daemon.processes.pop(program.process.pid)
        assert program.ask(f"take {taken - 100 if taken == 200 else 20}") == [0, taken]
        new = place.daemon.processes[program.process.pid]
        assert new is not old and new.charged() == CONTEXT + taken * 2 * MIB == place.used()
        assert old.charged() >= 1 << 63, "the earlier account is closed"
    assert place.daemon.questions.count(BEGIN) == 3
    assert program.ask("free 50") == [0, 170] and new.charged() == place.used()
    assert program.ask("files") == before
    # A child has the pages of its parent, and must not take others in its place.
    del place.daemon.processes[program.process.pid]
    assert program.ask("fork") == [0, 170] and new.charged() == place.used()
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254] and place.used() == LIMIT


def test_a_daemon_may_start_again_several_times_while_a_process_waits(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    rightly, pages = place.daemon.answer, []

    def answer(asking, pid, kind, needed):
        if kind == MORE and len(pages) < 5:
            pages.append(place.daemon.forget(pid))
        rightly(asking, pid, kind, needed)

    place.daemon.answer = answer
    assert program.ask("take 1") == [0, 11] and place.daemon.questions.count(BEGIN) == 6
    assert place.daemon.processes[program.process.pid].charged() == place.used()


def test_a_daemon_that_never_knows_its_pages_is_a_refusal(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    rightly = place.daemon.answer

    def answer(asking, pid, kind, needed):
        return place.daemon.say(asking, UNKNOWN) if kind == MORE else rightly(asking, pid, kind, needed)

    place.daemon.answer = answer
    assert program.ask("take 1") == [OUT_OF_MEMORY, 10]


def test_pages_of_other_devices_are_not_taken_in_place_of_the_first(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    old = place.daemon.processes.pop(program.process.pid)
    place.daemon.uuid = bytes(16)
    assert program.ask("take 10") == [OUT_OF_MEMORY, 10] and program.ask("free 5") == [0, 5]
    assert old.charged() == place.used()


def test_threads_lose_no_byte_while_the_pages_change(place):
    crowd = compile_c(place.folder / "crowd", "-I", SOURCES.parents[1] / "src", SOURCES / "crowd.c",
                      DRIVER / "libcuda.so.1")
    variables = {"SUBLET_CREDIT": place.folder / "credit", "SIMGPU_DIR": place.folder / "simgpu"}
    rightly, pages = place.daemon.answer, []

    def answer(asking, pid, kind, needed):
        if len(place.daemon.questions) % 50 == 0 and pid in place.daemon.processes:
            pages.append(place.daemon.forget(pid))
        rightly(asking, pid, kind, needed)

    place.daemon.answer = answer
    program = Program([crowd, 8, "daemon"], environment(LIBRARY, **variables))
    said = dict(line.split() for line in program.process.stdout)
    assert program.end() == 0
    assert said["wrong"] == "0" and said["left"] == str(CONTEXT) and int(said["most"]) <= LIMIT
    assert len(pages) > 5, "the pages have changed"
    # All counts came along.
    [last] = place.daemon.processes.values()
    assert all(process.use.counts() == (0, 0, 0, {}) for process in pages)
    assert last.use.counts() == (0, 0, int(said["allocated"]), {OUT_OF_MEMORY: int(said["failed"])})


def test_a_process_counts_what_it_does(place):
    program = place.begin()
    [process] = place.daemon.processes.values()
    assert process.use.counts() == (0, 0, 0, {})
    assert program.ask("take 10") == [0, 10] and program.ask("launch 7") == [0, 10]
    assert program.ask("copy 30") == [0, 10]
    assert program.ask("fail 3") == [400, 10] and program.ask("take 1000")[0] == OUT_OF_MEMORY
    blocks = (LIMIT - CONTEXT) // (2 * MIB)
    assert process.use.counts() == (7, 30 << 10, blocks * 2 * MIB, {400: 3, OUT_OF_MEMORY: 1})
    assert program.ask("launch 1") == [0, blocks] and process.use.counts()[0] == 8


def test_launches_find_a_daemon_that_forgot_the_pages(place):
    program = place.begin()
    pid, asked = program.process.pid, len(place.daemon.questions)
    place.daemon.forget(pid)
    assert program.ask("launch 1000") == [0, 0] and place.daemon.questions[asked:] == []
    assert program.ask("launch 1000") == [0, 0] and place.daemon.questions[asked:] == [MORE, BEGIN]
    assert sum(shard.launches for shard in place.daemon.processes[pid].use.shard) == 2000


def test_forks_before_and_after_the_beginning(place):
    program = place.begin("forked")
    assert len(place.daemon.processes) == 1 and program.process.pid not in place.daemon.processes
    assert program.ask("take 10") == [0, 10]
    assert program.ask("fork") == [0, 10], "a child cannot use the driver"
    [process] = place.daemon.processes.values()
    assert process.charged() == CONTEXT + 20 * MIB
    assert program.end() == 0


def test_a_child_of_a_program_that_has_asked_nvml_begins_for_itself(place):
    program = place.begin("forked", "nvml")
    parent = place.daemon.processes[program.process.pid]
    assert len(place.daemon.processes) == 2 and place.daemon.questions.count(BEGIN) == 2
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254] and parent.charged() == 0 and place.used() == LIMIT
    assert program.end() == 0


def test_a_program_that_closes_descriptors_that_it_does_not_know_keeps_its_limit(place):
    program = place.begin()
    assert program.ask("take 10") == [0, 10]
    asked = len(place.daemon.questions)
    assert program.ask("closefrom")[0] == 0 and program.ask("files")[1] == 3
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254] and len(place.daemon.questions) > asked
    assert program.ask("files")[1] == 3


def test_a_program_that_executes_itself_begins_again(place):
    program = place.begin()
    assert program.ask("take 100") == [0, 100]
    assert program.ask("again") == place.begun and place.daemon.questions.count(BEGIN) == 2
    assert program.ask("take 1000") == [OUT_OF_MEMORY, 254] and place.used() == LIMIT
