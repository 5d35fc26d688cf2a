# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of PHP programs: each chain is one that the program can have
(php_oracle.php), the shares and lines are right, and hostile processes harm only themselves."""
import collections
import math
import os
import re

import pytest
from interpreted_chains import DEEPER, TORN, walk
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains
from phps import HERE, PHPS, ROOTS, make_oracle

SHARES = """<?php
function spin() {
    $i = 0;
    while ($i < 200) {
        $i++;
    }
}
function seventy() {
    for ($i = 0; $i < 7; $i++) spin();
}
function thirty() {
    for ($i = 0; $i < 3; $i++) spin();
}
while (true) {
    seventy();
    thirty();
}
"""

LINES = """<?php
function lines($n, $m) {
    $a = 0;
    for ($i = 0; $i < $n; $i++)
        $a = $a * 3 & 255;
    $b = 0;
    for ($i = 0; $i < $m; $i++)
        $b = $b * 3 & 255;
    return $a + $b;
}
while (true)
    lines(1000, 2000);
"""


@pytest.mark.parametrize("php", PHPS)
def test_chains(php, tmp_path, tmp_path_factory):
    chains = record_chains(tmp_path_factory, php, HERE / "php_oracle.php")
    counts = check_walk([php, make_oracle(tmp_path), "run", "60"], chains, roots=ROOTS, has_c=True)
    assert counts["caller's line not recorded"] <= 0.001 * counts["judged"]


@pytest.mark.parametrize("php", PHPS)
def test_shares(php, tmp_path):
    program = tmp_path / "shares.php"
    program.write_text(SHARES)
    # calling the functions takes up to 1 %
    check_shares([php, program], "seventy", "thirty", slack=0.01)


@pytest.mark.parametrize("php", PHPS)
def test_lines(php, tmp_path):
    """The innermost line is that of the running operation, although PHP's frame lacks it."""
    program = tmp_path / "lines.php"
    program.write_text(LINES)
    found = collections.Counter()
    for line in walk([php, program], 2999, 2):
        match = re.match(r"1\tlines@2:(\d+)\|\{main\} \(lines.php\)@1:12\|", line)
        if match:
            found[int(match[1])] += 1
    print(found)
    first, second = found[4] + found[5], found[7] + found[8]
    assert first + second > 0.99 * sum(found.values())
    assert min(found[5], found[8]) > 0.1 * (first + second)
    # Only a register has the address of an operation that cannot fail.
    assert min(found[4], found[7]) > 0.02 * (first + second)
    assert abs(first - (first + second) / 3) < 5 * math.sqrt((first + second) * 2 / 9)


def test_threads():
    """In PHP with thread safety, the frames are found by a pointer in the thread's storage."""
    check_hostile([os.environ["FAKE_PHP_THREADS"], "deep"], DEEPER)


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "kind", "generators", "fiber", "open", "suspended", "unlinked",
                                  "released"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_PHP"], case], DEEPER if case in ("deep", "names") else TORN)
