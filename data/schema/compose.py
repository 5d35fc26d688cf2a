#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Composes the JSON Schemas that `profctl schema VERB` and `profcapture schema VERB` print, as a C table.

    compose.py OUTPUT.c common.json PROGRAM.VERB.json…

A verb's file describes the "data" of its envelope; the envelope, and the definitions of common.json that it uses, are
added here, so that each printed schema stands alone. These shorthands are not in the result:
    "required": "all"            every property of this object
    "$merge": ["name", …]        the properties of those definitions too
    "capture": "null|nullable"   what the envelope's capture may be; an object otherwise
Schemas allow more properties than they name, since interfaces grow; tests/integration/schema.py is stricter.
"""
import json
import sys
from pathlib import Path


def expand(node, definitions):
    """Resolves the shorthands in a schema and everything below it."""
    if isinstance(node, list):
        return [expand(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    node = dict(node)
    own_required = node.pop("required", None)
    own_properties = node.pop("properties", {})
    properties, required = {}, []
    for name in node.pop("$merge", []):
        base = expand(definitions[name], definitions)
        node.setdefault("type", "object")
        properties.update(base["properties"])
        required += base["required"]
    properties.update((key, expand(value, definitions)) for key, value in own_properties.items())
    if own_required == "all":
        required = list(properties)
    elif own_required is not None:
        required += [name for name in own_required if name not in required]
    result = {key: expand(value, definitions) for key, value in node.items()}
    if properties:
        result["properties"] = properties
    if required:
        result["required"] = required
    return result


def references(node):
    if isinstance(node, list):
        for item in node:
            yield from references(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from references(value)


def envelope(program, verb, source, definitions):
    data = dict(source)
    title = data.pop("title")
    capture = data.pop("capture", "object")
    of_capture = {
        "object": {"$ref": "#/definitions/capture"},
        "null": {"type": "null"},
        "nullable": {"anyOf": [{"$ref": "#/definitions/capture"}, {"type": "null"}]},
    }[capture]
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "type": "object",
        "properties": {
            "schema": {"const": f"{program}.{verb}/1"},
            "capture": of_capture,
            "truncated": {"type": "boolean", "description": "--limit cut a list"},
            "total_rows": {
                "type": ["integer", "null"], "minimum": 0,
                "description": "how many rows the lists have without --limit; null: a tree, no list, or not counted",
            },
            "data": expand({"type": "object", **data}, definitions),
        },
        "required": ["schema", "capture", "truncated", "data"],
    }
    used, todo = {}, list(references(schema))
    while todo:
        name = todo.pop()
        if name not in used:
            used[name] = expand(definitions[name], definitions)
            todo += references(used[name])
    schema["definitions"] = {name: used[name] for name in definitions if name in used}
    return schema


def c_string(text):
    """JSON's escapes are also C's, except \\u, which ensure_ascii=False avoids."""
    return "\n".join("\t\t" + json.dumps(line, ensure_ascii=False) for line in text.splitlines(keepends=True))


HEAD = """/* Composed by data/schema/compose.py. */
#include "tools/common/schema.h"

#include <stddef.h>

const struct schema schemas[] = {"""


def main():
    output, common, *files = sys.argv[1:]
    definitions = json.loads(Path(common).read_text(encoding="utf-8"))
    parts = [HEAD]
    for name in files:
        program, verb, _ = Path(name).name.split(".")
        schema = envelope(program, verb, json.loads(Path(name).read_text(encoding="utf-8")), definitions)
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        parts.append(f'\t{{ "{program}", "{verb}",\n{c_string(text)} }},')
    parts += ["\t{ NULL, NULL, NULL },", "};", ""]
    Path(output).write_text("\n".join(parts), encoding="utf-8")


main()
