#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All that is to be learned on a machine with a card, in one run of at most eight minutes (tools/gpu-day packs it).

Each step has a time limit and a file for its output, which is kept when the step hangs or fails. A step that does not
end at its limit is killed and left behind. At the end there are report.json and report.md.

  day.py --bin DIR OUT            on the card of this machine
  day.py --bin DIR --sim 1x8GiB OUT    a trial on a simulated card
"""
import argparse
import json
import os
import pathlib
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "SUBLET_GPU_DAY"  # in the environment of all that the steps start
TOTAL = 460.0  # seconds for all steps; what is left of eight minutes is for the report
GRACE = 8.0  # a step has so long to end what it started


class Step:
    """`limit` seconds at most. `least` seconds are kept for the step while earlier steps run."""

    def __init__(self, name, command, limit, least=10):
        self.name, self.command, self.limit, self.least = name, command, limit, least


def make_step(name, limit, least=10):
    """A part of tests/gpu/run.py as a step."""
    return Step(name, ["{python}", "{root}/tests/gpu/run.py", "--bin", "{bin}", "--parts", name, "--brief", "--results",
                       "{out}/checks-" + name + ".jsonl", "--daemon-log", "{out}/daemon-" + name + ".log", "{sim}"],
                limit, least)


STEPS = (
    Step("facts", ["{python}", "{root}/tests/gpu/facts.py", "--bin", "{bin}", "{sim}", "{out}/facts.json"], 40, 20),
    make_step("session", 60, 30),
    make_step("pausing", 110, 40),
    make_step("sizes", 120, 40),
    make_step("limits", 60, 25),
    make_step("interposer", 60, 25),
    make_step("rights", 30, 15),
    Step("recording", ["{python}", "{root}/tools/record-driver", "{record}"], 60, 25),
    make_step("main", 90, 0),
    make_step("python", 60, 0),
)


def fill_in(command, options):
    words = {"{python}": sys.executable, "{root}": str(ROOT), "{bin}": str(options.bin), "{out}": str(options.out)}
    filled = []
    for word in command:
        if word == "{sim}":
            filled += ["--sim", options.sim] if options.sim else []
        elif word == "{record}":
            filled += ["--print"] if options.sim else ["--out", str(options.out)]
        else:
            for name, value in words.items():
                word = word.replace(name, value)
            filled.append(word)
    return filled


def descendants(mark):
    """Returns the processes that have the mark in their environment: what a step left behind."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def kill_all(mark):
    for pid in descendants(mark):
        try:
            os.kill(pid, signal.SIGKILL)  # and no wait: a call that hangs in the kernel outlives the signal
        except OSError:
            continue


def wait(process, seconds):
    """Waits for the end of the process for so long, and without a limit for no process."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    return process.poll()


def run_step(number, step, limit, options):
    mark = f"{MARK}={os.getpid()}-{number}"
    log = options.out / f"{number:02}-{step.name}.log"
    began = time.monotonic()
    try:
        with open(log, "wb") as output:
            try:
                process = subprocess.Popen(fill_in(step.command, options), stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT,
                                           env={**os.environ, MARK: mark.partition("=")[2]})
            except OSError as error:
                output.write(f"{error}\n".encode())
                return {"name": step.name, "outcome": "failed", "seconds": 0.0, "limit": limit, "log": log.name}
        status = wait(process, limit)
        outcome = "passed" if status == 0 else "failed"
        if status is None:
            outcome = "out of time"
            os.killpg(process.pid, signal.SIGTERM)
            wait(process, GRACE)
    finally:  # a step has a session of its own, which no Ctrl-C and no hang-up reaches
        kill_all(mark)
    if b"SKIPPED" in log.read_bytes() and outcome == "passed" and not checks_of(options.out, step.name):
        outcome = "skipped" if step.name not in ("facts", "recording") else outcome
    return {"name": step.name, "outcome": outcome, "seconds": round(time.monotonic() - began, 1), "limit": limit,
            "log": log.name, "checks": checks_of(options.out, step.name)}


def checks_of(out, name):
    path = out / f"checks-{name}.jsonl"
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # cut short when the step was killed
    return lines


def run_all(steps, options, total=TOTAL):
    results, deadline = [], time.monotonic() + total
    for number, step in enumerate(steps, 1):
        later = sum(other.least for other in steps[number:])
        limit = min(step.limit, deadline - time.monotonic() - later)
        if limit < 5:
            results.append({"name": step.name, "outcome": "no time left", "seconds": 0.0, "limit": 0, "checks": []})
            continue
        print(f"== {step.name}: at most {limit:.0f} s", flush=True)
        results.append(run_step(number, step, round(limit, 1), options))
        write_report(results, options)  # after each step: an interrupted run has a report too
        bad = [check for check in results[-1]["checks"] if not check["good"]] if "checks" in results[-1] else []
        print(f"   {results[-1]['outcome']} after {results[-1]['seconds']} s" +
              "".join(f"\n   FAIL {check['what']}: {check['detail']}" for check in bad), flush=True)
    return results


# ---------------------------------------------------------------------------------------------- the report


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def recorded(out):
    """Returns the answers that the driver gave, or None."""
    for path in sorted(out.glob("driver-*.json")):
        return (read_json(path) or {}).get("answers")
    log = next(iter(sorted(out.glob("*-recording.log"))), None)
    return read_json(log) if log else None


def drop_bytes(answer):
    return {key: value for key, value in (answer or {}).items() if not key.endswith("_bytes")}


def differences(out):
    """Returns the questions that this driver answers otherwise than the simulated driver."""
    answers, simulated = recorded(out), read_json(ROOT / "simulated-answers.json")
    if answers is None or simulated is None:
        return None
    return {name: {"driver": drop_bytes(answer), "simulated": drop_bytes(simulated.get(name))}
            for name, answer in answers.items() if drop_bytes(answer) != drop_bytes(simulated.get(name))}


def write_report(results, options):
    out = options.out
    report = {"simulated": bool(options.sim), "machine": platform.platform(), "steps": results,
              "facts": read_json(out / "facts.json"), "differences_from_simulated_driver": differences(out),
              "version": (ROOT / "VERSION").read_text().strip() if (ROOT / "VERSION").exists() else None}
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "report.md").write_text(page(report))


def page(report):
    facts = report["facts"] or {}
    lines = ["# A day with a card", "", f"- version: {report['version']}", f"- machine: {report['machine']}"]
    if report["simulated"]:
        lines.append("- **a trial on a simulated card**: no figure is one of a real card")
    lines += [f"- {key}: {value}" for key, value in (facts.get("summary") or {}).items()]
    lines += ["", "| step | outcome | seconds | checks |", "| --- | --- | --- | --- |"]
    for step in report["steps"]:
        checks = step.get("checks") or []
        good = sum(check["good"] for check in checks)
        lines.append(f"| {step['name']} | {step['outcome']} | {step['seconds']} of {step['limit']} | "
                     f"{f'{good} of {len(checks)} passed' if checks else ''} |")
    for step in report["steps"]:
        if step.get("checks"):
            lines += ["", f"## {step['name']}", ""]
            lines += [f"- {'PASS' if check['good'] else '**FAIL**'} [{check['kind']}] {check['what']}: "
                      f"{check['detail']}" for check in step["checks"]]
    different = report["differences_from_simulated_driver"]
    lines += ["", "## Answers of the driver that differ from the simulated driver", ""]
    if different is None:
        lines.append("There is no recording.")
    for name, pair in (different or {}).items():
        lines.append(f"- {name}: {json.dumps(pair['driver'])}, simulated {json.dumps(pair['simulated'])}")
    if different == {}:
        lines.append("None.")
    return "\n".join(lines) + "\n"


def exit_status(results):
    return 0 if all(result["outcome"] in ("passed", "skipped") for result in results) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where our programs are")
    parser.add_argument("--sim", help="a trial on simulated cards, such as 1x8GiB")
    parser.add_argument("--steps", help="only these, separated by commas: " + ", ".join(step.name for step in STEPS))
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    options.bin, options.out = options.bin.resolve(), options.out.resolve()
    wanted = options.steps.split(",") if options.steps else [step.name for step in STEPS]
    if not set(wanted) <= {step.name for step in STEPS}:
        parser.error(f"--steps: one or more of {', '.join(step.name for step in STEPS)}")
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.sim:
        os.environ["LD_LIBRARY_PATH"] = str(options.bin.parent / "lib/simgpu")  # for the recording
        os.environ["SIMGPU_DIR"] = str(options.out / "simgpu")
        subprocess.run([options.bin / "simgpu-ctl", "--dir", options.out, "create", options.sim], check=True,
                       stdout=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # The folders that a killed step leaves go at the end. Their names are short, as those of sockets must be.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="sublet-day-")
    began = time.monotonic()
    try:
        results = run_all([step for step in STEPS if step.name in wanted], options)
    finally:
        for folder in (os.environ["TMPDIR"], options.out / "simgpu"):
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.out}/report.md and report.json, after {time.monotonic() - began:.0f} s")
    return exit_status(results)


if __name__ == "__main__":
    sys.exit(main())
