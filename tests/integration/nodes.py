# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The Node.js executables that tests use. PROF_TEST_NODES names more, separated by colons."""
import json
import subprocess
from pathlib import Path

from interpreted_chains import TORN, programs

HERE = Path(__file__).parent
NODES = programs("node", ["--version"], ("v18.", "v20.", "v22.", "v24."), "PROF_TEST_NODES")


def without_inlining(node):
    """Returns the options with which no function is inlined. Old versions do not have --no-maglev."""
    options = ["--no-opt", "--no-maglev"]
    return options if subprocess.run([node, *options, "-e", ""], stderr=subprocess.DEVNULL).returncode == 0 else options[:1]


def make_oracle(directory):
    """Writes a copy of the oracle that does not call mark(), with unchanged lines. Returns its path."""
    path = directory / "node_oracle.mjs"
    path.write_text((HERE / "node_oracle.mjs").read_text().replace("mark();", ""))
    return path


def judge_inlined(recorded, lines):
    """Like interpreted_chains.judge(), for chains that lack functions that V8 has inlined into their
    callers. Returns the numbers of chains that are possible, torn and missing, and the set of
    impossible chains."""
    oracle = json.loads(recorded.read_text())
    whole = [[frame.rsplit(":", 1)[0] for frame in chain.split("|")] for chain in oracle["chains"]]
    known, impossible = {(): True}, set()
    possible = torn = missing = 0

    def is_part(frames, chain):
        left = iter(chain)
        return all(frame in left for frame in frames)

    for line in lines:
        if line.startswith("#"):
            continue
        flags, chain = line.rstrip("\n").split("\t")
        if int(flags, 16) & TORN:
            torn += 1
            continue
        missing += (flags == "0" and chain == "") or chain.startswith("?")
        # the recorded chains end at the function once(), so drop the callers of once()
        frames = tuple(frame.rsplit(":", 1)[0] for frame in chain.split("|")
                       if "(node_oracle.mjs" in frame and not frame.startswith(("main ", "<module> ")))
        if frames not in known:
            inner = frames[1:] if frames[0] in oracle["generators"] else frames  # the generator object is being created
            known[frames] = any(is_part(frames, chain) or is_part(inner, chain) for chain in whole)
        possible += known[frames] and bool(frames)
        if not known[frames]:
            impossible.add(frames)
    return possible, torn, missing, impossible
