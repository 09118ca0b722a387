#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time that the preloaded library adds to a call of the driver and to an allocation under a limit, and the memory
that it adds to a process.

The driver is a library whose functions return at once, so that the call itself costs as little as a call can. The bare
program and the hooked program run in turn, and the median of each counts. Time is the CPU time of the calling threads.

An allocation is measured as a pair: one of a hundred is freed and allocated again, bare and with a limit, on a
simulated card and on a driver that does nothing.

interposer_bench.py [CALLS]
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
if "SUBLET_BUILD_DIR" in os.environ:
    os.environ["SUBLET_BUILD"] = str(ROOT / os.environ["SUBLET_BUILD_DIR"])
sys.path.insert(0, str(ROOT))
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c, environment  # noqa: E402
from tests.support.sublet import BUILD  # noqa: E402

CALLS = int(sys.argv[1]) if len(sys.argv) == 2 else 10_000_000
ROUNDS = 5
GOAL_NS, GOAL_BYTES, GOAL_RATIO = 50.0, 10 << 20, 1.5


def private_bytes(env):
    """Bytes that a process which has called the driver has for itself."""
    script = ("import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
              "lines = [line.split() for line in open('/proc/self/smaps_rollup')]\n"
              "print(sum(int(words[1]) for words in lines if words[0].startswith('Private')))")
    done = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True)
    return 1024 * int(done.stdout)


def pairs(folder, driver, size, **variables):
    """-> nanoseconds of a pair: bare, and with a limit"""
    target = folder / f"steady-{driver.parent.name}"
    program = compile_c(target, "-O2", "-I", ROOT / "src", SOURCES / "steady.c", driver)
    envs = [environment(*preloads, driver=driver.parent, **variables) for preloads in ((), (LIBRARY,))]
    measured = [[], []]
    for _ in range(ROUNDS):
        for kind, env in enumerate(envs):
            done = subprocess.run([program, str(CALLS // 20), str(size)], env=env, check=True, capture_output=True,
                                  text=True)
            measured[kind].append(float(done.stdout))
    return [statistics.median(figures) for figures in measured]


def allocations(folder):
    """Prints the cost of allocations under a limit. -> whether a goal was missed"""
    (folder / "null").mkdir()
    null = folder / "null/libcuda.so.1"
    compile_c(null, "-shared", "-O2", "-Wl,-soname,libcuda.so.1", SOURCES / "null_driver.c")
    subprocess.run([BUILD / "bin/simgpu-ctl", "--dir", folder, "create", "1x24GiB"], check=True, capture_output=True)
    missed = False
    for size, text in ((4096, "4 KiB"), (32 << 20, "32 MiB")):
        bare, limited = pairs(folder, DRIVER / "libcuda.so.1", size, SIMGPU_DIR=folder / "simgpu")
        missed = missed or limited > GOAL_RATIO * bare
        print(f"free and allocate {text}, simulated card: bare {bare:.0f} ns, limited {limited:.0f} ns, ratio to raw "
              f"{limited / bare:.2f} (goal {GOAL_RATIO})")
    bare, limited = pairs(folder, null, 32 << 20)
    print(f"free and allocate 32 MiB, a driver that does nothing: bare {bare:.0f} ns, limited {limited:.0f} ns, the "
          f"limit {limited - bare:.0f} ns, ratio to raw {limited / bare:.2f}")
    return missed


def calls(folder, text, source, *defines, goal=GOAL_NS):
    """Prints the cost of a call, in one thread and in many. -> whether the goal was missed"""
    folder.mkdir(exist_ok=True)
    driver, missed = folder / "libcuda.so.1", False
    compile_c(driver, "-shared", "-O2", "-Wl,-soname,libcuda.so.1", SOURCES / source)
    program = compile_c(folder / "cost", "-O2", "-I", ROOT / "src", *defines, SOURCES / "cost.c", driver)
    envs = {"bare": environment(driver=folder), "hooked": environment(LIBRARY, driver=folder)}
    for threads in (1, 16):
        measured = {"bare": [], "hooked": []}
        for _ in range(ROUNDS):
            for kind, env in envs.items():
                done = subprocess.run([program, str(CALLS), str(threads)], env=env, check=True, capture_output=True,
                                      text=True)
                measured[kind].append(float(done.stdout))
        bare, hooked = (statistics.median(measured[kind]) for kind in ("bare", "hooked"))
        missed = missed or hooked - bare > goal
        print(f"{text}, {threads:2} threads, {CALLS} calls: bare {bare:.1f} ns, hooked {hooked:.1f} ns, the hook "
              f"{hooked - bare:.1f} ns (goal {goal:.0f} ns), ratio to raw {hooked / bare:.2f}")
    return missed


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        missed = calls(folder / "fake", "a call", "fake_driver.c")
        missed = calls(folder / "launch", "a launch", "null_driver.c", "-DLAUNCH") or missed
        calls(folder / "share", "a launch in a lease with a share", "null_driver.c", "-DLAUNCH", "-DSHARE",
              goal=float("inf"))
        envs = {"bare": environment(driver=folder / "fake"), "hooked": environment(LIBRARY, driver=folder / "fake")}
        missed = allocations(folder) or missed
        bytes_of = {kind: statistics.median(private_bytes(env) for _ in range(ROUNDS)) for kind, env in envs.items()}
        added = bytes_of["hooked"] - bytes_of["bare"]
        missed = missed or added > GOAL_BYTES
        print(f"memory of a process: {added / 1024:.0f} KiB more (goal {GOAL_BYTES >> 20} MiB)")
        return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
