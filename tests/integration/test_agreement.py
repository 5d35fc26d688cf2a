# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd and perf record the same work at once and must agree; tests/bench/agreement.py does it with more samples."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "bench"))
import agreement  # noqa: E402


@pytest.mark.parametrize("program", sorted(agreement.PROGRAMS))
def test_agrees_with_perf(program, require, tmp_path):
    require("perf", root=True)
    # Samples that come as regularly as a program's turns are not independent: what differs by chance does so once.
    for seconds in (5, 12):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        problems, lines, ours, _ = agreement.check(str(folder), program, seconds, 999)
        if not problems:
            break
    assert not problems, "\n".join(problems + lines)
    assert ours > 500


def test_disagreement_is_seen():
    """The comparison itself: other shares, other images and other counts are told apart."""
    same = {("a.so", "f"): 6000, ("a.so", "g"): 3000, ("b.so", None): 1000}
    counter = agreement.collections.Counter
    assert not agreement.disagreements(counter(same), counter(same))[0]
    assert agreement.disagreements(counter(same), counter({**same, ("a.so", "f"): 4000, ("a.so", "g"): 5000}))[0]
    assert agreement.disagreements(counter(same), counter({**same, ("b.so", None): 2000}))[0]
    assert agreement.disagreements(counter(same), counter({k: v * 2 for k, v in same.items()}))[0]
