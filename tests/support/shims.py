# SPDX-License-Identifier: Apache-2.0
"""A home with shims, and programs of a test that they stand for."""
import os
import shutil
import subprocess

from tests.support.sublet import BIN


class Home:
    """A user's home with a directory of real programs. `env` has the shims first in PATH, then the real programs."""

    def __init__(self, directory, daemon=None):
        self.path = directory
        self.daemon = daemon
        self.real = directory / "real"
        self.real.mkdir()
        self.shims = directory / ".local/share/sublet/shims"
        self.earlier = {lease["id"] for lease in daemon.leases(all=True)} if daemon else set()

    def env(self, shims=True, **more):
        host = f"unix://{self.path}/nowhere.sock"
        env = self.daemon.env() if self.daemon else dict(os.environ, SUBLET_HOST=host)
        for name in ("SUBLET_LEASE", "XDG_DATA_HOME", "CUDA_VISIBLE_DEVICES", "SUBLET_SHIM_DEPTH"):
            env.pop(name, None)
        first = f"{self.shims}:" if shims else ""
        return env | {"HOME": str(self.path), "PATH": f"{first}{self.real}:{BIN}:/usr/bin:/bin"} | more

    def program(self, name, script, folder=None):
        """Writes an executable shell script; returns its path."""
        path = (folder or self.real) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def cli(self, *words, check=0, env=None, **options):
        done = subprocess.run(["sublet", *map(str, words)], env=env or self.env(), capture_output=True, text=True,
                              timeout=60, **options)
        if check is not None:
            assert done.returncode == check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def add(self, name, *words, **options):
        return self.cli("shim", "add", name, *([] if "--vram" in words else ["--vram", "64MiB"]), *words, **options)

    def call(self, name, *words, check=0, env=None, **options):
        """Calls a program by its name, as a shell would."""
        env = env or self.env()
        where = shutil.which(name, path=env["PATH"])
        assert where, f"{name} is not in {env['PATH']}"
        done = subprocess.run([name, *map(str, words)], executable=where, env=env, capture_output=True, timeout=60,
                              text=True, **options)
        if check is not None:
            assert done.returncode == check, f"{name} {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, name, *words, env=None, **options):
        return self.daemon.spawn(name, *words, env=env or self.env(), executable=str(self.shims / name), **options)

    def leases(self):
        """Returns the leases that were made since this home."""
        return [lease for lease in self.daemon.leases(all=True) if lease["id"] not in self.earlier]


def installation(directory, programs=("sublet", "sublet-shim")):
    """Copies programs into DIRECTORY/bin, where they are the installation of a test."""
    folder = directory / "bin"
    folder.mkdir(parents=True)
    for program in programs:
        shutil.copy(BIN / program, folder / program)
    return folder
