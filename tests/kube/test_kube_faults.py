# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: agent, daemon and kubelet end and come back, in any order."""
import os
import signal
import subprocess

import grpc
import pytest

from tests.support.kubelet import Pod
from tests.support.sublet import GIB, MIB, wait_until


def load(gib):
    return ["simgpu-load", "--alloc", f"{int(gib * 1024)}MiB", "--seconds", "600"]


def registered_again(node, before):
    wait_until(lambda: node.kubelet.registered > before and node.kubelet.devices, "the plugin is registered again")


@pytest.fixture
def running(node):
    """A node with a pod that uses its memory."""
    pod = Pod("train", 4)
    program = node.kubelet.run(pod, *load(1))
    wait_until(lambda: node.lease(pod)["used_bytes"] > GIB, "the pod uses its memory")
    return node, pod, program


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_harms_no_pod_and_finds_all_again(running, how):
    node, pod, program = running
    lease, units = node.lease(pod), len(node.kubelet.healthy())
    node.agent.send_signal(how)
    assert node.agent.wait(30) == (-how if how == signal.SIGKILL else 0)
    assert program.poll() is None and node.lease(pod)["id"] == lease["id"]
    node.start()
    assert len(node.kubelet.healthy()) == units
    node.kubelet.start_container(pod)  # the container was restarted meanwhile
    assert node.lease(pod)["id"] == lease["id"], "the same lease"


def test_a_kubelet_that_restarts_is_told_of_the_plugin_again(running):
    node, pod, program = running
    before = node.kubelet.registered
    node.kubelet.restart()
    registered_again(node, before)
    assert program.poll() is None
    node.kubelet.run(Pod("second", 1), "sleep", "600")


def test_an_agent_that_comes_before_the_kubelet_waits_for_it(start_node):
    node = start_node("1x4GiB", agent=False)
    node.kubelet.stop()
    for socket in (node.kubelet.dir / "device-plugins").iterdir():
        socket.unlink()
    node.start(wait=False)
    wait_until(lambda: "takes no registration" in node.text(), "the agent says what it waits for")
    node.kubelet.start()
    registered_again(node, 0)


def test_a_daemon_that_restarts_knows_the_leases_of_pods(running):
    node, pod, program = running
    lease, units = node.lease(pod), set(node.kubelet.healthy())
    node.daemon.kill()
    assert set(node.kubelet.healthy()) == units, "no card is lost because the daemon is away"
    second = node.kubelet.admit(Pod("second", 1))  # a refused admission would end the pod
    node.kubelet.make_sandbox(second)
    with pytest.raises(grpc.RpcError, match="daemon"):
        node.kubelet.start_container(second)
    node.daemon.restart()
    node.kubelet.started(second)
    assert program.poll() is None and node.lease(pod)["id"] == lease["id"]
    node.kubelet.run(Pod("third", 1), "sleep", "600")


def test_an_agent_that_comes_before_the_daemon_waits_for_it(start_node):
    node = start_node("1x4GiB", agent=False)
    node.daemon.kill()
    node.start(wait=False)
    wait_until(lambda: "warn" in node.text(), "the agent says what it waits for")
    node.daemon.restart()
    registered_again(node, 0)


def test_the_second_agent_of_a_node_waits_for_the_first(node):
    with open(node.log, "ab") as log:
        second = node.daemon.spawn(*node.command(), stdout=log, stderr=log)
    wait_until(lambda: "another sublet-kube runs on this node" in node.text(), "the second agent waits")
    before = node.kubelet.registered
    node.agent.terminate()
    assert node.agent.wait(30) == 0
    registered_again(node, before)
    node.agent = second


def test_an_agent_that_cannot_open_its_lock_says_so_and_ends(start_node):
    node = start_node("1x4GiB", agent=False)
    (node.state_dir / "lock").mkdir(parents=True)
    done = subprocess.run(list(map(str, node.command())), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "kube/lock: Is a directory" in done.stderr, done


def test_a_container_restarts_while_the_state_cannot_be_written(running):
    node, pod, _ = running
    lease = node.lease(pod)
    directory = next(mount.host_path for mount in pod.handouts[0].mounts if mount.container_path == "/run/sublet/lease")
    os.makedirs(os.path.join(directory, "state.new", "x"))  # in the way, as a full disk is
    node.kubelet.start_container(pod)
    assert node.lease(pod)["id"] == lease["id"]
    wait_until(lambda: "state' cannot be written" in node.text(), "the agent says so")


def test_a_pod_that_is_deleted_while_it_is_paused(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    node.api.add_class("urgent", 100000)
    first, second = Pod("train", 6), Pod("chat", 5, priorityClassName="urgent")
    node.kubelet.run(first, *load(2))
    wait_until(lambda: node.lease(first)["used_bytes"] > 2 * GIB, "the first pod uses its memory")
    node.kubelet.run(second, *load(2))
    assert node.lease(first)["state"] == "paused"
    node.kubelet.remove(first)
    wait_until(lambda: [lease["consumer"] for lease in node.daemon.leases()] == ["chat"], "its lease ends")
    wait_until(lambda: node.daemon.get("/v1/ledger")["parked_bytes"] == 0, "nothing of it is parked")


@pytest.mark.parametrize("groups, form", [
    ("v2", "kubepods/pod{uid}"),
    ("v1", "kubepods/besteffort/pod{uid}"),
    ("memory", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice")])
def test_groups_of_both_versions_and_both_drivers(start_node, groups, form):
    node = start_node("1x4GiB", groups=groups, agent=False)
    if ".slice" in form:  # the slices of a kubelet whose root is a slice begin with its name
        (node.groups.top / "node.slice").mkdir()
        form = "node.slice/" + "/".join(f"node-{part}" for part in form.split("/"))
        node.flags = ("--cgroup-root", f"/{node.groups.top.name}/node.slice")
    node.start()
    pod = node.kubelet.admit(Pod("train", 2))
    node.kubelet.make_sandbox(pod, form)
    node.kubelet.start_container(pod)
    lease, = node.daemon.leases()
    assert lease["owner"]["cgroup"] == str(pod.group) and lease["state"] == "active"


def test_units_near_the_longest_message_arrive_and_smaller_ones_are_refused(start_node):
    node = start_node("1x240GiB", "--unit", "4Mi", agent=False)
    resource = "sublet.dev/vram-4mi"
    node.kubelet.resource = resource
    node.start()
    wait_until(lambda: len(node.kubelet.healthy()) > 60_000, "all units arrive in one message")
    node.kill()
    node.flags = ("--unit", "1Mi")
    node.start(wait=False)
    wait_until(lambda: "choose --unit" in node.text(), "the agent refuses")
    assert "larger than a message of the kubelet may be" in node.text()
    slices = "/apis/resource.k8s.io/v1/resourceslices/n1-vram.sublet.dev"
    wait_until(lambda: slices in node.api.objects, "the other door is open")
    assert node.agent.poll() is None and node.kubelet.registered == 1


def test_flags_that_are_wrong_are_refused_before_anything_starts(start_node):
    node = start_node("1x4GiB", agent=False)
    for flags, word in ((["--unit", "0.5Mi"], "--unit"), (["--unit", "x"], "--unit"),
                        (["--overcommit", "0"], "--overcommit"), (["--doors", "window"], "--doors"),
                        (["--log-level", "loud"], "--log-level"), (["--api-server", "http://api.example:80"], "--api-server"), (["--node-name", ""], "NODE_NAME"),
                        (["--no-such-flag"], "no-such-flag")):
        done = subprocess.run(list(map(str, node.command(*flags))), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and word in done.stderr + done.stdout, (flags, done)


def test_containers_of_a_pod_share_its_lease(node):
    pod = Pod("pair", [2, 3])
    node.kubelet.admit(pod)
    node.kubelet.make_sandbox(pod)
    for number in (0, 1):
        node.kubelet.start_container(pod, number)
    assert node.lease(pod)["vram_bytes"] == 5 * 512 * MIB


def test_pods_are_put_on_one_card_if_one_has_enough_units(start_node):
    node = start_node("2x4GiB")
    cards = {card["uuid"] for card in node.daemon.get("/v1/devices")["devices"]}
    seen = set()
    for name in ("a", "b"):
        pod = Pod(name, 5)
        node.kubelet.run(pod, "sleep", "600")
        handed = pod.handouts[0].envs["CUDA_VISIBLE_DEVICES"]
        assert node.lease(pod)["devices"] == [handed]
        seen.add(handed)
    assert seen == cards
    spread = Pod("c", 3)  # no card has so many left, and the node has
    node.kubelet.admit(spread)
    node.kubelet.make_sandbox(spread)
    with pytest.raises(grpc.RpcError, match="waits"):
        node.kubelet.start_container(spread)
    assert node.lease(spread)["state"] == "queued"


def test_more_units_than_a_card_has_are_refused_with_the_numbers(start_node):
    node = start_node("1x4GiB", "--overcommit", "3")
    with pytest.raises(grpc.RpcError, match="a lease on gpu0 is at most"):
        node.kubelet.admit(Pod("large", 12))


def test_a_pod_that_the_kubelet_does_not_list_yet_is_asked_about_again(node):
    pod = Pod("train", 2)
    node.kubelet.admit(pod)
    node.kubelet.make_sandbox(pod)
    node.kubelet.pods.remove(pod)
    with pytest.raises(grpc.RpcError, match="lists no pod"):
        node.kubelet.start_container(pod)
    node.kubelet.pods.append(pod)
    node.kubelet.start_container(pod)
    assert node.lease(pod)["state"] == "active"


def test_units_of_a_card_out_of_service_are_unhealthy(start_node):
    node = start_node("2x4GiB")
    units = len(node.kubelet.healthy())
    pod = Pod("train", 2)
    node.kubelet.run(pod, "sleep", "600")
    node.daemon.cli("gpu", "cordon", "gpu0", "--reason", "repair", check=0)
    wait_until(lambda: len(node.kubelet.healthy()) == units / 2, "the kubelet is told")
    card, = {id.split("::")[0] for id in node.kubelet.healthy()}
    wait_until(lambda: [device["attributes"]["uuid"]["string"] for device in node.api.objects[
        "/apis/resource.k8s.io/v1/resourceslices/n1-vram.sublet.dev"]["spec"]["devices"]] == [card], "so is the slice")
    node.daemon.cli("gpu", "uncordon", "gpu0", check=0)
    wait_until(lambda: len(node.kubelet.healthy()) == units, "the card is back")
    assert node.lease(pod)["state"] == "active"


def test_a_lease_belongs_to_root_whatever_user_the_pod_runs_as(node):
    pod = Pod("train", 2, securityContext={"runAsUser": 54321})
    node.kubelet.run(pod, "sleep", "600")
    assert node.lease(pod)["uid"] == 0


def test_a_pod_of_another_node_is_refused(node):
    pod = Pod("train", 2, nodeName="n2")
    node.kubelet.admit(pod)
    node.kubelet.make_sandbox(pod)
    with pytest.raises(grpc.RpcError, match="is on node 'n2' and not on n1"):
        node.kubelet.start_container(pod)


@pytest.mark.parametrize("annotations, meant", [({"sublet.dev/tier": "bach"}, "batch"),
                                                ({"sublet.dev/pausble": "no"}, "pausable")])
def test_a_pod_with_a_wrong_annotation_is_told_so(node, annotations, meant):
    pod = Pod("train", 2, annotations=annotations)
    node.kubelet.admit(pod)
    node.kubelet.make_sandbox(pod)
    with pytest.raises(grpc.RpcError, match=f"did you mean '{meant}'"):
        node.kubelet.start_container(pod)
