# SPDX-License-Identifier: Apache-2.0
"""Tests on a real Kubernetes cluster of one node, which `./dev test cluster` runs.

All tests share the cluster. `./dev cluster-build` makes its programs; without them each test skips and says so.
"""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support import kube, kube_sublet  # noqa: E402


@pytest.fixture(name="bare", scope="session")
def bare_fixture():
    """The cluster, in which nothing of Sublet runs but the daemon."""
    if why := kube.missing():
        pytest.skip(why)
    made = kube.Kubernetes()
    yield made
    made.close()


@pytest.fixture(name="cluster")
def cluster_fixture(bare, request):
    yield bare
    if getattr(request.node, "call_failed", False):
        print(bare.all_logs())
    bare.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.call_failed = outcome.get_result().failed


@pytest.fixture(name="charted", scope="session")
def charted_fixture(bare):
    """The cluster with the chart installed, whether or not this build has an agent."""
    kube_sublet.install(bare)
    return bare


@pytest.fixture(name="sublet")
def sublet_fixture(charted, cluster):
    if not kube_sublet.has_agent():
        pytest.skip("this build has no sublet-kube: gRPC and protobuf are missing")
    kube_sublet.until_units(charted)
    yield cluster
