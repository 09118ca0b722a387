# SPDX-License-Identifier: Apache-2.0
"""The cluster itself: it runs pods, and nothing of it stays behind on the machine."""
from tests.support.kube_sublet import pod


def test_a_pod_runs_and_ends(cluster):
    made = pod("plain")
    made["spec"]["containers"][0].update(imagePullPolicy="Never", command=["/bin/echo", "hello"])
    cluster.apply(made)
    cluster.until_phase("plain", "Succeeded")
    assert "hello" in cluster.kubectl("logs", "plain").stdout


def test_control_groups_of_a_pod_name_its_uid(cluster):
    made = pod("held")
    made["spec"]["containers"][0].update(imagePullPolicy="Never", command=["/bin/sleep", "600"])
    cluster.apply(made)
    cluster.until_phase("held", "Running")
    assert cluster.processes_of(cluster.pod("held")["metadata"]["uid"])
