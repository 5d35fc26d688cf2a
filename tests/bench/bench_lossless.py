# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Counts the lost records of short processes whose threads allocate at full speed, while two
processes keep two CPUs busy."""

import contextlib
import json
import os
import subprocess
import sys

import bench

RUNS, RECORDS = 500, 10000
THREADS = 1, 4, 16, 64


@contextlib.contextmanager
def hogs(count):
    """Runs processes that only use CPU time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def losses(capture, threads, records):
    """Returns the loss rows of a process with `threads` threads, each of which makes `records`
    records."""
    done = json.loads(bench.run(
        bench.program("PROFCTL", "profctl"), "record", "--bus", "private", "-F", 0, "--memory", "--no-symbols", "--force", "--json",
        "-o", capture, "--", bench.program("HEAP_PAIRS", "heap-pairs"), threads, records // 2, 4, 1).splitlines()[-1])["data"]
    assert done["events"] >= threads * records - sum(loss["count"] for loss in done["loss"]), done
    return [loss for loss in done["loss"] if loss["stream"].startswith("collector")]


def main():
    table = bench.Table("Records that lossless mode loses")
    runs = int(os.environ.get("LOSSLESS_RUNS", RUNS))
    with bench.scratch() as folder, hogs(2):
        for threads in THREADS:
            found = [losses(os.path.join(folder, "capture"), threads, RECORDS) for _ in range(runs // len(THREADS))]
            lost = sum(loss["count"] or 0 for run in found for loss in run)
            table.row(f"{threads} threads: runs that lose something, of {len(found)}", sum(map(bool, found)), goal="0", met=lost == 0)
            table.row("  records lost of each million", lost * 1e6 / (len(found) * threads * RECORDS), goal="0", met=lost == 0)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
