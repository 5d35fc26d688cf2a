# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What begin and end of a block take that a program records of itself, and opening and closing the recorder.

Called from Python, so a microsecond of each is ctypes. Blocks are a millisecond, or ten, with five between them: both sides sleep then,
as they do in a program. By the CPUs' events as root, and by the program's own as anybody, who is as_user.py's.
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
GOAL_US = 100


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


def measure(path):
    """In a process of its own: four medians and two 99 % marks, in µs."""
    prof = ctypes.CDLL(os.environ["LIBPROFCOLLECTOR"])
    opened = timed(prof, prof.prof_recorder_open, os.fsencode(path), None)
    begins, ends = [], []
    for i in range(BLOCKS):
        begins.append(timed(prof, prof.prof_recorder_begin, b"block"))
        until = time.perf_counter() + (0.001 if i % 10 else 0.01)
        while time.perf_counter() < until:
            pass
        ends.append(timed(prof, prof.prof_recorder_end, b"block"))
        time.sleep(0.005)
    closed = timed(prof, prof.prof_recorder_close)
    print(opened, closed, *(value for times in (begins, ends) for value in (statistics.median(times), statistics.quantiles(times, n=100)[98])))


def rows(table, path, what, *prefix):
    command = [*prefix, "/usr/bin/python3", "-B", __file__, "--measure", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{what}: not measured")
        return
    opened, closed, begin, begin_99, end, end_99 = map(float, done.stdout.split())
    table.row(f"{what}: begin, median, µs", begin, goal=str(GOAL_US), met=begin <= GOAL_US)
    table.row("  99 %", begin_99)
    table.row("  end, median, µs", end, goal=str(GOAL_US), met=end <= GOAL_US)
    table.row("  99 %", end_99)
    table.row("  open, ms", opened / 1e3)
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
