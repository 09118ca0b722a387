#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A Compose program for tests. It resolves Compose files, and creates containers in a FakeEngine (DOCKER_HOST).

    compose = FakeCompose(directory)               # a program `docker` that knows `docker compose`
    compose = FakeCompose(directory, "docker-compose", version="1.29.2")   # Compose v1: no `config --format json`
    compose.program                                # its path; compose.directory can stand in PATH

It knows `config`, `up -d [--force-recreate]`, `pull`, `down` and `version`; in a file also `include` and `env_file`.
Every call is recorded:
    compose.calls("up")      list of {"argv", "env" (names), "files" (texts of all -f files), "project", "pid"}
The test decides what a call does, until it decides otherwise (None: the usual):
    compose.on("up", "fail", text="port is already allocated", project="one")   nothing is done; exit status 1
    compose.on("up", "half", text=…)         the first service is created, then it fails
    compose.on("up", "hang", after=True)     never ends, does not listen to SIGTERM and has a child that does so too;
                                             `after`: what was asked is done first. calls()[…]["pid"] is its group.
    compose.on("config", "flood")            writes without end
    compose.on("up", None)
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys


class FakeCompose:
    def __init__(self, directory, kind="docker", version="2.29.1"):
        self.directory = pathlib.Path(directory) / "compose-bin"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.program = self.directory / kind
        shutil.copy(__file__, self.program)
        self.program.chmod(0o755)
        self.rules = {}
        self.control = self.directory / "control.json"
        self.version = version
        self._write()

    def on(self, verb, action, project=None, **more):
        self.rules.pop(f"{verb} {project}", None)
        if action:
            self.rules[f"{verb} {project}"] = {"verb": verb, "project": project, "action": action, **more}
        self._write()

    def calls(self, verb=None):
        record = self.directory / "calls.jsonl"
        lines = record.read_text().splitlines() if record.exists() else []
        return [call for call in map(json.loads, lines) if verb in (None, call["verb"])]

    def _write(self):
        fresh = self.control.with_suffix(".new")
        fresh.write_text(json.dumps({"version": self.version, "rules": list(self.rules.values())}))
        fresh.rename(self.control)


# --- the program ---

def fail(text, status=1):
    print(text, file=sys.stderr)
    sys.exit(status)


def interpolate(value, variables, where=""):
    if isinstance(value, dict):
        return {key: interpolate(entry, variables) for key, entry in value.items()}
    if isinstance(value, list):
        return [interpolate(entry, variables) for entry in value]
    if not isinstance(value, str):
        return value

    def one(match):
        if match[0] == "$$":
            return "$"
        name, default = match["name"] or match["braced"], match["default"]
        return variables.get(name) or (default if default is not None else "")

    return re.sub(r"\$\$|\$(?P<name>\w+)|\$\{(?P<braced>\w+)(?::?-(?P<default>[^}]*))?\}", one, value)


def mapping(value):
    """Returns labels or an environment as a mapping, from either of the two forms."""
    if isinstance(value, list):
        return {key: text for key, _, text in (str(entry).partition("=") for entry in value)}
    return {key: "" if text is None else str(text).lower() if isinstance(text, bool) else str(text)
            for key, text in (value or {}).items()}


def read_variables(path):
    lines = [line.strip() for line in pathlib.Path(path).read_text().splitlines()] if path else []
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def merge(files, variables):
    import yaml  # slow to load, and only this program needs it
    whole = {}
    for path in files:
        try:
            read = yaml.safe_load(pathlib.Path(path).read_text()) or {}
        except yaml.YAMLError as error:
            fail(f"parsing {path}: yaml: {error}", 15)
        if not isinstance(read, dict) or not isinstance(read.get("services", {}), dict):
            fail(f"validating {path}: services must be a mapping", 15)
        read = interpolate(read, variables)
        place = pathlib.Path(path).parent
        for name, spec in (merge([place / each for each in read.pop("include", [])], variables).get("services")
                           or {}).items():
            whole.setdefault("services", {})[name] = spec
        for spec in (read.get("services") or {}).values():
            if isinstance(spec, dict) and (named := spec.pop("env_file", None)):
                spec["environment"] = {**read_variables(place / named), **mapping(spec.get("environment"))}
        for name, spec in (read.get("services") or {}).items():
            service = whole.setdefault("services", {}).setdefault(name, {})
            for key, value in (spec or {}).items():
                if key in ("labels", "environment"):
                    service[key] = {**service.get(key, {}), **mapping(value)}
                else:
                    service[key] = value
            if not service.get("image") and not service.get("build"):
                fail(f'service "{name}" has neither an image nor a build context specified', 15)
        whole.update({key: value for key, value in read.items() if key != "services"})
    return whole


def ask_engine(path, body):
    class Connection(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    connection = Connection("engine")
    try:
        connection.request("POST", path, json.dumps(body))
        reply = connection.getresponse()
        text = reply.read().decode()
    except OSError:
        fail(f"Cannot connect to the Docker daemon at {os.environ.get('DOCKER_HOST')}. Is the docker daemon running?")
    if reply.status != 200:
        fail(f"Error response from daemon: {json.loads(text)['message']}")


def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "3600"])
    while True:
        signal.pause()


def engine_services(whole):
    """Returns the services as FakeEngine.up() takes them."""
    services = {}
    for name, spec in (whole.get("services") or {}).items():
        check = spec.get("healthcheck")
        services[name] = {"image": spec.get("image"), "command": spec.get("command"),
                          "labels": spec.get("labels", {}), "environment": spec.get("environment", {}),
                          "deploy": spec.get("deploy"), "ports": spec.get("x-ports"),
                          "healthcheck": bool(check) and not check.get("disable", False),
                          "replicas": spec.get("scale") or (spec.get("deploy") or {}).get("replicas", 1)}
    return services


def do_config(whole, old, options, as_json):
    import yaml
    if old:
        kept = {key: value for key, value in whole.items() if not key.startswith("x-") and key != "name"}
        print(yaml.safe_dump({"version": "3.9", **kept}), end="")
    else:
        kept = {"name": options["project"], **whole}
        print(json.dumps(kept, indent=2) if as_json else yaml.safe_dump(kept, sort_keys=False), end="")


def parse(words):
    options = {"files": [], "env_file": None, "project": None, "directory": None}
    names = {"-f": "files", "--file": "files", "--env-file": "env_file", "-p": "project",
             "--project-name": "project", "--project-directory": "directory"}
    while words and words[0] in names:
        key, value, words = names[words[0]], words[1], words[2:]
        if key == "files":
            options["files"].append(value)
        else:
            options[key] = value
    return options, words


def main():
    place = pathlib.Path(sys.argv[0]).resolve()
    control = json.loads((place.parent / "control.json").read_text())
    old = control["version"].startswith("1.")
    words = sys.argv[1:]
    if place.name in ("docker", "podman"):
        if words[:1] != ["compose"]:
            fail(f"docker: '{' '.join(words)}' is not a docker command.\nSee 'docker --help'")
        words = words[1:]
    options, words = parse(words)
    verb = words[0] if words else ""
    if verb == "version":
        print(control["version"])
        return
    if not options["project"]:
        options["project"] = pathlib.Path(options["directory"] or os.getcwd()).name.lower()
    with open(place.parent / "calls.jsonl", "a", encoding="utf-8") as record:
        record.write(json.dumps({"verb": verb, "argv": sys.argv[1:], "env": sorted(os.environ), "pid": os.getpid(),
                                 "files": [pathlib.Path(path).read_text() for path in options["files"]
                                           if path != "/dev/null"],
                                 "project": options["project"], "directory": os.getcwd()}) + "\n")
    rule = next((rule for rule in control["rules"]
                 if rule["verb"] == verb and rule["project"] in (None, options["project"])), {})
    action = rule.get("action")
    if action == "hang" and not rule.get("after"):
        hang()
    while action == "flood":
        print("x" * 4096)
    if action == "fail":
        fail(rule.get("text", "it failed"))
    if verb not in ("config", "up", "pull", "down"):
        fail(f"unknown command: {verb}", 16)
    if verb == "config" and old and "--format" in words:
        fail("Get a list of options with --help: no such option: --format")
    whole = merge(options["files"], {**os.environ, **read_variables(options["env_file"])})
    if verb == "config":
        do_config(whole, old, options, "json" in words)
    elif verb == "up":
        half = action == "half"
        ask_engine("/fake/up", {"project": options["project"], "services": engine_services(whole),
                                "only": 1 if half else None, "recreate": "--force-recreate" in words,
                                "directory": os.path.abspath(options["directory"] or os.getcwd())})
        if half:
            fail(rule.get("text", "it failed half-way"))
    elif verb == "down":
        ask_engine("/fake/down", {"project": options["project"]})
    if action == "hang":
        hang()


if __name__ == "__main__":
    main()
