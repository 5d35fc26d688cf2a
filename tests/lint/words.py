#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Rejects goto outside libcollector, libc's and GLib's message texts in the engine, markers of
unfinished work, paths and hosts of one machine, some wordings of messages and comments, and
parts of a message that are joined without a space."""
import re
import sys

import lint

# (pattern, suffixes of the files to search, exempt folder, message). The patterns are written so
# that they do not match this file.
RULES = [
    (r"\b(TO" r"DO|FIX" r"ME|X{3}|HA" r"CK)\b", (), None, "a mark of unfinished work"),
    (r"(?<![\w./])/(work|home|root|Users)/\w", (), None, "a path of one machine"),
    (r"\b(deb|archive|ports|security|snapshot|ftp)\.(debian|ubuntu)\.(org|com)\b", (), None, "a package host"),
    (r"\bhttps?://(?!localhost\b|127\.|[\w.-]*\.(org|com|net|dev|io|app|example)\b)[\w.-]+", (), None, "a host that not everybody reaches"),
    (r"\b(pypi\.org|registry\.npmjs|proxy\.golang|crates\.io)\b", (), None, "a registry host"),
    (r"'(profctl|profcapture) [^'\"]*%s", (".c",), "tests", "a command in quotes whose file may need quotes itself"),
    (r"(/\*|//|\"\"\")\s?(What|Of|Who|One that) [a-z]", (".c", ".h", ".js", ".py"), None, "a comment that stands for a noun: name the noun"),
    (r"[ \t]+$", (".c", ".h", ".py", ".sh", ".build", ".md"), None, "white space at the end of the line"),
]
# (pattern, whether it applies to a path, message), for code only.
CODE_RULES = [
    (r"\bgoto\b", lambda path: path.parts[0] != "libcollector", "goto: use a cleanup attribute"),
    (r"\b(g_strerror|g_strsignal|g_assert\w*|strerror|strsignal)\(", lambda path: path.parts[:2] == ("daemon", "engine"),
     "behind its filter the engine cannot open libc's and GLib's texts: use prof_strerror(), or assert() without g_"),
]
# Two parts of a message without a space between them; the second part begins with a word.
GLUED = re.compile(r'(?:[a-z,.;:]"|PRI\w+)\s+"[A-Za-z]{2}')
BINARY = (".cap", ".bin", ".png", ".mo", ".gz", ".zst", ".o", ".so")
COMPILED = [(re.compile(pattern), suffixes, free, why) for pattern, suffixes, free, why in RULES]
CODE = [(re.compile(pattern), applies, why) for pattern, applies, why in CODE_RULES]


def comments_blanked(text):
    """Returns C code with comments and strings blanked and line numbers kept, for rules about code."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)


def check(root):
    for path in lint.files(root):
        if path.name.endswith(BINARY) or "corpus" in path.parts or "golden" in path.parts:
            continue
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        code = comments_blanked(text).splitlines() if path.suffix in (".c", ".h") else []
        for pattern, applies, why in CODE:
            for number, line in enumerate(code, 1):
                if applies(path) and pattern.search(line):
                    yield f"{path}:{number}: {why}"
        if path.suffix == ".c" and path.parts[0] not in ("tests", "arch"):
            for match in GLUED.finditer(text):
                yield f"{path}:{text.count(chr(10), 0, match.end()) + 1}: a space is missing between two parts of a message"
        for pattern, suffixes, free, why in COMPILED:
            if (suffixes and not path.name.endswith(suffixes)) or (free and path.parts[0] == free):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if pattern.search(line):
                    yield f"{path}:{number}: {why}"


SELF_TEST = [
    ({"a.c": "/* goto the shop */\nint a; char *b = \"goto\";\n", "libcollector/a.c": "goto out;\n"}, 0),
    ({"daemon/a.c": "int f(void) { goto out; out: return 0; }\n"}, 1),
    ({"daemon/engine/a.c": "/* g_strerror() */\nassert(prof_strerror(-1));\n", "daemon/broker/a.c": "g_strerror(1);\n"}, 0),
    ({"daemon/engine/a.c": "puts(g_strerror(1));\ng_assert(1);\n"}, 2),
    ({"a.md": "TO" "DO: write\n", "b.c": "/* FIX" "ME */\n"}, 2),
    ({"a.md": "see /wor" "k/main and /ro" "ot/x\nand /usr/lib and /proc/self/root/x\n"}, 1),
    ({"a.sh": "curl ht" "tp://deb.deb" "ian.org/x\n", "b.py": "url = 'htt" "ps://cache.internal:3142/'\n"}, 2),
    ({"a.py": "x = 1 \n"}, 1),
    ({"a.c": "f(\"%\" PRIu64\n  \" rows\"); f(\"of \"\n\"the\"); f(\"%\" PRIu64 \"Z\");\n"}, 0),
    ({"a.c": "f(\"%\" PRIu64\n  \"rows\"); f(\"of\"\n\"the\");\n"}, 2),
    ({"a.c": "puts(\"try: profctl list %s\");\nputs(\"'profctl list' lists %s\");\n"}, 0),
    ({"a.c": "puts(\"'profctl list %s' lists it\");\n", "b.h": "/* Wh" "at it is. */\nint a; /* the item that it is */\n"}, 2),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
