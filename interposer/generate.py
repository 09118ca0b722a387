#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of the interposer from the lists of names in symbols/ and from families.tsv.

generate.py [FOLDER]: writes into FOLDER, else into generated/. The tables are committed, so that a build needs no
Python and a review sees each new hook. tests/interposer compares them with what this program writes.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Hooks that do more than count and forward, by the file that has them.
WRITTEN = tuple("""
    cuInit cuGetProcAddress cuGetProcAddress_v2 cuGetProcAddress_v2_ptsz
    cuMemAlloc cuMemAlloc_v2 cuMemAllocPitch cuMemAllocPitch_v2 cuMemAllocManaged
    cuMemFree cuMemFree_v2 cuMemFreeAsync cuMemFreeAsync_ptsz
    cuArrayCreate cuArrayCreate_v2 cuArray3DCreate cuArray3DCreate_v2 cuArrayDestroy
    cuMipmappedArrayCreate cuMipmappedArrayDestroy
    cuMemCreate cuMemRelease cuMemRetainAllocationHandle cuMemMap cuMemUnmap
    cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz
    cuMemPoolCreate cuMemPoolDestroy
    cuCtxCreate cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2 cuCtxDetach cuCtxSetLimit
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuGreenCtxCreate
    cuMemGetInfo cuMemGetInfo_v2 cuDeviceTotalMem cuDeviceTotalMem_v2
""".split())  # hooks.c, memory.c, arrays.c, mapping.c, pools.c, contexts.c, sizes.c
# Hooks that count what a call does: launches.c and counted.c.
WRITTEN += tuple("""
    cuCtxSynchronize cuCtxSynchronize_v2 cuEventQuery cuEventSynchronize cuGraphLaunch cuGraphLaunch_ptsz
    cuLaunch cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchCooperativeKernel_ptsz
    cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchKernel_ptsz
    cuMemcpy cuMemcpy2D cuMemcpy2DAsync cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz cuMemcpy2DUnaligned
    cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds cuMemcpy2D_v2 cuMemcpy2D_v2_ptds cuMemcpy3D
    cuMemcpy3DAsync cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeer cuMemcpy3DPeerAsync
    cuMemcpy3DPeerAsync_ptsz cuMemcpy3DPeer_ptds cuMemcpy3D_v2 cuMemcpy3D_v2_ptds cuMemcpyAsync
    cuMemcpyAsync_ptsz cuMemcpyAtoA cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds cuMemcpyAtoD cuMemcpyAtoD_v2
    cuMemcpyAtoD_v2_ptds cuMemcpyAtoH cuMemcpyAtoHAsync cuMemcpyAtoHAsync_v2 cuMemcpyAtoHAsync_v2_ptsz
    cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2
    cuMemcpyBatchAsync_v2_ptsz cuMemcpyDtoA cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds cuMemcpyDtoD cuMemcpyDtoDAsync
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds cuMemcpyDtoH
    cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds
    cuMemcpyHtoA cuMemcpyHtoAAsync cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz cuMemcpyHtoA_v2
    cuMemcpyHtoA_v2_ptds cuMemcpyHtoD cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz
    cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz cuMemcpyPeer_ptds
    cuMemcpy_ptds cuStreamQuery cuStreamQuery_ptsz cuStreamSynchronize cuStreamSynchronize_ptsz
""".split())
# The library's exports besides the driver's functions.
OURS = ("dlsym", "dlvsym", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
        "sublet_cuda_adopt", "sublet_cuda_adopt_share", "sublet_cuda_calls", "sublet_cuda_report", "sublet_cuda_use")


def lines(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def names():
    """All functions that any listed driver has, sorted as strcmp does."""
    return sorted({name for path in (HERE / "symbols").glob("*.txt") for name in lines(path)})


def families():
    """-> prefix -> (family, name that the self-test asks for, or None)"""
    rows = (line.split("\t") for line in lines(HERE / "families.tsv"))
    return {prefix: (family, None if probe == "-" else probe) for prefix, family, probe in rows}


def family_of(name, table):
    """The family of the longest prefix; None for a name of no family."""
    prefix = max((prefix for prefix in table if name.startswith(prefix)), key=len, default=None)
    return table[prefix][0] if prefix else None


def base_of(name):
    """The name by which cuGetProcAddress knows an export."""
    return re.sub(r"(_v\d+)?(_ptds|_ptsz)?$", "", name)


def problems(all_names, table):
    """The decisions that a person has to make before the tables can be made."""
    found = [f"{name} has no family: add a prefix to families.tsv" for name in all_names if not family_of(name, table)]
    bases = {base_of(name) for name in all_names}
    found += [f"the self-test asks for {probe}, which no list has" for _, probe in table.values()
              if probe and probe not in bases]
    return found


def exports(all_names, table):
    rows = [f"{'WRITTEN' if name in WRITTEN else 'HOOK'}({name}, {family_of(name, table)})" for name in all_names]
    return "// Generated by generate.py; not to be edited.\n" + "\n".join(rows) + "\n"


def prefixes(table):
    rows = [f"PREFIX({prefix}, {len(prefix)}, {int(family != 'query')})" for prefix, (family, _) in table.items()]
    rows += [f"PROBE({probe})" for _, probe in table.values() if probe]
    return "// Generated by generate.py; not to be edited.\n" + "\n".join(rows) + "\n"


def version_script(all_names):
    body = "".join(f"    {name};\n" for name in [*OURS, *all_names])
    return "# Generated by generate.py; not to be edited.\n{\n  global:\n" + body + "  local: *;\n};\n"


def main():
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "generated"
    all_names, table = names(), families()
    if wrong := problems(all_names, table):
        sys.exit("\n".join(wrong))
    target.mkdir(exist_ok=True)
    (target / "exports.inc").write_text(exports(all_names, table))
    (target / "families.inc").write_text(prefixes(table))
    (target / "exports.map").write_text(version_script(all_names))


if __name__ == "__main__":
    main()
