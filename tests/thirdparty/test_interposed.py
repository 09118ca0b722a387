# SPDX-License-Identifier: Apache-2.0
"""Unmodified third-party programs with the preloaded library, without and with a limit: the same results as without it,
and calls that were counted. Each program finds the driver's functions in a way of its own.
"""
import json
import pathlib
import re

import pytest

from tests.support.credit import CreditDaemon
from tests.support.interposer import COVERED, LIBRARY, counting, told
from tests.support.sublet import ROOT

HERE = pathlib.Path(__file__).parent
VENV = ROOT / ".venv-thirdparty"

pytestmark = pytest.mark.heavy


@pytest.fixture
def both(foreign, make_cards, tmp_path):
    """Runs a program bare, with the library, and with a limit of the card's size, on fresh cards: -> (the ends bare and
    hooked, calls that were counted). The end with the limit must be that without it."""
    def run(start, *, spec="2x4GiB", outcome=lambda done: done.stdout, **options):
        counts = counting(tmp_path)
        variables = {"LD_PRELOAD": f"{counts}:{LIBRARY}", "INTERPOSER_COUNTS": str(tmp_path / "told")}
        ends = [start(make_cards(spec, name), environment=environment, **options)
                for name, environment in (("bare", {}), ("hooked", variables))]
        cards = make_cards(spec, "limited")
        daemon = daemon_of(cards, tmp_path / "credit")
        limited = start(cards, environment={"LD_PRELOAD": str(LIBRARY), "SUBLET_CREDIT": daemon.path}, **options)
        daemon.stop()
        assert outcome(limited) == outcome(ends[0]), limited.stderr
        assert any(process.use.device[0].most > 0 for process in daemon.processes.values()), "nothing was charged"
        reports = [one for one in told(tmp_path / "told") if one[1]]
        assert reports and all(report["state"] == COVERED for report, _ in reports), reports
        return ends, {name: count for _, calls in reports for name, count in calls.items()}
    return run


def daemon_of(cards, path):
    """A lease of all of the first card."""
    shown = cards.show()
    card = shown["devices"][0]
    uuid = bytes.fromhex(card["uuid"].removeprefix("GPU-").replace("-", ""))
    size = card["total_bytes"] - card["driver_reserved_bytes"]
    return CreditDaemon(path, uuid, size, shown["settings"]["context_bytes"])


def test_cuda_bindings(foreign, both):
    foreign.need("cuda-bindings", "cuda-core")
    def outcome(done):
        said = json.loads(done.stdout.splitlines()[-1])
        said["core"].pop("uuid")  # each directory of cards has its own
        return said

    ends, calls = both(lambda cards, **more: foreign.python(cards, HERE / "bindings_client.py", **more),
                       outcome=outcome)
    bare, hooked = map(outcome, ends)
    assert hooked == bare
    assert calls["cuMemAlloc_v2"] > 0 and calls["cuMemCreate"] > 0 and calls["cuMemAllocAsync"] > 0


@pytest.mark.parametrize("module", ["test_cuda_driver", "test_cuda_memory", "test_cuda_ndarray", "test_host_alloc"])
def test_numbas_own_tests(foreign, both, module):
    foreign.need("numba-cuda", "nvidia-nvvm", "nvidia-cuda-runtime", "filecheck", "cffi")
    def outcome(done):
        return {test: result for test, (result, _) in json.loads(done.stdout.splitlines()[-1]).items()}

    ends, calls = both(
        lambda cards, **more: foreign.python(cards, HERE / "numba_runner.py", module, timeout=900, **more),
        outcome=outcome)
    bare, hooked = map(outcome, ends)
    assert hooked == bare and "pass" in bare.values()
    assert calls["cuInit"] >= 1 and calls["cuDevicePrimaryCtxRetain"] > 0


def test_tinygrad(foreign, both, tmp_path):
    foreign.need("tinygrad", "nvidia-cuda-nvrtc")
    compilers = sorted(VENV.glob("lib/python3*/site-packages/nvidia/cu*/lib"))

    def start(cards, environment):
        # tinygrad finds NVRTC by the library path, and keeps what it has compiled in the home directory.
        path = ":".join([cards.env()["LD_LIBRARY_PATH"], *map(str, compilers)])
        environment = {**environment, "LD_LIBRARY_PATH": path, "DEV": "CUDA", "HOME": str(cards.dir)}
        return foreign.python(cards, HERE / "tinygrad_client.py", environment=environment)

    ends, calls = both(start)
    bare, hooked = (json.loads(done.stdout.splitlines()[-1]) for done in ends)
    assert hooked == bare == {"device": "CUDA", "right": True}
    assert calls["cuModuleLoadData"] >= 1 and calls["cuLaunchKernel"] >= 1


def test_ffmpegs_upload_and_download(foreign, both):
    ffmpeg = foreign.program("ffmpeg")
    words = [ffmpeg, "-hide_banner", "-loglevel", "error", "-init_hw_device", "cuda=c", "-filter_hw_device", "c",
             "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=5", "-t", "1",
             "-vf", "format=nv12,hwupload,hwdownload,format=nv12", "-f", "framemd5", "-"]
    ends, calls = both(lambda cards, **more: foreign.run(cards, *words, **more))
    frames = [re.findall(r"^\d.*$", done.stdout, re.M) for done in ends]
    assert frames[0] == frames[1] and len(frames[0]) == 5, ends[1].stderr
    assert sum(count for name, count in calls.items() if name.startswith("cuMemcpy2D")) >= 10
