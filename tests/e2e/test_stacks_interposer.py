# SPDX-License-Identifier: Apache-2.0
"""`interposer` and `share` in x-sublet: the mounts of the library, and whose folder the worker takes."""
import contextlib
import json
import socket
import subprocess
import sys

import pytest

from tests.e2e.test_stacks_worker import OVERLAY, make_place
from tests.support.interposer import LIBRARY
from tests.support.stacks import Stacks, service
from tests.support.stacks_worker import StacksWorker

LIST = "/etc/ld.so.preload"


@pytest.fixture(name="stacks")
def stacks_fixture(start_daemon, tmp_path):
    with Stacks(start_daemon, tmp_path) as place:
        yield place


@pytest.fixture(name="place")
def place_fixture(tmp_path):
    yield from make_place(tmp_path, "docker")


def overlay_of(compose):
    return json.loads(compose.calls("up")[-1]["files"][1])["services"]


def targets(spec):
    """Returns the mounts of a service: sources by target."""
    found = {}
    for text in spec.get("volumes", []):
        source, target, mode = text.split(":")
        assert mode == "ro"
        found[target] = source
    return found


def test_containers_of_a_stack_get_the_library_and_their_lease_the_share(stacks):
    stacks.write("chat", vram="1GiB", interposer=True, share=30)
    stacks.write("image", vram="1GiB")
    stacks.start()
    chat = stacks.ready("chat")
    spec = overlay_of(stacks.compose)["api"]
    mounts = targets(spec)
    assert mounts["/run/sublet/libsublet-cuda.so"] == str(LIBRARY)
    assert mounts["/run/sublet/credit"] == f"{stacks.daemon.dir}/credit"
    with open(mounts[LIST], encoding="ascii") as listed:
        assert listed.read() == "/run/sublet/libsublet-cuda.so\n"
    assert spec["environment"]["SUBLET_CREDIT"] == "/run/sublet/credit/credit.sock"
    assert "LD_PRELOAD" not in spec["environment"]
    assert stacks.daemon.get(f"/v1/leases/{chat['lease']}")["share"] == 30
    assert "30 % of the computing time" in stacks.daemon.cli("why", chat["lease"], check=0).stdout
    shown = stacks.daemon.cli("stack", "status", "chat", check=0).stdout
    assert "yes, 30 % of the computing time" in shown, shown
    stacks.ready("image")
    plain = overlay_of(stacks.compose)["api"]
    assert "volumes" not in plain and "SUBLET_CREDIT" not in plain["environment"]
    assert [lease["share"] for lease in stacks.daemon.leases() if lease["tag"] == "stack-image"] == [None]


def test_only_services_that_ask_for_a_gpu_get_the_library(stacks):
    asks = {"deploy": {"resources": {"reservations": {"devices": [{"driver": "nvidia", "capabilities": ["gpu"]}]}}}}
    stacks.write("chat", {"api": service(**asks), "web": {"image": "busybox"}}, vram="1GiB", interposer=True)
    stacks.start()
    stacks.ready("chat")
    services = overlay_of(stacks.compose)
    assert set(targets(services["api"])) == {LIST, "/run/sublet/credit", "/run/sublet/libsublet-cuda.so"}
    assert "volumes" not in services["web"] and "SUBLET_CREDIT" not in services["web"]["environment"]


@pytest.mark.parametrize("services, extension, reason", [
    (None, {"share": 30}, "x-sublet of stack chat has share without interposer"),
    (None, {"interposer": "yes"}, 'x-sublet of stack chat has interposer: "yes"'),
    ({"api": service(volumes=[f"./list:{LIST}:ro"])}, {"interposer": True},
     f"service api mounts {LIST} itself, where the interposer needs {LIST}")])
def test_a_stack_that_cannot_have_the_interposer_is_refused_with_the_reason(stacks, services, extension, reason):
    stacks.write("chat", services, vram="1GiB", **extension)
    stacks.start()
    refused = stacks.acquire("chat")
    assert refused.status == 400 and reason in refused["detail"], refused
    assert not stacks.compose.calls("up") and not stacks.daemon.leases()


@contextlib.contextmanager
def folder(place, name="credit", listens=True):
    """A folder with the socket of a daemon, which is this process."""
    path = place.directory / name
    path.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path / "credit.sock"))
        if listens:
            listener.listen()
        yield path


def up(place, stack, credit, services=("web",), overlay=OVERLAY):
    reply = place.worker.ask("up", {**StacksWorker.start_of(stack, overlay), "credit": str(credit),
                                    "interposed": list(services)})
    return reply.get("error", {}).get("detail", "")


def test_the_worker_mounts_the_folder_of_its_own_daemon_and_nothing_else(place):
    stack = place.one()
    with folder(place) as own:
        made_up = json.dumps({"services": {"web": {"volumes": [f"{own}:/run/sublet/credit:ro"]}}})
        assert "the overlay sets 'volumes' of service 'web'" in up(place, stack, own, overlay=made_up)
        assert "the overlay sets 'volumes' of service 'web'" in up(place, stack, "", (), made_up)
        assert "the unknown service 'other'" in up(place, stack, own, ["other"])
        for wrong in ("/", "/etc", place.directory, own / "credit.sock"):
            assert f"{wrong} is not the folder of the daemon's socket" in up(place, stack, wrong), wrong
        assert "is not an absolute path" in up(place, stack, "")
        (own / "more").touch()
        assert "it has the entry more" in up(place, stack, own)
        (own / "more").unlink()
        own.chmod(0o777)
        assert f"{own} can be written by everybody" in up(place, stack, own)
        own.chmod(0o755)
        assert not place.compose.calls("up")
        assert up(place, stack, own) == ""
        assert set(targets(overlay_of(place.compose)["web"])) == {LIST, "/run/sublet/credit",
                                                                  "/run/sublet/libsublet-cuda.so"}


def test_a_socket_on_which_another_process_listens_is_refused(place):
    stack = place.one()
    with folder(place, listens=False) as silent:
        assert "no daemon answers at" in up(place, stack, silent)
    other = place.directory / "other"
    other.mkdir()
    code = (f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind('{other}/credit.sock');"
            "s.listen(); print(flush=True); input()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        listener.stdout.readline()
        assert f"process {listener.pid} of uid" in up(place, stack, other)
        listener.communicate(b"\n")
    assert not place.compose.calls("up")
