# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Programs as they are installed, without frame pointers: nearly every stack reaches the root."""
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from recordings import recorded
from stacks import read

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SANITIZED = "#define PROF_SANITIZED 1" in Path(os.environ["PROF_BUILD_DIR"], "config.h").read_text()

PYTHON = """
import json, re
def down(n):
    return down(n - 1) if n else [json.dumps({str(i): [i] * 5 for i in range(300)}) for _ in range(40)]
for i in range(40):
    re.findall("[0-9]+", "".join(down(30)))
    sorted(range(3000), key=lambda a: -a)
"""
NODE = """
function down(n) { return n ? down(n - 1) : [...Array(3000).keys()].map(i => JSON.stringify({a: i, b: [i, i]})).sort(); }
for (let i = 0; i < 200; i++) down(30);
"""
PERL = """
sub down { my $n = shift; return $n ? down($n - 1) : join ",", sort map { $_ =~ s/1/2/gr } 1 .. 3000 }
down(30) for 1 .. 400;
"""
SQL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600000)
SELECT count(*), sum(length(hex(i))), max(i * i % 97) FROM n GROUP BY i % 10 ORDER BY 1;
"""
SOURCE = "#include <stdio.h>\n" + "\n".join(
    f"int f{i}(int *a, int n) {{ int s = 0; for (int i = 0; i < n; i++) {{ if (a[i] % {i + 2}) s += a[i] * {i};"
    f" else s ^= a[n - i - 1] << {i % 7}; }} switch (s % 5) {{ case 0: return s; case 1: return f{i - 1 if i else 0}(a, s);"
    f" default: printf(\"%d\", s); }} return s + n; }}" for i in range(90))


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def commands(folder):
    source = folder / "many.c"
    source.write_text(SOURCE)
    git = folder / "repository"
    script = (f"git init -q {git}; cd {git}; for i in $(seq 60); do seq $i 7 90000 >$i; done; git add .;"
              " git -c user.name=a -c user.email=a@b commit -qm 1; git repack -adfq --threads=1 --window=60; git fsck; git log --stat | cat")
    return {
        "python3": (["/usr/bin/python3", "-c", PYTHON], {"python3"}),
        "node": (["node", "-e", NODE], {"node"}),
        "perl": (["perl", "-e", PERL], {"perl"}),
        "git": (["sh", "-c", script], {"git"}),
        "sqlite3": (["sqlite3", ":memory:", SQL], {"sqlite3"}),
        "gcc": (["gcc", "-O2", "-c", "-o", folder / "many.o", source], {"cc1"}),
        "clang": (["clang-14", "-O2", "-c", "-o", folder / "many.o", source], {"clang-14", "clang"}),
    }


@pytest.mark.parametrize("name", ["python3", "node", "perl", "git", "sqlite3", "gcc", "clang"])
def test_program(profctl, profcapture, capture, tmp_path, require, name):
    command, comms = commands(tmp_path)[name]
    require(command[0])
    # The first run may be over when the tables are ready.
    runs = "1 2 3 4" if SANITIZED else "1 2"
    command = ["sh", "-c", f'for i in {runs}; do "$@"; done', "sh", *command]
    recorded(profctl, "-o", capture, "--", *command)
    samples = [sample for sample in read(profcapture, capture) if sample.comm in comms and sample.names]
    classes = Counter((sample.method, sample.stop) for sample in samples)
    print(name, dict(classes), file=sys.stderr)
    # A copy also ends at a page that is not in memory, and the tables of a big program may come late on a busy machine.
    first_ns = {}
    for sample in samples:
        first_ns.setdefault(sample.pid, sample.time_ns)
    others = [sample for sample in samples if sample.stop != "copy-end" and
              (sample.stop != "no-table" or sample.time_ns > first_ns[sample.pid] + 1e9 and not SANITIZED)]
    assert len(others) >= 100, f"{name}: {classes}"
    assert sum(sample.stop == "root" for sample in others) >= 0.99 * len(others), f"{name}: {classes}"
