#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The first line of each source file, or the second after #!, is the license."""
import sys

import lint

LICENCE = "SPDX-License-Identifier: BSD-2-Clause-Patent"


def check(root):
    for path in lint.files(root, ".c", ".h", ".cc", ".py", ".sh", ".build", "meson_options.txt", ".po", ".js", ".mjs", ".css", "dev", "run"):
        if "corpus" in path.parts:
            continue
        head = [line for _, line in lint.lines(root, path)][:2]
        if head and head[0].startswith("#!"):
            head = head[1:]
        if not head or LICENCE not in head[0]:
            yield f"{path}:1: does not start with {LICENCE}"


SELF_TEST = [
    ({"a.c": f"/* {LICENCE} */\n", "b.py": f"#!/usr/bin/python3\n# {LICENCE}\n", "meson.build": f"# {LICENCE}\n"}, 0),
    ({"a.c": f"\n/* {LICENCE} */\n"}, 1),
    ({"a.h": "", "tests/b.py": "import sys\n", "dev": f"#!/bin/sh\n\n# {LICENCE}\n"}, 3),
    ({"a.c": "/* SPDX-License-Identifier: MIT */\n"}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
