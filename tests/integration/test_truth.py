# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A program that measures with its own clock what its functions take: the shares that report gives them are the same, within what
the number of samples allows."""
import json
import math
import os
import subprocess

TRUTH = os.environ["TRUTH"]
SECONDS = 2  # of CPU time
SIGMA = 4


def test_shares(profctl, profcapture, require, tmp_path):
    """The bound is of a binomial: the functions come in an order that is drawn, so a sample is a draw."""
    require(root=True)
    done = profctl("record", "-q", "-F", 4000, "-e", "cpu-clock", "-o", tmp_path / "run.cap", "--", TRUTH, SECONDS)
    took = json.loads(done.stdout)
    assert len(took) == 10 and sum(took.values()) > 0.9 * SECONDS * 1e9
    rows = profcapture.json("report", tmp_path / "run.cap", "--inline", "--limit", 0)["data"]["rows"]
    # An interrupt is on top of the function that it interrupts, whose clock goes on: so it is the total.
    found = {row["name"]: row["total"] for row in rows if row["name"] in took}
    n = sum(found.values())
    assert n > 2000
    for name, ns in took.items():
        share = ns / sum(took.values())
        sigma = math.sqrt(share * (1 - share) / n)
        off = (found.get(name, 0) / n - share) / sigma
        print(f"{name} {100 * share:.2f} % {100 * found.get(name, 0) / n:.2f} % {off:+.1f} sigma")
        assert abs(off) < SIGMA, (name, share, found.get(name, 0) / n, n)
    plain = profcapture.json("report", tmp_path / "run.cap", "--limit", 0)["data"]["rows"]
    own = {row["name"]: row["total"] for row in plain if row["name"] in took}
    # What is inlined is its caller's without --inline, and the others are the same.
    assert sorted(own) == [f"work_{i}" for i in range(6)] and all(own[name] == found[name] for name in own)
