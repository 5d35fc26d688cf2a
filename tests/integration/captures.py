# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Captures of generated rows, and command lines of verbs of profcapture that read captures."""
import os
import subprocess

MAKE_CAPTURE = os.environ["MAKE_CAPTURE"]
HEADER_BYTES = 256
READERS = ["info", "dump", "report", "memory", "marks", "events", "counters", "verify"]
MAKERS = ["recover", "compact", "cut"]
QUERY = "SELECT (SELECT count(*) FROM hot_functions), (SELECT count(*) FROM allocations), (SELECT sum(duration_ns) FROM thread_states)"
TABLE_FORMATS = ["sqlite", "csv", "ndjson"]


def make(path, *options):
    subprocess.run([MAKE_CAPTURE, *map(str, options), path], check=True, timeout=120)
    return path


def command(verb, file, new=None):
    """Returns the arguments of a verb that reads file and, if it makes a file, writes to new."""
    if verb in TABLE_FORMATS:
        return ["export", file, "--to", verb, *([] if verb == "sqlite" else ["--table", "sample"]), "-q", "-o", new]
    options = {"cut": ["--from", "0"], "sql": [QUERY]}.get(verb, [])
    return [verb, file, *options, *(["-o", new] if verb in MAKERS else [])]


def unprintable(text):
    """Returns the characters that a terminal would act on, except for newlines and tabs."""
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7f <= ord(c) < 0xa0 or ord(c) in (0x202e, 0x2066, 0xfeff)]


def check_cut(profcapture, *command):
    """Checks that a list that is cut by --limit says that it is cut, and how to get the rest; and
    that its total number of rows, if it is given, is right."""
    whole, cut = (profcapture.json(*command, "--limit", limit) for limit in (0, 1))
    assert not whole["truncated"] and cut["truncated"], command
    if "rows" in whole["data"]:
        assert len(whole["data"]["rows"]) > len(cut["data"]["rows"]) and cut["total_rows"] in (None, len(whole["data"]["rows"]))
    few, all_rows = (profcapture(*command, "--limit", limit).stdout for limit in (1, 0))
    assert "(--limit 0" in few and "(--limit 0" not in all_rows, command


def rows(profcapture, capture, table, *options):
    return profcapture.json("dump", capture, "--table", table, "--limit", 0, *options)["data"]["rows"]
