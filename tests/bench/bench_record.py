# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recording the whole system beside perf: loss, CPU time, memory, bytes.

Both recorders run at once on the same load, cpu-clock at the same rate, so that file sizes are of the same run; each
recorder's CPU time is its own processes' time as the scheduler counted it, read just before the recording ends. perf runs
without its pass over build-ids at the end (-B -N), which perf 6.1 does not survive on every machine.
"""

import json
import os
import signal
import subprocess
import sys
import time

import bench


def profd_record(folder, name, seconds, frequency):
    path = os.path.join(folder, name + ".cap")
    child = subprocess.Popen([bench.program("PROFCTL", "profctl"), "record", "--system", "-d", str(seconds), "-F",
                              str(frequency), "--json", "-q", "-e", "cpu-clock", "-o", path],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return child, path


def perf_record(folder, name, seconds, frequency):
    perf = bench.peer("perf")
    if not perf:
        return None, None
    path = os.path.join(folder, name + ".data")
    child = subprocess.Popen([perf, "record", "-q", "-B", "-N", "-a", "-g", "-e", "cpu-clock", "-F", str(frequency), "-o", path, "--",
                              "sleep", str(seconds)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    return child, path


def perf_counts(path):
    """Samples and lost records of a perf.data file."""
    stats = bench.run("perf", "report", "-i", path, "--stats", "--stdio")
    counts = {}
    for line in stats.splitlines():
        parts = line.split()
        if len(parts) >= 3 and parts[1] == "events:":
            counts[parts[0]] = int(parts[2])
    return counts.get("SAMPLE", 0), counts.get("LOST", 0) + counts.get("LOST_SAMPLES", 0)


def record(folder, name, seconds, frequency):
    """One run of both recorders; returns (ours, theirs) as dicts."""
    child, path = profd_record(folder, name, seconds, frequency)
    other, data = perf_record(folder, name, seconds, frequency)
    time.sleep(seconds - 1.5)
    pids = bench.descendants(child.pid)
    start = [bench.cpu_ns(p) for p in pids]
    ours = {"cpu_ns": sum(start), "rss": max([bench.rss_without_rings(p) for p in pids if bench.comm(p) == "profd-engine"],
                                             default=0), "seconds": seconds - 1.5}
    theirs = {}
    if other:
        theirs["cpu_ns"] = bench.cpu_ns(other.pid)
    stdout, _ = child.communicate(timeout=120)
    if child.returncode != 0:
        sys.exit(f"bench: profctl record failed with {child.returncode}")
    ours.update(json.loads(stdout.splitlines()[-1])["data"])
    ours["file"] = os.path.getsize(path)
    ours["path"] = path
    if other:
        other.wait(timeout=120)
        theirs["file"] = os.path.getsize(data)
        theirs["samples"], theirs["lost"] = perf_counts(data)
    return ours, theirs


def ring_loss(result):
    return sum(row["count"] for row in result["loss"] if row["cause"] in ("perf-ring", "perf-lost-samples", "side-band"))


def missed(result):
    return sum(row["count"] for row in result["loss"] if row["cause"] == "ticks-missed")


def show(table, load, ours, theirs, bytes_goal):
    cpu = ours["cpu_ns"] / (ours["seconds"] * 1e9) * 100
    peer_cpu = theirs["cpu_ns"] / (ours["seconds"] * 1e9) * 100 if theirs else None
    table.row(f"{load}: samples", ours["samples"], theirs.get("samples"))
    table.row(f"{load}: lost in rings", ring_loss(ours), theirs.get("lost"), goal="0", met=ring_loss(ours) == 0)
    table.row(f"{load}: missed ticks", missed(ours))
    table.row(f"{load}: CPU of all processes, % of one core", cpu, peer_cpu, goal="under 1", met=cpu < 1)
    table.row(f"{load}: engine RSS without rings, MB", ours["rss"] / 1e6, goal="under 50", met=ours["rss"] < 50e6)
    per = ours["file"] / max(ours["samples"], 1)
    table.row(f"{load}: file, bytes a sample, names included", per,
              theirs["file"] / max(theirs["samples"], 1) if theirs else None, goal=f"at most {bytes_goal}",
              met=per <= bytes_goal)
    if theirs:
        table.row(f"{load}: file, bytes", ours["file"], theirs["file"], goal="ratio under 0.2",
                  met=ours["file"] < theirs["file"] / 5)


def main():
    seconds = int(os.environ.get("BENCH_SECONDS", "60"))
    table = bench.Table(f"Recording the whole system, {seconds} s, beside perf record -a -g")
    with bench.scratch() as folder:
        with bench.Work(folder) as work:
            work.python()
            work.node()
            show(table, "999 Hz steady", *record(folder, "steady", seconds, 999), 8)
        with bench.Work(folder) as work:
            work.gcc("a.c")
            work.gcc("b.c")
            show(table, "999 Hz compiling", *record(folder, "compiling", seconds, 999), 16)
        with bench.Work(folder) as work:
            work.python()
            work.gcc()
            ours, theirs = record(folder, "fast", max(seconds // 3, 5), 10000)
            table.row("10 kHz: samples", ours["samples"], theirs.get("samples"))
            table.row("10 kHz: lost in rings", ring_loss(ours), theirs.get("lost"), goal="0", met=ring_loss(ours) == 0)
            table.row("10 kHz: missed ticks (reported)", missed(ours))
    return table.missed


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(1 if main() else 0)
