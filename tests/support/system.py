# SPDX-License-Identifier: Apache-2.0
"""The system's daemon as its units run it: a daemon of a plain user, an actor of root, and programs of several users on
one simulated card. All run in a mount table of their own, where /run, /var/lib and the groups of the machine are the
test's.
"""
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import pytest

from .parking import until_filled
from .sublet import BIN, Api, wait_until

DAEMON = 1  # "daemon", an account of every Debian
GROUP, ADMINS, LOGS = 64901, 64902, 64903  # "sublet", "sublet-admin" and "sublet-logs" in the mount table
CAROL = 54390  # an account in the mount table, a member of the first two
DAVE = 54391  # an account in the mount table, a member of the first one
# The capabilities that the unit leaves to the actor.
CAPABILITIES = "+kill,+setuid,+setgid,+sys_ptrace,+net_admin"
PROGRAMS = ("subletd", "sublet", "sublet-gpu", "sublet-actor", "sublet-keep", "simgpu-ctl", "simgpu-load")
MOUNTS = """set -e
mount --bind "$0/run" /run; mount --bind "$0/var" /var/lib; mount --bind "$0/group" /etc/group
mount --bind "$0/passwd" /etc/passwd
echo mounted; exec sleep 100000"""


class System:
    def __init__(self, config="", capabilities=CAPABILITIES, cards="1x4GiB", people=None):
        """`people`: more accounts, each a name with its number and the name of its group, which has that number too."""
        if os.geteuid() != 0:
            pytest.skip("only root can become several users")
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="sublet-", dir=os.environ.get("SUBLET_TEST_TMP")))
        self.capabilities = capabilities
        self.services = {}  # additional environment of daemon and actor
        self.children, self.apis, self.keepers = [], [], []
        self.process = self.actor = self.listener = self.keeper_listener = self.api_listener = self.journal = None
        self._lay_out(config, cards, people or {})
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNTS, self.home]
        self.mounts = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.mounts.stdout.readline() != "mounted\n":
            self.close()
            pytest.skip("no mount table of its own can be made here")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.home / "run/sublet-actor.sock"))
        os.chown(self.home / "run/sublet-actor.sock", DAEMON, DAEMON)
        self.listener.listen(8)

    def _lay_out(self, config, cards, people):
        self.home.chmod(0o755)
        for place in ("bin", "run/sublet", "var/sublet"):
            (self.home / place).mkdir(parents=True)
        for program in PROGRAMS:
            shutil.copy(BIN / program, self.home / "bin" / program)
        shutil.copytree(BIN.parent / "lib/simgpu", self.home / "lib/simgpu")
        for place in ("run/sublet", "var/sublet"):
            os.chown(self.home / place, DAEMON, DAEMON)
        members = ",".join([*(f"member{n}" for n in range(3000)), "carol"])  # long times, as on a busy machine
        (self.home / "group").write_text(f"root:x:0:\ndaemon:x:1:\nsublet:x:{GROUP}:{members},dave,games,man,mail\n"
                                         f"sublet-admin:x:{ADMINS}:{members}\nsublet-logs:x:{LOGS}:daemon\n"
                                         + "".join(f"{group}:x:{uid}:\n" for uid, group in people.values()))
        accounts = pathlib.Path("/etc/passwd").read_text()
        (self.home / "passwd").write_text(accounts + f"carol:x:{CAROL}:{CAROL}::/nonexistent:/bin/sh\n"
                                          f"dave:x:{DAVE}:{DAVE}::/nonexistent:/bin/sh\n"
                                          + "".join(f"{name}:x:{uid}:{uid}::/nonexistent:/bin/sh\n"
                                                    for name, (uid, _) in people.items()))
        (self.home / "sublet.toml").write_text(
            '[ledger]\nreserve = "1MiB"\n'  # simulated memory is sparse and takes almost no host memory
            '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
            f'nvml = "{self.home}/lib/simgpu/libnvidia-ml.so.1"\n{config}')
        self.ctl("create", cards)
        (self.home / "gpu/simgpu").chmod(0o1777)
        for key in ("checkpoint_us", "checkpoint_bandwidth", "restore_us", "restore_bandwidth"):
            self.ctl("set", key, 0)

    def ctl(self, *arguments):
        subprocess.run([BIN / "simgpu-ctl", "--dir", self.home / "gpu", *map(str, arguments)], check=True,
                       capture_output=True)

    def cards(self):
        done = subprocess.run([BIN / "simgpu-ctl", "--dir", self.home / "gpu", "show", "--json"], capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)

    def env(self):
        return {"PATH": f"{self.home}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SIMGPU_DIR": f"{self.home}/gpu/simgpu",
                "LD_LIBRARY_PATH": f"{self.home}/lib/simgpu", "LANG": "C.UTF-8"}

    def inside(self, uid, *command, groups=(GROUP,)):
        """Returns the words that run a command in the mount table as that user."""
        whose = (["--clear-groups"] if not groups else ["--groups", ",".join(map(str, groups))])
        who = ["setpriv", "--reuid", str(uid), "--regid", str(uid), *whose] if uid else []
        return ["nsenter", f"--mount=/proc/{self.mounts.pid}/ns/mnt", *who, *map(str, command)]

    # --- the services ---
    def start_actor(self):
        number = self.listener.fileno()
        command = (f"exec 3<&{number}; LISTEN_FDS=1 LISTEN_PID=$$ exec setpriv --bounding-set=-all,{self.capabilities} "
                   f"{self.home}/bin/sublet-actor listen --user daemon --name sublet-test-{os.getpid()} "
                   f"--driver {self.home}/lib/simgpu/libcuda.so.1 --env SIMGPU_DIR={self.home}/gpu/simgpu "
                   f"--records {self.home}/run/helpers --keeper-service /run/sublet-keeper.sock")
        self.actor = subprocess.Popen(self.inside(0, "bash", "-c", command), pass_fds=[number],
                                      stdin=subprocess.DEVNULL, env={**os.environ, **self.services})
        return self

    def start_keeper_service(self):
        """As sublet-keeper.socket: each connection starts the command of sublet-keeper@.service."""
        path = self.home / "run/sublet-keeper.sock"
        self.keeper_listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.keeper_listener.bind(str(path))
        path.chmod(0o600)
        self.keeper_listener.listen(64)
        command = self.inside(0, f"{self.home}/bin/sublet-actor", "keep", "--logs", "/var/lib/sublet/logs",
                              "--log-group", "sublet-logs")

        def serve():
            while True:
                try:
                    connection, _ = self.keeper_listener.accept()
                except OSError:
                    return
                with connection:
                    self.keepers.append(subprocess.Popen(command, stdin=connection, env={"PATH": os.environ["PATH"]}))

        threading.Thread(target=serve, daemon=True).start()
        return self

    def listen_for_daemon(self, path="run/sublet/sublet.sock"):
        """As subletd.socket: the daemon gets this socket at its start."""
        self.api_listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.api_listener.bind(str(self.home / path))
        (self.home / path).chmod(0o666)
        self.api_listener.listen(64)
        return self

    def listen_for_entries(self):
        """As journald, for the daemon's log."""
        (self.home / "run/systemd/journal").mkdir(parents=True)
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.journal.bind(str(self.home / "run/systemd/journal/socket"))
        (self.home / "run/systemd/journal/socket").chmod(0o666)
        (self.home / "log").touch()
        info = (self.home / "log").stat()
        self.services["JOURNAL_STREAM"] = f"{info.st_dev}:{info.st_ino}"
        return self

    def entries(self):
        """Yields the entries of the journal, as mappings, until none is there for a minute."""
        while select.select([self.journal], [], [], 60)[0]:
            yield dict(line.split("=", 1) for line in self.journal.recv(1 << 20).decode().splitlines())

    def begin_daemon(self, pass_fds):
        words = ["subletd", "--config", self.home / "sublet.toml", *(["--ready-fd", pass_fds[0]] if pass_fds else [])]
        if self.api_listener:
            pass_fds = [*pass_fds, self.api_listener.fileno()]
            script = f'exec 3<&{pass_fds[-1]}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"'
            words = ["bash", "-c", script, *words]
        with open(self.home / "log", "ab") as log:
            self.process = subprocess.Popen(self.inside(DAEMON, *words, groups=(LOGS,)), pass_fds=pass_fds,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=dict(self.env(), STATE_DIRECTORY="/var/lib/sublet", **self.services))

    def start_daemon(self):
        ready, theirs = os.pipe()
        self.begin_daemon([theirs])
        os.close(theirs)
        readable, _, _ = select.select([ready], [], [], 60)
        said = os.read(ready, 16) if readable else b""
        os.close(ready)
        assert said == b"ready\n", self.log()
        wait_until(lambda: (devices := self.get("/v1/devices")["devices"]) and devices[0]["state"] == "ok",
                   "the card is read")
        wait_until(lambda: self.get("/v1/status")["daemon"]["actor"]["ready"], "the actor is there")
        return self

    def start(self):
        return self.start_actor().start_daemon()

    def log(self):
        return (self.home / "log").read_text(errors="replace") if (self.home / "log").exists() else ""

    # --- its callers ---
    def get(self, path):
        api = Api(self.home / "run/sublet/sublet.sock")
        try:
            return api.get(path)
        finally:
            api.close()

    def lease(self, tag):
        return self.get(f"/v1/leases/{tag}").body

    def until(self, tag, state):
        return wait_until(lambda: (now := self.lease(tag)).get("state") == state and now, f"{tag} is {state}")

    def cli(self, uid, *arguments, check=None, groups=(GROUP,)):
        done = subprocess.run(self.inside(uid, "sublet", *arguments, groups=groups), env=self.env(),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        if check is not None:
            assert done.returncode == check, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def begin(self, uid, *arguments, groups=(GROUP,)):
        """Starts the same without waiting for its end."""
        child = subprocess.Popen(self.inside(uid, "sublet", *arguments, groups=groups), env=self.env(),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def run(self, uid, tag, *command, vram="2GiB", more=()):
        """Starts a program of that user under a lease."""
        child = subprocess.Popen(
            self.inside(uid, "sublet", "run", "--vram", vram, "--tag", tag, *more, "--", *command), env=self.env(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def load(self, uid, tag, *more, alloc="1GiB", seconds="600", **options):
        """Starts a program that fills `alloc` of the card and checks every byte until it is stopped."""
        child = self.run(uid, tag, *options.pop("program", ["simgpu-load"]), "--alloc", alloc, "--seconds", seconds,
                         "--verify", *more, **options)
        until_filled(self, tag, alloc)
        return child

    def close(self):
        for child in [*self.children, self.process, self.actor, self.mounts]:
            if child is None:
                continue
            if child.poll() is None:
                child.kill()
            for stream in (child.stdout, child.stderr):
                if stream:
                    stream.close()
            child.wait()
        for listener in filter(None, (self.listener, self.keeper_listener, self.api_listener)):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self.journal:
            self.journal.close()
        self._end_orphans()
        for keeper in self.keepers:
            keeper.kill()
            keeper.wait()
        print(f"--- log of {self.home}\n{self.log()}")
        shutil.rmtree(self.home, ignore_errors=True)

    def _end_orphans(self):
        """Kills the programs and helpers of this card: they outlive their starters by design."""
        mark = f"SIMGPU_DIR={self.home}/gpu/simgpu".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass


def helpers_of(pid):
    """Returns the living processes of ours that park the process of that pid."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [b"checkpoint"] and words[words.index(b"--pid") + 1] == str(pid).encode():
            found.append(int(entry.name))
    return found
