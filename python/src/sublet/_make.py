# SPDX-License-Identifier: Apache-2.0
"""The functions that make leases: `sublet.lease` and the decorator `sublet.leased`."""
from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import Any, Callable, Dict, Optional, TypeVar, cast

from . import _outer
from ._devices import Gpus, device_field
from ._flow import OnWait, Wish
from ._lease import Lease
from ._pause import OnPause, OnResume
from ._size import Seconds, Size, lease_size, parse_size, seconds_of

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_RESIDUE = 512 << 20  # a CUDA context keeps about this while its program is paused


def lease(vram: Size, *, tier: Optional[str] = None, name: Optional[str] = None, tag: Optional[str] = None,
          gpu: Gpus = None, gpus: int = 1, min_vram: Optional[Size] = None, priority: int = 0,
          pausable: Optional[str] = None, tenant: Optional[str] = None, timeout: Optional[Seconds] = None,
          wait: bool = True, on_wait: Optional[OnWait] = None, on_pause: Optional[OnPause] = None,
          on_resume: Optional[OnResume] = None, residue: Optional[Size] = None) -> Lease:
    """Returns a lease of `vram` on each of `gpus` devices. `with` or `async with` takes it and gives it back.

    Sizes are bytes, or texts such as "8GiB"; times are seconds or a timedelta. `name` is the name under which the
    daemon remembers sizes and run times, `tag` a name for this lease that is unique among those of the user. `gpu` is a
    device, or a list of devices of which the lease gets `gpus`. `tenant` is charged instead of the user.
    `min_vram` accepts a smaller lease now. `wait=False` raises `WouldWait` instead of waiting, and `timeout` raises
    `WaitTimeout`. `on_wait` is called with a `Waiting` about every two seconds, in the waiting thread. It must return
    soon, since an offer of memory lasts for `queue.claim_window` (10 s). `on_pause` and `on_resume` make the program
    cooperative, see `Lease.safe_point`; `residue` is what stays on each device meanwhile.

    Inside another lease, or inside `sublet run`, it uses the outer lease. Then it never waits, `tier`, `priority` and
    names have no effect, and a larger size raises `TooLarge`.
    """
    if on_resume is not None and on_pause is None:
        raise ValueError("on_resume needs on_pause")
    if residue is not None and on_pause is None:
        raise ValueError("residue needs on_pause: only a program that pauses itself has one")
    for callback, word in ((on_pause, "on_pause"), (on_resume, "on_resume"), (on_wait, "on_wait")):
        if callback is not None and not callable(callback):
            raise TypeError(f"{word} is not callable: {callback!r}")
    if not wait and timeout is not None:
        raise ValueError("wait=False and timeout exclude each other")
    body: Dict[str, Any] = {"vram_bytes": lease_size(vram), "consumer": name or script_name(),
                            "remember": name is not None, "command": _outer.command_line()}
    optional = {"tier": tier, "tag": tag, "device": device_field(gpu), "pausable": pausable,
                "min_vram_bytes": None if min_vram is None else lease_size(min_vram),
                "devices": gpus if gpus != 1 else None, "priority": priority or None, "tenant": tenant,
                "queue": None if wait else False}
    body.update({field: value for field, value in optional.items() if value is not None})
    stays = DEFAULT_RESIDUE if residue is None else parse_size(residue, least=0)
    return Lease(body, Wish(seconds_of(timeout), on_wait), on_pause, on_resume, stays)


def script_name() -> str:
    """Returns the name of the program for the daemon: of its script or notebook."""
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    if name == "ipykernel_launcher.py":  # of every notebook
        name = os.path.basename(os.environ.get("JPY_SESSION_NAME", "")) or name
    return "".join(character for character in name if character.isprintable())[:64] or "python"


def leased(vram: Size, **options: Any) -> Callable[[_F], _F]:
    """Decorates a function or a coroutine function: each call runs under a lease of its own.

    The options are those of `sublet.lease`. Generators raise `TypeError`, since their body runs after the call.
    """
    def decorate(function: _F) -> _F:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator, whose body runs after the call; take the lease "
                            "around the loop that uses it, by `with sublet.lease(...)`")
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def call_async(*arguments: Any, **named: Any) -> Any:
                async with lease(vram, **options):
                    return await function(*arguments, **named)

            return cast(_F, call_async)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            with lease(vram, **options):
                return function(*arguments, **named)

        return cast(_F, call)

    return decorate
