# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Ruby programs: each chain is one that the program can have
(ruby_oracle.rb), the shares are right, and hostile processes harm only themselves."""
import os

import pytest
from interpreted_chains import DEEPER, TORN
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains
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
def test_chains(ruby, tmp_path_factory):
    chains = record_chains(tmp_path_factory, ruby, HERE / "ruby_oracle.rb")
    # From 3.3 on, samples have no frames while Ruby switches threads.
    counts = check_walk([ruby, HERE / "ruby_oracle.rb", "run", "60"], chains, most_missing=0.01, roots=ROOTS)
    assert counts["caller's line not recorded"] <= 0.001 * counts["judged"]


@pytest.mark.parametrize("ruby", RUBIES)
def test_shares(ruby, tmp_path):
    program = tmp_path / "shares.rb"
    program.write_text(SHARES)
    check_shares([ruby, program], "Object#seventy", "Object#thirty")


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "text", "lines", "position", "runs"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_RUBY"], case], DEEPER if case in ("deep", "names", "lines") else TORN)
