# SPDX-License-Identifier: Apache-2.0
"""Every Python snippet of docs/python.md runs against a daemon with a simulated card."""
import pathlib
import re

import pytest

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


def test_there_are_snippets():
    assert len(SNIPPETS) >= 7


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_document_runs(start_place, number):
    place = start_place("1x24GiB")
    child = place.python(SNIPPETS[number])
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and "Warning" not in err, f"{SNIPPETS[number]}\n{out}\n{err}"
    assert place.leases() == []
