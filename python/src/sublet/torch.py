# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs under a lease: `import sublet.torch`.

PyTorch itself is loaded with the first call. Without CUDA, `cap` and `offload` do nothing, so that one program runs
with and without a card.
"""
from __future__ import annotations

import importlib
import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from . import _torch_move
from ._flow import BRIEF_SECONDS
from ._http import Call
from ._lease import Lease, current
from ._make import DEFAULT_RESIDUE
from ._pause import Order
from ._size import Size, format_size, parse_size
from ._status import Status, ask
from .errors import NotFound, NotHeld, SubletError

__all__ = ["Measured", "Offload", "cap", "explain_oom", "measure", "offload"]
MIB = 1 << 20


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as problem:
        raise NotFound(f"sublet.torch cannot load PyTorch: {problem}",
                       "install it, by `pip install torch` or apt-get install python3-torch") from problem


def _lease_of(lease: Optional[Lease]) -> Lease:
    found = lease if lease is not None else current()
    if found is None:
        raise NotHeld("no lease is held here", "call it inside `with sublet.lease(...)`, or give it the lease")
    return found


# ------------------------------------------------------------------------------------------------ cap

def cap(lease: Optional[Lease] = None, *, context: Size = DEFAULT_RESIDUE) -> Dict[int, float]:
    """Has PyTorch refuse to use more than the lease: an allocation beyond it raises PyTorch's own out-of-memory error.

    PyTorch does not count the CUDA context and the memory of libraries. So `context` bytes of the lease are left for
    them, but never more than half of the lease. Returns the fraction of each device by its index in PyTorch. Call it
    again after `resize`. The default is the lease of this thread; without one it raises `NotHeld`.
    """
    held, torch = _lease_of(lease), _torch()
    if not torch.cuda.is_available():
        return {}
    left = parse_size(context) if context else 0
    most = max(held.vram_bytes - left, held.vram_bytes // 2)
    fractions = {}
    for index in _indices_of(torch, held):
        fractions[index] = min(1.0, most / torch.cuda.get_device_properties(index).total_memory)
        torch.cuda.set_per_process_memory_fraction(fractions[index], index)
    return fractions


def _indices_of(torch: Any, lease: Lease) -> List[int]:
    """Returns PyTorch's indices of the devices of the lease."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    order = visible.split(",") if visible is not None else []
    count = torch.cuda.device_count()
    by_uuid: Dict[str, int] = {}
    for index in range(count):
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)  # not in old versions
        if uuid is not None:
            by_uuid["GPU-" + str(uuid).removeprefix("GPU-")] = index
        elif index < len(order):
            by_uuid[order[index]] = index
    missing = [device for device in lease.devices if device not in by_uuid]
    if missing and visible is None and count == 1 and len(lease.devices) == 1:
        return [0]
    if missing:
        raise NotFound(f"PyTorch does not see {missing[0]}, the device of {lease.id}, among its {count} devices",
                       "take the lease before the first use of CUDA, and leave CUDA_VISIBLE_DEVICES alone")
    return [by_uuid[device] for device in lease.devices]


# ------------------------------------------------------------------------------------------------ offload

class Offload:
    """Callbacks for `sublet.lease` that move tensors to the host and back. `offload` makes it.

    The object looks for the tensors when it is paused. So the model may be moved to the card later, inside the lease.
    """

    def __init__(self, *things: Any) -> None:
        self._things = things
        self._copy: Optional[_torch_move.HostCopy] = None

    def check(self) -> None:
        """Raises `TypeError` if a thing is of an unknown type."""
        for _ in _torch_move.tensors_of(_torch(), self._things):
            pass

    @property
    def offloaded_bytes(self) -> int:
        """Bytes in host memory; 0 unless the program is paused."""
        return 0 if self._copy is None else self._copy.nbytes

    def on_pause(self, order: Optional[Order] = None) -> None:
        """Moves all bytes on the card to the host and empties the CUDA cache.

        After an exception the bytes are on the card. If they cannot be moved back, `offloaded_bytes` is above 0 and
        `on_resume()` tries again.
        """
        if self._copy is not None:
            if self._copy.is_whole:
                return
            self.on_resume()  # an earlier failure left a part of the bytes at each place
        torch = _torch()
        copy = self._copy = _torch_move.HostCopy(torch, _torch_move.storages_of(torch, self._things))
        try:
            copy.save()
        except BaseException:
            if not copy.is_on_host:
                self._copy = None
            raise

    def on_resume(self) -> None:
        """Moves the bytes back. An exception leaves them in host memory, and another call tries again."""
        if self._copy is not None:
            self._copy.load()
            self._copy = None


def offload(model: Any, optimizer: Any = None, *more: Any) -> Offload:
    """Returns callbacks that move a model and its optimizer to host memory during a pause.

    Parameters, buffers, gradients and the state of the optimizer move: to pinned host memory, or to plain host memory
    where pinning is not possible. They come back to the same device, bit for bit. All objects stay the same, so the
    optimizer and other references remain valid. Each argument may be a module, an optimizer, a tensor, or a list or
    dictionary of them; others raise `TypeError`. Other tensors, such as the graph of a loss, stay on the card.

    No thread may use the tensors during the pause, so every thread needs its `safe_point()`. Leave out memory that was
    handed to another library or process, for example by DLPack: PyTorch cannot tell that it is shared.
    """
    made = Offload(model, optimizer, *more)
    made.check()
    return made


# ------------------------------------------------------------------------------------------------ measure

@dataclass(frozen=True)
class Measured:
    """The VRAM of one call."""

    result: Any  # what the function returned
    peak_bytes: int  # on the busiest device, with the CUDA context
    suggested_bytes: int  # the peak and a tenth, in whole MiB

    @property
    def suggested(self) -> str:
        """The size for `sublet.lease`, such as "7936MiB"."""
        return f"{self.suggested_bytes // MIB}MiB"


def measure(fn: Callable[..., Any], *arguments: Any, context: Size = DEFAULT_RESIDUE, **named: Any) -> Measured:
    """Calls the function and returns the peak of the process's VRAM meanwhile, with the size of a lease for it.

    PyTorch counts its own memory only; `context` bytes are added for the CUDA context. The peak includes memory that
    the process had before the call. Raises `NotFound` without CUDA.
    """
    torch = _torch()
    if not torch.cuda.is_available():
        raise NotFound("PyTorch sees no CUDA device, so there is no VRAM to measure",
                       "run it on a machine with a card, and inside a lease")
    _torch_move.release_caches(torch)  # else the cache of earlier work counts
    for index in _used_devices(torch):
        torch.cuda.reset_peak_memory_stats(index)
    result = fn(*arguments, **named)
    used = _used_devices(torch)
    for index in used:
        torch.cuda.synchronize(index)
    peak = max((int(torch.cuda.max_memory_reserved(index)) for index in used), default=0)
    peak += parse_size(context) if context else 0
    return Measured(result, peak, -(-peak * 11 // (10 * MIB)) * MIB)


def _used_devices(torch: Any) -> List[int]:
    """Returns the devices on which PyTorch had memory: some calls make a CUDA context on each device that they name."""
    return [index for index in range(torch.cuda.device_count()) if torch.cuda.max_memory_reserved(index) > 0]


# ------------------------------------------------------------------------------------------------ explain_oom

def explain_oom(exc: BaseException) -> str:
    """Returns a text for people about an out-of-memory error: the holdings of the process, the lease, the card, and
    the next step. It never raises, and leaves out what it cannot find out.
    """
    first = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
    if "out of memory" not in str(exc).lower():
        return f"The error is not about GPU memory: {first}"
    lines = [f"CUDA is out of memory: {first}"]
    wanted, index = _request_in(str(exc))
    held = cached = 0
    try:
        torch = _torch()
        if torch.cuda.is_available():
            index = torch.cuda.current_device() if index is None else index
            held, used = int(torch.cuda.memory_reserved(index)), int(torch.cuda.memory_allocated(index))
            cached = held - used
            lines.append(f"PyTorch holds {format_size(held)} on cuda:{index} in this process: {format_size(used)} in "
                         f"tensors, {format_size(cached)} in its cache. The CUDA context comes on top.")
            free, total = torch.cuda.mem_get_info(index)
            lines.append(f"The card has {format_size(free)} free of {format_size(total)}.")
    except Exception as problem:  # after an error of CUDA, any call may fail
        lines.append(f"The memory of this process is unknown: {problem}")
    lease = current()
    lines += _lease_lines(lease)
    return "\n".join([*lines, *(f"Next: {step}" for step in _next_steps(lease, wanted, held, cached))])


def _request_in(text: str) -> "tuple[int, Optional[int]]":
    """Returns the bytes that PyTorch tried to allocate (0: unknown), and the index of the device."""
    asked = re.search(r"allocate (\d+(?:\.\d+)?) ?([KMGT]i?B|bytes)", text)
    device = re.search(r"GPU (\d+)", text)
    size = 0
    if asked is not None:
        unit = {"b": 0, "K": 10, "M": 20, "G": 30, "T": 40}[asked.group(2)[0]]
        size = int(float(asked.group(1)) * (1 << unit))
    return size, int(device.group(1)) if device is not None else None


def _lease_lines(lease: Optional[Lease]) -> List[str]:
    if lease is None:
        return ["No lease is held here, so nothing is reserved for this process."]
    lines = [f"{lease.id} has {format_size(lease.vram_bytes)} on each of its devices."]
    try:
        now: Status = ask(Call("GET", "/v1/status", patience=BRIEF_SECONDS, answer_seconds=BRIEF_SECONDS))
        lines += [f"{device.id} ({device.name}) has {format_size(max(device.effective_free_bytes, 0))} that may still "
                  f"be leased, of {format_size(device.total_bytes)}."
                  for device in now.devices if device.uuid in lease.devices]
    except (SubletError, OSError) as problem:
        lines.append(f"The state of the daemon is unknown: {problem}")
    return lines


def _next_steps(lease: Optional[Lease], wanted: int, held: int, cached: int) -> List[str]:
    if lease is None:
        return ["take a lease before the first use of CUDA, with a size from sublet.torch.measure()"]
    steps = []
    need = held + wanted + DEFAULT_RESIDUE
    if need > lease.vram_bytes:
        size = -(-need * 11 // (10 * MIB))
        steps.append(f"make the lease larger by lease.resize(\"{size}MiB\") and call sublet.torch.cap() again, or make "
                     "the batch smaller")
    else:
        steps.append(f"look for programs that use more than their lease: sublet ps; sublet why {lease.id}")
    if wanted and cached >= wanted:
        steps.append("the cache is in pieces: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the start")
    return steps
