# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Walks stacks that perf copied from real programs, with the engine's code and with libdwfl, and
compares the results.

Each program is recorded by `perf record --call-graph dwarf,65528` while it runs repeatedly;
bench-differential reads the file and walks every stack both ways. All differences are printed by
class with an example. KEEP_PERF_DATA=FOLDER keeps the recordings.
"""

import json
import os
import shlex
import subprocess
import sys

import bench
import bench_programs

GOAL = 99.5
MAX_EXCLUDED = 2.0

# Beginnings of the names of classes in which libdwfl cannot know the caller or is wrong. They are
# counted and printed, but not compared.
EXCLUDED = {
    "in exec": "the process is the next program already, and has no stack yet: ours says so",
    "beyond the entry": "where a program begins the stack holds its arguments, and no code is at their number",
    "popped: libdwfl looks for rbp below rsp, where no copy reaches; ours ends: root": "the register has the value already; ours is right where it ends at the root",
}


def record(folder, name, command, seconds):
    path = os.path.join(os.environ.get("KEEP_PERF_DATA", folder), name + ".data")
    loop = f"while :; do {shlex.join(command)}; done"
    subprocess.run(["perf", "record", "-q", "-B", "-N", "-e", "cpu-clock", "-F", "499", "-m", "32M", "--call-graph", "dwarf,65528",
                    "-o", path, "--", "timeout", str(seconds), "/bin/sh", "-c", loop], cwd=folder, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return path


def percent(n, of):
    return 100 * n / of if of else 0


def show(name, result):
    """Prints a program's figures; returns whether the goals are met."""
    compared = result["samples"] - result["empty"]
    classes = sorted(result["classes"].items(), key=lambda item: -item[1]["n"])
    excluded = {c: row["n"] for c, row in classes if any(c.startswith(prefix) for prefix in EXCLUDED)}
    equal = percent(result["equal"] + result["equal_to_jit"], compared - sum(excluded.values()))
    met = compared > 0 and equal >= GOAL and percent(sum(excluded.values()), compared) <= MAX_EXCLUDED
    print(f"{name:<12} {compared:>7,} stacks  equal {equal:7.3f} %  (of them to the first frame without CFI "
          f"{percent(result['equal_to_jit'], compared):5.2f} %)  excluded {percent(sum(excluded.values()), compared):5.2f} %  "
          f"no stack {result['empty']}  lost {result['lost']}  {'met' if met else 'MISSED'}")
    print("             ends: " + "  ".join(f"{stop} {row['n']}" for stop, row in sorted(result["stops"].items())))
    ends = sorted(result["ends"].items(), key=lambda item: -item[1]["n"])
    print("             at:   " + "; ".join(f"{end} {row['n']}" for end, row in ends))
    for text, row in classes:
        mark = next((f" (excluded: {why})" for prefix, why in EXCLUDED.items() if text.startswith(prefix)), "")
        print(f"      {row['n']:>6} {percent(row['n'], compared):6.3f} %  {text}{mark}\n             {row['example']}")
    return met


def main():
    if not bench.peer("perf"):
        sys.exit("bench: perf is not installed: ./dev setup --peers")
    seconds = int(os.environ.get("BENCH_SECONDS", "10"))
    tool = bench.program("BENCH_DIFFERENTIAL", "bench-differential")
    missed = 0
    print(f"\n## Stacks that perf copied, {seconds} s of each program: our chains and libdwfl's\n")
    with bench.scratch() as folder, bench.Work(folder) as work:
        for name, (command, _) in bench_programs.programs(work, folder).items():
            path = record(folder, name, command, seconds)
            missed += not show(name, json.loads(bench.run(tool, path)))
            if "KEEP_PERF_DATA" not in os.environ:
                os.unlink(path)
    return missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
