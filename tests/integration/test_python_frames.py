# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Python programs: each chain is one that the program can have
(python_oracle.py), the shares are right, and hostile processes harm only themselves."""
import os
from pathlib import Path

import pytest
from interpreted_chains import DEEPER, NO_THREAD, TORN
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains
from pythons import pythons

HERE = Path(__file__).parent
PYTHONS = pythons(2)

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


@pytest.mark.parametrize("case", ["cycle", "names", "nothing", "key", "thread", "type"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_PYTHON"], case], {"cycle": DEEPER, "names": DEEPER, "key": NO_THREAD}.get(case, TORN))
