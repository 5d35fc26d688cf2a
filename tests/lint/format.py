#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""clang-format 14's output is the style; ./dev format applies it."""
import shutil
import subprocess
import sys
from pathlib import Path

import lint

STYLE = Path(__file__).resolve().parents[2] / ".clang-format"


def check(root):
    names = list(map(str, lint.files(root, ".c", ".h")))
    shown = subprocess.run(
        ["clang-format-14", f"--style=file:{STYLE}", "--dry-run", *names],
        cwd=root,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    ).stderr if names else ""
    files = dict.fromkeys(line.split(":")[0] for line in shown.splitlines() if "-Wclang-format-violations" in line)
    for name in files:
        yield f"{name}: not formatted: ./dev format"


SELF_TEST = [
    ({"a.c": "int f(int a)\n{\n\treturn a;\n}\n"}, 0),
    ({"a.c": "int f(int a) {\n  return a; }\n", "b.h": "int  f(int a);\n"}, 2),
]

SKIPPED = 77  # meson's exit status for a test that cannot run here

if __name__ == "__main__":
    if not shutil.which("clang-format-14"):
        print("1..0 # SKIP clang-format-14 is not installed, and other versions format differently")
        sys.exit(0 if sys.argv[1:] == ["--self-test"] else SKIPPED)
    sys.exit(lint.run(check, SELF_TEST))
