# SPDX-License-Identifier: Apache-2.0
"""Devices as callers name them: one, or several of which a lease gets as many as it wants."""
from __future__ import annotations

from typing import Optional, Sequence, Union

Gpus = Union[str, int, Sequence[Union[str, int]], None]


def device_field(gpu: Gpus) -> Optional[str]:
    """Returns the devices as the daemon reads them, joined by commas; None: any."""
    if gpu is None or isinstance(gpu, (str, int)):
        return None if gpu is None else str(gpu)
    if not gpu:
        raise ValueError("gpu is an empty list: name a device, or leave it out")
    return ",".join(map(str, gpu))
