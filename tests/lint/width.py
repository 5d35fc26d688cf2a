#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Comments in C, paragraphs in Markdown, and JavaScript and CSS are at most 100 columns wide. Tables,
code in Markdown and addresses may be wider; clang-format checks the width of code in C."""
import re
import sys

import lint

COLUMNS = 100
TAB = 8
SCRIPT_TAB = 4  # as in .prettierrc.json


def is_comment(line, inside):
    """Whether a line of C has a comment, and whether the next line begins inside one."""
    code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
    begin, end = code.rfind("/*"), code.rfind("*/")
    return inside or begin >= 0 or "//" in code, begin > end or (inside and end < 0)


def comment_lines(lines):
    inside = False
    for number, line in lines:
        found, inside = is_comment(line, inside)
        if found:
            yield number, line


def paragraph_lines(lines):
    fenced = False
    for number, line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield number, line


def choice(path):
    """The lines of a file that are checked, and the width of its tabs."""
    if path.suffix == ".md":
        return paragraph_lines, TAB
    if path.suffix in (".c", ".h"):
        return comment_lines, TAB
    return lambda lines: lines, SCRIPT_TAB


def check(root):
    for path in lint.files(root, ".c", ".h", ".md", ".js", ".mjs", ".css"):
        choose, tab = choice(path)
        for number, line in choose(lint.lines(root, path)):
            width = len(line.expandtabs(tab))
            if width > COLUMNS and " " in re.sub(r"^[\s*/-]+", "", line):
                yield f"{path}:{number}: {width} columns"


LONG = "word " * 20 + "more"
SELF_TEST = [
    ({"a.c": f"/* {LONG} */\nint a;\n", "b.c": f"/*\n * {LONG}\n */\nint b;\n", "c.h": f"int c; /* {LONG} */\n"}, 3),
    ({"a.c": f"\t\t/* {'word ' * 16} */\nputs(\"{LONG} /* no comment */\");\n"}, 1),
    ({"a.js": f"\tconst text = '{LONG}';\n// {LONG}\n", "b.mjs": f"f(); // {LONG}\n", "c.css": f"/* {LONG} */\n"}, 4),
    ({"a.js": "\t" * 4 + "word " * 16 + "more\n", "b.css": "a {}\n"}, 0),
    ({"a.c": "/*\n * https" f"://example.org/{'x' * 100}\n */\n"}, 0),
    ({"a.md": f"{LONG}\n\n| {LONG} |\n\n```\n{LONG}\n```\n\n    {LONG}\n"}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
