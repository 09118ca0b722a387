# SPDX-License-Identifier: Apache-2.0
"""Plain English: sentence length and first words in documents and comments, changelog entries, commit titles.

A sentence of a document has at most 30 words, an entry of the changelog 25. No sentence starts with a word of
FIRST_WORDS. `<!-- prose: off -->` to `<!-- prose: on -->` excuses a block of a document; fenced code, quotes ("> ")
and comments of HTML are not read.
"""
import ast
import functools
import io
import re
import subprocess
import tokenize

from . import Finding
from .code import is_code

MOST_WORDS = 30
MOST_ENTRY_WORDS = 25
MOST_TITLE = 72
FIRST_WORDS = re.compile(r"(Who|Whoever|Whom|Whose|What|That|Of|Nor)\b")
TITLE = re.compile(r"[a-z0-9_./-]+(, [a-z0-9_./-]+)*: [a-z][a-z'-]*(\s|$)")

CODE = "\ufffc"  # stands for code between backticks: one word, no end of a sentence
ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|vs|cf|approx|resp|incl|no|fig|[A-Z])\.$", re.I)
SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9" + CODE + "])")


@functools.lru_cache(maxsize=None)
def fragments_of(path, text):
    """-> Fragments of the document or of the comments of a file"""
    if path.endswith(".md"):
        return fragments_of_document(text)
    return fragments_of_comments(comments_of(path, text))


def check(tree):
    for path, text in sorted(tree.items()):
        if path.endswith(".md"):
            yield from check_document(path, text)
        else:
            yield from check_comments(path, text)


# ------------------------------------------------------------------------------------------------ sentences

class Fragment:
    """Text that is read as a unit, as lines with their numbers."""

    def __init__(self, kind, line, text):
        self.kind, self.lines, self.found = kind, [(line, text)], None

    def add(self, line, text):
        self.lines.append((line, text))

    def sentences(self):
        """-> [(line, sentence)]; call it when all lines are added"""
        if self.found is None:
            self.found = list(self.split())
        return self.found

    def split(self):
        starts, text = [], ""
        for line, part in self.lines:
            starts.append((len(text), line))
            text += part.strip() + " "
        text, places = plain(text)
        begin = 0
        for end in [match.end() for match in ends(text)] + [len(text)]:
            sentence = text[begin:end]
            at = places[min(begin + len(sentence) - len(sentence.lstrip()), len(places) - 1)] if places else 0
            if sentence.strip():
                yield max((start, line) for start, line in starts if start <= at)[1], sentence.strip()
            begin = end


def ends(text):
    begin = 0
    for match in SENTENCE_END.finditer(text):
        head = text[begin:match.start() + 1]
        if not ABBREVIATION.search(head):
            begin = match.end()
            yield match


# Marks of Markdown: code and URLs become one word, links become their text, the rest is dropped.
MARKS = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|!?\[(?P<link>(?:[^\[\]]|\[[^\[\]]*\])*)\](?:\([^()\s]*(?:\([^()]*\))?[^()]*\)|\[[^\[\]]*\])"
    r"|(?P<url><?\bhttps?://[^\s>)]+>?)"
    r"|(?P<tag></?[a-zA-Z][^<>]*>)"
    r"|(?P<mark>\*+|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)|~~|\\(?=[^\w\s]))")


def plain(text, offset=0):
    """-> (the text without marks, for each of its characters the place in `text`)"""
    out, places, done = "", [], 0

    def take(part, at):
        nonlocal out
        out += part
        places.extend(range(at + offset, at + offset + len(part)))

    for match in MARKS.finditer(text):
        take(text[done:match.start()], done)
        if match.group("code") or match.group("url"):
            take(CODE, match.start())
        elif match.group("link") is not None:
            inner, inner_places = plain(match.group("link"), offset + match.start("link"))
            out += inner
            places.extend(inner_places)
        done = match.end()
    take(text[done:], done)
    return out, places


def count_words(sentence):
    return sum(1 for word in sentence.split() if re.search(r"\w|" + CODE, word))


def first_word(sentence):
    """The word of FIRST_WORDS that the sentence starts with, or None."""
    match = FIRST_WORDS.match(re.sub(r"^[^\w" + CODE + "]+", "", sentence))
    return match.group(1) if match else None


def begins_wrongly(path, fragment):
    for line, sentence in fragment.sentences():
        word = first_word(sentence)
        if word:
            thing = "heading" if fragment.kind == "heading" else "sentence"
            yield Finding(path, line, "first-word",
                          f"a {thing} starts with '{word}': start with a noun (\"{shortened(sentence)}\")")


def shortened(sentence):
    words = sentence.replace(CODE, "`…`").split()
    return " ".join(words[:6]) + (" …" if len(words) > 6 else "")


# ------------------------------------------------------------------------------------------------ documents

def check_document(path, text):
    for fragment in fragments_of(path, text):
        yield from begins_wrongly(path, fragment)
        yield from too_long(path, fragment)
        if path.rsplit("/", 1)[-1] == "CHANGELOG.md" and fragment.kind == "item":
            words = sum(count_words(sentence) for _, sentence in fragment.sentences())
            if words > MOST_ENTRY_WORDS:
                yield Finding(path, fragment.lines[0][0], "changelog-entry",
                              f"an entry of {words} words, at most {MOST_ENTRY_WORDS}: shorten it")


def too_long(path, fragment):
    for line, sentence in fragment.sentences():
        words = count_words(sentence)
        if words > MOST_WORDS:
            yield Finding(path, line, "sentence-length", f"a sentence of {words} words, at most {MOST_WORDS}: "
                                                         f"split it (\"{shortened(sentence)}\")")


FENCE = re.compile(r"^\s*(?:>\s*)*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}|~{3,})")
SWITCH = re.compile(r"<!--\s*prose:\s*(on|off)\s*-->")
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)$")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")


def readable_lines(text):
    """The lines of a document: "" for those that are code, excused, or a comment."""
    lines, mark, off = [], None, False
    for line in text.splitlines():
        fence = FENCE.match(line)
        if mark is not None:
            if fence and fence.group(1).startswith(mark) and not line.strip().strip("`~>").strip():
                mark = None
            lines.append("")
            continue
        if fence:
            mark = fence.group(1)
            lines.append("")
            continue
        switch = SWITCH.search(line)
        if switch:
            off = switch.group(1) == "off"
        lines.append("" if off or switch else line)
    blanked = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), "\n".join(lines))
    return blanked.split("\n")


def fragments_of_document(text):
    """-> Fragments: headings, paragraphs, items of lists, cells of tables"""
    found, open_one = [], None
    for number, line in enumerate(readable_lines(text), 1):
        bare = line.strip()
        item, heading = ITEM.match(line), HEADING.match(line)
        if heading:
            found.append(Fragment("heading", number, heading.group(1)))
            open_one = None
        elif not bare or bare.startswith(">") or re.match(r"\[[^\]]+\]:\s", bare):
            open_one = None
        elif re.fullmatch(r"=+|-{2,}|([-*_]\s*){3,}", bare):
            if open_one and open_one.kind == "paragraph" and re.fullmatch(r"=+|-+", bare):
                open_one.kind = "heading"
            open_one = None
        elif bare.startswith("|"):
            open_one = None
            found += [Fragment("cell", number, cell) for cell in cells_of(bare)]
        elif item:
            open_one = Fragment("item", number, item.group(1))
            found.append(open_one)
        elif open_one:
            open_one.add(number, line)
        else:
            open_one = Fragment("paragraph", number, line)
            found.append(open_one)
    return found


def cells_of(row):
    if re.fullmatch(r"[|\s:-]+", row):
        return []
    return [cell for cell in re.split(r"(?<!\\)\|", row) if cell.strip()]


# ------------------------------------------------------------------------------------------------- comments

# A comment that is for a program, not for a reader.
DIRECTIVE = re.compile(r"SPDX-|Copyright|clang-format|NOLINT|noqa|shellcheck|pylint|type:|fmt:|-\*-|namespace\b|IWYU")
CPP_TOKEN = re.compile(r'(?s)R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"'
                       r"|(?<!\w)'(?:\\.|[^'\\\n])+'|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)")


def check_comments(path, text):
    for fragment in fragments_of(path, text):
        yield from begins_wrongly(path, fragment)


def comments_of(path, text):
    """-> the comments as cpp_comments() gives them"""
    if path.endswith((".h", ".cpp", ".c", ".js")) and is_code(path, text):
        return cpp_comments(text)
    elif path.endswith(".py") or re.match(r"#!.*\bpython", text):
        return python_comments(text)
    elif path.endswith(".sh") or (is_code(path, text) and re.match(r"#!.*\b(ba|da)?sh\b", text)):
        return shell_comments(text)
    return ()


def cpp_comments(text):
    """-> [(line, column, whether code stands before it, text)]; a block of /* */ line by line"""
    lines = text.splitlines()
    for match in CPP_TOKEN.finditer(text):
        if not match.group("line") and not match.group("block"):
            continue
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - (text.rfind("\n", 0, match.start()) + 1)
        code = bool(lines[line - 1][:column].strip())
        if match.group("line"):
            yield line, column, code, re.sub(r"^//[/!]?<?", "", match.group("line"))
        else:
            for index, part in enumerate(match.group("block")[2:-2].split("\n")):
                yield line + index, column, code and index == 0, re.sub(r"^\s*\*", "", part)
            yield line + index, -1, False, ""


def python_comments(text):
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        module = ast.parse(text)
    except (SyntaxError, tokenize.TokenError):
        return
    for token in tokens:
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], token.start[1], bool(token.line[:token.start[1]].strip()), token.string.lstrip("#")
    for node in ast.walk(module):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield first.lineno, -1, False, ""
            for index, part in enumerate(first.value.value.split("\n")):
                yield first.lineno + index, -2, False, part
            yield first.lineno + index, -1, False, ""


def shell_comments(text):
    until = None  # the word that ends a here-document
    for number, line in enumerate(text.splitlines(), 1):
        if until is not None:
            until = None if line.strip() == until else until
            continue
        here = re.search(r"<<-?\s*[\"']?(\w+)[\"']?", line)
        place = comment_in_shell(line)
        if here and (place is None or here.start() < place) and "<<<" not in line:
            until = here.group(1)
        if place is not None and not (number == 1 and line.startswith("#!")):
            yield number, place, bool(line[:place].strip()), line[place + 1:]


def comment_in_shell(line):
    """The place of the # that begins a comment, or None."""
    quote = None
    for place, char in enumerate(line):
        if quote:
            quote = None if char == quote and (quote == "'" or line[place - 1] != "\\") else quote
        elif char in "\"'" and (place == 0 or line[place - 1] != "\\"):
            quote = char
        elif char == "#" and (place == 0 or line[place - 1].isspace()):
            return place
    return None


def fragments_of_comments(comments):
    """Lines of comments that belong together become one text: full lines below each other in the same column, also
    below a comment behind code."""
    found, open_one, below = [], None, None
    for line, column, code, text in comments:
        bare = text.strip()
        if not bare or DIRECTIVE.match(bare):
            open_one = None
            continue
        item = re.match(r"^\s*(?:[-*•]|\d+[.)])\s+(.*)$", text)
        if open_one and not item and not code and below == (line, column):
            open_one.add(line, text)
        else:
            open_one = Fragment("comment", line, item.group(1) if item else text)
            found.append(open_one)
        below = (line + 1, column)
    return found


# -------------------------------------------------------------------------------------------------- commits

SELF = "tools/treecheck/prose.py"


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def check_commits(root):
    """-> (findings on the titles of the commits since the one that added this file, why it was skipped or "")"""
    try:
        if git(root, "rev-parse", "--show-prefix").strip():
            return [], "the tree is a folder of another repository"
        if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
            return [], "the clone is shallow"
        added = git(root, "log", "--diff-filter=A", "--format=%H", "--", SELF).split()
        if not added:
            return [], f"no commit has added {SELF} yet"
        listed = git(root, "log", "--no-merges", "--format=%h %s", f"{added[-1]}..HEAD")
    except FileNotFoundError:
        return [], "git is not installed"
    except subprocess.CalledProcessError as error:
        return [], (error.stderr.strip().splitlines() or ["git failed"])[0]
    findings = []
    for line in listed.splitlines():
        commit, _, title = line.partition(" ")
        findings += [Finding(f"commit {commit}", 1, "commit-title", message) for message in wrong_in_title(title)]
    return findings, ""


def wrong_in_title(title):
    wrong = []
    if len(title) > MOST_TITLE:
        wrong.append(f"a title of {len(title)} characters, at most {MOST_TITLE}")
    if not TITLE.match(title):
        wrong.append(f"write 'area: imperative' in lower case, not '{title[:MOST_TITLE]}'")
    return wrong
