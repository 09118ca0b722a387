#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/pictures/status.svg and top.svg: the screens of `sublet status` and `sublet top` on a simulated card.

The programs run for real: one is paused for another of a higher tier, one runs beside them, one waits. The screen of a
pseudo-terminal becomes the picture. Names of this machine are replaced by neutral ones.
"""
import argparse
import fcntl
import os
import pathlib
import platform
import pty
import pwd
import re
import select
import struct
import sys
import termios
import time
from xml.sax.saxutils import escape

import pyte

import demo

COLUMNS, ROWS = 116, 24
FOLDER = demo.ROOT / "docs/pictures"

# ------------------------------------------------------------------------------------------------- the programs

# name, tier, size of the lease, what the program fills, state to wait for. Only dense contents take as much memory of
# this machine as they say; the paused program has them, so that it shows as many bytes in host memory.
PROGRAMS = [
    ("train", "batch", "14GiB", ["2GiB", "--dense"], "active"),
    ("embed", "interactive", "5GiB", ["3GiB"], "active"),
    ("chat", "interactive", "12GiB", ["10GiB"], "active"),
    ("sweep", "batch", "10GiB", ["8GiB"], "queued"),
]


def play(stage):
    stage.start_daemon()
    stage.until(lambda: "gpu0" in stage.sublet("gpus", quiet=True).stdout, "the card is measured")
    for name, tier, size, fill, state in PROGRAMS:
        stage.spawn(name, "sublet", "run", "--tier", tier, "--vram", size, "--name", name, "--", "simgpu-load",
                    "--alloc", *fill, "--seconds", "600")
        stage.until(lambda: stage.leases().get(name, {}).get("state") == state, f"{name} is {state}")
        if state == "active":
            size = int(fill[0].removesuffix("GiB")) * demo.GIB
            stage.until(lambda: stage.leases()[name].get("used_bytes", 0) >= size, f"{name} has filled its VRAM")
    stage.until(lambda: stage.leases()["train"]["state"] == "paused", "train is paused")


# ------------------------------------------------------------------------------------------------- the terminal

def faint_as_grey(text):
    """pyte does not know faint text (SGR 2): it becomes bright black, which the picture shows as grey."""
    return re.sub(r"\x1b\[(?:(\d+;)*)2m", lambda match: match.group(0)[:-2] + "90m", text)


class Terminal:
    def __init__(self, command, env, rows):
        self.screen = pyte.Screen(COLUMNS, rows)
        self.stream = pyte.Stream(self.screen)
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))

    def read(self, seconds):
        """Shows what the program writes within that time; False when the program has ended."""
        end = time.monotonic() + seconds
        pending = b""
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                break
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the program has closed its terminal
                data = b""
            if not data:
                return False
            pending += data
            try:
                self.stream.feed(faint_as_grey(pending.decode()))
                pending = b""
            except UnicodeDecodeError:  # ends inside a character
                pass
        return True

    def close(self):
        os.close(self.master)
        os.waitpid(self.pid, 0)

    def rows(self):
        """-> [[(character, style)]], without the empty rows at the end"""
        lines = [[(cell.data, (cell.fg, cell.bg, cell.bold, cell.reverse)) for cell in
                  (self.screen.buffer[y][x] for x in range(COLUMNS))] for y in range(self.screen.lines)]
        while lines and not "".join(char for char, _ in lines[-1]).strip():
            lines.pop()
        return lines


def screen_of(stage, *words, rows, quit_key=None):
    terminal = Terminal(["sublet", *words], stage.env, rows)
    if quit_key is None:
        while terminal.read(1):
            pass
    else:
        terminal.read(4)
    lines = terminal.rows()
    if quit_key is not None:
        os.write(terminal.master, quit_key)
        while terminal.read(1):
            pass
    terminal.close()
    return lines


# --------------------------------------------------------------------------------------------------- the names

def neutral(stage):
    """-> [(pattern, replacement)] for everything on a screen that tells of this machine"""
    user = pwd.getpwuid(os.getuid()).pw_name
    host = platform.node().split(".")[0]
    return [(re.escape(str(stage.dir)), "/run/user/1000/sublet"), (rf"\bpid {stage.daemon.pid}\b", "pid 4711"),
            (rf"\b{re.escape(user)}\b", "ana")] + ([(rf"\b{re.escape(host)}\b", "host")] if host else [])


def replace_in(line, names):
    """The cells of a line with the names replaced; a column of a table keeps its width."""
    for pattern, replacement in names:
        text = "".join(char for char, _ in line)
        for match in reversed(list(re.finditer(pattern, text))):
            cells = [(char, line[match.start()][1]) for char in replacement]
            end = match.end()
            spare = len(cells) - (end - match.start())
            blanks = len(text[end:]) - len(text[end:].lstrip(" "))
            if blanks >= 2 or (blanks == 1 and spare < 0):
                if spare < 0:
                    cells += [(" ", line[end][1])] * -spare
                else:
                    end += min(spare, blanks - 1)
            line = line[:match.start()] + cells + line[end:]
    return (line + [(" ", ("default", "default", False, False))] * COLUMNS)[:COLUMNS]


# -------------------------------------------------------------------------------------------------- the picture

FOREGROUND, BACKGROUND, BAR = "#d5d9e0", "#1b1f27", "#2b313c"
GREY = "#7f8898"
COLORS = {"black": GREY, "red": "#f07178", "green": "#9ccc65", "brown": "#ffcb6b", "yellow": "#ffcb6b",
          "blue": "#82aaff", "magenta": "#c792ea", "cyan": "#6fd3e8", "white": "#d5d9e0"}
CELL, LINE, SIZE, MARGIN, TITLE = 8.4, 19, 14, 14, 30


def color(name, default):
    if name == "default":
        return default
    return COLORS.get(name) or COLORS.get(name.removeprefix("bright")) or f"#{name}"


def runs(line):
    """-> [(column, text, style)] of neighbours with the same style"""
    found = []
    for column, (char, style) in enumerate(line):
        if found and found[-1][2] == style:
            found[-1] = (found[-1][0], found[-1][1] + char, style)
        else:
            found.append((column, char, style))
    return found


def picture(title, lines, rows):
    width, height = round(2 * MARGIN + COLUMNS * CELL), TITLE + 2 * MARGIN + rows * LINE - 4
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
           f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
           f'<path d="M0 {TITLE}V8a8 8 0 0 1 8-8H{width - 8}a8 8 0 0 1 8 8V{TITLE}z" fill="{BAR}"/>']
    for index, fill in enumerate(("#f07178", "#ffcb6b", "#9ccc65")):
        out.append(f'<circle cx="{18 + 18 * index}" cy="{TITLE // 2}" r="5.5" fill="{fill}"/>')
    out.append(f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
               f'font-size="{SIZE}" fill="{FOREGROUND}" xml:space="preserve">')
    out.append(f'<text x="{width / 2}" y="{TITLE // 2 + 5}" text-anchor="middle" fill="#9aa3b2">{escape(title)}</text>')
    for number, line in enumerate(lines):
        y = TITLE + MARGIN + number * LINE
        for column, text, (fg, bg, bold, reverse) in runs(line):
            front, back = color(fg, FOREGROUND), color(bg, BACKGROUND)
            if reverse:
                front, back = back, front
            if back != BACKGROUND:
                out.append(f'<rect x="{MARGIN + column * CELL:.1f}" y="{y}" width="{len(text) * CELL:.1f}" '
                           f'height="{LINE}" fill="{back}"/>')
            lead = len(text) - len(text.lstrip(" "))
            shown = text.strip(" ")
            if shown:
                style = (f' fill="{front}"' if front != FOREGROUND else "")
                style += ' font-weight="bold"' if bold and front != GREY else ""
                out.append(f'<text x="{MARGIN + (column + lead) * CELL:.1f}" y="{y + 14}" '
                           f'textLength="{len(shown) * CELL:.1f}"{style}>{escape(shown)}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(prog="./dev screenshots", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER, help="the folder of the pictures")
    options = parser.parse_args()
    stage = demo.Demo(sim="1x24GiB")
    try:
        play(stage)
        screens = {"status": screen_of(stage, "status", rows=60),
                   "top": screen_of(stage, "top", rows=ROWS, quit_key=b"q")}
        names = neutral(stage)
    finally:
        stage.end()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, lines in screens.items():
        lines = [replace_in(line, names) for line in lines]
        path = options.out / f"{name}.svg"
        path.write_text(picture(f"sublet {name}", lines, max(len(lines), ROWS if name == "top" else 1)))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
