# SPDX-License-Identifier: Apache-2.0
"""The files of the contract: how they join, and what is refused in them."""
import json
import pathlib
import re
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import join_contract  # noqa: E402
from treecheck import contract  # noqa: E402

SHARED = """shared:
  document: {openapi: 3.0.3}
  schemas:
    Size: {type: integer}
  refusals:
    every: &refusals {'400': {description: wrong}, '503': {description: down}}
  fields:
    size: &size {type: integer, description: Its size}
"""


def call(path, fields):
    """A file with one call whose body has the fields."""
    return f"""{path}:
  paths:
    /{path}:
      post:
        requestBody: {{content: {{json: {{schema: {{properties: {{{fields}}}}}}}}}}}
        responses:
          <<: *refusals
          '200': {{description: done}}
"""


def joined(**files):
    return join_contract.join({f"api/{name}.yaml": text for name, text in {"shared": SHARED, **files}.items()})


def findings(**files):
    tree = {f"api/{name}.yaml": text for name, text in {"shared": SHARED, **files}.items()}
    return [f"{f.path}:{f.line} {f.message}" for f in contract.check(tree)]


def test_an_anchor_works_in_the_files_that_follow_and_is_gone_afterwards():
    document = joined(b=call("b", "size: *size, other: {<<: *size, nullable: true}"), a=call("a", "size: *size"))
    assert list(document) == ["openapi", "paths", "components"] and list(document["paths"]) == ["/a", "/b"]
    post = document["paths"]["/b"]["post"]
    assert post["requestBody"]["content"]["json"]["schema"]["properties"] == {
        "size": {"type": "integer", "description": "Its size"},
        "other": {"type": "integer", "description": "Its size", "nullable": True}}
    assert list(post["responses"]) == ["200", "400", "503"]
    assert document["components"]["schemas"] == {"Size": {"type": "integer"}}


def test_the_document_is_the_same_as_yaml_and_in_the_program():
    document = join_contract.join(join_contract.read())
    text = join_contract.as_yaml(document)
    assert yaml.safe_load(text) == document
    assert not re.search(r"[:-] [&*][a-z]", text), "an anchor or an alias"
    literals = re.findall(r'R"json\((.*?)\)json"', join_contract.as_cpp(document))
    assert json.loads("".join(literals)) == document and max(map(len, literals)) <= join_contract.LONGEST_LITERAL


@pytest.mark.parametrize("text, line, message", [
    ("a:\n  schemas:\n    A: {type: string}\n    A: {type: string}\n", 4, "'A' stands here twice"),
    ("a:\n  schemas:\n    A: {description: A path, or a file}\n", 3, "'or a file' has no value: "),
    ("a:\n  schemas:\n    A:\n", 3, "'A' has no value: "),
    ("a:\n  schemas:\n    Size: {type: string}\n", 3, "another file has 'Size' too"),
    ("b:\n  schemas: {}\n", 1, "the only key of api/a.yaml is the name of the file"),
    ("a: {}\nb: {}\n", 2, "the only key of api/a.yaml is the name of the file"),
    ("a:\n  schema: {}\n", 2, "'schema' is not one of: paths, "),
    ("a:\n  fields: {}\n", 2, "'fields' is not one of: paths, "),
    ("a:\n  schemas:\n    A: *unknown\n", 3, "found undefined alias"),
    ("a:\n  schemas:\n    A: &size {type: string}\n", 3, "found duplicate anchor"),
    ("a:\n  schemas:\n    A: {type: string\n    B: {}\n", 4, ""),
])
def test_a_fault_is_told_with_its_file_and_line(text, line, message):
    with pytest.raises(join_contract.Fault) as told:
        joined(a=text, z=call("z", ""))
    assert (told.value.path, told.value.line) == ("api/a.yaml", line) and message in told.value.message
    assert findings(a=text, z=call("z", "")) == [f"api/a.yaml:{line} {told.value.message}"]


INTEGER = "{type: integer, minimum: 1}"


@pytest.mark.parametrize("first, second, found", [
    (INTEGER, INTEGER, True),
    (INTEGER, "{type: integer, minimum: 1, nullable: true, default: 3}", True),
    (INTEGER, "{type: integer, minimum: 1, description: Its length}", True),
    ("{type: integer, description: Its length}", "{type: integer, description: Its length}", True),
    ("{type: integer, description: Its length}", "{type: integer, description: Its height}", False),
    (INTEGER, "{type: integer, minimum: 2}", False),
    ("*size", "*size", False),
    ("*size", "{<<: *size, nullable: true}", False),
    ("{$ref: '#/components/schemas/Size'}", "{$ref: '#/components/schemas/Size'}", False),
    ("{properties: {deep: {type: string}}}", "{properties: {deep: {type: string}, more: *size}}", True),
    ("{items: {properties: {deep: {type: string}}}}", "{properties: {deep: {type: string}}}", True),
])
def test_no_field_of_a_request_is_described_twice(first, second, found):
    told = findings(a=call("a", f"n: {first}"), b=call("b", f"n: {second}"))
    assert len(told) == found
    for finding in told:
        assert re.match(r"api/b.yaml:5 '(n|deep)' is described in api/a.yaml:5 too: ", finding)


def test_a_field_that_comes_by_a_merge_or_a_reference_is_read_where_it_stands():
    merged = SHARED + "    of_all: &of_all {n: {type: string}}\n"
    reference = call("c", "").replace("{properties: {}}", "{$ref: '#/components/schemas/Body'}")
    reference += "  schemas: {Body: {properties: {<<: [*of_all, {m: {type: string}}]}}}\n"
    told = findings(shared=merged, a=call("a", "<<: *of_all"), b=call("b", "n: {type: string}"), c=reference,
                    d=call("d", "m: {type: string}"))
    assert [finding.split(" too")[0] for finding in told] == ["api/b.yaml:5 'n' is described in api/shared.yaml:9",
                                                              "api/d.yaml:5 'm' is described in api/c.yaml:9"]


def test_no_parameter_is_described_twice():
    text = "a:\n  paths:\n    /a:\n      parameters:\n        - {name: id, in: path}\n"
    assert findings(a=text, b=text.replace("a", "b", 1).replace("/a", "/b")) == [
        "api/b.yaml:5 'parameter id' is described in api/a.yaml:5 too: give it an anchor, and use that here"]


def test_texts_of_the_contract_are_documents():
    long = " ".join(["The"] + ["word"] * 30)
    text = ("a:\n  schemas:\n    A:\n      summary: What it is\n      properties:\n"
            "        description: {description: Of a lease}\n"
            f"        b:\n          description: >-\n            {long}\n"
            "        c: {description: It makes room}\n")
    assert [finding.split(":")[1].split(" ")[0] for finding in findings(a=text)] == ["4", "6", "8", "10"]


# ------------------------------------------------------------------------------------------------ this contract

def test_each_reference_leads_somewhere_and_each_component_is_used():
    document = join_contract.join(join_contract.read())
    there = {f"#/components/{kind}/{name}" for kind, items in document["components"].items() for name in items
             if kind != "securitySchemes"}
    used = {place for place in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document))}
    assert used == there


def test_the_table_of_contents_has_every_file():
    listed = re.findall(r"^\| \[(.*?)\]", (ROOT / "api/README.md").read_text(), re.M)
    assert sorted(f"api/{name}" for name in listed) == sorted(join_contract.read())
