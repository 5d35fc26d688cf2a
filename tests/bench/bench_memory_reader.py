# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profcapture memory on a capture of very many allocations: time and memory of --leaks, --peak and
--at.

    bench_memory_reader.py [--large]     --large: 1280 million calls, about 5 GB, else 30 million
    PROF_BENCH_MILLIONS=N                another number of calls
"""
import json
import os
import subprocess
import sys
import time

import bench

MILLION = 1_000_000


def measure(capture, *options):
    """Returns the seconds of the faster of two runs, the second of which finds the file in the page
    cache, and the largest resident bytes."""
    peak = bench.program("PEAK_MEMORY", "peak-memory")
    command = [peak, bench.program("PROFCAPTURE", "profcapture"), "memory", capture, "--json", "--limit", "20", *options]
    best, resident = None, 0
    for _ in range(2):
        start = time.monotonic()
        measured = bench.run_json(*command)
        took = time.monotonic() - start
        if measured["status"]:
            sys.exit(f"bench: {command} failed with {measured['status']}")
        best = took if best is None else min(best, took)
        resident = max(resident, measured["bytes"])
    return best, resident


def found(capture, *options):
    command = [bench.program("PROFCAPTURE", "profcapture"), "memory", capture, "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["data"]["summary"]


def main():
    millions = int(os.environ.get("PROF_BENCH_MILLIONS", 1280 if "--large" in sys.argv else 30))
    events, large = millions * MILLION, millions > 100
    table = bench.Table("profcapture memory (made-up allocations, one core)")
    with bench.scratch() as folder:
        capture = os.path.join(folder, "heap.cap")
        want = bench.run_json(bench.program("MAKE_HEAP", "make-heap"), "--events", events, "--live", 100_000, "--stacks", 1000, "--threads", 4,
                              "--checkpoint", 16 * MILLION, capture)
        table.row("calls, millions", events / MILLION)
        table.row("the capture, MB", want["bytes"] / 1e6)
        table.row("  bytes a call", want["bytes"] / events)
        at = f"{want['at_ns']}ns"
        for options, key in ((["--leaks"], "leaked"), (["--peak"], "peak"), (["--at", at], "then")):
            summary = found(capture, *options)
            field = "leaked_bytes" if key == "leaked" else "live_bytes"
            if summary[field] != want[key]["bytes"]:
                sys.exit(f"bench: {options}: {summary[field]} bytes, not {want[key]['bytes']}")
        for options in ["--leaks"], ["--peak"], ["--at", at], ["--leaks", "--tree"], *([] if large else [[], ["--cross-thread"]]):
            seconds, resident = measure(capture, *options)
            name = " ".join(options).replace(at, "TIME") or "summary"
            table.row(f"{name}, s", seconds, digits=3)
            table.row(f"  MB of memory", resident / 1e6, goal="under 500", met=resident < 500e6)
        if not large:
            seconds, _ = measure(capture)
            table.row("summary, ns a call", seconds * 1e9 / events)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
