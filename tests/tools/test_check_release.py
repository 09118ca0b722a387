# SPDX-License-Identifier: Apache-2.0
"""The check of shipped files, on output of readelf, and on real files built here."""
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_release  # noqa: E402

DYNAMIC = " 0x01 (NEEDED)   Shared library: [libc.so.6]\n 0x01 (NEEDED)  Shared library: [libm.so.6]\n"
VERSIONS = """Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: none  Index: 2  Cnt: 1  Name: GLIBC_9.9
Version needs section '.gnu.version_r' contains 1 entry:
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 3
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 2
"""


def judge(name, dynamic, versions, sections=""):
    return check_release.judge(name, *check_release.parse(dynamic, versions, sections))


def test_a_correct_release():
    assert judge("subletd", DYNAMIC, VERSIONS) == ("2.34", [])


def test_a_symbol_that_is_too_new():
    found = judge("subletd", DYNAMIC, VERSIONS.replace("2.34", "2.36"))[1]
    assert found == ["asks for GLIBC_2.36, the floor is 2.35"]


def test_the_preloaded_library_has_a_lower_floor():
    assert judge("libsublet-cuda.so", DYNAMIC, VERSIONS)[1] == ["asks for GLIBC_2.34, the floor is 2.17"]


def test_a_version_without_a_number():
    assert "GLIBC_PRIVATE" in judge("subletd", DYNAMIC, VERSIONS.replace("2.34", "PRIVATE"))[1][0]


def test_a_library_that_is_not_glibcs():
    found = judge("subletd", DYNAMIC + " 0x01 (NEEDED) Shared library: [libstdc++.so.6]\n", VERSIONS)[1]
    assert found == ["needs libstdc++.so.6: link it statically"]


def test_a_file_with_symbols_left():
    assert judge("subletd", DYNAMIC, VERSIONS, "  [30] .symtab SYMTAB\n")[1] == ["is not stripped"]


def test_nothing_to_check_is_a_failure(tmp_path):
    assert check_release.main([str(tmp_path), "--any"]) == 1


@pytest.mark.parametrize("flags, status", [
    (["-s"], 0), ([], 1), (["-s", "-Wl,--no-as-needed", "-lstdc++"], 1),
])
def test_a_real_program(tmp_path, flags, status):
    if not shutil.which("gcc") or not shutil.which("readelf"):
        pytest.skip("no gcc or readelf here")
    (tmp_path / "a.c").write_text("#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n")
    (tmp_path / "out").mkdir()
    subprocess.run(["gcc", "a.c", "-o", "out/subletd", *flags], cwd=tmp_path, check=True)
    assert check_release.main([str(tmp_path / "out"), "--any"]) == status
    # Without --any the other programs of a release are missing.
    assert check_release.main([str(tmp_path / "out")]) == 1
