# SPDX-License-Identifier: Apache-2.0
"""Libraries that are compiled for a test and preloaded into the processes that it starts."""
import os
import shutil
import subprocess

import pytest


def shared_library(built, source):
    """Compiles one file of C; skips the test if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler here")
    subprocess.run([compiler, "-x", "c", "-O1", "-fPIC", "-shared", "-o", built, source, "-ldl"], check=True)
    return built


def preloaded(library):
    """Returns the environment of processes that preload the library."""
    # A daemon with a sanitizer requires the sanitizer to be loaded first.
    return {"LD_PRELOAD": str(library),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def preload(monkeypatch, library):
    for name, value in preloaded(library).items():
        monkeypatch.setenv(name, value)
