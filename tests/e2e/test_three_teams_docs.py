# SPDX-License-Identifier: Apache-2.0
"""docs/three-teams.md: three real users run its commands in their order, and see what the document shows."""
import re
import shutil
import subprocess

from tests.support.parking import until_filled
from tests.support.sublet import BIN, ROOT, wait_until
from tests.support.system import ADMINS, GROUP, System

DOCUMENT = (ROOT / "docs/three-teams.md").read_text()
PEOPLE = {"ana": (54401, "vision"), "ben": (54402, "speech"), "cleo": (54403, "robots")}
# Each program holds memory, as the programs of the document would, and runs until it is stopped.
PYTHON = '#!/bin/sh\nexec simgpu-load --alloc 512MiB --verify --seconds 600\n'
CHANGING = ("run", "apply", "simulate")  # what other commands show may be on its way, and they are repeated


def blocks(kind):
    return re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", DOCUMENT)


def steps():
    """Yields the user, the command, and the lines that the document shows below it."""
    for block in blocks("console"):
        for user, command, shown in re.findall(r"(?m)^(\w+)[#$] (.*)\n((?:(?!\w+[#$] ).*\n)*)", block):
            yield user, command, shown.splitlines()


def words(line):
    """The line without the length of a slice, and with single spaces."""
    return " ".join(re.sub(r"in about \d+ (s|min)", "in about T", line).split())


class Place:
    def __init__(self):
        configuration, tenants = blocks("toml")
        self.system = System(cards="2x24GiB", people=PEOPLE).start_keeper_service().start()
        self.configuration = configuration.replace("[ledger]", '[ledger]\nreserve = "1MiB"')
        (self.system.home / "teams.toml").write_text(tenants)
        shutil.copy(ROOT / "docs/three-teams-day.toml", self.system.home)
        shutil.copy(BIN / "sublet-simulate", self.system.home / "bin")
        (self.system.home / "bin/python3").write_text(PYTHON)
        (self.system.home / "bin/python3").chmod(0o755)

    def restart(self):
        file = self.system.home / "sublet.toml"
        file.write_text(file.read_text().replace('[ledger]\nreserve = "1MiB"', self.configuration))
        self.system.process.terminate()
        assert self.system.process.wait(60) == 0
        self.system.start_daemon()

    def begin(self, user, command):
        uid = PEOPLE[user][0] if user in PEOPLE else 0
        groups = (GROUP, uid) if uid else (GROUP, ADMINS)
        started = subprocess.Popen(
            self.system.inside(uid, "sh", "-c", f"cd {self.system.home}; exec {command}", groups=groups),
            env=self.system.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        self.system.children.append(started)
        return started

    def begin_program(self, user, command):
        self.begin(user, command)
        tag = re.search(r"--tag (\S+)", command)[1]
        state = wait_until(lambda: self.system.lease(tag).get("state"), f"{tag} is asked for")
        if state != "queued" or tag == "detect":  # this one gets its memory by a pause
            until_filled(self.system, tag, "512MiB")

    def says(self, user, command, shown):
        started = self.begin(user, command)
        said = started.communicate(timeout=120)[0]
        refused = any(line.startswith("sublet: ") for line in shown)
        assert (started.returncode != 0) == refused, (command, started.returncode, said)
        lines = [words(line) for line in said.splitlines()]
        missing = [line for line in shown if words(line) not in lines]
        assert not missing or command.split()[1] not in CHANGING, (command, said)
        return (not missing, said)


def test_three_teams_share_two_cards():
    place, said = Place(), []
    try:
        all_steps = list(steps())
        assert len(all_steps) == 19
        for user, command, shown in all_steps:
            if command == "systemctl restart subletd":
                place.restart()
            elif command.endswith("&"):
                place.begin_program(user, command.removesuffix("&"))
            else:
                wait_until(lambda: said.append(place.says(user, command, shown)) or said[-1][0],
                           f"{command} says {shown}")
    finally:
        print(*said[-1:])
        place.system.close()
