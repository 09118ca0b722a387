# SPDX-License-Identifier: Apache-2.0
"""Pods whose containers preload the interposer, and programs in them that it does not reach."""
import pytest

from tests.support.kube import SYSTEM
from tests.support.kube_sublet import agents, install, pod, until_units
from tests.support.sublet import BUILD, wait_until

LIBRARY = BUILD / "lib/sublet/libsublet-cuda.so"
OWN = "/usr/lib/simgpu/libnvidia-ml.so.1"


def settled(cluster):
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "daemonset/sublet-kube", "--timeout=2m")
    # The next agent is Ready while it waits for the end of the last one.
    wait_until(lambda: len(agents(cluster)) == 1, "one agent is left")
    name = agents(cluster)[0]["metadata"]["name"]
    wait_until(lambda: "the kubelet knows" in cluster.log_of(name, SYSTEM), "it has registered")
    until_units(cluster)


@pytest.fixture(name="interposed")
def interposed_fixture(sublet):
    if not LIBRARY.exists():
        pytest.skip("this build has no libsublet-cuda.so")
    install(sublet, interposer=LIBRARY)
    settled(sublet)
    yield sublet
    install(sublet)
    settled(sublet)


def script(name, text):
    """Returns a pod of 256 MiB that runs the script, with a library of its own in LD_PRELOAD."""
    made = pod(name, units=4)
    container = made["spec"]["containers"][0]
    container["command"][-1] = text
    container["env"] = [{"name": "LD_PRELOAD", "value": OWN}]
    return made


def uncontrolled(cluster, name):
    return ((cluster.lease_of(name) or {}).get("interposer") or {}).get("uncontrolled")


TOO_MUCH = "simgpu-load --alloc 512MiB --seconds 1 && echo exceeded; "


def test_a_container_sees_the_limit_of_its_lease(interposed):
    interposed.apply(script("limited", TOO_MUCH + "simgpu-load --alloc 128MiB --seconds 600 & work=$!; "
                                       "until grep -q simgpu /proc/$work/maps; do :; done; "
                                       "grep -o 'lib[a-z-]*.so[.0-9]*' /proc/$work/maps; echo listed; wait"))
    wait_until(lambda: (said := interposed.log_of("limited")) and "filled 128 MiB" in said and "listed" in said,
               "what fits is filled", 90)
    said = interposed.log_of("limited")
    assert "exceeded" not in said and "libsublet-cuda.so" in said, said
    assert "libnvidia-ml.so.1" in said, "the library of the image's own LD_PRELOAD stays"
    wait_until(lambda: (interposed.lease_of("limited")["interposer"] or {}).get("processes") == 1, "it is told")


def test_a_program_of_another_c_library_runs_and_is_told(interposed):
    # The loader of musl reads no /etc/ld.so.preload, and this one does not either.
    interposed.apply(script("other", TOO_MUCH + "simgpu-load --alloc 32MiB --seconds 600 & "
                                     "exec /usr/bin/other-loader /usr/bin/simgpu-load --alloc 96MiB --seconds 600"))
    found = wait_until(lambda: uncontrolled(interposed, "other"), "the program without a limit is told", 90)
    assert "never_asked" in str(found), found
    assert interposed.phase("other") == "Running"
