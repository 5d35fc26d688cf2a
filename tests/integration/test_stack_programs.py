# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Installed programs, stripped and without frame pointers: nearly every stack reaches the root, and
functions have names."""
import json
import shutil
import sys
from collections import Counter

import pytest

from stacks import Together, settled

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PYTHON = """
import json, re
def down(n):
    return down(n - 1) if n else [json.dumps({str(i): [i] * 5 for i in range(300)}) for _ in range(40)]
for i in range(10):
    re.findall("[0-9]+", "".join(down(30)))
    sorted(range(3000), key=lambda a: -a)
"""
NODE = """
function down(n) { return n ? down(n - 1) : [...Array(3000).keys()].map(i => JSON.stringify({a: i, b: [i, i]})).sort(); }
for (let i = 0; i < 50; i++) down(30);
"""
PERL = """
sub down { my $n = shift; return $n ? down($n - 1) : join ",", sort map { $_ =~ s/1/2/gr } 1 .. 3000 }
down(30) for 1 .. 100;
"""
SQL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
SELECT count(*), sum(length(hex(i))), max(i * i % 97) FROM n GROUP BY i % 10 ORDER BY 1;
"""
SOURCE = "#include <stdio.h>\n" + "\n".join(
    f"int f{i}(int *a, int n) {{ int s = 0; for (int i = 0; i < n; i++) {{ if (a[i] % {i + 2}) s += a[i] * {i};"
    f" else s ^= a[n - i - 1] << {i % 7}; }} switch (s % 5) {{ case 0: return s; case 1: return f{i - 1 if i else 0}(a, s);"
    f" default: printf(\"%d\", s); }} return s + n; }}" for i in range(60))


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def git(folder):
    repository = folder / "repository"
    return ["sh", "-c", f"git init -q {repository}; cd {repository}; for i in $(seq 25); do seq $i 7 90000 >$i; done; git add .;"
            " git -c user.name=a -c user.email=a@b commit -qm 1; git repack -adfq --threads=1 --window=60; git fsck; git log --stat | cat"]


def compiler(name):
    def command(folder):
        (folder / "many.c").write_text(SOURCE)
        return [name, "-O2", "-c", "-o", folder / "many.o", folder / "many.c"]

    return command


COMMANDS = {
    "python3": (lambda folder: ["/usr/bin/python3", "-c", PYTHON], {"python3"}),
    "node": (lambda folder: ["node", "-e", NODE], {"node"}),
    "perl": (lambda folder: ["perl", "-e", PERL], {"perl"}),
    "git": (git, {"git"}),
    "sqlite3": (lambda folder: ["sqlite3", ":memory:", SQL], {"sqlite3"}),
    "gcc": (compiler("gcc"), {"cc1"}),
    "clang-14": (compiler("clang-14"), {"clang-14", "clang"}),
}


@pytest.fixture(scope="module")
def programs():
    """Records all installed COMMANDS in one recording."""
    together = Together("-F", 1999)
    for name, (command, _) in COMMANDS.items():
        if shutil.which(name):
            # The first run may end before the tables are ready.
            together.add(name, lambda folder, command=command: ["sh", "-c", f'for i in 1 2; do "$@"; done', "sh", *command(folder)])
    return together


@pytest.mark.parametrize("name", COMMANDS)
def test_program(profctl, profcapture, programs, tmp_path_factory, require, name):
    require(name)
    samples = [sample for comm in sorted(COMMANDS[name][1])
               for sample in programs.of(comm, profctl, profcapture, tmp_path_factory) if sample.names]
    classes = Counter((sample.method, sample.stop) for sample in samples)
    print(name, dict(classes), file=sys.stderr)
    others = settled(samples)
    assert len(others) >= 100, f"{name}: {classes}"
    assert sum(sample.stop == "root" for sample in others) >= 0.99 * len(others), f"{name}: {classes}"


@pytest.mark.parametrize("name", ["python3", "gcc"])
def test_names(profctl, profcapture, programs, tmp_path_factory, require, name):
    require(name)
    (comm,) = COMMANDS[name][1]
    assert programs.of(comm, profctl, profcapture, tmp_path_factory)
    data = profcapture.json("report", programs.capture, "--comm", comm, "--limit", 0)["data"]
    assert data["self_total"] > 100
    resolved = sum(row["self"] for row in data["rows"] if row["kind"] != "unresolved")
    assert resolved >= 0.9 * data["self_total"], [row for row in data["rows"] if row["kind"] == "unresolved"][:5]


# Kernel functions in which a task loses its memory: at exit, and at exec.
WITHOUT_MEMORY = {"do_exit", "begin_new_exec", "bprm_execve"}


def test_no_memory(profctl, profcapture, capture):
    """A task that exits or executes a program has no user stack, which is not counted as
    incomplete."""
    command = ["sh", "-c", "for i in $(seq 300); do /bin/true; /bin/echo $i; done >/dev/null"]
    done = json.loads(profctl("record", "--json", "-F", 4999, "-o", capture, "--", *command).stdout.splitlines()[-1])["data"]
    rows = profcapture.json("dump", capture, "--table", "sample", "--resolve", "--limit", 0)["data"]["rows"]
    gone = [row for row in rows if row["user_stop"] == "no-memory"]
    assert len(gone) >= 20
    # the kernel cannot always unwind its own stack, for example from a thunk
    others = [row for row in gone if not WITHOUT_MEMORY & {frame["name"] for frame in row["frames"]}]
    assert len(others) <= 0.02 * len(gone), others[:3]
    assert not [row for row in rows if row["user_stop"] == "unknown"]
    info = profcapture.json("info", capture)["data"]
    assert done["unwind"] == info["unwind"]
    assert info["unwind"]["no_memory"] == len(gone)
    assert sum(info["unwind"].values()) == len([row for row in rows if row["user_stop"] != "kernel-thread"])
