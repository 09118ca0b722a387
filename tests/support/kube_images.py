# SPDX-License-Identifier: Apache-2.0
"""Images for containerd, made of files of this machine: nothing is pulled."""
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

from .sublet import BIN, BUILD

BUSYBOX = "/usr/bin/busybox"
APPLETS = ("sh", "sleep", "true", "cat", "test", "touch", "echo", "kill", "env", "ls", "grep")
# GPU_MEM is the size of the lease, which has the program's context too.
SMOKE = 'size=${GPU_MEM:-512M}; exec simgpu-load --alloc "$((${size%M*} - 64))MiB" --seconds 600 --verify'


def libraries_of(program):
    """Returns the libraries that the program is linked with, its loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    return sorted(set(re.findall(r"(/\S+) \(0x", done.stdout)))


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
            with open(source, "rb") as opened:
                tar.addfile(info, opened)
        for name, target in sorted(links.items()):
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return text.getvalue()


def write_image(path, name, content, config):
    """Writes an archive that `ctr images import` takes."""
    identity = hashlib.sha256(content).hexdigest()
    described = json.dumps({"architecture": "amd64", "os": "linux", "config": config,
                            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{identity}"]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for member, data in (("config.json", described), ("layer.tar", content), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def with_busybox(*programs):
    """Returns files and links for busybox and these programs with all their libraries."""
    files = {"/bin/busybox": BUSYBOX}
    for program in programs:
        if not pathlib.Path(program).exists():
            continue
        files[f"/usr/bin/{pathlib.Path(program).name}"] = program
        files.update({library: library for library in libraries_of(program)})
    return files, {f"/bin/{name}": "busybox" for name in APPLETS}


def write_images(folder):
    """Writes all images of the tests and returns their paths."""
    simulated = BUILD / "lib/simgpu"
    files, links = with_busybox(BIN / "simgpu-load", BIN / "sublet")
    for library in simulated.iterdir():
        files[f"/usr/lib/simgpu/{library.name}"] = library
        files.update({needed: needed for needed in libraries_of(library)})
    made = {"gpu-test-image": (files, links, {
        "Env": ["PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/usr/lib/simgpu"],
        "Cmd": ["/bin/sh", "-c", SMOKE]})}
    made["sublet-kube"] = (*with_busybox(BIN / "sublet-kube", BIN / "sublet"), {
        "Env": ["PATH=/usr/bin:/bin"], "Entrypoint": ["/usr/bin/sublet-kube"]})
    made["sublet-test/pause:1"] = ({"/bin/busybox": BUSYBOX}, {}, {"Entrypoint": ["/bin/busybox", "sleep", "1000000"]})
    paths = []
    for name, (content, linked, config) in made.items():
        path = folder / f"{len(paths)}.tar"
        full = f"docker.io/library/{name}:latest" if ":" not in name else f"docker.io/{name}"
        write_image(path, full, layer(content, linked), config)
        paths.append(path)
    return paths
