# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Perl programs: each chain is one that the program can have
(perl_oracle.pl), and hostile processes harm only themselves."""
import os
import subprocess

import pytest
from interpreted_chains import TORN, judge, walk
from perls import HERE, ORACLE, PERLS, ROOTS, without_first_lines


@pytest.mark.parametrize("perl", PERLS)
def test_chains(perl, tmp_path):
    recorded = tmp_path / "chains.json"
    subprocess.run([perl, f"-I{HERE}", ORACLE, "record", recorded], check=True, timeout=120)
    lines = walk([perl, f"-I{HERE}", ORACLE, "run", "60"], 4999, 3)
    counts, impossible = judge(recorded, map(without_first_lines, lines), ROOTS)
    print(counts, lines[-1], impossible)
    assert not impossible
    assert counts["judged"] > 500
    assert counts["torn"] <= 2 + 0.002 * counts["all"]
    assert counts["missing"] + counts["without a name"] <= 5 + 0.005 * counts["all"]
    assert counts["caller's line not recorded"] <= 0.001 * counts["judged"]


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "type", "index", "sub", "depth", "code"])
def test_hostile(case):
    lines = [line for line in walk([os.environ["FAKE_PERL"], case], 999, 0.5) if line[0] != "#"]
    assert lines
    flags = {int(line.split("\t")[0], 16) for line in lines}
    if case in ("deep", "names"):
        assert all(flag & 0x8 for flag in flags), flags  # INTERP_DEEPER
        assert all(line.count("|") == 128 for line in lines)
    else:
        assert all(flag & TORN for flag in flags), flags
