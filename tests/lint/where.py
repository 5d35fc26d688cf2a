#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The README's table "Where is…" names files and folders that exist, and symbols that occur in the
file named before them."""
import re
import sys

import lint

TITLE = "## Where is…"


def rows(lines):
    inside = False
    for number, line in lines:
        inside = line == TITLE or (inside and not line.startswith("## "))
        if inside and line.startswith("| "):
            yield number, line.strip("| ").split(" | ")[-1]


def check(root):
    if not (root / "README.md").exists():
        return
    found = list(rows(lint.lines(root, "README.md")))
    if not found:
        yield f"README.md:1: no table \"{TITLE[3:]}\""
    for number, place in found[1:]:
        path = None
        for span in re.findall(r"`([^`]+)`", place):
            if span.startswith("./dev"):
                continue
            if "/" in span:
                path = root / span
                if not path.exists():
                    yield f"README.md:{number}: there is no {span}"
            elif path is None or not path.is_file():
                yield f"README.md:{number}: {span} is in no file"
            elif not re.search(rf"\b{re.escape(span.removesuffix('()'))}\b", path.read_text(encoding="utf-8")):
                yield f"README.md:{number}: {span} is not in {path.relative_to(root)}"


HEAD = f"{TITLE}\n\n| question | place |\n|---|---|\n"
SELF_TEST = [
    ({"README.md": HEAD + "| a | `a/b.c`: `f()`; `c/` |\n", "a/b.c": "int f(void)", "c/d": ""}, 0),
    ({"README.md": HEAD + "| a | `a/b.c`: `g()` |\n| b | `c.c` |\n| c | `h()` |\n## Next\n| d | `e.c` |\n", "a/b.c": "int f(void)"}, 3),
    ({"README.md": "# Nothing\n"}, 1),
    ({"a.md": ""}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
