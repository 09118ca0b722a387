# SPDX-License-Identifier: Apache-2.0
"""Advice of the daemon, which speaks of the command line, in the words of the package and of a notebook."""
from __future__ import annotations

from typing import Tuple

Table = Tuple[Tuple[str, str], ...]

# A test finds each text on the left in the sources of the daemon.
PYTHON: Table = (
    ("let it queue", "leave out wait=False"),
    (", or for `--vram all`", ""),
    ("`sublet gpus` says how much each has", "sublet.status().devices says how much each has"),
    ("`sublet gpus` shows each device's memory", "sublet.status().devices shows the memory of each"),
    ("`sublet gpus` lists those that are there", "sublet.status().devices lists them"),
    ("find out why the program does not answer", "call safe_point() more often"),
    ("leave the least size out", "leave out min_vram="),
)
NOTEBOOK: Table = (
    ("wait=False", "--no-wait"),
    ("sublet.status().devices", "!sublet gpus"),
    ("min_vram=", "--min-vram"),
    ("gpu=", "--gpu"),
    ("sublet.current().resize(SIZE)", "%sublet SIZE"),
    ("a longer timeout", "a longer --timeout"),
    ("`sublet ", "`!sublet "),
    ("see: sublet ", "see: !sublet "),
)


def in_python(hint: str, table: Table = PYTHON) -> str:
    """Returns the hint with the words of the table."""
    for words, ours in table:
        hint = hint.replace(words, ours)
    return hint
