# SPDX-License-Identifier: Apache-2.0
"""Pauses between the cells of a notebook.

The callbacks of a lease run in a thread of this module while no cell runs, and a cell waits until the pause is over.
Inside a cell they run at a safe point, as in any other program.
"""
from __future__ import annotations

import ast
import importlib
import sys
import threading
import traceback
from typing import Any, Callable

from ._lease import Lease
from ._pause import Pauses
from ._wait import printable
from .errors import LeaseEnded, NotHeld

RETRY_SECONDS = 1.0  # after an on_resume that raised


class Cells:
    """Tells when a cell runs. The hooks are called by the thread that runs the cells."""

    def __init__(self, shell: Any, enter: Callable[[], None], pause_text: Callable[[], str]) -> None:
        self._shell, self._enter, self._pause_text = shell, enter, pause_text
        self._turn = threading.Lock()  # held by a running cell, or by a pause
        self._depth = 0  # of cells that run cells
        self._mine = False  # a cell holds the lock
        shell.events.register("pre_execute", self._before)
        shell.events.register("post_execute", self._after)
        shell.ast_transformers.append(self)

    def close(self) -> None:
        """Removes the hooks."""
        self._shell.events.unregister("pre_execute", self._before)
        self._shell.events.unregister("post_execute", self._after)
        self._shell.ast_transformers.remove(self)

    def _before(self) -> None:
        self._depth += 1
        self._enter()

    def _after(self) -> None:
        self._depth = max(0, self._depth - 1)  # the cell that loads the extension has no beginning
        if self._depth == 0 and self._mine:
            self._mine = False
            self._turn.release()

    def visit(self, tree: ast.AST) -> ast.AST:
        """The shell calls it before it runs a cell. Only an exception here can keep the cell from running."""
        if not self._mine and not _only_asks_for_the_lease(tree):
            self._wait()
        return tree

    def _wait(self) -> None:
        if not self._turn.acquire(blocking=False):
            try:
                print(self._pause_text(), flush=True)
                self._turn.acquire()
            except KeyboardInterrupt:
                rejected = importlib.import_module("IPython.core.error").InputRejected
                raise rejected("the lease of the notebook is paused; see: %sublet") from None
        self._mine = True

    def pause_between(self, lease: Lease) -> None:
        """Has the callbacks of the lease run between cells, until it is given back."""
        pauses = lease._all_pauses()
        assert pauses is not None
        if self._depth == 0 and not self._mine:
            self._wait()  # in the cell that loads the extension
        threading.Thread(target=self._run, args=(lease, pauses), name="sublet-cells", daemon=True).start()

    def _run(self, lease: Lease, pauses: Pauses) -> None:
        changed = threading.Event()
        pauses.listen(changed.set)
        while lease.held:
            if pauses.asked:
                with self._turn:
                    _pause(lease)
            changed.wait()
            changed.clear()


def _pause(lease: Lease) -> None:
    while lease.held:
        try:
            lease.safe_point()
        except NotHeld:
            return
        except LeaseEnded as problem:
            print(printable(f"sublet: {problem}"), file=sys.stderr)
            return
        except Exception:
            print(f"sublet: a callback of {lease.id} failed:", file=sys.stderr)
            traceback.print_exc()
        if not lease.paused:
            return
        threading.Event().wait(RETRY_SECONDS)  # its bytes are not back: no cell may run yet


def _only_asks_for_the_lease(tree: ast.AST) -> bool:
    """True for a cell of `%sublet` lines, which may run during a pause."""
    body = tree.body if isinstance(tree, ast.Module) else []
    return bool(body) and all(
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and
        isinstance(line.value.func, ast.Attribute) and line.value.func.attr == "run_line_magic" and
        bool(line.value.args) and isinstance(line.value.args[0], ast.Constant) and
        line.value.args[0].value == "sublet" for line in body)
