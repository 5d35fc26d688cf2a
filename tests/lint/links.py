#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Relative links in Markdown files lead to existing files, and the docs/ and tests/ files that
sources name exist."""
import re
import sys

import lint

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
NAMED = re.compile(r"(?<![\w./-])((?:docs|tests)/[\w./-]*\w\.(?:md|py|c|h|sh))\b")


def check(root):
    for path in lint.files(root, ".md", ".c", ".h", ".py", ".build", ".sh"):
        if path.name == "links.py":
            continue
        for number, line in lint.lines(root, path):
            for target in LINK.findall(line) if path.suffix == ".md" else []:
                if not (root / path.parent / target).exists():
                    yield f"{path}:{number}: no file {target}"
            for target in NAMED.findall(line):
                if not (root / target).exists() and "NAME" not in target and path.parts[:2] != ("tests", "lint"):
                    yield f"{path}:{number}: no file {target}"


SELF_TEST = [
    ({"a.md": "[b](docs/b.md) [c](https://example.org/x.md) [d](#d)", "docs/b.md": "[a](../a.md)"}, 0),
    ({"a.md": "[b](docs/b.md)\n[c](c.md#x)"}, 3),
    ({"lib/a.c": "/* as docs/format.md says */\n"}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
