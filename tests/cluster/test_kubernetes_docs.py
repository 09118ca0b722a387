# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/cluster/kubernetes-install.md and kubernetes.md, one block after the other, in a cluster without
Sublet. The first page's upgrade and removal come last.
"""
import re

import pytest

from tests.support.contract import ROOT
from tests.support.kube import SYSTEM
from tests.support.kube_sublet import (MANIFESTS, agents, has_agent, install, until_policies, until_units,
                                       values)
from tests.support.sublet import BIN, wait_until

PAGES = ROOT / "docs/cluster"
RESOURCE = "sublet.dev/vram-512mi"


def uninstall(cluster):
    """Removes the chart and the manifests, and waits until the kubelet has no units."""
    cluster.call("helm", "uninstall", "sublet", "--namespace", SYSTEM, "--ignore-not-found", "--wait")
    cluster.kubectl("delete", "-f", MANIFESTS, "--ignore-not-found")
    wait_until(lambda: not cluster.api.get(f"/api/v1/namespaces/{SYSTEM}"), "its namespace is gone")


def adapted(cluster, block):
    """Returns the commands with what differs here: the API server is reached by its port, and paths are the test's."""
    flags = [flag for flag in values(cluster) if "apiServer" in flag]
    block = re.sub(r"^helm install .*", lambda found: found[0] + " " + " ".join(flags), block, flags=re.M)
    if "manifests/sublet.yaml" in block:
        block += (f"kubectl -n {SYSTEM} set env daemonset/sublet-kube KUBERNETES_SERVICE_HOST=127.0.0.1 "
                  f"KUBERNETES_SERVICE_PORT={cluster.ports['api']}\n")
    block = block.replace("kube_image.py --out ", f"kube_image.py --bin {BIN} --out ")
    block = block.replace("sublet-kube.tar", f"{cluster.dir}/sublet-kube.tar")
    return block.replace("/usr/local/bin", str(cluster.dir))


def run(cluster, block):
    return cluster.call("env", f"CONTAINERD_ADDRESS={cluster.dir}/containerd.sock", f"PATH={cluster.env()['PATH']}",
                        "bash", "-ec", f"cd {ROOT}\n{adapted(cluster, block)}", timeout=180).stdout


@pytest.fixture(name="empty")
def empty_fixture(charted, cluster):
    """The cluster without Sublet; the end installs it again for other tests."""
    if not has_agent():
        pytest.skip("this build has no sublet-kube")
    uninstall(cluster)
    yield cluster
    cluster.kubectl("delete", "pod", "gpu-smoke-test", "--now", "--ignore-not-found")
    cluster.kubectl("delete", "quota", "vram", "--ignore-not-found")
    cluster.kubectl("label", "namespace", "default", "sublet.dev/weight-")
    uninstall(cluster)
    install(cluster)
    until_units(cluster)


def blocks_of(text):
    return re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)


def test_every_command_of_the_pages_works(empty):
    first, upgrade, later = (PAGES / "kubernetes-install.md").read_text().partition("## Upgrade")
    blocks = blocks_of(first) + blocks_of((PAGES / "kubernetes.md").read_text())
    assert len(blocks) >= 6, "the pages have commands"
    said = ""
    for block in blocks:
        if "manifests/sublet.yaml" in block:
            uninstall(empty)
        if "kubectl sublet" in block:  # the agent writes one condition a second
            wait_until(lambda: empty.condition(empty.pod("gpu-smoke-test"), "sublet.dev/Resident") == "True",
                       "the pod says that it has its memory")
        said += run(empty, block)
        if "helm install" in block or "manifests/sublet.yaml" in block:
            wait_until(lambda: 35 <= empty.allocatable(RESOURCE) <= 40, "10 GiB are declared twice, in units")
            until_policies(empty)
    assert "Granted" in said and "It has held 512 MiB" in said, said

    assert upgrade and len(blocks_of(later)) == 2, "upgrade and removal have commands"
    uninstall(empty)
    install(empty)
    for block in blocks_of(later):
        run(empty, block)
        if "helm upgrade" in block:
            images = {each["image"] for pod in agents(empty) for each in pod["spec"]["containers"]}
            assert "sublet-kube:next" in images, images
    assert not empty.api.get(f"/api/v1/namespaces/{SYSTEM}") and not agents(empty)
