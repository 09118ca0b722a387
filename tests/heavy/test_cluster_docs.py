# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/cluster/slurm.md, with the paths of a test's own Slurm."""
import re
import subprocess

import pytest

from tests.support import slurm
from tests.support.contract import ROOT
from tests.support.sublet import wait_until

pytestmark = pytest.mark.heavy
PAGE = ROOT / "docs/cluster/slurm.md"


def commands():
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def cluster():
    if why := slurm.missing():
        pytest.skip(why)
    made = slurm.Cluster()
    yield made
    made.close()


def test_every_command_of_the_page_works(cluster):
    etc, lib = cluster.dir / "etc", cluster.dir / "lib"
    etc.mkdir()
    env = cluster.env(SUBLET_HOST=f"unix://{cluster.daemons['n1'].socket}", SBATCH_EXPORT="ALL", SLURM_NODELIST="",
                      **cluster.program_env("n1"))
    blocks = commands()
    assert len(blocks) >= 5, "the page has commands"
    for block in blocks:
        # The machine has two nodes: the cards that the commands see are those of the first one.
        text = block.replace("/etc/slurm", str(etc)).replace("/usr/lib/sublet", str(lib))
        text = re.sub(r"^(sbatch|srun) ", r"\1 -w n1 ", text, flags=re.M)
        done = subprocess.run(["bash", "-ec", text], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert "Name=shard" in (etc / "gres.conf").read_text()
    assert (lib / "spank_sublet.so").exists() and (etc / "job_submit.lua").exists()
    wait_until(lambda: not cluster.call("squeue", "-h").stdout.strip(), "the jobs of the page have ended")
    output = "".join(path.read_text() for path in ROOT.glob("slurm-*.out"))
    for path in ROOT.glob("slurm-*.out"):
        path.unlink()
    assert "right:" in output or "filled" in output, output
