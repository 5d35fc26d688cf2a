#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Each library exports exactly the prof_* names that its public headers declare; a preloaded
library also exports the names that it hooks. Arguments: LIBRARY HEADER[,SOURCE…] …, where the
sources define the hooks."""
import re
import subprocess
import sys
from pathlib import Path

import lint

DECLARED = re.compile(r"PROF_PUBLIC\b[^;{]*?\b(prof_\w+)\s*(?:\(|;|\[)")

HOOK = re.compile(r"\bHOOK\b[^;{]*?\b(\w+)\s*\(")


def exported(library):
    """The exported symbols; for an archive, the global symbols of its objects."""
    option = "--extern-only" if Path(library).suffix == ".a" else "-D"
    listed = subprocess.run(
        ["nm", option, "--defined-only", "--format=posix", library], stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout
    return {line.split()[0].split("@")[0] for line in listed.splitlines() if len(line.split()) > 1}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*", " ", text, flags=re.DOTALL | re.MULTILINE)


def compare(library, symbols, name_of_header, header, sources):
    declared = set(DECLARED.findall(without_comments(header)))
    declared |= {name for source in sources for name in HOOK.findall(without_comments(source))}
    for name in sorted(symbols - declared):
        why = "is not declared in the public header" if name.startswith("prof_") else "is not ours to export"
        yield f"{library}: {name} {why}"
    for name in sorted(declared - symbols):
        yield f"{name_of_header}: {name} is declared and not exported by {library}"


def check(root, *pairs):
    """Checks the pairs. Without any (in the self-test), builds a library from a.c."""
    if not pairs:
        pairs = (root / "a.so", "libcapture/prof-capture.h")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-I", root, "-o", pairs[0], root / "a.c"], check=True
        )
    for library, header in zip(pairs[::2], pairs[1::2]):
        header, *sources = header.split(",")
        sources = [(root / source).read_text() for source in sources]
        yield from compare(Path(library).name, exported(library), header, (root / header).read_text(), sources)


HEADER = """#define PROF_PUBLIC __attribute__((visibility("default")))
/* PROF_PUBLIC int prof_comment(void); */
PROF_PUBLIC const char *prof_a(void);
PROF_PUBLIC extern const struct prof_x {int a;} *const prof_long_name(int a,
\tint b);
"""
HEADER = HEADER.replace("struct prof_x {int a;}", "struct prof_x")
SOURCE = """#include "libcapture/prof-capture.h"
const char *prof_a(void) { return ""; }
extern const struct prof_x *const prof_long_name(int a, int b) { return (void *)0; }
int hidden(void) { return 0; }
"""
SELF_TEST = [
    ({"libcapture/prof-capture.h": HEADER, "a.c": SOURCE}, 0),
    ({"libcapture/prof-capture.h": HEADER, "a.c": SOURCE + "PROF_PUBLIC int other(void) { return 0; }"}, 1),
    ({"libcapture/prof-capture.h": HEADER, "a.c": SOURCE + "PROF_PUBLIC int prof_b(void) { return 0; }"}, 1),
    ({"libcapture/prof-capture.h": HEADER + "PROF_PUBLIC int prof_c(void);\n", "a.c": SOURCE}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
