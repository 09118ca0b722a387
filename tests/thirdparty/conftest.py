# SPDX-License-Identifier: Apache-2.0
"""Unmodified third-party programs on simulated cards. A test whose program is not installed is skipped with a message.
"""

import functools
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "simgpu"))
import simcards  # noqa: E402

VENV = simcards.ROOT / ".venv-thirdparty"


@functools.cache
def installed(package):
    return any(VENV.glob(f"lib/python3*/site-packages/{package.replace('-', '_')}-*.dist-info"))


class Foreign:
    """Finds programs in the virtual environment of tools/thirdparty-venv and in the system."""

    def need(self, *packages):
        for package in packages:
            if not installed(package):
                pytest.skip(f"{package} is not installed: tools/thirdparty-venv installs it from PyPI")
        return self

    def program(self, name):
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed: apt-get install {name}")
        return path

    def crate(self, name):
        """The program of tests/thirdparty/NAME, which uses the crate."""
        program = VENV / f"{name}/target/release/{name}-client"
        if not program.exists():
            pytest.skip(f"{name} is not built: tools/thirdparty-venv builds it with cargo 1.88 or later")
        return program

    def java(self, name):
        """The class path of a package; Java compiles the program that uses it."""
        jars = VENV / name
        if shutil.which("javac") is None or not jars.exists():
            pytest.skip(f"{name} is not installed: tools/thirdparty-venv fetches it with Maven (and a JDK runs it)")
        return f"{jars}/*"

    def python(self, cards, *arguments, **keywords):
        """Runs the environment's Python on the cards, with its own modules instead of ours."""
        return self.run(cards, VENV / "bin/python", "-I", *arguments, **keywords)

    def run(self, cards, *command, environment=None, timeout=120):
        return subprocess.run(
            list(map(str, command)),
            env=cards.env(**(environment or {})),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
        )


@pytest.fixture
def foreign():
    return Foreign()


@pytest.fixture
def make_cards(tmp_path):
    made = []

    def make(spec="1x4GiB", name="cards"):
        made.append(simcards.Cards(tmp_path / name, spec))
        return made[-1]

    yield make
    for cards in made:
        cards.end()


@pytest.fixture
def cards(make_cards):
    return make_cards()
