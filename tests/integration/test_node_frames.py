# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Node.js programs: each chain is one that the program can have
(node_oracle.mjs), the shares are right, and hostile processes harm only themselves."""
import os
import re
import subprocess

import pytest
from interpreted_chains import DEEPER, NO_THREAD, TORN, judge, walk
from interpreted_programs import check_hostile, check_shares
from nodes import HERE, NODES, judge_inlined, make_oracle, without_inlining

SHARES = """
function spin() { let i = 0; while (i < 2000) i++; return i; }
function seventy() { for (let i = 0; i < 7; i++) spin(); }
function thirty() { for (let i = 0; i < 3; i++) spin(); }
for (;;) { seventy(); thirty(); }
"""
ROOTS = tuple(f"{name} (node_oracle.mjs)" for name in ("once", "awaiting", "resumed"))


@pytest.fixture(scope="module", params=NODES)
def node(request):
    return request.param


@pytest.fixture(scope="module")
def chains(node, tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([node, HERE / "node_oracle.mjs", "record", path], check=True, timeout=60)
    return path


@pytest.mark.parametrize("has_all", [True, False])
def test_chains(node, chains, tmp_path, has_all):
    """Chains of interpreted and compiled code have each function. Chains of optimized code,
    recorded while the garbage collector moves all objects, lack only inlined functions."""
    options = without_inlining(node) if has_all else ["--stress-compaction"]
    lines = walk([node, *options, make_oracle(tmp_path), "run", "60"], 2999, 2)
    # without V8's own threads (INTERP_NO_THREAD)
    lines = [line for line in lines if not line.startswith("2\t")]
    if has_all:
        counts, impossible = judge(chains, lines, ROOTS, has_c=True)
        print(counts, lines[-1], impossible)
        possible, torn, missing = counts["right"], counts["torn"], counts["missing"] + counts["without a name"]
        assert counts["judged"] == possible + counts["without a name"]
    else:
        possible, torn, missing, impossible = judge_inlined(chains, lines)
    print(possible, torn, missing)
    assert not impossible
    assert possible > 200
    assert torn <= 2 + 0.005 * len(lines)
    assert missing <= 5 + 0.005 * len(lines)


def test_shares(node, tmp_path):
    program = tmp_path / "shares.js"
    program.write_text(SHARES)
    check_shares([node, *without_inlining(node), program], "seventy (shares.js)", "thirty (shares.js)", slack=0.01)


@pytest.mark.parametrize("case", ["deep", "names", "nothing", "loop", "type", "entry", "thread"])
def test_hostile(case):
    check_hostile([os.environ["FAKE_NODE"], case], {"deep": DEEPER, "names": DEEPER, "thread": NO_THREAD}.get(case, TORN))


def test_long_text():
    """Samples have no names until the lines of a text of 1 MiB have been counted."""
    lines = [line for line in walk([os.environ["FAKE_NODE"], "text"], 499, 1) if line[0] != "#"]
    assert sum(line.split("\t")[1].startswith("?") for line in lines) <= 9
    assert re.fullmatch(r"1\t(ffff \(f.js\)@1048577:0\|){3}", lines[-1])
