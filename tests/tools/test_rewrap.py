# SPDX-License-Identifier: Apache-2.0
"""Wrapping comments: prose flows, everything else stays."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import rewrap  # noqa: E402

WORDS = "word " * 24  # 119 columns


def test_a_paragraph_with_a_line_that_is_too_wide_flows():
    text = f"int a;\n  // {WORDS}\n  // and more.\n  int b;\n"
    assert rewrap.rewrap(text, "//") == (
        "int a;\n  // " + ("word " * 21).strip() + "\n  // word word word and more.\n  int b;\n")


@pytest.mark.parametrize("text", [
    "// short lines\n// as they were\n// broken\n",
    f"int a;  // {WORDS}\n",
    f"// a   table {WORDS}\n// of  columns\n",
    f"// -------------------- {WORDS}\n",
    f"// https://example.org/{'x' * 120}\n",
    f'auto text = "{WORDS}";\n',
])
def test_what_is_not_prose_or_not_too_wide_stays(text):
    assert rewrap.rewrap(text, "//") == text


def test_a_list_ends_a_paragraph():
    text = f"# {WORDS}\n# - one\n# - two\n"
    assert rewrap.rewrap("x = 1\n" + text, "#").endswith("\n# word word word\n# - one\n# - two\n")


def test_the_mark_is_known_by_the_name_or_the_first_line():
    assert rewrap.mark_of("src/a.cpp") == "//"
    assert rewrap.mark_of("CMakeLists.txt") == "#"
    assert rewrap.mark_of("dev", "#!/usr/bin/env bash") == "#"
    assert rewrap.mark_of("LICENSE") is None
