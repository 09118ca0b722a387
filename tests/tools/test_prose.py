# SPDX-License-Identifier: Apache-2.0
"""The check of plain English: each rule finds its sentences and no others."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from treecheck import prose, terms  # noqa: E402


def words(count, last="."):
    return "The " + " ".join(["word"] * (count - 1)) + last


def found(path, text, rule=None):
    """The places of the findings, as LINE or LINE:RULE."""
    findings = prose.check({path: text})
    return [f"{f.line}" if rule else f"{f.line}:{f.rule}" for f in findings if rule in (None, f.rule)]


# ------------------------------------------------------------------------------------------------ long sentences

@pytest.mark.parametrize("text", [
    words(30) + "\n",
    words(30) + " " + words(30) + "\n",
    words(20) + "\n" + words(20) + "\n",
    "- " + words(20, "") + "\n- " + words(20, "") + "\n",
    words(20, ":") + "\n\n- " + words(20) + "\n",
    "| " + words(30, "") + " | " + words(30, "") + " |\n| --- | --- |\n",
    "# " + words(30, "") + "\n" + words(30) + "\n",
    words(29) + " `one two three. Four five six`\n",
    words(28, " ") + "[two words](https://example.org/a%20b).\n",
    words(29, " ") + "https://example.org/a/b/c.\n",
    words(29, " ") + "– — · word.\n",
    words(30, '."') + " (" + words(20, ".)") + "\n",
    words(25, "?") + " " + words(25, "!") + " " + words(25) + "\n",
    "```text\n" + words(40) + "\n```\n",
    "~~~\n```\n" + words(40) + "\n~~~\n",
    "- Item:\n\n  ```sh\n  " + words(40) + "\n  ```\n",
    "> " + words(40) + "\n",
    "<!-- " + words(40) + " -->\n",
    "<!-- one\n" + words(40) + "\n-->\n",
    "<!-- prose: off -->\n" + words(40) + "\n<!-- prose: on -->\n",
    "[a]: https://example.org/ " + words(40) + "\n",
    words(20, "…") + " " + words(20) + "\n",
    words(20, ".") + " `code` " + words(20) + "\n",
])
def test_sentences_that_are_short_enough(text):
    assert found("docs/a.md", text) == []


@pytest.mark.parametrize("text, line", [
    (words(31) + "\n", 1),
    ("\nShort.\n" + words(31) + "\n", 3),
    ("Short one. " + words(20, "") + "\nmore of it " + words(20) + "\n", 1),
    ("- short\n- " + words(31) + "\n", 2),
    ("- " + words(20, "") + "\n  " + words(20) + "\n", 1),
    ("1. " + words(31) + "\n", 1),
    ("| a | " + words(31, "") + " |\n", 1),
    ("## " + words(31, "") + "\n", 1),
    (words(20, ";") + " " + words(20) + "\n", 1),
    (words(20, ":") + " " + words(20) + "\n", 1),
    (words(20, " e.g. ") + words(20) + "\n", 1),
    (words(20, " i.e. ") + words(20) + "\n", 1),
    (words(20, " vs. ") + words(20) + "\n", 1),
    (words(20, " 0.5 GiB ") + words(20) + "\n", 1),
    (words(20, " v0.1. lower ") + words(20) + "\n", 1),
    (words(29, " ") + "[two words](a.md) more.\n", 1),
    (words(30, " ") + "`code`.\n", 1),
    ("<!-- prose: off -->\n\n<!-- prose: on -->\n" + words(31) + "\n", 4),
    ("```\n```\n" + words(31) + "\n", 3),
    ("- [ ] " + words(31) + "\n", 1),
])
def test_sentences_that_are_too_long(text, line):
    assert found("docs/a.md", text) == [f"{line}:sentence-length"]


def test_generated_pages_are_read_and_comments_may_be_long():
    assert found("docs/reference/cli.md", words(31) + "\n") == ["1:sentence-length"]
    assert found("src/a.cpp", "// " + words(40) + "\n") == []


# -------------------------------------------------------------------------------------------------- first words

@pytest.mark.parametrize("text", [
    "# The first page\n\nThe daemon tells what it knows. A lease that waits, waits.\n",
    "Whether it works. Whatever comes. Offers are made. Thatch. Norway. Whole. Whatsoever.\n",
    "| what | who |\n| --- | --- |\n| that | of |\n",
    "Lower case: what that is.\nThis is\nWhat the line begins with, not the sentence.\n",
    "`What` is code. `Who knows`: code.\n",
    "```sh\nWhat is this\n```\n> What was printed.\n",
    "<!-- What is this? -->\n<!-- prose: off -->\nWhat is this?\n<!-- prose: on -->\n",
    "See sect. What: no end of a sentence? No.\n".replace("sect. What", "e.g. What"),
    "[the](What.md) link\n",
])
def test_sentences_that_start_well(text):
    assert found("docs/a.md", text) == []


@pytest.mark.parametrize("word", ["Who", "Whoever", "Whom", "Whose", "What", "That", "Of", "Nor"])
def test_each_word_is_found_at_the_start(word):
    assert found("docs/a.md", f"{word} waits is told.\n") == ["1:first-word"]
    assert found("docs/a.md", f"The lease waits.\n\n# {word} waits\n") == ["3:first-word"]
    assert found("src/a.h", f"// {word} waits is told.\n") == ["1:first-word"]
    assert found("docs/a.md", f"The lease, {word} waits. Also {word}.\n") == []


@pytest.mark.parametrize("text, line", [
    ("The lease waits. What it does is told.\n", 1),
    ("The lease waits.\nWhat it does is told.\n", 2),
    ("The lease waits\nfor long. That is told\nthere.\n", 2),
    ("What works today\n================\n", 1),
    ("- fine\n- What is not\n", 2),
    ("- fine\n\n  What is not\n", 3),
    ("| a | What is not |\n", 1),
    ("**What it does.** The rest.\n", 1),
    ("*What* it does.\n", 1),
    ("“What it does” is told.\n", 1),
    ("(That is so.)\n", 1),
    ("[What it does](a.md)\n", 1),
    ("What's new\n", 1),
    ("It ends. (Of them all.)\n", 1),
    ("It ends! Nor does it start.\n", 1),
    ("It uses `code`. What it does is told.\n", 1),
    ("1) Whom it asks\n", 1),
])
def test_sentences_that_start_with_such_a_word(text, line):
    assert found("docs/a.md", text, "first-word") == [str(line)]


# ----------------------------------------------------------------------------------------------------- comments

@pytest.mark.parametrize("path, text", [
    ("src/a.cpp", 'print("// What is this");\n'),
    ("src/a.cpp", 'auto x = R"(\n// What is this\n)";\n'),
    ("src/a.cpp", "// The lease\n// What it is.\nint x;\n"),
    ("src/a.cpp", "int x = 1'000;  // the lease\nint y = 2'000;\n"),
    ("src/a.cpp", "// clang-format off\n// SPDX-License-Identifier: Apache-2.0\n"),
    ("tools/a.py", 'x = "# What is this"\n'),
    ("tools/a.py", 'x = """\nWhat is this\n"""\n'),
    ("dev", "#!/bin/bash\ncat <<'HELP'\n# What is this\nHELP\necho '# What' \"# Who\" a#What ${x#What}\n"),
    ("docs/a.txt", "# What is this\n"),
    ("tests/a.json", '{"a": "// What"}\n'),
])
def test_text_that_is_no_comment_or_starts_well(path, text):
    assert found(path, text) == []


@pytest.mark.parametrize("path, text, line", [
    ("src/a.cpp", "int x;\n// The lease waits. What it is.\n", 2),
    ("src/a.cpp", "// The lease waits.\n// What it is.\n", 2),
    ("src/a.cpp", "// The lease\n\n// What it is.\n", 3),
    ("src/a.cpp", "// The lease\n//\n// What it is.\n", 3),
    ("src/a.cpp", "int x;  // What it is\n", 1),
    ("src/a.cpp", "int x;  // the lease\nint y;  // What it is\n", 2),
    ("src/a.cpp", "int x;  // the lease waits.\n        // What it is.\n", 2),
    ("src/a.cpp", "int x;  // the lease\n  // What it is.\n", 2),
    ("src/a.h", "/// What it is.\n", 1),
    ("src/a.c", "/* What it is. */\n", 1),
    ("src/a.c", "/*\n * The lease waits.\n * What it is.\n */\n", 3),
    ("src/a.cpp", "// - What it is\n", 1),
    ("src/a.cpp", "// ---- What it is ----\n", 1),
    ("src/a.cpp", "auto x = '\"';  // What it is\n", 1),
    ("tools/a.py", "# The lease waits.\n# What it is.\nx = 1\n", 2),
    ("tools/a.py", "x = 1  # What it is\n", 1),
    ("tools/a.py", '"""What it is."""\n', 1),
    ("tools/a.py", 'def f():\n    """The lease.\n\n    What it is.\n    """\n', 4),
    ("tools/a", "#!/usr/bin/python3\n# What it is\n", 2),
    ("tools/a.sh", "x=1 # What it is\n", 1),
    ("dev", "#!/usr/bin/env bash\n# What it is\n", 2),
    (".ci/run", "#!/bin/sh\n# What it is\n", 2),
])
def test_comments_that_start_with_such_a_word(path, text, line):
    assert found(path, text) == [f"{line}:first-word"]


# -------------------------------------------------------------------------------------------- replaced words

def replaced(path, text):
    return [f"{f.line}:{f.message}" for f in terms.check({path: text}) if f.rule == "term"]


@pytest.mark.parametrize("path, text, line, word", [
    ("src/a.cpp", "// Keeps room for the lease.\n", 1, "room"), ("src/a.cpp", "int x;  // its ROOM\n", 1, "ROOM"),
    ("src/a.h", "int x;  // bytes\nint y;  // what the asker\n        // wants\n", 2, "asker"),
    ("src/a.c", "f(); /* on somebody's word */\n", 1, "somebody's word"),
    ("docs/a.md", "A\n\nat the next turn\n", 3, "next turn"),
    ("tools/a.py", "x = 1  # a deaf program\n", 1, "deaf"), ("tools/a.sh", "x=1 # a relapsed lease\n", 1, "relapsed"),
    ("src/core/a.cpp", "int x;  // is spared\n", 1, "spared"),
    ("src/a.h", "// It is unfit, and told to go on.\n", 1, "unfit"),
])
def test_words_that_a_term_has_replaced_are_refused(path, text, line, word):
    found = replaced(path, text)
    assert found and found[0].startswith(f"{line}:'{word}': write "), found


@pytest.mark.parametrize("path, text", [
    ("src/a.cpp", "const auto room = 1;  // bytes\n"), ("src/a.cpp", 'say("no room");\n'),
    ("docs/a.md", "`room` or mushrooms\n"),
    ("docs/a.md", "They take turns, in turn. The user turns a switch. In two words: ground truth.\n"),
    ("src/a.cpp", "// making sure, the foreground, making it\n"), ("docs/glossary.md", "A room is free memory.\n"),
    ("src/actor/a.cpp", "int x;  // this process is spared\n"), ("docs/a.md", '```\nroom\n```\n"woke" is an event\n'),
])
def test_other_meanings_and_code_are_not_refused(path, text):
    assert replaced(path, text) == []


# ---------------------------------------------------------------------------------------------------- changelog

@pytest.mark.parametrize("text, lines", [
    ("- " + words(25) + "\n", []),
    ("- " + words(26) + "\n", ["1"]),
    ("# A\n\n- " + words(13) + " " + words(13) + "\n- short\n", ["3"]),
    ("- " + words(20, "") + "\n  " + words(20, "") + "\n- " + words(25) + "\n", ["1"]),
    (words(28) + "\n", []),
])
def test_entries_of_the_changelog(text, lines):
    assert found("CHANGELOG.md", text, "changelog-entry") == lines
    assert found("docs/a.md", text, "changelog-entry") == []


# ------------------------------------------------------------------------------------------------ commit titles

@pytest.mark.parametrize("title", [
    "core: cancel stale plans", "src/core: cancel stale plans", "ci: run the heavy tests", "tools/a.py: add a flag",
    "build: share the compiler cache between checkouts", "core: " + "x" * 66, "0.1.x: tag", "core, store: cancel plans",
])
def test_good_titles(title):
    assert prose.wrong_in_title(title) == []


@pytest.mark.parametrize("title", [
    "Cancel stale plans", "core cancel stale plans", "Core: cancel stale plans", "core: Cancel stale plans",
    "core:cancel stale plans", "core,store: cancel plans", "core: " + "x" * 67, "Merge branch 'a'", "core: ", "fix",
])
def test_bad_titles(title):
    assert prose.wrong_in_title(title)


class Repository:
    def __init__(self, path):
        self.path = path
        path.mkdir()
        self.git("init", "-q")

    def git(self, *arguments):
        identity = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(self.path), "GIT_CONFIG_NOSYSTEM": "1"}).stdout

    def commit(self, title, file="a"):
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(title)
        self.git("add", file)
        self.git("commit", "-qm", title)

    def check(self):
        findings, skipped = prose.check_commits(self.path)
        assert all(f.rule == "commit-title" and f.path.startswith("commit ") for f in findings)
        return [f.message for f in findings], skipped


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


def test_titles_are_checked_since_the_commit_that_added_the_check(repository):
    repository.commit("An old title")
    assert repository.check() == ([], f"no commit has added {prose.SELF} yet")
    repository.commit("Adds the check", prose.SELF)
    repository.commit("core: cancel plans")
    assert repository.check() == ([], "")
    repository.commit("Changes the check", prose.SELF)
    repository.git("mv", prose.SELF, "elsewhere")
    repository.commit("core: move the check", "b")
    messages, skipped = repository.check()
    assert skipped == "" and messages == ["write 'area: imperative' in lower case, not 'Changes the check'"]


def test_titles_of_merges_are_not_checked(repository):
    repository.commit("check: add", prose.SELF)
    repository.git("checkout", "-qb", "side")
    repository.commit("core: on the side")
    repository.git("checkout", "-q", "-")
    repository.commit("core: on the main line", "b")
    repository.git("merge", "-q", "--no-ff", "-m", "Merge it", "side")
    assert repository.check() == ([], "")


def test_without_a_history_the_check_says_so(repository, tmp_path):
    repository.commit("check: add", prose.SELF)
    repository.commit("Bad title")
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.path}", str(tmp_path / "shallow"))
    assert prose.check_commits(tmp_path / "shallow") == ([], "the clone is shallow")
    (tmp_path / "none").mkdir()
    assert "not a git repository" in prose.check_commits(tmp_path / "none")[1]
    inner = repository.path / "inner"
    inner.mkdir()
    assert prose.check_commits(inner) == ([], "the tree is a folder of another repository")
    done = subprocess.run([sys.executable, str(ROOT / "tools/check_tree.py"), "--root", str(tmp_path / "none")],
                          capture_output=True, text=True)
    assert "commit titles are not checked: " in done.stderr


def test_a_finding_names_file_line_and_rule():
    assert str(next(iter(prose.check({"docs/a.md": "\nWhat it is\n"})))) == (
        "docs/a.md:2: a sentence starts with 'What': start with a noun (\"What it is\") [first-word]")
