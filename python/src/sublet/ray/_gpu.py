# SPDX-License-Identifier: Apache-2.0
"""The decorator `gpu` for tasks and actors, and the bundles of placement groups."""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Optional

from .._devices import Gpus
from .._size import Seconds, Size, lease_size
from . import _worker
from ._engine import LEASED, RESOURCE, gib_of, ray
from ._job import Want

DAEMON_WAIT = 60.0  # seconds


def gpu(vram: Size, *, tier: Optional[str] = None, name: Optional[str] = None, gpu: Gpus = None, gpus: int = 1,
        min_vram: Optional[Size] = None, priority: int = 0, pausable: Optional[str] = None,
        timeout: Optional[Seconds] = None, tenant: Optional[str] = None, gang: Optional[str] = "auto",
        visible: str = "uuid", daemon_wait: Seconds = DAEMON_WAIT, **options: Any) -> Callable[[Any], Any]:
    """Makes a task or an actor of Ray that runs under a lease of `vram` on each of `gpus` devices.

    It stands in place of `ray.remote`, whose other options it takes. A task holds its lease from its first line until
    its return, an actor from its `__init__` until the end of its process. The options of the lease are those of
    `sublet.lease`. `gang=None` gives a member of a placement group a lease of its own. `visible="index"` names the
    devices by index in CUDA_VISIBLE_DEVICES, for libraries that cannot read UUIDs. `daemon_wait` is the time for which
    a worker looks for a daemon before it fails.
    """
    if "num_gpus" in options:
        raise ValueError("num_gpus and vram exclude each other: Ray would count the card twice; leave num_gpus out")
    if visible not in ("uuid", "index"):
        raise ValueError(f"visible={visible!r} is neither 'uuid' nor 'index'")
    if gang not in ("auto", "pack", "spread", None):
        raise ValueError(f"gang={gang!r} is neither 'auto', 'pack', 'spread' nor None")
    want = Want(vram=lease_size(vram), tier=tier, name=name, gpu=gpu, gpus=gpus,
                min_vram=None if min_vram is None else lease_size(min_vram), priority=priority, pausable=pausable,
                timeout=timeout, tenant=tenant, gang=gang, visible=visible, daemon_wait=daemon_wait)

    def decorate(target: Any) -> Any:
        given: Dict[str, Any] = dict(options, num_gpus=0)
        given["resources"] = {**(options.get("resources") or {}), RESOURCE: gib_of(want.vram, gpus)}
        if inspect.isclass(target):
            return ray().remote(**given)(leased_class(target, want))
        given.setdefault("max_calls", 1)  # the end of the worker frees its CUDA context
        return ray().remote(**given)(leased_function(target, want))

    return decorate


def bundle(vram: Optional[Size] = None, *, gpus: int = 1, cpus: float = 1, **resources: float) -> Dict[str, float]:
    """Returns a bundle for `ray.util.placement_group`: VRAM, CPUs, and custom resources by name."""
    made: Dict[str, float] = {"CPU": cpus} if cpus else {}
    if vram is not None:
        made[RESOURCE] = gib_of(vram, gpus)
    return {**made, **resources}


def leased_function(function: Callable[..., Any], want: Want) -> Callable[..., Any]:
    """Wraps the function of a task: each call runs under a lease of its own."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} is a coroutine function, and Ray takes these for actors only")
    if inspect.isgeneratorfunction(function):
        @functools.wraps(function)
        def generate(*arguments: Any, **named: Any) -> Any:
            with _worker.task_lease(want, function.__qualname__):
                yield from function(*arguments, **named)

        setattr(generate, LEASED, True)
        return generate

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with _worker.task_lease(want, function.__qualname__):
            return function(*arguments, **named)

    setattr(call, LEASED, True)
    return call


def leased_class(target: Any, want: Want) -> Any:
    """Returns a subclass that takes a lease in `__init__`. The lease ends with the process."""
    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        _worker.actor_lease(want, target.__qualname__)
        target.__init__(self, *arguments, **named)

    if inspect.isfunction(target.__init__):  # else it is one of C, whose signature says nothing
        begin = functools.wraps(target.__init__)(begin)
    body = {"__init__": begin, LEASED: True, "__module__": target.__module__, "__qualname__": target.__qualname__,
            "__doc__": target.__doc__}
    return type(target.__name__, (target,), body)
