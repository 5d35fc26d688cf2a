# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures how long reading the frames of an interpreted program takes for each sample, by the clock
of the BPF program that reads them. The kernel writes the record afterwards, which is not measured.

Each frame is one of another function, as in real programs. The languages and depths are measured in
turn, so that what else the machine does affects all. Needs root.
"""
import shutil
import statistics
import subprocess
import sys

import bench

DEPTHS = 3, 32, 100
RUNS = 7
HZ = 999
SECONDS = 1
GOAL_US = 20
GOAL_DEPTH = 32

# The innermost function runs for ever, and the outermost frame is that of the file.
PYTHON = "def f0():\n    print(flush=True)\n    i = 0\n    while True:\n        i = (i + 1) & 1023\n"
RUBY = "$stdout.sync = true\ndef f0\n  puts\n  i = 0\n  while true\n    i = (i + 1) & 1023\n  end\nend\n"
PERL = "$| = 1;\nsub f0 {\n  print qq(\\n);\n  my $i = 0;\n  while (1) { $i = ($i + 1) & 1023 }\n}\n"


def python_program(frames):
    return PYTHON + "".join(f"def f{i}():\n    return f{i - 1}()\n" for i in range(1, frames - 1)) + f"f{frames - 2}()\n"


def ruby_program(frames):
    """Ruby itself has a frame beyond that of the file."""
    return RUBY + "".join(f"def f{i}\n  f{i - 1}\nend\n" for i in range(1, frames - 2)) + f"f{frames - 3}\n"


def perl_program(frames):
    return PERL + "".join(f"sub f{i} {{\n  my $got = f{i - 1}();\n}}\n" for i in range(1, frames - 1)) + f"f{frames - 2}();\n"


def measure(tool, pid, frames):
    """Returns the mean time of a walk in µs."""
    *samples, counts = bench.run(tool, pid, HZ, SECONDS).splitlines()
    found = {sample.count("|") for sample in samples}
    if found != {frames}:
        sys.exit(f"bench: {found} frames, not {frames}")
    return int(counts.split()[-1]) / 1e3


def main():
    tool = bench.program("WALK_INTERPRETED", "walk-interpreted")
    languages = {"CPython": ("/usr/bin/python3", python_program), "Ruby": ("/usr/bin/ruby", ruby_program),
                 "Perl": ("/usr/bin/perl", perl_program)}
    table = bench.Table("Reading the frames of an interpreter, a sample")
    running, took = {}, {}
    try:
        for language, (program, make) in languages.items():
            if not shutil.which(program):
                print(f"no {program}")
                continue
            for frames in DEPTHS:
                running[language, frames] = subprocess.Popen([program, "-c" if language == "CPython" else "-e", make(frames)], stdout=subprocess.PIPE)
        for process in running.values():
            process.stdout.readline()
            process.send_signal(bench.signal.SIGSTOP)
        for _ in range(RUNS):
            for key, process in running.items():
                process.send_signal(bench.signal.SIGCONT)
                took.setdefault(key, []).append(measure(tool, process.pid, key[1]))
                process.send_signal(bench.signal.SIGSTOP)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    for (language, frames), values in took.items():
        median = statistics.median(values)
        goal = {"goal": f"under {GOAL_US}", "met": median < GOAL_US} if frames == GOAL_DEPTH else {}
        table.row(f"{language}, {frames} frames, µs", median, digits=1, **goal)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
