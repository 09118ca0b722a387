#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory (PSS) of all our processes together while nothing happens.

Three rows: a daemon without leases; beside a program without a lease, which the enforcer watches; and with a program
under a lease (its keeper counts, the programs do not).
The raw measure of the same run is a process that wakes once a second and reads /proc/stat, which is the least that any
watcher costs.
"""
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import demo  # noqa: E402

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
WATCHER = "import time\nwhile True:\n open('/proc/stat').read()\n time.sleep(1)"


def cpu_ns(pid):
    """Returns on-CPU time in ns, which is finer than the ticks of /proc/PID/stat."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def pss_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))


def children(pid):
    return [int(p) for p in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]


def measure(pids):
    before = sum(map(cpu_ns, pids))
    time.sleep(SECONDS)
    used = sum(map(cpu_ns, pids)) - before
    return 100 * used / (SECONDS * 1e9), sum(map(pss_kib, pids)) / 1024


def main():
    stage = demo.Demo()
    watcher = subprocess.Popen([sys.executable, "-c", WATCHER])
    try:
        stage.start_daemon()
        stage.until(lambda: '"ok"' in stage.sublet("gpus", "--json", quiet=True).stdout, "the card is read")
        time.sleep(5)  # snapshots are frequent for a moment after a start
        ours = [stage.daemon.pid, *children(stage.daemon.pid)]
        rows = [("raw: a watcher in Python", *measure([watcher.pid])), ("no leases", *measure(ours))]
        outsider = stage.spawn("outsider", "simgpu-load", "--alloc", "256MiB", "--seconds", "600")
        stage.until(lambda: '"seen"' in stage.sublet("verdicts", "--json", quiet=True).stdout, "it is found")
        time.sleep(5)
        rows.append(("one program without a lease", *measure(ours)))
        outsider.kill()
        run = stage.spawn("program", "sublet", "run", "--vram", "1GiB", "--", "sleep", "600")
        stage.until(lambda: '"active"' in stage.sublet("ps", "--json", quiet=True).stdout, "it runs")
        time.sleep(5)
        rows.append(("one program under a lease", *measure([*ours, run.pid])))
        print(f"{'idle, all our processes':<28} {'% of a core':>12} {'PSS MiB':>9} {'CPU ratio to raw':>17}")
        for name, percent, mib in rows:
            print(f"{name:<28} {percent:>12.3f} {mib:>9.1f} {percent / rows[0][1]:>17.2f}")
    finally:
        watcher.kill()
        stage.end()


if __name__ == "__main__":
    main()
