# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost that libprofpreload-memory.so adds to a malloc() and its free(), in ns.

The figures are CPU time, the best of many short rounds, because other work on the machine only adds
to it. Rings have room for all records, and nobody drains them during a round. "Dormant" is measured
without PROF_MEMORY, and with it but without a session: such a process can be recorded later. The
last row compares four threads with one.
"""

import json
import os

import bench

PRELOAD = bench.program("LIBPROFPRELOAD_MEMORY", "libprofpreload-memory.so")
PAIRS = bench.program("HEAP_PAIRS", "heap-pairs")
STAND_IN = bench.program("STAND_IN", "stand-in")
BYTES = 72  # size of a pair's records
RING = 1 << 26
ROOM = RING // BYTES - 20_000  # pairs that fit into a ring, with a margin


def environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PROF_")}, "LC_ALL": "C", **more}


def measure(*arguments, **more):
    return float(bench.run(PAIRS, *arguments, env=environment(**more)))


def record(folder, memory, *arguments, rings=2, ring=RING):
    """Returns ns per pair, and whether nearly everything was recorded. Not everything is, because
    the frees of a thread that ends may find no ring."""
    output = os.path.join(folder, "output")
    took = float(bench.run(STAND_IN, "--output", output, "--rings", rings, "--bytes", ring, "--deaf", "--", "env", f"LD_PRELOAD={PRELOAD}",
                           f"PROF_MEMORY={memory}", PAIRS, *arguments, env=environment()))
    with open(output, encoding="utf-8") as lines:
        peer = json.loads(lines.read().splitlines()[-1])
    return took, peer["attempted"] > 0 and peer["lost"] + peer["no_ring"] < 100


def show(what, took, bare, goal, whole=True):
    over = took - bare
    state = "met" if whole and over <= goal else "MISSED" if whole else "records were lost"
    print(f"{what:<44} {took:8.2f} {bare:8.2f} {over:8.2f} {goal:8.0f}  {state}")


def main():
    few, many = ("1", "20000", "8", "300"), ("1", "10000")
    bare = measure(*few)
    print(f"{'ns a pair':<44} {'ours':>8} {'bare':>8} {'over':>8} {'goal':>8}")
    show("dormant", measure(*few, LD_PRELOAD=PRELOAD), bare, 2)
    show("dormant, PROF_MEMORY=all", measure(*few, LD_PRELOAD=PRELOAD, PROF_MEMORY="all"), bare, 2)
    with bench.scratch() as folder:
        show("sample=524288", *merge(record(folder, "sample=524288", *few), bare, 3))
        show("min=1000, of smaller ones", *merge(record(folder, "min=1000", *few), bare, 3))
        for depth, goal in (("8", 190), ("25", 350)):
            show(f"all, depth {depth}", *merge(record(folder, "all", *many, depth, ROOM // 10000), measure(*many, depth, 100), goal))
        alone, whole = record(folder, "all", "1", "100000", "8", "3")
        took, all_there = record(folder, "all", "4", "100000", "8", "3", rings=16, ring=1 << 23)
        print(f"{'all, four threads, beside one':<44} {took:8.2f} {alone:8.2f} {took / alone:8.2f} {1.3:8.1f}  "
              f"{'records were lost' if not whole or not all_there else 'met' if took <= 1.3 * alone else 'MISSED'}")


def merge(recorded, bare, goal):
    took, whole = recorded
    return took, bare, goal, whole


if __name__ == "__main__":
    main()
