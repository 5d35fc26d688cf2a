# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profcapture report compared with perf report on the same recording, and the cost of starting a
recording."""

import os
import statistics
import subprocess
import sys
import time

import bench


def cold_seconds(command, runs=5):
    """Returns the median time of a new process, with its files in the page cache."""
    return bench.median_seconds(command, runs)


def paired_cost(command, base, runs=15):
    """Returns the median of the pairwise differences: wall seconds of `command` minus those of
    `base`."""
    took = []
    for _ in range(runs):
        pair = []
        for argv in (command, base):
            start = time.monotonic()
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            pair.append(time.monotonic() - start)
        took.append(pair[0] - pair[1])
    return statistics.median(took)


def long_capture(profcapture, folder, table):
    """Measures a report on 10 M generated samples in 200 epochs, each of which writes all names
    again."""
    path = os.path.join(folder, "long.cap")
    bench.run(bench.program("MAKE_CAPTURE", "make-capture"), "--rows", "10000000", "--epochs", "200", path)
    took = cold_seconds([profcapture, "report", path])
    measured = bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), profcapture, "report", path)
    table.row("report on 10 M made-up samples, s", took, None, goal="under 3", met=took < 3, digits=3)
    table.row("its memory, MB", measured["bytes"] / 1e6, None, goal="under 500", met=measured["bytes"] < 500e6, digits=0)


def main():
    profctl = bench.program("PROFCTL", "profctl")
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    perf = bench.peer("perf")
    table = bench.Table("Reading and starting")
    with bench.scratch() as folder:
        capture, data = os.path.join(folder, "run.cap"), os.path.join(folder, "run.data")
        with bench.Work(folder) as work:
            work.python()
            work.gcc()
            child = subprocess.Popen([perf or "true", "record", "-q", "-B", "-N", "-a", "-g", "-F", "10000", "-e", "cpu-clock", "-o",
                                      data, "--", "sleep", "52"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            bench.run(profctl, "record", "-a", "-q", "-F", "10000", "-e", "cpu-clock", "-d", "52", "-o", capture)
            child.wait()
        samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
        ours = cold_seconds([profcapture, "report", capture])
        theirs = None
        if perf:
            theirs = cold_seconds([perf, "report", "-i", data, "--stdio", "--no-children", "--no-inline", "-g", "none"], 3)
        table.row(f"report on {samples / 1e6:.2f} M samples, s", ours, theirs, goal="under 1, ratio under 0.2",
                  met=ours < 1 and (theirs is None or ours < theirs / 5), digits=3)
        long_capture(profcapture, folder, table)
        cost = paired_cost([profctl, "record", "-q", "--force", "-o", os.path.join(folder, "true.cap"), "--", "true"], ["true"])
        peer_cost = None
        if perf:
            peer_cost = paired_cost([perf, "record", "-q", "-B", "-N", "-g", "-o", os.path.join(folder, "true.data"), "--", "true"],
                                    ["true"])
        table.row("record -- true over true, ms", cost * 1000, peer_cost and peer_cost * 1000, goal="under 150",
                  met=cost < 0.150, digits=1)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
