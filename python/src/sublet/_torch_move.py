# SPDX-License-Identifier: Apache-2.0
"""Moves the memory of tensors to the host and back.

The storages move and the tensors stay: a storage on the card is copied, and then emptied. So every parameter keeps its
identity, and views, tied weights, gradient hooks and other names of the same memory remain valid. Between `save` and
`load` no thread may use the tensors.
"""
from __future__ import annotations

import contextlib
import gc
from typing import Any, Dict, Iterator, List, Mapping, Set, Tuple

from ._size import format_size
from .errors import InUse

CHUNK = 256 << 20  # bytes; PyTorch rounds pinned memory up to a power of two
_PLAIN = (bool, int, float, complex, str, bytes)


def is_on_card(device: Any) -> bool:
    """True for a device whose memory a lease counts."""
    return bool(device.type == "cuda")


def tensors_of(torch: Any, root: Any) -> Iterator[Any]:
    """Gives the tensors of a module, an optimizer, a tensor, or of a collection of them; some may come twice. Raises
    `TypeError` for other objects, whose tensors it cannot find. Plain values have none.
    """
    seen: Set[int] = set()
    left = [(root, True)]
    while left:
        thing, strict = left.pop()
        if isinstance(thing, torch.Tensor):
            yield thing
            if thing.is_leaf and thing.grad is not None:
                yield thing.grad
        elif id(thing) in seen:
            continue
        elif isinstance(thing, torch.nn.Module):
            left += [(part, False) for part in (*thing.parameters(), *thing.buffers())]
        elif hasattr(thing, "param_groups") and hasattr(thing, "state"):
            left += [(thing.param_groups, False), (thing.state, False)]  # each optimizer has objects of its own there
        elif isinstance(thing, Mapping):
            left += [(part, strict) for part in thing.values()]
        elif isinstance(thing, (list, tuple, set, frozenset)):
            left += [(part, strict) for part in thing]
        elif strict and thing is not None and not isinstance(thing, _PLAIN + (torch.dtype, torch.device)):
            raise TypeError(f"offload() finds no tensors in an object of the type {type(thing).__qualname__}; give it "
                            "the tensors themselves, in a list or dictionary")
        seen.add(id(thing))


def storages_of(torch: Any, roots: Any) -> List[Any]:
    """Returns each storage on a card once."""
    found: Dict[int, Any] = {}
    for tensor in tensors_of(torch, roots):
        for part in _dense_parts(torch, tensor):
            if not is_on_card(part.device):
                continue
            storage = part.untyped_storage() if hasattr(part, "untyped_storage") else part.storage().untyped()
            if storage.nbytes() > 0:
                found[storage.data_ptr()] = storage
    return list(found.values())


def _dense_parts(torch: Any, tensor: Any) -> Iterator[Any]:
    """Gives the tensors that hold the bytes of a sparse or composed tensor."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _dense_parts(torch, getattr(tensor, name))
    elif tensor.layout == torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout == torch.strided:
        yield tensor
    else:  # compressed sparse layouts
        rows = ("crow_indices", "col_indices") if hasattr(tensor, "crow_indices") else ()
        for name in (*rows, "values"):
            yield getattr(tensor, name)()


class HostCopy:
    """The bytes of storages in host memory. Any thread, one at a time."""

    def __init__(self, torch: Any, storages: List[Any]) -> None:
        self._torch, self._storages = torch, storages
        self._chunks: List[Any] = []
        self._pieces: List[List[Tuple[Any, int]]] = []  # of each storage: a part of a chunk, and its place
        self._sizes = [int(storage.nbytes()) for storage in storages]
        self._away: Set[int] = set()  # numbers of the storages whose bytes may be in host memory only
        self.nbytes = sum(self._sizes)
        self.pinned = any(is_on_card(storage.device) for storage in storages)

    @property
    def is_on_host(self) -> bool:
        """True if bytes may be in host memory only."""
        return bool(self._away)

    @property
    def is_whole(self) -> bool:
        """True if no byte is on the card."""
        return len(self._away) == len(self._storages) and all(storage.nbytes() == 0 for storage in self._storages)

    def save(self) -> None:
        """Copies the storages, empties them, and empties the cache. After an exception all bytes are on the card,
        unless `is_on_host` tells that they could not be moved back.
        """
        torch = self._torch
        _wait_for(torch, self._storages)
        self._cut_pieces()
        for storage, pieces in zip(self._storages, self._pieces):
            with torch.no_grad():
                there = _bytes_of(torch, storage)
                for part, place in pieces:
                    part.copy_(there[place:place + part.numel()], non_blocking=True)
        _wait_for(torch, self._storages)
        try:
            for number, storage in enumerate(self._storages):
                self._away.add(number)
                _empty(storage)
            release_caches(torch)
        except BaseException:
            self._fill()
            raise

    def load(self) -> None:
        """Takes the memory on the card again and copies the bytes back. An exception leaves all of them in the host
        memory, and nothing on the card.
        """
        try:
            self._fill()
        except BaseException:
            self._away = set(range(len(self._storages)))
            for storage in self._storages:
                storage.resize_(0)
            release_caches(self._torch)
            raise
        self._pieces.clear()
        self._chunks.clear()
        if self.pinned:
            with contextlib.suppress(Exception):  # only younger versions can give pinned memory back
                self._torch._C._host_emptyCache()

    def _fill(self) -> None:
        for number in sorted(self._away):
            storage, size, pieces = self._storages[number], self._sizes[number], self._pieces[number]
            if storage.nbytes() != size:
                storage.resize_(size)
            with self._torch.no_grad():
                there = _bytes_of(self._torch, storage)
                for part, place in pieces:
                    there[place:place + part.numel()].copy_(part, non_blocking=True)
        _wait_for(self._torch, self._storages)
        self._away.clear()

    def _cut_pieces(self) -> None:
        left = self.nbytes
        free = None  # the rest of the last chunk
        for size in self._sizes:
            pieces: List[Tuple[Any, int]] = []
            place = 0
            while place < size:
                if free is None or free.numel() == 0:
                    free = self._chunk(min(left, CHUNK))
                    left -= free.numel()
                count = min(size - place, free.numel())
                pieces.append((free[:count], place))
                free, place = free[count:], place + count
            self._pieces.append(pieces)

    def _chunk(self, size: int) -> Any:
        made = None
        if self.pinned:
            try:
                made = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
            except RuntimeError:  # plain memory does as well, and is slower
                self.pinned = False
        if made is None:
            made = self._torch.empty(size, dtype=self._torch.uint8)
        self._chunks.append(made)
        return made


def _empty(storage: Any) -> None:
    size = storage.nbytes()
    try:
        storage.resize_(0)
    except RuntimeError as problem:
        raise InUse(f"a tensor of {format_size(size)} on {storage.device} shares its memory with another library or "
                    f"process, and cannot move: {problem}", "leave this tensor out of offload(), or copy it first",
                    {"used_bytes": size}) from problem


def _bytes_of(torch: Any, storage: Any) -> Any:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _wait_for(torch: Any, storages: List[Any]) -> None:
    for device in {storage.device for storage in storages}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def release_caches(torch: Any) -> None:
    """Gives the memory that no tensor uses back to the card."""
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
