# SPDX-License-Identifier: Apache-2.0
"""Third-party NVML clients: nvidia-ml-py, nvitop, cuda-bindings, nvtop."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import termios

import pytest

from simcards import MIB, SIGTERM

HERE = pathlib.Path(__file__).resolve().parent

# Values that nvitop and nvtop show of a card; without them they show an empty frame.
MUST_ANSWER = """
nvmlDeviceGetName nvmlDeviceGetUUID nvmlDeviceGetIndex nvmlDeviceGetPciInfo nvmlDeviceGetMemoryInfo
nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetUtilizationRates nvmlDeviceGetEncoderUtilization
nvmlDeviceGetDecoderUtilization nvmlDeviceGetPowerUsage nvmlDeviceGetPowerManagementLimit
nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetPerformanceState nvmlDeviceGetDisplayActive
nvmlDeviceGetDisplayMode
nvmlDeviceGetPersistenceMode nvmlDeviceGetComputeMode nvmlDeviceGetCudaComputeCapability nvmlDeviceGetMigMode
nvmlDeviceGetMaxMigDeviceCount nvmlDeviceIsMigDeviceHandle nvmlDeviceGetComputeRunningProcesses
nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetSerial
nvmlDeviceGetMinorNumber nvmlDeviceGetArchitecture nvmlDeviceGetBoardPartNumber nvmlDeviceGetEccMode
nvmlDeviceGetAccountingMode nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth
nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetCurrentClocksThrottleReasons
nvmlDeviceGetSupportedEventTypes nvmlDeviceGetTotalEnergyConsumption
""".split()

NOT_SUPPORTED, NOT_FOUND = 3, 6


@pytest.fixture
def load(cards):
    return cards.load("--alloc", "256MiB", "--seconds", "1h", "--busy", 50).wait_filled()


def held(cards, load):
    (process,) = [process for process in cards.show()["processes"] if process["pid"] == load.pid]
    return process["devices"][0]["bytes"]


@pytest.mark.heavy
def test_every_query_of_nvidia_ml_py_is_answered_or_properly_refused(foreign, cards):
    foreign.need("nvidia-ml-py")
    done = foreign.python(cards, HERE / "nvml_every_query.py")
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) > 100
    assert not {name: answer for name, answer in answers.items() if "broken" in answer}
    assert not [name for name in MUST_ANSWER if "answer" not in answers[name]]
    refusals = {answer["refused"] for answer in answers.values() if "refused" in answer}
    assert refusals <= {NOT_SUPPORTED, NOT_FOUND}, refusals
    assert answers["nvmlDeviceGetFanSpeed"]["text"] == "Not Supported"
    assert answers["nvmlDeviceGetName"]["answer"] == cards.show()["devices"][0]["name"]


@pytest.mark.smoke
def test_nvidia_ml_py_sees_the_process_and_its_memory_in_every_version(foreign, cards, load):
    foreign.need("nvidia-ml-py")
    script = (
        "import json, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0);"
        "lists = [f(h) for f in (n.nvmlDeviceGetComputeRunningProcesses_v2,"
        " n.nvmlDeviceGetComputeRunningProcesses_v3)];"
        "print(json.dumps([[(p.pid, p.usedGpuMemory) for p in l] for l in lists]"
        " + [n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used, n.nvmlDeviceGetMemoryInfo(h).used,"
        " n.nvmlSystemGetProcessName(%d)]))" % load.pid
    )
    done = foreign.python(cards, "-c", script)
    assert done.returncode == 0, done.stderr
    v2, v3, used, used_v1, name = json.loads(done.stdout)
    assert v2 == v3 == [[load.pid, held(cards, load)]]
    device = cards.show()["devices"][0]
    assert used == held(cards, load) and used_v1 == used + device["driver_reserved_bytes"]
    assert name.endswith("simgpu-load")


@pytest.mark.heavy
def test_nvitop_shows_the_card_the_process_and_its_memory(foreign, cards, load):
    foreign.need("nvitop")
    done = foreign.python(cards, "-m", "nvitop", "-1", environment={"COLUMNS": "140", "LINES": "60"})
    assert done.returncode == 0, done.stderr
    assert "Simulated" in done.stdout and cards.show()["devices"][0]["pci_bus_id"] in done.stdout
    row = re.search(rf"^.*\b{load.pid}\b.*$", done.stdout, re.M)
    assert row and "simgpu-load" in row.group(), done.stdout
    assert (
        f"{held(cards, load) / MIB:.1f}MiB" in row.group() or f"{held(cards, load) // MIB}MiB" in row.group()
    )


@pytest.mark.heavy
def test_nvitops_library_agrees_to_the_byte(foreign, cards, load):
    foreign.need("nvitop")
    script = (
        "import json, nvitop; d = nvitop.Device(0); p = d.processes();"
        "memory = {pid: q.gpu_memory() for pid, q in p.items()};"
        "print(json.dumps([d.name(), d.uuid(), memory, d.gpu_utilization()]))"
    )
    done = foreign.python(cards, "-c", script)
    assert done.returncode == 0, done.stderr
    name, uuid, processes, utilization = json.loads(done.stdout)
    device = cards.show()["devices"][0]
    assert (name, uuid) == (device["name"], device["uuid"])
    assert processes == {str(load.pid): held(cards, load)}
    assert 0 <= utilization <= 100


@pytest.mark.heavy
def test_cuda_bindings_nvml_sees_the_card_and_the_process(foreign, cards, load):
    foreign.need("cuda-bindings")
    script = (
        "import json; from cuda.bindings import nvml; nvml.init_v2();"
        "h = nvml.device_get_handle_by_index_v2(0);"
        "p = nvml.device_get_compute_running_processes_v3(h);"
        "print(json.dumps([nvml.device_get_count_v2(), nvml.device_get_uuid(h),"
        " [[int(x.pid), int(x.used_gpu_memory)] for x in p]]))"
    )
    done = foreign.python(cards, "-c", script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1, cards.show()["devices"][0]["uuid"], [[load.pid, held(cards, load)]]]


@pytest.mark.heavy
def test_nvtop_shows_the_card_and_the_process(foreign, cards, load):
    screen = watch(
        [foreign.program("nvtop"), "-C"], cards.env(TERM="xterm"), [b"Simulated", b"%d" % load.pid]
    )
    assert "Simulated" in screen and str(load.pid) in screen


def watch(command, environment, wanted):
    """Runs a full-screen program until its output has all wanted texts, or until it ends; returns its text."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    seen = b""
    while not all(part in seen for part in wanted) and select.select([terminal], [], [], 30)[0]:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        seen = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\([A-Z0-9]", b" ", seen)
    os.kill(child, SIGTERM)
    os.waitpid(child, 0)
    os.close(terminal)
    return seen.decode(errors="replace")
