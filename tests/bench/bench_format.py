# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures libprofcapture: writing, scanning, seeking, opening after a crash. The rows come from a
recording made in this run."""

import os
import statistics
import sys

import bench

MILLION = 1_000_000


def repeat(times, *command):
    return [bench.run_json(*command) for _ in range(times)]


def peak(*command):
    """Returns the largest resident size of a command, in bytes."""
    measured = bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), *command)
    if measured["status"]:
        sys.exit(f"bench: {command} failed with {measured['status']}")
    return measured["bytes"]


def main():
    tool = bench.program("BENCH_CAPTURE", "bench-capture")
    profctl = bench.program("PROFCTL", "profctl")
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    large = 4 if "--large" in sys.argv else 1
    table = bench.Table("The file (rows of a real recording, one core)")
    with bench.scratch() as folder:
        recording = os.path.join(folder, "recording.cap")
        with bench.Work(folder) as work:
            work.python()
            work.gcc()
            bench.run(profctl, "record", "--system", "-d", "20", "-F", "4000", "-q", "-o", recording)

        out = os.path.join(folder, "out.cap")
        for chunk_rows in (2048, 65536):
            runs = repeat(5, tool, "write", recording, out, 10 * MILLION, chunk_rows)
            rate = statistics.median(r["rows"] / r["cpu_ns"] * 1000 for r in runs)
            table.row(f"write samples, chunks of {chunk_rows}, M rows/s", rate,
                      goal="at least 20" if chunk_rows == 2048 else None, met=rate >= 20 if chunk_rows == 2048 else None)
            table.row(f"  bytes a sample row, chunks of {chunk_rows}", runs[0]["bytes"] / runs[0]["rows"])
            scans = [r["wall_ns"] / 1e9 for r in repeat(5, tool, "scan", out)]
            goal = 0.2 if chunk_rows == 2048 else 0.1
            table.row(f"scan two columns of 10 M samples, chunks of {chunk_rows}, s", statistics.median(scans),
                      goal=f"under {goal}", met=statistics.median(scans) < goal, digits=3)

        grown = os.path.join(folder, "grown.cap")
        bench.run_json(tool, "grow", recording, grown, 1 << 30, 2048)
        opened = [r["wall_ns"] / 1e9 for r in repeat(5, tool, "open", grown)]
        table.row("open 1 GiB left by a crash, s", statistics.median(opened), goal="under 0.5",
                  met=statistics.median(opened) < 0.5, digits=4)
        bench.run(tool, "finish", grown)
        seeks = bench.run_json(tool, "seek", grown, 1000)
        table.row("seek in 1 GiB, warm, median, ms", seeks["median_ns"] / 1e6, goal="under 10",
                  met=seeks["median_ns"] < 10e6, digits=3)
        table.row("seek in 1 GiB, warm, slowest of 1000, ms", seeks["max_ns"] / 1e6, digits=3)

        small = os.path.join(folder, "small.cap")
        bench.run_json(tool, "grow", recording, small, 256 << 20, 2048)
        bench.run(tool, "finish", small)
        if large > 1:
            bench.run_json(tool, "grow", recording, grown, large << 30, 2048)
            bench.run(tool, "finish", grown)
        for verb in ("dump", "report", "verify"):
            few, many = (peak(profcapture, verb, path) for path in (small, grown))
            same = verb == "dump" and large == 1
            table.row(f"{verb} 256 MiB, RSS, MB", few / 1e6, goal="under 200", met=few < 200e6, digits=1)
            table.row(f"{verb} {large} GiB, RSS, MB", many / 1e6, goal="under 200", met=many < 200e6, digits=1)
            table.row(f"  ratio, {large} GiB of {bench.run_json(tool, 'open', grown)['chunks']} chunks", many / few,
                      goal="under 1.15" if same else None, met=many < 1.15 * few if same else None)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
