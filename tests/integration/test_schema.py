# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The schemas are valid, require the same top-level keys for all verbs, and are printed by their
program."""
import collections
import copy

import jsonschema
import pytest
import schema
from captures import make

VERBS = {
    "profctl": ["doctor", "list", "record", "stat", "status"],
    "profcapture": ["annotate", "counters", "critical-path", "diff", "dump", "events", "info", "locks", "marks", "memory", "report",
                    "sql", "summary", "verify"],
}
ALL = [(program, verb) for program, verbs in VERBS.items() for verb in verbs]


@pytest.fixture(params=ALL, ids=lambda pair: " ".join(pair))
def printed(request):
    program, verb = request.param
    return program, verb, schema.load(request.getfixturevalue(program), verb)


def test_is_a_schema(printed):
    program, verb, found = printed
    jsonschema.Draft7Validator.check_schema(found)
    assert found["properties"]["schema"] == {"const": f"{program}.{verb}/1"}
    assert found["required"] == ["schema", "capture", "truncated", "data"]
    text = str(found)
    assert "$merge" not in text and ("'all'" not in text or verb == "diff")  # diff has a property of this name


def test_every_reference_is_defined(printed):
    def references(node):
        if isinstance(node, list):
            for item in node:
                yield from references(item)
        elif isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for value in node.values():
                yield from references(value)

    found = printed[2]
    assert {name.rsplit("/", 1)[1] for name in references(found)} == set(found["definitions"])


def test_closing_takes_away(printed):
    """schema.check() relies on this: forbidding unknown properties never makes an invalid document
    valid, because no keyword negates a part of a schema."""
    def keywords(node):
        if isinstance(node, list):
            for item in node:
                yield from keywords(item)
        elif isinstance(node, dict):
            yield from node
            for key, value in node.items():
                yield from keywords(value if key not in ("properties", "definitions") else list(value.values()))

    assert not {"not", "oneOf", "if", "contains", "dependencies"} & set(keywords(printed[2]))


def test_unknown_verb(profctl):
    done = profctl("schema", "docter", check=2)
    assert "Did you mean 'doctor'" in done.stderr
    assert "report" not in done.stderr
    profctl("schema", check=2)


def test_doctor_is_held_to_its_schema(profctl):
    output = profctl.json("doctor", check=None)
    schema.check(profctl, "doctor", output)
    for break_it in (
        lambda report: report.update(schema="profctl.doctor/2"),
        lambda report: report.update(capture={}),
        lambda report: report["data"]["checks"][0].update(status="fine"),
        lambda report: report["data"]["checks"][0].pop("fix"),
    ):
        broken = copy.deepcopy(output)
        break_it(broken)
        with pytest.raises(jsonschema.ValidationError):
            schema.check(profctl, "doctor", broken)
    output["data"]["checks"][0]["news"] = 1
    with pytest.raises(AssertionError, match="news"):
        schema.check(profctl, "doctor", output)


def broken(value):
    """Yields copies of a document, each with one change, for all places and kinds of changes."""
    for other in (None, True, -1, 0.5, "x", [], {}):
        yield other
    if isinstance(value, dict):
        yield {**value, "news": 1}
        for key in value:
            yield {name: part for name, part in value.items() if name != key}
            yield from ({**value, key: part} for part in broken(value[key]))
    elif isinstance(value, list):
        yield [*value, *value]
        for i, item in enumerate(value):
            yield from ([*value[:i], part, *value[i + 1:]] for part in broken(item))


@pytest.mark.parametrize("verb, part", [("info", "capture"), ("marks", "data"), ("report", "data")])
def test_compiled_agrees(profcapture, capture, verb, part):
    """schema.matches() accepts a document if and only if jsonschema accepts it."""
    document = profcapture.json(verb, make(capture, "--rows", 20, "--all-tables"), "--limit", 1)
    accepts, validator = schema.matches(profcapture, verb), schema.validator(profcapture, verb, True)
    counts = collections.Counter()
    for changed in broken(document[part]):
        right = validator.is_valid({**document, part: changed})
        assert accepts({**document, part: changed}) == right, changed
        counts[right] += 1
    assert min(counts[True], counts[False]) > 10, counts
