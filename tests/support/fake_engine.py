# SPDX-License-Identifier: Apache-2.0
"""A container engine for tests: it speaks the Docker Engine API at a Unix socket and has containers in name only.

    with FakeEngine(directory) as engine:      # serves at engine.url, "unix:///…/engine.sock"
        engine.up("one", {"web": {"labels": {…}, "healthcheck": True, "replicas": 1}})
        engine.set_health("one", "web", "unhealthy")
        engine.die("one", "web", 137)

tests/support/fake_compose.py is the Compose program that creates and removes containers here.

A service whose image is "host" is a process of this machine: its `command` (a list) is started with the service's
environment, and the container has its pid. The other containers have the pid 0 or what set_pid() says.

The test steers the engine from any thread:
  up, down(project)             as a Compose program does; `directory`: the project's, for its label
  set_health, set_pid, log      change one container; the first of the service, or the given number
  die(project, service, code)   the container exits (its process is killed)
  away() and back()             nobody listens, all connections are cut; the containers stay
  hang() and unhang()           calls are accepted and not answered
  auto_healthy                  True: a container with a healthcheck is healthy at once; False: it says "starting"
  gpu_runtime                   True: the engine has the runtime "nvidia"
  calls                         list of "METHOD path" of all calls, without the version in the path
  refuse[path prefix] = text    calls of this path are answered with status 500 and the text
"""
import contextlib
import http.server
import itertools
import json
import os
import pathlib
import secrets
import signal
import socket
import socketserver
import struct
import subprocess
import threading
import urllib.parse

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"
NUMBER = "com.docker.compose.container-number"
DIRECTORY = "com.docker.compose.project.working_dir"
API_VERSION = "1.41"


class Container:
    def __init__(self, project, service, number, spec, directory):
        self.id = secrets.token_hex(32)
        self.name = f"{project}-{service}-{number}"
        self.project, self.service, self.number, self.spec = project, service, number, spec
        self.labels = {**(spec.get("labels") or {}), PROJECT: project, SERVICE: service, NUMBER: str(number)}
        if directory:
            self.labels[DIRECTORY] = directory
        self.environment = dict(spec.get("environment") or {})
        self.status, self.code, self.pid, self.process = "created", 0, 0, None
        self.health = "starting" if spec.get("healthcheck") else ""
        self.lines = []  # the log

    def state(self):
        state = {"Status": self.status, "Running": self.status == "running", "Paused": False, "Restarting": False,
                 "OOMKilled": False, "Dead": False, "Pid": self.pid, "ExitCode": self.code, "Error": "",
                 "StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}
        if self.health:
            state["Health"] = {"Status": self.health, "FailingStreak": 0, "Log": []}
        return state

    def row(self):
        return {"Id": self.id, "Names": ["/" + self.name], "Image": self.spec.get("image", ""),
                "Labels": self.labels, "State": self.status, "Status": self.status}

    def document(self):
        return {"Id": self.id, "Name": "/" + self.name, "State": self.state(),
                "NetworkSettings": {"Ports": self.spec.get("ports") or {}},
                "Config": {"Labels": self.labels, "Tty": False,
                           "Env": [f"{key}={value}" for key, value in self.environment.items()]}}


class FakeEngine:
    def __init__(self, directory):
        self.path = pathlib.Path(directory) / "engine.sock"
        self.url = f"unix://{self.path}"
        self.auto_healthy, self.gpu_runtime = True, False
        self.new_health = None  # what a new container with a healthcheck soon says, if not auto_healthy
        self.calls, self.refuse, self.containers = [], {}, []
        self.changed = threading.Condition()
        self.events = []  # the whole stream so far
        self.hanging = False
        self.server, self.connections = None, set()
        self.clock = itertools.count(1)

    def __enter__(self):
        self.back()
        return self

    def __exit__(self, *_):
        self.unhang()
        self.away()
        for project in {container.project for container in self.containers}:
            self.down(project)

    # --- the engine itself ---

    def back(self):
        """Serves again, after away() or for the first time."""
        self.path.unlink(missing_ok=True)
        self.server = _Server(str(self.path), _Handler)
        self.server.engine = self
        self.serving = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.serving.start()

    def away(self):
        """Stops serving, as an engine that was killed."""
        server, self.server = self.server, None
        if server is None:
            return
        server.shutdown()
        self.serving.join()
        server.server_close()
        self.path.unlink(missing_ok=True)
        with self.changed:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.changed.notify_all()

    def hang(self):
        self.hanging = True

    def unhang(self):
        with self.changed:
            self.hanging = False
            self.changed.notify_all()

    def wait(self, condition, what):
        """Waits until `condition()` is true; it is looked at after each change and each call."""
        with self.changed:
            assert self.changed.wait_for(condition, 60), f"waited in vain for: {what} (calls: {self.calls})"

    # --- containers ---

    def of(self, project, service=None):
        """Returns the containers of a project, or of a service in it."""
        return [c for c in self.containers if c.project == project and service in (None, c.service)]

    def find(self, project, service, number=1):
        return next(c for c in self.of(project, service) if c.number == number)

    def up(self, project, services, only=None, directory=None, recreate=False):
        """Creates and starts containers. Running ones with the same content stay. `only`: number of services."""
        for service, spec in list(services.items())[:only]:
            for number in range(1, int(spec.get("replicas", 1)) + 1):
                old = [c for c in self.of(project, service) if c.number == number]
                if old and old[0].spec == spec and not recreate:
                    if old[0].status != "running":
                        self.start(old[0])
                    continue
                for container in old:
                    self.remove(container)
                container = Container(project, service, number, spec, directory)
                with self.changed:
                    self.containers.append(container)
                self.tell("create", container)
                self.start(container)

    def start(self, container):
        command = container.spec.get("command")
        if container.spec.get("image") == "host" and command:
            container.process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL,
                                                 env={**os.environ, **container.environment})
            container.pid = container.process.pid
        container.status, container.code = "running", 0
        container.health = "starting" if container.spec.get("healthcheck") else ""
        self.tell("start", container)
        if container.health and self.auto_healthy:
            self.set_health(container.project, container.service, "healthy", container.number)
        elif container.health and self.new_health:
            self.set_health(container.project, container.service, self.new_health, container.number)

    def down(self, project):
        for container in self.of(project):
            self.remove(container)

    def remove(self, container):
        if container.status == "running":
            self.end(container, 137)
        with self.changed:
            self.containers.remove(container)
        self.tell("destroy", container)

    def die(self, project, service, code=0, number=1):
        self.end(self.find(project, service, number), code)

    def end(self, container, code):
        if container.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(container.process.pid, signal.SIGKILL)
            container.process.wait()
        container.status, container.code, container.pid, container.process = "exited", code, 0, None
        if container.health:
            container.health = "unhealthy"
        self.tell("die", container, exitCode=str(code))

    def set_health(self, project, service, health, number=1):
        container = self.find(project, service, number)
        container.health = health
        self.tell(f"health_status: {health}", container)

    def set_pid(self, project, service, pid, number=1):
        self.find(project, service, number).pid = pid

    def log(self, project, service, line, number=1):
        with self.changed:
            self.find(project, service, number).lines.append(line)
            self.changed.notify_all()

    def tell(self, action, container, **attributes):
        with self.changed:
            self.events.append({"Type": "container", "Action": action, "status": action, "id": container.id,
                                "Actor": {"ID": container.id, "Attributes": {**container.labels, **attributes}},
                                "time": 1_700_000_000, "timeNano": next(self.clock)})
            self.changed.notify_all()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):  # a cut connection
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.engine, self.live = self.server.engine, self.server
        with self.engine.changed:
            self.engine.connections.add(self.connection)

    def finish(self):
        with self.engine.changed:
            self.engine.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def here(self):
        return self.engine.server is self.live

    def parts(self):
        url = urllib.parse.urlsplit(self.path)
        words = url.path.strip("/").split("/")
        if words[0].startswith("v1."):
            words = words[1:]
        return words, {key: value[0] for key, value in urllib.parse.parse_qs(url.query).items()}

    def begin(self):
        words, query = self.parts()
        path = "/" + "/".join(words)
        with self.engine.changed:
            self.engine.calls.append(f"{self.command} {path}")
            self.engine.changed.notify_all()
            self.engine.changed.wait_for(lambda: not self.engine.hanging or not self.here())
        for prefix, text in self.engine.refuse.items():
            if path.startswith(prefix):
                self.reply(500, {"message": text})
                return None, None
        return words, query

    def do_GET(self):
        words, query = self.begin()
        if words is None:
            return
        if words == ["_ping"]:
            self.reply(200, "OK")
        elif words == ["version"]:
            self.reply(200, {"Version": "20.10.24", "ApiVersion": API_VERSION, "MinAPIVersion": "1.12"})
        elif words == ["info"]:
            runtimes = {"runc": {"path": "runc"}, **({"nvidia": {"path": "nvidia"}} if self.engine.gpu_runtime else {})}
            self.reply(200, {"Runtimes": runtimes, "DefaultRuntime": "runc"})
        elif words == ["containers", "json"]:
            self.reply(200, [c.row() for c in self.listed(query)])
        elif words == ["events"]:
            self.follow_events(query)
        elif len(words) == 3 and words[0] == "containers":
            self.one_container(words[1], words[2], query)
        else:
            self.reply(404, {"message": "page not found"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        words, _ = self.begin()
        if words is None:
            return
        if words == ["fake", "up"]:
            self.engine.up(body["project"], body["services"], body.get("only"), body["directory"],
                           body.get("recreate", False))
        elif words == ["fake", "down"]:
            self.engine.down(body["project"])
        self.reply(200, {})

    def listed(self, query):
        wanted = [label.partition("=") for label in self.labels(query)]
        with self.engine.changed:
            return [c for c in self.engine.containers
                    if ("all" in query or c.status == "running") and self.matches(c.labels, wanted)]

    @staticmethod
    def labels(query):
        labels = json.loads(query.get("filters", "{}")).get("label", [])
        return list(labels)  # a list, or the keys of the older form {"label": {"a=b": true}}

    @staticmethod
    def matches(labels, wanted):
        return all(key in labels and (not equals or labels[key] == value) for key, equals, value in wanted)

    def one_container(self, id, what, query):
        container = next((c for c in self.engine.containers if c.id.startswith(id) or c.name == id), None)
        if container is None:
            self.reply(404, {"message": f"No such container: {id}"})
        elif what == "json":
            self.reply(200, container.document())
        elif what == "logs":
            self.follow_log(container, query)
        else:
            self.reply(404, {"message": "page not found"})

    def follow_log(self, container, query):
        tail = query.get("tail", "all")
        sent = 0 if tail == "all" else max(0, len(container.lines) - int(tail))
        self.start_stream("application/vnd.docker.raw-stream")
        while True:
            for line in container.lines[sent:]:
                data = line.encode() + b"\n"
                self.chunk(struct.pack(">BxxxL", 1, len(data)) + data)
                sent += 1
            with self.engine.changed:
                ended = query.get("follow") not in ("1", "true") or container.status != "running"
                if ended or not self.here():
                    break
                self.engine.changed.wait_for(lambda: len(container.lines) > sent or not self.here()
                                             or container.status != "running")
        self.chunk(b"")

    def follow_events(self, query):
        wanted = [label.partition("=") for label in self.labels(query)]
        with self.engine.changed:
            sent = len(self.engine.events)
        self.start_stream("application/json")
        while self.here():
            with self.engine.changed:
                self.engine.changed.wait_for(lambda: len(self.engine.events) > sent or not self.here())
                new, sent = self.engine.events[sent:], len(self.engine.events)
            for event in new:
                if self.matches(event["Actor"]["Attributes"], wanted):
                    self.chunk(json.dumps(event).encode() + b"\n")

    def start_stream(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def reply(self, status, document):
        body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if not isinstance(document, str) else "text/plain")
        self.send_header("Api-Version", API_VERSION)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "a client"

    def log_message(self, *_):
        pass
