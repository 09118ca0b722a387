#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files of `./dev release` run on the oldest system that we promise.

Reads with readelf, for every ELF file below a folder, its highest glibc version and its libraries. The loader refuses a
program for one symbol that is too new, called or not. The check therefore reads the linker's result, not the sources.
"""
import argparse
import pathlib
import re
import subprocess
import sys

FLOOR = (2, 35)  # Ubuntu 22.04
# The preloaded library enters programs that were built for older systems than ours.
FLOORS = {"libsublet-cuda.so": (2, 17)}
GLIBC_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
                   "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PROMISED = ("sublet", "subletd", "sublet-gpu", "sublet-actor", "sublet-shim", "sublet-stacks")


def parse(dynamic, versions, sections):
    """The output of readelf -d, -V and -S -> (NEEDED libraries, glibc versions, whether symbols are left)"""
    needed = re.findall(r"\(NEEDED\).*\[([^\]]+)\]", dynamic)
    # Only versions that it needs from others count: a library's own versions are in another section.
    _, _, needs = versions.partition("Version needs section")
    return needed, set(re.findall(r"Name: (GLIBC_\S+)", needs)), ".symtab" in sections


def judge(name, needed, versions, unstripped):
    """-> (highest version as text, the problem)"""
    floor = FLOORS.get(name, FLOOR)
    wrong, highest = [], (0, 0)
    for version in sorted(versions):
        match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if not match:
            wrong.append(f"asks for {version}, which has no number that an older glibc could satisfy")
            continue
        highest = max(highest, (int(match.group(1)), int(match.group(2))))
    if highest > floor:
        wrong.append(f"asks for GLIBC_{highest[0]}.{highest[1]}, the floor is {floor[0]}.{floor[1]}")
    foreign = sorted(set(needed) - GLIBC_LIBRARIES)
    if foreign:
        wrong.append(f"needs {', '.join(foreign)}: link it statically")
    if unstripped:
        wrong.append("is not stripped")
    return f"{highest[0]}.{highest[1]}", wrong


def readelf(flag, path):
    return subprocess.run(["readelf", "-W", flag, str(path)], check=True, capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}).stdout


def too_new_symbols(path, floor):
    """Names of the symbols above the floor, so that a reader knows what to replace."""
    found = []
    for name, major, minor in re.findall(r"(\w+)@GLIBC_(\d+)\.(\d+)", readelf("--dyn-syms", path)):
        if (int(major), int(minor)) > floor:
            found.append(f"{name}@{major}.{minor}")
    return sorted(set(found))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--any", action="store_true", help="do not ask for the programs of a release")
    args = parser.parse_args(argv)
    failed, names = False, set()
    for path in sorted(args.folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
            continue
        names.add(path.name)
        facts = parse(readelf("-d", path), readelf("-V", path), readelf("-S", path))
        highest, wrong = judge(path.name, *facts)
        name, size = str(path.relative_to(args.folder)), path.stat().st_size // 1024
        print(f"{name:40} {size:7} KiB  GLIBC_{highest:6} {'; '.join(wrong) or 'ok'}")
        if wrong:
            failed = True
            for symbol in too_new_symbols(path, FLOORS.get(path.name, FLOOR)):
                print(f"    {symbol}")
    absent = [] if args.any else [name for name in PROMISED if name not in names]
    if absent:
        print(f"not there: {', '.join(absent)}")
    if not names:
        print(f"no ELF file below {args.folder}")
    return 1 if failed or absent or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
