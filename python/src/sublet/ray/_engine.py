# SPDX-License-Identifier: Apache-2.0
"""Ray itself, and its words for memory."""
from __future__ import annotations

import importlib
from typing import Any

from .._size import Size, lease_size
from ..errors import NotFound

LEASED = "_sublet_leased"  # attribute of functions and classes that take their lease themselves
RESOURCE = "vram_gib"  # the custom resource of a node: its GiB on all cards, times the declared factor
GIB = 1 << 30
_STEPS = 10_000  # Ray counts a resource below 1 in parts of this; above, only whole numbers


def ray() -> Any:
    """Returns the module `ray`. Raises `NotFound` if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as problem:
        raise NotFound(f"sublet.ray cannot load Ray: {problem}", "install it: pip install ray") from problem


def gib_of(vram: Size, count: int = 1) -> float:
    """Returns the amount of the resource for `count` leases of this size, rounded up."""
    steps = -(-lease_size(vram) * count * _STEPS // GIB)
    return steps / _STEPS if steps < _STEPS else float(-(-steps // _STEPS))


def declared_gib(total: int) -> float:
    """Returns the amount of the resource for a node with so many bytes, rounded down."""
    steps = total * _STEPS // GIB
    return steps / _STEPS if steps < _STEPS else float(steps // _STEPS)


def bytes_of(amount: float) -> int:
    """Returns the bytes that an amount of the resource stands for."""
    return round(amount * _STEPS) * GIB // _STEPS
