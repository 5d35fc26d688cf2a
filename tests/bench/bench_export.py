# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures each format of profcapture export: the time and memory for 1 M generated samples (or
allocations, if the format has only these), the memory for 10 M, and a comparison with perf script
on recordings of the same work."""

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench

SAMPLES = 1_000_000
SECONDS, HERTZ = 10, 5000


def formats(profcapture):
    """Returns all formats, from the message about a missing --to."""
    said = subprocess.run([profcapture, "export", "x.cap"], capture_output=True, text=True, check=False).stderr
    return re.search(r"--to with one of ([a-z, -]+)", said)[1].split(", ")


def export(profcapture, path, to, new, runs=1):
    """Returns the median duration in seconds, and the last output of peak-memory."""
    rows = ["--table", "sample"] if to in ("csv", "ndjson") else []
    seconds = []
    for _ in range(runs):
        start = time.monotonic()
        took = bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), profcapture, "export", path, "--to", to, *rows, "--force", "-q", "-o", new)
        seconds.append(time.monotonic() - start)
        if took["status"] != 0:
            break
    return statistics.median(seconds), took


def made_up(profcapture, folder, table):
    small, large, heap, large_heap, new = (os.path.join(folder, name) for name in ("small.cap", "large.cap", "heap.cap", "large-heap.cap", "new"))
    make = bench.program("MAKE_CAPTURE", "make-capture")
    bench.run(make, "--rows", SAMPLES, "--epochs", 3, small)
    bench.run(make, "--rows", 10 * SAMPLES, "--epochs", 3, large)
    for path, events in (heap, SAMPLES), (large_heap, 10 * SAMPLES):
        bench.run(bench.program("MAKE_HEAP", "make-heap"), "--events", events, path)
    for to in formats(profcapture):
        what = "samples"
        seconds, took = export(profcapture, small, to, new, 7)
        if took["status"] != 0:
            what = "allocations"
            seconds, took = export(profcapture, heap, to, new, 7)
        size = os.path.getsize(new) / 1e6
        table.row(f"{to}, 1 M {what}, {size:.1f} MB: s", seconds, None, goal="under 2", met=seconds < 2, digits=2)
        table.row(f"{to}, memory, MB", took["bytes"] / 1e6, None, goal="under 300", met=took["bytes"] < 300e6, digits=0)
        _, took = export(profcapture, large if what == "samples" else large_heap, to, new)
        os.remove(new)  # the output of perf-script has 10 GB
        table.row(f"{to}, memory of 10 M {what}, MB", took["bytes"] / 1e6, None, goal="under 1000", met=took["bytes"] < 1e9, digits=0)


def lines(text):
    """Counts lines, each of which is a sample or a frame. Times per line are compared, because our
    stacks are complete, while perf's come from frame pointers only."""
    return max(1, text.count("\n"))


def recorded(profcapture, folder, table):
    """Exports the same work, recorded by profd and perf at once; both times are scaled to the same
    number of lines."""
    perf = bench.peer("perf")
    if not perf:
        return
    capture, data, new = (os.path.join(folder, name) for name in ("run.cap", "run.data", "new"))
    with bench.Work(folder) as work:
        work.python()
        work.gcc()
        child = subprocess.Popen([perf, "record", "-q", "-B", "-N", "-a", "-g", "-F", str(HERTZ), "-e", "cpu-clock", "-o", data, "--", "sleep",
                                  str(SECONDS)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        bench.run(bench.program("PROFCTL", "profctl"), "record", "-a", "-q", "-F", HERTZ, "-e", "cpu-clock", "-d", SECONDS, "-o", capture)
        child.wait()
    ours = export(profcapture, capture, "perf-script", new, 7)[0] / lines(Path(new).read_text(encoding="utf-8"))
    start = time.monotonic()
    text = bench.run(perf, "script", "-i", data, "--no-inline", "-F", "comm,pid,tid,time,period,event,ip,sym,symoff,dso")
    theirs = (time.monotonic() - start) / lines(text)
    table.row("perf's text of a recording, 10 M lines, s", ours * 1e7, theirs * 1e7, goal="ratio under 0.2", met=ours < theirs / 5, digits=2)


def main():
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    table = bench.Table("Exports")
    with bench.scratch() as folder:
        made_up(profcapture, folder, table)
        recorded(profcapture, folder, table)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
