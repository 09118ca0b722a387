# SPDX-License-Identifier: Apache-2.0
"""Cards that go out of service by themselves, because they have an error (gpu.cordon_on)."""
import json

import pytest

from tests.support.keeping import queued
from tests.support.parking import CONFIG, ends_well, lease_of, quick_checkpoints
from tests.support.sublet import GIB, wait_until
from tests.e2e.test_maintenance import daemon_events, load, service

# The figure that makes the error, the reason of the cordon, and the figure of a further one.
ERRORS = {
    "ecc": ("ecc_uncorrected=2", "2 double-bit memory errors", "ecc_uncorrected=3"),
    "xid": ("xid=79", "it has fallen off the bus (Xid 79)", "xid=79"),
    "retirement": ("retirement_pending=1", "pages of its memory are to be retired", None),
    "remapping": ("remapping_pending=1", "rows of its memory are to be remapped", None),
    "failed": ("remapping_failed=1", "a row of its memory could not be remapped", None),
}


def two_cards(start_daemon, config=CONFIG):
    daemon = start_daemon("1x2GiB+1x4GiB,retirement_pending=0", config=config)
    quick_checkpoints(daemon)
    return daemon


def cordoned(daemon, why, gpu="gpu1"):
    now = wait_until(lambda: service(daemon, gpu), f"{gpu} is cordoned")
    assert (now["state"], now["by"], now["reason"], now["deadline"]) == ("cordoned", "Sublet", why, None)
    return now


def read_again(daemon, **wanted):
    """Waits for a reading of gpu1 with these figures."""
    def look():
        condition = next(row for row in daemon.get("/v1/devices")["devices"] if row["id"] == "gpu1")["condition"]
        return wanted.items() <= condition.items()
    wait_until(look, f"a reading has {wanted}")


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_cordons_its_card(start_daemon, error):
    figure, why, again = ERRORS[error]
    daemon = two_cards(start_daemon)
    run = load(daemon, "before")
    daemon.ctl("card", 1, figure)
    cordoned(daemon, why)
    assert service(daemon, "gpu0") is None
    large = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "large", "--", "true")
    queued(daemon, "large")
    told = f"gpu1 is out of service (cordoned by Sublet: {why})"
    assert told in daemon.cli("why", "large", check=0).stdout
    for words in (("status",), ("gpus",)):
        assert why in daemon.cli(*words, check=0).stdout, words
    (warning,) = [w for w in daemon.get("/v1/status")["warnings"] if w["code"] == "device-cordoned"]
    assert why in warning["text"] and "sublet gpu uncordon gpu1" in warning["hint"]
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    assert [c for c in checks if c["name"] == "device" and why in c["text"]], checks
    (event,) = daemon_events(daemon)
    assert (event["state"], event["by"], event["reason"]) == ("cordoned", "Sublet", why)
    assert lease_of(daemon, "before")["state"] == "active", "a lease there goes on"
    daemon.restart()
    cordoned(daemon, why)
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    assert large.wait(60) == 0, "the admin's word holds, although the error is still there"
    daemon.restart()
    asked = daemon.api().post("/v1/leases", {"vram_bytes": 5 * GIB // 2, "ttl_seconds": 600})["id"]
    wait_until(lambda: daemon.get(f"/v1/leases/{asked}")["state"] != "queued", "the first reading lets it start")
    assert service(daemon) is None
    ends_well(daemon, "before", run)
    if again:
        daemon.ctl("card", 1, again)
        cordoned(daemon, why.replace("2 double", "3 double"))


def test_an_error_that_was_gone_is_new(start_daemon):
    daemon = two_cards(start_daemon)
    daemon.ctl("card", 1, "remapping_pending=1")
    cordoned(daemon, ERRORS["remapping"][1])
    daemon.ctl("card", 1, "remapping_pending=0")
    read_again(daemon, remapping_pending=False)
    assert service(daemon) is not None, "only an admin takes it back"
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    daemon.ctl("card", 1, "remapping_pending=1")
    cordoned(daemon, ERRORS["remapping"][1])


def test_a_lost_card_stays_cordoned_when_it_is_back(start_daemon):
    daemon = two_cards(start_daemon)
    daemon.ctl("fault", "device-lost", "--device", "1")
    cordoned(daemon, "it has fallen off the bus (Xid 79)")
    daemon.ctl("clear", "device-lost")
    wait_until(lambda: daemon.get("/v1/devices")["devices"][1]["state"] == "ok", "it is back", 90)
    assert service(daemon)["by"] == "Sublet"
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    assert daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})["state"] == "active"


def test_only_the_named_errors_cordon(start_daemon):
    daemon = two_cards(start_daemon, CONFIG.replace("[gpu]\n", '[gpu]\ncordon_on = ["xid"]\n'))
    daemon.ctl("card", 1, "ecc_uncorrected=1", "remapping_failed=1")
    read_again(daemon, ecc_uncorrected=1, remapping_failed=True)
    assert service(daemon) is None
    daemon.ctl("card", 1, "xid=31")
    read_again(daemon, last_xid=31)
    assert service(daemon) is None, "a fault of a program is none of the card"
    daemon.ctl("card", 1, "xid=79")
    cordoned(daemon, ERRORS["xid"][1])


def test_an_admins_drain_is_not_replaced(start_daemon):
    daemon = two_cards(start_daemon)
    daemon.cli("gpu", "drain", "gpu1", "--reason", "new fan", check=0)
    daemon.ctl("card", 1, "ecc_uncorrected=1")
    read_again(daemon, ecc_uncorrected=1)
    assert service(daemon)["reason"] == "new fan"
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    read_again(daemon, ecc_uncorrected=1)
    assert service(daemon) is None, "the admin saw the error in its condition"
    daemon.ctl("card", 1, "ecc_uncorrected=2")
    cordoned(daemon, "2 double-bit memory errors")
