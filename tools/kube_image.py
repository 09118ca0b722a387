#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the image of sublet-kube without a container engine and without a registry, from the programs of a build or of
the packages of a release, and the libraries of this machine. `ctr -n k8s.io images import FILE` takes the file.
"""
import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile


def libraries_of(program):
    """Returns the libraries that the program is linked with, its loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    return sorted(set(re.findall(r"(/\S+) \(0x", done.stdout)))


def files_of(*programs):
    """Returns paths in the image and on this machine: the programs in /usr/bin, and their libraries."""
    files = {}
    for program in programs:
        files[f"/usr/bin/{pathlib.Path(program).name}"] = program
        files.update({library: library for library in libraries_of(program)})
    return files


def layer(files, links):
    """Returns a layer as a tar: `files` maps paths in the image to paths of this machine, `links` to other paths."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name in ("tmp", "etc", "var", "run", "usr"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name, source in sorted(files.items()):
            info = tar.gettarinfo(os.path.realpath(source), name.lstrip("/"))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            with open(source, "rb") as opened:
                tar.addfile(info, opened)
        for name, target in sorted(links.items()):
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return text.getvalue()


def write_image(path, name, content, config):
    """Writes an archive with one layer, as `docker save` does."""
    identity = hashlib.sha256(content).hexdigest()
    described = json.dumps({"architecture": "amd64", "os": "linux", "config": config,
                            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{identity}"]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for member, data in (("config.json", described), ("layer.tar", content), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_agent(path, programs, name="docker.io/library/sublet-kube:latest"):
    write_image(path, name, layer(files_of(programs / "sublet-kube", programs / "sublet"), {}),
                {"Env": ["PATH=/usr/bin"], "Entrypoint": ["/usr/bin/sublet-kube"]})


def unpack(packages, into):
    """Unpacks the packages with the programs of the image, and returns the folder of the programs."""
    for name in ("sublet", "sublet-kube"):
        found = sorted(packages.glob(f"{name}_*.deb"))
        if len(found) != 1:
            raise SystemExit(f"kube_image: {packages} has {len(found)} files {name}_*.deb, and one is needed")
        subprocess.run(["dpkg-deb", "-x", found[0], into], check=True)
    return pathlib.Path(into) / "usr/bin"


def main():
    parser = argparse.ArgumentParser(description=" ".join(__doc__.split()))
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"), help="folder of the programs")
    parser.add_argument("--packages", type=pathlib.Path, help="folder with the packages of a release, instead of --bin")
    parser.add_argument("--name", default="docker.io/library/sublet-kube:latest", help="name and tag of the image")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("sublet-kube.tar"), help="the file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return make(unpack(args.packages, folder) if args.packages else args.bin, args.name, args.out)


def make(programs, name, out):
    if not (programs / "sublet-kube").exists():
        print(f"kube_image: {programs} has no sublet-kube: ./dev build makes it where gRPC is installed, "
              "and --bin /usr/bin is the folder of the packages", file=sys.stderr)
        return 1
    write_agent(out, programs, name)
    print(f"{out}: {out.stat().st_size >> 20} MiB, {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
