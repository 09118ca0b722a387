# SPDX-License-Identifier: Apache-2.0
"""Programs under a lease of their own, by the command line."""
from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Sequence, Union

from ._size import Seconds, Size, lease_size, seconds_of
from .errors import NotFound


def run(command: Sequence[Union[str, "os.PathLike[str]"]], *, vram: Optional[Size] = None,
        tier: Optional[str] = None, name: Optional[str] = None, tag: Optional[str] = None,
        gpu: Union[str, int, None] = None, gpus: int = 1, timeout: Optional[Seconds] = None, wait: bool = True,
        check: bool = False, **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Runs the program by `sublet run`, waits for its end, and returns it as `subprocess.run` does.

    The program is paused and resumed like any other program. `returncode` is its exit status, and 128+N if signal N
    ended it. `sublet` itself gives 124 if `timeout` (seconds in the queue) is over, 75 if it would have to wait with
    `wait=False`, 69 without a daemon, and 125 to 127 if the program could not be started. `check=True` raises
    `subprocess.CalledProcessError` for all of these. Without `vram` the daemon's memory of earlier runs tells the size.
    Other options are those of `subprocess.run`. Ctrl-C ends the program too. Raises `NotFound` if the command `sublet`
    is not installed.
    """
    path = (options.get("env") or os.environ).get("PATH")
    program = shutil.which("sublet", path=path)
    if program is None:
        raise NotFound("the command `sublet` is not in PATH", "install Sublet, or add its folder to PATH")
    words: List[str] = [program, "run"]
    given = {"--vram": None if vram is None else str(lease_size(vram)), "--tier": tier, "--name": name, "--tag": tag,
             "--gpu": None if gpu is None else str(gpu), "--gpus": None if gpus == 1 else str(gpus),
             "--wait": None if timeout is None else f"{round((seconds_of(timeout) or 0.0) * 1000)}ms"}
    for flag, value in given.items():
        if value is not None:
            words += [flag, value]
    if not wait:
        words.append("--no-wait")
    return _run([*words, "--", *[os.fspath(word) for word in command]], check, options)


def _run(words: List[str], check: bool, options: Dict[str, Any]) -> "subprocess.CompletedProcess[Any]":
    """As `subprocess.run`, which would kill `sublet run` soon after Ctrl-C: then the program would run on."""
    sent = options.pop("input", None)
    if sent is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with subprocess.Popen(words, **options) as process:
        try:
            out, err = process.communicate(sent)
        except BaseException:
            process.terminate()  # `sublet run` passes it on to the program, and waits for its end
            process.wait()
            raise
    done: "subprocess.CompletedProcess[Any]" = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
