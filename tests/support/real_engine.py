# SPDX-License-Identifier: Apache-2.0
"""A real Docker Engine of the test's own: its data, its runtime files and its socket are in one directory.

It has no bridge and no rules for the network, so containers say `network_mode: none` or `host`. It has one image,
"busybox:sublet", made of the machine's static busybox.
"""
import http.client
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile

import pytest

from .sublet import ROOT, living, wait_until

IMAGE = "busybox:sublet"
NAMES = ("sh", "sleep", "true", "cat", "test", "touch", "echo", "kill", "env")


def need():
    """Skips the test, and says why, where no engine can be started."""
    if os.geteuid() != 0:
        pytest.skip("a Docker Engine needs root")
    for program in ("dockerd", "containerd", "runc", "busybox"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed (docker.io, busybox-static)")


def compose_programs():
    """Returns the Compose programs of this machine: version 1 of Debian, and the current one of our requirements."""
    current = ROOT / ".venv-thirdparty/bin/docker-compose"
    found = {"v1": shutil.which("docker-compose"), "current": str(current) if current.exists() else None}
    return {name: path for name, path in found.items() if path}


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class RealEngine:
    def __init__(self, gpus=False):
        """`gpus`: it has a runtime "nvidia" and takes requests for GPUs, which nothing fulfils."""
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="sublet-engine-"))
        self.directory.chmod(0o755)
        self.path = self.directory / "docker.sock"
        self.url = f"unix://{self.path}"
        self.log = open(self.directory / "log", "ab")  # noqa: SIM115, closed by close()
        self.process, self.started, self.gpus = None, False, gpus

    def start(self):
        """Starts the engine; also again, after kill()."""
        place = self.directory
        (place / "docker.pid").unlink(missing_ok=True)
        more, environment = [], dict(os.environ)
        if self.gpus:
            hook = place / "hooks/nvidia-container-runtime-hook"
            hook.parent.mkdir(exist_ok=True)
            hook.write_text("#!/bin/sh\nexit 0\n")
            hook.chmod(0o755)
            more = [f"--add-runtime=nvidia={shutil.which('runc')}"]
            environment["PATH"] = f"{hook.parent}:{environment['PATH']}"
        self.process = subprocess.Popen(
            ["dockerd", "--data-root", place / "data", "--exec-root", place / "exec", "--pidfile",
             place / "docker.pid", "--host", self.url, "--storage-driver=vfs", "--iptables=false", "--ip-forward=false",
             "--bridge=none", "--userland-proxy=false", *more],
            env=environment, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: self.answers() or self.process.poll() is not None, "the Docker Engine")
        finally:
            if self.process.poll() is not None:
                text = (place / "log").read_text(errors="replace")[-1500:]
                assert not self.started, f"the Docker Engine does not start again: {text}"
                self.close()
                pytest.skip(f"the Docker Engine does not start here: {text}")
        self.started = True
        return self

    def answers(self):
        try:
            return self.call("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def call(self, method, path, body=None):
        connection = _Connection(self.path)
        try:
            connection.request(method, "/v1.41" + path, body, {"Content-Type": "application/x-tar"} if body else {})
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def import_image(self):
        text = io.BytesIO()
        with tarfile.open(fileobj=text, mode="w") as tar:
            tar.add(shutil.which("busybox"), "bin/busybox")
            for name in NAMES:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
            for name in ("tmp", "etc"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o777
                tar.addfile(folder)
        repository, tag = IMAGE.split(":")
        status, answer = self.call("POST", f"/images/create?fromSrc=-&repo={repository}&tag={tag}", text.getvalue())
        assert status == 200 and b"error" not in answer, answer
        return self

    def containers(self):
        return json.loads(self.call("GET", "/containers/json?all=1")[1])

    def inspect(self, name):
        status, text = self.call("GET", f"/containers/{name}/json")
        return json.loads(text) if status == 200 else None

    def clear(self):
        for container in self.containers():
            self.call("DELETE", f"/containers/{container['Id']}?force=1")

    def kill(self):
        """Ends the engine by SIGKILL. The parents of its containers live on, until the next engine ends them."""
        self.process.kill()
        self.process.wait()
        self.kill_containerd()

    def kill_containerd(self):
        pid = self.directory / "exec/containerd/containerd.pid"
        if pid.exists() and living(number := int(pid.read_text())):
            os.kill(number, signal.SIGKILL)
            wait_until(lambda: not living(number), "the end of containerd")
        pid.unlink(missing_ok=True)

    def kill_shims(self):
        """Ends the containers that an engine left behind, with their parents."""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
                children = (path.parent / f"task/{path.parent.name}/children").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"containerd-shim" in words[0] and os.fsencode(self.directory) in b" ".join(words):
                for pid in (*children, path.parent.name):
                    os.kill(int(pid), signal.SIGKILL)

    def close(self):
        if self.process.poll() is None:
            self.clear()
            self.process.terminate()
            self.process.wait(60)
        self.log.close()
        self.kill_shims()
        self.kill_containerd()
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.directory)):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
