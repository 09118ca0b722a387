#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rewraps the paragraphs of comments that have a line that is too wide.

clang-format would cut such a line and leave its last word alone on the next line. Here the lines of a paragraph are
joined first. A paragraph without such a line keeps its line breaks. So do tables, lists and pictures, which are
recognised by their spaces.
"""
import re
import sys
import textwrap

from treecheck.code import MOST_COLUMNS as COLUMNS

MARKS = {"cpp": "//", "h": "//", "c": "//", "py": "#", "sh": "#", "cmake": "#", "txt": "#", "toml": "#", "sql": "--"}


def mark_of(path, first_line=""):
    ending = path.rsplit("/", 1)[-1].rpartition(".")[2]
    return MARKS.get(ending) or ("#" if first_line.startswith("#!") else None)


def flows(text):
    """Whether a line of a comment is prose that may be joined with its neighbours."""
    return not (re.search(r"\S  +\S|^ |-{4}", text) or re.match(r"([-*•]|\d+[.)])\s|\w+:\s*$|SPDX-", text))


def rewrap(text, mark):
    lines, out, index = text.split("\n"), [], 0
    while index < len(lines):
        opening = re.match(rf"^(\s*){re.escape(mark)} (.*)$", lines[index])
        if not opening or not flows(opening.group(2)) or (index == 0 and lines[0].startswith("#!")):
            out.append(lines[index])
            index += 1
            continue
        prefix, end = f"{opening.group(1)}{mark} ", index
        while end < len(lines) and lines[end].startswith(prefix) and flows(lines[end][len(prefix):]):
            end += 1
        paragraph = lines[index:end]
        if any(len(line) > COLUMNS and "://" not in line for line in paragraph):
            paragraph = textwrap.wrap(" ".join(line[len(prefix):].strip() for line in paragraph), COLUMNS,
                                      initial_indent=prefix, subsequent_indent=prefix, break_long_words=False,
                                      break_on_hyphens=False)
        out += paragraph
        index = max(end, index + 1)
    return "\n".join(out)


def main(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        mark = mark_of(path, before.split("\n", 1)[0])
        after = rewrap(before, mark) if mark else before
        if after != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)


if __name__ == "__main__":
    main(sys.argv[1:])
