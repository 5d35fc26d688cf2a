#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A name has one meaning in the tree: no two structs have the same tag, no two non-static functions
have the same name, and at most two .c files include a private header. No code outside arch/cpu/
depends on the CPU by #if. KNOWN lists the remaining exceptions, and may only shrink."""
import re
import sys
from collections import defaultdict

import lint

STRUCT = re.compile(r"^(?:static (?:const )?)?struct (\w+) \{", re.MULTILINE)
FUNCTION = re.compile(r"^(?!static|extern|typedef|else|return)[a-z][\w \*]*?\b(\w+)\([^;{}]*\)\n\{", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([\w/-]+-(?:own|private|internal)\.h)"', re.MULTILINE)
CPU = re.compile(r"^\s*#\s*(?:el)?if.*\b(?:__x86_64__|__i386__|__aarch64__|__riscv\w*|__powerpc\w*|__PPC\w*)", re.MULTILINE)
SKIPPED = ("tests", "docs")
OF_A_PROGRAM = {"main", "LLVMFuzzerTestOneInput"}
KNOWN = "tests/lint/known-names.txt"


def find_shared(root):
    """Yields (name, its files) for each name that is used more often than allowed."""
    structs, functions, headers = (defaultdict(set) for _ in range(3))
    cpu = {}
    for path in lint.files(root, ".c", ".h"):
        text = (root / path).read_text(encoding="utf-8")
        if path.parts[0] in SKIPPED:
            continue
        for tag in STRUCT.findall(text):
            structs[f"struct {tag}"].add(str(path))
        for name in set(FUNCTION.findall(text)) - OF_A_PROGRAM if path.suffix == ".c" else ():
            functions[f"{name}()"].add(str(path))
        for name in INCLUDE.findall(text) if path.suffix == ".c" else ():
            headers[name].add(str(path))
        if path.parts[:2] != ("arch", "cpu") and CPU.search(text):
            cpu[f"the CPU in {path}"] = {str(path)}
    for found, most in ((structs, 1), (functions, 1), (headers, 2), (cpu, 0)):
        yield from ((name, sorted(files)) for name, files in found.items() if len(files) > most)


def check(root):
    known = set((root / KNOWN).read_text().splitlines()[1:]) if (root / KNOWN).exists() else set()
    found = dict(find_shared(root))
    for name in sorted(set(found) - known):
        yield f"{found[name][0]}:1: {name} is shared by {', '.join(found[name])}"
    for name in sorted(known - set(found)):
        yield f"{KNOWN}:1: {name} is no exception any more: remove the line"


SELF_TEST = [
    ({"a/a.c": "struct a {\n};\n", "b/b.h": "struct a {\n};\nstruct b {\n};\n"}, 1),
    ({"a/a.c": "int f(void)\n{\n}\n", "b/b.c": "struct x *f(int a,\n\t\tint b)\n{\n}\nstatic int g(void)\n{\n}\n", "c.c": "static int g(void)\n{\n}\n"}, 1),
    ({f"{name}.c": '#include "a/a-own.h"\n' for name in "abc"}, 1),
    ({"a.c": "#if defined(__x86_64__) && 1\n#endif\n", "arch/cpu/a.h": "#ifdef __aarch64__\n#endif\n"}, 1),
    ({KNOWN: "# Known\nstruct a\n", "a.c": "struct a {\n};\n", "b.c": "struct a {\n};\n"}, 0),
    ({KNOWN: "# Known\nstruct a\n", "a.c": "struct a {\n};\n"}, 1),
    ({"tests/a.c": "struct a {\n};\n", "b.c": "struct a {\n};\nint main(void)\n{\n}\n", "c.c": "int main(void)\n{\n}\n"}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
