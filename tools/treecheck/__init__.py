# SPDX-License-Identifier: Apache-2.0
"""The rules of tools/check_tree.py. A tree is a dict from path to text: a test can write one down."""
import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str
    warning: bool = False

    def __str__(self):
        word = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {word}{self.message} [{self.rule}]"
