#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses the tests that concern the files which differ from main, by the table tools/changed.txt.

Prints a line for each: "unit PROGRAM" or "pytest PATH"; or the single line "everything". The reasons go to stderr.
`--matrices` chooses nothing: it exits with 0 if the kill matrices are to run, and with 3 if not.
"""
import argparse
import ast
import fnmatch
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = "tools/changed.txt"
MAIN = ("main", "origin/main")
# The rules of the tree hold for every file.
ALWAYS = "tests/tools/test_check_tree.py"
# Changes below these places concern the tests marked `matrix`; so do changes of these tests and of their scenes.
MATRICES = ("src/lease/", "src/state/", "src/core/", "src/machine/", "src/pause/", "src/engine/", "src/store/",
            "tests/e2e/test_failpoints.py", "tests/e2e/test_drills_killed.py", "tests/e2e/test_retries.py",
            "tests/support/retrying.py", "tests/support/drills.py", "tests/support/more_drills.py",
            "tests/support/scenarios.py", "tests/support/*_scenarios.py")
NOT_CONCERNED = 3


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def changed_files(root):
    """-> the files that differ from the merge base with main, untracked files included; None if nobody can tell"""
    try:
        for main in MAIN:
            try:
                base = git(root, "merge-base", "HEAD", main).strip()
            except subprocess.CalledProcessError:
                continue
            listed = git(root, "diff", "--name-only", "--no-renames", "-z", base)
            listed += git(root, "ls-files", "--others", "--exclude-standard", "--full-name", "-z")
            return sorted({path for path in listed.split("\0") if path})
    except (OSError, subprocess.CalledProcessError):
        pass
    return None


def list_files(root):
    return git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")[:-1]


# ------------------------------------------------------------------------------------------------ the table

def parse(text):
    """-> {place: words}; "@NAME" in a row stands for the words of the row "@NAME"."""
    rows, words = {}, []
    for line in text.splitlines():
        line = line.partition("#")[0]
        if line and not line[0].isspace():
            place, colon, line = line.partition(":")
            if not colon or place in rows:
                raise ValueError(f"{TABLE}: '{place}' has two rows, or no colon")
            words = rows[place] = []
        words += line.split()
    return {place: [word for word in expand(rows, words) if word != "nothing"]
            for place, words in rows.items() if not place.startswith("@")}


def expand(rows, words):
    for word in words:
        if word.startswith("@"):
            yield from expand(rows, rows[word])
        else:
            yield word


def place_of(table, path):
    """The longest place of the table that is the file, or a folder above it, or None."""
    places = [path, *map(str, pathlib.PurePosixPath(path).parents)]
    return next((place for place in places if place in table), None)


def matching(files, pattern):
    """The files of tests that a path of the table stands for."""
    return [file for file in files if file == pattern or file.startswith(pattern.rstrip("/") + "/") and is_test(file)
            or fnmatch.fnmatch(file, pattern)]


def is_test(path):
    return path.startswith("tests/") and fnmatch.fnmatch(path.rsplit("/", 1)[-1], "test_*.py")


# ------------------------------------------------------------------------------------------------ helpers of tests

def uses(text, name):
    """Tells whether a test uses the helper tests/support/NAME: by import, or as a file."""
    stem = name.removesuffix(".py")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").rsplit(".", 1)[-1]
            if stem == module or module in ("", "support") and stem in [alias.name for alias in node.names]:
                return True
    return f'"{name}"' in text or f"/{name}" in text


def names(text, document):
    """Tells whether a test names a document, as "docs/a.md" or as "docs" / "a.md"."""
    return f'"{document}"' in text or '"' + document.replace("/", '" / "') + '"' in text


def users(texts, name):
    """-> the tests that use a helper of tests/support, by themselves or through other helpers"""
    found, new = set(), {name}
    while new:
        name = new.pop()
        for path, text in texts.items():
            if path not in found and uses(text, name):
                found.add(path)
                if path.startswith("tests/support/"):
                    new.add(path.rsplit("/", 1)[-1])
    return sorted(path for path in found if is_test(path) or path.endswith("/conftest.py"))


# ------------------------------------------------------------------------------------------------ the choice

def choose(table, paths, files, read):
    """-> (names of tests, or None for everything; lines of reasons). `read(path)` is the text of a file."""
    chosen, reasons = {ALWAYS}, {}
    for path in paths:
        place, words = words_for(table, path, files, read)
        reasons.setdefault((place, " ".join(words) or "nothing"), []).append(path)
        for word in words:
            chosen |= set(matching(files, word)) if word.startswith("tests/") else {word}
    told = [f"{place} ({len(paths)} changed): {words}" for (place, words), paths in reasons.items()]
    return None if "all" in chosen else chosen, told


def words_for(table, path, files, read):
    """-> (the place that decided, the words for one changed file)"""
    if is_test(path):
        return path, [path] if path in files else []
    python = [file for file in files if file.startswith("tests/") and file.endswith(".py")]
    if path.startswith("tests/support/"):
        found = users({file: read(file) for file in python}, path.rsplit("/", 1)[-1])
        return path, [file.removesuffix("/conftest.py") for file in found]
    place = place_of(table, path)
    if place is None:
        return path, ["all"]
    tests = [file for file in python if path.endswith(".md") and is_test(file) and names(read(file), path)]
    return path if tests else place, table[place] + tests


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--matrices", action="store_true", help="exit with 0 if the kill matrices are to run, or 3")
    args = parser.parse_args()
    paths = changed_files(ROOT)
    if args.matrices:
        concerned = paths is None or any(path.startswith(place) or fnmatch.fnmatch(path, place)
                                         for path in paths for place in MATRICES)
        return 0 if concerned else NOT_CONCERNED
    if paths is None:
        chosen, told = None, ["no branch main to compare with: everything"]
    else:
        chosen, told = choose(parse((ROOT / TABLE).read_text()), paths, list_files(ROOT),
                              lambda path: (ROOT / path).read_text())
    print("\n".join(told) or "no file differs from main", file=sys.stderr)
    for name in ["everything"] if chosen is None else sorted(chosen):
        print(name if chosen is None else f"pytest {name}" if name.startswith("tests/") else f"unit {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
