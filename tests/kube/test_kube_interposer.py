# SPDX-License-Identifier: Apache-2.0
"""The things that containers get for the interposer, and only with the flag for it."""
import json
import stat

from tests.support.kubelet import Pod
from tests.support.kubelet_dra import Claim
from tests.support.sublet import wait_until

LIBRARY = "/usr/lib/sublet/libsublet-cuda.so"


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
