#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The main job, pausing and the Python package on a real card, step by step, each step checked. Needs only python3 and
our binaries.

./dev test-gpu [--prebuilt] calls it. Without a GPU it says so and skips. --sim SPEC uses simulated cards, which tests
the runner itself.
"""
import argparse
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import aside  # noqa: E402
import demo  # noqa: E402
import interposed  # noqa: E402
import limits  # noqa: E402
import pausing  # noqa: E402
import rights  # noqa: E402
import session  # noqa: E402
import sizes  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20

# An unchanged PyTorch program: it fills VRAM, multiplies, and checks that the rest of its memory is unchanged.
TORCH = """
import signal, sys, time, torch
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
gib, seconds = float(sys.argv[1]), float(sys.argv[2])
kept = torch.arange(int(gib * 2**30 / 8), dtype=torch.int64, device="cuda")
a = torch.randn(2048, 2048, device="cuda")
end = time.monotonic() + seconds
while not stop and time.monotonic() < end:
    a = torch.nn.functional.normalize(a @ a)
torch.cuda.synchronize()
n = kept.numel()
for at in range(0, n, 2**26):
    piece = kept[at:at + 2**26]
    assert bool((piece == torch.arange(at, at + piece.numel(), device="cuda")).all()), "wrong numbers"
print("right:", n, "numbers")
sys.exit(143 if stop else 0)
"""


def has_torch():
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run(["python3", "-c", probe], capture_output=True).returncode == 0


class Job:
    def __init__(self, stage, kind, results=None, brief=False):
        self.stage, self.kind, self.results, self.brief = stage, kind, results, brief
        self.steps = []

    def step(self, what, good, detail="", **figures):
        self.steps.append((what, bool(good), detail))
        if self.results:  # line by line: what was said before a hang is kept
            line = {"kind": self.kind, "what": what, "good": bool(good), "detail": detail, **figures}
            with open(self.results, "a") as file:
                file.write(json.dumps(line) + "\n")
        print(f"{'PASS' if good else 'FAIL'}  [{self.kind}] {what}{': ' + detail if detail else ''}", flush=True)

    def device(self):
        return self.ask("gpus")["devices"][0]

    def ask(self, *words):
        return json.loads(self.stage.sublet(*words, "--json", quiet=True).stdout)

    def lease(self, name):
        found = [lease for lease in self.ask("ps", "--all")["leases"] if lease["consumer"] == name]
        return max(found, key=lambda lease: int(lease["id"].split("-")[1])) if found else {}

    def program(self, fill, seconds):
        if self.kind == "pytorch":
            return ["python3", str(self.stage.dir / "program.py"), str(fill / GIB), str(seconds)]
        return ["simgpu-load", "--alloc", str(fill // MIB) + "MiB", "--seconds", str(seconds)]

    def run(self, name, vram, fill, seconds):
        return self.stage.spawn(name, "sublet", "run", "--vram", str(vram), "--name", name, "--",
                                *self.program(fill, seconds))

    def until(self, condition, what, seconds=90):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            select.select([], [], [], 0.1)
        self.step(what, False, f"not within {seconds} s")
        return False

    def end_of(self, program, seconds=300):
        """Returns the exit status of a program that ends by itself, or None after a program that had to be ended."""
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end(program)
            return None

    def end(self, program, seconds=40):
        """Ends a program, and returns its exit status."""
        if program.poll() is None:
            program.terminate()
        try:
            return program.wait(seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            return None

    def play(self):
        free = self.device()["effective_free_bytes"]
        used_before = self.device()["used_bytes"]
        vram = free * 2 // 5
        # 3 GiB at most for context, libraries and working memory; filling tens of GiB proves no more than filling a
        # few.
        fill = min(max(vram // 4, vram - 3 * GIB), 8 * GIB)
        names = [f"{self.kind}-{n}" for n in ("first", "second", "third")]
        first, second = (self.run(name, vram, fill, 600) for name in names[:2])
        both = all(self.until(lambda n=name: self.lease(n).get("used_bytes", 0) >= fill, f"{name} runs")
                   for name in names[:2])
        self.step("two programs run", both, f"{fill / GIB:.1f} GiB each under leases of {vram / GIB:.1f} GiB")
        third = self.run(names[2], vram, fill, 1)
        self.until(lambda: self.lease(names[2]).get("state") == "queued", "the third waits")
        queue = self.lease(names[2])["queue"] or {}
        self.step("the third waits, with place, bytes short and holders", queue.get("place") == 1 and
                  queue["short_bytes"] == vram - self.device()["effective_free_bytes"] and len(queue["holders"]) >= 2,
                  f"{queue.get('short_bytes', 0) / GIB:.2f} GiB short; {queue.get('basis')}")
        self.unleased(min(GIB, free // 20))
        self.kills(names[0])
        self.stage.sublet("stop", self.lease(names[0])["id"])
        self.step("the first was stopped, its status is known", self.end_of(first) == 143 and
                  self.lease(names[0]).get("exit_status") == 143)
        self.step("the third ran then, and its bytes were right", self.end_of(third) == 0 and
                  self.lease(names[2]).get("exit_status") == 0)
        program = self.lease(names[1])["owner"]["pid"]
        second.kill()
        second.wait()
        self.step("a killed keeper ends nothing", os.path.exists(f"/proc/{program}") and
                  self.lease(names[1]).get("state") == "active")
        os.kill(program, signal.SIGTERM)
        self.until(lambda: self.lease(names[1]).get("state") == "ended", "the orphan's end is seen")
        self.step("its end arrives, its status is unknown", self.lease(names[1]).get("exit_status", 0) is None)
        self.until(lambda: self.device()["leased_bytes"] == 0, "all bytes are measured gone")
        self.step("the card is as it was", self.device()["used_bytes"] <= used_before + 64 * MIB,
                  f"{self.device()['used_bytes'] / MIB:.0f} MiB used, {used_before / MIB:.0f} before")

    def unleased(self, size):
        unleased = self.stage.spawn("unleased", *self.program(size, 600))
        def row():
            rows = [p for p in self.ask("proclist")["processes"] if p["pid"] == unleased.pid]
            return rows[0] if rows and (rows[0]["used_bytes"] or 0) >= size else None
        seen = self.until(row, "the unleased process is listed")
        self.step("a program without a lease is seen, named and subtracted", seen and row()["lease"] is None and
                  self.device()["other_bytes"] >= size, f"{self.device()['other_bytes'] / MIB:.0f} MiB without a lease")
        self.end(unleased)

    def kills(self, name):
        before = {lease["id"]: lease["state"] for lease in self.ask("ps")["leases"]}
        self.stage.daemon.send_signal(signal.SIGKILL)
        self.stage.daemon.wait()
        self.stage.start_daemon()
        self.until(lambda: self.lease(name).get("used_bytes", 0) > 0, "measured again")
        self.step("subletd was killed and started again: nothing is lost",
                  {lease["id"]: lease["state"] for lease in self.ask("ps")["leases"]} == before)
        helper = self.stage.helper_pid()
        os.kill(helper, signal.SIGKILL)
        killed = time.monotonic()
        def newer():
            age = self.device()["snapshot_age_ms"]
            return age is not None and age / 1000 < time.monotonic() - killed - 0.05
        again = self.until(newer, "snapshots go on")
        self.step("sublet-gpu was killed: another one takes snapshots", again and self.stage.helper_pid() != helper)


# The parts in their order, and whether a part is played once for each kind of program, or once.
PARTS = {"session": (session.Session, False), "main": (None, True), "pausing": (pausing.Pausing, True),
         "sizes": (sizes.Sizes, False), "limits": (limits.Limits, False), "rights": (rights.Rights, False),
         "interposer": (interposed.Interposed, True), "python": (aside.Aside, True)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=demo.BIN, help="where our binaries are")
    parser.add_argument("--sim", help="play on simulated cards instead, such as 1x24GiB")
    parser.add_argument("--parts", help=f"only these: {', '.join(PARTS)} (default: all; python not with --sim)")
    parser.add_argument("--results", help="append each step to this file, as a line of JSON")
    parser.add_argument("--daemon-log", help="append the daemon's log to this file, which is kept")
    parser.add_argument("--brief", action="store_true", help="measure once what is measured several times otherwise")
    options = parser.parse_args()
    everything = [name for name in PARTS if name != "python" or not options.sim]
    options.parts = options.parts.split(",") if options.parts else everything
    if not set(options.parts) <= PARTS.keys():
        parser.error(f"--parts: one or more of {', '.join(PARTS)}")
    return options


def play(stage, options, kinds):
    steps = []
    stage.start_daemon()
    stage.until(lambda: stage.sublet("gpus", "--json", quiet=True).stdout.count('"uuid"'), "the card is read")
    stage.sublet("gpus")
    for kind in kinds:
        job = Job(stage, kind, options.results, options.brief)
        for name in options.parts:
            part, each_kind = PARTS[name]
            if kind != kinds[0] and not each_kind:
                continue
            if name == "python" and kind != "pytorch" and not options.sim:
                continue
            (part(job) if part else job).play()
        steps += job.steps
    stage.sublet("ps", "--all")
    return steps


def main():
    options = arguments()
    if not options.sim and not demo.has_real_gpu(pathlib.Path(options.bin)):
        print("SKIPPED: no NVIDIA GPU that NVML shows on this machine; nothing was tested on a real card")
        return 0
    kinds = ["driver-api"]
    if not options.sim and has_torch():
        kinds.append("pytorch")
    elif not options.sim:
        print("SKIPPED: PyTorch programs: python3 has no torch that sees the GPU")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # all that runs is ended at a time limit too
    stage = demo.Demo(pathlib.Path(options.bin).resolve(), options.sim, options.daemon_log)
    (stage.dir / "program.py").write_text(TORCH)
    # On a machine with swap nothing is paused unless that is allowed; nothing here stays parked for long.
    (stage.dir / "sublet.toml").write_text("[ledger]\nallow_swap = true\n[enforcer]\ninterval = \"1s\"\n")
    try:
        steps = play(stage, options, kinds)
    finally:
        stage.end()
    failed = sum(not good for _, good, _ in steps)
    print(f"{len(steps) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
