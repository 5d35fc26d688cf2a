# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Perl programs: each chain is one that the program can have
(perl_oracle.pl), the shares are right, and hostile processes harm only themselves."""
import os
import subprocess

import pytest
from interpreted_chains import DEEPER, TORN, judge, walk
from interpreted_programs import check_hostile, check_shares
from perls import HERE, ORACLE, PERLS, ROOTS, without_first_lines

SHARES = """
sub spin { my $i = 0; $i++ while $i < 200 }
sub seventy { spin() for 1 .. 7 }
sub thirty { spin() for 1 .. 3 }
while (1) { seventy(); thirty() }
"""


@pytest.mark.parametrize("perl", PERLS)
def test_chains(perl, tmp_path):
    recorded = tmp_path / "chains.json"
    subprocess.run([perl, f"-I{HERE}", ORACLE, "record", recorded], check=True, timeout=120)
    lines = walk([perl, f"-I{HERE}", ORACLE, "run", "60"], 9999, 1.5)
    counts, impossible = judge(recorded, map(without_first_lines, lines), ROOTS)
    print(counts, lines[-1], impossible)
    assert not impossible
    assert counts["judged"] > 500
    assert counts["torn"] <= 2 + 0.002 * counts["all"]
    assert counts["missing"] + counts["without a name"] <= 5 + 0.005 * counts["all"]
    assert counts["caller's line not recorded"] <= 0.001 * counts["judged"]


@pytest.mark.parametrize("perl", PERLS)
def test_shares(perl, tmp_path):
    program = tmp_path / "shares.pl"
    program.write_text(SHARES)
    check_shares([perl, program], "main::seventy", "main::thirty", slack=0.01)


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "type", "index", "sub", "depth", "code"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_PERL"], case], DEEPER if case in ("deep", "names") else TORN)
