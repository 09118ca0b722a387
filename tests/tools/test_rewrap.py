# SPDX-License-Identifier: Apache-2.0
"""Wrapping comments: prose flows, everything else stays."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import rewrap  # noqa: E402

PER_LINE = (rewrap.COLUMNS - 2) // 5  # number of times "word " fits behind a mark
WORDS = "word " * (PER_LINE + 3)


def test_a_paragraph_with_a_line_that_is_too_wide_flows():
    wrapped = rewrap.rewrap(f"int a;\n  // {WORDS}\n  // and more.\n  int b;\n", "//").split("\n")
    assert wrapped[0] == "int a;" and wrapped[3:] == ["  int b;", ""]
    assert all(line.startswith("  // word") and len(line) <= rewrap.COLUMNS for line in wrapped[1:3])
    assert wrapped[2].endswith("word and more.")
    assert " ".join(line[5:] for line in wrapped[1:3]) == WORDS + "and more."


@pytest.mark.parametrize("text", [
    "// short lines\n// as they were\n// broken\n",
    f"int a;  // {WORDS}\n",
    f"// a   table {WORDS}\n// of  columns\n",
    f"// -------------------- {WORDS}\n",
    f"// https://example.org/{'x' * 120}\n",
    f'auto text = "{WORDS}";\n',
])
def test_code_and_short_lines_stay(text):
    assert rewrap.rewrap(text, "//") == text


def test_a_list_ends_a_paragraph():
    text = f"# {WORDS}\n# - one\n# - two\n"
    assert rewrap.rewrap("x = 1\n" + text, "#").endswith(" word\n# - one\n# - two\n")


def test_the_mark_is_known_by_the_name_or_the_first_line():
    assert rewrap.mark_of("src/a.cpp") == "//"
    assert rewrap.mark_of("CMakeLists.txt") == "#"
    assert rewrap.mark_of("dev", "#!/usr/bin/env bash") == "#"
    assert rewrap.mark_of("LICENSE") is None
