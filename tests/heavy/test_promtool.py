# SPDX-License-Identifier: Apache-2.0
"""Prometheus's own tool reads our metrics and tests our alerts."""
import shutil
import subprocess

import pytest

from tests.support.contract import ROOT
from tests.support.sublet import GIB, Daemon

pytestmark = [pytest.mark.heavy,
              pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt-get install prometheus")]


@pytest.fixture
def daemon():
    daemon = Daemon().start()
    yield daemon
    daemon.close()


def test_metrics_are_well_formed(daemon):
    api = daemon.api()
    api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    checked = subprocess.run(["promtool", "check", "metrics"], input=api.get("/metrics").body, text=True,
                             capture_output=True, timeout=60)
    # 3: names against the conventions, which the vendor's exporter does not keep
    assert checked.returncode in (0, 3), checked.stdout + checked.stderr
    assert [line for line in checked.stderr.splitlines() if not line.startswith("DCGM_FI_DEV_")] == []


def test_alerts_fire_for_their_causes_only():
    tested = subprocess.run(["promtool", "test", "rules", ROOT / "tests/alerts/alerts_test.yml"], text=True,
                            capture_output=True, timeout=60)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_changed_threshold_is_noticed(tmp_path):
    (tmp_path / "packaging/prometheus").mkdir(parents=True)
    (tmp_path / "tests/alerts").mkdir(parents=True)
    rules = (ROOT / "packaging/prometheus/alerts.yml").read_text()
    (tmp_path / "packaging/prometheus/alerts.yml").write_text(rules.replace("> 1800", "> 1000"))
    shutil.copy(ROOT / "tests/alerts/alerts_test.yml", tmp_path / "tests/alerts")
    tested = subprocess.run(["promtool", "test", "rules", tmp_path / "tests/alerts/alerts_test.yml"], text=True,
                            capture_output=True, timeout=60)
    assert tested.returncode != 0 and "SubletWaitTooLong" in tested.stdout + tested.stderr
