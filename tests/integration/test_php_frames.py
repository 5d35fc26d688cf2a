# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of PHP programs: each chain is one that the program can have
(php_oracle.php), the shares and lines are right, and hostile processes harm only themselves."""
import collections
import os
import re

import pytest
from interpreted_chains import DEEPER, TORN, walk
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains
from phps import HERE, PHPS, ROOTS, make_oracle
from shares import near

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
    $between = used();
    for ($i = 0; $i < $m; $i++)
        $a = $a * 3 & 255;
    return $between;
}
$first = $second = 0; while (true) {
    $begin = used(); $between = lines(20000, 40000); $end = used();
    $first += $between - $begin; $second += $end - $between;
    file_put_contents($argv[1], "$first $second\\n", FILE_APPEND);
}
function used() {
    $u = getrusage();
    return ($u["ru_utime.tv_sec"] + $u["ru_stime.tv_sec"]) * 1000000 + $u["ru_utime.tv_usec"] + $u["ru_stime.tv_usec"];
}
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
    """The innermost line is that of the running operation, although PHP's frame lacks it. Each loop
    has the share of the samples that the program measures as its share of the CPU time."""
    program, times = tmp_path / "lines.php", tmp_path / "times"
    program.write_text(LINES)
    found = collections.Counter()
    for line in walk([php, program, times], 2999, 2):
        match = re.match(r"1\tlines@2:(\d+)\|\{main\} \(lines.php\)@1:12\|", line)
        if match:
            found[int(match[1])] += 1
    print(found)
    first, second = found[4] + found[5], found[7] + found[8]
    assert first + second > 0.99 * sum(found.values())
    assert min(found[5], found[8]) > 0.1 * (first + second)
    # Only a register has the address of an operation that cannot fail.
    assert min(found[4], found[7]) > 0.02 * (first + second)
    microseconds = [int(number) for number in times.read_text().splitlines()[-1].split()]
    print(microseconds)
    # The end of each loop, and the program before it is sampled, take up to 1 %.
    assert near(first, first + second, microseconds[0] / sum(microseconds), slack=0.01)


def test_threads():
    """In PHP with thread safety, the frames are found by a pointer in the thread's storage."""
    check_hostile([os.environ["FAKE_PHP_THREADS"], "deep"], DEEPER)


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "kind", "generators", "fiber", "open", "suspended", "unlinked",
                                  "released"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_PHP"], case], DEEPER if case in ("deep", "names") else TORN)
