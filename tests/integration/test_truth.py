# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A program measures the time of its functions with its own clock: report's shares agree, within
the bounds given by the number of samples."""
import json
import os

from shares import near

TRUTH = os.environ["TRUTH"]
SECONDS = 1  # seconds of CPU time


def test_shares(profctl, profcapture, require, tmp_path):
    """The error is binomial, because the functions run in random order, so each sample is an
    independent draw."""
    require(root=True)
    done = profctl("record", "-q", "-F", 4000, "-e", "cpu-clock", "-o", tmp_path / "run.cap", "--", TRUTH, SECONDS)
    took = json.loads(done.stdout)
    assert len(took) == 10 and sum(took.values()) > 0.9 * SECONDS * 1e9
    rows = profcapture.json("report", tmp_path / "run.cap", "--limit", 0)["data"]["rows"]
    # an interrupt is a callee of the interrupted function, whose clock continues, so totals are
    # compared
    found = {row["name"]: row["total"] for row in rows if row["name"] in took}
    n = sum(found.values())
    assert n > 1000
    for name, ns in took.items():
        assert near(found.get(name, 0), n, ns / sum(took.values()))
    plain = profcapture.json("report", tmp_path / "run.cap", "--no-inline", "--limit", 0)["data"]["rows"]
    own = {row["name"]: row["total"] for row in plain if row["name"] in took}
    # with --no-inline, inlined functions count for their callers; the others are unchanged
    assert sorted(own) == [f"work_{i}" for i in range(6)] and all(own[name] == found[name] for name in own)
