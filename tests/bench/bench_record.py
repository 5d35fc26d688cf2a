# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recording the whole system with profctl's defaults (64 KiB of each stack), compared with `perf
record --call-graph dwarf`; and by frame pointers, compared with `--call-graph fp`: loss, CPU
time, memory, bytes, and the slowdown of other work.

The recorders run one after the other on the same load, with cpu-clock at the same rate, since
two recorders that copy stacks would disturb each other. A recorder's CPU time is that of its own
processes, as counted by the scheduler just before the recording ends. The cost of sampling to
the interrupted processes shows in the slowdown: a fixed amount of work on every CPU, timed with
and without a recorder. perf runs without its pass over build-ids at the end (-B -N), in which
perf 6.1 crashes on some machines.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import bench


def profd_record(folder, name, seconds, frequency, call_graph="dwarf"):
    path = os.path.join(folder, name + ".cap")
    child = subprocess.Popen([bench.program("PROFCTL", "profctl"), "record", "--system", "-d", str(seconds), "-F",
                              str(frequency), "--call-graph", call_graph, "--json", "-q", "-e", "cpu-clock", "-o", path],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return child, path


def perf_record(folder, name, seconds, frequency, call_graph="dwarf"):
    perf = bench.peer("perf")
    if not perf:
        return None, None
    path = os.path.join(folder, name + ".data")
    child = subprocess.Popen([perf, "record", "-q", "-B", "-N", "-a", "--call-graph", call_graph, "-e", "cpu-clock", "-F", str(frequency),
                              "-o", path, "--", "sleep", str(seconds)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    return child, path


def perf_counts(path):
    """Returns the numbers of samples and lost records of a perf.data file."""
    stats = bench.run("perf", "report", "-i", path, "--stats", "--stdio")
    counts = {}
    for line in stats.splitlines():
        parts = line.split()
        if len(parts) >= 3 and parts[1] == "events:":
            counts[parts[0]] = int(parts[2])
    return counts.get("SAMPLE", 0), counts.get("LOST", 0) + counts.get("LOST_SAMPLES", 0)


def record(folder, name, seconds, frequency, call_graph="dwarf"):
    """Runs both recorders, one after the other; returns (ours, theirs) as dicts."""
    child, path = profd_record(folder, name, seconds, frequency, call_graph)
    time.sleep(seconds - 1.5)
    pids = bench.descendants(child.pid)
    ours = {"cpu_ns": sum(bench.cpu_ns(p) for p in pids), "seconds": seconds - 1.5,
            "rss": max([bench.rss_without_rings(p) for p in pids if bench.comm(p) == "profd-engine"], default=0)}
    stdout, _ = child.communicate(timeout=120)
    if child.returncode != 0:
        sys.exit(f"bench: profctl record failed with {child.returncode}")
    ours.update(json.loads(stdout.splitlines()[-1])["data"])
    ours["file"] = os.path.getsize(path)
    other, data = perf_record(folder, name, seconds, frequency, call_graph)
    theirs = {}
    if other:
        time.sleep(seconds - 1.5)
        theirs["cpu_ns"] = bench.cpu_ns(other.pid)
        other.wait(timeout=300)
        theirs["file"] = os.path.getsize(data)
        theirs["samples"], theirs["lost"] = perf_counts(data)
        os.unlink(data)
    return ours, theirs


# ---- slowdown ----------------------------------------------------------------------------------

def time_work(folder, work):
    """Returns the wall time of a fixed amount of work on every CPU at once."""
    start = time.monotonic()
    children = [subprocess.Popen(["/usr/bin/python3", work], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                for _ in range(os.cpu_count())]
    for child in children:
        child.wait()
    return time.monotonic() - start


def recorded(folder, start):
    """Times the work while a recorder runs, and then stops the recorder as Ctrl-C does."""
    child, path = start(folder, "slowdown", 3600, 999)
    time.sleep(1)
    try:
        return time_work(folder, os.path.join(folder, "work.py"))
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=300)
        os.unlink(path)


def show_slowdown(table, runs):
    with bench.scratch() as folder:
        with open(os.path.join(folder, "work.py"), "w", encoding="utf-8") as file:
            file.write(bench.PYTHON_LOOP.replace("while True:", "for _ in range(1500):"))
        times = {"alone": [], "profd": [], "perf": []}
        for _ in range(runs):  # alternating, so that other work affects all three equally
            times["alone"].append(time_work(folder, os.path.join(folder, "work.py")))
            times["profd"].append(recorded(folder, profd_record))
            if bench.peer("perf"):
                times["perf"].append(recorded(folder, perf_record))
        medians = {name: statistics.median(values) if values else None for name, values in times.items()}

        def slower(name):
            return (medians[name] / medians["alone"] - 1) * 100 if medians[name] else None

        spread = (max(times["alone"]) / min(times["alone"]) - 1) * 100
        table.row("alone, the slowest over the fastest turn, %", spread)
        table.row(f"slowdown of {os.cpu_count()} busy CPUs by 999 Hz, %, median of {runs}", slower("profd"), slower("perf"))


def ring_loss(result):
    return sum(row["count"] for row in result["loss"] if row["cause"] in ("perf-ring", "perf-lost-samples", "side-band"))


def missed(result):
    return sum(row["count"] for row in result["loss"] if row["cause"] == "ticks-missed")


def show(table, load, ours, theirs, cpu_goal, bytes_goal, rate_goal=None):
    cpu = ours["cpu_ns"] / (ours["seconds"] * 1e9) * 100
    peer_cpu = theirs["cpu_ns"] / (ours["seconds"] * 1e9) * 100 if theirs else None
    table.row(f"{load}: samples", ours["samples"], theirs.get("samples"))
    table.row(f"{load}: lost in rings", ring_loss(ours), theirs.get("lost"), goal="0", met=ring_loss(ours) == 0)
    table.row(f"{load}: missed ticks", missed(ours))
    table.row(f"{load}: CPU of all processes, % of one core", cpu, peer_cpu, goal=f"at most {cpu_goal}", met=cpu <= cpu_goal)
    table.row(f"{load}: engine RSS without rings, MB", ours["rss"] / 1e6, goal="under 50", met=ours["rss"] < 50e6)
    per = ours["file"] / max(ours["samples"], 1)
    table.row(f"{load}: file, bytes a sample, names included", per,
              theirs["file"] / max(theirs["samples"], 1) if theirs else None, goal=f"at most {bytes_goal}",
              met=per <= bytes_goal)
    rate = ours["file"] / (ours["elapsed_ns"] / 1e9) / 1e3
    table.row(f"{load}: file, kB/s", rate, theirs["file"] / (ours["elapsed_ns"] / 1e9) / 1e3 if theirs else None,
              goal=f"under {rate_goal}" if rate_goal else None, met=rate < rate_goal if rate_goal else None)
    unwind = ours["unwind"]
    if unwind["complete"]:
        table.row(f"{load}: stacks by CFI to the root, %", 100 * unwind["complete"] / max(sum(unwind.values()), 1))


def main():
    seconds = int(os.environ.get("BENCH_SECONDS", "60"))
    table = bench.Table(f"Recording the whole system, {seconds} s, beside perf record -a --call-graph dwarf")
    with bench.scratch() as folder:
        with bench.Work(folder) as work:
            work.python()
            work.node()
            show(table, "999 Hz steady", *record(folder, "steady", seconds, 999), 2, 25, 50)
            show(table, "999 Hz steady, fp", *record(folder, "steady-fp", seconds, 999, "fp"), 1, 8)
        with bench.Work(folder) as work:
            work.gcc("a.c")
            work.gcc("b.c")
            show(table, "999 Hz compiling", *record(folder, "compiling", seconds, 999), 2, 50)
            show(table, "999 Hz compiling, fp", *record(folder, "compiling-fp", seconds, 999, "fp"), 1, 16)
        with bench.Work(folder) as work:
            work.python()
            work.gcc()
            ours, theirs = record(folder, "fast", max(seconds // 3, 5), 10000)
            table.row("10 kHz: samples", ours["samples"], theirs.get("samples"))
            table.row("10 kHz: lost in rings", ring_loss(ours), theirs.get("lost"), goal="0", met=ring_loss(ours) == 0)
            table.row("10 kHz: missed ticks (reported)", missed(ours))
    show_slowdown(table, max(seconds // 8, 3))
    return table.missed


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(1 if main() else 0)
