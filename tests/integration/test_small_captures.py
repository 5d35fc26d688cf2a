# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Small captures of millions of rows: no verb needs more memory than 256 MiB plus 100 times the
file's size. A verb that would need more fails, and its error names what is too large."""
import json
import os
import subprocess

import pytest

from slices import part

VERBS = {
    "info": ["info"],
    "summary": ["summary"],
    "report": ["report"],
    "redacted": ["export", "--to", "html", "--redact"],
    "tree": ["report", "--tree"],
    "threads": ["report", "--by", "thread"],
    "waits": ["report", "--metric", "off-cpu"],
    "states": ["report", "--by", "state"],
    "locks": ["locks"],
    "path": ["critical-path"],
    "annotate": ["annotate", None, "main"],
    "memory": ["memory"],
    "leaks": ["memory", "--leaks"],
    "peak": ["memory", "--peak"],
    "marks": ["marks"],
    "events": ["events"],
    "counters": ["counters"],
    "values": ["counters", "--timeline"],
    "dump": ["dump", "--limit", "1000"],
    "folded": ["export", "--to", "folded"],
    "pprof": ["export", "--to", "pprof"],
    "firefox": ["export", "--to", "firefox"],
    "speedscope": ["export", "--to", "speedscope"],
    "svg": ["export", "--to", "svg"],
    "callgrind": ["export", "--to", "callgrind"],
    "chrome": ["export", "--to", "chrome"],
    "perf-script": ["export", "--to", "perf-script"],
    "compare": ["export", None, "--to", "folded", "--compare", None],
    "page": ["export", "--to", "html"],
    "pages": ["export", None, "--to", "html", "--compare", None],
    "sources": ["html", None, "--with-source", "--force", "-o", "/dev/stdout"],
    "heaptrack": ["export", "--to", "heaptrack", "--force", "-o", "/dev/stdout"],
    "massif": ["export", "--to", "massif"],
    "syscap": ["export", "--to", "syscap", "--force", "-o", "/dev/stdout"],
    "sql": ["sql", None, "SELECT * FROM hot_functions ORDER BY self DESC LIMIT 10"],
    "lifetimes": ["sql", None, "SELECT function, sum(bytes) FROM allocations GROUP BY call"],
    "database": ["export", "--to", "sqlite", None, "--force", "-o", "/dev/stdout"],
    "inuse": ["export", "--to", "folded", "--value", "inuse-space"],
    "diff": ["diff", None, None],
    "compact": ["compact", None, "--force", "-o", "/dev/stdout"],
    "cut": ["cut", None, "--from", "0.001s", "--force", "-o", "/dev/stdout"],
    "recover": ["recover", None, "--force", "-o", "/dev/stdout"],
    "verify": ["verify"],
    "symbolize": ["symbolize"],
}

# {kind of capture that exceeds the limit: (the verb that fails, what its error names)}
TOO_MUCH = {
    "open-spans": ("marks", "marks and open spans"),
    "live-blocks": ("memory", "live blocks"),
    "jit": ("report", "ranges of generated code"),
    "samples": ("pprof", "samples"),
    "deep-stacks": ("report", "stacks"),
    "threads": ("threads", "threads"),
    "images": ("symbolize", "images"),
}
KINDS = subprocess.run([os.environ["MAKE_DENSE"], "--list"], check=True, capture_output=True, text=True).stdout.split()


def measure(path, verb, tmp_path):
    arguments = VERBS[verb] if None in VERBS[verb] else [*VERBS[verb], None]
    arguments = [tmp_path / "new.cap" if a == "/dev/stdout" else path if a is None else a for a in arguments]
    done = subprocess.run([os.environ["PEAK_MEMORY"], os.environ["PROFCAPTURE"], *arguments], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, (verb, done.stderr)
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("kind", part(KINDS, 6))
def test_memory(tmp_path, kind):
    path = tmp_path / f"{kind}.cap"
    subprocess.run([os.environ["MAKE_DENSE"], kind, path], check=True, timeout=120)
    too_much, state = TOO_MUCH.get(kind, (None, None))
    for verb in {*([too_much] if too_much else []), *part(VERBS, 2, KINDS.index(kind))}:
        took, said = measure(path, verb, tmp_path)
        assert took["bytes"] <= (256 << 20) + 100 * path.stat().st_size, (kind, verb, took, said)
        assert took["status"] in (0, 1, 2, 3, 6, 8), (kind, verb, took, said)
        assert took["status"] != 3 or "MiB, the limit for a capture of this size" in said, (kind, verb, said)
        if verb == too_much:
            assert took["status"] == 3 and f"the {state} of '{path}' need more than " in said, (kind, verb, took, said)
