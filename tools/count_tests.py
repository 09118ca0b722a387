#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sums the cases of GoogleTest programs and pytest into one closing line, and into one exit status.

Reads what `./dev test` left in its report folder: ctest.json (which programs ctest was to run), ctest.xml
(how they ended), gtest/*.xml (their cases) and pytest.xml. A program that ended badly without reporting a
failed case (it crashed, or a sanitizer spoke at exit) counts as one failure: a crash hides nothing.

The counts are also written to total.json in the report folder. `--sum FOLDER...` adds those of several folders; a
folder without total.json counts as one failure, because its tests did not come to an end. `--slowest N` lists the N
tests that took longest, of both kinds.
"""
import argparse
import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ET

TOTAL = "total.json"


def case_outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def count_cases(path):
    return collections.Counter(case_outcome(case) for case in ET.parse(path).getroot().iter("testcase"))


def cases_by_program(folder):
    """Program name -> its counted cases. GoogleTest adds _1, _2 ... when one program runs several times."""
    found = collections.defaultdict(collections.Counter)
    for path in folder.glob("*.xml"):
        stem = path.stem
        head, _, tail = stem.rpartition("_")
        try:
            found[head if tail.isdigit() else stem] += count_cases(path)
        except ET.ParseError:
            pass  # cut short by a crash: ctest's own verdict on the program counts instead
    return found


def count_unit(report):
    total = collections.Counter()
    ctest_xml = report / "ctest.xml"
    if not ctest_xml.exists():
        return total
    programs = {}
    for test in json.loads((report / "ctest.json").read_text())["tests"]:
        command = test.get("command") or [test["name"]]
        programs[test["name"]] = pathlib.Path(command[0]).name
    verdicts = collections.defaultdict(list)
    for case in ET.parse(ctest_xml).getroot().iter("testcase"):
        # ctest writes status="run" for a pass, "fail" for a failure, "notrun"/"disabled" otherwise.
        outcome = {"run": "passed", "fail": "failed"}.get(case.get("status"), case_outcome(case))
        if case.get("status") == "notrun" and case.find("skipped") is None:
            outcome = "failed"  # the program was not found
        verdicts[programs.get(case.get("name"), case.get("name"))].append(outcome)
    cases = cases_by_program(report / "gtest")
    for program, outcomes in verdicts.items():
        counted = cases.get(program)
        if not counted:
            total.update(outcomes)
            continue
        total += counted
        if "failed" in outcomes and not counted["failed"]:
            total["failed"] += 1
    return total


def count_pytest(report):
    path = report / "pytest.xml"
    return count_cases(path) if path.exists() else collections.Counter()


def conclude(total, report=None, left_out=""):
    """Prints the closing line; -> the exit status"""
    if report:
        (report / TOTAL).write_text(json.dumps(total))
    more = f" ({left_out})" if left_out else ""
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped{more}", flush=True)
    return 1 if total["failed"] else 0


def sum_reports(folders):
    total = collections.Counter()
    for folder in folders:
        if (folder / TOTAL).exists():
            total.update(json.loads((folder / TOTAL).read_text()))
        else:
            print(f"{folder} has no {TOTAL}: its tests did not come to an end", file=sys.stderr)
            total["failed"] += 1
    return conclude(total)


def list_slowest(folders, count):
    """Prints the tests that took longest: programs of ctest and tests of pytest, in seconds of wall time."""
    taken = []
    for path in (folder / name for folder in folders for name in ("ctest.xml", "pytest.xml")):
        if path.exists():
            taken += [(float(case.get("time") or 0), ".".join(filter(None, (case.get("classname"), case.get("name")))))
                      for case in ET.parse(path).getroot().iter("testcase")]
    print(f"the slowest of {len(taken)} tests:")
    for seconds, name in sorted(taken, reverse=True)[:count]:
        print(f"{seconds:8.1f} s  {name}")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path, nargs="+")
    parser.add_argument("--sum", action="store_true", help="add the counts that earlier calls wrote to each folder")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="list the N tests that took longest")
    parser.add_argument("--may-be-empty", action="store_true", help="a report without any case is no failure")
    parser.add_argument("--unit-status", default="-", help="exit status of ctest, or - if it did not run")
    parser.add_argument("--pytest-status", default="-", help="exit status of pytest, or -")
    parser.add_argument("--left-out", default="", metavar="TEXT", help="the closing line tells this")
    args = parser.parse_args(argv)
    if args.slowest:
        list_slowest(args.report, args.slowest)
    if args.sum:
        return sum_reports(args.report)
    report, = args.report
    unit, py = count_unit(report), count_pytest(report)
    for name, status, counted in (("ctest", args.unit_status, unit), ("pytest", args.pytest_status, py)):
        if status not in ("-", "0") and not counted["failed"]:
            print(f"{name} ended with status {status} and named no failed case", file=sys.stderr)
            counted["failed"] += 1
    total = unit + py
    if not total["passed"] and not total["failed"] and not args.may_be_empty:
        print("no test ran", file=sys.stderr)
        total["failed"] += 1
    return conclude(total, report, args.left_out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
