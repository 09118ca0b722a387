# SPDX-License-Identifier: Apache-2.0
"""docs/cluster/ray.md from nothing to a shared card: all its commands run in one shell, in a pid namespace of its own,
since `ray stop` ends each Ray of the machine.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

from tests.support.ray_place import VENV, need
from tests.support.sublet import BIN, ROOT, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("ray")]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs/cluster/ray.md").read_text(), re.M | re.S)
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def script_of(home):
    """Returns all commands of the page, and writes its programs. A program without a name runs where it stands."""
    lines = ["set -e"]
    for number, (kind, text) in enumerate(BLOCKS):
        if kind == "sh":
            lines.append(text)
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", text)
            path = home / (name.group(1) if name else f"block{number}.py")
            path.write_text(text)
            if name is None:
                lines.append(f"echo; echo '--- {path.name}'; python {path.name}")
    # A program has its name in the page before or after the command that runs it.
    stop = lines.pop()
    assert stop == "ray stop\n"
    return "\n".join([*lines, stop, "echo all ran"])


@pytest.fixture(name="home")
def home_fixture():
    need()
    for module in ("setuptools", "wheel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: apt-get install python3-{module}")
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may make no pid namespace, in which `ray stop` would end nobody else's Ray")
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    yield pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_the_page_leads_from_nothing_to_a_shared_card(home):
    subprocess.run([sys.executable, ROOT / "tools/python_package.py", home, "--version", "0.1.0"], check=True,
                   capture_output=True)
    [site] = VENV.glob("lib/python3*/site-packages")
    installed = home / "ray" / site.relative_to(VENV)
    env = {"HOME": str(home), "PATH": f"{BIN}:/usr/bin:/bin:{VENV / 'bin'}", "RAY_TMPDIR": str(home / "t"),
           "PYTHONPATH": f"{site}:{installed}", "PIP_NO_INDEX": "1", "RAY_AUTH_MODE": "disabled",
           "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0", "RAY_DEDUP_LOGS": "0"}
    (home / "t" / "ray").mkdir(parents=True)
    with open(home / "log", "w") as out:
        shell = subprocess.Popen([*NAMESPACE, "bash", "-c", script_of(home)], cwd=home, env=env, stdout=out, stderr=out,
                                 stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: shell.poll() is not None, "all commands have run", 150)
    finally:
        shell.kill()
        shell.wait()
        said = (home / "log").read_text()
        print(said, (home / "gpu.log").read_text())
    assert shell.returncode == 0 and said.endswith("all ran\n"), said
    assert "sublet.ray: 1 card with 23." in said and "factor 2: vram_gib is 46" in said, said
    assert "is paused for lease-2, back " in said and "runs again after " in said, said
    assert "chat: 0\ntrain: 0\n" in re.sub(r"(?m)^.*sublet: .*\n|^.*pid=.*\n", "", said), said
    assert "no work of Ray has a lease" in said, said
