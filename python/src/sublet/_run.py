# SPDX-License-Identifier: Apache-2.0
"""Programs under a lease of their own, by the command line."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ._devices import Gpus, device_field
from ._size import Seconds, Size, lease_size, seconds_of
from .errors import NotFound


def run(command: Sequence[Union[str, "os.PathLike[str]"]], *, vram: Optional[Size] = None,
        tier: Optional[str] = None, name: Optional[str] = None, tag: Optional[str] = None,
        gpu: Gpus = None, gpus: int = 1, timeout: Optional[Seconds] = None, wait: bool = True,
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
             "--gpu": device_field(gpu), "--gpus": None if gpus == 1 else str(gpus),
             "--wait": None if timeout is None else f"{round((seconds_of(timeout) or 0.0) * 1000)}ms"}
    for flag, value in given.items():
        if value is not None:
            words += [flag, value]
    if not wait:
        words.append("--no-wait")
    return _run([*words, "--", *[os.fspath(word) for word in command]], check, options)


class _HeldInterrupts:
    """Holds back Ctrl-C while a process is started: `Popen` that is interrupted tells nobody which one it started."""

    def __init__(self) -> None:
        self._given: List[Tuple[Any, ...]] = []
        in_main = threading.current_thread() is threading.main_thread()
        self._handler = signal.getsignal(signal.SIGINT) if in_main else None
        if callable(self._handler):
            signal.signal(signal.SIGINT, lambda *given: self._given.append(given))

    def drop(self) -> None:
        """From now on Ctrl-C is handled as before."""
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)

    def release(self) -> None:
        """The same, and what was held back is handled now."""
        self.drop()
        if self._given and callable(self._handler):
            self._handler(*self._given[0])


def _run(words: List[str], check: bool, options: Dict[str, Any]) -> "subprocess.CompletedProcess[Any]":
    """As `subprocess.run`, which would kill `sublet run` soon after Ctrl-C: then the program would run on."""
    sent = options.pop("input", None)
    if sent is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    process: "Optional[subprocess.Popen[Any]]" = None
    interrupts = _HeldInterrupts()
    try:
        process = subprocess.Popen(words, **options)
        interrupts.release()
        out, err = process.communicate(sent)
    except BaseException:
        interrupts.drop()
        if process is not None:
            with process:  # closes its pipes
                process.terminate()  # `sublet run` passes it on to the program, and waits for its end
                process.wait()
        raise
    done: "subprocess.CompletedProcess[Any]" = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
