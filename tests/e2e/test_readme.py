# SPDX-License-Identifier: Apache-2.0
"""The first session of README.md: each command runs, and each line of output appears. Numbers may differ."""
import os
import re
import signal
import subprocess

from tests.support.sublet import BIN, ROOT, wait_until

SHORTER = (("--seconds 20", "--seconds 10"), ("--seconds 6", "--seconds 4"))


def session():
    """Returns pairs of a command and its lines of output."""
    text = (ROOT / "README.md").read_text().split("## A first session", 1)[1]
    block = text.split("```console\n", 1)[1].split("```", 1)[0]
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:].split("  #")[0].strip(), []))
        else:
            steps[-1][1].append(line)
    return steps


def pattern(line):
    """Numbers, units and spaces may differ, and a line may go on after the estimate."""
    words = re.sub(r" · starts in.*", " …", line).split()
    kinds = {"…": ".*", **dict.fromkeys(("KiB", "MiB", "GiB", "B", "ms", "s"), r"\w+")}
    return r"\s+".join(r"[\d.]+" if re.fullmatch(r"[\d.]+", word) else kinds.get(word, re.escape(word))
                       for word in words)


def test_the_first_session_works(tmp_path):
    out = tmp_path / "out"
    env = {**os.environ, "HOME": str(tmp_path), "USER": "root"}
    for name in ("SUBLET_HOST", "SUBLET_LEASE", "SIMGPU_DIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        env.pop(name, None)
    with open(out, "wb") as file:
        shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=file, stderr=file, env=env, text=True,
                                 cwd=BIN.parent.parent, start_new_session=True)
    try:
        for command, lines in session():
            for ours, shorter in (*SHORTER, ("$PWD/build/bin", str(BIN))):
                command = command.replace(ours, shorter)
            shell.stdin.write(command + "\n")
            shell.stdin.flush()
            for line in lines:
                wait_until(lambda line=line: re.search(f"(?m)^{pattern(line)}", out.read_text()),
                           f"{line!r} after {command!r} in\n{out.read_text()}", 60)
        shell.stdin.close()
        assert shell.wait(60) == 0, out.read_text()
    finally:
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(shell.pid, end)
            except ProcessLookupError:
                break
        shell.wait(60)
        print(out.read_text())


def test_the_session_is_that_of_the_readme():
    steps = session()
    assert len(steps) == 7 and sum(len(lines) for _, lines in steps) >= 12
    assert re.match(pattern("lease-2  chat  1.3 GiB"), "lease-2 chat   0 B") and not re.match(pattern("a b"), "a c")


def test_the_figures_of_the_readme_are_those_of_the_performance_page():
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/performance.md"))
    figures = readme.split("## Two commands", 1)[1].split("```", 2)[2].split("## ", 1)[0]
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    found = re.findall(r"(\d[\d,]*(?: µs)?)[a-z ]* \(`\./dev bench (\w+)`\)", " ".join(figures.split()))
    assert len(found) == 2
    for figure, bench in found:
        assert any(f"-dev-bench-{bench})" in row and figure in row for row in rows), (figure, bench)
