# SPDX-License-Identifier: Apache-2.0
"""The release as others get it: its packages in each system, its units under systemd, its bytes from two builds, and
the archive for a bare machine with a card.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from tests.package.conftest import ROOT, call

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu22.04", "ubuntu24.04"])
def test_the_packages_install_upgrade_and_go(release, system):
    said = call(ROOT / "dev", "test-package", "--made", system)
    assert any(line.endswith("checks passed") for line in said), said[-5:]


@pytest.mark.parametrize("system", ["debian12", "debian13"])
def test_the_units_work_under_systemd_over_a_reboot(release, system):
    said = call(ROOT / "dev", "test-boot", "--made", system)
    assert sum(line.endswith("checks passed") for line in said) == 2, "two boots"


@pytest.mark.parametrize("system", ["debian12", "ubuntu22.04"])
def test_a_bare_machine_with_a_card_is_tested_within_eight_minutes(release, tmp_path, system):
    call(ROOT / "tools/gpu-day", "--out", tmp_path)
    archive = tmp_path / "sublet-gpu-day.tar.gz"
    assert archive.stat().st_size <= 60_000_000
    said = call("bash", ROOT / "tools/test_gpu_day.sh", archive, tmp_path / "out", system)
    report = json.loads((tmp_path / "out/report.json").read_text())
    outcomes = {step["name"]: step["outcome"] for step in report["steps"]}
    assert outcomes.pop("python") == "skipped", "a bare system has no PyTorch"
    assert set(outcomes.values()) == {"passed"}, said[-30:]
    checks = [check for step in report["steps"] for check in step.get("checks", [])]
    assert len(checks) >= 25 and all(check["good"] for check in checks)
    assert report["differences_from_simulated_driver"] == {}
    assert sum(step["seconds"] for step in report["steps"]) < 480


def test_two_builds_in_two_places_make_the_same_bytes(release):
    clean = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True,
                           text=True, check=True).stdout == ""
    call("bash", ROOT / "tools/reproduce.sh", *([ROOT] if clean else []))


USER = 12345  # an account that is in no list of accounts


@pytest.fixture
def place(release):
    """A folder that another user may read, with the user's home and the archive: pytest's own folders are closed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sublet-home-"))
    folder.chmod(0o755)
    for file in (release / "install.sh", release / "SHA256SUMS", *release.glob("sublet-*-linux-x86_64.tar.gz")):
        shutil.copy(file, folder)
        (folder / file.name).chmod(0o755)
    (folder / "home").mkdir()
    os.chown(folder / "home", USER, USER)
    yield folder
    shutil.rmtree(folder)


def test_a_user_installs_the_archive_without_root(place):
    archive, home = next(place.glob("sublet-*.tar.gz")), place / "home"
    environment = {"HOME": str(home), "PATH": f"{home}/.local/bin:/usr/bin:/bin"}
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--"]
    done = subprocess.run([*user, place / "install.sh", "--system", archive], env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 1 and "--system needs root" in done.stderr
    done = subprocess.run([*user, place / "install.sh", "--user", archive], env=environment, capture_output=True,
                          text=True, cwd=place)
    assert done.returncode == 0 and "the checksum of" in done.stdout, done.stdout + done.stderr
    assert "sublet doctor:" in done.stdout and "no daemon" in done.stdout
    assert (home / ".local/bin/sublet").stat().st_uid == USER
    version = subprocess.run([*user, home / ".local/bin/sublet", "--version"], env=environment, capture_output=True,
                             text=True, check=True)
    assert version.stdout.startswith("sublet ")
    subprocess.run([*user, place / "install.sh", "--user", "--remove"], env=environment, check=True,
                   capture_output=True)
    left = [name for _, _, names in os.walk(home) for name in names]
    assert left == []
