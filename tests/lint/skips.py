#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""If a test is not run in the build with sanitizers, CI expects this skip.

CI fails on a skip that tests/expected-skips does not list, but only after the build with sanitizers
has run, which a quick run of the tests does not include.
"""
import ast
import fnmatch
import sys

import lint

EXPECTED = "tests/expected-skips"


def skips(tree):
    """Yields the decorated tests that are skipped if SANITIZED is true."""
    def is_skip(node):
        text = ast.unparse(node)
        return text in marks or text.startswith("pytest.mark.skipif(SANITIZED")

    marks = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and is_skip(node.value):
            marks.add(ast.unparse(node.targets[0]))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and any(map(is_skip, node.decorator_list)):
            yield node


def check(root):
    expected = [line.split()[0] for _, line in lint.lines(root, EXPECTED) if line and line[0] != "#"] if (root / EXPECTED).exists() else []
    for path in lint.files(root, ".py"):
        if path.parts[:2] != ("tests", "integration"):
            continue
        for node in skips(ast.parse((root / path).read_text(encoding="utf-8"))):
            name = f"{path.stem.removeprefix('test_').replace('_', '-')}:{node.name}"
            if not any(fnmatch.fnmatch(text, pattern) for pattern in expected for text in (name, f"build-asan:{name}")):
                yield f"{path}:{node.lineno}: a skip that {EXPECTED} does not list: build-asan:{name}"


TEST = "@pytest.mark.skipif(SANITIZED, reason='x')\ndef test_a():\n    pass\n"
SELF_TEST = [
    ({"tests/integration/test_some_name.py": TEST}, 1),
    ({"tests/integration/test_some_name.py": TEST, EXPECTED: "# a\nbuild-asan:some-name:test_a  why\n"}, 0),
    ({"tests/integration/test_some_name.py": TEST, EXPECTED: "build-asan:other:test_a  why\n"}, 1),
    ({"tests/integration/test_b.py": "of = pytest.mark.skipif(SANITIZED, reason='x')\n\n@of\ndef test_a():\n    pass\n"}, 1),
    ({"tests/integration/test_b.py": "@pytest.mark.skipif(OTHER, reason='x')\ndef test_a():\n    pass\n"}, 0),
    ({"tests/lint/test_b.py": TEST}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
