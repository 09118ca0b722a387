#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format, clang-tidy and the checker of the tree, over all files of the repository or over those named; and the
types of the Python package.

Called by `./dev tidy`, which installs the two programs and configures a build folder for compile commands.
"""
import argparse
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys

import rewrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = (".cpp", ".h", ".c")


def repository_files():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path.endswith(SOURCE) and (ROOT / path).exists()]


def program(name):
    found = shutil.which(f"{name}-14") or shutil.which(name)
    if not found:
        sys.exit(f"tidy: no {name}-14 here; ./dev tidy installs it on Debian and Ubuntu")
    return found


def run_format(files, fix):
    if not files:
        return True
    if fix:
        rewrap.main([str(ROOT / path) for path in files])
    command = [program("clang-format"), "-i"] if fix else [program("clang-format"), "--dry-run", "-Werror"]
    return subprocess.run(command + files, cwd=ROOT).returncode == 0


def run_tidy(files, build, jobs):
    """clang-tidy over the files that the build compiles; headers are seen through what includes them."""
    commands = json.loads((ROOT / build / "compile_commands.json").read_text())
    compiled = {str(pathlib.Path(entry["file"]).relative_to(ROOT)) for entry in commands}
    clang_tidy = program("clang-tidy")

    def one(path):
        # g++'s own warning flags mean nothing to clang.
        command = [clang_tidy, "--quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option", path]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return path, done.returncode, done.stdout

    passed = True
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, status, output in pool.map(one, sorted(compiled & set(files))):
            if status:
                passed = False
                print(f"clang-tidy: {path}\n{output}", flush=True)
    return passed


def run_mypy(files):
    """mypy --strict over the Python package, unless other files are named."""
    if files and not any(path.endswith(".py") for path in files):
        return True
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".cache/mypy", "src"],
                          cwd=ROOT / "python")
    if done.returncode:
        print("tidy: mypy is not content, or is not installed: ./dev setup installs it", flush=True)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="default: all of the repository")
    parser.add_argument("--build", required=True, help="build folder whose compile_commands.json is used")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fix", action="store_true", help="only rewrite the files: long comments, then clang-format")
    parser.add_argument("--no-clang-tidy", action="store_true", help="only the quick ones")
    args = parser.parse_args()
    files = [path for path in args.files if path.endswith(SOURCE)] if args.files else repository_files()
    passed = run_format(files, args.fix)
    if args.fix:
        return 0 if passed else 1
    passed &= subprocess.run([sys.executable, "tools/check_tree.py"], cwd=ROOT).returncode == 0
    passed &= run_mypy(args.files)
    if not args.no_clang_tidy:
        passed &= run_tidy(files, args.build, args.jobs)
    print("tidy: nothing to say" if passed else "tidy: see above", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
