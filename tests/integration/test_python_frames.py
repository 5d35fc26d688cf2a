# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Python programs: each chain is one that the program can have
(python_oracle.py), the shares are right, and hostile processes harm only themselves. PROF_TEST_PYTHONS
names further interpreters, separated by colons."""
import math
import os
import subprocess
from pathlib import Path

import pytest
from interpreted_chains import TORN, judge, walk

HERE = Path(__file__).parent
PYTHONS = ["/usr/bin/python3", *filter(None, os.environ.get("PROF_TEST_PYTHONS", "").split(":"))]

SHARES = """
def spin():
    total = 0
    for i in range(200):
        total += i & 7
    return total
def seventy(): spin(); spin(); spin(); spin(); spin(); spin(); spin()
def thirty(): spin(); spin(); spin()
while True:
    seventy(); thirty()
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_chains(python, tmp_path):
    recorded = tmp_path / "chains.json"
    subprocess.run([python, HERE / "python_oracle.py", "record", recorded], check=True, timeout=120)
    lines = walk([python, HERE / "python_oracle.py", "run", "60"], 4999, 4)
    counts, impossible = judge(recorded, lines)
    print(counts, lines[-1])
    assert not impossible
    assert counts["judged"] > 1000
    assert counts["torn"] <= 2 + 0.002 * counts["all"]
    assert counts["missing"] + counts["without a name"] <= 5 + 0.005 * counts["all"]


@pytest.mark.parametrize("python", PYTHONS)
def test_shares(python, tmp_path):
    program = tmp_path / "shares.py"
    program.write_text(SHARES)
    lines = [line for line in walk([python, program], 2999, 3) if line[0] != "#"]
    seventy = sum("shares.seventy@" in line for line in lines)
    both = seventy + sum("shares.thirty@" in line for line in lines)
    assert both > 500 and both > 0.97 * len(lines)
    assert abs(seventy - 0.7 * both) < 3 * math.sqrt(0.7 * 0.3 * both) + 0.01 * both


@pytest.mark.parametrize("case", ["cycle", "names", "nothing"])
def test_hostile(case):
    lines = walk([os.environ["FAKE_PYTHON"], case], 999, 1)
    flags = {int(line.split("\t")[0], 16) for line in lines if line[0] != "#"}
    assert flags
    if case == "nothing":
        assert all(flag & TORN for flag in flags)
    else:
        assert all(flag & 0x8 for flag in flags)  # INTERP_DEEPER
    if case == "cycle":
        assert all(line.count("|") == 128 for line in lines if line[0] != "#")
