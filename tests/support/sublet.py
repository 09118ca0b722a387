# SPDX-License-Identifier: Apache-2.0
"""A private daemon with simulated cards, its API and its command line, for tests from outside."""
import contextlib
import gzip
import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time

from . import contract

ROOT = contract.ROOT
BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", ROOT / "build"))
BIN = BUILD / "bin"
GIB = 1 << 30
MIB = 1 << 20


def watches_itself():
    """Tells whether the daemon is built with a sanitizer, which needs memory of its own."""
    text = (BIN / "subletd").read_bytes()
    return b"__asan_" in text or b"__tsan_" in text


def wait_until(condition, what, timeout=60.0):
    """Waits until `condition()` is true and returns its result; fails with `what` and the last result. The last look
    begins after the limit: a machine that is so slow that one look takes as long fails no test.
    """
    began = time.monotonic()
    looks, longest = 0, 0.0
    while True:
        look = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        looks, longest = looks + 1, max(longest, now - look)
        if look - began >= timeout:
            break
        select.select([], [], [], 0.02 if now - began < 1 else 0.05)  # a long wait costs less
    raise AssertionError(f"waited {timeout:.0f} s in vain for: {what} (last seen: {value!r}; {looks} looks, the "
                         f"longest took {longest:.1f} s)")


def state_of(pid):
    """Returns the state letter of /proc/PID/stat; "Z" for a process that no longer exists."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def name_of(pid):
    """Returns the kernel's name of the process; "" for a process that no longer exists."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def living(pid):
    return state_of(pid) not in "ZX"


def pidfds_have_inodes():
    """Tells whether this kernel (6.9 and later) gives each process's pidfd an inode of its own."""
    mine, parents = os.pidfd_open(os.getpid()), os.pidfd_open(os.getppid())
    try:
        return os.fstat(mine).st_ino != os.fstat(parents).st_ino
    finally:
        os.close(mine), os.close(parents)


def unified_mounts():
    """Returns the mount point of the unified control group hierarchy."""
    lines = [line.split() for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    return [pathlib.Path(fields[4]) for fields in lines if fields[fields.index("-") + 1] == "cgroup2"]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Reply:
    def __init__(self, status, body, headers):
        self.status, self.body, self.headers = status, body, headers

    def __getitem__(self, key):
        return self.body[key]

    def __repr__(self):
        return f"{self.status} {self.body}"


def events_of(text):
    """Returns the data of each event of a whole stream. The request must say follow=false."""
    assert text.split(b"\n\n")[-2:-1][0].startswith(b": end"), text[-200:]
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith(b"data: ")]


class Api:
    """A keep-alive connection to the daemon; every reply is checked against the contract."""

    def __init__(self, path, timeout=120):
        self.connection = _UnixConnection(path, timeout)

    def call(self, method, path, body=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
        self.connection.request(method, path, data, named)
        raw = self.connection.getresponse()
        text = raw.read()
        if raw.headers.get("Content-Encoding") == "gzip":
            text = gzip.decompress(text)
        kind = raw.headers.get_content_type()
        if kind == "text/event-stream":
            parsed = events_of(text)
        else:
            parsed = json.loads(text) if kind.endswith("json") else text.decode()
        contract.check_reply(method, path, raw.status, kind, parsed, raw.headers)
        return Reply(raw.status, parsed, raw.headers)

    def get(self, path, **headers):
        return self.call("GET", path, None, **headers)

    def post(self, path, body=None, **headers):
        return self.call("POST", path, body, **headers)

    def lease(self, id, **headers):
        return self.get(f"/v1/leases/{id}", **headers).body

    def close(self):
        self.connection.close()


@contextlib.contextmanager
def lent(daemon):
    """Lends a daemon that several tests share to one of them, and ends what this test starts. The test must leave the
    daemon running, and the same leases alive.
    """
    def live():
        return sorted(lease["id"] for lease in daemon.get("/v1/leases")["leases"])

    before, apis, children, log = live(), len(daemon.apis), len(daemon.children), len(daemon.log())
    try:
        yield daemon
    finally:
        print(f"--- log of {daemon.dir}\n{daemon.log()[log:]}")
        daemon.end_children(apis, children)
    assert daemon.process.poll() is None, "the test has ended a daemon of other tests"
    wait_until(lambda: live() == before, "the leases are those of before the test")


class Daemon:
    """Runs subletd --dir DIR --sim SPEC: starts it, kills it, starts it again. Everything that it started ends with it.
    """

    def __init__(self, sim="1x4GiB", config="", fast=True, command=()):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sublet-", dir=os.environ.get("SUBLET_TEST_TMP")))
        self.sim = sim
        self.command = command  # words before the daemon's command that execute it
        self.process = None
        self.children = []
        self.apis = []
        if fast and not config:
            config = '[gpu]\ninterval_idle = "1s"\n'
        (self.dir / "sublet.toml").write_text(config)

    # --- the daemon ---
    def start(self, expect_ready=True, wait_for_cards=True, extra=()):
        ready, theirs = os.pipe()
        arguments = [*self.command, BIN / "subletd", "--dir", self.dir, "--ready-fd", str(theirs), *extra]
        if self.sim:
            arguments += ["--sim", self.sim]
        log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        pass_fds=[theirs])
        log.close()
        os.close(theirs)
        readable, _, _ = select.select([ready], [], [], 60)
        said = os.read(ready, 16) if readable else b""
        os.close(ready)
        if expect_ready:
            assert said == b"ready\n", f"the daemon did not start:\n{self.log()}"
            if wait_for_cards:
                wait_until(lambda: (devices := self.get("/v1/devices")["devices"]) and
                           all(device["state"] == "ok" for device in devices), "the cards are read")
                self.get("/v1/leases")  # the answer comes once all earlier decisions and events are durable
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self, **options):
        if self.process.poll() is None:
            self.kill()
        return self.start(**options)

    def log(self):
        return (self.dir / "log").read_text(errors="replace")

    @property
    def socket(self):
        return self.dir / "sublet.sock"

    def api(self):
        api = Api(self.socket)
        self.apis.append(api)
        return api

    def get(self, path):
        """Sends a request on a connection of its own."""
        api = Api(self.socket)
        try:
            return api.get(path)
        finally:
            api.close()

    def child_pid(self, name):
        """Returns the pid of a living child of the daemon by its program's name, or None."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError):
                text = pathlib.Path(f"/proc/{entry}/stat").read_text()
                rest = text[text.rindex(")") + 2:].split()
                if f"({name[:15]})" in text and int(rest[1]) == self.process.pid and rest[0] != "Z":
                    return int(entry)
        return None

    @contextlib.contextmanager
    def store(self):
        """Opens the store of a stopped daemon with SQLite; changes are kept."""
        connection = sqlite3.connect(self.dir / "state" / "store.db")
        with contextlib.closing(connection), connection:
            yield connection

    # --- programs ---
    def env(self, **more):
        # Another thread may take a variable away meanwhile.
        own = {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}
        env = dict(own, SUBLET_HOST=f"unix://{self.socket}", SIMGPU_DIR=str(self.dir / "simgpu"))
        env["LD_LIBRARY_PATH"] = f"{BUILD / 'lib' / 'simgpu'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        env["PATH"] = f"{BIN}:{env['PATH']}"
        for name in ("SUBLET_LEASE", "CUDA_VISIBLE_DEVICES"):
            env.pop(name, None)
        env.update(more)
        return env

    def cli(self, *arguments, check=None, input=None, timeout=120, **env):
        """Runs `sublet ARGUMENTS` to its end; `check` is the expected exit status."""
        done = subprocess.run(["sublet", *map(str, arguments)], env=self.env(**env), input=input, text=True,
                              capture_output=True, timeout=timeout)
        if check is not None:
            assert done.returncode == check, f"sublet {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments):
        return json.loads(self.cli(*arguments, "--json", check=0).stdout)

    def spawn(self, *command, **options):
        """Starts a program that sees the daemon and its cards; the end of the test kills it."""
        env = options.pop("env", None) or self.env()
        child = subprocess.Popen(list(map(str, command)), env=env, text=True,
                                 stdin=options.pop("stdin", subprocess.DEVNULL),
                                 stdout=options.pop("stdout", subprocess.PIPE),
                                 stderr=options.pop("stderr", subprocess.PIPE), **options)
        self.children.append(child)
        return child

    def leases(self, all=False):
        return self.json("ps", *(["--all"] if all else []))["leases"]

    def cards(self):
        """Returns the simulated cards from their own table: devices, processes, violations, calls."""
        done = subprocess.run([BIN / "simgpu-ctl", "--dir", self.dir, "show", "--json"], capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)

    def ctl(self, *arguments):
        subprocess.run([BIN / "simgpu-ctl", "--dir", self.dir, *map(str, arguments)], check=True, capture_output=True)

    def end_children(self, apis=0, children=0):
        """Closes the connections and ends the programs that were made after the first ones."""
        for api in self.apis[apis:]:
            api.close()
        for child in self.children[children:]:
            if child.poll() is None:
                child.kill()
            for stream in (child.stdout, child.stderr, child.stdin):
                if stream:
                    stream.close()
            child.wait()
        del self.apis[apis:], self.children[children:]

    def close(self):
        self.end_children()
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._end_orphans()
        log = self.log()
        self._sweep_groups()
        shutil.rmtree(self.dir, ignore_errors=True)
        # A daemon with a sanitizer (./dev test-asan) may report its findings only when it ends.
        assert "Sanitizer" not in log, log

    def group_name(self):
        """Returns the name of this daemon's control groups."""
        state = (self.dir / "state").stat()
        return f"sublet-{state.st_dev:x}-{state.st_ino:x}"

    def groups(self, lease=""):
        """Returns the control groups that were made for programs of this daemon, or of one lease only."""
        if not (self.dir / "state").exists():  # the daemon never started
            return []
        # Other tests make and remove groups meanwhile; this walk tolerates that.
        found = [pathlib.Path(base) / name for mount in unified_mounts() for base, names, _ in os.walk(mount)
                 if pathlib.Path(base).name == self.group_name() for name in names if name.startswith("lease-")]
        return [group for group in found if lease in ("", group.name)]

    def _sweep_groups(self):
        """Removes the groups that the actor leaves behind because they still have processes. The processes end with the
        test.
        """
        def gone(group):
            with contextlib.suppress(OSError):
                group.rmdir()
            return not group.exists()

        for group in self.groups():
            wait_until(lambda group=group: gone(group), f"{group} is empty")
            with contextlib.suppress(OSError):
                group.parent.rmdir()

    def _end_orphans(self):
        """Kills the programs of this daemon's cards: programs outlive their keepers by design."""
        mark = f"SIMGPU_DIR={self.dir}/simgpu".encode()
        host = f"unix://{self.socket}".encode()
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                keeper = words[0].endswith(b"/sublet-keep") and host in words
                if keeper or mark in pathlib.Path(f"/proc/{entry}/environ").read_bytes() and int(entry) != os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
