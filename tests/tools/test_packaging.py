# SPDX-License-Identifier: Apache-2.0
"""The units, their user and the example configuration, as far as tests can judge them without an installation."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", ROOT / "build"))
UNIT = ROOT / "packaging/subletd.service"
UNITS = [UNIT, *(ROOT / "packaging" / name for name in (
    "subletd.socket", "sublet-actor.service", "sublet-actor.socket", "sublet-keeper.socket", "sublet-keeper@.service",
    "sublet-stacks.service", "sublet-stacks.socket"))]
EXAMPLE = ROOT / "packaging/sublet.toml"


def systemd_analyze(*arguments):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def keys_of(unit):
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"^\w+=", line))


def test_systemd_understands_the_units(tmp_path):
    # verify looks for the programs and the document, which are not installed: the test puts others there.
    for unit in UNITS:
        text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text())
        text = re.sub(r"(?m)^SocketUser=.*", "SocketUser=root", text)  # its account does not exist here
        text = text.replace("/usr/share/doc/sublet/docs/programs.md", str(ROOT / "LICENSE"))
        (tmp_path / unit.name).write_text(text.replace("/usr/share/doc/sublet/README.md", str(ROOT / "LICENSE")))
    # One transaction with all of them shows cycles of their order.
    (tmp_path / "all.target").write_text("[Unit]\nWants=sockets.target basic.target sublet-keeper@1.service " +
                                         " ".join(unit.name for unit in UNITS if "@" not in unit.name) + "\n")
    names = [unit.name for unit in UNITS] + ["all.target"]
    done = systemd_analyze("verify", "--recursive-errors=no", *(str(tmp_path / name) for name in names))
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


# The actor starts programs as other users on the vendor's devices, so its unit is less confined than the daemon's.
@pytest.mark.parametrize("unit, threshold", [("subletd", 15), ("sublet-actor", 30), ("sublet-stacks", 15)])
def test_the_services_are_confined(unit, threshold):
    done = systemd_analyze("security", "--offline=true", f"--threshold={threshold}", "--no-pager",
                           str(ROOT / f"packaging/{unit}.service"))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a unit offline")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_leaves_the_abstract_socket_and_the_processes_visible():
    assert not {"PrivateNetwork", "PrivateDevices", "PrivateUsers", "ProtectProc", "ProcSubset"} & keys_of(UNIT).keys()


def test_the_actor_has_five_capabilities_and_one_client():
    service, socket = keys_of(ROOT / "packaging/sublet-actor.service"), keys_of(ROOT / "packaging/sublet-actor.socket")
    assert service["CapabilityBoundingSet"].split() == ["CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_SYS_PTRACE",
                                                        "CAP_NET_ADMIN"]
    assert service["RestrictAddressFamilies"].split() == ["AF_UNIX", "AF_NETLINK"], "for the process connector"
    assert not service["AmbientCapabilities"]
    # A parking helper runs as its user, works on the vendor's cards, and survives the actor.
    assert service["KillMode"] == "process" and service["NoNewPrivileges"] == "yes"
    assert not {"PrivateDevices", "PrivateNetwork", "PrivateIPC", "MemoryDenyWriteExecute"} & service.keys()
    devices = [re.findall(r"(?m)^DeviceAllow=.*", (ROOT / f"packaging/{unit}.service").read_text())
               for unit in ("subletd", "sublet-actor")]
    terminals = {"DeviceAllow=char-pts rw"}
    assert set(devices[0]) - terminals == set(devices[1]) != set(), "the daemon has notices for users"
    assert not {"ProtectControlGroups", "PrivateUsers", "ProtectProc", "ProcSubset", "Delegate"} & service.keys()
    assert (socket["SocketUser"], socket["SocketMode"]) == ("sublet", "0600")
    assert f'"{socket["ListenSequentialPacket"]}"' in (ROOT / "src/daemon/places.cpp").read_text()


def test_the_sockets_are_where_the_programs_look():
    keeper, api = keys_of(ROOT / "packaging/sublet-keeper.socket"), keys_of(ROOT / "packaging/subletd.socket")
    actor = keys_of(ROOT / "packaging/sublet-actor.service")["ExecStart"]
    assert (keeper["SocketUser"], keeper["SocketMode"], keeper["Accept"]) == ("root", "0600", "yes")
    assert actor.endswith(f"--keeper-service {keeper['ListenSequentialPacket']}")
    assert f'"{api["ListenStream"]}"' in (ROOT / "src/daemon/places.cpp").read_text()


def test_the_worker_of_stacks_has_one_client_and_the_engine_s_group_alone():
    service, socket = (keys_of(ROOT / f"packaging/sublet-stacks.{kind}") for kind in ("service", "socket"))
    assert service["ExecStart"].endswith(f" --runtime /run/{service['RuntimeDirectory']}")
    assert (service["User"], service["SupplementaryGroups"]) == ("sublet-stacks", "docker")
    assert not service["CapabilityBoundingSet"] and service["PrivateNetwork"] == "yes"
    assert (socket["SocketUser"], socket["SocketMode"]) == ("sublet", "0600")
    assert f'"{socket["ListenStream"]}"' in (ROOT / "src/compose/protocol.h").read_text()
    needed = {"pidfd_open", "flock", "clone3", "execve", "setsid", "kill", "waitid", "accept4", "chdir", "renameat2"}
    assert needed <= calls_allowed(ROOT / "packaging/sublet-stacks.service")
    # It is off until an administrator turns it on.
    assert "sublet-stacks.socket" not in re.findall(
        "(?m)^ *(?:for unit in|deb-systemd-invoke start) .*", (ROOT / "packaging/debian/sublet.postinst").read_text())
    assert "docker" not in UNIT.read_text(), "the daemon is never in the engine's group"


def test_a_keeper_is_not_confined_and_outlives_all():
    service = keys_of(ROOT / "packaging/sublet-keeper@.service")
    confinement = re.compile("Protect|Private|Restrict|SystemCall|Capability|NoNewPrivileges|Device|IPAddress")
    assert not [key for key in service if confinement.match(key)]
    assert (service["KillMode"], service["StandardInput"], service["Delegate"]) == ("process", "socket", "yes")
    assert service["Before"] == "subletd.service", "at shutdown the daemon ends first; its socket would make a cycle"
    assert service["RefuseManualStart"] == "yes", "a restart would end the program"
    assert not {"PartOf", "BindsTo", "Requires"} & service.keys()


def calls_allowed(unit):
    """The system calls that the unit's filter lines leave, by systemd's own groups."""
    def expand(word):
        if not word.startswith("@"):
            return {word}
        done = systemd_analyze("syscall-filter", word)
        names = {line.strip() for line in done.stdout.splitlines()[1:] if line.strip() and "#" not in line}
        return set().union(*(expand(name) for name in names))

    allowed = set()
    for line in re.findall(r"(?m)^SystemCallFilter=(.*)", unit.read_text()):
        named = set().union(*(expand(word) for word in line.lstrip("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


def test_the_actor_has_the_system_calls_that_it_makes_and_few_that_only_root_may():
    allowed = calls_allowed(ROOT / "packaging/sublet-actor.service")
    needed = {"setgroups", "setresgid", "setresuid", "capset", "capget", "prctl", "setsid", "prlimit64", "execve",
              "faccessat2", "close_range", "pidfd_open", "pidfd_send_signal", "kill", "wait4", "socketpair", "accept4",
              "sendmsg", "recvmsg", "mkdir", "rmdir", "openat", "unlinkat", "getdents64", "socket", "bind",
              "setsockopt", "recvfrom", "memfd_create", "pread64"}
    assert needed <= allowed, needed - allowed
    drivers = {"sched_setaffinity", "mbind", "set_mempolicy"}
    assert drivers <= allowed
    refused = {"chown", "fchownat", "setuid", "setfsuid", "chroot", "mount", "bpf", "open_by_handle_at", "ptrace",
               "init_module", "reboot", "setpriority", "sched_setscheduler", "migrate_pages", "ioprio_set"}
    assert not refused & allowed, refused & allowed


def test_the_actors_records_belong_to_root_and_outlive_it():
    service = keys_of(ROOT / "packaging/sublet-actor.service")
    assert f"--records /run/{service['RuntimeDirectory']} " in service["ExecStart"]
    assert service["RuntimeDirectoryMode"] == "0700" and service["RuntimeDirectoryPreserve"] == "yes"


def without_comment_marks(text):
    """The example with its defaults turned on, as a user gets it who removes the comment marks."""
    return re.sub(r"(?m)^#(?=\w+ = )", "", text)


def test_the_example_is_valid_with_and_without_its_marks(tmp_path):
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11's tomllib")
    assert all(not table for table in tomllib.loads(EXAMPLE.read_text()).values())
    edited = tomllib.loads(without_comment_marks(EXAMPLE.read_text()))
    assert edited["device"]["headroom"] == "256MiB" and edited["queue"]["aging_per_minute"] == 1


def show(file):
    """The result of `sublet config check` on a configuration file."""
    program = BUILD / "bin/sublet"
    if not program.exists():
        pytest.skip(f"no {program}: build it first")
    done = subprocess.run([str(program), "config", "show", "--json", "--file", str(file)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["values"]


def test_the_example_spells_values_as_config_show_does():
    show(EXAMPLE)
    shown = subprocess.run([str(BUILD / "bin/sublet"), "config", "show", "--file", str(EXAMPLE)], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL, check=True).stdout
    lines = re.findall(r"(?m)^\[\w+\]$|^\w+ = .*$", without_comment_marks(EXAMPLE.read_text()))
    assert sorted(lines) == sorted(line for line in shown.splitlines() if line)


def test_the_example_names_every_key_with_its_default(tmp_path):
    file = tmp_path / "sublet.toml"
    file.write_text(without_comment_marks(EXAMPLE.read_text()))
    shown, defaults = show(file), show(EXAMPLE)
    assert {key: entry["value"] for key, entry in shown.items()} == {
        key: entry["value"] for key, entry in defaults.items()}
    assert not [key for key, entry in shown.items() if entry["origin"] == "default"]
    assert all(entry["origin"] in ("default", []) for entry in defaults.values())  # []: a list without tables
