# SPDX-License-Identifier: Apache-2.0
"""The run on a machine with a card (tests/gpu/day.py) with steps of the test, its parts, and the recorder."""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tools")]
import checkpoint_questions  # noqa: E402
import day  # noqa: E402
import demo  # noqa: E402
import facts  # noqa: E402
import limits  # noqa: E402
import run  # noqa: E402
import sizes  # noqa: E402

HANGS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("before the hang", flush=True)
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
while True:
    signal.pause()
"""
CHECK = """
import json, sys
with open(sys.argv[1], "a") as file:
    file.write(json.dumps({"kind": "x", "what": "a check", "good": sys.argv[2] == "good", "detail": "7"}) + "\\n")
    file.write('{"cut sho')
sys.exit(sys.argv[2] != "good")
"""


@pytest.fixture
def options(tmp_path):
    (tmp_path / "out").mkdir()
    return argparse.Namespace(bin=tmp_path, out=tmp_path / "out", sim="")


def step(name, code, *arguments, limit=30, least=0):
    return day.Step(name, ["{python}", "-c", code, *map(str, arguments)], limit, least)


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    until = time.monotonic() + 30
    while is_there(pid) and time.monotonic() < until:
        pass
    return not is_there(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_no_program_on_the_card(tmp_path, number):
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests/gpu')!r}); import day; " \
           "day.STEPS = (day.Step('hangs', ['{python}', '-c', sys.argv.pop(1), sys.argv.pop(1)], 60),); day.main()"
    noted = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", code, HANGS, noted, "--bin", tmp_path, tmp_path / "out"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(tmp_path)})
    until = time.monotonic() + 30
    while not (noted.exists() and noted.read_text()) and time.monotonic() < until:
        pass
    process.send_signal(number)
    assert process.wait(30) != 0 and ends(int(noted.read_text()))
    assert not list(tmp_path.glob("sublet-day-*"))


def test_a_step_that_hangs_keeps_its_output_and_leaves_nothing_behind(options, tmp_path, monkeypatch):
    monkeypatch.setattr(day, "GRACE", 0.2)
    results = day.run_all([step("hangs", HANGS, tmp_path / "pid", limit=6), step("next", "print('ran')")], options)
    assert [result["outcome"] for result in results] == ["out of time", "passed"]
    assert (options.out / "01-hangs.log").read_text() == "before the hang\n"
    assert ends(int((tmp_path / "pid").read_text())), "a child in a session of its own is killed too"


def test_a_step_that_fails_keeps_its_checks_and_the_next_one_runs(options):
    steps = [step(name, CHECK, options.out / f"checks-{name}.jsonl", kind)
             for name, kind in (("bad", "bad"), ("fine", "good"))]
    results = day.run_all(steps, options)
    assert [result["outcome"] for result in results] == ["failed", "passed"]
    assert [check["good"] for result in results for check in result["checks"]] == [False, True]
    report = json.loads((options.out / "report.json").read_text())
    assert [one["name"] for one in report["steps"]] == ["bad", "fine"]
    page = (options.out / "report.md").read_text()
    assert "**FAIL** [x] a check: 7" in page and "| fine | passed |" in page


def test_a_program_that_is_not_there_is_a_failed_step(options):
    results = day.run_all([day.Step("absent", ["/nowhere/at/all"], 30)], options)
    assert results[0]["outcome"] == "failed" and "nowhere" in (options.out / "01-absent.log").read_text()


def test_time_is_kept_for_later_steps(options):
    steps = [step("first", "pass", limit=1000, least=1), step("second", "pass", limit=1000, least=100),
             step("third", "pass", limit=1000, least=0)]
    results = day.run_all(steps, options, total=130)
    assert results[0]["limit"] <= 30 and 100 < results[1]["limit"] <= 130
    assert day.run_all(steps[2:], options, total=4)[0]["outcome"] == "no time left"


def test_the_limits_of_all_steps_leave_time_for_the_report():
    assert sum(one.least for one in day.STEPS) < day.TOTAL < 480
    assert all(one.least <= one.limit for one in day.STEPS)


def test_answers_of_a_driver_that_differ_are_named(options, monkeypatch, tmp_path):
    (tmp_path / "simulated-answers.json").write_text(json.dumps({"a": {"code": 0, "x_bytes": 1}, "b": {"code": 0}}))
    monkeypatch.setattr(day, "ROOT", tmp_path)
    (options.out / "driver-600.1.json").write_text(
        json.dumps({"answers": {"a": {"code": 0, "x_bytes": 2}, "b": {"code": 999}}}))
    assert day.differences(options.out) == {"b": {"driver": {"code": 999}, "simulated": {"code": 0}}}
    day.write_report([], options)
    assert '- b: {"code": 999}, simulated {"code": 0}' in (options.out / "report.md").read_text()


@pytest.mark.parametrize("outcomes, status", [
    (("passed", "skipped"), 0), (("passed", "no time left"), 1), (("out of time",), 1), (("failed", "passed"), 1),
])
def test_a_step_without_time_is_no_success(outcomes, status):
    assert day.exit_status([{"outcome": outcome} for outcome in outcomes]) == status


# ------------------------------------------------------------------------------------------- facts


def test_facts_are_kept_after_each_command(tmp_path):
    told = []
    answers = facts.ask_all({"bytes": (["printf", r"a\377b"], 5),
                             "hangs": (["sh", "-c", "echo so far; exec sleep 1000"], 0.5),
                             "absent": (["/nowhere/at/all"], 5)}, lambda answers: told.append(list(answers)))
    assert told == [["bytes"], ["bytes", "hangs"], ["bytes", "hangs", "absent"]]
    assert answers["bytes"] == {"status": 0, "text": "a\ufffdb"}
    assert "no answer" in answers["hangs"]["error"] and answers["hangs"]["text"] == "so far\n"
    assert facts.ask_all({"late": (["true"], 5)}, told.append, total=0)["late"] == {"error": "no time left"}


@pytest.mark.parametrize("status", [0, 1])
def test_facts_fail_without_a_reading_of_the_cards(tmp_path, status):
    for name in ("sublet-gpu", "sublet"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{{}}'; exit {status}\n")
        (tmp_path / name).chmod(0o755)
    out = tmp_path / "facts.json"
    done = subprocess.run([sys.executable, facts.__file__, "--bin", tmp_path, out], stdout=subprocess.DEVNULL,
                          env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == status
    written = json.loads(out.read_text())
    assert written["commands"]["snapshot"]["status"] == status and "kernel" in written["summary"]


# ------------------------------------------------------------------------------------------- parts


class Job:
    """Stands for run.Job: a lease of the test, and the checks that were made."""

    def __init__(self, lease=None, reached=True):
        self.stage, self.facts, self.reached, self.steps, self.ended = self, lease, reached, [], []
        self.dir, self.real, self.env = pathlib.Path("/nowhere"), True, dict(os.environ)

    def spawn(self, *command):
        return command[0]

    def sublet(self, *words, quiet=False):
        pass

    def lease(self, name):
        return self.facts

    def until(self, condition, what, seconds=90):
        return self.reached

    def device(self):
        return {"effective_free_bytes": 1 << 34, "leased_bytes": 0}

    def end(self, program):
        self.ended.append(program)
        return 143

    def end_of(self, program, seconds=300):
        return 143

    def step(self, what, good, detail="", **figures):
        self.steps.append((bool(good), detail))


def test_the_page_tells_the_highest_use_of_a_program_above_its_ceiling():
    job = Job({"id": "lease-1", "end_reason": "over_limit", "peak_used_bytes": 1100 << 20})
    limits.Limits(job).ceiling()
    assert job.steps[0][0] and "highest use 1100 MiB of 1024 MiB" in job.steps[0][1]


def test_a_program_that_passes_its_ceiling_is_ended_by_the_test():
    job = Job({}, reached=False)
    limits.Limits(job).ceiling()
    assert job.ended == ["greedy"] and not job.steps[0][0]


@pytest.mark.parametrize("raw", [None, [1.0, 2.0]])
def test_a_size_without_its_raw_copy_fails(monkeypatch, raw):
    job = Job({"id": "lease-1", "used_bytes": 1 << 30})
    part = sizes.Sizes(job)
    monkeypatch.setattr(part, "raw", lambda size: (raw, "no driver"))
    part.one(1 << 30)
    assert [good for good, _ in job.steps] == [bool(raw), True] and job.steps[0][1] == "no driver"


def test_a_program_that_does_not_end_is_ended():
    job = run.Job(None, "x")
    stays = subprocess.Popen(["sleep", "1000"])
    assert job.end_of(stays, 0.1) is None and stays.poll() == -signal.SIGTERM
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do read x; done"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    assert job.end(stubborn, 0.1) is None and stubborn.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("words, parts", [
    ([], set(run.PARTS)), (["--sim", "1x4GiB"], set(run.PARTS) - {"python"}), (["--parts", "main"], {"main"}),
])
def test_all_parts_run_by_default(monkeypatch, words, parts):
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    assert set(run.arguments().parts) == parts


def test_the_log_of_the_daemon_outlives_the_stage(tmp_path):
    (tmp_path / "subletd").write_text("#!/bin/sh\necho a reason >&2\nexit 1\n")
    (tmp_path / "subletd").chmod(0o755)
    stage = demo.Demo(tmp_path, "1x1GiB", tmp_path / "kept.log")
    with pytest.raises(SystemExit, match="a reason"):
        stage.start_daemon()
    stage.end()
    assert not stage.dir.exists() and (tmp_path / "kept.log").read_text() == "a reason\n"
    assert any("--daemon-log" in one.command for one in day.STEPS)


# ------------------------------------------------------------------------------------------- recording


def load_tool(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def recorder():
    return load_tool("record-driver")


def test_the_archive_has_the_licence_of_each_library_of_its_python(tmp_path):
    if not shutil.which("dpkg-query"):
        pytest.skip("no dpkg-query here")
    tool = load_tool("gpu-day")
    owners = tool.owners_of(tool.libraries_of("/bin/ls").values())
    assert "libc6" in owners and len(owners) > 1
    (tmp_path / "x.so").touch()
    with pytest.raises(SystemExit, match="no package owns"):
        tool.owners_of([str(tmp_path / "x.so")])


@pytest.mark.parametrize("end, answer", [
    (signal.pause, {"hung": True}), (lambda: os.kill(os.getpid(), signal.SIGTRAP), {"died_of_signal": 5}),
])
def test_a_question_that_hangs_or_crashes_leaves_no_program(tmp_path, end, answer):
    def question():
        with checkpoint_questions.program(start=False) as pid:
            (tmp_path / "pid").write_text(str(pid))
            end()
    assert recorder().in_child(question, seconds=3) == answer
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_program_that_does_not_start_is_one_answer(monkeypatch):
    def without_driver():
        raise OSError("no library")

    def question():
        with checkpoint_questions.program():
            return {}
    monkeypatch.setattr(checkpoint_questions, "Cuda", without_driver)
    assert recorder().in_child(question) == {"could_not_be_asked": "RuntimeError: the program did not start"}


def test_a_driver_that_ends_the_process_does_not_end_the_recording():
    assert "ended with 3" in recorder().in_child(lambda: os._exit(3))["could_not_be_asked"]
