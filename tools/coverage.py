#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the line coverage of each folder of src/ from the counters that the programs of a gcov build left.

A line counts if the compiler made code of it, and counts as covered if any program executed it. Unit tests
(*_test.cpp) and src/*/testing/ are not counted. A program that was killed with SIGKILL leaves no counters.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

LEFT_OUT = re.compile(r"_test\.cpp$|^src/[^/]+/testing/")


def files_of(report, root, folder):
    """One document of gcov's JSON -> [(path below `root`, {line: count})] for the files of src/"""
    here = pathlib.Path(report.get("current_working_directory", folder))
    found = []
    for file in report["files"]:
        path = os.path.relpath(os.path.normpath(here / file["file"]), root)
        if path.startswith("src/") and not LEFT_OUT.search(path):
            found.append((path, {line["line_number"]: line["count"] for line in file["lines"]}))
    return found


def read_object(notes, root, gcov):
    """The counts of one object file, whose notes (.gcno) the compiler wrote."""
    # Without counters (.gcda) beside the notes, gcov reports that nothing was executed.
    done = subprocess.run([gcov, "--json-format", "--stdout", notes.name], cwd=notes.parent, capture_output=True,
                          text=True)
    found = []
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found += files_of(json.loads(line), root, notes.parent)
    return found


def merge(reports):
    """-> {path: {line: count}}, the counts of all objects summed"""
    lines = collections.defaultdict(collections.Counter)
    for report in reports:
        for path, counts in report:
            lines[path].update(counts)
    return lines


def table(lines):
    """-> {folder of src/: (covered lines, lines)}"""
    folders = {}
    for path, counts in lines.items():
        folder = "/".join(path.split("/")[:2])
        covered, total = folders.get(folder, (0, 0))
        folders[folder] = covered + sum(1 for count in counts.values() if count), total + len(counts)
    return folders


def show(folders):
    print(f"{'folder':<16} {'lines':>7} {'covered':>8} {'percent':>8}")
    rows = sorted(folders.items())
    rows.append(("all", tuple(map(sum, zip(*folders.values())))))
    for folder, (covered, total) in rows:
        print(f"{folder:<16} {total:>7} {covered:>8} {100 * covered / max(total, 1):>7.1f} %")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--gcov", default="gcov")
    parser.add_argument("--missing", metavar="PREFIX", help="also print the lines never executed of these files")
    args = parser.parse_args(argv)
    notes = sorted(args.build.resolve().rglob("*.gcno"))
    root = args.root.resolve()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = merge(pool.map(lambda one: read_object(one, root, args.gcov), notes))
    if not lines:
        print(f"{args.build} has no objects with counters: is it a build of ./dev coverage?", file=sys.stderr)
        return 1
    for path, counts in sorted(lines.items()):
        never = sorted(line for line, count in counts.items() if not count)
        if args.missing and path.startswith(args.missing) and never:
            print(f"{path}: {' '.join(map(str, never))}")
    show(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
