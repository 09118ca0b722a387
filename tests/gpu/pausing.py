# SPDX-License-Identifier: Apache-2.0
"""Pausing on a real card: a training run is paused for a more urgent program and resumes, and its results must not
differ. run.py calls this module; each step is checked, and the output is the transcript.
"""
import json
import pathlib
import statistics
import subprocess
import time

from tests.support.driver_calls import park_and_back

GIB, MIB = 1 << 30, 1 << 20
# An unchanged training run, without any knowledge of Sublet. It writes each loss, exact to the last bit.
TORCH_TRAINING = """
import sys, time, torch
out, steps, gib = open(sys.argv[1], "w"), int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(20)
torch.use_deterministic_algorithms(True)
kept = torch.arange(int(gib * 2**30 / 8), dtype=torch.int64, device="cuda")  # as a large model would hold
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(steps):
    batch = torch.randn(256, 512, device="cuda")
    loss = torch.nn.functional.mse_loss(model(batch), batch.roll(1, 1).tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    out.write(loss.item().hex() + "\\n")
    out.flush()
    time.sleep(0.01)  # as long as a step of a larger model
n = kept.numel()
for at in range(0, n, 2**26):
    piece = kept[at:at + 2**26]
    assert bool((piece == torch.arange(at, at + piece.numel(), device="cuda")).all()), "wrong numbers"
print("trained:", steps, "steps")
"""

# The same with the driver API alone, without a kernel: its training data goes through the card at each step.
DRIVER_TRAINING = """
import array, ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
out, steps, gib = open(sys.argv[1], "w"), int(sys.argv[2]), float(sys.argv[3])
def call(name, *arguments):
    answer = getattr(cuda, name)(*arguments)
    assert answer == 0, (name, answer)
call("cuInit", 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
kept, weights, size, many = ctypes.c_uint64(), ctypes.c_uint64(), int(gib * 2**30), 1 << 20
call("cuMemAlloc_v2", ctypes.byref(kept), ctypes.c_size_t(size))
call("cuMemsetD8_v2", kept, ctypes.c_ubyte(77), ctypes.c_size_t(size))
call("cuMemAlloc_v2", ctypes.byref(weights), ctypes.c_size_t(1024 * 8))
model = array.array("d", [1 / (i + 1) for i in range(1024)])
def move(name, first, second):
    call(name, first, second, ctypes.c_size_t(1024 * 8))
def buffer():
    return (ctypes.c_double * 1024).from_buffer(model)
move("cuMemcpyHtoD_v2", weights, buffer())
for step in range(steps):
    move("cuMemcpyDtoH_v2", buffer(), weights)
    loss = sum((w - 0.5) ** 2 for w in model)
    for i, w in enumerate(model):
        model[i] = w - 0.01 * (w - 0.5)
    move("cuMemcpyHtoD_v2", weights, buffer())
    out.write(loss.hex() + "\\n")
    out.flush()
    time.sleep(0.01)
for at in range(0, size, max(size // 64, many)):
    piece = ctypes.create_string_buffer(min(many, size - at))
    call("cuMemcpyDtoH_v2", piece, ctypes.c_uint64(kept.value + at), ctypes.c_size_t(len(piece)))
    assert piece.raw == bytes([77]) * len(piece), "wrong bytes at %d" % at
print("trained:", steps, "steps")
"""


def driver_version(stage):
    """Returns the version of the driver that parks programs (13000 for CUDA 13.0), or 0 and the reason if no driver
    can.
    """
    library = []
    if "SIMGPU_DIR" in stage.env:
        library = ["--driver", str(pathlib.Path(stage.env["LD_LIBRARY_PATH"].split(":")[0]) / "libcuda.so.1")]
    said = json.loads(subprocess.run(["sublet-gpu", "support", "--json", *library], env=stage.env, text=True,
                                     capture_output=True).stdout or "{}")
    return (said.get("version", 0), "") if said.get("supported") else (0, said.get("problem", "it says nothing"))


class Steady:
    """True once at least `least` bytes are used and the use has not changed for ten looks."""

    def __init__(self, least):
        self.least, self.last, self.looks = least, 0, 0

    def __call__(self, used):
        self.looks = self.looks + 1 if used == self.last else 0
        self.last = used
        return used >= self.least and self.looks >= 10


class Pausing:
    """Runs with a Job of run.py, which has the stage and counts the steps."""

    def __init__(self, job):
        self.job, self.stage = job, job.stage
        trial = not job.stage.real  # a trial, without a real card
        self.steps, self.handovers = (150, 1) if trial else (600, 1 if job.brief else 3)
        torch = job.kind == "pytorch"
        self.training = self.stage.dir / f"training-{job.kind}.py"
        self.training.write_text(TORCH_TRAINING if torch else DRIVER_TRAINING)
        self.stage.env.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else its sums differ from run to run
        free = job.device()["effective_free_bytes"]
        self.vram = min(free * 2 // 5, 16 * GIB)
        self.fill = self.vram // 8 if trial else max(self.vram - 3 * GIB, self.vram // 4)
        self.urgent = free - self.vram + min(2 * GIB, self.vram // 2)  # fits when the other has yielded, not beside it
        self.flags = []

    def play(self):
        version, problem = driver_version(self.stage)
        if version == 0:
            print(f"SKIPPED: [{self.job.kind}] pausing: {problem}")
            return
        if version < 13000:  # we can vouch for this program: docs/decisions/0021
            self.flags = ["--pausable", "driver"]
        print(f"the driver parks programs: CUDA {version // 1000}.{version % 1000 // 10}")
        self.same_curve()
        self.handover()

    def train(self, name):
        curve = self.stage.dir / f"{name}.loss"
        return curve, self.stage.spawn(name, "sublet", "run", "--vram", str(self.vram), "--name", name, "--tier",
                                       "batch", *self.flags, "--", "python3", str(self.training), str(curve),
                                       str(self.steps), str(self.fill / GIB))

    def same_curve(self):
        job = self.job
        alone, disturbed = f"{job.kind}-undisturbed", f"{job.kind}-training"
        expected, program = self.train(alone)
        alone_ended = job.end_of(program) == 0
        job.step("a training run ends, undisturbed", alone_ended, f"{self.steps} steps")
        if not alone_ended:
            return
        curve, program = self.train(disturbed)

        def steps_of():
            return len(curve.read_text().splitlines()) if curve.exists() else 0
        job.until(lambda: steps_of() > self.steps // 4, "the same run again is under way", 300)
        urgent = self.stage.spawn("urgent", "sublet", "run", "--vram", str(self.urgent), "--name",
                                  f"{job.kind}-inference", "--tier", "interactive", "--",
                                  *job.program(min(self.fill, 2 * GIB), 2))
        paused = job.until(lambda: job.lease(disturbed).get("state") == "paused", "it is paused for the urgent one",
                           300)
        at = steps_of()
        lease = job.lease(disturbed)
        job.step("it steps aside for a more urgent program", paused and lease["used_bytes"] == 0,
                 f"after {at} of {self.steps} steps, {lease['parked_bytes'] / GIB:.2f} GiB in host memory, "
                 f"by the {(lease['pause'] or {}).get('method')}")
        job.step("the urgent one ran meanwhile, and its bytes were right", job.end_of(urgent) == 0)
        job.step("the training run ended by itself", job.end_of(program) == 0, f"{steps_of()} steps")
        print(self.stage.sublet("why", job.lease(disturbed)["id"], quiet=True).stdout)
        first, second = expected.read_text().splitlines(), curve.read_text().splitlines()
        differ = next((i for i, (a, b) in enumerate(zip(first, second)) if a != b), None)
        job.step("its loss curve is that of the undisturbed run, to the last bit",
                 first == second and len(first) == self.steps,
                 f"{len(second)} losses, from {float.fromhex(second[0]):.6f} to {float.fromhex(second[-1]):.6f}"
                 if second and differ is None else f"they differ from step {differ} on")
        job.until(lambda: job.device()["leased_bytes"] == 0, "all bytes are measured gone")

    # Compares the time from the request of a more urgent program to its start with the driver's own calls on the same
    # program.
    def handover(self):
        job, raw, took = self.job, [], []
        for n in range(self.handovers):
            steady = Steady(self.fill)
            program = self.stage.spawn("raw", *job.program(self.fill, 600))
            job.until(lambda: steady(job.device()["used_bytes"]), "it has filled its memory", 300)
            problem = ""
            try:
                raw.append(park_and_back(program.pid, self.stage.env))
            except subprocess.CalledProcessError as error:
                problem = error.stderr.strip()[-300:] or str(error)
                print(f"SKIPPED: [{job.kind}] hand-over: the driver's calls fail here: {problem}")
            job.end(program)
            job.until(lambda: job.device()["other_bytes"] < 64 * MIB, "its memory is free", 120)
            if problem:
                return
            took.append(self.one_handover(f"{job.kind}-victim-{n}"))
        parks, backs = (statistics.median(times) for times in zip(*raw))
        middle = statistics.median(took)
        job.step("hand-overs were measured", True,
                 f"{self.fill / GIB:.1f} GiB: the driver alone {parks:.2f} s, and {backs:.2f} s back; from the request "
                 f"to the start {middle:.2f} s, {max(took):.2f} s at most of {self.handovers}; "
                 f"{middle / parks:.2f} times the driver")

    def one_handover(self, name):
        job = self.job
        victim = self.stage.spawn(name, "sublet", "run", "--vram", str(self.vram), "--name", name, "--tier", "batch",
                                  *self.flags, "--", *job.program(self.fill, 600))
        job.until(lambda: job.lease(name).get("used_bytes", 0) >= self.fill, f"{name} is measured", 300)
        began = time.time()
        done = self.stage.sublet("run", "--vram", str(self.urgent), "--tier", "interactive", "--", "date", "+%s.%N",
                                 quiet=True)
        job.until(lambda: job.lease(name).get("state") == "active", f"{name} is back", 300)
        self.stage.sublet("stop", job.lease(name)["id"], quiet=True)
        job.end_of(victim, 60)
        job.until(lambda: job.device()["leased_bytes"] == 0, "all bytes are measured gone")
        return float(done.stdout.strip().splitlines()[-1]) - began
