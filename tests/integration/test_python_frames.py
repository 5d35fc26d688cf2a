# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Python programs: each chain is one that the program can have
(python_oracle.py), the shares are right, and hostile processes harm only themselves. PROF_TEST_PYTHONS
names further interpreters, separated by colons."""
import os
from pathlib import Path

import pytest
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains

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
def test_chains(python, tmp_path_factory):
    chains = record_chains(tmp_path_factory, python, HERE / "python_oracle.py")
    check_walk([python, HERE / "python_oracle.py", "run", "60"], chains)


@pytest.mark.parametrize("python", PYTHONS)
def test_shares(python, tmp_path):
    program = tmp_path / "shares.py"
    program.write_text(SHARES)
    check_shares([python, program], "shares.seventy", "shares.thirty", slack=0.01)


@pytest.mark.parametrize("case", ["cycle", "names", "nothing"])
def test_hostile(case):
    lines = check_hostile([os.environ["FAKE_PYTHON"], case], is_refused=case == "nothing")
    if case == "cycle":
        assert all(line.count("|") == 128 for line in lines)
