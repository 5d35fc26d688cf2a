# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profcapture diff on real recordings: a program compared with itself and with a slower version,
and two recordings of a million samples."""

import os
import sys

import bench

PAIRS = 20
SLOW = 7  # number of the function that mix makes slower, by 10 %
SECONDS = 8  # CPU time of each of two threads, for some 150 000 samples
MILLION_SECONDS = 52


def record(profctl, mix, capture, *slower, frequency=10000, seconds=SECONDS):
    bench.run(profctl, "record", "-q", "--force", "-F", frequency, "-e", "cpu-clock", "-o", capture, "--", mix, seconds, *slower)
    return capture


def diff(profcapture, a, b):
    return bench.run_json(profcapture, "diff", a, b, "--json")["data"]


def samples_of(data):
    return min(capture["samples"] for capture in data["captures"])


def equals(profctl, profcapture, mix, folder):
    """Compares each recording with the previous one. Returns the number of pairs with significant
    rows, and the smallest number of samples in a recording."""
    found, fewest = 0, None
    before = record(profctl, mix, os.path.join(folder, "0.cap"))
    for i in range(1, PAIRS + 1):
        after = record(profctl, mix, os.path.join(folder, f"{i}.cap"))
        data = diff(profcapture, before, after)
        found += data["significant"] > 0
        fewest = min(fewest or samples_of(data), samples_of(data))
        for row in data["rows"][:data["significant"]]:
            print(f"# pair {i}: {row['name']} {row['a']:.3f} {row['b']:.3f} noise {row['noise']:.3f}", file=sys.stderr)
        before = after
    return found, fewest


def slower(profctl, profcapture, mix, folder):
    """Returns the rank of the function that became slower, whether its change is significant, the
    change divided by its noise, and the number of samples."""
    slow = record(profctl, mix, os.path.join(folder, "slow.cap"), SLOW, 10)
    data = diff(profcapture, os.path.join(folder, "0.cap"), slow)
    names = [row["name"] for row in data["rows"]]
    rank = names.index(f"work_{SLOW}")
    row = data["rows"][rank]
    return rank + 1, row["significant"], row["delta"] / row["noise"], samples_of(data)


def million(profctl, profcapture, folder):
    """Compares two recordings of the whole system; each run of diff is a new process."""
    captures = [os.path.join(folder, name) for name in ("a.cap", "b.cap")]
    with bench.Work(folder) as work:
        work.python()
        work.gcc()
        for capture in captures:
            bench.run(profctl, "record", "-a", "-q", "-F", "10000", "-e", "cpu-clock", "-d", MILLION_SECONDS, "-o", capture)
    samples = [bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"] for capture in captures]
    return min(samples), *(bench.median_seconds([profcapture, "diff", *captures, *options]) for options in ([], ["--paths"]))


def main():
    profctl = bench.program("PROFCTL", "profctl")
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    mix = bench.program("MIX", "mix")
    table = bench.Table("Comparing")
    with bench.scratch() as folder:
        found, fewest = equals(profctl, profcapture, mix, folder)
        table.row(f"of {PAIRS} pairs of equals ({fewest / 1e3:.0f} k samples), with a change", found, goal="0", met=found == 0, digits=0)
        rank, significant, over, samples = slower(profctl, profcapture, mix, folder)
        table.row(f"rank of one of 20 that is 10 % slower ({samples / 1e3:.0f} k)", rank, goal="1", met=rank == 1, digits=0)
        table.row("… its change by its noise", over, goal="over 1", met=significant, digits=2)
        samples, functions, paths = million(profctl, profcapture, folder)
        table.row(f"diff of two of {samples / 1e6:.2f} M samples, s", functions, goal="under 2", met=functions < 2, digits=3)
        table.row("… by call path, s", paths, goal="under 2", met=paths < 2, digits=3)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
