# SPDX-License-Identifier: Apache-2.0
"""The daemon's reasons as values."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Tuple


@dataclass(frozen=True)
class Reason:
    """One decision about a lease."""

    at: str  # RFC 3339, UTC
    code: str
    kind: str  # finer than the code
    text: str
    args: Mapping[str, Any]  # the numbers and names in the text


@dataclass(frozen=True)
class Why:
    """The decisions about a lease, oldest first, and what would help."""

    state: str
    reasons: Tuple[Reason, ...]
    helps: Tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)  # the whole answer of the daemon

    def __str__(self) -> str:
        lines = [f"{self.raw['lease']['id']} is {self.state}"]
        lines += [f"{reason.at}  {reason.text}" for reason in self.reasons]
        return "\n".join([*lines, *(f"helps: {help}" for help in self.helps)])


def why_of(answer: Mapping[str, Any]) -> Why:
    """Reads the answer of /v1/leases/ID/why."""
    reasons = tuple(Reason(row["at"], row["code"], row["kind"], row["text"], row["args"]) for row in answer["reasons"])
    return Why(answer["lease"]["state"], reasons, tuple(answer["helps"]), answer)
