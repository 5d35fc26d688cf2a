#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""If a comment names the test of an invariant, this test exists: "[test-ring: arena, grow;
test_marks: memory]".

A test is test-NAME (tests/unit/test-NAME.c), test_NAME (tests/integration/test_NAME.py),
fuzz_NAME (tests/fuzz/fuzz_NAME.c), bench_NAME (tests/bench/bench_NAME.py) or bench-NAME
(tests/bench/bench-NAME.c). The words of a case occur together in the name of a test function or of
a parameter. In the comment at the top of a file, every text in brackets is such a reference.
"""
import re
import sys

import lint

TESTS = {
    r"test-[\w-]+": "tests/unit/{}.c",
    r"test_\w+": "tests/integration/{}.py",
    r"fuzz_\w+": "tests/fuzz/{}.c",
    r"bench_\w+": "tests/bench/{}.py",
    r"bench-[\w-]+": "tests/bench/{}.c",
}
ANYWHERE = re.compile(r"\[((?:test|fuzz|bench)[-_]\w[^\[\]]*)\]")
AT_THE_TOP = re.compile(r"\s\[([a-z][^\[\]]*[-_: ][^\[\]]+)\](?=\s*(?:\[[^\]]*\]\s*)*(?:\*/)?$)", re.MULTILINE)
FIRST_COMMENT = re.compile(r"(?:/\*[^\n]*SPDX[^\n]*\*/\s*)?(/\*.*?\*/)", re.DOTALL)


def find_file(root, name):
    """Returns the file of a test, or None."""
    for pattern, place in TESTS.items():
        if re.fullmatch(pattern, name):
            path = root / place.format(name)
            return path if path.exists() else None
    return None


def names_in(path):
    """Returns the names of a test's functions and its strings, their words joined by "_"."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"\b(?:test_|RUN\()(\w+)[()]", text) + re.findall(r'"([\w -]+)"', text)
    return {"_" + re.sub(r"\W", "_", name).lower() + "_" for name in found}


def findings(root, reference):
    """Yields the errors in a reference, the text between brackets."""
    path = None
    if reference.startswith("by construction"):
        return
    for part in re.split(r"[;,]\s*", re.sub(r"\n\s*\*\s*", " ", reference)):
        name, colon, case = part.partition(": ")
        if colon or re.match(r"(test|fuzz|bench)[-_]", part):
            path = find_file(root, name)
            if path is None:
                yield f"there is no test \"{name}\""
                continue
        else:
            case = part
        words = "_" + re.sub(r"\W", "_", case.removeprefix("test_")) + "_"
        if case and path and not any(words.lower() in found for found in names_in(path)):
            yield f"{path.name} has no case \"{case}\""
        elif case and not path and not colon:
            yield f"\"{part}\" names no test"


def check(root):
    for path in lint.files(root, ".c", ".h"):
        if path.parts[0] == "tests":
            continue
        text = (root / path).read_text(encoding="utf-8")
        top = FIRST_COMMENT.match(text)
        end = top.end() if top else 0
        for pattern, begin in ((AT_THE_TOP, 0), (ANYWHERE, end)):
            for match in pattern.finditer(text, begin, *([end] if begin == 0 else [])):
                number = text.count("\n", 0, match.start()) + 1
                for message in findings(root, match[1]):
                    yield f"{path}:{number}: {message}"


TREE = {
    "tests/unit/test-a.c": "static void test_some_case(void)\n",
    "tests/integration/test_b.py": "@pytest.mark.parametrize(\"zoo\", [\"one word\"])\ndef test_other(zoo):\n",
    "tests/fuzz/fuzz_c.c": "",
}
SELF_TEST = [
    ({**TREE, "a.c": "/* SPDX */\n/*\n * (1) x  [test-a: some case; test_b: other,\n *      one word; fuzz_c]\n */\n/* [not one] */\n"}, 0),
    ({**TREE, "a.c": "/* x  [test-a: none] [test-n] [test_b: other, more] */\nint a[ONE];\n"}, 3),
    ({**TREE, "a.c": "/* x  [b: other] */\nint a;\n/* [fuzz_d] */\n"}, 2),
    ({**TREE, "tests/unit/test-a.c": "/* x  [test-n] */\n"}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
