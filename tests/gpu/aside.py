# SPDX-License-Identifier: Apache-2.0
"""The Python package with PyTorch on a real card: a training run moves itself to host memory for a more urgent program,
and its results must not differ. run.py calls this module. Without a card it runs on the CPU.
"""
import pathlib
import subprocess
import sys

GIB, MIB = 1 << 30, 1 << 20
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "python/src"
# It writes each loss, exact to the last bit. On the CPU, host memory takes the place of the card.
TRAINING = """
import sys, time, torch
import sublet, sublet.torch
out, steps, gib = open(sys.argv[1], "w"), int(sys.argv[2]), float(sys.argv[3])
vram, name = int(sys.argv[4]), sys.argv[5]
cuda = torch.cuda.is_available()
rows = 256 if cuda else 4
if not cuda:
    torch.set_num_threads(1)
    from sublet import _torch_move
    _torch_move.is_on_card = lambda device: True
torch.manual_seed(20)
torch.use_deterministic_algorithms(True)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
more = []
aside = sublet.torch.offload(model, optimizer, more)
with sublet.lease(vram, tier="batch", name=name, pausable="cooperative", residue="1GiB", on_pause=aside.on_pause,
                  on_resume=aside.on_resume) as lease:
    sublet.torch.cap()
    device = "cuda" if cuda else "cpu"
    model.to(device)
    kept = torch.arange(int(gib * 2**30 / 8), dtype=torch.int64, device=device)  # as a large model would hold
    more.append(kept)
    identities = [id(parameter) for parameter in model.parameters()]
    pauses = 0
    for step in range(steps):
        pauses += lease.safe_point()
        batch = torch.randn(rows, 512, device=device)
        loss = torch.nn.functional.mse_loss(model(batch), batch.roll(1, 1).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.write(loss.item().hex() + "\\n")
        out.flush()
        time.sleep(0.01)  # as long as a step of a larger model
    assert identities == [id(parameter) for parameter in model.parameters()]
    for at in range(0, kept.numel(), 2**26):
        piece = kept[at:at + 2**26]
        assert bool((piece == torch.arange(at, at + piece.numel(), device=device)).all()), "wrong numbers"
    print("trained:", steps, "steps,", pauses, "pauses")
    if cuda:
        del piece
        measured = sublet.torch.measure(lambda: torch.ones(2**28, device=device).sum().item())
        assert measured.peak_bytes > kept.numel() * 8 + 2**30 and measured.suggested_bytes > measured.peak_bytes
        print("measured:", measured.peak_bytes, "bytes, suggested", measured.suggested)
        try:
            torch.ones(vram, dtype=torch.uint8, device=device)
            sys.exit("the cap has no effect")
        except torch.cuda.OutOfMemoryError as error:
            text = sublet.torch.explain_oom(error)
            assert lease.id in text and "lease.resize(" in text and "unknown" not in text, text
            print(text)
"""


class Aside:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage
        self.real = job.stage.real
        self.python = "python3" if self.real else sys.executable
        self.steps = 400 if self.real else 100
        self.training = self.stage.dir / "aside.py"
        self.training.write_text(TRAINING)
        self.stage.env.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else its sums differ from run to run
        free = job.device()["effective_free_bytes"]
        self.vram = min(free * 2 // 5, 16 * GIB)
        self.fill = max(self.vram - 6 * GIB, self.vram // 4) if self.real else 64 * MIB
        self.urgent = free - self.vram + min(2 * GIB, self.vram // 2)  # fits when the other has yielded, not beside it

    def play(self):
        if subprocess.run([self.python, "-c", "import torch"], capture_output=True).returncode != 0:
            print("SKIPPED: the Python package: python3 has no torch")
            return
        expected, program = self.train("alone")
        self.job.step("a training run with the package ends, undisturbed", self.job.end_of(program) == 0,
                      f"{self.steps} steps")
        self.disturbed(expected)

    def train(self, name):
        curve = self.stage.dir / f"aside-{name}.loss"
        return curve, self.stage.spawn(name, "env", f"PYTHONPATH={SOURCE}", self.python, str(self.training), str(curve),
                                       str(self.steps), str(self.fill / GIB), str(self.vram), name)

    def disturbed(self, expected):
        job = self.job
        curve, program = self.train("aside")

        def steps_of():
            return len(curve.read_text().splitlines()) if curve.exists() else 0
        job.until(lambda: steps_of() > self.steps // 4, "the same run again is under way", 300)
        urgent = self.stage.spawn("urgent", "sublet", "run", "--vram", str(self.urgent), "--name", "aside-urgent",
                                  "--tier", "interactive", "--", *job.program(min(self.fill, 2 * GIB), 2))
        paused = job.until(lambda: job.lease("aside").get("state") == "paused", "it is paused for the urgent one", 300)
        at, lease = steps_of(), job.lease("aside")
        job.step("it moves itself aside for a more urgent program", paused and lease["used_bytes"] <= GIB and
                 lease["pause"]["method"] == "cooperative",
                 f"after {at} of {self.steps} steps, {lease['used_bytes'] / MIB:.0f} MiB stay on the card")
        job.step("the urgent one ran meanwhile, and its bytes were right", job.end_of(urgent) == 0)
        job.step("the training run ended by itself", job.end_of(program) == 0, f"{steps_of()} steps")
        print(self.stage.sublet("why", job.lease("aside")["id"], quiet=True).stdout)
        first, second = expected.read_text().splitlines(), curve.read_text().splitlines()
        job.step("its loss curve is that of the undisturbed run, to the last bit",
                 first == second and len(first) == self.steps, f"{len(second)} losses")
        job.until(lambda: job.device()["leased_bytes"] == 0, "all bytes are measured gone")
