# SPDX-License-Identifier: Apache-2.0
"""The preloaded library between a program and the driver, and small programs that call it."""
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.support.sublet import BUILD, ROOT

LIBRARY = BUILD / "lib/sublet/libsublet-cuda.so"
DRIVER = BUILD / "lib/simgpu"
SOURCES = ROOT / "tests/interposer"
SYMBOLS = ROOT / "interposer/symbols"
# Results of the interposer's report (src/wire/interposer.h).
PASSIVE, COVERED, UNCOVERED = 0, 1, 2
UNKNOWN_EXPORT, UNKNOWN_POINTER, SECOND_DRIVER = 1, 2, 3


def compile_c(target, *words):
    """Compiles a program, or with -shared a library; skips the test if there is no compiler."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler here")
    subprocess.run([compiler, "-O1", "-fPIC", "-o", str(target), *map(str, words), "-ldl", "-pthread"], check=True)
    return target


def counting(folder):
    """Compiles the library that tells at the end of a program what the interposer counted."""
    return compile_c(folder / "counts.so", "-shared", SOURCES / "counts.c")


def symbols():
    """All names that any listed driver exports or declares."""
    return {line for path in SYMBOLS.glob("*.txt") for line in path.read_text().splitlines()
            if line and not line.startswith("#")}


def environment(*preloads, driver=DRIVER, **more):
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), **{name: str(value) for name, value in more.items()}}
    if preloads:
        env["LD_PRELOAD"] = ":".join(map(str, preloads))
        # A library with a sanitizer requires the sanitizer to be loaded first.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return env


def told(path):
    """Reads what counting() wrote for each process: -> a list of (report, calls by name)"""
    reports = []
    for file in sorted(pathlib.Path(path).parent.glob(f"{pathlib.Path(path).name}.*")):
        words = dict(line.partition(" ")[::2] for line in file.read_text().splitlines())
        report = {key: words.pop(key) for key in ("state", "reason", "version", "hooks", "found", "name")}
        reports.append(({key: value if key == "name" else int(value) for key, value in report.items()},
                        {name: int(count) for name, count in words.items()}))
    return reports
