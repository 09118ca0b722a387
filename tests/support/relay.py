# SPDX-License-Identifier: Apache-2.0
"""Starts programs inside a lease, and passes lines between them and the test. `start` starts another program without
the variables that follow, or with them if they have values. `N LINE` sends a line to the program with that number, `all
LINE` to all before any of them answers, and `N kill` kills it. `run COMMAND` prints what a command prints.
"""
import os
import signal
import subprocess
import sys


class Relay:
    def __init__(self, command):
        self.command, self.programs = command, []

    def start(self, *words):
        added = dict(word.split("=", 1) for word in words if "=" in word)
        env = {**{name: value for name, value in os.environ.items() if name not in words}, **added}
        self.programs.append(subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                              env=env))
        return f"{self.programs[-1].pid} {self.programs[-1].stdout.readline()}"

    @staticmethod
    def say(program, line):
        program.stdin.write(line + "\n")
        program.stdin.flush()

    def kill(self, program):
        os.kill(program.pid, signal.SIGKILL)
        return str(program.wait())

    @staticmethod
    def run(command):
        return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout

    def act(self, line):
        name, _, rest = line.partition(" ")
        if name == "run":
            return self.run(rest)
        if name == "start":
            return self.start(*rest.split())
        if name == "all":
            living = [program for program in self.programs if program.poll() is None]
            for program in living:
                self.say(program, rest)
            return " ".join(program.stdout.readline().strip() for program in living)
        program = self.programs[int(name)]
        if rest == "kill":
            return self.kill(program)
        self.say(program, rest)
        return program.stdout.readline()


def main():
    relay = Relay(sys.argv[1:])
    for line in sys.stdin:
        print(relay.act(line.strip()).strip(), flush=True)
    for program in relay.programs:
        program.stdin.close()
        program.wait()


if __name__ == "__main__":
    main()
