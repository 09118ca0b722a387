#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The main job with commentary: three programs on a GPU that fits two, by the public command line alone.

On a machine with a real GPU it uses that GPU, else a simulated card of 24 GiB. Everything is in a private directory and
ends with the demo, unless --keep leaves the daemon running.
"""
import argparse
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("SUBLET_BUILD_DIR", ROOT / "build")).resolve() / "bin"
GIB = 1 << 30
BOLD, DIM, OFF = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def say(text):
    print(f"\n{BOLD}• {text}{OFF}", flush=True)


def has_real_gpu(bin=BIN):
    if not os.path.exists("/dev/nvidiactl"):
        return False
    return subprocess.run([bin / "sublet-gpu", "snapshot"], capture_output=True, text=True).returncode == 0


class Demo:
    """A private daemon, programs under it, and their output; tests/gpu/run.py uses the same stage."""

    def __init__(self, bin=BIN, sim=None, log=None):
        self.bin = pathlib.Path(bin)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sublet-demo-"))
        self.real = sim is None and has_real_gpu(self.bin)
        self.sim = sim or "1x24GiB"
        self.log = pathlib.Path(log).resolve() if log else self.dir / "log"
        self.daemon = None
        self.programs = []
        self.env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", SUBLET_HOST=f"unix://{self.dir}/sublet.sock")
        self.env.pop("SUBLET_LEASE", None)

    # --- the daemon ---
    def start_daemon(self):
        command = ["subletd", "--dir", str(self.dir)] + ([] if self.real else ["--sim", self.sim])
        print(f"{DIM}$ {shlex.join(command)} &{OFF}")
        ready, theirs = os.pipe()
        log = open(self.log, "ab")
        self.daemon = subprocess.Popen(command + ["--ready-fd", str(theirs)], env=self.env, pass_fds=[theirs],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        os.close(theirs)
        if not select.select([ready], [], [], 60)[0] or os.read(ready, 16) != b"ready\n":
            sys.exit(f"the daemon did not start:\n{self.log.read_text(errors='replace')}")
        os.close(ready)
        for line in (self.dir / "env").read_text().splitlines():  # the lines that a shell would source
            if line.startswith("export SIMGPU_DIR="):
                self.env["SIMGPU_DIR"] = shlex.split(line.removeprefix("export SIMGPU_DIR="))[0]
                self.env["LD_LIBRARY_PATH"] = str(self.bin.parent / "lib" / "simgpu")

    # --- the command line ---
    def sublet(self, *words, quiet=False):
        if not quiet:
            print(f"{DIM}$ sublet {shlex.join(words)}{OFF}", flush=True)
        done = subprocess.run(["sublet", *words], env=self.env, text=True, capture_output=True)
        if not quiet:
            print(done.stdout + done.stderr, end="", flush=True)
        return done

    def leases(self):
        done = self.sublet("ps", "--all", "--json", quiet=True)
        return {lease["consumer"]: lease for lease in json.loads(done.stdout)["leases"]} if done.returncode == 0 else {}

    def until(self, condition, what):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if condition():
                return
            select.select([], [], [], 0.1)
        sys.exit(f"the demo waited in vain until {what}; log: {self.log}")

    def uses_vram(self, name):
        return lambda: self.leases().get(name, {}).get("used_bytes", 0) > 0

    def spawn(self, name, *command):
        print(f"{DIM}$ {shlex.join(command)} &{OFF}", flush=True)
        program = subprocess.Popen(command, env=self.env, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.programs.append(program)

        def relay():
            for line in program.stdout:
                print(f"{DIM}  {name}| {line.rstrip()}{OFF}", flush=True)
        threading.Thread(target=relay, daemon=True).start()
        return program

    def helper_pid(self):
        """Returns the pid of the daemon's sublet-gpu."""
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                head, _, rest = entry.read_text().rpartition(")")
            except OSError:
                continue  # it has ended
            if head.endswith("(sublet-gpu") and int(rest.split()[1]) == self.daemon.pid:
                return int(entry.parent.name)
        sys.exit("the daemon has no helper")

    # --- the play ---
    def play(self):
        where = "this machine's GPU" if self.real else "a simulated card of 24 GiB (this machine has no NVIDIA GPU)"
        say(f"A private daemon, on {where}.")
        self.start_daemon()
        self.until(lambda: json.loads(self.sublet("gpus", "--json", quiet=True).stdout or '{"devices": []}')["devices"],
                   "the GPU is read")
        device = json.loads(self.sublet("gpus", "--json", quiet=True).stdout)["devices"][0]
        # Two of three fit: each requests 40 % of the free memory, and fills less, because its CUDA context counts too.
        vram = device["effective_free_bytes"] * 2 // 5 // GIB
        fill = max(1, vram - 2)
        self.sublet("gpus")

        say(f"Two programs ask for {vram} GiB each, and get it. They fill VRAM, compute, and check every byte.")
        first = self.run("first", vram, fill, 600)
        second = self.run("second", vram, fill, 600)
        for name in ("first", "second"):
            self.until(self.uses_vram(name), f"{name} uses VRAM")

        say("A third one asks. It neither fails nor crashes anybody: it waits, and is told its place and for whom.")
        third = self.run("third", vram, fill, 1)
        self.until(lambda: self.leases().get("third", {}).get("state") == "queued", "third is queued")
        self.sublet("queue")

        say("A program that nobody leased appears. It is seen, named and subtracted.")
        unleased = self.spawn("unleased", "simgpu-load", "--alloc", "2GiB", "--seconds", "600")
        self.until(lambda: str(unleased.pid) in self.sublet("status", quiet=True).stdout,
                   "the unleased process is seen")
        self.sublet("status")
        unleased.terminate()
        unleased.wait()

        say("sublet-gpu and the daemon are killed with SIGKILL; the daemon starts again. No program notices.")
        helper = self.helper_pid()
        print(f"{DIM}$ kill -9 {helper} {self.daemon.pid}{OFF}")
        os.kill(helper, signal.SIGKILL)
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        self.start_daemon()
        self.until(self.uses_vram("first"), "the new daemon has measured again")
        self.sublet("ps")

        say("The first is asked to stop. It ends cleanly, its bytes are measured gone, and the third starts.")
        self.sublet("stop", self.leases()["first"]["id"])
        self.until(lambda: third.poll() is not None, "third has run")
        first.wait()
        self.sublet("why", self.leases()["third"]["id"])

        say("The keeper of the second is killed. Its program runs on, and its end will be seen all the same.")
        program = self.leases()["second"]["owner"]["pid"]
        print(f"{DIM}$ kill -9 {second.pid}{OFF}")
        second.kill()
        second.wait()
        self.sublet("ps")
        print(f"{DIM}$ kill {program}{OFF}")
        os.kill(program, signal.SIGTERM)
        self.until(lambda: self.leases()["second"]["state"] == "ended", "the end of second is seen")
        self.sublet("ps", "--all")
        statuses = {name: lease["exit_status"] for name, lease in self.leases().items()}
        return statuses == {"first": 143, "second": None, "third": 0}

    def run(self, name, vram, fill, seconds):
        return self.spawn(name, "sublet", "run", "--vram", f"{vram}GiB", "--name", name, "--", "simgpu-load", "--alloc",
                          f"{fill}GiB", "--seconds", str(seconds))

    def end(self):
        for program in self.programs:
            if program.poll() is None:
                program.terminate()
                try:
                    program.wait(40)
                except subprocess.TimeoutExpired:
                    program.kill()
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the daemon running and say how to use it")
    options = parser.parse_args()
    demo = Demo()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = False
    try:
        good = demo.play()
        if good and options.keep:
            kept = True
            say("The daemon goes on. Point a shell at it with this line:")
            print(f"source {demo.dir}/env; export PATH={shlex.quote(str(BIN))}:$PATH")
            print(f"and end it with: kill {demo.daemon.pid}")
        elif good:
            say("That is the main job. ./dev demo --keep leaves the daemon running for a look of your own.")
        return 0 if good else 1
    except KeyboardInterrupt:
        return 130
    finally:
        if not kept:
            demo.end()


if __name__ == "__main__":
    sys.exit(main())
