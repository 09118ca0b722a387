# SPDX-License-Identifier: Apache-2.0
"""Libraries that are made for a test, and loaded before all others into what it starts."""
import os
import shutil
import subprocess

import pytest


def shared_library(built, source):
    """Compiled from one file of C; skips where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler here")
    subprocess.run([compiler, "-x", "c", "-O1", "-fPIC", "-shared", "-o", built, source, "-ldl"], check=True)
    return built


def preloaded(library):
    """The environment of processes into which it is loaded."""
    # A daemon that watches itself insists on being the first to be loaded.
    return {"LD_PRELOAD": str(library),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def preload(monkeypatch, library):
    for name, value in preloaded(library).items():
        monkeypatch.setenv(name, value)
