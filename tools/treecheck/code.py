# SPDX-License-Identifier: Apache-2.0
"""Rules on source files: length, width, licence line, calls that are banned, marks of unfinished work."""
import ast
import re

from . import Finding

CODE = (".cpp", ".h", ".c", ".py", ".sh", ".cmake", "CMakeLists.txt", ".js", ".css")
VENDORED = re.compile(r"^web/vendor/.*\.(js|css)$")  # the code of others
MOST_LINES = 500
MOST_FUNCTION_LINES = 70
MOST_COLUMNS = 120

# (pattern, where it is banned, where not, what to use instead)
CPP = r"\.(cpp|h|c)$"
BANNED = [
    (r"\b(steady|system|high_resolution)_clock::now\b", r"^src/.*" + CPP, r"^src/base/clock",
     "take a Clock& (base/clock.h): one clock read a tick, and tests that own the time"),
    (r"(?<![\w.>:])(clock_gettime|gettimeofday)\s*\(|(?<![\w.>:])(std::)?time\s*\(\s*(nullptr|NULL|0|&)",
     r"^src/.*" + CPP, r"^src/base/clock",
     "take a Clock& (base/clock.h)"),
    (r"\b(sleep_for|sleep_until)\b|(?<![\w.>:])(usleep|nanosleep|sleep)\s*\(", r"_test\.cpp$", r"^$",
     "wait for the condition itself: a pipe, a condition variable, a stepped clock"),
    (r"\btime\.sleep\s*\(", r"^tests/.*\.py$", r"^tests/support/",
     "wait for the condition itself (tests/support has the waiting)"),
    (r"(?<![\w.])(os\.)?kill\s*\([^;()\n]*(\([^()\n]*\))?[^;()\n]*,\s*0\s*\)", r"(\.(cpp|h|c|py))$", r"^$",
     "a pid may be another process by now: use a pidfd, or state Z in /proc/PID/stat with the start time"),
    (r"(?<![\w.>:])(std::)?system\s*\(|(?<![\w.>:])popen\s*\(", CPP, r"^$",
     "posix_spawn with an argument vector: no shell ever reads our strings"),
    (r"\bos\.(system|popen)\s*\(|\bshell\s*=\s*True\b", r"\.py$", r"^$",
     "subprocess.run with a list of arguments"),
    (r"(?<![\w.>:])(std::)?(strcpy|strcat|sprintf|vsprintf|gets|strtok)\s*\(", CPP, r"^$",
     "std::string, std::string_view or fmt::format_to_n"),
    (r"(?<![\w.>:])(std::)?(atoi|atol|atoll|atof)\s*\(", r"^(src|simgpu)/.*" + CPP, r"_test\.cpp$",
     "std::from_chars, or the parsers of base: they tell a wrong number from 0"),
    (r"(?<![\w.>:])(std::)?s?rand\s*\(", CPP, r"^$", "a seeded <random> engine, its seed printed"),
    (r"#\s*include\s*<sys/pidfd\.h>", CPP, r"^$",
     "syscall(SYS_pidfd_open, ...): glibc's wrappers need glibc 2.36"),
    (r"\brandom_device\b", r"^src/.*" + CPP, r"_test\.cpp$",
     "store/secret.h, or getrandom(2): the static libstdc++'s needs glibc 2.36"),
    (r"\busing\s+namespace\s+std\s*;", CPP, r"^$", "the name itself"),
    (r"#\s*include\s*<format>", CPP, r"^$", "<fmt/format.h>: g++ 12 has no <format>"),
    (r"#\s*include\s*<iostream>", r"^src/.*" + CPP, r"^$", "fmt::print for data, base/log.h for talk"),
]
BANNED = [(re.compile(call, re.S), re.compile(where), re.compile(but), instead)
          for call, where, but, instead in BANNED]

# Written in halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# A checkout must mean the same on every machine.
MACHINE = [
    (re.compile(r"(?<![\w.>}$*-])/(?:work|mnt|farm|scratch|Users|home/(?!USER\b|user\b)[a-z]\w*)/[\w.-]"),
     "an absolute path of one machine"),
    (re.compile(r"\b(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b"),
     "a private network address"),
    (re.compile(r"\b(?:[a-z0-9-]+\.){2,}(?:internal|corp|intranet|lan)\b(?!\()"),
     "a host of a private network"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|\bghp_[A-Za-z0-9]{30}|\bAKIA[A-Z0-9]{16}\b"), "a secret"),
]


def is_code(path, text):
    if VENDORED.search(path):
        return False
    return path.endswith(CODE) or (text.startswith("#!") and "." not in path.rsplit("/", 1)[-1])


def check(tree):
    for path, text in sorted(tree.items()):
        if path == "LICENSE":
            continue
        yield from check_words(path, text)
        if not is_code(path, text):
            continue
        yield from check_shape(path, text)
        yield from check_calls(path, text)
        yield from check_functions(path, text)


def check_shape(path, text):
    lines = text.splitlines()
    if text and not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        yield Finding(path, 1, "licence", "no SPDX-License-Identifier: Apache-2.0 in the first three lines")
    if len(lines) > MOST_LINES:
        message = f"{len(lines)} lines, at most {MOST_LINES}: split it by topic"
        yield Finding(path, MOST_LINES, "file-length", message)
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_COLUMNS and "://" not in line:
            yield Finding(path, number, "width", f"{len(line)} columns, at most {MOST_COLUMNS}")
        if line != line.rstrip():
            yield Finding(path, number, "space", "space at the end of the line")
    if text and not text.endswith("\n"):
        yield Finding(path, len(lines), "space", "no newline at the end of the file")
    if path.endswith(".h") and "#pragma once" not in text and "#ifndef" not in text:
        yield Finding(path, 1, "once", "no #pragma once")


def check_words(path, text):
    for match in UNFINISHED.finditer(text):
        message = f"{match.group(0)}: do it, or refuse the case aloud"
        yield Finding(path, line_of(text, match), "unfinished", message)
    for pattern, what in MACHINE:
        for match in pattern.finditer(text):
            yield Finding(path, line_of(text, match), "machine", f"'{match.group(0)}' looks like {what}")


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_words(path, text):
    """The code with comments and string contents blanked, lines and columns kept."""
    if path.endswith(".py"):
        text = re.sub(r'(?s)""".*?"""', blank, text)
        return re.sub(r"(?m)#.*$|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text)
    # A digit separator (1'000) is not the start of a character.
    return re.sub(r"(?s)//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'", blank, text)


def check_calls(path, text):
    rules = [rule for rule in BANNED if rule[1].search(path) and not rule[2].search(path)]
    if not rules:
        return
    code = without_words(path, text)
    for call, _, _, instead in rules:
        for match in call.finditer(code):
            word = " ".join(match.group(0).split())
            # Sleeping has a rule of its own, so that a test that must strike at a random moment can be excused.
            rule = "sleep" if "sleep" in word else "banned"
            yield Finding(path, line_of(code, match), rule, f"{word.rstrip('( ')}: instead, {instead}")


OPENING = re.compile(r"^( {0,2})(?!\s)(.*)\{$")
NOT_A_FUNCTION = re.compile(r"^(namespace|struct|class|enum|union|extern|if|else|for|while|do|switch|try|"
                            r"return|constexpr auto \w+ =|static const|const)\b")


def check_functions(path, text):
    if path.endswith(".py"):
        found = python_functions(path, text)
    elif path.endswith((".cpp", ".h", ".c")):
        found = cpp_functions(text)
    else:
        return
    for line, length in found:
        if length > MOST_FUNCTION_LINES:
            yield Finding(path, line, "function-length",
                          f"a function of {length} lines; {MOST_FUNCTION_LINES} fit a screen", warning=True)


def cpp_functions(text):
    """(line, length) of functions as our layout writes them: opened and closed at column 0, or both at 2."""
    lines = text.splitlines()
    opened = None
    for number, line in enumerate(lines, 1):
        match = OPENING.match(line)
        if opened is None and match and ")" in line and not NOT_A_FUNCTION.match(match.group(2)):
            opened = (number, match.group(1) + "}")
        elif opened and line.startswith(opened[1]):
            yield opened[0], number - opened[0] + 1
            opened = None


def python_functions(path, text):
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1
