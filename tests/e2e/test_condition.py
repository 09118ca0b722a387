# SPDX-License-Identifier: Apache-2.0
"""The condition of cards: temperature, power, clocks, link and memory errors, in all places that show it."""
import json
import re

from tests.e2e.test_metrics import scrape
from tests.support.contract import ROOT
from tests.support.sublet import wait_until

CONFIG = '[gpu]\ninterval_busy = "100ms"\ninterval_idle = "100ms"\n'
SPEC = "1x2GiB,Simulated A,cc=8.0,nvlinks=2,temperature=71,power=250000,sm_clock=1410,ecc_corrected=3+1x2GiB,cc=7.5"


def condition(daemon, gpu="gpu0"):
    return next(row for row in daemon.get("/v1/devices")["devices"] if row["id"] == gpu)["condition"]


def has(daemon, gpu="gpu0", **wanted):
    return wait_until(lambda: (lambda now: now if wanted.items() <= now.items() else None)(condition(daemon, gpu)),
                      f"{gpu} has {wanted}")


def test_the_condition_is_shown_everywhere(start_daemon):
    daemon = start_daemon(SPEC, config=CONFIG)
    first = has(daemon, temperature_celsius=71)
    assert (first["compute_capability"], first["nvlinks"], first["power_milliwatts"]) == ("8.0", 2, 250_000)
    assert first["ecc_corrected"] == 3 and first["remapping_pending"] is False
    assert first["retirement_pending"] is None and first["last_xid"] is None
    assert condition(daemon, "gpu1")["compute_capability"] == "7.5"
    shown = daemon.cli("gpus", "-l", check=0).stdout
    for word in ("71 °C", "250/600 W", "1410 MHz", "2 NVLinks", "PCIe", "0 (3 corrected)", "8.0", "7.5"):
        assert word in shown, (word, shown)
    assert "CAPABILITY" not in daemon.cli("gpus").stdout and "TEMP" not in daemon.cli("gpus").stdout


def test_a_figure_that_the_driver_lacks_is_null_and_hinders_nothing(start_daemon):
    daemon = start_daemon("1x2GiB", config=CONFIG)
    has(daemon, ecc_uncorrected=0)
    daemon.ctl("card", 0, "temperature=unsupported", "power=unsupported", "ecc_uncorrected=unsupported",
               "pcie_lanes=unsupported")
    now = has(daemon, temperature_celsius=None)
    assert now["power_milliwatts"] is None and now["ecc_uncorrected"] is None and now["pcie_lanes"] is None
    assert now["sm_clock_mhz"] is not None
    shown = daemon.cli("gpus", "-l", check=0).stdout
    assert "°C" not in shown and "MHz" in shown
    assert daemon.api().post("/v1/leases", {"vram_bytes": 1 << 30})["state"] == "active"
    assert "DCGM_FI_DEV_GPU_TEMP" not in scrape(daemon.api())


def test_a_reduced_link_is_told(start_daemon):
    daemon = start_daemon("1x2GiB,pcie_lanes=4", config=CONFIG)
    has(daemon, pcie_lanes=4)
    assert re.search(r"PCIe \d x4 of x\d+", daemon.cli("gpus", "-o", "link").stdout)


def test_metrics_have_the_names_and_units_of_the_exporter(start_daemon):
    daemon = start_daemon(SPEC, config=CONFIG)
    has(daemon, temperature_celsius=71)
    found = {name: samples for name, samples in scrape(daemon.api()).items() if name.startswith("DCGM_")}
    listed = set(re.findall(r"`(DCGM_[A-Z_]+)`", (ROOT / "docs/devices.md").read_text()))
    assert listed - set(found) == {"DCGM_FI_DEV_XID_ERRORS"} and set(found) <= listed
    uuids = {row["id"]: row["uuid"] for row in daemon.get("/v1/devices")["devices"]}
    (labels,) = [label for label in found["DCGM_FI_DEV_POWER_USAGE"] if uuids["gpu0"] in label]
    assert set(re.findall(r"(\w+)=", labels)) == {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}
    assert 'gpu="0"' in labels and 'device="nvidia0"' in labels and 'modelName="Simulated A"' in labels
    for name, value in (("POWER_USAGE", 250), ("GPU_TEMP", 71), ("SM_CLOCK", 1410), ("FB_TOTAL", 2048),
                        ("ECC_SBE_VOL_TOTAL", 3), ("ENFORCED_POWER_LIMIT", 600)):
        assert found[f"DCGM_FI_DEV_{name}"][labels] == value, name
    daemon.ctl("card", 0, "xid=31")
    has(daemon, last_xid=31)
    assert scrape(daemon.api())["DCGM_FI_DEV_XID_ERRORS"][labels] == 31


def test_doctor_explains_errors_and_a_reduced_link(start_daemon):
    daemon = start_daemon("1x2GiB,pcie_lanes=4,ecc_uncorrected=1,retirement_pending=1,remapping_pending=1,"
                          "remapping_failed=1+1x2GiB", config=CONFIG)
    has(daemon, ecc_uncorrected=1)
    checks = [c for c in json.loads(daemon.cli("doctor", "--json").stdout)["checks"] if c["name"] == "condition"]
    for text, hint in (("gpu0: 1 double-bit memory error since", "gpu-reset"), ("to be retired", "sublet gpu drain"),
                       ("to be remapped", "gpu-reset"), ("could not be remapped", "repair"),
                       ("4 of", "slot shares its lanes")):
        assert [c for c in checks if text in c["text"] and hint in c["hint"]], (text, checks)
    assert len(checks) == 5, "a card that is well has none"
