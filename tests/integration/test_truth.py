# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A program measures the time of its functions with its own clock: report's shares are the same,
within the bounds of the number of samples."""
import json
import os

from shares import near

TRUTH = os.environ["TRUTH"]
SECONDS = 1  # of CPU time


def test_shares(profctl, profcapture, require, tmp_path):
    """The bound is binomial: the functions come in random order, so a sample is a draw."""
    require(root=True)
    done = profctl("record", "-q", "-F", 4000, "-e", "cpu-clock", "-o", tmp_path / "run.cap", "--", TRUTH, SECONDS)
    took = json.loads(done.stdout)
    assert len(took) == 10 and sum(took.values()) > 0.9 * SECONDS * 1e9
    rows = profcapture.json("report", tmp_path / "run.cap", "--limit", 0)["data"]["rows"]
    # An interrupt is on top of the interrupted function, whose clock continues, so the total
    # counts.
    found = {row["name"]: row["total"] for row in rows if row["name"] in took}
    n = sum(found.values())
    assert n > 1000
    for name, ns in took.items():
        assert near(found.get(name, 0), n, ns / sum(took.values()))
    plain = profcapture.json("report", tmp_path / "run.cap", "--no-inline", "--limit", 0)["data"]["rows"]
    own = {row["name"]: row["total"] for row in plain if row["name"] in took}
    # With --no-inline, inlined functions belong to their caller, and the others are the same.
    assert sorted(own) == [f"work_{i}" for i in range(6)] and all(own[name] == found[name] for name in own)
