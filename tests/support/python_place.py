# SPDX-License-Identifier: Apache-2.0
"""A private daemon for the Python package, in this process and in programs of their own."""
import re
import subprocess
import sys

from .sublet import ROOT

SOURCE = ROOT / "python" / "src"
CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "64MiB"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\n'
          '[pause]\nverify_timeout = "10s"\nyield_timeout = "3s"\ncooldown = "100ms"\n')
SHOWN = ("SUBLET_HOST", "SIMGPU_DIR", "LD_LIBRARY_PATH", "PATH")


def snippets(language, only="", without=None, document="docs/python.md"):
    """Returns the snippets of the document in the language that contain `only` and not `without`."""
    text = (ROOT / document).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return [snippet for snippet in found if only in snippet and (without is None or without not in snippet)]


class Place:
    """A daemon that this process and its programs use."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.get = daemon.get

    def env(self, **more):
        return self.daemon.env(PYTHONPATH=str(SOURCE), PYTHONDONTWRITEBYTECODE="1", **more)

    def python(self, text, *arguments, **options):
        """Starts a program with the package. Its input and output are pipes."""
        options.setdefault("stdin", subprocess.PIPE)
        return self.daemon.spawn(sys.executable, "-c", text, *arguments, env=self.env(**options.pop("more", {})),
                                 **options)

    def leases(self, *states):
        """Returns the live leases, or those in one of these states."""
        return [lease for lease in self.get("/v1/leases")["leases"] if not states or lease["state"] in states]
