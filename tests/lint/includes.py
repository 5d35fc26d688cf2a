#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Checks which folder includes which headers. `includes.py ROOT --table` prints the rules in the
form of the table in docs/architecture.md, which has to be identical."""
import re
import sys
from pathlib import Path

import lint

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Headers that only some folders may include, by library. Every folder may include all others of the
# libc and the kernel.
LIBRARIES = {
    "glib": r"(glib|glibconfig)([-./].*|$)|glib-unix\.h",
    "gio": r"(gio|gobject|gmodule)([-./].*|$)",
    "polkit": r"polkit/.*",
    "zstd": r"zstd.*\.h|zdict\.h",
    "zlib": r"zlib\.h",
    "xxhash": r"xxhash\.h",
    "elf": r"(libelf|gelf)\.h|elfutils/(?!libdw).*",
    "dw": r"dwarf\.h|elfutils/libdw.*",
    "seccomp": r"seccomp\.h",
    "sqlite": r"sqlite3\.h",
    "bpf": r"bpf/.*",
    "stdio": r"stdio\.h",
}

# Folder: the headers and folders of this tree that it may include, and the libraries that it may
# use. The longest matching folder decides.
ALLOWED = {
    "base": (["base", "arch/base.h"], []),
    "arch": (["arch", "base"], []),
    "libcapture": (["libcapture", "base", "arch/base.h"], ["zstd", "xxhash", "stdio"]),
    "libcollector": (["libcollector/prof-collector.h", "arch/base.h"], []),
    "libcollector/ring": (["libcollector/ring", "base", "arch/base.h", "arch/cpu.h"], []),
    "libcollector/unwind": (["libcollector/unwind", "base", "arch"], []),
    "libcollector/register": (
        [
            "libcollector/register",
            "libcollector/ring",
            "libcollector/unwind",
            "libcollector/control.h",
            "libcollector/prof-collector.h",
            "base",
            "arch",
        ],
        [],
    ),
    "libcollector/hooks": (["libcollector", "base", "arch"], []),
    "daemon": (
        ["daemon/deferred-close.h", "daemon/protocol.h", "daemon/interp-protocol.h", "daemon/datagram.h", "daemon/filter.h", "daemon/process-access.h", "daemon/stranger.h", "base", "arch"],
        ["glib", "seccomp", "stdio"],
    ),
    # daemon/protocol.h uses the format's enums in its messages; profd does not link the format's
    # functions.
    "daemon/broker": (
        [
            "daemon/broker",
            "daemon/deferred-close.h",
            "daemon/protocol.h",
            "daemon/interp-protocol.h",
            "daemon/files-protocol.h",
            "daemon/datagram.h",
            "daemon/filter.h",
            "daemon/process-access.h",
            "daemon/stranger.h",
            "libcapture/prof-capture.h",
            "libcollector/control.h",
            "base",
            "arch",
        ],
        ["glib", "gio", "polkit", "seccomp", "bpf", "stdio"],
    ),
    # The engine's folders are layers: a folder lists those below it that it may include.
    "daemon/engine": (["daemon/engine", "daemon/deferred-close.h", "daemon/protocol.h", "base", "arch"], ["glib", "stdio"]),
    "daemon/engine/out": (["daemon/engine/out", "daemon/protocol.h", "libcapture/prof-capture.h", "base", "arch"], ["glib", "stdio"]),
    "daemon/engine/model": (["daemon/engine/model", "daemon/engine/interp", "daemon/engine/out", "daemon/protocol.h", "base", "arch"], ["glib", "stdio"]),
    "daemon/engine/unwind": (
        ["daemon/engine/unwind", "daemon/engine/interp", "daemon/engine/model", "libcapture/prof-capture.h", "base", "arch"],
        ["glib", "stdio", "zlib", "zstd"],
    ),
    "daemon/engine/interp": (["daemon/engine/interp", "daemon/interp-protocol.h", "base", "arch"], ["glib"]),
    "daemon/engine/perf": (
        [
            "daemon/engine/perf",
            "daemon/engine/unwind",
            "daemon/engine/interp",
            "daemon/engine/model",
            "daemon/engine/out",
            "daemon/protocol.h",
            "libcapture/prof-capture.h",
            "libcollector/control.h",
            "base",
            "arch",
        ],
        ["glib", "stdio"],
    ),
    "daemon/engine/alloc": (
        [
            "daemon/engine/alloc",
            "daemon/engine/model",
            "daemon/engine/out",
            "daemon/engine/huge-pages.h",
            "daemon/protocol.h",
            "libcollector/control.h",
            "base",
            "arch",
        ],
        ["glib", "stdio"],
    ),
    "daemon/engine/peers": (
        [
            "daemon/engine/peers",
            "daemon/engine/alloc",
            "daemon/engine/interp",
            "daemon/engine/model",
            "daemon/engine/out",
            "daemon/engine/huge-pages.h",
            "daemon/deferred-close.h",
            "daemon/protocol.h",
            "daemon/stranger.h",
            "libcapture/prof-capture.h",
            "libcollector/control.h",
            "libcollector/ring",
            "base",
            "arch",
        ],
        ["glib", "stdio"],
    ),
    "daemon/engine/session": (
        [
            "daemon/engine",
            "daemon/deferred-close.h",
            "daemon/protocol.h",
            "daemon/filter.h",
            "daemon/stranger.h",
            "libcapture/prof-capture.h",
            "libcollector/control.h",
            "base",
            "arch",
        ],
        ["glib", "seccomp", "stdio"],
    ),
    "daemon/files": (
        [
            "daemon/files",
            "daemon/protocol.h",
            "daemon/files-protocol.h",
            "daemon/datagram.h",
            "daemon/filter.h",
            "daemon/process-access.h",
            "base",
            "arch",
        ],
        ["seccomp", "stdio"],
    ),
    "tools/common": (["tools/common", "libcapture/prof-capture.h", "base", "arch"], ["glib", "gio", "stdio"]),
    "tools/symbols": (["tools/symbols", "tools/common", "libcapture/prof-capture.h", "base", "arch"], ["glib", "gio", "elf", "dw", "stdio"]),
    "tools/present": (["tools/present", "tools/common/cct.h", "tools/common/json.h", "tools/common/text.h", "tools/common/out.h", "base", "arch"], ["glib", "zlib"]),
    "tools/profile": (["tools/profile", "tools/symbols", "tools/common", "tools/present/table.h", "libcapture/prof-capture.h", "base", "arch"], ["glib"]),
    "tools/profctl": (["tools", "daemon/broker/events.h", "libcapture/prof-capture.h", "libcollector/control.h", "libcollector/attach.h", "base", "arch"], ["glib", "gio", "elf", "dw", "stdio"]),
    "tools/profcapture": (["tools", "libcapture/prof-capture.h", "base", "arch"], ["glib", "gio", "elf", "dw", "sqlite", "stdio"]),
    "docs/examples": ([], ["glib", "gio", "stdio"]),
    "tests": (None, list(LIBRARIES)),
}


WHAT = {
    "base": "clock, priority queue, hash, loops, bounded reads: header-only",
    "arch": "CPU-dependent code, the stack unwinder, helpers that every folder shares",
    "libcapture": "the capture file: writer, reader, cursor; no GLib, embeddable",
    "libcollector": "public headers, and the protocols between a profiled process and profd",
    "libcollector/ring": "a process's ring: its producer and the engine's consumer",
    "libcollector/unwind": "the calling thread's own stack, and the modules of the process",
    "libcollector/register": "how a process gets its rings, and starts recordings",
    "libcollector/hooks": "what a program calls: marks, counters, stacks, the allocator's names",
    "daemon": "code that two of the daemon's programs share",
    "daemon/broker": "profd",
    "daemon/engine": "profd-engine: main(), and what its folders share",
    "daemon/engine/out": "rows, blocks, ids, losses, the writer's thread",
    "daemon/engine/model": "what runs: tasks, mappings, images, kernel code",
    "daemon/engine/unwind": "stacks of samples; tables of files",
    "daemon/engine/interp": "interpreters: their files, frames and functions",
    "daemon/engine/perf": "what the kernel says: rings, records, events, samples",
    "daemon/engine/alloc": "blocks and rows of allocations",
    "daemon/engine/peers": "processes that record from inside: connections, rings, decoding",
    "daemon/engine/session": "one recording: the loop, its states, its sources",
    "daemon/files": "profd-files",
    "tools/common": "what profctl and profcapture share",
    "tools/symbols": "names: debug files, DWARF, ELF, generated code, demangling",
    "tools/present": "renderers: they know no verb",
    "tools/profile": "queries: functions, stacks, call trees; they know no verb",
    "tools/profctl": "profctl",
    "tools/profcapture": "profcapture",
    "docs/examples": "programs that use profd",
}
# Headers of the libc that only some folders may include; the table does not list them.
UNLISTED = {"stdio"}


def table():
    """A row for each folder except tests/, which may include everything."""
    yield "| folder | contents | own headers | libraries |"
    yield "|---|---|---|---|"
    for folder, what in WHAT.items():
        own_headers, libraries = ALLOWED[folder]
        headers = [name for name in own_headers if name != folder and not folder.startswith(name + "/")]
        cells = [folder + "/", what, ", ".join(headers), ", ".join(sorted(set(libraries) - UNLISTED))]
        yield "| " + " | ".join(cell or "-" for cell in cells) + " |"


def rules(path):
    folder = path.parent
    while str(folder) != ".":
        if str(folder) in ALLOWED:
            return str(folder), *ALLOWED[str(folder)]
        folder = folder.parent
    return None


def own(included, allowed):
    return allowed is None or any(included == name or included.startswith(name + "/") for name in allowed)


def library(included):
    return next((name for name, pattern in LIBRARIES.items() if re.fullmatch(pattern, included)), None)


def finding(root, path, rule, quote, included):
    folder, allowed, libraries = rule
    is_own = (root / included).exists() or included.split("/")[0] in {name.split("/")[0] for name in ALLOWED}
    if included in ("config.h",) or (quote == '"' and included.endswith("-generated.h")):
        return None
    if is_own:
        return None if own(included, allowed) else f"{folder}/ may not include {included}"
    if quote == '"':
        return f'"{included}" is not a path from the source root'
    used = library(included)
    if used and used not in libraries:
        return f"{folder}/ may not use {used} (<{included}>)"
    return None


def check(root, *arguments):
    if arguments == ("--table",):
        yield from table()
        return
    page = root / "docs/architecture.md"
    if page.exists() and "\n".join(table()) + "\n" not in page.read_text(encoding="utf-8"):
        yield f"{page.relative_to(root)}:1: the table of folders is not that of includes.py ROOT --table"
    for path in lint.files(root, ".c", ".h"):
        rule = rules(path)
        if rule is None:
            yield f"{path}:1: no rule says what this folder may include"
            continue
        for number, line in lint.lines(root, path):
            match = INCLUDE.match(line)
            message = match and finding(root, path, rule, match[1], match[2])
            if message:
                yield f"{path}:{number}: {message}"


SELF_TEST = [
    ({"libcapture/a.c": "#include <stdint.h>\n#include <zstd.h>\n#include \"arch/base.h\"\n"}, 0),
    ({"libcapture/a.c": "#include <glib.h>\n"}, 1),
    ({"libcapture/a.c": "#include <glib/gi18n.h>\n#include <gio/gio.h>\n#include <stdio.h>\n"}, 2),
    ({"libcollector/a.c": "#include <stdio.h>\n#include <glib.h>\n#include <sys/mman.h>\n"}, 2),
    ({"libcapture/a.c": "#include \"daemon/protocol.h\"\n"}, 1),
    ({"libcapture/a.c": "#include \"arch/unwind.h\"\n"}, 1),
    ({"libcapture/a.c": "#include \"b.h\"\n", "libcapture/b.h": ""}, 1),
    ({"arch/a.h": "#include \"libcapture/prof-capture.h\"\n"}, 1),
    ({"daemon/broker/a.c": "#include \"libcapture/reader.h\"\n", "libcapture/reader.h": ""}, 1),
    ({"daemon/broker/a.c": "#include <polkit/polkit.h>\n"}, 0),
    ({"daemon/engine/a.c": "#include <polkit/polkit.h>\n"}, 1),
    ({"daemon/engine/a.c": "#include <glib.h>\n#include <gio/gio.h>\n"}, 1),
    ({"daemon/engine/a.c": "#include <libelf.h>\n#include <elf.h>\n"}, 1),
    ({"daemon/engine/a.c": "#include \"daemon/broker/a.h\"\n"}, 1),
    ({"daemon/engine/model/a.c": "#include \"daemon/engine/perf/a.h\"\n#include \"daemon/engine/out/a.h\"\n"}, 1),
    ({"tools/profctl/a.c": "#include \"libcapture/reader.h\"\n"}, 1),
    ({"tools/profctl/a.c": "#include \"libcapture/prof-capture.h\"\n#include <elfutils/libdw.h>\n"}, 0),
    ({"tools/profile/a.c": "#include \"tools/profcapture/reader.h\"\n#include <stdio.h>\n"}, 2),
    ({"elsewhere/a.c": ""}, 1),
    ({"docs/architecture.md": "\n".join(table()) + "\n"}, 0),
    ({"docs/architecture.md": "| arch/ | anything | libc |\n"}, 1),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
