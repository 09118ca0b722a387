# SPDX-License-Identifier: Apache-2.0
"""The folder for services that are large or slow to start. This folder has no test yet.

`./dev test heavy` and `.ci/run` run this folder; `./dev test` leaves it out. All its tests together take at most 25
minutes. A test skips, and names the program, where that program cannot be installed.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
