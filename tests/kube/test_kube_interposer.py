# SPDX-License-Identifier: Apache-2.0
"""The things that containers get for the interposer, and only with the flag for it."""
import json
import shutil
import stat
import subprocess

import pytest

from tests.support.credit import BEGIN, GRANTED, UNKNOWN, question
from tests.support.interposer import LIBRARY as BUILT
from tests.support.kube_images import libraries_of
from tests.support.kubelet import Pod
from tests.support.kubelet_dra import Claim
from tests.support.preload import preloaded
from tests.support.sublet import wait_until

LIBRARY = "/usr/lib/sublet/libsublet-cuda.so"
# No reading between the start of a container and the question of its program.
SELDOM = '[lease]\nlinger = "1s"\n[gpu]\ninterval_idle = "1m"\ninterval_busy = "1m"\nmax_age = "5m"\n'
SAYS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void) { return puts(dlsym(RTLD_DEFAULT, "sublet_cuda_calls") ? "with the library" : "without it") < 0; }
"""


def mounts_of(pod):
    return {mount.container_path: mount for mount in pod.handouts[0].mounts}


def test_without_the_flag_nothing_is_preloaded(node):
    pod = node.kubelet.admit(Pod("train", 2))
    assert not {"/etc/ld.so.preload", "/run/sublet/credit"} & set(mounts_of(pod))
    assert not {"LD_PRELOAD", "SUBLET_CREDIT"} & set(pod.handouts[0].envs)


def test_a_container_gets_the_library_and_a_way_to_ask_for_its_limit(start_node):
    node = start_node("1x4GiB", "--interposer", LIBRARY)
    pod = node.kubelet.admit(Pod("train", 2))
    mounts = mounts_of(pod)
    assert all(mounts[path].read_only for path in ("/etc/ld.so.preload", "/run/sublet/credit"))
    assert mounts["/run/sublet/libsublet-cuda.so"].host_path == LIBRARY
    with open(mounts["/etc/ld.so.preload"].host_path) as file:
        assert file.read() == "/run/sublet/libsublet-cuda.so\n"
    assert pod.handouts[0].envs["SUBLET_CREDIT"] == "/run/sublet/credit/credit.sock"
    assert "LD_PRELOAD" not in pod.handouts[0].envs, "the image has its own"
    folder = node.daemon.dir / "credit"
    assert mounts["/run/sublet/credit"].host_path == str(folder)
    node.daemon.kill()
    node.daemon.restart()
    names = [path.name for path in folder.iterdir()]
    assert names == ["credit.sock"], "containers see no other socket"
    now, real = (path.stat() for path in (folder / "credit.sock", node.daemon.dir / "credit.sock"))
    assert stat.S_ISSOCK(now.st_mode) and now.st_ino == real.st_ino, "that of the daemon which runs"


def test_a_claim_gets_the_same_and_a_share(start_node):
    node = start_node("1x4GiB", "--interposer", LIBRARY)
    wait_until(lambda: (node.kubelet.dir / "plugins_registry/vram.sublet.dev-reg.sock").exists(), "the driver is there")
    pod = Pod("train")
    claim = Claim(node, pod, "1Gi", config=[("FromClaim", {"share": 30})])
    pod.group = node.groups.make(f"kubepods/burstable/pod{pod.uid}")
    claim.prepare()
    edits = json.loads(claim.cdi.read_text())["devices"][0]["containerEdits"]
    assert {"/etc/ld.so.preload", "/run/sublet/credit"} <= {mount["containerPath"] for mount in edits["mounts"]}
    assert "SUBLET_CREDIT=/run/sublet/credit/credit.sock" in edits["env"]
    assert node.lease(pod)["share"] == 30


def started(node, units=1):
    """Returns a pod whose container is about to start."""
    if not BUILT.exists():
        pytest.skip("this build has no libsublet-cuda.so")
    pod = node.kubelet.admit(Pod("train", units))
    node.kubelet.make_sandbox(pod)
    node.kubelet.started(pod)
    return pod


def test_a_program_that_allocates_at_once_has_the_limit_of_its_pod(start_node):
    node = start_node("1x4GiB", "--interposer", BUILT, config=SELDOM)
    pod = started(node)
    program = node.kubelet.execute(pod, "simgpu-load", "--alloc", "1GiB", "--seconds", "1",
                                   SUBLET_CREDIT=str(node.daemon.dir / "credit/credit.sock"), **preloaded(BUILT))
    said = program.communicate(timeout=60)
    assert program.returncode == 1 and "memory" in said[1], said


def test_processes_of_all_users_in_the_group_of_a_pod_have_its_limit_and_no_others(start_node):
    node = start_node("1x4GiB", "--interposer", BUILT, config=SELDOM)
    pod = started(node)
    inside = pod.group / "container0"
    inside.mkdir()
    beside = node.groups.make(f"kubepods/burstable/pod{pod.uid}0/container0")
    node.daemon.dir.chmod(0o711)

    def ask(user, group):
        return question(node.daemon.dir / "credit/credit.sock", BEGIN, user=user, group=group)
    assert [ask(user, inside) for user in (0, 54321)] == [GRANTED] * 2
    assert ask(54321, pod.group) == GRANTED
    for group in (beside, beside.parent, pod.group.parent, node.groups.top, None):
        assert [ask(user, group) for user in (0, 54321)] == [UNKNOWN] * 2, group


def test_programs_of_musl_and_static_ones_start_beside_the_list_of_libraries(start_node, tmp_path):
    if shutil.which("musl-gcc") is None:
        pytest.skip("needs musl-tools")
    node = start_node("1x4GiB", "--interposer", BUILT)
    pod = started(node)
    root = tmp_path / "image"

    def put(path, source):
        place = root / str(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
    for path in ("/etc/ld.so.preload", "/run/sublet/libsublet-cuda.so"):
        put(path, mounts_of(pod)[path].host_path)
    (tmp_path / "says.c").write_text(SAYS)
    for name, *compiler in (("gnu", "cc"), ("musl", "musl-gcc"), ("static", "musl-gcc", "-static")):
        subprocess.run([*compiler, "-o", tmp_path / name, tmp_path / "says.c"], check=True)
        put(name, tmp_path / name)
    put("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1")
    for library in {*libraries_of(tmp_path / "gnu"), *libraries_of(BUILT)}:
        put(library, library)

    def says(name):
        return subprocess.run(["chroot", root, f"/{name}"], check=True, capture_output=True, text=True).stdout
    assert says("gnu") == "with the library\n"
    assert [says(name) for name in ("musl", "static")] == ["without it\n"] * 2
