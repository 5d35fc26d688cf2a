# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Processes that look like interpreters, with states, lists, types and names that are wrong, affect only
their own rows: programs of each language beside them have all of their functions, and no terminal obeys
the names."""
import collections
import os
import shlex
import shutil

import pytest

from captures import unprintable
from interpreted_chains import Capture, rights, settled
from recordings import recorded
from slices import part

FAKES = {
    "FAKE_PYTHON": ["cycle", "lock", "nothing", "copy", "key", "copies", "thread", "type"],
    "FAKE_RUBY": ["deep", "lines", "text", "nothing", "position", "runs"],
    "FAKE_PHP": ["deep", "nothing", "kind", "generators", "fiber", "open", "suspended", "unlinked", "released"],
    "FAKE_PERL": ["deep", "nothing", "type", "index", "sub", "depth", "code"],
    "FAKE_NODE": ["deep", "text", "nothing", "loop", "type", "entry", "thread"],
}
FREE_THREADED = {"lock", "copy", "copies"}  # cases for the free-threaded build of fake-python
# Each round has one fake of each language, with the next of its cases.
ROUNDS = [{name: cases[i % len(cases)] for name, cases in FAKES.items()} for i in range(max(map(len, FAKES.values())))]
# Each program computes in turn() for 0.6 s of CPU time. A call takes much longer than reading the clock.
TURNING = {
    "python": ["/usr/bin/python3", "-c", "import time\ndef turn():\n for i in range(10000): pass\n"
               "end = time.process_time() + 0.6\nwhile time.process_time() < end: turn()"],
    "ruby": ["ruby", "-e", "def turn\n i = 0\n i += 1 while i < 10000\nend\ndef used = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)\n"
             "last = used + 0.6\nturn while used < last"],
    "php": ["php", "-r", "function turn() { for ($i = 0; $i < 10000; $i++); }\n"
            "function used() { $u = getrusage(); return $u['ru_utime.tv_sec'] * 1e6 + $u['ru_utime.tv_usec']; }\n"
            "$end = used() + 6e5;\nwhile (used() < $end) turn();"],
    "perl": ["perl", "-e", "sub turn { for (1 .. 10000) { } } my $end = (times)[0] + 0.6; turn() while (times)[0] < $end"],
    "javascript": ["node", "--no-opt", "-e", "function turn() { for (let i = 0; i < 10000; i++); }\n"
                   "const start = process.cpuUsage();\nwhile (process.cpuUsage(start).user < 6e5) turn();"],
}


@pytest.mark.parametrize("cases", [dict.fromkeys(FAKES, "names"), *part(ROUNDS, 1)], ids=lambda cases: "-".join(cases.values()))
def test_neighbors(profctl, profcapture, capture, tmp_path, cases):
    kinds = [kind for kind, command in TURNING.items() if shutil.which(command[0])]
    # All run on one CPU, and the fakes have a lower priority, so that few samples are the fakes'.
    fakes = [f'nice {os.environ[name + "_THREADS" * (case in FREE_THREADED)]} {case} & fakes="$fakes $!"'
             for name, case in cases.items()]
    programs = [f"sh -c 'echo $$ > \"$0\"; exec \"$@\"' {tmp_path / kind} {shlex.join(TURNING[kind])}" for kind in kinds]
    recorded(profctl, "-F", 499, "-o", capture, "--", "taskset", "-c", min(os.sched_getaffinity(0)),
             "sh", "-c", "\n".join([*fakes, *programs, "kill $fakes"]))
    pids = {int((tmp_path / kind).read_text()): kind for kind in kinds}
    samples, others = collections.defaultdict(list), collections.defaultdict(set)
    for sample in Capture(profcapture, capture).samples:
        samples[sample["pid"]].append(sample)
        if sample["pid"] not in pids:
            others[sample["pid"]] |= {frame["kind"] for frame in sample["frames"]}
            assert not any("turn" in frame["name"] for frame in sample["frames"] if frame["kind"] in kinds)
    assert len(others) >= len(cases)
    if "names" in cases.values():  # these fakes execute functions, whose names are shown
        assert set().union(*others.values()) >= {"python", "ruby", "javascript"}
    for pid, kind in pids.items():
        counts = collections.Counter()
        for sample in settled(samples[pid]):
            counts[sample["interpreter"]] += 1
            names = [frame["name"] for frame in sample["frames"] if frame["kind"] == kind]
            counts["turn"] += any("turn" in name for name in names)
            counts["since"] += counts["turn"] > 0 and sample["interpreter"] == "complete"  # complete samples since the first turn
            assert not any("ffff" in name or "[31m" in name for name in names), names
        print(kind, counts)
        assert counts["turn"] > 100 and counts["turn"] > 0.7 * counts["since"]
        assert counts["torn"] + counts["missing"] <= 5 + 0.01 * counts["complete"]
    texts = [profcapture(*verb, capture).stdout for verb in
             (["report", "--limit", 0], ["report", "--tree", "--limit", 0], ["export", "--to", "folded"])]
    assert not any(map(unprintable, texts)) and ("\\x1b[31m" in texts[0]) == ("names" in cases.values())
