# SPDX-License-Identifier: Apache-2.0
"""Sizes and durations as people write them. Any thread."""
from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import Callable, Optional, Tuple, Union

from .errors import BadRequest

Size = Union[int, str]  # bytes, or "8GiB"
Seconds = Union[int, float, str, datetime.timedelta]  # seconds, or "5s", "10m", "1h"

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGTP]?)(I?B?)$", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|min|h|d|w)$")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_HINT = "write a size such as 8GiB, 512MiB or 1.5G"
_MOST = 1 << 62
LEAST_BYTES = 1 << 10  # of a lease


def parse_size(size: Size, least: int = 1) -> int:
    """Returns the size in bytes. Raises `BadRequest` for a value that is no size, or is less than `least`.

    The units are those of the command line: K, Ki and KiB are 1024 bytes, KB is 1000 bytes.
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise BadRequest(f"the size {size!r} is neither a number of bytes nor a text", _HINT)
    if isinstance(size, int):
        total = size
    else:
        match = _SIZE.match(size)
        if match is None or (not match.group(2) and match.group(3).upper() not in ("", "B")):
            raise BadRequest(f"the size {size!r} is not a size", _HINT)
        base = 1000 if match.group(2) and match.group(3).upper() == "B" else 1024
        power = " KMGTP".index(match.group(2).upper() or " ")
        whole, _, fraction = match.group(1).partition(".")
        total = int(whole + fraction) * base**power // 10**len(fraction)
    if total < least or total > _MOST:
        raise BadRequest(f"the size {size!r} is not between {least} and 2^62 bytes", _HINT)
    return total


def lease_size(size: Size) -> int:
    """As `parse_size`, for the size of a lease. A smaller number lacks its unit."""
    count = parse_size(size)
    if count < LEAST_BYTES:
        raise BadRequest(f"the size {size!r} is {count} bytes, and a lease has {LEAST_BYTES} or more",
                         f"write the unit, such as '{count}GiB'")
    return count


def _size_text(count: int, divide: Callable[[int, int], int]) -> str:
    size = abs(count)
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            tenths = divide(10 * size, unit) if size < 100 * unit else 1000
            text = f"{tenths // 10}.{tenths % 10}" if tenths < 1000 else str(divide(size, unit))
            return f"{'-' if count < 0 else ''}{text} {name}"
    return f"{count} B"


def format_size(count: int) -> str:
    """Returns the size for people, with the unit: "8.0 GiB". Rounds as the command line does."""
    return _size_text(count, lambda size, unit: round(Fraction(size, unit)))


def format_size_down(count: int) -> str:
    """As `format_size`, for what is there: never more than the size."""
    return _size_text(count, lambda size, unit: size // unit)


def format_sizes_apart(larger: int, smaller: int) -> Tuple[str, str]:
    """Returns both sizes, rounded so that they differ."""
    more, less = format_size(larger), format_size(smaller)
    if more != less:
        return more, less
    return _size_text(larger, lambda size, unit: -(-size // unit)), format_size_down(smaller)


def format_duration(seconds: float) -> str:
    """Returns the time for people: "45 s", "2 min 5 s", "3 h 10 min"."""
    if seconds < 1:
        return f"{int(seconds * 1000)} ms"
    whole = int(seconds + 0.5)
    for unit, word, next_unit, next_word in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // next_unit
            return f"{whole // unit} {word}" + (f" {rest} {next_word}" if rest else "")
    return f"{whole} s"


def format_age(seconds: float) -> str:
    """Returns the time in one unit, rounded down: "45s", "12m", "3h", "9d"."""
    whole = max(0, int(seconds))
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= unit:
            return f"{whole // unit}{letter}"
    return f"{whole}s"


def seconds_of(duration: Optional[Seconds], option: str = "timeout") -> Optional[float]:
    """Returns the duration in seconds; None stays None. Raises `BadRequest` for a value that is no duration."""
    if duration is None:
        return None
    seconds: Optional[float] = None
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        match = _DURATION.match(duration)
        seconds = float(match.group(1)) * _UNITS[match.group(2)] if match else None
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        seconds = float(duration)
    if seconds is None or not seconds >= 0:
        raise BadRequest(f"{option}={duration!r} is no duration",
                         "give seconds, a timedelta, or a text such as 5s or 10m")
    return seconds
