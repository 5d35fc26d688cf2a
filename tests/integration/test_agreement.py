# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd and perf record the same work at the same time and must agree. As a benchmark,
tests/bench/agreement.py compares them with more samples."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "bench"))
import agreement  # noqa: E402


@pytest.fixture(scope="module")
def compared(require, tmp_path_factory):
    """The programs run in parallel, and each is compared separately."""
    require("perf", root=True)
    # Shares may differ by chance if sampling is as regular as a program's loop, because samples are then
    # not independent. A busy machine leaves little CPU time. In both cases, a longer recording is tried.
    for seconds in (2, 8):
        results = agreement.check(str(tmp_path_factory.mktemp("both")), agreement.PROGRAMS, seconds, 1999)
        if not any(problems or ours < 300 for problems, _, ours, _ in results.values()):
            break
    return results


@pytest.mark.parametrize("program", agreement.PROGRAMS)
def test_agrees_with_perf(compared, program):
    problems, lines, ours, _ = compared[program]
    assert not problems, "\n".join(problems + lines)
    assert ours > 300


def test_disagreement_is_seen():
    """The comparison itself detects different shares, images and counts."""
    same = {("a.so", "f"): 6000, ("a.so", "g"): 3000, ("b.so", None): 1000}
    counter = agreement.collections.Counter
    assert not agreement.disagreements(counter(same), counter(same))[0]
    assert agreement.disagreements(counter(same), counter({**same, ("a.so", "f"): 4000, ("a.so", "g"): 5000}))[0]
    assert agreement.disagreements(counter(same), counter({**same, ("b.so", None): 2000}))[0]
    assert agreement.disagreements(counter(same), counter({k: v * 2 for k, v in same.items()}))[0]
