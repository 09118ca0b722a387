# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/python.md for PyTorch and IPython. PyTorch computes on the CPU."""
import importlib.util
import json

import pytest

from tests.support.python_place import snippets
from tests.support.sublet import wait_until

TORCH = snippets("python", only="torch")
CELLS = snippets("ipython")
# Cells run as in IPython; then this program waits for a line, runs the last cell and ends.
RUN_CELLS = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from sublet import _torch_move
_torch_move.is_on_card = lambda device: True  # host memory takes the place of the card
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
def run(text):
    shell.run_cell(text).raise_error()
cells, last = json.loads(sys.argv[1])
for cell in cells:
    run(cell)
print("ran", flush=True)
sys.stdin.readline()
run(last)
"""
LAST = """
assert torch.equal(model.weight, before) and aside.offloaded_bytes == 0
print("intact", flush=True)
"""


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: apt-get install python3-{module.lower()}")


def test_there_are_snippets():
    assert len(TORCH) >= 2 and len(CELLS) >= 3


@pytest.mark.parametrize("number", range(len(TORCH)))
def test_a_snippet_for_pytorch_runs(start_place, number):
    need("torch")
    place = start_place("1x24GiB")
    child = place.python(TORCH[number])
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and "Warning" not in err, f"{TORCH[number]}\n{out}\n{err}"
    assert place.leases() == []


def start_cells(place, cells, last, tmp_path):
    return place.python(RUN_CELLS, json.dumps([cells, last]), more={"IPYTHONDIR": str(tmp_path)})


@pytest.mark.parametrize("number", [n for n in range(len(CELLS)) if "torch" not in CELLS[n]])
def test_cells_of_the_document_run(start_place, tmp_path, number):
    need("IPython")
    place, text = start_place("1x24GiB"), CELLS[number]
    cells = [text] if text.startswith("%%") else text.splitlines()
    child = start_cells(place, ["%load_ext sublet.jupyter", *cells], "%sublet", tmp_path)
    out, err = child.communicate("\n", timeout=120)
    assert child.returncode == 0, f"{text}\n{out}\n{err}"
    assert "lease-1: 8.0 GiB on gpu0" in out, out


def test_the_notebook_of_the_document_steps_aside(start_place, tmp_path):
    """Its user has started no cell when the interactive program comes."""
    need("IPython", "torch")
    [text] = [cell for cell in CELLS if "torch" in cell]
    assert len(text.splitlines()) == 5
    place = start_place("1x4GiB")
    cells = [*text.replace('"cuda"', '"cpu"').splitlines(), "before = model.weight.detach().clone()"]
    child = start_cells(place, cells, LAST, tmp_path)
    while (line := child.stdout.readline()) != "ran\n":
        assert line, child.communicate()
    urgent = place.daemon.spawn("sublet", "run", "--vram", "3GiB", "--tier", "interactive", "--tag", "urgent", "--",
                                "simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: place.leases("paused") and place.get("/v1/leases/urgent")["used_bytes"] > 0, "it stepped aside")
    assert [lease["id"] for lease in place.leases("paused")] == ["lease-1"]
    place.daemon.cli("stop", "urgent", check=0)
    assert urgent.wait(60) == 143
    out, err = child.communicate("\n", timeout=60)  # the cell waits for the bytes
    assert child.returncode == 0 and "intact\n" in out, out + err
