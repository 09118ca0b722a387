# SPDX-License-Identifier: Apache-2.0
"""The image of sublet-kube by its Dockerfile, in a real Docker Engine without a registry, where debian:12-slim is a new
system by debootstrap. The image has the files of tools/kube_image.py.
"""
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile

import pytest

from tests.package.conftest import ROOT, call
from tests.support.real_engine import RealEngine, need

pytestmark = pytest.mark.nightly

MAKE = """
set -euo pipefail
say() { printf '%s\\n' "$*"; }
unable() { say "skipped: $1"; exit 77; }
source tools/new_system.sh
need_debootstrap
make_system "$1/root"
tar -C "$1/root" -cf "$1/base.tar" .
rm -rf --one-file-system "$1/root"
"""


def docker(engine, *words):
    return subprocess.run(["docker", "--host", engine.url, *words], check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, env={**os.environ, "DOCKER_BUILDKIT": "0"}).stdout


@pytest.fixture(name="engine")
def engine_fixture(tmp_path):
    need()
    if not shutil.which("docker"):
        pytest.skip("the program docker is not installed (docker.io, docker-cli)")
    call("bash", "-c", MAKE, "make", tmp_path)
    engine = RealEngine().start()
    try:
        docker(engine, "import", tmp_path / "base.tar", "debian:12-slim")
        yield engine
    finally:
        engine.close()


def described(text):
    """Returns the files of an image with their sums, and its start command and environment."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(text)) as image:
        manifest, = json.load(image.extractfile("manifest.json"))
        config = json.load(image.extractfile(manifest["Config"]))["config"]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                files.update({each.name: hashlib.sha256(layer.extractfile(each).read()).hexdigest()
                              for each in layer if each.isfile()})
    return files, {name: config.get(name) for name in ("Entrypoint", "Cmd", "Env")}


def test_the_dockerfile_makes_the_image_of_the_tool(release, engine, tmp_path):
    docker(engine, "build", "--network=host", "--tag", "sublet-kube", "--file",
           ROOT / "packaging/kubernetes/Dockerfile", release)
    call(ROOT / "tools/kube_image.py", "--packages", release, "--out", tmp_path / "by-hand.tar")
    files, config = described(docker(engine, "save", "sublet-kube"))
    by_hand, its_config = described((tmp_path / "by-hand.tar").read_bytes())
    assert sorted(files) == sorted(by_hand)
    assert config == its_config
    for name in ("usr/bin/sublet", "usr/bin/sublet-kube"):
        assert files[name] == by_hand[name], name

    run = ("run", "--rm", "--network=none", "--read-only")
    for program in ("sublet", "sublet-kube"):
        said = docker(engine, *run, f"--entrypoint=/usr/bin/{program}", "sublet-kube", "--version").decode()
        assert said.startswith(f"{program} "), said
    assert b"--kubelet-dir" in docker(engine, *run, "sublet-kube", "--help")
