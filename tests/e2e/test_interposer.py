# SPDX-License-Identifier: Apache-2.0
"""`sublet run --interposer`: an unchanged program, with each call of the driver counted by the preloaded library."""
import json
import shutil
import subprocess
import sys

from tests.support.interposer import COVERED, LIBRARY, PASSIVE, counting, told
from tests.support.preload import preloaded
from tests.support.sublet import BUILD

LOAD = ("simgpu-load", "--alloc", "64MiB", "--seconds", "0.3", "--seed", "7", "--verify", "--json")
# The library asks these itself, after cuInit and to charge memory. Helpers of the daemon may ask some of them too.
ASKED = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2", "cuCtxGetCurrent",
         "cuCtxGetDevice", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxGetState"}


def calls_of_cards(daemon):
    said = subprocess.run([BUILD / "bin/simgpu-ctl", "--dir", daemon.dir, "show", "--json"], check=True,
                          capture_output=True, text=True)
    return json.loads(said.stdout)["calls"]


def run(daemon, *words, **variables):
    # Programs with a sanitizer require it to be loaded first.
    variables.setdefault("ASAN_OPTIONS", preloaded(LIBRARY)["ASAN_OPTIONS"])
    return daemon.cli("run", "--vram", "256MiB", *words, check=0, **variables)


def test_each_call_is_counted_and_the_results_are_the_same(daemon, tmp_path):
    bare = json.loads(run(daemon, "--", *LOAD).stdout)
    before = calls_of_cards(daemon)
    # The caller's own LD_PRELOAD stays.
    variables = {"LD_PRELOAD": str(counting(tmp_path)), "INTERPOSER_COUNTS": str(tmp_path / "told")}
    hooked = json.loads(run(daemon, "--interposer", "--", *LOAD, **variables).stdout)
    after = calls_of_cards(daemon)
    same = ("device", "filled_bytes", "seed", "ok", "wrong_words", "error", "ended_by")
    assert {key: hooked[key] for key in same} == {key: bare[key] for key in same}
    [(report, calls)] = [one for one in told(tmp_path / "told") if one[0]["state"] != PASSIVE]
    assert report["state"] == COVERED and report["reason"] == 0 and report["found"] > 600
    assert calls["cuLaunchKernel"] == hooked["launches"] and calls["cuMemAlloc_v2"] > 0
    # The cards count by themselves; the daemon's calls of NVML are among these.
    counted = {name: count - before.get(name, 0) for name, count in after.items() if name.startswith("cu")}
    assert {name: count for name, count in counted.items() if count and name not in ASKED} == {
        name: count for name, count in calls.items() if name not in ASKED}


def test_the_library_comes_last_in_ld_preload_and_only_once(shared_daemon, tmp_path):
    other = counting(tmp_path)
    show = ("--interposer", "--", "sh", "-c", 'echo "$LD_PRELOAD"')
    assert run(shared_daemon, *show).stdout.strip() == str(LIBRARY)
    assert run(shared_daemon, *show, LD_PRELOAD=str(other)).stdout.strip() == f"{other}:{LIBRARY}"
    assert run(shared_daemon, *show, LD_PRELOAD=f"{LIBRARY}:{other}").stdout.strip() == f"{LIBRARY}:{other}"
    assert run(shared_daemon, *show[1:]).stdout.strip() == ""


def test_a_program_inside_a_lease_gets_the_library_too(shared_daemon):
    inner = 'sublet run --vram 1MiB --interposer -- sh -c \'echo "$LD_PRELOAD"\''
    assert run(shared_daemon, "--", "sh", "-c", inner).stdout.strip() == str(LIBRARY)


def test_a_missing_library_is_told_before_the_queue(shared_daemon, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    sublet = shutil.copy(BUILD / "bin/sublet", folder / "sublet")
    done = subprocess.run([sublet, "run", "--interposer", "--", sys.executable, "-c", ""], env=shared_daemon.env(),
                          capture_output=True, text=True)
    assert done.returncode == 125 and "the interposer is not installed" in done.stderr
    assert not [lease for lease in shared_daemon.leases() if lease["state"] != "ended"]
