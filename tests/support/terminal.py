# SPDX-License-Identifier: Apache-2.0
"""An interactive bash on a pseudo-terminal, with job control as a person has it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

PROMPT = "prompt-%d> "


class Shell:
    def __init__(self, environment):
        self.buffer = ""    # output that is not matched yet
        self.all = ""
        self.count = 0      # number of prompts seen
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            for number in range(3, 256):
                try:
                    os.close(number)
                except OSError:
                    pass
            # The prompt contains a number, so that the echo of a command never matches it.
            env = {**environment, "PS1": r"prompt-\#> ", "TERM": "xterm", "HISTFILE": ""}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)

    def __enter__(self):
        self.resize(40, 200)
        self.prompt()
        return self

    def __exit__(self, *_):
        os.close(self.master)  # hangs up: the shell ends its jobs
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, line):
        os.write(self.master, (line + "\n").encode())

    def key(self, letter):
        """Presses Ctrl and this key."""
        os.write(self.master, bytes([ord(letter.upper()) & 0x1F]))

    def expect(self, pattern, timeout=60):
        """Waits for output after the last match; returns the match."""
        end = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.buffer)
            if found:
                self.buffer = self.buffer[found.end():]
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"waited in vain for {pattern!r} after:\n{self.all}")
            text = os.read(self.master, 65536).decode(errors="replace")
            self.buffer += text
            self.all += text

    def prompt(self):
        self.expect(r"prompt-\d+> ")

    def status(self):
        """Returns the exit status of the last command."""
        self.type("echo status=$?.")
        status = int(self.expect(r"status=(\d+)\.").group(1))
        self.prompt()
        return status

    def seen(self):
        return self.all
