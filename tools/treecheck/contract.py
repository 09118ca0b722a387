# SPDX-License-Identifier: Apache-2.0
"""The contract in api/: its files join, its texts are plain English, no field of a request is described twice.

A field is described twice if two requests write down a field of the same name and type. An alias, a merge and a
reference describe nothing. Fields whose descriptions differ are different fields.
"""
import re

from . import Finding
from .prose import Fragment, begins_wrongly, too_long
from .terms import replaced

FILE = re.compile(r"api/[^/]+\.yaml")
ADDED = ("description", "nullable", "default")  # what a request may say about a field that it shares


def check(tree):
    texts = {path: text for path, text in tree.items() if FILE.fullmatch(path)}
    if not texts:
        return
    import join_contract  # only here, so that the other checks need no package
    try:
        join_contract.join(texts)
        source = join_contract.Source(texts)
        root = source.compose()
    except join_contract.Fault as fault:
        yield Finding(fault.path, fault.line, "contract", fault.message)
        return
    yield from described_twice(source, Requests(root, join_contract.METHODS).fields())
    for node in join_contract.walk(root):
        yield from check_texts(source, node)


def check_texts(source, node):
    """Each description and summary of a node is a document."""
    for key, value in mapping(node):
        if key.value in ("description", "summary") and type(value).__name__ == "ScalarNode":
            path, line = source.place(value.start_mark.line + 1)
            fragment = Fragment("paragraph", line, value.value)
            yield from begins_wrongly(path, fragment)
            yield from too_long(path, fragment)
            yield from replaced(path, fragment)


def mapping(node):
    return node.value if type(node).__name__ == "MappingNode" else ()


def child(node, name):
    return next((value for key, value in mapping(node) if key.value == name), None)


def children(node):
    """The values of a mapping, the entries of a list; nothing of None."""
    if node is None:
        return []
    return node.value if type(node).__name__ == "SequenceNode" else [value for _, value in mapping(node)]


class Requests:
    """The parameters and the fields of all bodies, as nodes of YAML."""

    def __init__(self, root, methods):
        self.files, self.methods = children(root), methods

    def fields(self):
        """-> [(name, node)]; a node may be there several times"""
        found = []
        for item in [item for file in self.files for item in children(child(file, "paths"))]:
            for call in [item] + [value for key, value in mapping(item) if key.value in self.methods]:
                for parameter in children(child(call, "parameters")):
                    name = child(parameter, "name")
                    found += [(f"parameter {name.value}", parameter)] if name else []
                content = child(self.resolved(child(call, "requestBody")), "content")
                for media in children(content):
                    found += self.fields_of(child(media, "schema"))
        return found

    def fields_of(self, schema):
        schema, found = self.resolved(schema), []
        for name, node in own_and_merged(child(schema, "properties")):
            found.append((name, node))
            if not child(node, "$ref"):
                found += self.fields_of(node)
        items = child(schema, "items")
        return found + (self.fields_of(items) if items else [])

    def resolved(self, node):
        """The node, or the component that it refers to."""
        while node is not None and child(node, "$ref"):
            kind, name = child(node, "$ref").value.split("/")[-2:]
            node = next(filter(None, (child(child(file, kind), name) for file in self.files)), None)
        return node


def own_and_merged(properties):
    """-> (name, node) of each property, also of those that come by `<<`"""
    for key, value in mapping(properties):
        if key.value != "<<":
            yield key.value, value
        for base in ([value] if mapping(value) else children(value)) if key.value == "<<" else ():
            yield from own_and_merged(base)


def described_twice(source, fields):
    seen = {}  # name -> [(node, its type, its description)]
    for name, node in fields:
        whole = plain(node)
        if "$ref" in whole or "<<" in whole or any(node is other for other, _, _ in seen.get(name, ())):
            continue
        kind, text = {key: value for key, value in whole.items() if key not in ADDED}, whole.get("description")
        for other, its_kind, its_text in seen.get(name, ()):
            if kind == its_kind and (text == its_text or not text or not its_text):
                path, line = source.place(node.start_mark.line + 1)
                first = "{}:{}".format(*source.place(other.start_mark.line + 1))
                yield Finding(path, line, "contract",
                              f"'{name}' is described in {first} too: give it an anchor, and use that here")
                break
        seen.setdefault(name, []).append((node, kind, text))


def plain(node):
    """The value of a node, with `<<` and references as they stand."""
    if type(node).__name__ == "SequenceNode":
        return [plain(entry) for entry in node.value]
    return {key.value: plain(value) for key, value in mapping(node)} if mapping(node) else node.value
