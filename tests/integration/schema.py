# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Checks a verb's output against the schema that the program itself prints.

    import schema
    report = profcapture.json("report", capture)
    schema.check(profcapture, "report", report)

The schemas allow properties that they do not name, because newer versions may add some; here such
a property is an error, so that the schema is changed together with the output.
"""
import functools
import json
import re


def strict(node):
    """Returns a copy of a schema that forbids properties that it does not name, in every object that does
    not allow them explicitly."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: strict(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and "object" in node.get("type", ()):
        closed.setdefault("additionalProperties", False)
    return closed


@functools.lru_cache(maxsize=None)
def load(program, verb):
    return json.loads(program("schema", verb).stdout)


@functools.lru_cache(maxsize=None)
def validator(program, verb, closed):
    import jsonschema  # here, because most tests do not need it, and it takes 0.1 s

    schema = load(program, verb)
    return jsonschema.Draft7Validator(strict(schema) if closed else schema)


PYTHON = {"object": {dict}, "array": {list}, "string": {str}, "boolean": {bool}, "null": {type(None)}, "integer": {int}, "number": {int, float}}
ANNOTATIONS = {"$schema", "title", "description", "definitions"}


def compiled(node, references):
    """Returns a function that accepts only values that match `node`, a part of a schema. jsonschema takes
    ten times as long, so it is used only to find what is wrong. `references`: a function for each $ref."""
    if isinstance(node, bool):
        return lambda value: node
    if "$ref" in node:
        return lambda value: references[node["$ref"]](value)
    tests = []
    for key, wanted in node.items():
        if key == "type":
            types = set().union(*(PYTHON[name] for name in ([wanted] if isinstance(wanted, str) else wanted)))
            tests.append(lambda value, types=types: type(value) in types)
        elif key in ("enum", "const"):
            allowed = [(type(one), one) for one in (wanted if key == "enum" else [wanted])]
            tests.append(lambda value, allowed=allowed: (type(value), value) in allowed)
        elif key == "minimum":
            tests.append(lambda value, least=wanted: not isinstance(value, (int, float)) or value >= least)
        elif key == "maximum":
            tests.append(lambda value, most=wanted: not isinstance(value, (int, float)) or value <= most)
        elif key == "pattern":
            tests.append(lambda value, search=re.compile(wanted).search: not isinstance(value, str) or search(value) is not None)
        elif key == "minItems":
            tests.append(lambda value, least=wanted: not isinstance(value, list) or len(value) >= least)
        elif key == "items":
            tests.append(lambda value, item=compiled(wanted, references): not isinstance(value, list) or all(map(item, value)))
        elif key == "required":
            tests.append(lambda value, names=set(wanted): not isinstance(value, dict) or names <= value.keys())
        elif key == "anyOf":
            tests.append(lambda value, ways=[compiled(way, references) for way in wanted]: any(way(value) for way in ways))
        elif key not in {"properties", "additionalProperties", *ANNOTATIONS}:
            return lambda value: False
    if {"properties", "additionalProperties"} & node.keys():
        named = {name: compiled(part, references) for name, part in node.get("properties", {}).items()}
        other = compiled(node.get("additionalProperties", True), references)
        tests.append(lambda value: not isinstance(value, dict) or all(named.get(name, other)(part) for name, part in value.items()))
    return lambda value: all(test(value) for test in tests)


@functools.lru_cache(maxsize=None)
def matches(program, verb):
    schema, references = strict(load(program, verb)), {}
    for name, part in schema.get("definitions", {}).items():
        references[f"#/definitions/{name}"] = compiled(part, references)
    return compiled(schema, references)


def check(program, verb, output):
    """Fails, naming the place, if output (parsed JSON) does not match `PROGRAM schema VERB`."""
    if matches(program, verb)(output):
        return
    from jsonschema.exceptions import best_match

    # Closing objects only shrinks the set of valid documents, so output that the closed schema
    # accepts needs no second check: see test_closing_takes_away.
    errors = sorted(validator(program, verb, True).iter_errors(output), key=lambda error: list(error.absolute_path))
    if errors:
        validator(program, verb, False).validate(output)
        best = best_match(errors)
        place = "/".join(map(str, best.absolute_path))
        raise AssertionError(f"{verb} --json, at '{place}': {best.message}")
