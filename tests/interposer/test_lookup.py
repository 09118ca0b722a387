# SPDX-License-Identifier: Apache-2.0
"""Each route by which a program finds the driver's functions: the same answer as without the interposer, with the hook
of the same function.
"""
import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.credit import BEGIN, MIB, CreditDaemon
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c, environment, symbols
from tests.support.sublet import BUILD, ROOT

LOOKUPS = ROOT / "simgpu/cuda/runtime_lookups.tsv"
VENDORS = pathlib.Path(ROOT / ".vendor-driver")


def run(*words, **options):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, **options)
    return done.stdout


@pytest.fixture(scope="module", name="programs")
def compile_programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("routes")
    driver = DRIVER / "libcuda.so.1"
    compile_c(folder / "plugin.so", "-shared", SOURCES / "plugin.c", driver)
    compile_c(folder / "routes", SOURCES / "routes.c", driver)
    compile_c(folder / "unlinked", SOURCES / "unlinked.c")
    return folder


def test_every_route_finds_the_hook_of_what_it_found_before(programs):
    words = [programs / "routes", programs / "plugin.so"]
    bare = run(*words, env=environment()).splitlines()
    hooked = run(*words, env=environment(LIBRARY)).splitlines()
    assert [line.replace("libsublet-cuda.so", "libcuda.so.1") for line in hooked] == bare
    answers = {line.split()[0]: line.split()[1:] for line in hooked}
    assert answers.pop("address-first") == ["libsublet-cuda.so", "cuMemAlloc"]
    assert answers["address-thread"] == ["libsublet-cuda.so", "cuMemcpyHtoD_v2_ptds"]
    assert answers["self"][1] == "cuGetProcAddress_v2" and answers["self-first"][1] == "cuGetProcAddress"
    absent = {route for route, answer in answers.items() if answer == ["-"]}
    assert absent == {"version", "absent", "lacking", "lacking-default"}
    assert all(answer[0] == "libsublet-cuda.so" for route, answer in answers.items() if route not in absent)


@pytest.mark.parametrize("arguments", [[], ["plugin.so"]], ids=["no-driver", "driver-of-a-plugin"])
def test_a_program_without_the_driver_sees_no_function_of_it(programs, arguments):
    words = [programs / "unlinked", *(programs / name for name in arguments)]
    bare = run(*words, env=environment())
    assert run(*words, env=environment(LIBRARY)) == bare
    assert "default absent\nnext absent" in bare


def look_up(tmp_path, driver, *preloads, **variables):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(sorted(symbols())))
    env = environment(*preloads, driver=driver, **variables)
    return json.loads(run(sys.executable, SOURCES / "lookups.py", names, LOOKUPS, env=env))


def compare(bare, hooked):
    """Compares all answers name by name, and returns the number of functions that were found before cuInit."""
    found = 0
    for time in ("before", "after"):
        pairs = [(name, answer, hooked[time]["dlsym"][name]) for name, answer in bare[time]["dlsym"].items()]
        for route in ("first", "second"):
            for before, after in zip(bare[time][route], hooked[time][route], strict=True):
                assert before[:2] == after[:2], "result and status are the driver's"
                pairs.append((route, before[2], after[2]))
        for name, before, after in pairs:
            expected = None if before is None else ["libsublet-cuda.so", before[1]]
            assert after == expected, f"{name}, {time} cuInit"
        found = found or sum(before is not None for _, before, _ in pairs)
    assert bare["init"] == hooked["init"]
    return found


def test_the_lookups_of_the_cuda_runtime_are_answered_name_by_name(tmp_path):
    bare = look_up(tmp_path, DRIVER)
    assert len(bare["before"]["first"]) == len(bare["after"]["second"]) == 439
    assert compare(bare, look_up(tmp_path, DRIVER, LIBRARY)) > 1400


def test_the_same_under_a_limit(tmp_path):
    cards = {"SIMGPU_DIR": tmp_path / "simgpu"}
    run(BUILD / "bin/simgpu-ctl", "--dir", tmp_path, "create", "1x1GiB")
    [card] = json.loads(run(BUILD / "bin/simgpu-ctl", "--dir", tmp_path, "show", "--json"))["devices"]
    uuid = bytes.fromhex(card["uuid"].removeprefix("GPU-").replace("-", ""))
    daemon = CreditDaemon(tmp_path / "credit", uuid, 256 * MIB, 0)
    try:
        bare = look_up(tmp_path, DRIVER, **cards)
        assert bare["init"] == 0
        assert compare(bare, look_up(tmp_path, DRIVER, LIBRARY, SUBLET_CREDIT=daemon.path, **cards)) > 1400
        assert daemon.questions == [BEGIN], "it has its limit"
    finally:
        daemon.stop()
        daemon.close()


@pytest.mark.parametrize("version", ["535", "550"])
def test_the_vendors_driver_is_covered(tmp_path, version):
    found = sorted(VENDORS.glob(f"**/libcuda.so.{version}.*"))
    if not found:
        pytest.skip(f"no driver library {version} here: tools/vendor-driver fetches it from Debian's non-free packages")
    bare = look_up(tmp_path, found[0].parent)
    assert compare(bare, look_up(tmp_path, found[0].parent, LIBRARY)) > 1350


def test_the_vendors_runtime_finds_hooks_only(tmp_path):
    """The runtime 12 of PyPI on the vendor's driver, seen by a library that is preloaded before ours."""
    runtimes = sorted(ROOT.glob(".venv-thirdparty/lib/python3*/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"))
    drivers = sorted(VENDORS.glob("**/libcuda.so.5*"))
    if not runtimes or not drivers:
        pytest.skip("needs the CUDA runtime (tools/thirdparty-venv) and a driver library (tools/vendor-driver)")
    recorder = compile_c(tmp_path / "recorder.so", "-shared", SOURCES / "recorder.c")
    script = f"import ctypes; print(ctypes.CDLL({str(runtimes[0])!r}).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
    recorded = []
    for preloads in ([recorder], [recorder, LIBRARY]):
        (tmp_path / "recorded").write_text("")
        env = environment(*preloads, driver=drivers[-1].parent, RECORDED=tmp_path / "recorded")
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        recorded.append([line.split() for line in (tmp_path / "recorded").read_text().splitlines()])
        assert int(done.stdout) == 100, "cudaErrorNoDevice: the look-ups are over"
    bare, hooked = recorded
    assert len(bare) > 400
    # A function that is absent without the interposer stays absent, and all others are hooks.
    assert hooked == [[*name, "-" if library == "-" else "libsublet-cuda.so"] for *name, library in bare]
