# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Each format of profcapture export: the time and memory of 1 M generated samples, or of as many
allocations if it has only these, the memory of 10 M samples, and perf script beside ours on
recordings of the same work."""

import os
import re
import subprocess
import sys
import time

import bench

SAMPLES = 1_000_000
SECONDS, HERTZ = 10, 5000


def formats(profcapture):
    """All of them, as the message about a missing --to names them."""
    said = subprocess.run([profcapture, "export", "x.cap"], capture_output=True, text=True, check=False).stderr
    return re.search(r"--to with one of ([a-z, -]+)", said)[1].split(", ")


def export(profcapture, path, to, new):
    """The seconds, and the answer of peak-memory."""
    start = time.monotonic()
    took = bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), profcapture, "export", path, "--to", to, "--force", "-q", "-o", new)
    return time.monotonic() - start, took


def made_up(profcapture, folder, table):
    small, large, heap, new = (os.path.join(folder, name) for name in ("small.cap", "large.cap", "heap.cap", "new"))
    make = bench.program("MAKE_CAPTURE", "make-capture")
    bench.run(make, "--rows", SAMPLES, "--epochs", 3, small)
    bench.run(make, "--rows", 10 * SAMPLES, "--epochs", 3, large)
    bench.run(bench.program("MAKE_HEAP", "make-heap"), "--events", SAMPLES, heap)
    for to in formats(profcapture):
        what = "samples"
        seconds, took = export(profcapture, small, to, new)
        if took["status"] != 0:
            what = "allocations"
            seconds, took = export(profcapture, heap, to, new)
        size = os.path.getsize(new) / 1e6
        table.row(f"{to}, 1 M {what}, {size:.1f} MB: s", seconds, None, goal="under 2", met=seconds < 2, digits=2)
        table.row(f"{to}, memory, MB", took["bytes"] / 1e6, None, goal="under 300", met=took["bytes"] < 300e6, digits=0)
        if size > 500 or what != "samples":  # ten times the text of perf would measure the disk
            continue
        _, took = export(profcapture, large, to, new)
        table.row(f"{to}, memory of 10 M samples, MB", took["bytes"] / 1e6, None, goal="under 1000", met=took["bytes"] < 1e9, digits=0)


def recorded(profcapture, folder, table):
    """The same work, recorded by both at once; scaled to 1 M samples."""
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
    samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
    ours = export(profcapture, capture, "perf-script", new)[0] / samples
    start = time.monotonic()
    text = bench.run(perf, "script", "-i", data, "--no-inline", "-F", "comm,pid,tid,time,period,event,ip,sym,symoff,dso")
    theirs = (time.monotonic() - start) / max(1, text.count("cpu-clock:"))
    table.row("perf's text of a recording, 1 M samples, s", ours * SAMPLES, theirs * SAMPLES, goal="ratio under 0.2", met=ours < theirs / 5, digits=2)


def main():
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    table = bench.Table("Exports")
    with bench.scratch() as folder:
        made_up(profcapture, folder, table)
        recorded(profcapture, folder, table)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
