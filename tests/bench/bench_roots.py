# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Counts how many stacks reach the root of their thread: those of profctl with its defaults, and
those of perf with --call-graph dwarf.

The whole system is recorded at 999 Hz while the programs run in loops, by profctl and then by
perf. A root is a function without a caller: the outermost function must be the entry of the program
or of the loader, or clone(). Two groups are counted separately: stacks that are larger than a copy,
and samples in the part of exec where the old program's stack is gone and the new one does not exist
yet. perf's stacks are walked by libdwfl here, because `perf script` takes hours for them.
"""

import collections
import functools
import json
import os
import shlex
import struct
import subprocess
import sys

import bench
import bench_programs

GOAL = 99.0
ROOTS = {"_start", "_dl_start_user", "clone", "clone3", "__clone", "__clone3", "__GI___clone", "__GI___clone3", "__clone_internal"}


@functools.cache
def entry_offset(path):
    """Returns the file offset of a program's entry, by which the entry is found in stripped
    programs, where it has no name."""
    try:
        with open(path, "rb") as file:
            header = file.read(64)
            entry, segments = struct.unpack_from("<QQ", header, 24)
            size, count = struct.unpack_from("<HH", header, 54)
            for i in range(count):
                file.seek(segments + i * size)
                kind, _, offset, address, _, length = struct.unpack("<IIQQQQ", file.read(40))
                if kind == 1 and address <= entry < address + length:
                    return entry - address + offset
    except (OSError, struct.error):
        pass
    return None


def is_root(frame):
    if frame["name"].split("@")[0] in ROOTS or int(frame["offset"], 16) == entry_offset(frame["image"]):
        return True
    # glibc's functions are stripped of their names, so an unnamed frame in these files counts as a
    # root.
    return os.path.basename(frame["image"]) in ("libc.so.6", "ld-linux-x86-64.so.2") and "+0x" in frame["name"]


def label(frame):
    return frame["name"] if "+0x" in frame["name"] else f"{frame['name']} ({os.path.basename(frame['image'])})"


def count(capture, names):
    """Counts our samples. Returns {program: Counter} of stacks by end and method, and {program:
    Counter} of the reasons and outermost functions of stacks that end elsewhere."""
    owners = {name: program for program, group in names.items() for name in group}
    counts = {program: collections.Counter() for program in names}
    ends = collections.defaultdict(collections.Counter)
    filters = [arg for name in owners for arg in ("--comm", name)]
    dump = subprocess.Popen([bench.program("PROFCAPTURE", "profcapture"), "dump", capture, "-t", "sample", "--resolve",
                             "--format", "ndjson", *filters], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    for line in dump.stdout:
        row = json.loads(line)
        if row.get("table") != "sample" or row["user_stop"] == "kernel-thread":
            continue
        program = owners[row["comm"]]
        counts[program]["stacks"] += 1
        counts[program][row["user_method"]] += 1
        user = [frame for frame in row["frames"] if frame["kind"] != "kernel" and not frame["inline"]]
        if row["user_stop"] == "copy-end":
            counts[program]["copy-end"] += 1
        elif not user and row["mode"] == "kernel":
            counts[program]["in exec"] += 1
        elif row["user_stop"] == "root" and user and is_root(user[-1]):
            counts[program]["roots"] += 1
        else:
            why = f"{row['user_stop']}, {row['user_method']}"
            ends[program][f"{why}: {label(user[-1]) if user else 'no stack'} {'in ' + row['mode'] if len(user) < 2 else ''}"] += 1
    if dump.wait() != 0:
        sys.exit("bench: profcapture dump failed")
    return counts, ends


def record_ours(folder, seconds):
    path = os.path.join(os.environ.get("KEEP_CAPTURE", folder), "roots.cap")
    out = bench.run(bench.program("PROFCTL", "profctl"), "record", "--system", "-d", str(seconds), "-F", "999", "-e", "cpu-clock",
                    "-q", "--force", "--json", "-o", path)
    return path, json.loads(out.splitlines()[-1])["data"]


def record_perf(folder, seconds):
    path = os.path.join(folder, "roots.data")
    subprocess.run(["perf", "record", "-q", "-B", "-N", "-a", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", path, "--",
                    "sleep", str(seconds)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   check=False)
    result = json.loads(bench.run(bench.program("BENCH_DIFFERENTIAL", "bench-differential"), "--roots", path))
    os.unlink(path)
    return result


def main():
    seconds = int(os.environ.get("BENCH_SECONDS", "60"))
    missed = 0
    print(f"\n## Stacks that end at a root, 999 Hz of the whole system, {seconds} s each\n")
    with bench.scratch() as folder, bench.Work(folder) as work:
        found = bench_programs.programs(work, folder)
        names = {program: group for program, (_, group) in found.items()}
        for command, _ in found.values():
            work.loop(shlex.join(command))
        capture, summary = record_ours(folder, seconds)
        perf = record_perf(folder, seconds) if bench.peer("perf") else None
        work.stop()
        counts, ends = count(capture, names)
    lost = sum(row["count"] for row in summary["loss"] if row["cause"] != "ticks-missed")
    print(f"profctl: {summary['samples']:,} samples, {lost} lost; perf: "
          + (f"{perf['samples']:,} samples, {perf['lost']:,} lost" if perf else "not installed"))
    print(f"\n{'program':<12} {'stacks':>8} {'at a root':>10} {'copy too small':>15} {'in exec':>8} {'stitched':>9}   perf's dwarf: {'stacks':>7} {'at a root':>10}")
    for program, c in counts.items():
        judged = c["stacks"] - c["copy-end"] - c["in exec"]
        share = 100 * c["roots"] / judged if judged else 0.0
        missed += share < GOAL
        theirs = [perf["names"].get(name, {"n": 0, "roots": 0}) for name in names[program]] if perf else []
        n, roots = sum(row["n"] for row in theirs), sum(row["roots"] for row in theirs)
        print(f"{program:<12} {c['stacks']:>8,} {share:>9.2f}% {100 * c['copy-end'] / max(c['stacks'], 1):>14.2f}% {100 * c['in exec'] / max(c['stacks'], 1):>7.2f}% {c['stitched']:>9,}"
              f"                {n:>7,} {100 * roots / n if n else 0:>9.2f}%  {'met' if share >= GOAL else 'MISSED'}")
        for end, n in ends[program].most_common(6):
            print(f"        {n:>6} {100 * n / max(judged, 1):6.3f}%  {end}")
    return missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
