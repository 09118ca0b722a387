# SPDX-License-Identifier: Apache-2.0
"""The daemon's reasons as values."""
from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Mapping, Tuple

from ._hints import in_python
from ._size import format_age


@dataclass(frozen=True)
class Reason:
    """One decision about a lease."""

    at: str  # RFC 3339, UTC
    code: str
    kind: str  # finer than the code
    text: str
    args: Mapping[str, Any]  # the numbers and names in the text

    @property
    def when(self) -> datetime.datetime:
        """`at` as a time in UTC."""
        return datetime.datetime.fromisoformat(self.at.replace("Z", "+00:00"))


@dataclass(frozen=True)
class Why:
    """The decisions about a lease, oldest first, and what would help."""

    state: str
    reasons: Tuple[Reason, ...]
    helps: Tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)  # the whole answer of the daemon

    def __str__(self) -> str:
        now = datetime.datetime.now(datetime.timezone.utc)
        lines = [f"{self.raw['lease']['id']} is {self.state}"]
        for reason in self.reasons:
            ago = format_age((now - reason.when).total_seconds())
            code = "" if reason.text.startswith(reason.code) else f"{reason.code}: "
            lines.append(f"{ago:>4} ago  {code}{reason.text}")
        return "\n".join([*lines, *(f"helps: {help}" for help in self.helps)])


def why_of(answer: Mapping[str, Any]) -> Why:
    """Reads the answer of /v1/leases/ID/why."""
    reasons = tuple(Reason(row["at"], row["code"], row["kind"], row["text"], row["args"]) for row in answer["reasons"])
    return Why(answer["lease"]["state"], reasons, tuple(map(in_python, answer["helps"])), answer)
