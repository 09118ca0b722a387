# SPDX-License-Identifier: Apache-2.0
"""The limit of memory in one process, on a simulated card: what the library has charged is what the card says, and a
call over the limit gets the driver's own error.
"""
import subprocess
import sys

import pytest

from tests.interposer import limited, limited_scenarios
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c, environment
from tests.support.sublet import BUILD, ROOT

CTL = BUILD / "bin/simgpu-ctl"
CARD = "1x1GiB,context_bytes=100MiB"


@pytest.fixture
def cards(tmp_path):
    subprocess.run([CTL, "--dir", tmp_path, "create", CARD], check=True, capture_output=True)
    return tmp_path / "simgpu"


def run(cards, *words):
    env = environment(LIBRARY, SIMGPU_DIR=cards, SIMGPU_CTL=CTL)
    done = subprocess.run([*map(str, words)], env=env, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("scenario", limited_scenarios.SCENARIOS)
def test_the_account_is_what_the_card_says(cards, scenario):
    run(cards, sys.executable, "-m", "tests.interposer.limited_scenarios", scenario)


@pytest.mark.parametrize("threads", [1, 16])
def test_threads_that_race_to_the_limit_never_pass_it(cards, tmp_path, threads):
    program = compile_c(tmp_path / "crowd", "-I", SOURCES.parents[1] / "src", SOURCES / "crowd.c",
                        DRIVER / "libcuda.so.1")
    said = dict(line.split() for line in run(cards, program, threads).splitlines())
    assert said["wrong"] == "0" and int(said["refused"]) > 0
    assert int(said["most"]) <= limited.LIMIT, "over the limit"
    assert int(said["most"]) > limited.LIMIT - 128 * limited.MIB, "a part of the limit was never reached"
    assert int(said["left"]) == limited.CONTEXT


@pytest.mark.parametrize("threads", [1, 16])
def test_credit_that_was_taken_back_is_never_used(cards, tmp_path, threads):
    program = compile_c(tmp_path / "crowd", "-I", SOURCES.parents[1] / "src", SOURCES / "crowd.c",
                        DRIVER / "libcuda.so.1")
    said = dict(line.split() for line in run(cards, program, threads, "recall").splitlines())
    assert said["wrong"] == "0" and int(said["recalled"]) > 0 and int(said["left"]) == limited.CONTEXT


@pytest.mark.parametrize("threads", [1, 16])
def test_threads_with_pools_leave_nothing_charged(cards, tmp_path, threads):
    """Each thread may be over by one step of a pool for a moment, if the gaps of the pool are too small."""
    program = compile_c(tmp_path / "crowd", "-I", SOURCES.parents[1] / "src", SOURCES / "crowd.c",
                        DRIVER / "libcuda.so.1")
    said = dict(line.split() for line in run(cards, program, threads, "pools").splitlines())
    assert said["wrong"] == "0" and int(said["refused"]) > 0 and int(said["left"]) == limited.CONTEXT
    assert int(said["most"]) <= limited.LIMIT + threads * 64 * limited.MIB


def test_arrays_are_charged_by_their_elements(tmp_path):
    """The simulated card has no arrays. A driver that only hands out handles shows what is charged."""
    compile_c(tmp_path / "libcuda.so.1", "-shared", "-Wl,-soname,libcuda.so.1", SOURCES / "null_driver.c")
    env = environment(LIBRARY, driver=tmp_path)
    done = subprocess.run([sys.executable, SOURCES / "arrays.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_page_of_another_version_is_refused(tmp_path):
    script = ("import ctypes, sys; sys.path.insert(0, sys.argv[1]); import limited\n"
              "size = ctypes.sizeof(limited.LimitPage)\n"
              "ours = ctypes.CDLL(None)\n"
              "pages = [limited.LimitPage(8, limited.ABI, 1), limited.LimitPage(size, limited.ABI - 1, 1),\n"
              "         limited.LimitPage(size, limited.ABI, 17)]\n"
              "print([ours.sublet_cuda_adopt(ctypes.byref(page)) for page in pages])\n"
              "print(ours.sublet_cuda_use(ctypes.byref(limited.UsePage(8))))\n")
    done = subprocess.run([sys.executable, "-c", script, SOURCES], env=environment(LIBRARY), capture_output=True,
                          text=True, check=True)
    assert done.stdout == "[-1, -1, -1]\n-1\n"
