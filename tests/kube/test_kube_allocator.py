# SPDX-License-Identifier: Apache-2.0
"""The slice of a node before the allocator of kube-scheduler: the parts of cards that claims get.

The allocator is built once from Go modules that are in the module cache already (./dev test cluster brings them).
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.support.kubelet_dra import DRIVER
from tests.support.sublet import MIB, ROOT, wait_until

SOURCE = pathlib.Path(__file__).parent / "allocator"
CLASS = {"metadata": {"name": DRIVER},
         "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}}


@pytest.fixture(scope="module")
def allocator():
    """Returns the program, which is kept in .cache by its source."""
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    source = {path.name: path.read_bytes() for path in sorted(SOURCE.iterdir())}
    digest = hashlib.sha256(b"".join(source.values())).hexdigest()[:12]
    folder = ROOT / ".cache" / f"allocator-{digest}"
    program = folder / "allocator"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in source.items():
        (folder / name).write_bytes(text)
    env = {**os.environ, "GOFLAGS": "-mod=mod -modcacherw", "GOPROXY": "off", "GOSUMDB": "off", "CGO_ENABLED": "0"}
    if subprocess.run(["go", "list", "-deps", "."], cwd=folder, env=env, capture_output=True).returncode != 0:
        pytest.skip("the Go modules of kube-scheduler's allocator are not in the module cache: "
                    f"`GOFLAGS=-mod=mod go list -deps .` in {folder} brings them")
    build = ["go", "build", "-p", "1", "-trimpath", "-o", f"{program}.new", "."]
    subprocess.run(build, cwd=folder, env=env, check=True)
    pathlib.Path(f"{program}.new").rename(program)
    return program


def ask(program, node, *claims):
    """Returns the parts that each claim gets."""
    slice_ = node.api.objects[f"/apis/resource.k8s.io/v1/resourceslices/n1-{DRIVER}"]
    question = {"slice": slice_, "class": CLASS, "claims": list(claims)}
    done = subprocess.run([program], input=json.dumps(question), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def node(start_node):
    made = start_node("2x24GiB", "--overcommit", "2", "--doors", "dra", agent=False)
    made.start(wait=False)
    wait_until(lambda: f"/apis/resource.k8s.io/v1/resourceslices/n1-{DRIVER}" in made.api.objects, "the slice is there")
    return made


def test_both_capacities_hold_for_each_card(allocator, node):
    whole = node.daemon.get("/v1/devices")["devices"][0]["capacity_bytes"] // (256 * MIB) * 256
    all_of_it = {"vram": f"{whole}Mi"}
    kept = {**all_of_it, "guaranteed": f"{whole}Mi"}
    small, small_kept = {"vram": "1Gi"}, {"vram": "1Gi", "guaranteed": "1Gi"}
    answers = ask(allocator, node, kept, kept, small_kept, all_of_it, all_of_it, small)
    assert [[part["device"] for part in answer] for answer in answers] == [
        ["gpu-0"], ["gpu-1"], [], ["gpu-0"], ["gpu-1"], []]


def test_sizes_are_rounded_to_steps_and_bounded_by_a_card(allocator, node):
    answers = ask(allocator, node, {"vram": "6500Mi"}, {}, {"vram": "100Gi"}, {"vram": "2Gi", "count": 2})
    (rounded,), (usual,), too_large, both = answers
    assert rounded["consumed"] == {"vram": "6656Mi", "guaranteed": "0"}
    assert usual["consumed"] == {"vram": "1Gi", "guaranteed": "0"}
    assert too_large == []
    assert [part["consumed"]["vram"] for part in both] == ["2Gi", "2Gi"]
