#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Checks that the object of each source file that calls prefetch_line() has prefetch instructions,
because compilers remove calls of functions that only prefetch. The arguments are archives."""
import re
import subprocess
import sys

import lint

INSTRUCTION = re.compile(r"\t(prefetch\w*|prfm|dcbt|prefetch\.r)\b")
CALL = re.compile(r"\bprefetch_line\(")


def fetching(archive):
    """Returns {object of the archive: whether it has a prefetch instruction}."""
    listed = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", archive], stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout
    found, name = {}, None
    for line in listed.splitlines():
        if ":     file format " in line:
            name = line.split(":")[0].rsplit("/", 1)[-1]
            found[name] = False
        elif INSTRUCTION.search(line):
            found[name] = True
    return found


def check(root, *archives):
    """Checks the archives. Without any (in the self-test), compiles a.c."""
    if not archives:
        archives = [root / "a.c.o"]
        subprocess.run(["cc", "-c", "-O2", "-o", archives[0], root / "a.c"], check=True)
    objects = {}
    for archive in archives:
        objects.update(fetching(archive))
    for path in lint.files(root, ".c"):
        name = path.name + ".o"
        if name in objects and not objects[name] and any(CALL.search(text) for _, text in lint.lines(root, path)):
            yield f"{path}: the compiler dropped what it fetches ahead"


FUNCTION = "static inline void prefetch_line(const void *at) { %s }\n"
KEPT = FUNCTION % '__builtin_prefetch(at); __asm__ volatile("");'
USE = "int f(const char *at) { prefetch_line(at); return 1; }\n"
SELF_TEST = [
    ({"a.c": KEPT + USE}, 0),
    ({"a.c": FUNCTION % "" + USE}, 1),
    ({"a.c": "int f(void) { return 1; }\n"}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
