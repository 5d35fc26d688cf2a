# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Long scenarios: every run tries a part of the inputs, and `./dev soak` tries all.

    for seed in part(range(2000), 40):    # 40 of the 2000, a third of that with sanitizers, or all of them in a soak

The commit chooses the part, so that later commits try other inputs, and a failure can be
repeated: PROF_TEST_SEED is a hexadecimal number, which ./dev sets from the commit's hash.
PROF_TEST_SOAK=1 selects everything.
"""
import os
import random
from pathlib import Path

# A sanitizer's runtime has an allocator, a signal handler and system calls of its own, and slows
# everything down.
SANITIZED = "#define PROF_SANITIZED 1" in Path(os.environ["PROF_BUILD_DIR"], "config.h").read_text()
SOAK = os.environ.get("PROF_TEST_SOAK") == "1"
SEED = int(os.environ.get("PROF_TEST_SEED", "0"), 16)


def part(inputs, count, turn=0):
    """Returns `count` of the inputs in their order, evenly spread, from a start chosen by `turn`.
    Callers that try parts of the same inputs pass different turns, so that together they try
    more."""
    inputs = list(inputs)
    turn %= max(len(inputs), 1)
    inputs = inputs[turn:] + inputs[:turn]
    if SANITIZED:
        count = max(count // 3, 1)
    if SOAK or count >= len(inputs):
        return inputs
    chance = random.Random(SEED)
    width = len(inputs) / count
    return [inputs[int((step + chance.random()) * width)] for step in range(count)]
