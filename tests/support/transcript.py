# SPDX-License-Identifier: Apache-2.0
"""The session of a person at a terminal, as text that is the same on every machine and in every run.

Paths, process ids, times, users and versions are replaced; the words, the order and the columns stay. Two blanks
separate the columns of a table, because column widths depend on the replaced values.
"""
import difflib
import os
import pathlib
import pwd
import re

from .sublet import BIN, BUILD, ROOT

GOLDEN = ROOT / "tests/e2e/golden"


class Transcript:
    def __init__(self, daemon=None):
        self.daemon = daemon
        self.replaced = []  # (text, its replacement), longest first
        self.parts = []
        if daemon:
            self.hide(daemon.dir, "DIR")
            self.hide_pid(daemon.process.pid)
        self.hide(BIN, "BIN")
        self.hide(BUILD, "BUILD")

    def hide(self, text, name):
        self.replaced.append((str(text), name))

    def hide_pid(self, pid):
        self.replaced.append((str(pid), "PID"))

    def add(self, command, status, out="", err=""):
        """Runs a command and records it, its stdout, its stderr (each line marked), and its exit status."""
        said = self.normal(out) + "".join(f"! {line}\n" for line in self.normal(err).splitlines())
        self.parts.append(f"{self.normal(f'$ {command}')}\n{said}[{status}]\n")

    def run(self, *arguments, program="sublet", **more):
        done = self.daemon.cli(*arguments, **more)
        self.add(" ".join([program, *map(str, arguments)]), done.returncode, done.stdout, done.stderr)
        return done

    def normal(self, text):
        for plain, name in sorted(self.replaced, key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w.-]){re.escape(plain)}(?![\w])", name, text)
        text = re.sub(r"\bpid \d+", "pid PID", text)
        user = pwd.getpwuid(os.getuid()).pw_name
        text = re.sub(rf"(?<![\w/]){re.escape(user)}(?![\w/])", "USER", text)
        text = re.sub(r"GPU-[0-9a-f]{8}[0-9a-f-]*", "UUID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "DATE", text)
        text = re.sub(r"(sublet|subletd) \d+\.\d+\.\d+", r"\1 VERSION", text)
        text = re.sub(r"\b\d+(\.\d+)? ?(ms|s|min|m|h)\b( \d+ ?(s|min)\b)?", "TIME", text)
        # The database step that meets the fault first depends on chance.
        text = text.replace(", plus TIME paused", "")  # shown only if the pause took a second or more
        text = re.sub(r"store\.db: [^\n]*?\(SQLite code \d+\)", "store.db: REASON", text)
        text = re.sub(r"(?m)^ +(?=PID )", "", text)  # the column width depends on the longest number
        return re.sub(r"(?<=\S) {2,}(?=\S)", "  ", text)

    def text(self):
        return "".join(self.parts)

    def check(self, name):
        """Compares with golden/NAME.txt; SUBLET_GOLDEN=write writes it instead."""
        path = pathlib.Path(GOLDEN / f"{name}.txt")
        if os.environ.get("SUBLET_GOLDEN") == "write":
            path.write_text(self.text())
            return
        wanted = path.read_text()
        difference = "".join(difflib.unified_diff(wanted.splitlines(True), self.text().splitlines(True), str(path),
                                                  "what was said"))
        assert not difference, f"{difference}\nif that is better: SUBLET_GOLDEN=write"
