#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Checks that ESLint finds nothing in the JavaScript, and that Prettier would change no script or
style sheet; ./dev format applies its output. ./dev setup --peers installs the required versions."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lint

SOURCE = Path(__file__).resolve().parents[2]
NODE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "profd-tests/node_modules"


def node(root, tool, *arguments):
    return subprocess.run(["node", NODE / tool, *arguments], cwd=root, stdout=subprocess.PIPE, encoding="utf-8").stdout


def check(root):
    scripts = list(map(str, lint.files(root, ".js", ".mjs")))
    if scripts:
        found = node(root, "eslint/bin/eslint.js", "--config", SOURCE / "eslint.config.mjs", "--format", "json", *scripts)
        for file in json.loads(found):
            for message in file["messages"]:
                yield f"{Path(file['filePath']).relative_to(root)}:{message.get('line', 1)}: {message['message']}"
    styled = scripts + list(map(str, lint.files(root, ".css")))
    if styled:
        for name in node(root, "prettier/bin/prettier.cjs", "--config", SOURCE / ".prettierrc.json", "--list-different", *styled).splitlines():
            yield f"{name}: not formatted: ./dev format"


SELF_TEST = [
    ({"a.js": "export const add = (a, b) => a + b;\n", "b.css": "p {\n\tmargin: 0;\n}\n"}, 0),
    ({"a.js": "const unused = 1;\n"}, 1),
    ({"a.mjs": "export const f = () => unknown;\n", "b.js": "export let one = 1;\nif (one == 1) one = 2;\n"}, 2),
    ({"a.js": "export const broken = (;\n"}, 1),
    ({"a.js": 'export const text = "double";\n', "b.css": "p{margin:0}\n"}, 2),
]

SKIPPED = 77  # meson's exit status for a test that cannot run here

if __name__ == "__main__":
    if not shutil.which("node") or not all((NODE / tool).is_dir() for tool in ("eslint", "prettier")):
        print("1..0 # SKIP ESLint or Prettier is not installed: ./dev setup --peers")
        sys.exit(0 if sys.argv[1:] == ["--self-test"] else SKIPPED)
    sys.exit(lint.run(check, SELF_TEST))
