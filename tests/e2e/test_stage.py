# SPDX-License-Identifier: Apache-2.0
"""The demo, and the runner for real cards, on a simulated card."""
import os
import subprocess
import sys

from tests.support.contract import ROOT
from tests.support.sublet import BIN, BUILD


def play(script, *arguments):
    done = subprocess.run([sys.executable, ROOT / script, *arguments], text=True, capture_output=True, timeout=300,
                          env=dict(os.environ, SUBLET_BUILD_DIR=str(BUILD)))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_plays_to_its_end():
    said = play("tools/demo.py")
    for word in ("third", "unleased", "kill -9", "exit status 143", "That is the main job"):
        assert word in said


def test_the_runner_for_real_cards_passes_each_step_on_a_simulated_one():
    said = play("tests/gpu/run.py", "--bin", str(BIN), "--sim", "1x24GiB", "--parts", "main,pausing")
    assert "FAIL" not in said and said.count("PASS") == 16
    assert "its loss curve is that of the undisturbed run" in said
    assert said.rstrip().endswith("16 passed, 0 failed")
