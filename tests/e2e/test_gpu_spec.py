# SPDX-License-Identifier: Apache-2.0
"""Leases that describe their cards (--gpu-spec), on a machine whose cards differ."""
import json

import pytest

from tests.support.keeping import ended, queued
from tests.support.parking import CONFIG, lease_of
from tests.support.sublet import GIB, wait_until

SIM = "1x2GiB,Simulated T4,cc=7.5+1x4GiB,Simulated A100-SXM4,cc=8.0,nvlinks=2+1x4GiB,Simulated H100 PCIe,cc=9.0"
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


@pytest.fixture
def three(start_daemon):
    daemon = start_daemon(SIM, config=CONFIG)
    wait_until(lambda: all(row["condition"]["compute_capability"] for row in daemon.get("/v1/devices")["devices"]),
               "all cards are described")
    return daemon


def names(daemon, lease):
    """Returns the names of its devices, "gpu0"."""
    ids = {row["uuid"]: row["id"] for row in daemon.get("/v1/devices")["devices"]}
    return sorted(ids[uuid] for uuid in lease["devices"])


@pytest.mark.parametrize("spec, devices", [
    ("name=T4", ["gpu0"]), ("name=A100*", ["gpu1"]), ("cc>=9.0", ["gpu2"]), ("cc<8", ["gpu0"]),
    ("link=nvlink", ["gpu1"]),
    ("memory>=4GiB,link=pcie", ["gpu2"]), ("name=*100*,cc>=8.0,cc<9", ["gpu1"])])
def test_a_lease_gets_a_card_like_its_description(three, spec, devices):
    lease = three.api().post("/v1/leases", dict(ASK, gpu_spec=spec))
    assert lease["state"] == "active" and names(three, lease) == devices, lease
    done = three.cli("run", "--vram", "512MiB", "--gpu-spec", spec, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.returncode == 0 and done.stdout.strip() == lease["devices"][0]


def test_several_cards_and_whole_cards_are_like_it(three):
    both = three.api().post("/v1/leases", dict(ASK, gpu_spec="cc>=8.0", devices=2))
    assert names(three, both) == ["gpu1", "gpu2"]
    both = three.cli("hold", "--gpu-spec", "cc>=8.0", "--gpus", "3", "--vram", "1GiB")
    assert both.returncode != 0 and "the lease needs 3 devices, and 2 meet gpu_spec 'cc>=8.0'" in both.stderr
    whole = three.cli("run", "--vram", "all", "--gpu-spec", "name=T4", "--dry-run", "--", "true", check=0).stdout
    assert "gpu0" in whole, whole


def test_a_description_that_no_card_meets_is_refused_at_once(three):
    refused = three.api().post("/v1/leases", dict(ASK, gpu_spec="name=B200*"))
    assert (refused.status, refused["code"]) == (404, "NotFound"), refused
    assert refused["detail"] == "no device meets gpu_spec 'name=B200*'"
    for text in ("gpu0 (Simulated T4, 2.0 GiB, cc 7.5, pcie)", "gpu1 (Simulated A100-SXM4, 4.0 GiB, cc 8.0, nvlink)"):
        assert text in refused["hint"], refused
    done = three.cli("run", "--vram", "1GiB", "--gpu-spec", "memory>=40GiB", "--", "true")
    assert done.returncode != 0 and "no device meets gpu_spec" in done.stderr and "gpu2 (" in done.stderr
    named = three.api().post("/v1/leases", dict(ASK, device="gpu0", gpu_spec="cc>=8.0"))
    assert named["detail"] == "no device of the devices that the request names meets gpu_spec 'cc>=8.0'"
    large = three.api().post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, gpu_spec="name=T4"))
    assert (large.status, large["code"]) == (422, "TooLarge"), large


def test_a_description_that_only_a_cordoned_card_meets_waits(three):
    three.cli("gpu", "cordon", "gpu1", "--reason", "new fan", check=0)
    run = three.spawn("sublet", "run", "--vram", "1GiB", "--gpu-spec", "name=A100*", "--tag", "picky", "--", "true")
    queued(three, "picky")
    other = three.api().post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    assert names(three, other) == ["gpu2"], "a later lease goes to another card in the same queue"
    assert "gpu1 is out of service (cordoned by root: new fan)" in three.cli("why", "picky", check=0).stdout
    assert lease_of(three, "picky")["state"] == "queued"
    three.cli("gpu", "uncordon", "gpu1", check=0)
    assert run.wait(60) == 0
    ended(three, "picky")


@pytest.mark.parametrize("spec, says", [
    ("memroy>=40GiB", "unknown field 'memroy'"), ("memory>=lots", "no size for memory"),
    ("cc>=eight", "compute capability"), ("name", "no operator after name"), ("link=infiniband", "nvlink or pcie")])
def test_a_wrong_description_names_its_part(three, spec, says):
    refused = three.api().post("/v1/leases", dict(ASK, gpu_spec=spec))
    assert (refused.status, refused["code"]) == (400, "BadRequest") and says in refused["detail"], refused
    done = three.cli("run", "--gpu-spec", spec, "--", "true")
    assert done.returncode == 125 or done.returncode == 2
    assert says in done.stderr


def test_sessions_and_supervised_programs_describe_their_cards(three):
    three.cli("session", "open", "--vram", "1GiB", "--gpu-spec", "name=A100*", "--", "sleep", "600", check=0)
    shown = wait_until(lambda: (now := json.loads(three.cli("session", "show", "session-1", "--json").stdout))["state"]
                       == "active" and now, "it is active")
    assert names(three, lease_of(three, shown["lease"])) == ["gpu1"]
    three.cli("run", "--detach", "--name", "served", "--vram", "1GiB", "--gpu-spec", "cc=9.0", "--", "sleep", "600",
              check=0)
    program = wait_until(lambda: [row for row in three.get("/v1/leases")["leases"] if row["consumer"] == "served" and
                                  row["state"] == "active"], "it runs")
    assert names(three, program[0]) == ["gpu2"]
