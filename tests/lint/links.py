#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Relative links in Markdown files lead to existing files and headings, and the docs/ and tests/
files that sources name exist."""
import re
import sys

import lint

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
NAMED = re.compile(r"(?<![\w./-])((?:docs|tests)/[\w./-]*\w\.(?:md|py|c|h|sh))\b")


def anchors(path):
    """Returns the names by which links refer to the headings of a Markdown file."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check(root):
    for path in lint.files(root, ".md", ".c", ".h", ".py", ".build", ".sh"):
        if path.name == "links.py":
            continue
        for number, line in lint.lines(root, path):
            for target, anchor in LINK.findall(line) if path.suffix == ".md" else []:
                file = root / path.parent / target if target else root / path
                if not file.exists():
                    yield f"{path}:{number}: no file {target}"
                elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
                    yield f"{path}:{number}: no heading {anchor} in {target or path}"
            for target in NAMED.findall(line):
                if not (root / target).exists() and "NAME" not in target and path.parts[:2] != ("tests", "lint"):
                    yield f"{path}:{number}: no file {target}"


SELF_TEST = [
    ({"a.md": "[b](docs/b.md) [c](https://example.org/x.md) [d](#a-ds-e)\n## A d's `E`?", "docs/b.md": "[a](../a.md#a-ds-e)"}, 0),
    ({"a.md": "[a](#b) [b](b.md#c)\n```\n# B\n```", "b.md": "# B"}, 2),
    ({"a.md": "[b](docs/b.md)\n[c](c.md#x)"}, 3),
    ({"lib/a.c": "/* as docs/format.md says */\n"}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
