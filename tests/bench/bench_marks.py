# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost of marks to profd and the capture: whether any is lost in lossless mode, bytes, CPU of a
drain, wakeups, and memory of idle threads.

bench-mark measures their cost to the program, and bench_mark_peers compares other libraries.
"""

import os
import signal
import subprocess
import sys
import time

import bench

LOAD = os.environ["MARK_LOAD_PROFD"]
NAMES = ("profd", "profd-files", "profd-engine")


def start(path, *command, policy="lossless"):
    """Starts a recording without samples, so that only marks have a cost."""
    return subprocess.Popen(
        [bench.program("PROFCTL", "profctl"), "record", "--bus", "private", "-F", "0", "--policy", policy, "--no-symbols", "-q",
         "--force", "-o", path, "--", LOAD, *map(str, command)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def record(path, *command, policy="lossless"):
    """Returns, as counted by the program, the numbers of recorded and of tried marks, and the ns
    per mark; then info's entry for the table of marks, and the number of lost records."""
    child = start(path, *command, policy=policy)
    recorded, tried, ns = child.communicate(timeout=300)[0].split()
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    info = bench.run_json(profcapture, "info", path, "--format", "json")["data"]
    marks = next((table for table in info["tables"] if table["name"] == "mark"), {"rows": 0, "bytes": 0})
    lost = sum(row["count"] for row in info["loss"] if row["stream"].startswith("collector"))
    return int(recorded), int(tried), float(ns), marks, lost


def recorded_marks(table, path):
    for policy in "lossless", "drop":
        said, tried, ns, marks, lost = record(path, "flat", 2000000, policy=policy)
        share = 100 * marks["rows"] / tried
        table.row(f"2 M marks flat out, {policy}: recorded, %", share, goal="100" if policy == "lossless" else None,
                  met=share == 100 if policy == "lossless" else None)
        table.row(f"  recorded and counted as lost, of {tried}", marks["rows"] + lost, goal="all", met=marks["rows"] + lost == tried)
        table.row("  as the program was told", said, goal="the same", met=said == marks["rows"])
        if policy == "lossless":
            size = os.path.getsize(path)
            table.row("  bytes of the capture a mark", size / max(marks["rows"], 1), goal="8", met=size <= 8 * marks["rows"])


def threads(table, path):
    alone = min(record(path, "flat", 200000, 1, policy="drop")[2] for _ in range(5))
    four = min(record(path, "flat", 200000, 4, policy="drop")[2] for _ in range(5))
    table.row("CPU of a mark, ns, best of 5: one thread", alone)
    table.row("  four threads", four, goal="1.3 of one", met=four <= 1.3 * alone)


def ours(child):
    return [pid for pid in bench.descendants(child.pid) if bench.comm(pid) in NAMES]


def wakeups(pid):
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))
    return total


def watch(path, *command, seconds):
    """Returns the wakeups a second and the CPU time in % of a core of all of profd's processes,
    while the program runs steadily."""
    child = start(path, *command)
    time.sleep(3)
    pids = ours(child)
    before = sum(map(wakeups, pids)), sum(map(bench.cpu_ns, pids))
    time.sleep(seconds)
    after = sum(map(wakeups, pids)), sum(map(bench.cpu_ns, pids))
    child.communicate(timeout=120)
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / 1e7 / seconds


def steady(table, path):
    rate = 200000
    _, nothing = watch(path, "idle", 1, 9, seconds=5)
    each = sorted((watch(path, "rate", rate, 9, seconds=5)[1] - nothing) * 100000 / rate for _ in range(3))
    table.row("CPU a 100 k marks with 2 arguments a second, %, best of 3", each[0], goal="3", met=each[0] <= 3)
    table.row("  median", each[1])
    one, _ = watch(path, "idle", 1, 24, seconds=20)
    many, _ = watch(path, "idle", 1000, 24, seconds=20)
    table.row("wake-ups a second, one idle thread", one)
    table.row("  1000 idle threads: more than one", many - one, goal="under 1", met=many - one < 1)


def resident(pid):
    """Returns the resident bytes of a process, and the size of its arenas, resident or not."""
    rss = arenas = 0
    is_arena = False
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as file:
        for line in file:
            if "-" in line.split()[0]:
                is_arena = "memfd:prof-arena" in line
            elif line.startswith("Rss:"):
                rss += int(line.split()[1]) * 1024
            elif line.startswith("Size:") and is_arena:
                arenas += int(line.split()[1]) * 1024
    return rss, arenas


def idle_memory(table, path):
    n = 1000
    alone = subprocess.Popen([LOAD, "idle", str(n), "5"], stdout=subprocess.DEVNULL)
    time.sleep(3)
    without, _ = resident(alone.pid)
    alone.wait()
    child = start(path, "idle", n, 6)
    time.sleep(4)
    pid = next(pid for pid in bench.descendants(child.pid) if bench.comm(pid) == os.path.basename(LOAD))
    recorded, arenas = resident(pid)
    child.communicate(timeout=120)
    each = (recorded - without) / 1024 / n
    table.row("memory of an idle thread that marked once, more of the program, KiB", each, goal="64", met=each <= 64)
    table.row("  its part of the arenas, KiB", arenas / 1024 / n)


def main():
    with bench.scratch() as folder:
        path = os.path.join(folder, "marks.cap")
        table = bench.Table("Marks")
        recorded_marks(table, path)
        threads(table, path)
        steady(table, path)
        idle_memory(table, path)
    return table.missed


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(1 if main() else 0)
