# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures what reading the functions of an interpreted program costs.

The BPF program that reads the frames measures the time of a walk. The kernel writes the record
afterwards, which is not measured. Each frame belongs to a different function, as in real programs.
The languages and depths are measured in turn, so that other work affects all of them equally.

The slowdown of a Python program is the ratio of its CPU times for the same work, sampled with and
without its functions in turn. The speed of a machine may change between two runs, so the ratio of
each pair is computed, and the median of the pairs counts. Needs root.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import bench

DEPTHS = 3, 32, 100
RUNS = 7
HZ = 999
SECONDS = 1
GOAL_US = 20
GOAL_DEPTH = 32
TURNS_OF_WORK = 400
PAIRS = 15
SECONDS_OF_SIZE = 30
FIRST_SECOND = "import time\ndef work(n):\n    return sum(i * i for i in range(n))\nwhile time.process_time() < 1: work(1000)"

# The innermost function runs forever; the code of the file calls the outermost one.
PYTHON = "def f0():\n    print(flush=True)\n    i = 0\n    while True:\n        i = (i + 1) & 1023\n"
RUBY = "$stdout.sync = true\ndef f0\n  puts\n  i = 0\n  while true\n    i = (i + 1) & 1023\n  end\nend\n"
PERL = "$| = 1;\nsub f0 {\n  print qq(\\n);\n  my $i = 0;\n  while (1) { $i = ($i + 1) & 1023 }\n}\n"


def python_program(frames):
    return PYTHON + "".join(f"def f{i}():\n    return f{i - 1}()\n" for i in range(1, frames - 1)) + f"f{frames - 2}()\n"


def ruby_program(frames):
    """Returns a program with this many frames. The outermost frame is Ruby's own; the next one is
    that of the file."""
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


# Does as many turns of the work as the argument says, and prints their CPU time.
TURNS = """
import sys, time
""" + bench.PYTHON_LOOP.replace("while True:", "begin = time.process_time()\nfor _ in range(int(sys.argv[1])):") + """
print(time.process_time() - begin)
"""


def slowdown(folder, table):
    """Compares the program's CPU time when it is sampled with functions and without them."""
    program, capture = os.path.join(folder, "turns.py"), os.path.join(folder, "turns.cap")
    profctl = bench.program("PROFCTL", "profctl")
    with open(program, "w", encoding="utf-8") as out:
        out.write(TURNS)
    work = ["/usr/bin/python3", program, str(TURNS_OF_WORK)]
    for hertz, goal in (99, 1), (999, 3):
        ratios = []
        for pair in range(PAIRS):
            took = {}
            for option in [["--no-interpreters"], []][::1 if pair % 2 else -1]:
                command = [profctl, "record", "-q", "--force", "-F", hertz, "--no-off-cpu", *option, "-o", capture, "--", *work]
                took[len(option)] = float(bench.run(*command))
            ratios.append(took[0] / took[1])
        percent = 100 * (statistics.median(ratios) - 1)
        table.row(f"slowdown of CPython at {hertz} Hz, %", percent, digits=2, goal=f"under {goal}", met=percent < goal)


def size(folder, table):
    capture = os.path.join(folder, "size.cap")
    with bench.Work(folder) as work:
        bench.run(bench.program("PROFCTL", "profctl"), "record", "-q", "-F", 999, "-d", SECONDS_OF_SIZE, "-o", capture, "--pid", work.python().pid)
    samples = bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "info", capture, "--json")["capture"]["samples"]
    each = os.path.getsize(capture) / samples
    table.row(f"bytes of a sample in {SECONDS_OF_SIZE} s of CPython, with names", each, digits=1, goal="at most 12", met=each <= 12)


def first_second(folder, table):
    """Measures the percentage of the samples in a new program's first second that have the
    program's functions."""
    capture = os.path.join(folder, "first.cap")
    named = []
    for _ in range(RUNS):
        bench.run(bench.program("PROFCTL", "profctl"), "record", "-q", "--force", "-o", capture, "--", "/usr/bin/python3", "-c", FIRST_SECOND)
        read = bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "report", capture, "--json")["data"]["interpreter"]
        known = read["complete"] + read["deeper"]
        named.append(100 * known / (known + read["torn"] + read["missing"]))
    percent = statistics.median(named)
    table.row("functions in the first second of CPython, % of samples", percent, digits=1, goal="at least 95", met=percent >= 95)


def bpf_runs(bpftool):
    """Returns the total time in ns and the number of runs of the BPF program interp_sample, as
    counted by the kernel."""
    found = [program for program in json.loads(bench.run(bpftool, "prog", "show", "--json")) if program.get("name") == "interp_sample"]
    return [sum(program.get(key, 0) for program in found) for key in ("run_time_ns", "run_cnt")]


def other_processes(folder, table):
    """Measures the time of the BPF program for a sample of a process without an interpreter."""
    bpftool = shutil.which("bpftool") or "/usr/sbin/bpftool"
    switch = "/proc/sys/kernel/bpf_stats_enabled"
    if not (os.access(switch, os.W_OK) and os.path.exists(bpftool)):
        print("no bpftool, or no right to count BPF programs")
        return
    with open(switch, encoding="ascii") as file:
        before = file.read()
    with bench.Work(folder) as work:
        work.c()
        with open(switch, "w", encoding="ascii") as file:
            file.write("1")
        try:
            recording = subprocess.Popen([bench.program("PROFCTL", "profctl"), "record", "--system", "-q", "-F", "9999", "-d", "5", "-o",
                                          os.path.join(folder, "c.cap")], stdin=subprocess.DEVNULL)
            # The BPF program is loaded when a process may have an interpreter.
            bench.run("/usr/bin/python3", "-c", FIRST_SECOND)
            first = bpf_runs(bpftool)
            time.sleep(2)
            ns, runs = [last - early for last, early in zip(bpf_runs(bpftool), first)]
            recording.wait()
        finally:
            with open(switch, "w", encoding="ascii") as file:
                file.write(before)
    if runs == 0:
        sys.exit("bench: the kernel counts no run of the BPF program")
    ns /= runs
    table.row("a sample of a process without interpreter, µs", ns / 1e3, digits=2, goal="under 1", met=ns < 1000)


def main():
    tool = bench.program("WALK_INTERPRETED", "walk-interpreted")
    languages = {"CPython": ("/usr/bin/python3", python_program), "Ruby": ("/usr/bin/ruby", ruby_program),
                 "Perl": ("/usr/bin/perl", perl_program)}
    table = bench.Table("Reading the functions of interpreted programs")
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
    with bench.scratch() as folder:
        slowdown(folder, table)
        size(folder, table)
        first_second(folder, table)
        other_processes(folder, table)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
