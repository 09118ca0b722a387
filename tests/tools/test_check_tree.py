# SPDX-License-Identifier: Apache-2.0
"""The checker of the tree: each rule finds its faults and no more; and this tree passes it."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_tree  # noqa: E402
from treecheck import arrows, code, coroutines, docs  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
TABLE = "src/base:\nsrc/core: base\nsrc/engine: core\nsimgpu:\n<sqlite3.h: src/base\n"


def messages(findings, rule=None):
    return [f"{f.path}:{f.line} {f.message}" for f in findings if rule in (None, f.rule)]


def test_this_tree_keeps_its_rules():
    command = [sys.executable, str(ROOT / "tools/check_tree.py"), "--no-warnings"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------ arrows

def arrow_findings(**files):
    tree = {"tools/arrows.txt": TABLE}
    tree.update({path.replace("__", "/").replace("_h", ".h").replace("_cpp", ".cpp"): text
                 for path, text in files.items()})
    return messages(arrows.check(tree))


def test_an_include_along_an_arrow_is_allowed_also_over_two():
    assert arrow_findings(src__base__a_h="", src__core__b_h='#include "base/a.h"\n',
                          src__engine__c_cpp='#include "base/a.h"\n#include "core/b.h"\n') == []


def test_an_include_against_an_arrow_is_found_with_its_line():
    found = arrow_findings(src__engine__c_h="", src__core__b_h='\n#include "engine/c.h"\n')
    assert found == ["src/core/b.h:2 src/core may not include src/engine (it may include: base)"]


def test_an_arrow_of_tests_is_for_tests_alone():
    table = TABLE + "src/core tests: engine\n"
    for path, allowed in (("src/core/b_test.cpp", True), ("src/core/testing/b.h", True), ("src/core/b.cpp", False)):
        tree = {"tools/arrows.txt": table, "src/engine/c.h": "", path: '#include "engine/c.h"\n'}
        assert (messages(arrows.check(tree)) == []) == allowed, path


def test_an_include_against_an_arrow_is_found_by_relative_path():
    assert len(arrow_findings(src__base__a_h="", simgpu__x_cpp='#include "../src/base/a.h"\n')) == 1


def test_an_include_against_an_arrow_of_a_file_that_is_missing_is_found():
    assert len(arrow_findings(src__base__a_cpp='#include "engine/gone.h"\n')) == 1


def test_a_library_at_home_elsewhere_is_found():
    line = "#include <sqlite3.h>\n"
    found = arrow_findings(src__core__b_cpp=line, src__base__a_cpp=line)
    assert found == ["src/core/b.cpp:1 <sqlite3.h> is at home in src/base only"]


def test_the_targets_have_the_same_arrows():
    recipe = "sublet_library(core\n  DEPS base engine\n  LIBS x)\n"
    tree = {"tools/arrows.txt": TABLE, "src/core/CMakeLists.txt": recipe}
    assert messages(arrows.check(tree)) == ["src/core/CMakeLists.txt:1 src/core may not depend on engine"]


def test_the_real_table_knows_every_folder_of_src():
    allowed, _, _ = arrows.parse((ROOT / "tools/arrows.txt").read_text())
    for folder in (ROOT / "src").iterdir():
        assert not folder.is_dir() or f"src/{folder.name}" in allowed, folder
    for others in allowed.values():
        assert all(f"src/{other}" in allowed or other in allowed for other in others)


# ------------------------------------------------------------------------------------------------ code

@pytest.mark.parametrize("path, text", [
    ("src/core/a.cpp", "auto t = std::chrono::steady_clock::now();"),
    ("src/core/a.cpp", "auto t = time(nullptr);"),
    ("src/core/a_test.cpp", "std::this_thread::sleep_for(1s);"),
    ("tests/e2e/test_a.py", "time.sleep(1)"),
    ("src/proc/a.cpp", "if (kill(pid, 0) == 0) return;"),
    ("src/proc/a.cpp", "return ::kill(process.pid(), 0) == 0;"),
    ("tests/e2e/test_a.py", "os.kill(pid, 0)"),
    ("src/cli/a.cpp", 'std::system("ls");'),
    ("tools/a.py", "subprocess.run(line, shell=True)"),
    ("simgpu/a.c", "strcpy(to, from);"),
    ("src/cli/a.cpp", "int n = atoi(text);"),
    ("src/proc/a.cpp", "#include <sys/pidfd.h>"),
    ("src/proc/a.cpp", "auto seed = std::random_device()();"),
    ("src/core/a.h", "using namespace std;"),
])
def test_a_banned_call_is_found(path, text):
    found = [message for rule in ("banned", "sleep") for message in messages(code.check({path: text + "\n"}), rule)]
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:1 ")


@pytest.mark.parametrize("path, text", [
    ("src/base/clock.cpp", "return std::chrono::steady_clock::now();"),
    ("tests/support/wait.py", "time.sleep(0.01)"),
    ("src/proc/a.cpp", "kill(pid, SIGTERM);"),
    ("tests/e2e/test_a.py", "os.kill(pid, 9)\nwait(timeout=1, poll=0)"),
    ("src/cli/a.cpp", "// never system(text): a shell would read it"),
    ("src/cli/a.cpp", 'hint("do not call system(x)");'),
    ("src/cli/a.cpp", "boost::system::error_code e; auto c = file_system(x);"),
    ("src/core/a.cpp", "const auto start = timer.time(0);"),
    ("src/core/a.cpp", "auto n = 1'000'000; strand(x); snprintf(a, 1, b);"),
])
def test_lookalikes_of_banned_calls_are_not_found(path, text):
    assert messages(code.check({path: text + "\n"}), "banned") == []


@pytest.mark.parametrize("text, line", [
    ("auto x = a ? co_await f() : b;", 1), ("auto x = co_await f() ? a : b;", 1),
    ("x = a\n  ? b\n  : co_await f(c);", 2), ("co_return (co_await f()).ok() ? a : b;", 1),
    ("g(1, a ? h(co_await f()) : b);", 1), ("x = a ? T{co_await f()} : b;", 1),
    ("if (co_await f()) continue;", 1), ("if (!x && !co_await f(a, b(c)))\n  continue;", 1),
    ("if (co_await f()) {\n  continue;\n}", 1),
])
def test_coroutines_that_the_compiler_damages_are_found(text, line):
    found = list(coroutines.check({"src/http/a.cpp": text + "\n"}))
    assert [(f.line, f.rule) for f in found] == [(line, "co_await")], found


@pytest.mark.parametrize("text", [
    "co_await f(a ? b : c);", "x = co_await f(); y = a ? b : c;", "{ co_await f(); } y = a ? b : c;",
    "if (co_await f()) return a ? b : c;", "if (co_await f()) g(a ? b : c); else continue;",
    "if (a) continue; co_await f();", "while (co_await f()) x = T{a} ? b : c;", "f(co_await g(), a ? b : c);",
    "x = a ? b : c;  // co_await f() ? a : b", 'f(co_await g("?"));', "if (a(co_await_it)) continue;",
    "const bool yes = co_await f();\n if (yes) continue;",
])
def test_coroutines_that_are_compiled_well(text):
    assert list(coroutines.check({"src/http/a.cpp": text + "\n"})) == []


def test_shape():
    good = SPDX + "#pragma once\nint x;\n"
    assert messages(code.check({"src/a.h": good})) == []
    assert messages(code.check({"src/a.h": good.replace(SPDX, "")}), "licence")
    assert messages(code.check({"src/a.h": good.replace("#pragma once\n", "")}), "once")
    assert messages(code.check({"src/a.h": good + "x" * (code.MOST_COLUMNS + 1) + "\n"}), "width")
    assert not messages(code.check({"src/a.h": good + "x" * code.MOST_COLUMNS + "\n"}), "width")
    assert messages(code.check({"src/a.h": good + "\n" * 500}), "file-length")
    assert messages(code.check({"src/a.h": good + "int y; \n"}), "space")
    assert messages(code.check({"src/a.h": good + "int y;"}), "space")
    assert messages(code.check({"dev": "#!/bin/sh\n"}), "licence")


def test_unfinished_work_is_found_and_a_temporary_name_is_not():
    assert len(messages(code.check({"docs/a.md": "TO" + "DO: more\n"}), "unfinished")) == 1
    assert messages(code.check({"a.sh": 'mktemp "/tmp/x.' + "X" * 6 + '"\n'}), "unfinished") == []


@pytest.mark.parametrize("text, found", [
    ("see /wo" "rk/main/x", 1), ("in /home/" "ana/src", 1), ("in /home/user/x", 0),
    ("https://example.org/wo" "rk/x", 0), ("GET /v1/leases", 0), ("/usr/share/work/x", 0),
    ("at 192.168." "1.7", 1), ("at 127.0.0.1", 0), ("version 10.1.2", 0),
    ("mirror.build.int" "ernal", 1), ("nvml.internal(x)", 0), ("docs/work/a", 0),
])
def test_traces_of_one_machine_are_found(text, found):
    assert len(messages(code.check({"docs/a.md": text + "\n"}), "machine")) == found


def test_a_long_function_is_a_warning():
    body = "  int a;\n" * 80
    text = SPDX + "namespace x {\nvoid f(int a) {\n" + body + "}\nvoid g() {\n}\n}\n"
    found = list(code.check({"src/a.cpp": text}))
    assert [(f.rule, f.line, f.warning) for f in found] == [("function-length", 3, True)]
    python = "# " + SPDX + "def f():\n" + "    a = 1\n" * 80
    assert [f.rule for f in code.check({"tools/a.py": python})] == ["function-length"]


# ------------------------------------------------------------------------------------------------ documents

DEV = "verb_test() {\n--fast\n}\nverb_test_gpu() {\n}\n"
TREE = {
    "dev": DEV,
    "src/core/step.cpp": "",
    "src/cli/verbs.cpp": '{"run", "Work", "Run it"},\n{"why", "Look", "Why"},\napp.add_option("-m,--vram");',
    "src/cli/CMakeLists.txt": "sublet_program(sublet SOURCES main.cpp)",
    "docs/guide.md": "# The first page\n\n## What is `this`?\n",
    "tests/e2e/test_run.py": "",
}


def doc(text):
    return messages(docs.check({**TREE, "docs/a.md": text}))


@pytest.mark.parametrize("text", [
    "`src/core/step.cpp` `core/step.cpp` `src/core/` `tests/e2e/test_*.py` `guide.md` `./dev`",
    "`/etc/sublet/sublet.toml` `DIR/sublet.toml` `$XDG_CONFIG_HOME/sublet` `application/problem+json` `a/b`",
    "`step.cpp`, `train.py`, `NAME_test.cpp`",
    "`build/bin/sublet` and `src/core/step.cpp:12`",
    "[a](guide.md) [b](guide.md#what-is-this) [c](../src/core/step.cpp)",
    "[d](https://example.org/x) [e](#top)\n# Top\n",
    "`./dev test --fast`, `./dev test-gpu`, `./dev VERB`, `sublet run --vram 8GiB -- python train.py --x 3`",
    "```sh\n$ sudo sublet why 7 | head\nX=1 ./dev test\n```\n",
    "```text\nsublet frob\n```\n",
    "the `a a` of time `b` `b`, side by-side, and a day-by day-by-day",
    "`sublet --version`, `sublet VERB`, `POST /v1/leases`, `cat DIR/env`",
])
def test_a_document_that_tells_the_truth(text):
    assert doc(text) == []


@pytest.mark.parametrize("text, needle", [
    ("`src/core/gone.cpp`", "'src/core/gone.cpp' does not exist"),
    ("`core/gone.h`", "'core/gone.h' does not exist"),
    ("a\n`tests/x/`", "docs/a.md:2 'tests/x/' does not exist"),
    ("`tests/e2e/demo_*.py`", "does not exist"),
    ("`python3 tests/e2e/gone.py`", "does not exist"),
    ("`gone.cpp`", "no file 'gone.cpp'"),
    ("`build/bin/subletx`", "no CMakeLists.txt makes 'subletx'"),
    ("[a](gone.md)", "leads nowhere"),
    ("[a](guide.md#none)", "no heading '#none'"),
    ("`./dev frob`", "dev has no such verb"),
    ("`./dev test --slow`", "no flag '--slow'"),
    ("`sublet frob`", "no such verb"),
    ("`sublet run --colour`", "no flag '--colour'"),
    ("```sh\nsublet frob 7\n```", "docs/a.md:2 'sublet frob'"),
    ("```\n$ build/bin/sublet frob 7\n```", "'sublet frob'"),
    ("it had\nhad least", "docs/a.md:1 'had' twice"),
])
def test_a_document_that_does_not(text, needle):
    found = doc(text)
    assert len(found) == 1 and needle in found[0], found


def test_each_page_is_in_the_index_and_the_readme_is_short():
    tree = {"docs/README.md": "[a](a.md#top) [d](d/README.md)\n", "docs/a.md": "# Top\n",
            "docs/d/README.md": "[x](x.md)\n", "docs/d/x.md": "", "docs/b.md": "",
            "README.md": "\n" * docs.MOST_README_LINES}
    assert messages(docs.check(tree)) == ["docs/b.md:1 docs/README.md does not link to this page"]
    del tree["docs/b.md"]
    tree["README.md"] += "\n"
    assert [finding.rule for finding in docs.check(tree)] == ["readme-length"]


# ------------------------------------------------------------------------------------------------ exceptions

def test_an_exception_excuses_one_rule_of_one_file_and_must_be_needed():
    tree = {"src/a.h": SPDX + "int x;\n",
            "tools/check_tree.exceptions": "once src/a.h: included twice on purpose\n"}
    assert check_tree.check(tree) == []
    tree["tools/check_tree.exceptions"] += "width src/a.h: none\nonce src/b.h\n"
    assert messages(check_tree.check(tree)) == [
        "tools/check_tree.exceptions:2 'width src/a.h' excuses nothing: remove it",
        "tools/check_tree.exceptions:3 write RULE PATH: REASON",
    ]
