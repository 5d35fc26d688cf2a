# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Hostile targets write arbitrary data into the memory that they share with the engine, beside an
honest target.

tests/tools/hostile.c lies, and collect.c is honest: the capture has all of collect.c's marks, and
nothing false from hostile.c.
"""
import os
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from captures import rows
from recordings import children, until
from slices import SANITIZED, part

pytestmark = pytest.mark.usefixtures("nothing_is_left")
COLLECT, HOSTILE = os.environ["COLLECT"], os.environ["HOSTILE"]
HONEST = 400
MIB = 1 << 20
FEW = {"perf-ring", "perf-lost-samples", "unwind-backlog"}
SHARE = 0.6
# The maximum of the engine's memory in each flood, by its promised bounds (collectors.h, writer.c).
# Waiting records may take 48 MiB, in arrays that grow by doubling: 64 MiB, and briefly the previous
# 32 MiB. The writer's queue may take 64 MiB, the dictionaries of an epoch 128 MiB of strings and 2 M
# frames and stacks, live blocks 400 MiB (heap-budget.h). An engine without bounds would reach its
# limit of 1 GiB in a second or two.
MOST = {
    "strings": 400 * MIB, "stacks": 400 * MIB, "blocks": 700 * MIB, "logs": 200 * MIB, "counters": 200 * MIB, "records": 200 * MIB,
    "rings": 60 * MIB,
}

# For each lie, the wrong part for which the ring is quarantined; None: the ring is not quarantined.
LIES = {
    "beyond": "position", "backwards": "position", "zero": "length", "huge": "length", "misaligned": "length", "type": "type",
    "string": "payload", "kind": "payload", "alloc": "payload", "calls": "payload", "state": "state", "lost": "counts",
    "attempted": "counts", "tid": "tid", "nobody": "tid",
    "parent-none": None, "parent-init": None, "parent-nobody": None, "parent-negative": None, "parent-self": None,
    "parent-stranger": None, "parent-sibling": None,
    "no-ring": None, "ids": None, "future": None, "busy": None, "past": None, "request": None, "hello": None,
}
# CORRUPT: the number of records counted as lost; other lies: 1 with a quarantine, 0 without. GOOD:
# the number of marks; "past": any number above 1; other lies: 1.
CORRUPT = {"kind": 2, "alloc": 2, "tid": 2, "nobody": 2, "no-ring": 1, "ids": 1}
GOOD = {"ids": 2, "future": 2, "request": 2}
RACES = ["changing"]


class Watch:
    """The engine while it runs: the maximum of its own memory in bytes, and its share of a CPU."""

    def __init__(self):
        self.anonymous, self.share, self.first = 0, 0, None

    def __call__(self, engine):
        try:
            status = Path(f"/proc/{engine}/status").read_text()
            fields = Path(f"/proc/{engine}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        self.anonymous = max(self.anonymous, int(found[1]) * 1024 if found else 0)
        now, used = time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.first = self.first or (now, used)
        if now - self.first[0] > 0.5:
            self.share = (used - self.first[1]) / (now - self.first[0])


def engine_of(profctl):
    return children(children(profctl.pid).get("profd", 0)).get("profd-engine")


@pytest.fixture
def beside(recorder, profcapture, capture, tmp_path):
    """Returns a function that records an honest program beside hostile ones, one for each of
    `acts`. The function returns {act: pid} and profctl's messages."""

    def start(acts, ms, policy="drop", watch=lambda engine: None):
        lines = [f"{HOSTILE} {act} {ms} &\necho {act} $! >> {tmp_path}/pids" for act in acts]
        honest = f"{COLLECT} {HONEST} slowly again again >{tmp_path}/status &\necho honest $! >> {tmp_path}/pids"
        is_let_in = f"until [ -s {tmp_path}/status ]; do sleep 0.01; done"
        script = "\n".join([honest, is_let_in, *lines, "wait", f"cat {tmp_path}/status"])
        profctl = recorder("-o", capture, "--no-symbols", "--policy", policy, "--", "sh", "-c", script)
        until(lambda: engine_of(profctl) or profctl.poll() is not None)
        engine = engine_of(profctl)
        while profctl.poll() is None and Path(f"/proc/{engine}/stat").exists():
            watch(engine)
            time.sleep(0.02)
        output, errors = profctl.communicate(timeout=60)
        assert profctl.returncode == 0, errors
        assert output == "0\n"
        pids = [line.split() for line in (tmp_path / "pids").read_text().splitlines()]
        return {act: int(pid) for act, pid in pids}, errors

    return start


def assert_honest(profcapture, capture, pids, *machine):
    """Checks that the honest program has all of its marks, and that only hostile programs lost
    records, except for the causes in `machine`.

    Returns the losses by process and cause, and the capture's reports of quarantines by process.
    """
    marks = rows(profcapture, capture, "mark", "--pid", pids["honest"])
    assert [mark["id"] for mark in marks] == list(range(1, 4 * HONEST + 1))
    assert {mark["name"] for mark in marks} == {"step"}
    loss, told = Counter(), defaultdict(list)
    for row in rows(profcapture, capture, "loss"):
        # losses of a busy machine: up to half a second of samples if the host takes the CPU from
        # the reader of the kernel's ring, or another process takes the engine's CPU
        few = row["count"] < 500 and (row["cause"] in FEW or row["cause"] == "late" and row["stream"].startswith("cpu"))
        if row["cause"] not in ("ticks-missed", "throttled", *machine) and not few:
            stream, _, pid = row["stream"].partition("/")
            assert stream == "collector" and int(pid) != pids["honest"], row
            assert row["time_ns"] <= row["time_end"], row
            loss[int(pid), row["cause"]] += row["count"]
    for row in rows(profcapture, capture, "metadata"):
        if row["key"] == "quarantine":
            told[int(re.search(r"process (\d+)", row["value"])[1])].append(row["value"])
    return loss, told


def test_lies(beside, profcapture, capture):
    """A ring that lies is quarantined, for a reason that the capture and profctl report; a harmless
    lie is corrected."""
    pids, errors = beside([*LIES, *RACES], 1000)
    loss, told = assert_honest(profcapture, capture, pids)
    for act, reason in LIES.items():
        text = f"a ring of process {pids[act]} was given up: its {reason} is wrong"
        assert [text in value for value in told.get(pids[act], [])] == ([True] if reason else []), act
        assert errors.count(text) == bool(reason)
        assert loss[pids[act], "ring-corrupt"] == CORRUPT.get(act, 1 if reason else 0), act
    # a process's parent is read from the kernel, so lies about it have no effect
    above = {row["pid"]: row["ppid"] for row in rows(profcapture, capture, "process") if row["pid"] in pids.values()}
    assert len({above[pid] for pid in pids.values()}) == 1, above
    counted = Counter(mark["pid"] for mark in rows(profcapture, capture, "mark"))
    assert all(counted[pids[act]] == GOOD.get(act, 1) for act in LIES if act != "past"), (counted, pids)
    assert counted[pids["past"]] > 1
    # a refused program sends another hello, which may lead to the loss "ring-refused"
    assert {key for key in loss if key[1] not in ("ring-corrupt", "ring-refused")} <= {(pids["past"], "late")}


def test_floods_of_wakeups(beside, profcapture, capture):
    """Floods of meaningless doorbells, and of requests and hellos whose answers nobody reads, cost
    the engine little CPU time."""
    watch = Watch()
    pids, _ = beside(["flood-bells", "flood-requests", "flood-connections"], 1500, watch=watch)
    # each doorbell is a wakeup that the kernel records: a million a second fill the kernel's ring
    # if the host takes the CPU
    loss, told = assert_honest(profcapture, capture, pids, "side-band")
    # a connection that closes before its program is admitted is a loss, unless the program says hello
    # again in time
    assert set(loss) <= {(pids["flood-connections"], "ring-refused")} and not told
    assert SANITIZED or watch.share < SHARE, watch.share


@pytest.mark.parametrize("flood", part(MOST, 3))
def test_floods(beside, profcapture, capture, flood):
    """The memory that one process can occupy in the engine is limited, and there is room for
    others."""
    watch = Watch()
    pids, _ = beside([f"flood-{flood}"], 1200, watch=watch)
    assert_honest(profcapture, capture, pids)
    assert SANITIZED or watch.anonymous < MOST[flood], watch.anonymous / MIB
