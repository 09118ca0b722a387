#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The share of the computing time that programs get, on a simulated card. The card itself counts the time for which
each process keeps it busy. All shares are ratios to the elapsed time, and the bare program is measured in the same
run.

A program launches kernels of one length, as fast as it may. The windows of one second begin after its first second.
Where measured times are no busy times (short kernels, several streams, several leases on a card), this program does
what the daemon does: it compares the card's count with what was charged, and corrects the limit page.

share_bench.py [SECONDS]
"""
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if "SUBLET_BUILD_DIR" in os.environ:
    os.environ["SUBLET_BUILD"] = str(ROOT / os.environ["SUBLET_BUILD_DIR"])
sys.path.insert(0, str(ROOT))
from tests.interposer.shares import Pages  # noqa: E402
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c, environment  # noqa: E402
from tests.support.sublet import BUILD  # noqa: E402

SECONDS = int(sys.argv[1]) if len(sys.argv) == 2 else 4
SHARES = (10, 25, 30, 50, 70, 90)
GOAL_POINTS, GOAL_TOGETHER = 3.0, 0.9
MS = 1_000_000


class Card:
    def __init__(self, folder):
        self.folder = folder
        subprocess.run([BUILD / "bin/simgpu-ctl", "--dir", folder, "create", "1x4GiB"], check=True,
                       capture_output=True)
        self.program = compile_c(folder / "sharer", "-I", ROOT / "src", SOURCES / "sharer.c", DRIVER / "libcuda.so.1")

    def reading(self, pids):
        """-> the time, and the busy time of each process at that time. A reading that took long is taken again."""
        for _ in range(10):
            begin, shown = time.monotonic_ns(), self.show()
            end = time.monotonic_ns()
            if end - begin < 15 * MS:
                break
        busy = {process["pid"]: sum(use["busy_ms"] * MS for use in process["devices"])
                for process in shown["processes"]}
        return (begin + end) // 2, [busy.get(pid, 0) for pid in pids]

    def show(self):
        words = [BUILD / "bin/simgpu-ctl", "--dir", self.folder, "show", "--json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    @contextlib.contextmanager
    def program_with(self, share, kind, nanoseconds, streams, pages=None):
        """-> its pages and its process; share 0: the bare program"""
        pages = pages or Pages(self.folder / f"pages-{time.monotonic_ns()}", self.show()["devices"][0]["uuid"], share)
        env = environment(*([LIBRARY] if share else []), SIMGPU_DIR=self.folder / "simgpu")
        words = [self.program, pages.path, kind, str(nanoseconds), str(streams)]
        process = subprocess.Popen([*map(str, words)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            if process.stdout.readline() != "begins\n":
                raise RuntimeError(f"no program: {process.wait()} {process.stderr.read()}")
            yield pages, process
            said, errors = process.communicate(timeout=60)
            if process.returncode != 0:
                raise RuntimeError(f"{process.returncode} {said} {errors}")
        finally:
            process.kill()
            process.wait()


def windows(card, programs, corrected=False):
    """-> for each program, the percent that the card was busy with it, in each window"""
    shares, before, time_before = [[] for _ in programs], None, 0
    for window in range(SECONDS + 1):
        now, busy = card.reading([process.pid for _, process in programs])
        if before is not None and window > 0:
            for i, (new, old) in enumerate(zip(busy, before)):
                shares[i].append(100 * (new - old) / (now - time_before))
        before, time_before = busy, now
        correct(card, programs, 1.0, corrected)
    return shares


def correct(card, programs, seconds, corrected):
    """Waits, and corrects the pages meanwhile as the daemon does."""
    end = time.monotonic() + seconds
    while corrected and time.monotonic() + 0.25 < end:
        time.sleep(0.25)
        _, busy = card.reading([process.pid for _, process in programs])
        for (pages, _), nanoseconds in zip(programs, busy):
            pages.correct(nanoseconds)
    time.sleep(max(0, end - time.monotonic()))


def accuracy(card, text, kind, nanoseconds, streams=1, shares=SHARES, corrected=False):
    """Prints the shares of one program. -> the largest difference in points"""
    with card.program_with(0, kind, nanoseconds, streams) as bare:
        time.sleep(0.5)
        raw = statistics.mean(windows(card, [bare])[0])
    worst, shown = 0.0, []
    for share in shares:
        with card.program_with(share, kind, nanoseconds, streams) as program:
            correct(card, [program], 3.0 if corrected else 1.0, corrected)
            [got] = windows(card, [program], corrected)
        worst = max(worst, *(abs(window - share) for window in got))
        shown.append(f"{share}: {statistics.mean(got):.1f} ({min(got):.1f} to {max(got):.1f})")
    print(f"{text}: bare {raw:.1f} %, share {', '.join(shown)}; worst {worst:.1f} points (goal {GOAL_POINTS:.0f})",
          flush=True)
    return worst


def together(card, text, kind, nanoseconds):
    """Two leases on one card, with 30 and 70 %. -> whether the goal was missed"""
    with card.program_with(0, kind, nanoseconds, 1) as bare:
        time.sleep(0.5)
        raw = statistics.mean(windows(card, [bare])[0])
    with card.program_with(30, kind, nanoseconds, 1) as small, card.program_with(70, kind, nanoseconds, 1) as large:
        correct(card, [small, large], 4.0, True)
        got = windows(card, [small, large], True)
    means = [statistics.mean(each) for each in got]
    print(f"{text}, two leases with 30 and 70: {means[0]:.1f} and {means[1]:.1f}, together {sum(means) / raw:.3f} of "
          f"the bare program (goal {GOAL_TOGETHER})", flush=True)
    return sum(means) < GOAL_TOGETHER * raw


def one_lease(card):
    """Three processes of one lease with 30 %. -> the difference in points"""
    pages = None
    with contextlib.ExitStack() as stack:
        programs = []
        for _ in range(3):
            pages, process = stack.enter_context(card.program_with(30, "kernel", MS, 1, pages))
            programs.append((pages, process))
        time.sleep(1)
        got = windows(card, programs)
    sums = [sum(window) for window in zip(*got)]
    print(f"three processes of a lease with 30: {statistics.mean(sums):.1f} ({min(sums):.1f} to {max(sums):.1f})",
          flush=True)
    return max(abs(each - 30) for each in sums)


def main():
    with tempfile.TemporaryDirectory() as name:
        card = Card(pathlib.Path(name))
        worst = [accuracy(card, f"kernels of {text}", "kernel", nanoseconds, corrected=nanoseconds < MS)
                 for text, nanoseconds in (("10 us", MS // 100), ("100 us", MS // 10), ("1 ms", MS), ("10 ms", 10 * MS),
                                           ("100 ms", 100 * MS))]
        worst += [accuracy(card, text, kind, nanoseconds, shares=(30, 70)) for text, kind, nanoseconds in (
            ("graphs of 4 kernels of 250 us", "graph", MS // 4), ("cooperative kernels of 1 ms", "cooperative", MS))]
        worst.append(accuracy(card, "three streams with kernels of 1 ms", "kernel", MS, 3, (30, 70), True))
        worst.append(one_lease(card))
        missed = [together(card, f"kernels of {text}", "kernel", nanoseconds)
                  for text, nanoseconds in (("100 us", MS // 10), ("1 ms", MS), ("10 ms", 10 * MS))]
        return 1 if max(worst) > GOAL_POINTS or any(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
