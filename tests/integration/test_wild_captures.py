# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Captures with valid checksums and senseless rows in every table: each verb ends by itself, with a
documented status, and with a message if it fails. Every output of --json is valid JSON."""
import json
import os
import subprocess

import pytest

from slices import SANITIZED, SOAK, part

# A soak tries all seeds with all verbs, which takes two hours. Other runs try fewer seeds; runs
# with a sanitizer, which are ten times slower, try the fewest.
N, GROUP = 2000 if SOAK else 50 if SANITIZED else 300, 50
VERBS = [
    ["info", "--json"], ["report"], ["report", "--tree", "--json"], ["report", "--by", "thread", "--json"], ["report", "--by", "cgroup"],
    ["report", "--inline", "--lines"], ["report", "--callers", "main"], ["memory"], ["memory", "--leaks", "--json"], ["memory", "--peak"],
    ["marks", "--json"], ["counters", "--json"], ["dump", "--limit", "0", "--json"], ["dump", "--table", "sample", "--resolve", "--json"],
    ["dump", "--table", "mark", "--resolve"], ["dump", "--table", "alloc", "--resolve"],
    ["export", "--to", "folded"], ["export", "--to", "pprof", "--force", "-o", "NEW"], ["export", "--to", "firefox", "--force", "-o", "NEW"],
    ["export", "--to", "speedscope", "--force", "-o", "NEW"], ["export", "--to", "folded", "--value", "inuse-space"],
    ["export", "--to", "svg", "--compare", "OTHER"], ["export", "--to", "callgrind"], ["export", "--to", "chrome"], ["export", "--to", "perf-script"],
    ["export", "--to", "heaptrack"], ["export", "--to", "massif"], ["export", "--to", "syscap", "--force", "-o", "NEW"],
    ["diff", "SAME", "--json"], ["diff", "OTHER", "--json"], ["annotate", "main"], ["verify", "--json"],
    ["compact", "--force", "-o", "NEW"], ["cut", "--from", "0.1s", "--to", "0.5s", "--force", "-o", "NEW"], ["cat", "OTHER", "--force", "-o", "NEW"],
    ["recover", "--force", "-o", "NEW"], ["symbolize"],
]
# including the statuses for captures that are too large, damaged, or lack the data; a signal is a
# failure
STATUSES = range(0, 9)


@pytest.mark.parametrize("first", part(range(1, N, GROUP), 3))
def test_each_verb_ends(tmp_path, first):
    subprocess.run([os.environ["MAKE_WILD"], str(first), str(first + GROUP - 1), tmp_path], check=True, timeout=120)
    for seed in range(first, first + GROUP):
        for verb in VERBS if SOAK else part(VERBS, 4, seed):
            words = {"NEW": tmp_path / "new", "SAME": tmp_path / f"{seed}.cap", "OTHER": tmp_path / f"{first}.cap"}
            arguments = [verb[0], tmp_path / f"{seed}.cap", *(words.get(word, word) for word in verb[1:])]
            done = subprocess.run([os.environ["PROFCAPTURE"], *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
            said = (seed, verb, done.returncode, done.stderr[-2000:])
            assert done.returncode in STATUSES, said
            assert done.returncode == 0 or done.stderr.strip() or done.stdout.strip(), said
            if "--json" in verb and done.stdout:
                json.loads(done.stdout)
