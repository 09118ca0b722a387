#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files of `./dev release` run on the oldest system that we promise, and that no file is missing.

Reads with readelf, for every ELF file below a folder, its highest glibc version and its libraries. The loader refuses a
program for one symbol that is too new, called or not. The check therefore reads the linker's result, not the sources.
With --packages it also compares what is given to others with the list of what belongs to a release.
"""
import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sbom  # noqa: E402

FLOOR = (2, 35)  # Ubuntu 22.04
# The preloaded library enters programs that were built for older systems than ours.
FLOORS = {"libsublet-cuda.so": (2, 17)}
GLIBC_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
                   "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PROMISED = ("sublet", "subletd", "sublet-gpu", "sublet-actor", "sublet-keep", "sublet-shim", "sublet-simulate",
            "sublet-stacks", "sublet-kube", "sublet-probe", "simgpu-ctl", "simgpu-load")
# The files of a release besides programs, below the prefix.
DOCUMENTS = (
    "lib/systemd/system/subletd.service", "lib/systemd/system/subletd.socket",
    "lib/systemd/system/sublet-actor.service", "lib/systemd/system/sublet-actor.socket",
    "lib/systemd/system/sublet-keeper@.service", "lib/systemd/system/sublet-keeper.socket",
    "lib/systemd/system/sublet-stacks.service", "lib/systemd/system/sublet-stacks.socket",
    "lib/sysusers.d/sublet.conf", "lib/tmpfiles.d/sublet.conf", "lib/sublet/libsublet-cuda.so",
    "lib/simgpu/libcuda.so.1", "lib/simgpu/libnvidia-ml.so.1", "share/man/man1/sublet.1",
    "share/man/man5/sublet.toml.5",
    "share/man/man8/subletd.8", "share/man/man8/sublet-kube.8", "share/man/man1/sublet-probe.1",
    "share/bash-completion/completions/sublet", "share/doc/sublet/sublet.toml",
    "share/doc/sublet/README.md", "share/doc/sublet/LICENSE", "share/doc/sublet/CHANGELOG.md",
    "share/sublet/slurm/spank_sublet.c", "share/sublet/slurm/vram_size.h", "share/sublet/slurm/job_submit.lua",
    "share/sublet/kubernetes/kubectl-sublet", "share/sublet/kubernetes/kube_image.py",
    "share/doc/sublet/kubernetes/manifests/sublet.yaml",
    "share/doc/sublet/docs/upgrading.md", "share/doc/sublet/api/openapi.yaml")
# The files that are given to others, by the patterns of their names.
FILES = ("sublet_*.deb", "sublet-simgpu_*.deb", "sublet-kube_*.deb",
         "sublet-*-linux-x86_64.tar.gz", "sublet-*.whl", "sublet-*.tar.gz",
         "sublet.spdx.json", "sublet-simgpu.spdx.json", "sublet-kube.spdx.json", "install.sh", "SHA256SUMS")
ARCHIVE = "-linux-x86_64.tar.gz"
DEPENDS = re.compile(r"libc6|adduser|sublet")


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


def wrong_sums(folder):
    """Returns the files whose sum is missing or wrong."""
    noted = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
             for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS"}
    return sorted(name for name in noted.keys() | there.keys() if noted.get(name) != there.get(name))


def given(folder, pattern):
    """Returns the files of the pattern. The pattern of the Python source matches the archive too, which is another."""
    return [path for path in folder.glob(pattern) if pattern.endswith(ARCHIVE) or not path.name.endswith(ARCHIVE)]


def place_in_package(name):
    """Returns the package that has a file of a release, and the file's place in that package."""
    package = "sublet-simgpu" if "/simgpu" in name else "sublet"
    if re.search(r"/sublet-(kube|probe)\b", name):
        package = "sublet-kube"
    if name == "share/doc/sublet/sublet.toml":
        return package, "./etc/sublet/sublet.toml"
    if name == "share/doc/sublet/LICENSE":
        name = "share/doc/sublet/copyright"
    compressed = name.startswith("share/man/") or name.endswith("/CHANGELOG.md")
    return package, f"./usr/{name}{'.gz' if compressed else ''}"


def absent_from_archive(archive, linked):
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = [f"bin/{name}" for name in PROMISED] + [*DOCUMENTS, "install.sh", "VERSION",
                                                     "share/doc/sublet/sublet.spdx.json"]
    return sorted({*wanted, *(f"share/doc/sublet/third-party/{name}.txt" for name in linked)} - names)


def wrong_with_package(package, linked):
    said = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True, text=True).stdout
    names = {line.split()[5] for line in said.splitlines()}
    own = package.name.partition("_")[0]
    folder = f"./usr/share/doc/{own}"
    places = [place_in_package(name) for name in (*(f"bin/{name}" for name in PROMISED), *DOCUMENTS)]
    wanted = {place for owner, place in places if owner == own} | {f"{folder}/copyright", f"{folder}/{own}.spdx.json"}
    found = [f"{package.name} has no {place}" for place in sorted(wanted - names)]
    found += [f"{package.name} has no licence of {name}" for name in linked
              if f"{folder}/third-party/{name}.txt.gz" not in names]
    depends = subprocess.run(["dpkg-deb", "-f", package, "Depends"], check=True, capture_output=True, text=True).stdout
    return found + [f"{package.name} depends on {word.strip()}" for word in depends.split(",")
                    if not DEPENDS.match(word.strip())]


def judge_packages(folder):
    """Returns all that is wrong with the files that are given to others."""
    found = [f"no {pattern} in {folder}" for pattern in FILES if not given(folder, pattern)]
    if found:
        return found
    found = [f"{name}: SHA256SUMS does not have its sum" for name in wrong_sums(folder)]
    everything = {}
    for document in folder.glob("*.spdx.json"):
        linked = sbom.read_libraries(document)
        everything |= linked
        found += [f"{document.name} has no licence for {name}" for name, licence in linked.items()
                  if licence in ("", "NOASSERTION")]
        found += [] if linked else [f"{document.name} names no library"]
        for package in folder.glob(f"{document.name.partition('.')[0]}_*.deb"):
            found += wrong_with_package(package, linked)
    for archive in folder.glob("sublet-*-linux-x86_64.tar.gz"):
        found += [f"{archive.name} has no {name}" for name in absent_from_archive(archive, everything)]
    return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path, help="the folder with the files that are given to others")
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
    wrong = judge_packages(args.packages) if args.packages else []
    for problem in wrong:
        print(problem)
    return 1 if failed or absent or wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
