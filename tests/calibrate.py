#!/usr/bin/python3 -S
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Distinguishes a slow day from a normal one: times a fixed piece of work and prints how this
machine compares.

The work resembles that of the suite: computing, starting processes, and writing to new pages, in
one process for each CPU. NORMAL_S is the median time on the machine that CI runs on. The speed
of a virtual machine changes by the hour, by a factor of up to two, so durations can be compared
only together with this number.
"""
import os
import subprocess
import sys
import time

NORMAL_S = 2.1
SLOW = 1.3  # times NORMAL_S


def work():
    total = 0
    for i in range(4_000_000):
        total += i * i % 7
    for _ in range(300):
        subprocess.run(["/bin/true"], check=True)
    pages = bytearray(64 << 20)
    for i in range(0, len(pages), 4096):
        pages[i] = 1


def main():
    start = time.monotonic()
    children = []
    for _ in os.sched_getaffinity(0):
        child = os.fork()
        if child == 0:
            work()
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    took = time.monotonic() - start
    day = "slow" if took > SLOW * NORMAL_S else "normal"
    print(f"calibration: {took:.2f} s, {took / NORMAL_S:.2f} times the usual {NORMAL_S} s: a {day} day")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
