# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost of beginning and ending a block in a program that records itself, and of opening and
closing the recorder.

The calls come from Python, so ctypes accounts for a microsecond of each. Blocks last one or ten
milliseconds. With five milliseconds between blocks, both sides sleep in between, as in a real
program. Each call waits until profd's engine, which may sleep, has enabled or disabled each event.
Runs as root and, by as_user.py, as a plain user.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench

BLOCKS = 400
RARE = 80
PAUSE_S = 0.35
SELDOM = 8
LONG_PAUSE_S = 2.5
GOAL_US = 500


def check(prof, status):
    if status:
        prof.prof_recorder_error.restype = prof.prof_recorder_message.restype = ctypes.c_char_p
        sys.exit(f"{prof.prof_recorder_error(status)} {prof.prof_recorder_message()}")


def timed(prof, call, *arguments):
    begin = time.perf_counter_ns()
    status = call(*arguments)
    taken = time.perf_counter_ns() - begin
    check(prof, status)
    return taken / 1e3


def measure_blocks(prof, n, pause_s):
    """Returns the medians and 99th percentiles of begin and end, in µs."""
    begins, ends = [], []
    for i in range(n):
        time.sleep(pause_s)
        begins.append(timed(prof, prof.prof_recorder_begin, b"block"))
        until = time.perf_counter() + (0.001 if i % 10 else 0.01)
        while time.perf_counter() < until:
            pass
        ends.append(timed(prof, prof.prof_recorder_end, b"block"))
    return [value for times in (begins, ends) for value in (statistics.median(times), statistics.quantiles(times, n=100)[98])]


def measure(path):
    """Measures a recorder and prints its times. Runs in a separate process."""
    prof = ctypes.CDLL(os.environ["LIBPROFCOLLECTOR"])
    opened = timed(prof, prof.prof_recorder_open, os.fsencode(path), None)
    rare = measure_blocks(prof, RARE, PAUSE_S)
    often = measure_blocks(prof, BLOCKS, 0.005)
    seldom = measure_blocks(prof, SELDOM, LONG_PAUSE_S)
    closed = timed(prof, prof.prof_recorder_close)
    print(opened, closed, *rare, *often, *seldom)


def rows(table, path, what, *prefix):
    command = [*prefix, "/usr/bin/python3", "-B", __file__, "--measure", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{what}: not measured")
        return
    opened, closed, *times = map(float, done.stdout.split())
    for when, values in ((f"after {PAUSE_S} s", times[:4]), ("5 ms after the last", times[4:8]), (f"after {LONG_PAUSE_S} s", times[8:12])):
        for call, median, last in (("begin", *values[:2]), ("end", *values[2:])):
            table.row(f"{what}: {call}, {when}, median, µs", median, goal=str(GOAL_US), met=median <= GOAL_US)
            table.row("  99 %", last)
    table.row(f"{what}: open, ms", opened / 1e3)
    table.row("  close, with names, ms", closed / 1e3)


def main():
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
        return 0
    table = bench.Table("Blocks of a program that records itself")
    with bench.scratch() as folder:
        os.chmod(folder, 0o777)
        rows(table, Path(folder, "own.cap"), "as root" if os.geteuid() == 0 else "as this user")
        if os.geteuid() == 0:
            as_user = Path(__file__).parent.parent / "integration/as_user.py"
            rows(table, Path(folder, "user.cap"), "as nobody, by task", "/usr/bin/python3", str(as_user))
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
