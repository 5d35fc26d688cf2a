# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Ruby programs: each chain is one that the program can have
(ruby_oracle.rb), the shares are right, and hostile processes harm only themselves."""
import math
import os
import subprocess

import pytest
from interpreted_chains import TORN, judge, walk
from rubies import HERE, ROOTS, RUBIES

SHARES = """
def spin
  i = 0
  while i < 200
    i += 1
  end
end
def seventy
  7.times { spin }
end
def thirty
  3.times { spin }
end
loop do
  seventy
  thirty
end
"""


@pytest.mark.parametrize("ruby", RUBIES)
def test_chains(ruby, tmp_path):
    recorded = tmp_path / "chains.json"
    subprocess.run([ruby, HERE / "ruby_oracle.rb", "record", recorded], check=True, timeout=120)
    lines = walk([ruby, HERE / "ruby_oracle.rb", "run", "60"], 4999, 4)
    counts, impossible = judge(recorded, lines, ROOTS)
    print(counts, lines[-1], impossible)
    assert not impossible
    assert counts["judged"] > 1000
    assert counts["torn"] <= 2 + 0.002 * counts["all"]
    # Ruby 3.3 has no state while it switches threads.
    assert counts["missing"] + counts["without a name"] <= 5 + 0.01 * counts["all"]
    assert counts["caller's line not recorded"] <= 0.001 * counts["judged"]


@pytest.mark.parametrize("ruby", RUBIES)
def test_shares(ruby, tmp_path):
    program = tmp_path / "shares.rb"
    program.write_text(SHARES)
    lines = [line for line in walk([ruby, program], 2999, 3) if line[0] != "#"]
    seventy = sum("Object#seventy@" in line for line in lines)
    both = seventy + sum("Object#thirty@" in line for line in lines)
    assert both > 500 and both > 0.97 * len(lines)
    assert abs(seventy - 0.7 * both) < 3 * math.sqrt(0.7 * 0.3 * both)


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "text", "lines", "position", "runs"])
def test_hostile(case):
    lines = [line for line in walk([os.environ["FAKE_RUBY"], case], 999, 1) if line[0] != "#"]
    assert lines
    flags = {int(line.split("\t")[0], 16) for line in lines}
    if case in ("nothing", "text", "position", "runs"):
        assert all(flag & TORN for flag in flags), flags
    else:
        assert all(flag & 0x8 for flag in flags), flags  # INTERP_DEEPER
        assert all(line.count("|") == 128 for line in lines)
