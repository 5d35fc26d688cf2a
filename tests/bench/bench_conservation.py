# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Records 10^8 marks of four threads: each mark must be a row of the capture or be counted as
lost."""

import os
import subprocess
import sys
import time

import bench

MARKS, THREADS = 100000000, 4
CONSERVE = os.environ["CONSERVE"]


def run(table, folder, policy):
    path, counts = os.path.join(folder, f"{policy}.cap"), os.path.join(folder, policy)
    begin = time.monotonic()
    subprocess.run(
        [bench.program("PROFCTL", "profctl"), "record", "--bus", "private", "-F", "0", "--policy", policy, "--no-symbols", "-q",
         "--force", "-o", path, "--", CONSERVE, "write", "0", str(THREADS), str(MARKS // THREADS), counts],
        stdin=subprocess.DEVNULL, check=True, timeout=900)
    elapsed = time.monotonic() - begin
    tried, rows, lost, _ = map(int, subprocess.run([CONSERVE, "check", path, counts], capture_output=True, text=True,
                                                   check=True, timeout=300).stdout.split())
    table.row(f"{policy}: tried, in {elapsed:.0f} s", tried, goal=f"{MARKS}", met=tried == MARKS)
    table.row("  rows of the capture", rows)
    table.row("  counted as lost", lost)
    table.row("  neither", tried - rows - lost, goal="0", met=tried == rows + lost)
    table.row("  bytes of the capture a row", os.path.getsize(path) / max(rows, 1))
    os.unlink(path)


def main():
    with bench.scratch() as folder:
        table = bench.Table("Conservation")
        for policy in "lossless", "drop":
            run(table, folder, policy)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
