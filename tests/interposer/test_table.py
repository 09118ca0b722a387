# SPDX-License-Identifier: Apache-2.0
"""The table of hooks and the library that is made of it: every listed function of every driver, and nothing from
outside.
"""
import re
import subprocess
import sys

import pytest

from tests.support.interposer import LIBRARY, SYMBOLS, symbols
from tests.support.sublet import ROOT

FOLDER = ROOT / "interposer"
OURS = {"dlsym", "dlvsym", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
        "sublet_cuda_adopt", "sublet_cuda_adopt_share", "sublet_cuda_calls", "sublet_cuda_report", "sublet_cuda_use"}
sys.path.insert(0, str(FOLDER))
import generate  # noqa: E402


def read(*words):
    return subprocess.run(["readelf", "-W", *words, LIBRARY], check=True, capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}).stdout


def dynamic_symbols():
    """-> (names that the library defines, names that it wants from others)"""
    defined, wanted = set(), set()
    for line in read("--dyn-syms").splitlines():
        words = line.split()
        if len(words) == 8 and words[0] != "Num:":
            (wanted if words[6] == "UND" else defined).add(words[7])
    return defined, wanted


@pytest.mark.parametrize("path", sorted(SYMBOLS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_function_of_a_driver_has_a_hook(path):
    names = set(generate.lines(path))
    assert len(names) > 500
    assert names - dynamic_symbols()[0] == set()


def test_the_library_exports_nothing_else():
    assert dynamic_symbols()[0] == symbols() | OURS


def test_the_tables_are_what_the_generator_writes(tmp_path):
    subprocess.run([sys.executable, FOLDER / "generate.py", tmp_path], check=True)
    for name in ("exports.inc", "families.inc", "exports.map"):
        assert (tmp_path / name).read_text() == (FOLDER / "generated" / name).read_text(), f"run {FOLDER}/generate.py"


def test_a_name_without_a_family_stops_the_generator():
    table = generate.families()
    assert generate.problems(generate.names(), table) == []
    [problem] = generate.problems(["cuTeleportMemory"], {})
    assert problem == "cuTeleportMemory has no family: add a prefix to families.tsv"
    assert generate.family_of("cuMemAllocSomewhere", table) == "allocation"
    assert generate.family_of("cuMemGetSomething", table) == "query"
    assert generate.base_of("cuMemcpyHtoD_v2_ptds") == "cuMemcpyHtoD"


def test_no_version_of_any_library_is_asked_for():
    assert "NEEDED" not in read("-d")
    assert "Version needs section" not in read("-V") and "GLIBC" not in read("--dyn-syms")
    assert dynamic_symbols()[1] == {"dl_iterate_phdr", "environ"}


def test_nothing_runs_when_the_library_is_loaded():
    sections = read("-S")
    assert not re.search(r"\.(init|fini|ctors|dtors|preinit)", sections)
    assert not re.search(r"\((INIT|FINI)", read("-d"))
    assert "GNU_IFUNC" not in read("--dyn-syms") and "IRELATIV" not in read("-r") and "TEXTREL" not in read("-d")
