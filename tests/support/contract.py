# SPDX-License-Identifier: Apache-2.0
"""Checks every reply of the daemon against the contract in api/: the path, the status, the schema of the body."""
import functools
import pathlib
import re
import sys

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import join_contract  # noqa: E402

METHODS = ("get", "post", "delete")
seen = set()  # (method, path, status, code) of each checked reply; the code of a refusal, else None


def _to_json_schema(node):
    """Turns `nullable` of OpenAPI 3.0 into a list of types, as JSON Schema writes it."""
    if isinstance(node, list):
        return [_to_json_schema(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    out = {key: _to_json_schema(value) for key, value in node.items() if key != "nullable"}
    if node.get("nullable") and "type" in out:
        out["type"] = [out["type"], "null"]
    return out


# Joined when this file is imported, before any test has threads.
_SERVED = join_contract.join(join_contract.read())
_DOCUMENT = _to_json_schema(_SERVED)


def served():
    """The document as a daemon serves it."""
    return _SERVED


def document():
    """The document with schemas of JSON Schema."""
    return _DOCUMENT


def _find_path(path):
    for pattern, item in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", pattern), path):
            return pattern, item
    return None, None


def _resolve(node):
    while "$ref" in node:
        target = document()
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


@functools.lru_cache(maxsize=None)
def _validators(pattern, method, status):
    """Returns the schemas of an answer by content type (most answers have one type), and the headers that it must have.
    A header of a refusal has no pattern.
    """
    if pattern is None:
        response = document()["components"]["responses"]["Problem"]
    else:
        response = document()["paths"][pattern][method]["responses"].get(str(status))
    assert response is not None, f"{method} {pattern} answered {status}, which the contract does not list"
    response = _resolve(response)
    headers = [name for name, header in response.get("headers", {}).items() if header.get("required")]
    return {kind: jsonschema.Draft7Validator(dict(media["schema"], components=document()["components"]))
            for kind, media in response["content"].items()}, headers


def check_event(data):
    """Raises AssertionError if the data of an event does not match the contract."""
    schema = {"$ref": "#/components/schemas/Event", "components": document()["components"]}
    errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(data)]
    assert not errors, f"{data} is off the contract: {errors}"


def documented():
    """Returns every (method, path, status) of the contract."""
    return {(method, path, int(status)) for path, item in document()["paths"].items()
            for method in METHODS if method in item for status in item[method]["responses"]}


def operations():
    """Returns every call of the contract once, as (METHOD, a path that may name an absent object, operation)."""
    for path, item in sorted(document()["paths"].items()):
        real = path.replace("{name}", "nobody").replace("{id}", "lease-1" if "leases" in path else "token-99")
        for method in METHODS:
            if method in item:
                yield method.upper(), real, item[method]


def check_reply(method, path, status, content_type, body, headers=None):
    """Raises AssertionError if the reply does not match the contract. `body` of a stream is the data of its events."""
    pattern, item = _find_path(path.split("?")[0])
    listed = [name for name in METHODS if item and name in item]
    if method.lower() in listed:
        assert status != 405, f"{method} {path} is in the contract, and refused for its method"
        calls = [(pattern, method.lower())]
    else:
        unknown = (400, 401, 403, 405 if listed else 404, 413, 431)
        assert status in unknown, f"{method} {path} is not in the contract but answered {status}"
        calls = [(pattern, name) for name in listed] if status == 405 else []  # any call of the path may answer this
    validators, needed = _validators(*(calls or [(None, None)])[0], status)
    assert headers is None or all(name in headers for name in needed), f"{method} {path} {status} lacks one of {needed}"
    kinds = " or ".join(validators)
    assert content_type in validators, f"{method} {path} {status}: {content_type}, the contract says {kinds}"
    bodies = body if content_type == "text/event-stream" else [body]
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for one in bodies
              for error in validators[content_type].iter_errors(one)]
    assert not errors, f"{method} {path} {status} is off the contract: {errors}"
    refused = content_type == "application/problem+json"
    if refused:
        assert body["status"] == status, body
    seen.update((name, found_at, status, body["code"] if refused else None) for found_at, name in calls)
