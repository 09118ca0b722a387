# SPDX-License-Identifier: Apache-2.0
"""`sublet simulate`: traces through the shipped decisions, without a daemon."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.keeping import SUBLET

TEN = pathlib.Path(__file__).resolve().parents[2] / "docs" / "placement-ten-jobs.csv"
TRACES = pathlib.Path(os.environ.get("SUBLET_TRACES", "/nowhere"))


def simulate(*words, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([SUBLET, "simulate", *map(str, words)], text=True, timeout=120, **options)


def test_ten_jobs_of_the_docs_become_a_table_figures_and_a_picture(tmp_path):
    page = tmp_path / "ten.html"
    table = simulate("--trace", TEN, "--gpus", "2x24GiB", "--compare", "fragmentation,spread", "--html", page)
    assert table.returncode == 0, table.stderr
    assert "jobs done" in table.stdout and "spread" in table.stdout.splitlines()[0]
    text = page.read_text()
    assert "<svg" in text and "src=" not in text and "http" not in text
    figures = json.loads(simulate("--trace", TEN, "--gpus", "2x24GiB", "--json").stdout)
    assert figures["jobs"] == {"done": 10, "refused": 0, "ended": 0, "unfinished": 0} and not figures["partial"]
    assert figures["waits"][0]["size"] == "all" and figures["pauses"] > 0
    again = json.loads(simulate("--trace", TEN, "--gpus", "2x24GiB", "--json").stdout)
    assert again == figures
    rows = simulate("--trace", TEN, "--gpus", "2x24GiB", "--csv").stdout.splitlines()
    assert rows[0].startswith("setting,seconds,allocated_bytes") and len(rows) > 50


def test_a_refused_job_is_told_with_its_reason_and_a_full_disk_too(tmp_path):
    file = tmp_path / "large.csv"
    file.write_text("arrives,runs,vram,name\n0,1h,8GiB,small\n60,1h,30GiB,large\n")
    done = simulate("--trace", file, "--gpus", "1x24GiB")
    assert done.returncode == 0 and "1 of 2 jobs were refused; the first is 'large' of user at 1 min" in done.stderr
    assert simulate("--trace", file, "--gpus", "1x4GiB").returncode == 1, "no job ran"
    for words in ([], ["--csv"], ["--json"]):
        with open("/dev/full", "w") as full:
            done = simulate("--trace", TEN, "--gpus", "2x24GiB", *words, stdout=full)
        assert done.returncode == 1 and "cannot write the result" in done.stderr, done


def test_a_page_on_a_full_disk_leaves_the_old_one(tmp_path):
    page, csv = tmp_path / "ten.html", tmp_path / "ten.csv"
    csv.write_text(TEN.read_text())
    page.write_text("old")
    (tmp_path / "ten.html.new").symlink_to("/dev/full")
    done = simulate("--trace", csv, "--gpus", "2x24GiB", "--html", page)
    assert done.returncode == 1 and f"cannot write {page}: No space left" in done.stderr and page.read_text() == "old"
    for words, problem in ((["--html", csv], "would overwrite a file that is read"),
                           (["--html", page, "--svg", page], "--html and --svg name the same file")):
        done = simulate("--trace", csv, "--gpus", "2x24GiB", *words)
        assert done.returncode == 2 and problem in done.stderr
    assert csv.read_text() == TEN.read_text()


@pytest.mark.parametrize("rows, problem", [
    (b"arrives,runs,vram,user\n0,1h,8GiB,J\xfcrgen\n", r":2: column 'user': 'J\xfcrgen' is no text"),
    (b"arrives,runs,vram\n0,1h,8192\n", ":2: column 'vram': '8192' has no unit"),
    (b"arrives,runs,vram\n0,1h,8GiB\n1700000000,1h,8GiB\n", "the last job arrives"),
    (b"arrives; runs; vram\n0;1h;8GiB\n", ":1: the column 'arrives' is missing"),
])
def test_odd_rows_are_refused_with_their_line(tmp_path, rows, problem):
    (tmp_path / "odd.csv").write_bytes(rows)
    done = simulate("--trace", tmp_path / "odd.csv", "--gpus", "2x24GiB", "--json")
    assert done.returncode == 1 and problem in done.stderr, done


def test_a_job_for_a_whole_device_leaves_the_headroom(tmp_path):
    file = tmp_path / "whole.csv"
    file.write_text("arrives,runs,vram\n0,1h,24GiB\n0,1h,8GiB\n")
    done = simulate("--trace", file, "--gpus", "2x24GiB", "--set", "device.headroom=1GiB")
    assert done.returncode == 0 and "1 job for a whole device got 1.0 GiB less" in done.stderr
    assert "whole device" not in simulate("--trace", file, "--gpus", "2x24GiB", "--set", "device.headroom=0").stderr


def test_many_tenants_are_counted_in_the_table_and_told_elsewhere(tmp_path):
    file = tmp_path / "many.csv"
    file.write_text("arrives,runs,vram,user\n" + "".join(f"{i},1h,1GiB,user{i}\n" for i in range(13)))
    table = simulate("--trace", file, "--gpus", "1x24GiB").stdout
    assert any(line.split() == "tenants, told by --csv=tenants 13".split() for line in table.splitlines()), table
    assert len(simulate("--trace", file, "--gpus", "1x24GiB", "--csv=tenants").stdout.splitlines()) == 14


def test_a_trace_that_never_ends_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as large:
        large.truncate(2**30 + 1)
    for file, problem in ("/dev/zero", "no regular file"), (tmp_path / "pipe", "no regular file"), \
            (tmp_path / "large", "at most 1.0 GiB are read"):
        done = simulate("--trace", file, "--gpus", "1x24GiB")
        assert done.returncode == 1 and problem in done.stderr


def test_the_configuration_counts(tmp_path):
    file = tmp_path / "sublet.toml"
    file.write_text("[pause]\nautomatic = false\n")
    for words in (["--config", file], ["--set", "pause.automatic=false"]):
        figures = json.loads(simulate("--trace", TEN, "--gpus", "2x24GiB", "--json", *words).stdout)
        assert figures["pauses"] == 0
    both = json.loads(simulate("--trace", TEN, "--gpus", "2x24GiB", "--json", "--compare", f"{file},best-fit").stdout)
    assert [one["pauses"] > 0 for one in both["settings"]] == [False, True]


@pytest.mark.parametrize("words, status, problem", [
    (["--gpus", "1x24GiB"], 2, "give one of --trace"),
    (["--trace", TEN], 2, "--gpus says which devices"),
    (["--trace", TEN, "--gpus", "24GiB"], 2, "'24GiB' names no devices"),
    (["--trace", TEN, "--gpus", "2x24"], 2, "'2x24' has no unit"),
    (["--trace", TEN, "--gpus", "2x4000000TiB"], 2, "a device has 16.0 TiB at most"),
    (["--trace", "/none.csv", "--gpus", "1x24GiB"], 1, "cannot read /none.csv"),
    (["--trace", f"openb:{TEN}", "--nodes", TEN], 1, "the column 'cpu_milli' is missing"),
    (["--trace", f"openb:{TEN}"], 2, "needs --nodes"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--compare", "fastest"], 78, "neither a policy nor a file"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--set", "pause.auto=no"], 78, "there is no such key"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--set", "pause.slice_overhead=7"], 78, "is not between"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--fill", "much"], 2, "--fill much"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--seed", "1"], 2, "--seed is for --nodes and --scenario only"),
    (["--trace", TEN, "--scenario", "burst"], 2, "give one of --trace, --from-history and --scenario"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--without-user", "bella"], 1, "there is no job of this user"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--add-gpu", "some"], 1, "--add-gpu some: is no size"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--csv=all"], 2, "neither samples nor tenants"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--tenants", "/none.toml"], 1, "/none.toml"),
    (["--scenario", "rush"], 78, "there is no scenario 'rush'"),
    (["--scenario", "/none.toml"], 78, "/none.toml"),
    (["--trace", TEN, "--gpus", "1x24GiB", "--html", "/none/page.html"], 1, "cannot write /none/page.html"),
])
def test_wrong_words_are_named(words, status, problem):
    done = simulate(*words)
    assert (done.returncode, problem in done.stderr) == (status, True), done.stderr


SCENARIO = """
[scenario]
devices = "4x24GiB"
length = "8h"
checkpoint = "1h"

[[tenant]]
name = "llm"
quota_devices = 2

[[stream]]
name = "tune"
tenant = "llm"
devices = 2
runs = "1h"
every = "2h"
first = "1h"

[[stream]]
name = "train"
runs = "5h"
every = "30m"
spread = 0.2
"""


def test_a_scenario_runs_beside_a_point_in_time_scheduler(tmp_path):
    file, picture = tmp_path / "lab.toml", tmp_path / "lab.svg"
    file.write_text(SCENARIO)
    figures = json.loads(simulate("--scenario", file, "--json", "--svg", picture, "--set", "ledger.limit=1TiB").stdout)
    before, ours = figures["settings"]
    assert [before["setting"], ours["setting"]] == ["point-in-time", "sublet"]
    assert before["lasted_seconds"] == ours["lasted_seconds"] == 8 * 3600
    tenants = {row["tenant"]: row for row in ours["tenants"]}
    assert tenants.keys() == {"llm", "train"} and tenants["llm"]["guarantee_percent"] == 50
    assert tenants["llm"]["guarantees_served"] == tenants["llm"]["guarantees_asked"] > 0
    assert ours["useful_percent"] > before["useful_percent"]
    text = picture.read_text()
    assert text.startswith("<svg") and "llm" in text
    rows = simulate("--scenario", file, "--csv=tenants").stdout.splitlines()
    assert rows[0].startswith("setting,tenant,") and len(rows) == 5
    one = json.loads(simulate("--scenario", file, "--compare", "pack", "--without-user", "train", "--json").stdout)
    assert one["setting"] == "pack" and [row["tenant"] for row in one["tenants"]] == ["llm"]


def test_a_scenario_takes_other_devices_seeds_and_files(tmp_path):
    def one(*words):
        done = simulate("--scenario", file, "--compare", "sublet", "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    file, other = tmp_path / "lab.toml", tmp_path / "sublet.toml"
    file.write_text(SCENARIO + '[pause]\nautomatic = false\n')
    other.write_text("")
    usual, said = one()
    assert usual["pauses"] == 0 and said == ""
    assert one("--seed", "42")[0] == usual != one("--seed", "7")[0]
    smaller = one("--gpus", "4x16GiB")[0]
    assert smaller["jobs"]["refused"] == 0 < smaller["jobs"]["done"], "all of a device is all of another, too"
    figures, said = one("--config", other, "--set", "ledger.limit=1TiB")
    assert figures["pauses"] > 0 and "in place of the 1 key of the daemon in the scenario" in said


def test_a_ledger_that_keeps_guarantees_waiting_is_told(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(SCENARIO)
    done = simulate("--scenario", file, "--compare", "sublet", "--set", "ledger.limit=8GiB")
    assert "within a guarantee started late, since parked programs may take 8.0 GiB of host memory" in done.stderr


def test_point_in_time_refuses_parents_and_limits(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(SCENARIO.replace("quota_devices = 2", "quota_devices = 2\nlimit_devices = 3"))
    done = simulate("--scenario", file, "--compare", "point-in-time,sublet")
    assert done.returncode == 1 and "point-in-time knows no parents and no limits" in done.stderr
    done = simulate("--scenario", file, "--json")
    assert done.returncode == 0 and "is left out" in done.stderr
    figures = json.loads(done.stdout)
    assert figures["setting"] == "sublet" and {row["entitled_percent"] for row in figures["tenants"]} == {None}


def test_a_wrong_scenario_names_its_line(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(SCENARIO + '[placement]\npolicy = "cheapest"\n')
    done = simulate("--scenario", file)
    assert done.returncode == 78 and f"{file}:" in done.stderr and "placement.policy" in done.stderr


def test_tenants_come_from_the_file_of_tenant_apply(tmp_path):
    file = tmp_path / "tenants.toml"
    file.write_text('[[tenant]]\nname = "ana"\nlimit = "0GiB"\n')
    figures = json.loads(simulate("--trace", TEN, "--gpus", "2x24GiB", "--tenants", file, "--json").stdout)
    assert figures["jobs"]["refused"] > 0
    file.write_text('[[tenant]]\nname = "ana"\nquota = "900GiB"\n')
    done = simulate("--trace", TEN, "--gpus", "2x24GiB", "--tenants", file)
    assert done.returncode == 78 and "the quotas add up to 900 GiB, and the devices have 47.5 GiB" in done.stderr, done
    file.write_text('[[tenant]]\nname = "ana"\nparent = "none"\n')
    done = simulate("--trace", TEN, "--gpus", "2x24GiB", "--tenants", file)
    assert done.returncode == 1 and f"{file}:1" in done.stderr


def catches_interrupts(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return "sublet-simulat" in status.splitlines()[0] and caught >> (signal.SIGINT - 1) & 1


def test_ctrl_c_prints_what_there_is(tmp_path):
    trace = tmp_path / "long.csv"
    with open(trace, "w") as out:
        out.write("arrives,runs,vram,user\n")
        out.writelines(f"{i},{600 + i % 977},{1 + i % 23}GiB,u{i % 7}\n" for i in range(1_000_000))
    with subprocess.Popen([SUBLET, "simulate", "--trace", trace, "--gpus", "4x24GiB", "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while not catches_interrupts(run.pid):
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=300)
    assert run.returncode == 130 and "partial" in err
    figures = json.loads(out)
    assert figures["partial"] and sum(figures["jobs"].values()) == 1_000_000


@pytest.mark.skipif(not (TRACES / "openb").is_dir(), reason="SUBLET_TRACES names no folder with the public trace openb")
def test_the_published_protocol():
    figures = json.loads(simulate("--trace", f"openb:{TRACES}/openb/openb_pod_list_default.csv", "--nodes",
                                  TRACES / "openb/openb_node_list_gpu_node.csv", "--fill", "1.3", "--seed", "42",
                                  "--json").stdout)
    assert figures["allocated_at_100"] > 94.9
