# SPDX-License-Identifier: Apache-2.0
"""Each benchmark runs for about a second and prints a table with the ratio to a raw measure. No times are asserted.
Those that take minutes are left to `./dev bench`.
"""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", ROOT / "build"))
SHORT = {  # arguments, and the title of the column of ratios; the error of an estimate is a ratio already
    "cluster_bench": (["64", "64", "20", "16"], "in a second"),
    "daemon_bench": (["0.3"], "ratio to raw"),
    "enforcer_bench": (["20", "300"], "ratio to raw"),
    "estimate_bench": (["3", "20"], "rel p50"),
    "events_bench.py": (["20", "1"], "ratio to raw"),
    "fairness_bench": (["2000"], "formula"),
    "guard_bench.py": (["leak"], "ratio to raw"),
    "idle_bench.py": (["1"], "ratio to raw"),
    "interposer_bench.py": (["100000"], "ratio to raw"),
    "prediction_bench": (["300"], "raw"),
    "python_bench.py": (["50", "200"], "ratio to raw"),
    "report_bench": (["0.1"], "ratio to raw"),
    "restart_bench.py": (["2100"], "ratio to raw"),  # more than one user may have
    "sessions_bench.py": (["10", "20", "5"], "ratio to raw"),
    "shim_bench.py": (["20"], "ratio to raw"),
    "stacks_bench.py": (["20", "4"], "ratio to raw"),
    "step_bench": (["50", "1000", "16"], "p50 / map"),
    "store_bench": (["/tmp", "0.1"], "raw"),
    "victims_bench": (["4"], "p50 / raw"),
    "waiters_bench": (["300"], "ratio"),
    "web_bench.py": (["2"], "ratio to raw"),
}
# These take several seconds each.
HEAVY = {"events_bench.py", "guard_bench.py", "idle_bench.py", "prediction_bench", "restart_bench.py",
         "sessions_bench.py", "shim_bench.py", "stacks_bench.py", "step_bench", "web_bench.py"}
LONG = {"pause_bench.py", "placement_bench", "share_bench.py"}  # the second needs a public trace


def test_every_benchmark_is_tried_here():
    there = {file.name if file.suffix == ".py" else file.stem for file in (ROOT / "bench").iterdir()
             if file.stem.endswith("_bench")}
    assert there == set(SHORT) | LONG


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.heavy] * (name in HEAVY))
                                  for name in sorted(SHORT)])
def test_a_benchmark_prints_its_table(name):
    program = [sys.executable, ROOT / "bench" / name] if name.endswith(".py") else [BUILD / "bench" / name]
    if not pathlib.Path(program[-1]).exists():
        pytest.skip("the benchmarks are not built")
    arguments, ratios = SHORT[name]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"SUBLET_BUILD_DIR": str(BUILD)})
    assert done.returncode == 0, done.stdout + done.stderr
    if done.stdout.startswith("no "):
        pytest.skip(done.stdout.strip())
    assert ratios in done.stdout, done.stdout
    assert len(re.findall(r"\d+\.\d+", done.stdout)) >= 3, done.stdout
