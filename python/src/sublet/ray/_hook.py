# SPDX-License-Identifier: Apache-2.0
"""Leases for code that does not know Sublet: work that asks Ray for `vram_gib` gets a lease of this size."""
from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Callable, Dict, Optional

from ..errors import BadRequest, NotFound
from . import _worker
from ._engine import LEASED, RESOURCE, bytes_of, ray
from ._job import Want

HOOK = "sublet.ray.setup"


def setup() -> None:
    """The value of `worker_process_setup_hook` in a runtime environment of Ray.

    Each task, and each actor, with the resource `vram_gib` then runs under a lease. The tier is that of the variable
    SUBLET_TIER. Raises `NotFound` if this version of Ray loads its functions in an unknown way.
    """
    try:
        manager = importlib.import_module("ray._private.function_manager").FunctionActorManager
        load = manager.get_execution_info
    except (ImportError, AttributeError) as problem:
        raise NotFound(f"sublet.ray.setup does not know how Ray {ray().__version__} loads functions: {problem}",
                       "use the decorator sublet.ray.gpu, or Ray 2.60") from problem
    if getattr(load, LEASED, False):
        return

    @functools.wraps(load)
    def load_leased(self: Any, job: Any, descriptor: Any) -> Any:
        info = load(self, job, descriptor)
        if getattr(info.function, LEASED, False) or _assigned() == 0:
            return info
        if descriptor.is_actor_method():
            if descriptor.function_name != "__init__":
                return info
            leased = _leased(info.function, descriptor.class_name, True)
            info = info._replace(function=leased)
        else:
            # The end of the worker frees its CUDA context.
            leased = _leased(info.function, descriptor.function_name, False)
            info = info._replace(function=leased, max_calls=info.max_calls or 1)
        self._function_execution_info[descriptor.function_id] = info
        return info

    setattr(load_leased, LEASED, True)
    manager.get_execution_info = load_leased


def environment(given: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The value of RAY_RUNTIME_ENV_HOOK as "sublet.ray.environment": each job gets `setup` as its setup hook.

    Raises `BadRequest` if the job has a setup hook of its own.
    """
    made = dict(given or {})
    own = made.setdefault("worker_process_setup_hook", HOOK)
    if own != HOOK:
        raise BadRequest(f"the runtime environment has a setup hook of its own: {own}",
                         "call sublet.ray.setup() in it, and unset RAY_RUNTIME_ENV_HOOK")
    return made


def _assigned() -> int:
    """Returns the bytes that Ray has assigned to the present work."""
    resources = ray().get_runtime_context().get_assigned_resources()
    return bytes_of(float(resources.get(RESOURCE, 0)))


def _leased(function: Callable[..., Any], name: str, actor: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        size = _assigned()
        if size == 0 or (actor and getattr(arguments[0], LEASED, False)):
            return function(*arguments, **named)
        want = Want(size, tier=os.environ.get("SUBLET_TIER") or None)
        if actor:
            _worker.actor_lease(want, name)
            return function(*arguments, **named)
        with _worker.task_lease(want, name):
            return function(*arguments, **named)

    setattr(call, LEASED, True)
    return call
