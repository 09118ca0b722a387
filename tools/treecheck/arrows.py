# SPDX-License-Identifier: Apache-2.0
"""The includes that each folder may have, and the folder where a foreign library is at home (tools/arrows.txt)."""
import posixpath
import re

from . import Finding

TABLE = "tools/arrows.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|(<[^>]+>))', re.M)
LIBRARY = re.compile(r"\bsublet_library\(\s*(\w+)([^)]*)\)")


def parse(text):
    """-> (folder -> all folders it may include), (folder -> what only its tests may include),
    (header prefix -> folders where it is at home)
    """
    direct, tests, homes = {}, {}, {}
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        left, _, right = line.partition(":")
        if left.startswith("<"):
            homes[left] = set(right.split())
        elif left.endswith(" tests"):
            tests[left.removesuffix(" tests")] = set(right.split())
        else:
            direct[left] = set(right.split())
    names = {folder.removeprefix("src/"): folder for folder in direct}

    def reach(name, seen):
        for other in direct.get(names.get(name, name), ()):
            if other not in seen:
                seen.add(other)
                reach(other, seen)
        return seen

    return {folder: reach(name, set()) for name, folder in names.items()}, tests, homes


def folder_of(path, folders):
    """The folder of the table that holds a path: the deepest one that names it."""
    return max((folder for folder in folders if path.startswith(folder + "/")), key=len, default=None)


def check(tree):
    allowed, tests, homes = parse(tree.get(TABLE, ""))
    for path, text in sorted(tree.items()):
        folder = folder_of(path, allowed)
        if path.endswith((".cpp", ".h", ".c")):
            of_tests = tests.get(folder, ()) if path.endswith("_test.cpp") or "/testing/" in path else ()
            yield from check_includes(tree, path, text, folder, allowed, of_tests, homes)
        elif folder and path.endswith("CMakeLists.txt"):
            yield from check_library(path, text, folder, allowed)


def check_includes(tree, path, text, folder, allowed, of_tests, homes):
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(1 if match.group(1) else 2)) + 1
        quoted, angled = match.groups()
        if angled:
            for prefix, where in homes.items():
                if angled.startswith(prefix) and path.startswith("src/") and folder not in where:
                    message = f"{angled} is at home in {', '.join(sorted(where))} only"
                    yield Finding(path, line, "home", message)
            continue
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), quoted))
        target = beside if beside in tree else f"src/{quoted}" if f"src/{quoted}" in tree else None
        if folder is None:
            continue
        if target is None:
            # simgpu has several include roots of its own; a compiler says more about a missing file than we
            # can.
            other = folder_of(f"src/{quoted}", allowed)
        else:
            other = folder_of(target, allowed)
        if other is None or other == folder or folder.startswith(other + "/"):
            continue
        if other.removeprefix("src/") not in allowed[folder] and other.removeprefix("src/") not in of_tests:
            may = ", ".join(sorted(allowed[folder])) or "nothing of ours"
            yield Finding(path, line, "arrow", f"{folder} may not include {other} (it may include: {may})")


def check_library(path, text, folder, allowed):
    for match in LIBRARY.finditer(text):
        deps = re.search(r"\bDEPS\b((?:\s+[a-z_]\w*)*)", match.group(2))
        for dep in deps.group(1).split() if deps else ():
            if f"src/{dep}" in allowed and f"src/{dep}" != folder and dep not in allowed[folder]:
                line = text.count("\n", 0, match.start()) + 1
                yield Finding(path, line, "arrow", f"{folder} may not depend on {dep}")
