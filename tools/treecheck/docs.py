# SPDX-License-Identifier: Apache-2.0
"""Every path, link and command that a .md file names must exist: documents drift where nobody looks."""
import fnmatch
import posixpath
import re
import shlex

from . import Finding

FENCE = re.compile(r"^\s*(```|~~~)")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
PATH = re.compile(r"^(?:\./)?[\w.@+-]+(?:/[\w.@+*?\[\]-]+)+/?$|^(?:\./)?[\w.-]+/$")
FILE_NAME = re.compile(r"\.(cpp|h|c|py|md|yaml|yml|toml|sh|service|cmake|txt|json)$")
# A file named without its folder: other programs' files have such names too, so only kinds that are ours here.
BARE_NAME = re.compile(r"^[\w-]+\.(cpp|md)$|^[\w]+_test\.\w+$")
BUILT = ("build/", "build-", "dist/")
FLAG = re.compile(r"^--[a-z][a-z0-9-]*")
# The packages' check refuses these in the changelog; nowhere do they read well.
TWICE = re.compile(r"\b([a-z]+)\s+\1\b(?!-)")
INDEX = "docs/README.md"
MOST_README_LINES = 120


def check(tree, commands=None):
    commands = Commands(tree) if commands is None else commands
    for path, text in sorted(tree.items()):
        if path.endswith(".md"):
            yield from check_document(tree, commands, path, text)
    yield from check_index(tree)
    length = tree.get("README.md", "").count("\n")
    if length > MOST_README_LINES:
        yield Finding("README.md", MOST_README_LINES, "readme-length",
                      f"{length} lines, at most {MOST_README_LINES}: move details to a page of docs/")


def check_index(tree):
    """Each page below docs/ is linked from the index, or from the README of its folder."""
    linked = set()
    for path in (path for path in tree if path.startswith("docs/") and path.endswith("/README.md")):
        linked |= {posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))
                   for target in LINK.findall(tree[path])}
    for path in sorted(path for path in tree if path.startswith("docs/") and path.endswith(".md")):
        if INDEX in tree and path != INDEX and path not in linked:
            yield Finding(path, 1, "index", f"{INDEX} does not link to this page")


def check_document(tree, commands, path, text):
    prose, fenced = split_fences(text)
    for match in TWICE.finditer(SPAN.sub(lambda m: re.sub(r"[^\n]", ".", m.group(0)), prose)):
        yield Finding(path, text.count("\n", 0, match.start()) + 1, "words", f"'{match.group(1)}' twice")
    for match in LINK.finditer(SPAN.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), prose)):
        yield from check_link(tree, path, text.count("\n", 0, match.start()) + 1, match.group(1))
    for match in SPAN.finditer(prose):
        line = text.count("\n", 0, match.start()) + 1
        yield from check_code(tree, commands, path, line, " ".join(match.group(2).split()), every_word=False)
    for line, code in fenced:
        yield from check_code(tree, commands, path, line, code, every_word=True)


def split_fences(text):
    """-> (the text with fenced blocks blanked, [(line, its text)] of the blocks that hold commands)"""
    prose, fenced, mark, commands = [], [], None, False
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if mark is None and fence:
            mark = fence.group(1)
            # Transcripts, pictures and data show what is printed; only shell blocks are typed.
            commands = line.strip()[3:].strip().split(" ")[0] in ("", "sh", "bash", "shell", "console")
            prose.append("")
        elif mark is not None and fence and fence.group(1) == mark and line.strip() == mark:
            mark = None
            prose.append("")
        elif mark is not None:
            if commands:
                fenced.append((number, line))
            prose.append("")
        else:
            prose.append(line)
    return "\n".join(prose) + "\n", fenced


# ---------------------------------------------------------------------------------------------------- links

def slug(heading):
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def check_link(tree, path, line, target):
    if re.match(r"^[a-z][a-z0-9+.-]*:", target):
        return
    file, _, anchor = target.partition("#")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    if not exists(tree, wanted):
        yield Finding(path, line, "link", f"the link to '{target}' leads nowhere")
    elif anchor and wanted.endswith(".md"):
        if anchor not in {slug(heading) for heading in HEADING.findall(split_fences(tree[wanted])[0])}:
            yield Finding(path, line, "link", f"{wanted} has no heading '#{anchor}'")


# ---------------------------------------------------------------------------------------------------- paths

def exists(tree, path):
    path = path.rstrip("/")
    if path in ("", ".") or path in tree:
        return True
    if any(mark in path for mark in "*?["):
        return any(fnmatch.fnmatch(file, path) or fnmatch.fnmatch(file, path + "/*") for file in tree)
    return any(file.startswith(path + "/") for file in tree)


def check_path(tree, path, line, word):
    word = word.removeprefix("./")
    if word.startswith(BUILT):
        name = word.rstrip("/").rsplit("/", 1)[-1]
        recipes = "".join(text for file, text in tree.items() if file.endswith("CMakeLists.txt"))
        if "/bin/" in word and not re.search(rf"\b{re.escape(name)}\b", recipes):
            yield Finding(path, line, "path", f"'{word}': no CMakeLists.txt makes '{name}'")
        return
    places = [word, f"src/{word}", posixpath.normpath(posixpath.join(posixpath.dirname(path), word))]
    if any(exists(tree, place) for place in places):
        return
    top = word.split("/", 1)[0]
    tops = {file.split("/", 1)[0] for file in tree if "/" in file}
    tops |= {file.split("/")[1] for file in tree if file.startswith("src/") and file.count("/") > 1}
    if top in tops or FILE_NAME.search(word):
        yield Finding(path, line, "path", f"'{word}' does not exist")


# --------------------------------------------------------------------------------------------------- commands

class Commands:
    """The verbs and flags of the repository's own commands, read from their sources."""

    def __init__(self, tree):
        dev = tree.get("dev", "")
        self.dev_verbs = {name.replace("_", "-") for name in re.findall(r"^verb_(\w+)\(\)", dev, re.M)}
        self.dev_text = dev + "".join(text for path, text in tree.items() if path.startswith("tools/"))
        self.cli_text = sources(tree, "src/cli/")
        # Rows of the table of verbs: {"run", "Work", ...}.
        self.verbs = {"help"} | set(re.findall(r'\{\s*"([a-z][a-z-]*)",\s*"[A-Z]', self.cli_text))
        self.flag_texts = {
            "sublet": self.cli_text,
            "subletd": sources(tree, "src/daemon/"),
            "sublet-gpu": sources(tree, "src/gpu/"),
            "sublet-actor": sources(tree, "src/actor/"),
            "sublet-keep": sources(tree, "src/keep/"),
            "sublet-shim": sources(tree, "src/shim/"),
            "simgpu-load": sources(tree, "simgpu/"),
            "simgpu-ctl": sources(tree, "simgpu/"),
        }

    def check(self, words):
        """-> messages about errors in the command line `words`"""
        name = words[0].rsplit("/", 1)[-1] if words[0] != "./dev" else "./dev"
        arguments = before_program(words[1:])
        if name == "./dev":
            return self.check_dev(arguments)
        text = self.flag_texts.get(name)
        if not text:
            return []
        wrong = []
        verb = next((word for word in arguments if not word.startswith("-")), None)
        if name == "sublet" and verb and re.fullmatch(r"[a-z][a-z-]*", verb) and verb not in self.verbs:
            wrong.append(f"'sublet {verb}': there is no such verb")
        return wrong + unknown_flags(name, arguments, text)

    def check_dev(self, arguments):
        if not self.dev_verbs or not arguments or not re.fullmatch(r"[a-z][a-z-]*", arguments[0]):
            return []
        if arguments[0] not in self.dev_verbs:
            return [f"'./dev {arguments[0]}': dev has no such verb"]
        return unknown_flags("./dev", arguments, self.dev_text)


def sources(tree, folder):
    return "".join(text for path, text in tree.items() if path.startswith(folder)
                   and path.endswith((".cpp", ".h")) and not path.endswith("_test.cpp"))


def before_program(words):
    """`sublet run FLAGS -- PROGRAM`: the program's own words are not ours; nor is what follows a pipe."""
    for index, word in enumerate(words):
        if word in ("--", "|", "||", "&&", ";", "&", ">", "<", "2>", "#"):
            return words[:index]
    return words


def unknown_flags(name, arguments, text):
    common = {"--help", "--version"}
    flags = {match.group(0) for match in map(FLAG.match, arguments) if match}
    return [f"'{name}' has no flag '{flag}'" for flag in sorted(flags - common)
            if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)]


def check_code(tree, commands, path, line, code, every_word):
    code = re.sub(r"^\s*[$#]\s+", "", code)
    try:
        words = shlex.split(code)
    except ValueError:
        words = code.split()
    if not words:
        return
    # A variable before a command (NAME=value COMMAND) belongs to the shell.
    while len(words) > 1 and re.match(r"^[A-Za-z_]\w*=", words[0]):
        words = words[1:]
    if words[0] == "sudo":
        words = words[1:] or [""]
    for message in commands.check(words):
        yield Finding(path, line, "command", message)
    ours = words[:1] if every_word else words if len(words) == 1 else before_program(words)
    for word in ours:
        word = word.strip("(),;:")
        if BARE_NAME.match(word) and not word.startswith(("NAME", "X_")):
            if not any(file.rsplit("/", 1)[-1] == word for file in tree):
                yield Finding(path, line, "path", f"there is no file '{word}'")
        elif PATH.match(word) and not re.match(r"^[A-Z_]+/", word):
            yield from check_path(tree, path, line, re.sub(r":\d+$", "", word))
