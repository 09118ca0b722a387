#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine with a card: driver, what NVML answers, and what this process may do. Each command's answer is
kept as it is, in a file that is written after each command. A command that hangs is left behind.
"""
import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import time

FILES = ("/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/proc/meminfo", "/proc/self/status",
         "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/swaps", "/proc/sys/kernel/yama/ptrace_scope",
         "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/overcommit_memory", "/sys/fs/cgroup/cgroup.controllers",
         "/etc/os-release")
TORCH = ("import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available(), "
         "torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')")
TOTAL = 32.0  # seconds for all commands; day.py ends this step after 40 s


def said(command, seconds=5.0):
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    except OSError as error:
        return {"error": str(error)}
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)  # and no wait: a call that hangs in the kernel outlives the signal
        return {"error": f"no answer within {seconds:.0f} s", "text": text(error.output)}
    return {"status": process.returncode, "text": text(output)}


def text(output):
    return (output or b"").decode(errors="replace")[-20000:]


def ask_all(commands, told, total=TOTAL):
    """Returns the answers to the commands, which are name -> (command, seconds). `told` gets them after each one."""
    answers, deadline = {}, time.monotonic() + total
    for name, (command, seconds) in commands.items():
        left = min(seconds, deadline - time.monotonic())
        answers[name] = said(command, left) if left > 0 else {"error": "no time left"}
        told(answers)
    return answers


def text_of(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")[:20000]
    except OSError as error:
        return f"({error.strerror})"


def devices():
    found = {}
    for path in sorted(pathlib.Path("/dev").glob("nvidia*")):
        status = path.stat()
        found[str(path)] = {"mode": oct(status.st_mode & 0o7777), "uid": status.st_uid, "gid": status.st_gid,
                            "may_open": os.access(path, os.R_OK | os.W_OK)}
    return found


def summary(commands):
    """Returns the few lines that a reader wants first."""
    shown = {"kernel": platform.release(), "uid": os.getuid()}
    for name in ("snapshot", "support"):
        if name not in commands:
            return shown
        try:
            shown[name] = json.loads(commands[name]["text"])
        except (KeyError, ValueError):
            shown[name] = commands[name].get("error") or commands[name].get("text", "").strip()[-300:]
    if isinstance(shown["snapshot"], dict):
        wanted = ("name", "uuid", "total_bytes", "capacity_bytes", "used_bytes")
        shown["snapshot"] = [{key: device[key] for key in wanted if key in device}
                             for device in shown["snapshot"].get("devices", [])]
    if "torch" in commands:
        answer = commands["torch"]
        shown["torch"] = (answer.get("text", "").strip().splitlines() or [answer.get("error")])[-1]
    return shown


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--sim", help="the cards are simulated: ask their libraries")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    gpu, libraries = str(options.bin / "sublet-gpu"), options.bin.parent / "lib/simgpu"
    nvml = ["--nvml", str(libraries / "libnvidia-ml.so.1")] if options.sim else []
    driver = ["--driver", str(libraries / "libcuda.so.1")] if options.sim else []
    commands = {
        "snapshot": [gpu, "snapshot", "--json", *nvml],
        "support": [gpu, "support", "--json", *driver],
        "nvidia-smi": ["nvidia-smi", "-q"],
        "processes": ["nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv"],
        "doctor": [str(options.bin / "sublet"), "doctor"],
        "uname": ["uname", "-a"],
        "cpus": ["nproc"],
        "limits": ["sh", "-c", "ulimit -a"],
        "disk": ["df", "-h", "/tmp"],
        "torch": ["python3", "-c", TORCH],
    }

    def write(answers):
        facts = {"summary": summary(answers), "commands": answers, "devices": devices(),
                 "files": {path: text_of(path) for path in FILES}}
        part = options.out.with_suffix(".part")
        part.write_text(json.dumps(facts, indent=1) + "\n")
        part.replace(options.out)
        print(f"{list(answers)[-1]}: {answers[list(answers)[-1]].get('error', 'answered')}", flush=True)

    answers = ask_all({name: (command, 15.0 if name == "torch" else 5.0) for name, command in commands.items()}, write)
    print(json.dumps(summary(answers), indent=1))
    return 0 if answers["snapshot"].get("status") == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
