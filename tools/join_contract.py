#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Joins the files of api/ into one OpenAPI document.

The files, api/shared.yaml first and the others by name, are one YAML document when they are written one after the
other. So an anchor of a file can be used in each file that follows. Each file has one key, its own name, and below it
`paths` and the kinds of components. api/shared.yaml also has the head of the document, and anchors of refusals and of
fields.
"""
import argparse
import json
import pathlib
import sys

import yaml

API = pathlib.Path(__file__).resolve().parent.parent / "api"
FIRST = "api/shared.yaml"
COMPONENTS = ("securitySchemes", "parameters", "requestBodies", "responses", "schemas")
ONLY_SHARED = ("document", "refusals", "fields")
LONGEST_LITERAL = 12000  # characters that every compiler must accept
METHODS = {"get", "post", "delete"}

# The parser in C takes a third of the time.
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Fault(Exception):
    """An error in a file of api/: path, line, message."""

    def __init__(self, path, line, message):
        super().__init__(f"{path}:{line}: {message}")
        self.path, self.line, self.message = path, line, message


class Source:
    """The files of api/, by path, as one text of YAML."""

    def __init__(self, texts):
        self.starts, self.text = [], ""
        for path in sorted(texts, key=lambda path: (path != FIRST, path)):
            self.starts.append((self.text.count("\n") + 1, path))
            self.text += texts[path].rstrip("\n") + "\n"

    def place(self, line):
        """-> (path, line) of a line of the whole text"""
        start, path = max((start, path) for start, path in self.starts if start <= line)
        return path, line - start + 1

    def fault(self, node, message):
        return Fault(*self.place(node.start_mark.line + 1), message)

    def compose(self):
        """-> the root node. Raises Fault."""
        try:
            root = yaml.compose(self.text, Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = ", ".join(filter(None, (error.context, error.problem)))
            raise Fault(*self.place(mark.line + 1), message) from error
        self.check(root)
        return root

    def check(self, root):
        """Refuses what YAML allows and nobody means: a key twice, and a key without a value."""
        for node in walk(root):
            seen = set()
            for key, value in pairs(node):
                if key.value in seen:
                    raise self.fault(key, f"'{key.value}' stands here twice")
                seen.add(key.value)
                if value.tag == "tag:yaml.org,2002:null":
                    raise self.fault(key, f"'{key.value}' has no value: put the text with the comma in quotes")

    def entries(self, root):
        """-> (path of a file, node of `paths` or of a kind of components, node of a name in it)"""
        for key, value in pairs(root):
            path, _ = self.place(key.start_mark.line + 1)
            if path != f"api/{key.value}.yaml":
                raise self.fault(key, f"the only key of {path} is the name of the file")
            for kind, items in pairs(value):
                if kind.value in ("paths", *COMPONENTS):
                    yield from ((path, kind, name) for name, _ in pairs(items))
                elif path != FIRST or kind.value not in ONLY_SHARED:
                    raise self.fault(kind, f"'{kind.value}' is not one of: paths, {', '.join(COMPONENTS)}")


def pairs(node):
    return node.value if isinstance(node, yaml.MappingNode) else ()


def walk(node, seen=None):
    """Each node once, however many aliases it has."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    yield node
    children = [value for _, value in pairs(node)]
    for child in node.value if isinstance(node, yaml.SequenceNode) else children:
        yield from walk(child, seen)


def join(texts):
    """-> the OpenAPI document of the files {path: text}. Raises Fault."""
    source = Source(texts)
    root = source.compose()
    parts = yaml.constructor.SafeConstructor().construct_document(root)
    document = dict(parts["shared"]["document"], paths={}, components={kind: {} for kind in COMPONENTS})
    for path, kind, name in source.entries(root):
        whole = document["paths"] if kind.value == "paths" else document["components"][kind.value]
        if name.value in whole:
            raise source.fault(name, f"another file has '{name.value}' too")
        whole[name.value] = parts[pathlib.PurePath(path).stem][kind.value][name.value]
    for item in document["paths"].values():
        for method in METHODS & item.keys():
            item[method]["responses"] = dict(sorted(item[method]["responses"].items()))
    return document


def read(folder=API):
    """-> {path: text}"""
    return {f"api/{path.name}": path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}


class Plain(yaml.SafeDumper):
    """Writes each value where it stands, without anchors."""

    def ignore_aliases(self, data):
        return True

    def represent_text(self, text):
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, Plain.represent_text)


def as_yaml(document):
    text = yaml.dump(document, Dumper=Plain, default_flow_style=None, sort_keys=False, allow_unicode=True, width=118)
    return f"# SPDX-License-Identifier: Apache-2.0\n# Made by tools/join_contract.py from the files of api/.\n{text}"


def as_cpp(document):
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    assert ')json"' not in text
    pieces = "\n".join(f'R"json({text[at:at + LONGEST_LITERAL]})json"' for at in range(0, len(text), LONGEST_LITERAL))
    return f"""// Made by tools/join_contract.py from the files of api/.
#include "http/contract.h"

namespace sublet::http {{
std::string_view contract() {{
  static constexpr std::string_view text =
{pieces};
  return text;
}}
}}  // namespace sublet::http
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--yaml", type=pathlib.Path, metavar="FILE", help="write the document as YAML; - is the output")
    parser.add_argument("--cpp", type=pathlib.Path, metavar="FILE", help="write a C++ source with the document as JSON")
    args = parser.parse_args()
    try:
        document = join(read())
    except Fault as fault:
        sys.exit(str(fault))
    if args.yaml == pathlib.Path("-"):
        sys.stdout.write(as_yaml(document))
    elif args.yaml:
        args.yaml.write_text(as_yaml(document), encoding="utf-8")
    if args.cpp:
        args.cpp.write_text(as_cpp(document), encoding="utf-8")


if __name__ == "__main__":
    main()
