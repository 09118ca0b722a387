# SPDX-License-Identifier: Apache-2.0
"""Code with co_await that g++ 12 compiles wrongly: inside `?:`, and as the condition of an `if` around `continue`."""
import re

from . import Finding
from .code import line_of, without_words

OPEN, CLOSE = "([{", ")]}"
AWAIT = re.compile(r"\bco_await\b")
IF = re.compile(r"\bif\s*(?:constexpr\s*)?\(")
HEAD = re.compile(r"\b(?:if|while|for|switch)\s*(?:constexpr\s*)?\Z")
CONTINUE = re.compile(r"[\s{]*continue\b")
INSTEAD = "g++ 12 compiles this wrongly; await into a variable first"


def check(tree):
    for path, text in sorted(tree.items()):
        if path.endswith((".h", ".cpp")) and "co_await" in text:
            yield from check_code(path, without_words(path, text))


def check_code(path, code):
    for match in re.finditer(r"\?", code):
        if any(True for _ in AWAIT.finditer(code, *expression_around(code, match.start()))):
            yield Finding(path, line_of(code, match), "co_await", f"co_await inside ?: — {INSTEAD}")
    for match in IF.finditer(code):
        end = closing(code, match.end() - 1)
        if AWAIT.search(code, match.end(), end) and CONTINUE.match(code, end + 1):
            yield Finding(path, line_of(code, match), "co_await", f"if (co_await …) continue; — {INSTEAD}")


def closing(code, place):
    """The place of the bracket that closes the one at `place`, or the end of the code."""
    depth = 0
    for index in range(place, len(code)):
        depth += (code[index] in OPEN) - (code[index] in CLOSE)
        if depth == 0:
            return index
    return len(code)


def opening(code, place):
    """The place of the bracket that opens the one at `place`, or the begin of the code."""
    depth = 0
    for index in range(place, -1, -1):
        depth += (code[index] in CLOSE) - (code[index] in OPEN)
        if depth == 0:
            return index
    return 0


def expression_around(code, place):
    """-> (begin, end) of the conditional expression whose `?` stands at `place`"""
    begin = place
    while begin > 0 and code[begin - 1] not in ";,([{":
        begin -= 1
        if code[begin] in CLOSE:
            inner = opening(code, begin)
            block = code[begin] == "}" and (";" in code[inner:begin] or not code[inner + 1:begin].strip())
            if block or HEAD.search(code, max(0, inner - 20), inner):
                begin += 1  # the end of another statement, or of a head such as `if (…)`
                break
            begin = inner
    end = place
    while end < len(code) and code[end] not in ";,)]}":
        end = closing(code, end) + 1 if code[end] in OPEN else end + 1
    return begin, end
