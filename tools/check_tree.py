#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the repository against its own rules: arrows, lengths, banned calls, true documents, plain English.

The rules are in tools/treecheck/, the table of arrows in tools/arrows.txt, what is excused (with the reason)
in tools/check_tree.exceptions. Run by `./dev tidy` and, as a test, by `./dev test`.
"""
import argparse
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from treecheck import Finding, arrows, code, contract, coroutines, docs, prose, terms  # noqa: E402

EXCEPTIONS = "tools/check_tree.exceptions"
MOST_BYTES = 1 << 20


def list_files(root):
    """The files that git tracks or would track; without git (a source archive) everything that is not built."""
    try:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True,
                                capture_output=True, text=True).stdout
        return [path for path in listed.split("\0") if path and (root / path).is_file()]
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders
                          if not name.startswith(("build", ".venv", ".git", "__pycache__", "dist"))]
            found += [str((pathlib.Path(folder) / name).relative_to(root)) for name in files]
        return found


def read_tree(root):
    """-> (path -> text, findings on files that are not text or too big)"""
    tree, findings = {}, []
    for path in list_files(root):
        data = (root / path).read_bytes()
        if len(data) > MOST_BYTES:
            findings.append(Finding(path, 1, "size", f"{len(data)} bytes, at most {MOST_BYTES}"))
        try:
            tree[path] = data.decode("utf-8")
        except UnicodeDecodeError:
            tree[path] = ""  # exists, and has nothing to read
    return tree, findings


def read_exceptions(text):
    """-> {(rule, path): line}; a line without a reason is a finding of its own."""
    excused, findings = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        head, _, reason = line.partition(":")
        words = head.split()
        if len(words) != 2 or not reason.strip():
            findings.append(Finding(EXCEPTIONS, number, "exception", "write RULE PATH: REASON"))
        else:
            excused[tuple(words)] = number
    return excused, findings


def check(tree):
    """All findings on a tree, sorted, exceptions applied."""
    rules = (arrows, code, contract, coroutines, docs, prose, terms)
    findings = [finding for rule in rules for finding in rule.check(tree)]
    excused, left = read_exceptions(tree.get(EXCEPTIONS, ""))
    used = set()
    for finding in findings:
        key = (finding.rule, finding.path)
        if key in excused:
            used.add(key)
        else:
            left.append(finding)
    for key in excused.keys() - used:
        message = f"'{' '.join(key)}' excuses nothing: remove it"
        left.append(Finding(EXCEPTIONS, excused[key], "exception", message))
    return sorted(left)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--no-warnings", action="store_true", help="print only what fails the check")
    args = parser.parse_args()
    tree, findings = read_tree(args.root)
    findings += check(tree)
    commits, skipped = prose.check_commits(args.root)
    findings += commits
    if skipped:
        print(f"commit titles are not checked: {skipped}", file=sys.stderr)
    failed = [finding for finding in findings if not finding.warning]
    for finding in findings:
        if not (finding.warning and args.no_warnings):
            print(finding)
    warnings = len(findings) - len(failed)
    print(f"{len(tree)} files, {len(failed)} findings, {warnings} warnings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
