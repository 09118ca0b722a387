# SPDX-License-Identifier: Apache-2.0
"""Every Python snippet of docs/python.md and the READMEs runs against a daemon with a simulated card. Snippets for
PyTorch and IPython are run by tests/heavy.
"""
import sys

import pytest

from tests.support.python_place import snippets

SNIPPETS = [snippet for document in ("docs/python.md", "python/README.md", "README.md")
            for snippet in snippets("python", without="torch", document=document)]


def test_there_are_snippets():
    assert len(SNIPPETS) >= 9


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_document_runs(start_place, tmp_path, number):
    place, text = start_place("1x24GiB"), SNIPPETS[number]
    if "def test_" in text:
        (tmp_path / "test_snippet.py").write_text(text)
        child = place.daemon.spawn(sys.executable, "-m", "pytest", "-p", "sublet.pytest_plugin", "-W", "error",
                                   cwd=tmp_path, env=place.env())
    else:
        child = place.python(text)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and "Warning" not in err, f"{text}\n{out}\n{err}"
    assert place.leases() == []
