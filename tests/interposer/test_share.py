# SPDX-License-Identifier: Apache-2.0
"""The share of the computing time, on a simulated card, which counts by itself for how long each process keeps it busy.
How exactly programs get their shares is measured by bench/share_bench.py.
"""
import ctypes
import subprocess
import sys

import pytest

from tests.interposer import shared
from tests.interposer.limited import ABI, MIB
from tests.interposer.shares import SharePage
from tests.interposer.test_credit import Place
from tests.support.credit import BEGIN, MORE, page_file
from tests.support.interposer import LIBRARY, SOURCES, compile_c, environment
from tests.support.sublet import BUILD, ROOT

CTL = BUILD / "bin/simgpu-ctl"


def start(folder, *words, **variables):
    env = environment(LIBRARY, PYTHONPATH=ROOT, SIMGPU_CTL=CTL, **variables)
    script = [sys.executable, SOURCES / "shared.py", words[0], folder / "pages", *words[1:]]
    return subprocess.Popen([*map(str, script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    said, errors = process.communicate()
    assert process.returncode == 0, said + errors
    return said


def run(folder, *words, **variables):
    finish(start(folder, *words, **variables))


@pytest.mark.parametrize("scenario", [*shared.SCENARIOS, "no_bound 0"])
def test_share(tmp_path, scenario):
    subprocess.run([CTL, "--dir", tmp_path, "create", "1x1GiB,context_bytes=4MiB"], check=True, capture_output=True)
    run(tmp_path, *scenario.split(), SIMGPU_DIR=tmp_path / "simgpu")


def test_processes_of_a_lease_get_one_share_together(tmp_path):
    """When all of them have made their last launch, all that was charged before is paid."""
    subprocess.run([CTL, "--dir", tmp_path, "create", "1x1GiB,context_bytes=4MiB"], check=True, capture_output=True)
    processes = [start(tmp_path, "together", SIMGPU_DIR=tmp_path / "simgpu") for _ in range(3)]
    times = [[*map(int, finish(process).split())] for process in processes]
    elapsed = max(end for _, end, _ in times) - min(begin for begin, _, _ in times)
    assert elapsed + shared.BURST >= 0.75 * sum(paid for _, _, paid in times) * 100 / 20


@pytest.mark.parametrize("events", range(-1, 7))
def test_a_driver_without_events_that_work(tmp_path, events):
    defines = [] if events < 0 else [f"-DEVENTS={events}"]
    compile_c(tmp_path / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1", *defines, SOURCES / "null_driver.c")
    run(tmp_path, "no_events", driver=tmp_path)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.end()


def share_file(place, size=ctypes.sizeof(SharePage), abi=ABI, devices=1, **seals):
    """A page that processes get from now on; None: it is too small to be one."""
    file, memory = page_file(size, **seals)
    place.daemon.more_files = [file]
    place.daemon.files.append(file)
    if size < ctypes.sizeof(SharePage):
        return None
    page = SharePage.from_buffer(memory)
    page.size, page.abi, page.devices = ctypes.sizeof(SharePage), abi, devices
    return page


def begin(place, share=50):
    program = place.begin()
    process = place.daemon.processes[program.process.pid]
    process.row.share = share
    return program, process


def launch_until_charged(program, word):
    """Launches that take no time are charged when the earlier payment is longer ago than what is kept."""
    before = word.paid_until
    while word.paid_until <= before:
        assert program.ask("launch 3")[0] == 0


def test_processes_of_a_lease_have_one_share_page(place):
    page = share_file(place)
    word = page.device[0]
    for _ in range(2):
        program, process = begin(place)
        launch_until_charged(program, word)
        process.row.share = 100
        before = word.paid_until
        assert program.ask("launch 3")[0] == 0 and word.paid_until == before


def test_a_daemon_that_has_started_again_hands_out_the_same_page(place):
    page = share_file(place)
    program, process = begin(place)
    process.row.credit = 0
    assert program.ask("launch 3")[0] == 0
    busy = process.use.device[0].busy
    old = place.daemon.forget(program.process.pid)
    assert program.ask("take 1") == [0, 1], "it has begun again"
    process = place.daemon.processes[program.process.pid]
    assert process.use.device[0].busy >= busy, "the counts came along"
    process.row.share = 50
    launch_until_charged(program, page.device[0])
    del old


def test_a_daemon_that_has_started_again_hands_out_another_page(place):
    old_page = share_file(place)
    program, process = begin(place)
    launch_until_charged(program, old_page.device[0])
    page = share_file(place)
    old = place.daemon.forget(program.process.pid)
    assert program.ask("take 1") == [0, 1], "it has begun again"
    paid = old_page.device[0].paid_until
    assert page.device[0].paid_until == paid, "what is paid ahead stays paid"
    place.daemon.processes[program.process.pid].row.share = 50
    launch_until_charged(program, page.device[0])
    assert old_page.device[0].paid_until == paid
    del old


def test_a_launch_finds_a_daemon_that_has_started_again(place):
    share_file(place)
    program, _ = begin(place)
    old = place.daemon.forget(program.process.pid)
    assert program.ask("launch 1000") == [0, 0]
    now = place.daemon.processes[program.process.pid]
    assert now is not old and now.use.counts()[0] == 1000, "the counts are seen"
    assert place.daemon.questions.count(BEGIN) == 2
    assert place.daemon.questions.count(MORE) in (1, 2), "a daemon is asked each 10 s at most"


@pytest.mark.parametrize("answer", [lambda *_: None, lambda asking, *_: asking.send(b"x")], ids=["none", "odd"])
def test_launches_go_on_without_an_answer(place, answer):
    share_file(place)
    program, process = begin(place)
    place.daemon.answer = answer
    assert program.ask("launch 10") == [0, 0] and process.use.counts()[0] == 10


def test_launches_go_on_without_a_daemon(place):
    share_file(place)
    program, process = begin(place)
    place.daemon.stop()
    assert program.ask("launch 10") == [0, 0] and process.use.counts()[0] == 10
    place.daemon.listen()


def test_launches_do_not_wait_long_for_a_daemon_that_hangs(place):
    share_file(place)
    program, process = begin(place)
    hung, rightly = [], place.daemon.answer
    place.daemon.answer = lambda asking, *_: hung.append(asking.dup())
    assert program.ask("launch 10") == [0, 0] and process.use.counts()[0] == 10
    hung.pop().close()
    place.daemon.answer = rightly
    assert program.ask("take 1") == [0, 1]


@pytest.mark.parametrize("wrong", [{"size": 64}, {"abi": ABI - 1}, {"devices": 2}, {"seals": 0}], ids=str)
def test_a_share_page_that_is_none_is_left_alone(place, wrong):
    page = share_file(place, **wrong)
    program, _ = begin(place)
    assert program.ask("launch 3")[0] == 0 and program.ask("take 1") == [0, 1]
    assert page is None or page.device[0].paid_until == 0
    assert place.daemon.limit == 512 * MIB
