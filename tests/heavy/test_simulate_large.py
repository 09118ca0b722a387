# SPDX-License-Identifier: Apache-2.0
"""Simulations that take long: a million jobs, and the scenario that ships with its goals."""
import json
import subprocess

import pytest

from tests.support.keeping import SUBLET


def figures_of(*words):
    done = subprocess.run([SUBLET, "simulate", *map(str, words), "--json"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_million_jobs_are_done(tmp_path):
    trace = tmp_path / "many.csv"
    with open(trace, "w") as out:
        out.write("arrives,runs,vram,user\n")
        out.writelines(f"{i * 10},{30 + i % 37},{1 + i % 7}GiB,u{i % 7}\n" for i in range(1_000_000))
    figures = figures_of("--trace", trace, "--gpus", "4x24GiB", "--set", "pause.automatic=false")
    assert figures["jobs"] == {"done": 1_000_000, "refused": 0, "ended": 0, "unfinished": 0}


@pytest.mark.parametrize("seed", [42, 1, 2, 3, 4])
def test_a_shared_cluster_reaches_its_goals(seed):
    before, ours = figures_of("--scenario", "burst", "--seed", seed)["settings"]
    assert ours["useful_percent"] >= 1.15 * before["useful_percent"]
    waits = [next(row["wait_p99_seconds"] for row in its["tenants"] if row["tenant"] == "inference")
             for its in (before, ours)]
    assert waits[1] < waits[0], waits
    assert all(row["guarantees_served"] == row["guarantees_asked"] for row in ours["tenants"])
