# SPDX-License-Identifier: Apache-2.0
"""The first session of README.md on a real card: the same commands, in the proportions of the card that is there."""
from pausing import driver_version

GIB, MIB = 1 << 30, 1 << 20


class Session:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage
        free = job.device()["effective_free_bytes"]
        # As in README.md, 3 GiB and 2 GiB of 4 GiB. Some GiB prove as much as all of a large card.
        self.vram, self.urgent = free * 3 // 4, free // 2
        self.fill, self.urgent_fill = min(self.vram * 2 // 3, 8 * GIB), min(self.urgent // 2, 4 * GIB)
        self.flags = []

    def run(self, tag, vram, fill, seconds, *flags):
        return self.stage.spawn(tag, "sublet", "run", "--vram", str(vram), "--name", tag, "--tag", tag, *flags, "--",
                                "simgpu-load", "--alloc", f"{fill // MIB}MiB", "--seconds", str(seconds), "--verify")

    def play(self):
        job = self.job
        version, problem = driver_version(self.stage)
        if version == 0:
            print(f"SKIPPED: the first session: {problem}")
            return
        if version < 13000:  # we can vouch for this program: docs/decisions/0021
            self.flags = ["--pausable", "driver"]
        train = self.run("train", self.vram, self.fill, 20, *self.flags)
        runs = job.until(lambda: job.lease("train").get("used_bytes", 0) >= self.fill, "train has its memory")
        job.step("train has its memory", runs, f"{self.fill / GIB:.1f} GiB under a lease of {self.vram / GIB:.1f} GiB")
        chat = self.run("chat", self.urgent, self.urgent_fill, 4, "--tier", "interactive")
        paused = job.until(lambda: job.lease("train").get("state") == "paused", "train is paused for chat")
        job.step("train is paused for chat", paused, (job.lease("train").get("pause") or {}).get("method") or "")
        self.stage.sublet("ps", "-o", "id,tag,tier,state,vram,used")
        job.step("chat was right to its last byte", job.end_of(chat) == 0)
        job.step("train came back, and was right to its last byte", job.end_of(train) == 0)
        self.stage.sublet("why", job.lease("train")["id"])
        job.until(lambda: job.device()["leased_bytes"] == 0, "all bytes are measured gone")
