# SPDX-License-Identifier: Apache-2.0
"""Leases in notebooks: `%load_ext sublet.jupyter`, then `%sublet 8GiB`.

A notebook has one lease, which all its cells use. `%%sublet 8GiB` takes a lease for one cell. IPython itself is not
imported before the extension is loaded.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib
import shlex
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple, Union

from . import _lease
from ._cells import Cells
from ._flow import BRIEF_SECONDS, OnWait, path_of
from ._hints import NOTEBOOK, in_python
from ._http import Call
from ._lease import Lease, current
from ._make import lease as make_lease
from ._size import format_size_down
from ._status import status
from ._wait import Line, Waiting, printable, waiting_of
from .errors import InUse, LeaseEnded, SubletError

_NEW_ONLY = ("tier", "name", "tag", "gpu", "gpus", "min_vram", "pausable", "pause", "residue")
_USAGE = "%sublet [SIZE | release] [--tier TIER] [--pause NAME] ...; %sublet --help tells all options"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"{message}. Usage: {_USAGE}")


class _HelpShown(Exception):
    """--help was printed, and nothing else is to be done."""


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(parser.format_help())
        raise _HelpShown


def _usage_error(text: str) -> Exception:
    made: Exception = importlib.import_module("IPython.core.error").UsageError(text)
    return made


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%sublet", add_help=False, description="Takes, resizes, shows or gives back the lease of the "
                     "notebook. As %%sublet, takes a lease for one cell.")
    parser.add_argument("size", nargs="?", help="such as 8GiB; or the word release; nothing shows the lease")
    parser.add_argument("--tier", help="interactive, batch, ...")
    parser.add_argument("--name", help="the name under which sizes and run times are remembered")
    parser.add_argument("--tag", help="a name for this lease")
    parser.add_argument("--gpu", help="the device, such as gpu0")
    parser.add_argument("--gpus", type=int, help="the number of devices")
    parser.add_argument("--min-vram", metavar="SIZE", help="a smaller size that is accepted now")
    parser.add_argument("--timeout", metavar="TIME", help="the longest wait, such as 90 or 5m")
    parser.add_argument("--no-wait", action="store_true", help="fail instead of waiting")
    parser.add_argument("--pausable", help="auto, driver, cooperative or no")
    parser.add_argument("--pause", metavar="NAME", help="an object of the notebook with the callbacks on_pause and "
                        "on_resume; they run between cells too")
    parser.add_argument("--residue", metavar="SIZE", help="bytes that stay on each device during a pause")
    parser.add_argument("--help", action=_Help, nargs=0)
    return parser


class _Progress:
    """The state of a wait: in a notebook one output that is rewritten, in a terminal one line, else lines of text."""

    def __init__(self, shell: Any) -> None:
        self._rewrites = hasattr(shell, "kernel")
        self._handle: Any = None
        self._place: Any = None
        self.on_wait: Optional[OnWait] = None if not self._rewrites and Line.is_live() else self._waits

    def _waits(self, waiting: Waiting) -> None:
        place = (waiting.place, waiting.short_bytes, waiting.holders)
        if self._rewrites or place != self._place:
            self.say(in_python(str(waiting), NOTEBOOK))
        self._place = place

    def say(self, text: str) -> None:
        text = printable(text)
        if not self._rewrites:
            print(text)
        elif self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """An output that tells of a wait tells of its end, too."""
        try:
            yield
        except BaseException as problem:
            if self._handle is not None:
                self.say(f"{type(problem).__name__}: the request is withdrawn")
            raise


class Notebook:
    """The lease of a notebook and its magics. Used by the thread that runs the cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._lease: Optional[Lease] = None
        self._cells = Cells(shell, self._enter_cell, self._pause_text)

    @property
    def lease(self) -> Optional[Lease]:
        """The lease of the notebook, if it is held."""
        return self._lease if self._lease is not None and self._lease.held else None

    def _enter_cell(self) -> None:
        """A kernel runs each cell in a context of its own: show the lease there."""
        if self.lease is not None and current() is None:
            _lease._current.set(self._lease)

    def _pause_text(self) -> str:
        """Tells a cell that must wait why, and for how long."""
        text = "The lease of the notebook is paused. The cell starts when it is resumed"
        with contextlib.suppress(SubletError, OSError):
            assert self._lease is not None
            call = Call("GET", path_of(self._lease.id), patience=BRIEF_SECONDS, answer_seconds=BRIEF_SECONDS)
            document = self._lease._here().call(call)
            if document["pause"]:
                text = f"{self._lease.id} is paused: {document['pause']['reason']}. The cell starts when it is resumed"
            if document["queue"]:
                waiting = waiting_of(document, 0.0, {})
                text += f", {waiting.start}" + (f" · held by {waiting.holders}" if waiting.holders else "")
        return printable(f"{text}.")

    def unload(self) -> None:
        """Gives the lease back and leaves the shell as it was."""
        self._cells.close()
        self._release()

    # --- the magics ---

    def magic(self, line: str, cell: Optional[str] = None) -> None:
        """Takes, resizes, shows or gives back the lease of the notebook: %sublet --help."""
        if cell is None:
            with _told_in_one_line():
                self._line(line)
        else:
            self._run_cell(line, cell)

    def _parse(self, line: str) -> Optional[argparse.Namespace]:
        """Returns None if the help was shown."""
        try:
            wish = _parser().parse_args(shlex.split(line))
        except _HelpShown:
            return None
        except ValueError as problem:  # an open quotation mark
            raise _usage_error(f"{problem}. Usage: {_USAGE}") from None
        if wish.no_wait and wish.timeout is not None:
            raise _usage_error("--no-wait and --timeout exclude each other")
        return wish

    def _line(self, line: str) -> None:
        wish = self._parse(line)
        if wish is None:
            return
        if wish.size == "release":
            self._refuse_in_pause()
            print(f"{self.lease.id} is given back" if self._living() is not None and self.lease is not None
                  else "there is no lease to give back")
            self._release()
        elif wish.size is None:
            given = _given(wish, (*_NEW_ONLY, "timeout"))
            if given:
                raise _usage_error(f"{given[0]} needs a size. Usage: {_USAGE}")
            self._show()
        elif self._living() is not None:
            self._resize(wish)
        else:
            lease, progress = self._take(wish)
            self._lease = lease  # first, since the rest may be interrupted
            if wish.pause is not None:
                self._cells.pause_between(lease)
            progress.say(_text(lease))

    def _take(self, wish: argparse.Namespace) -> Tuple[Lease, _Progress]:
        progress = _Progress(self._shell)
        options: Dict[str, Any] = {name: getattr(wish, name) for name in
                                   ("tier", "name", "tag", "gpu", "gpus", "min_vram", "pausable", "residue")
                                   if getattr(wish, name) is not None}
        options["timeout"] = _timeout_of(wish)
        if wish.pause is not None:
            options.update(self._callbacks(wish.pause))
        elif wish.residue is not None:
            raise _usage_error("--residue needs --pause: only a lease with callbacks keeps bytes during a pause")
        lease = make_lease(wish.size, wait=not wish.no_wait, on_wait=progress.on_wait, **options)
        with progress.told():
            lease.acquire()
        return lease, progress

    def _callbacks(self, name: str) -> Dict[str, Any]:
        thing = self._shell.user_ns.get(name)
        if not callable(getattr(thing, "on_pause", None)):
            raise _usage_error(f"--pause {name}: the notebook has no object of this name with a method on_pause")
        return {"on_pause": thing.on_pause, "on_resume": getattr(thing, "on_resume", None)}

    def _resize(self, wish: argparse.Namespace) -> None:
        lease = self._lease
        assert lease is not None
        given = _given(wish, _NEW_ONLY)
        if given:
            raise _usage_error(f"the notebook holds {lease.id}, and {given[0]} is for a new lease. "
                               "First give it back: %sublet release")
        progress = _Progress(self._shell)
        with progress.told():
            lease.resize(wish.size, timeout=_timeout_of(wish), wait=not wish.no_wait, on_wait=progress.on_wait)
        progress.say(_text(lease))

    def _run_cell(self, line: str, cell: str) -> None:
        with _told_in_one_line():
            wish = self._parse(line)
            if wish is None:
                return
            if wish.size in (None, "release"):
                raise _usage_error("%%sublet needs a size, such as %%sublet 8GiB")
            if wish.pause is not None:
                raise _usage_error("%%sublet has no --pause: a pause needs the lease of the notebook, by %sublet")
            lease, progress = self._take(wish)
        try:
            progress.say(_text(lease))
            with _quiet_errors(self._shell):
                result = self._shell.run_cell(cell)
        finally:
            lease.release()
        result.raise_error()  # it ends the run of all cells, as in any other cell

    def _show(self) -> None:
        lease = self._living()
        print("The notebook holds no lease. Take one: %sublet 8GiB" if lease is None else _text(lease))

    def _living(self) -> Optional[Lease]:
        """Returns the lease of the notebook unless it has ended meanwhile."""
        lease = self.lease
        if lease is None:
            return None
        try:
            lease.refresh()
        except LeaseEnded as problem:
            print(printable(problem.message))
            self._release()
            return None
        return lease

    def _refuse_in_pause(self) -> None:
        """The cells after a release would find the tensors without their bytes."""
        pauses = None if self.lease is None else self.lease._all_pauses()
        if self.lease is not None and pauses is not None and pauses.has_begun:
            raise InUse(f"{self.lease.id} is paused, and its tensors are in host memory",
                        f"first resume it: !sublet resume {self.lease.id}; or drop both: %unload_ext sublet.jupyter")

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


def _given(wish: argparse.Namespace, names: Tuple[str, ...]) -> List[str]:
    """Returns those of the flags that were given, such as "--tier"."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(wish, name) is not None]


def _timeout_of(wish: argparse.Namespace) -> Union[float, str, None]:
    """A bare number is seconds, as on the command line."""
    try:
        return None if wish.timeout is None else float(wish.timeout)
    except ValueError:
        return str(wish.timeout)


@contextlib.contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Errors of the magic itself are one line with the hint, since their traceback is that of the package."""
    try:
        yield
    except (SubletError, KeyboardInterrupt) as problem:
        text = in_python(str(problem), NOTEBOOK) or "the cell was interrupted"
        line = printable(f"{type(problem).__name__}: {text}")
        setattr(problem, "_render_traceback_", lambda: [line])  # IPython asks the exception for its traceback
        raise


def _text(lease: Lease) -> str:
    names: List[str] = list(lease.devices)
    with contextlib.suppress(SubletError, OSError):
        known = {device.uuid: f"{device.id} ({device.name})" for device in status().devices}
        names = [known.get(uuid, uuid) for uuid in lease.devices]
    document = lease._known()
    reason = f": {document['pause']['reason']}" if document["pause"] else ""
    return printable(f"{lease.id}: {format_size_down(lease.vram_bytes)} on {', '.join(names)}, "
                     f"tier {document['tier']}, {document['state']}{reason}")


@contextlib.contextmanager
def _quiet_errors(shell: Any) -> Iterator[None]:
    """The inner run of a cell shows no traceback, since the outer run shows it."""
    before = vars(shell).get("_showtraceback")
    shell._showtraceback = lambda *_: None
    try:
        yield
    finally:
        if before is None:
            del shell._showtraceback
        else:
            shell._showtraceback = before


_notebooks: Dict[int, Notebook] = {}  # by id of the shell


def load_ipython_extension(shell: Any) -> None:
    """Registers `%sublet` and `%%sublet`."""
    if id(shell) not in _notebooks:
        _notebooks[id(shell)] = Notebook(shell)
    shell.register_magic_function(_notebooks[id(shell)].magic, "line_cell", "sublet")


def unload_ipython_extension(shell: Any) -> None:
    """Gives the lease of the notebook back and removes the magics."""
    notebook = _notebooks.pop(id(shell), None)
    if notebook is not None:
        notebook.unload()
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("sublet", None)
