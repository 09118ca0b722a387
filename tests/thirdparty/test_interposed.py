# SPDX-License-Identifier: Apache-2.0
"""Unmodified third-party programs with the preloaded library, without and with a limit: the same results as without it,
and calls that were counted. Each program finds the driver's functions in a way of its own.
"""
import json
import os
import pathlib
import re

import pytest

from tests.support.credit import CreditDaemon
from tests.support.interposer import COVERED, LIBRARY, counting, told
from tests.support.sublet import ROOT

HERE = pathlib.Path(__file__).parent
VENV = ROOT / ".venv-thirdparty"
LARGER = "8GiB"

pytestmark = pytest.mark.heavy


@pytest.fixture
def both(foreign, make_cards, tmp_path):
    """Runs a program bare, with the library, and in a lease, on fresh cards: -> (the ends bare and hooked, calls that
    were counted). The lease is as large as the card of the bare run, and is on a larger card. All ends must be those of
    the bare run. `is_full`: the program fills the card, so that the lease has to refuse something."""
    def run(start, *, size="4GiB", settings=",context_bytes=64MiB", is_full=False,
            outcome=lambda done: done.stdout, **options):
        counts = counting(tmp_path)
        variables = {"LD_PRELOAD": f"{counts}:{LIBRARY}", "INTERPOSER_COUNTS": str(tmp_path / "told")}
        small, large = (f"1x{each},Card{settings}+1x4GiB,Card" for each in (size, LARGER))
        ends = [start(make_cards(small, name), environment=environment, **options)
                for name, environment in (("bare", {}), ("hooked", variables))]
        cards = make_cards(large, "limited")
        daemon = daemon_of(cards, tmp_path / "credit", make_cards(small, "as large as the lease"))
        limited = start(cards, environment={"LD_PRELOAD": str(LIBRARY), "SUBLET_CREDIT": daemon.path}, **options)
        daemon.stop()
        for end in (ends[1], limited):
            assert (end.returncode, outcome(end)) == (ends[0].returncode, outcome(ends[0])), end.stderr
        uses = [process.use.device[0] for process in daemon.processes.values()]
        assert any(0 < use.most <= daemon.limit for use in uses), limited.stderr
        assert not is_full or any(use.refused > 0 for use in uses), "the lease refused nothing"
        shown = cards.show()
        assert shown["processes"] == [] and shown["devices"][0]["used_bytes"] == 0 and shown["violations"] == 0
        reports = [one for one in told(tmp_path / "told") if one[1]]
        assert reports and all(report["state"] == COVERED for report, _ in reports), reports
        return ends, {name: sum(calls.get(name, 0) for _, calls in reports) for _, calls in reports for name in calls}
    return run


def daemon_of(cards, path, small):
    """A lease on the first card, of the size of another card."""
    shown = cards.show()
    [like, *_] = small.show()["devices"]
    uuid = bytes.fromhex(shown["devices"][0]["uuid"].removeprefix("GPU-").replace("-", ""))
    return CreditDaemon(path, uuid, like["total_bytes"] - like["driver_reserved_bytes"],
                        shown["settings"]["context_bytes"])


def test_cuda_bindings(foreign, both):
    foreign.need("cuda-bindings", "cuda-core")
    def outcome(done):
        said = json.loads(done.stdout.splitlines()[-1])
        said["core"].pop("uuid")  # each directory of cards has its own
        return said

    _, calls = both(lambda cards, **more: foreign.python(cards, HERE / "bindings_client.py", **more), outcome=outcome)
    assert calls["cuMemAlloc_v2"] > 0 and calls["cuMemCreate"] > 0 and calls["cuMemAllocAsync"] > 0


@pytest.mark.parametrize("module", ["test_cuda_driver", "test_cuda_memory", "test_cuda_ndarray", "test_host_alloc"])
def test_numbas_own_tests(foreign, both, module):
    foreign.need("numba-cuda", "nvidia-nvvm", "nvidia-cuda-runtime", "filecheck", "cffi")
    def outcome(done):
        return {test: result for test, (result, _) in json.loads(done.stdout.splitlines()[-1]).items()}

    ends, calls = both(
        lambda cards, **more: foreign.python(cards, HERE / "numba_runner.py", module, timeout=900, **more),
        outcome=outcome)
    assert "pass" in outcome(ends[0]).values()
    assert calls["cuInit"] >= 1 and calls["cuDevicePrimaryCtxRetain"] > 0


def with_compiler(cards, environment):
    """Programs that find NVRTC by the library path, and keep what they have compiled in the home directory."""
    compilers = sorted(VENV.glob("lib/python3*/site-packages/nvidia/cu*/lib"))
    path = ":".join([cards.env()["LD_LIBRARY_PATH"], *map(str, compilers)])
    return {**environment, "LD_LIBRARY_PATH": path, "DEV": "CUDA", "HOME": str(cards.dir)}


def test_tinygrad(foreign, both):
    foreign.need("tinygrad", "nvidia-cuda-nvrtc")
    ends, calls = both(lambda cards, environment: foreign.python(
        cards, HERE / "tinygrad_client.py", environment=with_compiler(cards, environment)))
    assert json.loads(ends[0].stdout.splitlines()[-1]) == {"device": "CUDA", "right": True}
    assert calls["cuModuleLoadData"] >= 1 and calls["cuLaunchKernel"] >= 1


def test_ffmpegs_upload_and_download(foreign, both):
    ffmpeg = foreign.program("ffmpeg")
    words = [ffmpeg, "-hide_banner", "-loglevel", "error", "-init_hw_device", "cuda=c", "-filter_hw_device", "c",
             "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=5", "-t", "1",
             "-vf", "format=nv12,hwupload,hwdownload,format=nv12", "-f", "framemd5", "-"]
    ends, calls = both(lambda cards, **more: foreign.run(cards, *words, **more))
    assert len(re.findall(r"^\d.*$", ends[0].stdout, re.M)) == 5, ends[0].stderr
    assert sum(count for name, count in calls.items() if name.startswith("cuMemcpy2D")) >= 10


def test_a_frame_that_is_too_large_for_ffmpeg(foreign, both):
    def outcome(done):
        return sorted(set(re.findall(r"CUDA_ERROR_\w+", done.stderr)))

    words = [foreign.program("ffmpeg"), "-hide_banner", "-loglevel", "error", "-init_hw_device", "cuda=c",
             "-filter_hw_device", "c", "-f", "lavfi", "-i", "testsrc2=size=7680x4320:duration=0.1",
             "-vf", "format=nv12,hwupload,hwdownload,format=nv12", "-f", "null", "-"]
    ends, _ = both(lambda cards, **more: foreign.run(cards, *words, **more), size="64MiB",
                   settings=",reserve=0,context_bytes=48MiB", is_full=True, outcome=outcome)
    assert ends[0].returncode > 0 and outcome(ends[0]) == ["CUDA_ERROR_OUT_OF_MEMORY"]


@pytest.mark.parametrize("way", ["bindings", "numba", "tinygrad"])
def test_a_program_that_fills_the_card(foreign, both, way):
    foreign.need({"bindings": "cuda-bindings", "numba": "numba-cuda", "tinygrad": "tinygrad"}[way])
    ends, _ = both(lambda cards, environment: foreign.python(
        cards, HERE / "fill_client.py", way, environment=with_compiler(cards, environment)), size="1GiB", is_full=True)
    assert re.fullmatch(r"(full after 14: .*\n){2}", ends[0].stdout), ends[0].stderr


def test_cudarc(foreign, both):
    program = foreign.crate("cudarc")
    ends, calls = both(lambda cards, **more: foreign.run(cards, program, **more), size="1GiB", is_full=True)
    assert re.fullmatch(r"Simulated Card of \d+\nright true\n(full after 14: CUDA_ERROR_OUT_OF_MEMORY\n){2}",
                        ends[0].stdout), ends[0].stderr
    assert calls["cuMemAllocAsync"] > 28 and calls["cuLaunchKernel"] == 1


def test_jcuda(foreign, both):
    path = foreign.java("jcuda")
    ends, calls = both(lambda cards, **more: foreign.run(
        cards, "java", f"-Djava.io.tmpdir={cards.dir}", "-cp", path, HERE / "jcuda/Client.java", **more),
        size="1GiB", is_full=True)
    assert re.fullmatch(r"\d+ of \d+\nright true\n(full after 14: CUDA_ERROR_OUT_OF_MEMORY\n){2}",
                        ends[0].stdout), ends[0].stderr
    assert calls["cuMemAlloc_v2"] == 31 and calls["cuMemcpyDtoH_v2"] == 1 and calls["cuLaunchKernel"] == 1


class Hashcat:
    def __init__(self, foreign, folder):
        foreign.need("nvidia-cuda-nvrtc")
        self.foreign, self.program, self.folder = foreign, foreign.program("hashcat"), folder
        [compiler] = VENV.glob("lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13")
        (folder / "libnvrtc.so").symlink_to(compiler)

    def __call__(self, cards, environment):
        environment = with_compiler(cards, environment)
        environment["LD_LIBRARY_PATH"] += f":{self.folder}"
        environment.update(dict.fromkeys(("XDG_DATA_HOME", "XDG_CACHE_HOME"), str(self.folder)))
        words = ["-m", 0, "-a", 3, "-d", 1, "--backend-ignore-opencl", "--self-test-disable", "--potfile-disable",
                 "--quiet", "--machine-readable", "--status", "--force", "-n", 1, "-u", 1,
                 "--session", f"sublet-{os.getpid()}", "0" * 32, "?d?d?d?d"]
        return self.foreign.run(cards, self.program, *words, environment=environment)

    @staticmethod
    def outcome(done):
        """The state and the progress at the end, without speeds and temperatures, and the complaints."""
        return (re.findall(r"STATUS\t(\d+)|PROGRESS\t(\d+)\t(\d+)", done.stdout),
                re.findall(r"^\* Device.*$", done.stdout + done.stderr, re.M))


def test_hashcat(foreign, both, tmp_path):
    ends, calls = both(Hashcat(foreign, tmp_path), outcome=Hashcat.outcome)
    # All 10000 candidates were tried; the kernels compute nothing on a simulated card, so that none is found.
    assert Hashcat.outcome(ends[0])[0][-2:] == [("5", "", ""), ("", "10000", "10000")], ends[0].stderr
    assert "CUDA runtime" not in ends[0].stderr, "its compiler asks for a table of the driver, too"
    assert calls["cuMemAlloc_v2"] == calls["cuMemFree_v2"] > 10 and calls["cuLaunchKernel"] > 10


def test_hashcat_on_a_card_that_is_too_small(foreign, both, tmp_path):
    ends, _ = both(Hashcat(foreign, tmp_path), size="256MiB", outcome=Hashcat.outcome)
    assert Hashcat.outcome(ends[0]) == ([], ["* Device #1: Not enough allocatable device memory for this attack."])
