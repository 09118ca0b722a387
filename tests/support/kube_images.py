# SPDX-License-Identifier: Apache-2.0
"""Images for containerd, made of files of this machine: nothing is pulled."""
import pathlib
import sys

from .contract import ROOT
from .sublet import BIN, BUILD

sys.path.insert(0, str(ROOT / "tools"))
from kube_image import files_of, layer, libraries_of, write_agent, write_image  # noqa: E402

BUSYBOX = {"/bin/busybox": "/usr/bin/busybox"}
LOADER = "/lib64/ld-linux-x86-64.so.2"
APPLETS = ("sh", "sleep", "true", "cat", "test", "touch", "echo", "kill", "env", "ls", "grep")
# GPU_MEM is the size of the lease, which has the program's context too.
SMOKE = 'size=${GPU_MEM:-512M}; exec simgpu-load --alloc "$((${size%M*} - 64))MiB" --seconds 600 --verify'


def write_images(folder):
    """Writes all images of the tests and returns their paths."""
    files = {**BUSYBOX, **files_of(BIN / "simgpu-load", BIN / "sublet")}
    for library in (BUILD / "lib/simgpu").iterdir():
        files[f"/usr/lib/simgpu/{library.name}"] = library
        files.update({needed: needed for needed in libraries_of(library)})
    # A loader that preloads nothing by itself, as those of other C libraries.
    other = folder / "other-loader"
    other.write_bytes(pathlib.Path(LOADER).read_bytes().replace(b"/etc/ld.so.preload", b"/etc/ld.so.nothing"))
    other.chmod(0o755)
    files["/usr/bin/other-loader"] = other
    links = {f"/bin/{name}": "busybox" for name in APPLETS}
    write_image(folder / "0.tar", "docker.io/library/gpu-test-image:latest", layer(files, links), {
        "Env": ["PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=/usr/lib/simgpu"], "Cmd": ["/bin/sh", "-c", SMOKE]})
    write_image(folder / "1.tar", "docker.io/sublet-test/pause:1", layer(BUSYBOX, {}), {
        "Entrypoint": ["/bin/busybox", "sleep", "1000000"]})
    paths = [folder / "0.tar", folder / "1.tar"]
    if (BIN / "sublet-kube").exists():
        paths.append(folder / "2.tar")
        write_agent(paths[-1], BIN)
    return paths
