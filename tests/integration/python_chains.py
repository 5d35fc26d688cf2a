# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Compares the chains that walk-python printed with those that python_oracle.py recorded."""
import collections
import json
import re

TORN = 0x14  # INTERP_FAULT | INTERP_TORN
NO_THREAD = 0x2


def without_line(frame):
    return re.sub(r":\d+$", "", frame)


def judge(recorded, lines):
    """Counts by verdict, and the impossible chains."""
    with open(recorded) as file:
        oracle = json.load(file)
    generators = set(oracle["generators"])
    full, plain = set(), set()
    for chain in oracle["chains"]:
        frames = chain.split("|")
        for i in range(len(frames)):
            full.add("|".join([without_line(frames[i])] + frames[i + 1:]))
            plain.add("|".join(map(without_line, frames[i:])))
    counts, impossible = collections.Counter(), collections.Counter()
    for line in lines:
        if line.startswith("#"):
            continue
        flags, chain = line.rstrip("\n").split("\t")
        flags = int(flags, 16)
        # without frames that the interpreter makes (line 0)
        frames = [frame for frame in chain.split("|") if frame and ("@0:" not in frame or frame.startswith("?"))]
        ends = [i for i, frame in enumerate(frames) if frame.startswith("python_oracle.once@")]
        counts["all"] += 1
        if flags & TORN:
            counts["torn"] += 1
            continue
        if not frames:
            counts["missing"] += 1
            continue
        if not ends:
            counts["outside"] += 1
            continue
        frames = frames[:ends[0] + 1]
        counts["judged"] += 1
        key = "|".join(map(without_line, frames))
        if key in plain or len(frames) == 1:
            right = "|".join([without_line(frames[0])] + frames[1:]) in full or len(frames) == 1
            counts["right" if right else "caller's line not recorded"] += 1
        elif without_line(frames[0]) in generators and "|".join(map(without_line, frames[1:])) in plain:
            counts["right"] += 1  # a generator object is being created
        elif any(frame.startswith("?") for frame in frames):
            counts["without a name"] += 1
        else:
            counts["impossible"] += 1
            impossible[key] += 1
    return counts, impossible


if __name__ == "__main__":
    import sys

    with open(sys.argv[2]) as file:
        verdicts, wrong = judge(sys.argv[1], file)
    print(dict(verdicts))
    for chain, n in wrong.most_common(5):
        print(n, chain)
